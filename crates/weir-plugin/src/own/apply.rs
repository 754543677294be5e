//! Does what an edit list asks for. It has been read as a whole by then, and cannot fail any more.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::answers::Mailbox;
use super::changes::{CacheMode, Changes, Part, change_fields};
use super::hook::{Hook, Side};
use crate::body::BodyBuffer;
use crate::exchange::Exchange;

/// What the host remembers of a request between two hooks of this interface.
#[derive(Default)]
pub(crate) struct Trail {
    /// The request's number; 0 until the first hook.
    pub(crate) number: u64,
    /// What body hooks left for the next piece.
    request_kept: Bytes,
    response_kept: Bytes,
    /// The rest of the body need not be shown.
    pub(crate) passes_rest: bool,
    /// How much of the piece that is shown was kept before.
    pub(crate) shown_before: usize,
    /// Answers to the calls that the request made, if it made any.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
}

impl Trail {
    /// Whether another request may use it.
    pub(crate) fn is_fresh(&self) -> bool {
        self.mailbox.is_none() && self.request_kept.is_empty() && self.response_kept.is_empty()
    }

    fn kept(&mut self, side: Side) -> &mut Bytes {
        match side {
            Side::Request => &mut self.request_kept,
            Side::Response => &mut self.response_kept,
        }
    }
}

/// The body of a side.
pub(crate) fn body_of(exchange: &mut Exchange, side: Side) -> &mut BodyBuffer {
    match side {
        Side::Request => &mut exchange.request_body,
        Side::Response => &mut exchange.response_body,
    }
}

/// Puts what the last piece left in front of this one.
pub(crate) fn prepend_kept(exchange: &mut Exchange, side: Side) {
    let kept = std::mem::take(exchange.own.kept(side));
    exchange.own.shown_before = kept.len();
    if kept.is_empty() {
        return;
    }
    let body = body_of(exchange, side);
    let pieces = body.take();
    body.push(kept);
    pieces.into_iter().for_each(|piece| body.push(piece));
}

/// Changes the exchange as the edits of `hook` say.
pub(crate) fn apply(exchange: &mut Exchange, hook: Hook, changes: Changes) {
    if let Some(note) = changes.note {
        exchange.note = note;
    }
    apply_heads(exchange, hook, &changes);
    apply_fields(exchange, hook, changes.fields);
    let trailers = match hook.side() {
        Side::Request => &mut exchange.request_trailers,
        Side::Response => &mut exchange.response_trailers,
    };
    for (name, value) in changes.trailers {
        trailers.append(name, value);
    }
    if changes.body.is_some() || changes.keep > 0 {
        let body = body_of(exchange, hook.side());
        let kept = reshape(body, changes.body, changes.keep);
        *exchange.own.kept(hook.side()) = kept;
    }
    let wishes = &mut exchange.wishes;
    if hook.shows_body() {
        exchange.own.passes_rest |= changes.want.is_some();
    } else if let Some(want) = changes.want {
        match hook.side() {
            Side::Request => wishes.request_body = want,
            Side::Response => wishes.response_body = want,
        }
    }
    if let Some(mode) = changes.cache {
        wishes.cache.pass = mode == CacheMode::Pass;
        wishes.cache.validate = mode == CacheMode::Validate;
    }
    wishes.cache.key = changes.key.or(wishes.cache.key.take());
    wishes.cache.ttl_ms = changes.ttl_ms.or(wishes.cache.ttl_ms);
    wishes.cache.no_store |= changes.no_store;
    wishes.upstream = changes.upstream.or(wishes.upstream.take());
    wishes.verdict = changes.verdict.or(wishes.verdict.take());
    wishes.answer = changes.answer.or(wishes.answer.take());
    wishes.close |= changes.close;
    wishes.reroute |= changes.reroute;
}

fn apply_heads(exchange: &mut Exchange, hook: Hook, changes: &Changes) {
    let line = changes.method.is_some() || changes.target.is_some() || changes.authority.is_some();
    if line && let Some(request) = &mut exchange.request {
        let request = request.to_mut();
        if let Some(method) = &changes.method {
            request.method = method.clone();
        }
        if let Some(target) = &changes.target {
            request.target.clone_from(target);
        }
        if let Some(authority) = &changes.authority {
            request.authority.clone_from(authority);
        }
    }
    if let (Some(status), Some(response), Side::Response) =
        (changes.status, &mut exchange.response, hook.side())
    {
        response.to_mut().status = status;
    }
}

fn apply_fields(exchange: &mut Exchange, hook: Hook, changes: Vec<super::changes::FieldChange>) {
    if changes.is_empty() {
        return;
    }
    let headers = match (hook.shows_trailers(), hook.side()) {
        (true, Side::Request) => Some(&mut exchange.request_trailers),
        (true, Side::Response) => Some(&mut exchange.response_trailers),
        (false, Side::Request) => {
            exchange.request.as_mut().map(|request| &mut request.to_mut().headers)
        }
        (false, Side::Response) => {
            exchange.response.as_mut().map(|response| &mut response.to_mut().headers)
        }
    };
    if let Some(headers) = headers {
        change_fields(headers, changes);
    }
}

/// Makes the piece what `parts` say, without its last `keep` bytes, which are returned.
fn reshape(body: &mut BodyBuffer, parts: Option<Vec<Part>>, keep: usize) -> Bytes {
    let whole = parts.as_ref().map(|_| body.clone());
    let kept = match keep {
        0 => Bytes::new(),
        // KEEP is never more than the piece.
        _ => join(body.split_off(body.len() - keep)),
    };
    if let (Some(parts), Some(whole)) = (parts, whole) {
        body.take();
        for part in parts {
            match part {
                Part::New(bytes) => body.push(bytes),
                Part::Old(range) => slices(&whole, range, |piece| body.push(piece)),
            }
        }
    }
    kept
}

fn slices(body: &BodyBuffer, range: std::ops::Range<usize>, mut to: impl FnMut(Bytes)) {
    let mut at = 0;
    for piece in body.pieces() {
        let (start, end) = (range.start.max(at), range.end.min(at + piece.len()));
        if start < end {
            to(piece.slice(start - at..end - at));
        }
        at += piece.len();
    }
}

fn join(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([one]) => one,
        Err(several) => {
            let mut joined = BytesMut::with_capacity(several.iter().map(Bytes::len).sum());
            several.iter().for_each(|piece| joined.extend_from_slice(piece));
            joined.freeze()
        }
    }
}
