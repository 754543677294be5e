//! A message shown to a service, from the first byte to the answer's head.

use crate::Content;
use crate::answering::Answering;
use crate::chunked;
use crate::error::IcapError;
use crate::head::{self, IcapHead};
use crate::message::{Announced, Shown, unframe};
use crate::options::Transfer;
use crate::preview::Held;
use crate::service::Service;

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

/// What is shown to whom, and how.
struct Exchange<'a> {
    service: &'a Service,
    worker: usize,
    shown: Shown<'a>,
    announced: Announced,
}

/// A service has said nothing.
struct Unanswered {
    lost: Lost,
    /// On a connection that it may have closed since it was used before.
    is_stale: bool,
}

async fn exchange(
    service: &Service,
    worker: usize,
    shown: Shown<'_>,
    held: Box<Held>,
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
    let exchange = Exchange { service, worker, shown, announced };
    let said = match show(&exchange, held, false).await {
        Err(Unanswered { lost: (error, Some(mut held)), is_stale: true }) => match held.rewind() {
            true => show(&exchange, held, true).await,
            false => return Err((error, Some(held))),
        },
        said => said,
    };
    match said {
        Ok((answering, head, held)) => answered(answering, &head, held).await,
        Err(Unanswered { lost, .. }) => Err(lost),
    }
}

/// Shows a message on a connection, a `fresh` one if need be, up to the head of the service's last
/// word; with the content if that is not on its way.
async fn show(
    exchange: &Exchange<'_>,
    mut held: Box<Held>,
    fresh: bool,
) -> Result<(Answering, IcapHead, Option<Box<Held>>), Unanswered> {
    let Exchange { service, worker, shown, announced } = exchange;
    let failed = |error, held| Unanswered { lost: (error, held), is_stale: false };
    let mut text = shown.heads(&service.url, &service.authority, *announced);
    let mut is_whole = !announced.has_content;
    if let Some(len) = announced.preview {
        match held.read(len).await {
            Ok(whole) => is_whole = whole,
            Err(error) => return Err(failed(error, Some(held))),
        }
        held.show(len).iter().for_each(|piece| chunked::put(piece, &mut text));
        text.extend_from_slice(if is_whole { chunked::WHOLE_END } else { chunked::END });
    }
    let (address, limit) = (&service.settings.address, service.settings.timeout);
    let line = match service.pool.line(*worker, address, fresh, limit).await {
        Ok(line) => line,
        Err(error) => return Err(failed(error, Some(held))),
    };
    let is_used = line.is_used;
    let stale = |error, held| {
        let is_stale = is_used && matches!(error, IcapError::Closed | IcapError::Broken(_));
        Unanswered { lost: (error, held), is_stale }
    };
    let mut answering = Answering::new(line, limit);
    if let Err(error) = answering.say(&text).await {
        return Err(stale(error, Some(held)));
    }
    if !is_whole && announced.preview.is_none() {
        answering.pump(held);
        return match answering.icap_head().await {
            Ok(head) => Ok((answering, head, None)),
            Err(error) => Err(stale(error, answering.take_back().await)),
        };
    }
    match answering.icap_head().await {
        Ok(head) if head.status == 100 && !is_whole => answering.pump(held),
        Ok(head) => return Ok((answering, head, Some(held))),
        Err(error) => return Err(stale(error, Some(held))),
    }
    match answering.icap_head().await {
        Ok(head) => Ok((answering, head, None)),
        Err(error) => Err(failed(error, answering.take_back().await)),
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
