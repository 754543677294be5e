//! What comes of a request's content before its upstream is asked: all of it, or as much as a
//! buffer holds. A client that sends slowly then holds a buffer, and no place at the upstream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, Method, header};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, timeout_at};
use weir_origin::upstream::RequestBody;

use super::content::Unsent;
use crate::body::BodyError;
use crate::body_budget::Charge;
use crate::connection::Connection;

/// Content without a declared length may be one half of a conversation: after a pause as long as
/// this it is sent on, and what follows as it comes.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// So it is after this time without one.
const UNDECLARED_TIME_MAX: Duration = Duration::from_secs(5);

/// Pieces below this size are copied together, for they keep whole read buffers alive: a client
/// that sends byte by byte would have one of 8 KiB held for each.
const PIECE_KEPT_BYTES: usize = 8 << 10;

/// How much content is gathered.
pub(super) struct Plan {
    limit_bytes: u64,
    /// The head says how long it is.
    is_declared: bool,
}

impl Plan {
    /// That for a request with this head; `None` if nothing is gathered.
    pub(super) fn of(head: &Parts, limit_bytes: u64) -> Option<Plan> {
        let is_declared = head.headers.contains_key(header::CONTENT_LENGTH);
        (limit_bytes > 0 && is_for(head)).then_some(Plan { limit_bytes, is_declared })
    }
}

/// Whether content is gathered at all. gRPC goes on in both directions from the beginning.
fn is_for(head: &Parts) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let content_type = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |t| t.as_bytes());
    let is_grpc = content_type.get(..GRPC.len()).is_some_and(|t| t.eq_ignore_ascii_case(GRPC));
    !is_grpc && head.method != Method::CONNECT
}

/// Gathers what is planned of `rest`. The charge is for what lies in memory without a count of
/// its own.
///
/// # Errors
/// The content's own failure: its client has gone, or it is larger than it may be.
pub(super) async fn gather(
    connection: &Arc<Connection>,
    mut rest: Unsent,
    plan: &Plan,
) -> Result<(RequestBody, Option<Charge>), BodyError> {
    let Some(mut charge) = Charge::begin(connection) else { return Ok((rest.into_body(), None)) };
    let mut pieces = Pieces::default();
    let mut trailers = None;
    let end = (!plan.is_declared).then(|| Instant::now() + UNDECLARED_TIME_MAX);
    while !rest.is_end_stream() {
        let next = next(&mut rest, &mut pieces);
        let frame = match end {
            None => next.await,
            Some(end) => match timeout_at(end.min(Instant::now() + PAUSE_MAX), next).await {
                Ok(frame) => frame,
                Err(_) => {
                    // Nobody waits for it until the upstream does.
                    connection.socket.await_body(false);
                    return Ok(begun(pieces, rest, charge));
                }
            },
        };
        let Some(frame) = frame.transpose()? else { break };
        match frame.into_data() {
            Ok(data) => {
                let has_left = charge.take(data.len());
                pieces.push(data);
                if (!has_left || pieces.len() as u64 >= plan.limit_bytes) && !rest.is_end_stream() {
                    return Ok(begun(pieces, rest, charge));
                }
            }
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                break;
            }
        }
    }
    drop(rest);
    Ok(whole(pieces, trailers, charge))
}

/// The next frame. What is held is made small while it is waited for.
async fn next(rest: &mut Unsent, pieces: &mut Pieces) -> Option<Result<Frame<Bytes>, BodyError>> {
    poll_fn(|cx| {
        let polled = Pin::new(&mut *rest).poll_frame(cx);
        if polled.is_pending() {
            pieces.settle();
        }
        polled
    })
    .await
}

fn begun(pieces: Pieces, rest: Unsent, charge: Charge) -> (RequestBody, Option<Charge>) {
    let body = Gathered::new(pieces, Some(rest), None, charge);
    (RequestBody::boxed(body), None)
}

fn whole(
    pieces: Pieces,
    trailers: Option<HeaderMap>,
    charge: Charge,
) -> (RequestBody, Option<Charge>) {
    if trailers.is_some() {
        return (RequestBody::boxed(Gathered::new(pieces, None, trailers, charge)), None);
    }
    match pieces.into_one() {
        Ok(bytes) if bytes.is_empty() => (RequestBody::Empty, None),
        Ok(bytes) => (RequestBody::Full(bytes), Some(charge)),
        Err(pieces) => (RequestBody::boxed(Gathered::new(pieces, None, None, charge)), None),
    }
}

/// What has come, in order.
#[derive(Default)]
struct Pieces {
    kept: VecDeque<Bytes>,
    /// The first piece, if it is small: mostly the only one, and then not copied.
    first: Bytes,
    /// Small pieces, copied.
    tail: BytesMut,
    bytes: usize,
}

