//! A gRPC call or stream while it runs. It reads no further than the plugin does: each event is
//! handled before the next is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::{mpsc, oneshot};

use super::Event;
use super::frames::Decoder;
use crate::place::Home;
use crate::services::{CallBody, Services};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// gRPC's status codes that the host itself gives.
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// A status other than 0, and what it says.
type Failed = (u32, String);

/// The body of a call.
pub(super) fn whole(message: Bytes) -> CallBody {
    Full::new(message).map_err(|never| match never {}).boxed_unsync()
}

/// The body of a stream.
pub(super) fn streamed(mut messages: mpsc::Receiver<Bytes>) -> CallBody {
    let frames = futures_util::stream::poll_fn(move |cx| {
        messages.poll_recv(cx).map(|message| message.map(|message| Ok(Frame::data(message))))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// One call or stream.
pub(super) struct Task {
    pub(super) home: Home,
    pub(super) id: u32,
    pub(super) is_stream: bool,
}

impl Task {
    /// Runs it to its end.
    pub(super) async fn run(
        self,
        services: Arc<dyn Services>,
        upstream: String,
        request: Request<CallBody>,
        timeout: Option<Duration>,
    ) {
        let worker = self.home.worker;
        let talking = async {
            let response = services.call(worker, &upstream, request).await;
            self.read(response.map_err(|cause| (UNAVAILABLE, cause))?).await
        };
        let result = match timeout {
            None => talking.await,
            Some(timeout) => tokio::time::timeout(timeout, talking)
                .await
                .unwrap_or_else(|_| Err((DEADLINE_EXCEEDED, "no answer in time".to_owned()))),
        };
        match result {
            // A call is over with its message.
            Ok(Some(message)) => self.tell(Event::Message(message, true)).await,
            Ok(None) => self.tell(Event::Close(0, String::new())).await,
            Err((code, message)) => self.tell(Event::Close(code, message)).await,
        }
    }

    /// Reads the answer. Returns a call's message.
    async fn read(&self, response: Response<CallBody>) -> Result<Option<Bytes>, Failed> {
        let (head, mut body) = response.into_parts();
        if head.status != http::StatusCode::OK {
            return Err((UNKNOWN, format!("the upstream answered with status {}", head.status)));
        }
        // A head that has a status is all there is.
        let mut status = status(&head.headers);
        if self.is_stream {
            self.tell(Event::Initial(head.headers)).await;
        }
        let (mut decoder, mut first) = (Decoder::default(), None);
        let mut trailers = HeaderMap::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|cause| (UNAVAILABLE, cause.to_string()))?;
            match frame.into_data() {
                Ok(piece) => {
                    decoder.push(&piece);
                    while let Some(message) =
                        decoder.next().map_err(|(code, why)| (code, why.to_owned()))?
                    {
                        self.take(message, &mut first).await?;
                    }
                }
                Err(other) => trailers = other.into_trailers().unwrap_or_default(),
            }
        }
        status = status.or_else(|| self::status(&trailers));
        if self.is_stream {
            self.tell(Event::Trailing(trailers)).await;
        }
        match status {
            None => Err((UNKNOWN, "the upstream ended without a status".to_owned())),
            Some((0, _)) if decoder.is_inside() => {
                Err((INTERNAL, "the upstream ended inside a message".to_owned()))
            }
            Some((0, _)) if !self.is_stream && first.is_none() => {
                Err((INTERNAL, "the upstream ended without a message".to_owned()))
            }
            Some((0, _)) => Ok(first),
            Some(failed) => Err(failed),
        }
    }

    async fn take(&self, message: Bytes, first: &mut Option<Bytes>) -> Result<(), Failed> {
        if self.is_stream {
            self.tell(Event::Message(message, false)).await;
        } else if first.replace(message).is_some() {
            return Err((INTERNAL, "the upstream sent more than one message".to_owned()));
        }
        Ok(())
    }

    /// Tells the plugin, and waits until it has heard.
    async fn tell(&self, event: Event) {
        let (heard, hearing) = oneshot::channel::<()>();
        let id = self.id;
        self.home.deliver(move |instance| {
            let result = instance.proxy_wasm(|guest, store| guest.grpc(store, id, event));
            drop(heard);
            result
        });
        // An error says that it was heard, or that nobody is there to hear it.
        let _ = hearing.await;
    }
}

fn status(fields: &HeaderMap) -> Option<(u32, String)> {
    let code = fields.get(GRPC_STATUS)?.to_str().ok()?.parse().unwrap_or(UNKNOWN);
    let message = fields.get(GRPC_MESSAGE).map(|value| percent_decoded(value.as_bytes()));
    Some((code, message.unwrap_or_default()))
}

fn percent_decoded(text: &[u8]) -> String {
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) if byte == b'%' => {
                decoded.push(code);
                rest = &after[2..];
            }
            _ => decoded.push(byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_status_are_decoded() {
        for (encoded, decoded) in
            [("a b", "a b"), ("%c3%A9!", "é!"), ("100%", "100%"), ("%zz", "%zz")]
        {
            assert_eq!(percent_decoded(encoded.as_bytes()), decoded);
        }
    }
}
