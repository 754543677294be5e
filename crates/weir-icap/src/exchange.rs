//! A message shown to a service, from the first byte to the answer's head.

use crate::Content;
use crate::answering::{Answering, Sending};
use crate::chunked;
use crate::error::IcapError;
use crate::head::{self, IcapHead};
use crate::message::{Announced, Shown, unframe};
use crate::options::Transfer;
use crate::pool::Line;
use crate::preview::Held;
use crate::pump::Pump;
use crate::service::Service;
use crate::wire::write_all;

/// What a service makes of a message.
pub enum Modified {
    /// It stays as it is; its content, restored.
    Unchanged(Content),
    /// Another request in its place. What is not in its head is for the caller to fill in.
    Request(http::request::Parts, Option<Content>),
    /// A response: in a response's place, or to the client instead of asking anybody.
    Response(http::response::Parts, Option<Content>),
}

/// A service had no answer.
pub struct Failed {
    /// Why.
    pub error: IcapError,
    /// The message's content as it was; `None` if some of it is gone.
    pub content: Option<Content>,
}

/// What there is of an exchange when it fails: the content, unless it is gone.
type Lost = (IcapError, Option<Box<Held>>);

pub(crate) async fn run(
    service: &Service,
    worker: usize,
    shown: Shown<'_>,
    content: Option<Content>,
) -> Result<Modified, Failed> {
    exchange(service, worker, shown, Box::new(Held::new(content)))
        .await
        .map_err(|(error, held)| Failed { error, content: held.and_then(|held| held.restore()) })
}

async fn exchange(
    service: &Service,
    worker: usize,
    shown: Shown<'_>,
    mut held: Box<Held>,
) -> Result<Modified, Lost> {
    let transfer = match service.options(worker).await {
        Ok(options) => options.transfer(shown.uri.path()),
        Err(error) => return Err((error, Some(held))),
    };
    let mut announced =
        Announced { has_content: held.has_content(), preview: None, allows_unchanged: held.fits() };
    match transfer {
        Transfer::Ignore => return unchanged(*held),
        Transfer::Complete => {}
        Transfer::Preview(len) if announced.has_content => announced.preview = Some(len),
        Transfer::Preview(_) => {}
    }
    let mut text = shown.heads(&service.url, &service.authority, announced);
    let mut is_whole = !announced.has_content;
    if let Some(len) = announced.preview {
        match held.read(len).await {
            Ok(whole) => is_whole = whole,
            Err(error) => return Err((error, Some(held))),
        }
        held.show(len).iter().for_each(|piece| chunked::put(piece, &mut text));
        text.extend_from_slice(if is_whole { chunked::WHOLE_END } else { chunked::END });
    }
    let answers_first = is_whole || announced.preview.is_some();
    let (mut answering, first) = match begin(service, worker, &text, answers_first).await {
        Ok(begun) => begun,
        Err(error) => return Err((error, Some(held))),
    };
    let goes_on = match &first {
        Some(head) => head.status == 100 && !is_whole,
        None => true,
    };
    if let Some(head) = first.filter(|_| !goes_on) {
        return answered(answering, &head, Some(held)).await;
    }
    // The rest of the content, while the answer may already come.
    let Sending::Done(to) = answering.sending else {
        return Err((IcapError::Closed, Some(held)));
    };
    answering.sending = Sending::Pumped(Pump::start(to, held, answering.limit));
    match answering.icap_head().await {
        Ok(head) => answered(answering, &head, None).await,
        Err(error) => Err((error, answering.take_back().await)),
    }
}

/// Sends the beginning, and waits for what the service says to it if it is its turn. A connection
/// that was used before may turn out to be closed: then another one is tried.
async fn begin(
    service: &Service,
    worker: usize,
    text: &[u8],
    answers_first: bool,
) -> Result<(Answering, Option<IcapHead>), IcapError> {
    let (address, limit) = (&service.settings.address, service.settings.timeout);
    let mut fresh = false;
    loop {
        let line = service.pool.line(worker, address, fresh, limit).await?;
        let Line { incoming, place, mut to, is_used } = line;
        let begun = async {
            write_all(&mut to, text, limit).await?;
            let sending = Sending::Done(to);
            let mut answering = Answering { incoming, place, sending, limit, held: None };
            let head = match answers_first {
                true => Some(answering.icap_head().await?),
                false => None,
            };
            Ok((answering, head))
        };
        match begun.await {
            Err(IcapError::Closed | IcapError::Broken(_)) if is_used => fresh = true,
            begun => return begun,
        }
    }
}

/// The service has answered; `held` is the content if it is not on its way.
async fn answered(
    mut answering: Answering,
    head: &IcapHead,
    held: Option<Box<Held>>,
) -> Result<Modified, Lost> {
    let status = match head.status {
        204 => return spared(answering, held).await,
        status => status,
    };
    let read = match status {
        200 | 201 => modified(&mut answering, head).await,
        _ => Err(IcapError::Status(status)),
    };
    let (message, has_content) = match read {
        Ok(read) => read,
        Err(error) => {
            return Err(match held {
                Some(held) => (error, Some(held)),
                None => (error, answering.take_back().await),
            });
        }
    };
    let content = match has_content {
        true => Some(answering.content()),
        false => {
            answering.finish();
            None
        }
    };
    Ok(match message {
        Message::Request(parts) => Modified::Request(parts, content),
        Message::Response(parts) => Modified::Response(parts, content),
    })
}

enum Message {
    Request(http::request::Parts),
    Response(http::response::Parts),
}

/// Reads the heads of what goes on in the message's place.
async fn modified(
    answering: &mut Answering,
    head: &IcapHead,
) -> Result<(Message, bool), IcapError> {
    let encapsulated = head.encapsulated()?;
    let heads = answering.http_heads(encapsulated.heads_len).await?;
    let message = match (encapsulated.request, encapsulated.response) {
        (_, Some((begin, end))) => {
            let mut parts = head::response(&heads.slice(begin..end))?;
            unframe(&mut parts.headers);
            Message::Response(parts)
        }
        (Some((begin, end)), None) => {
            let mut parts = head::request(&heads.slice(begin..end))?;
            unframe(&mut parts.headers);
            Message::Request(parts)
        }
        (None, None) => return Err(IcapError::Garbage("an answer without a message")),
    };
    Ok((message, encapsulated.has_content))
}

/// The message stays as it is.
async fn spared(mut answering: Answering, held: Option<Box<Held>>) -> Result<Modified, Lost> {
    let held = match held {
        Some(held) => Some(held),
        // The service may say so before it was sent everything; what it was sent is still there.
        None => match answering.all_sent().await {
            Ok(held) => held,
            Err(error) => return Err((error, answering.take_back().await)),
        },
    };
    answering.finish();
    held.map_or(Err((UNASKED, None)), |held| unchanged(*held))
}

/// It was told to say 204 only of content that is kept as a whole.
const UNASKED: IcapError = IcapError::Garbage("204 where it was not offered");

fn unchanged(held: Held) -> Result<Modified, Lost> {
    match held.restore() {
        Some(content) => Ok(Modified::Unchanged(content)),
        None => Err((UNASKED, None)),
    }
}