impl Pieces {
    fn len(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, data: Bytes) {
        let is_first = self.bytes == 0;
        self.bytes += data.len();
        if data.len() >= PIECE_KEPT_BYTES {
            self.close_tail();
            self.kept.push_back(data);
        } else if is_first {
            self.first = data;
        } else {
            self.settle();
            self.tail.extend_from_slice(&data);
        }
    }

    /// Lets go of a buffer of which only a small part is used.
    fn settle(&mut self) {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.tail.extend_from_slice(&first);
        }
    }

    fn close_tail(&mut self) {
        self.settle();
        if !self.tail.is_empty() {
            self.kept.push_back(self.tail.split().freeze());
        }
    }

    /// All of it, if it is in one piece.
    fn into_one(mut self) -> Result<Bytes, Pieces> {
        if !self.first.is_empty() {
            return Ok(self.first);
        }
        if self.kept.is_empty() {
            return Ok(self.tail.freeze());
        }
        self.close_tail();
        match (self.kept.pop_front(), self.kept.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(front), false) => {
                self.kept.push_front(front);
                Err(self)
            }
            (None, _) => Ok(Bytes::new()),
        }
    }
}

/// Content whose beginning, or all, is in memory.
struct Gathered {
    pieces: VecDeque<Bytes>,
    /// Bytes in them.
    bytes: usize,
    /// What is still to come from the client.
    rest: Option<Unsent>,
    trailers: Option<HeaderMap>,
    charge: Option<Charge>,
}

impl Gathered {
    fn new(
        mut pieces: Pieces,
        rest: Option<Unsent>,
        trailers: Option<HeaderMap>,
        charge: Charge,
    ) -> Gathered {
        pieces.close_tail();
        let Pieces { kept, bytes, .. } = pieces;
        Gathered { pieces: kept, bytes, rest, trailers, charge: Some(charge) }
    }
}

impl Body for Gathered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(piece) = self.pieces.pop_front() {
            self.bytes -= piece.len();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        self.charge = None;
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(rest).poll_frame(cx));
        if frame.is_none() {
            self.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.bytes as u64;
        let Some(rest) = &self.rest else {
            // Trailers have no place behind content of a declared length.
            return match self.trailers {
                Some(_) => SizeHint::default(),
                None => SizeHint::with_exact(held),
            };
        };
        let of_rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(of_rest.lower() + held);
        if let Some(upper) = of_rest.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(from: usize, len: usize) -> Bytes {
        (from..from + len).map(|i| b'a' + (i % 23) as u8).collect()
    }

    /// Pieces of these sizes, waited for where it says so: how many are held, and their order.
    fn check(sizes: &[usize], waits: bool, expect: usize) {
        let mut pieces = Pieces::default();
        let mut sent = 0;
        for size in sizes {
            pieces.push(letters(sent, *size));
            sent += size;
            if waits {
                pieces.settle();
            }
        }
        assert_eq!(pieces.len(), sent, "{sizes:?}");
        let held: Vec<Bytes> = match pieces.into_one() {
            Ok(one) => vec![one],
            Err(pieces) => pieces.kept.into(),
        };
        assert_eq!((held.len(), held.concat()), (expect, letters(0, sent).to_vec()), "{sizes:?}");
    }

    #[test]
    fn small_pieces_are_joined_and_large_ones_kept() {
        const LARGE: usize = PIECE_KEPT_BYTES;
        for waits in [false, true] {
            check(&[], waits, 1);
            check(&[5], waits, 1);
            check(&[0, 5], waits, 1);
            check(&[5, 0, 5], waits, 1);
            check(&[1; 1000], waits, 1);
            check(&[LARGE], waits, 1);
            check(&[LARGE - 1, 1], waits, 1);
            check(&[LARGE, 1], waits, 2);
            check(&[1, LARGE], waits, 2);
            check(&[1, LARGE, 1, 1, LARGE, LARGE, 3], waits, 6);
        }
    }

    #[test]
    fn what_is_complete_at_once_is_not_copied() {
        let sent = letters(0, 100);
        let mut pieces = Pieces::default();
        pieces.push(sent.clone());
        assert_eq!(pieces.into_one().ok().map(|one| one.as_ptr()), Some(sent.as_ptr()));
        // What is waited for is: the rest of its buffer is free then.
        let mut pieces = Pieces::default();
        pieces.push(sent.clone());
        pieces.settle();
        assert_ne!(pieces.into_one().ok().map(|one| one.as_ptr()), Some(sent.as_ptr()));
    }

    #[test]
    fn calls_that_go_on_in_both_directions_are_not_gathered() {
        let check = |content_type: Option<&str>, expect: bool| {
            let mut request = http::Request::post("/").body(()).unwrap();
            if let Some(content_type) = content_type {
                request.headers_mut().insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            }
            assert_eq!(is_for(&request.into_parts().0), expect, "{content_type:?}");
        };
        check(None, true);
        check(Some("application/json"), true);
        check(Some("application/gr"), true);
        check(Some("application/grpc"), false);
        check(Some("Application/gRPC+proto; x=y"), false);
    }
}
