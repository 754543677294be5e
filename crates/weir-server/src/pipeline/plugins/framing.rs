//! How messages are framed stays Weir's business, whatever plugins make of their heads and bodies:
//! which of their words on it are taken, and that they are held to those.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use weir_plugin::{Answer, CallBody, Failure, FailureKind, Stream};

/// Fields that say how a message is framed and what becomes of its connection: Weir's own business
/// (RFC 9112 §6, RFC 9110 §7.6.1).
pub(super) const FRAMING: [HeaderName; 5] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
];

/// Makes these fields what they were.
pub(super) fn keep(names: &[HeaderName], before: &HeaderMap, after: &mut HeaderMap) {
    for name in names {
        after.remove(name);
        for value in before.get_all(name) {
            after.append(name, value.clone());
        }
    }
}

/// Whether a response of this status never has content (RFC 9110 §15.3.5, §15.3.6, §15.4.5).
pub(crate) fn has_no_content(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
}

/// How a plugin's own answer is framed is not for the plugin to say, and one whose status has no
/// content has none.
pub(super) fn framed(mut answer: Answer) -> Answer {
    for name in &FRAMING {
        answer.headers.remove(name);
    }
    if has_no_content(answer.status) {
        answer.body = Bytes::new();
        answer.trailers.clear();
    }
    answer
}

/// Takes out what a plugin says of the length of a body: one number in plain digits (RFC 9110
/// §8.6). Anything else counts for nothing, and the plugin's log says so.
pub(super) fn take_length(stream: &Stream, headers: &mut HeaderMap) -> Option<u64> {
    let length = length(headers);
    if length.is_none() && headers.contains_key(header::CONTENT_LENGTH) {
        let lines = headers.get_all(header::CONTENT_LENGTH).iter();
        let said: Vec<String> =
            lines.map(|line| line.as_bytes().escape_ascii().to_string()).collect();
        let said = said.join(", ");
        let text = format!("content-length \"{said}\" is no length; the field is left out");
        stream.generation().warn(&text);
    }
    headers.remove(header::CONTENT_LENGTH);
    length
}

/// The length that a head declares.
pub(in crate::pipeline) fn length(headers: &HeaderMap) -> Option<u64> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let digits = lines.next()?.to_str().ok()?;
    let is_only = lines.next().is_none() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_only.then(|| digits.parse().ok())?
}

/// Declares a length, or none.
pub(super) fn declare(headers: &mut HeaderMap, length: Option<u64>) {
    match length {
        Some(length) => headers.insert(header::CONTENT_LENGTH, length.into()),
        None => headers.remove(header::CONTENT_LENGTH),
    };
}

/// Makes a request's head tell how its content is framed now: later stages judge by it.
pub(in crate::pipeline) fn declare_content(head: &mut Parts, length: Option<u64>) {
    declare(&mut head.headers, length);
    head.headers.remove(header::TRANSFER_ENCODING);
    if length.is_none() && head.version == Version::HTTP_11 {
        head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// The trailers that a response announces are those that were, and those that a plugin announces
/// beside them; over HTTP/1.1 others are not sent. Tells whether there are more than there were.
pub(super) fn announce(stream: &Stream, before: &HeaderMap, headers: &mut HeaderMap) -> bool {
    let old = before.get_all(header::TRAILER);
    if old == headers.get_all(header::TRAILER) {
        return false;
    }
    let (new, refused): (Vec<_>, Vec<_>) = names(headers)
        .filter(|name| !names(before).any(|old| old == *name))
        .partition(weir_http::forward::may_be_trailer);
    for name in refused {
        stream.generation().warn(&format!("{name} may not be a trailer; it is not announced"));
    }
    let is_more = !new.is_empty();
    headers.remove(header::TRAILER);
    for value in old.iter().cloned().chain(new.into_iter().map(HeaderValue::from)) {
        headers.append(header::TRAILER, value);
    }
    is_more
}

fn names(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let lines = headers.get_all(header::TRAILER).iter();
    let members = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    members.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

/// The body of an answer, with its trailers, which `headers` announce.
pub(super) fn with_trailers(headers: &mut HeaderMap, body: Bytes, trailers: HeaderMap) -> CallBody {
    for name in trailers.keys() {
        headers.append(header::TRAILER, HeaderValue::from(name.clone()));
    }
    Ended { body: Some(body), trailers: Some(trailers) }.boxed_unsync()
}

/// A body that ends with trailers. It does not tell its length: a message of HTTP/1.1 that does has
/// no place for them.
struct Ended {
    body: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Ended {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let body = self.body.take().filter(|body| !body.is_empty()).map(Frame::data);
        let frame = body.or_else(|| self.trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && self.body.as_ref().is_none_or(Bytes::is_empty)
    }
}

/// A body that a plugin makes under a length that it has left in the head. It is as long as that,
/// or it breaks off before its last byte.
pub(super) struct Held {
    body: CallBody,
    /// Bytes that are missing.
    left: u64,
    length: u64,
    /// The last piece, until what follows it is known.
    last: Option<Bytes>,
    /// What followed it.
    after: Option<Frame<Bytes>>,
    has_ended: bool,
    stream: Stream,
}

impl Held {
    /// Holds `body` to `length`, unless its own is known.
    pub(super) fn over(body: CallBody, length: u64, stream: &Stream) -> CallBody {
        if body.size_hint().exact().is_some() {
            return body;
        }
        let (last, after, stream) = (None, None, stream.clone());
        Held { body, left: length, length, last, after, has_ended: false, stream }.boxed_unsync()
    }

    fn differs(&mut self, how: &str) -> Failure {
        self.has_ended = true;
        self.last = None;
        let text =
            format!("the body that it made is {how} than its content-length of {}", self.length);
        let failure = Failure::new(FailureKind::Protocol, text);
        self.stream.refuse(&failure);
        failure
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            if this.has_ended {
                let last = this.last.take().map(Frame::data);
                return Poll::Ready(last.or_else(|| this.after.take()).map(Ok));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None if this.left > 0 => {
                    return Poll::Ready(Some(Err(this.differs("shorter").into())));
                }
                None => this.has_ended = true,
                Some(Err(error)) => {
                    this.has_ended = true;
                    this.last = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() as u64 > this.left => {
                        return Poll::Ready(Some(Err(this.differs("longer").into())));
                    }
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        this.left -= data.len() as u64;
                        if this.left > 0 {
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        this.has_ended = this.body.is_end_stream();
                        this.last = Some(data);
                    }
                    Err(_) if this.left > 0 => {
                        return Poll::Ready(Some(Err(this.differs("shorter").into())));
                    }
                    Err(trailers) => {
                        this.has_ended = true;
                        this.after = Some(trailers);
                    }
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.last.is_none() && self.after.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.last.as_ref().map_or(0, |last| last.len() as u64);
        SizeHint::with_exact(self.left + held)
    }
}
