//! An answer on its way back, which may begin while content is still on its way there.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::net::tcp::OwnedWriteHalf;

use crate::chunked::{Decoded, Decoder};
use crate::error::IcapError;
use crate::head::{self, IcapHead};
use crate::pool::{Line, Place};
use crate::preview::Held;
use crate::pump::{Pump, Pumped, Stopped};
use crate::wire::{Incoming, within, write_all};
use crate::{Content, ahead};

/// A connection from which an answer is read.
pub(crate) struct Answering {
    pub(crate) incoming: Incoming,
    pub(crate) place: Place,
    pub(crate) sending: Sending,
    /// How long the service may stand still.
    pub(crate) limit: Duration,
    /// The content that was sent, until the service has said what becomes of it.
    pub(crate) held: Option<Box<Held>>,
    /// The service has said that it takes nothing more.
    closes: bool,
}

/// The other direction meanwhile.
pub(crate) enum Sending {
    /// All has been sent that is to be.
    Done(OwnedWriteHalf),
    Pumped(Pump),
    /// The service took no more. What it says counts, but nothing can be said to it again.
    Over,
}

impl Answering {
    /// What is to be answered has been sent by `line`, or is about to be.
    pub(crate) fn new(line: Line, limit: Duration) -> Answering {
        let Line { incoming, place, to, .. } = line;
        Answering { incoming, place, sending: Sending::Done(to), limit, held: None, closes: false }
    }

    /// Sends the beginning of a message.
    pub(crate) async fn say(&mut self, text: &[u8]) -> Result<(), IcapError> {
        match &mut self.sending {
            Sending::Done(to) => write_all(to, text, self.limit).await,
            Sending::Pumped(_) | Sending::Over => Err(IcapError::Closed),
        }
    }

    /// Sends the rest of the content, while the answer may already come.
    pub(crate) fn pump(&mut self, held: Box<Held>) {
        self.sending = match std::mem::replace(&mut self.sending, Sending::Over) {
            Sending::Done(to) => Sending::Pumped(Pump::start(to, held, self.limit)),
            sending => sending,
        };
    }

    /// Waits for the service's own head.
    pub(crate) async fn icap_head(&mut self) -> Result<IcapHead, IcapError> {
        loop {
            if let Some(head) = head::take_icap(&mut self.incoming.buffer)? {
                self.closes |= head.closes();
                return Ok(head);
            }
            self.more().await?;
        }
    }

    /// Waits for so many bytes of heads of HTTP messages.
    pub(crate) async fn http_heads(&mut self, len: usize) -> Result<Bytes, IcapError> {
        while self.incoming.buffer.len() < len {
            self.more().await?;
        }
        Ok(self.incoming.buffer.split_to(len).freeze())
    }

    /// Waits for a piece of content; `None` is its end.
    async fn piece(&mut self, decoder: &mut Decoder) -> Result<Option<Bytes>, IcapError> {
        loop {
            match decoder.decode(&mut self.incoming.buffer)? {
                Decoded::Data(piece) => return Ok(Some(piece)),
                Decoded::End => return Ok(None),
                Decoded::Partial => self.more().await?,
            }
        }
    }

    /// Waits for more: as long as it takes while the service is still sent content, which may come
    /// slowly itself, and then as long as it may stand still.
    async fn more(&mut self) -> Result<(), IcapError> {
        if let Sending::Pumped(pump) = &mut self.sending {
            tokio::select! {
                biased;
                more = self.incoming.more() => return more,
                pumped = pump.ended() => self.sent(pumped)?,
            }
        }
        within(self.limit, self.incoming.more()).await
    }

    /// No more content is sent.
    fn sent(&mut self, pumped: Option<Pumped>) -> Result<(), IcapError> {
        self.sending = Sending::Over;
        let Some(Pumped { to, held, result }) = pumped else { return Ok(()) };
        self.held = Some(held);
        match result {
            Ok(()) => self.sending = Sending::Done(to),
            // An answer to half of the content is none to the whole.
            Err(Stopped::Failed(error @ IcapError::Content(_))) => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    /// Reads content in a task of its own, which ends with the service's answer unless whoever
    /// reads it stays too far behind.
    pub(crate) fn content(mut self) -> Content {
        self.held = None;
        let (mut sender, reader) = ahead::answer(&self.place.room, self.limit);
        tokio::spawn(async move {
            let mut decoder = Decoder::default();
            loop {
                match self.piece(&mut decoder).await {
                    Ok(Some(piece)) => {
                        if sender.send(piece).await.is_err() {
                            // Nobody gets the rest.
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        sender.abort(error);
                        return;
                    }
                }
            }
            drop(sender);
            self.finish();
        });
        reader.boxed_unsync()
    }

    /// Stops sending and takes back the content.
    pub(crate) async fn take_back(self) -> Option<Box<Held>> {
        match self.sending {
            Sending::Pumped(pump) => pump.stop().await.map(|pumped| pumped.held),
            Sending::Done(_) | Sending::Over => self.held,
        }
    }

    /// Waits until all content has been sent, and takes it back.
    ///
    /// # Errors
    /// If it broke off, with what there is of it.
    pub(crate) async fn all_sent(&mut self) -> Result<Option<Box<Held>>, IcapError> {
        if let Sending::Pumped(pump) = &mut self.sending {
            let pumped = pump.ended().await;
            self.sent(pumped)?;
        }
        Ok(self.held.take())
    }

    /// The answer is over. A service that has answered before it was sent everything, or closes, is
    /// sent no more.
    pub(crate) fn finish(self) {
        if let Sending::Done(to) = self.sending
            && !self.closes
        {
            self.place.give_back(self.incoming, to);
        }
    }
}
