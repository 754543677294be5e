//! The body of a response as it comes in.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use super::super::limits::{CHUNK_LINE_SIZE_MAX, FIELDS_MAX, HEAD_SIZE_MAX, READ_SIZE_MAX};
use super::Failure;
use crate::error::ErrorKind;

/// What is still to come of a body.
pub(super) enum Body {
    Done,
    /// So many bytes.
    Length(u64),
    UntilClose,
    Chunked(Chunked),
}

/// Where in the chunked coding (RFC 9112, section 7.1) the next byte is.
pub(super) enum Chunked {
    Size,
    /// So many bytes of data.
    Data(u64),
    /// The end of line behind data.
    DataEnd,
    Trailers,
}

/// What the bytes received so far yield.
pub(super) enum Piece {
    Frame(Frame<Bytes>),
    End,
    /// Nothing yet: as many bytes more may be of use.
    Wanted(usize),
}

pub(super) fn garbage(cause: impl Into<crate::error::BoxError>) -> Failure {
    Failure::new(ErrorKind::Garbage, cause)
}

impl Body {
    /// The length of what is still to come, if it is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Body::Done => Some(0),
            Body::Length(left) => Some(*left),
            Body::UntilClose | Body::Chunked(_) => None,
        }
    }

    /// Takes the next piece off the bytes received.
    pub(super) fn take(&mut self, received: &mut BytesMut) -> Result<Piece, Failure> {
        match self {
            Body::Done => Ok(Piece::End),
            Body::Length(left) => match take_data(received, left) {
                Some(data) => {
                    if *left == 0 {
                        *self = Body::Done;
                    }
                    Ok(Piece::Frame(Frame::data(data)))
                }
                None => Ok(Piece::Wanted(usize::try_from(*left).unwrap_or(usize::MAX))),
            },
            Body::UntilClose if received.is_empty() => Ok(Piece::Wanted(READ_SIZE_MAX)),
            Body::UntilClose => Ok(Piece::Frame(Frame::data(std::mem::take(received).freeze()))),
            Body::Chunked(state) => {
                let piece = take_chunked(state, received)?;
                let is_end = match &piece {
                    Piece::Frame(frame) => frame.is_trailers(),
                    Piece::End => true,
                    Piece::Wanted(_) => false,
                };
                if is_end {
                    *self = Body::Done;
                }
                Ok(piece)
            }
        }
    }
}

/// As much of `left` bytes as there is.
fn take_data(received: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    if received.is_empty() {
        return None;
    }
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
    *left -= count as u64;
    if count == received.len() {
        // Whoever takes the piece takes the memory with it.
        return Some(std::mem::take(received).freeze());
    }
    Some(received.split_to(count).freeze())
}

fn take_chunked(state: &mut Chunked, received: &mut BytesMut) -> Result<Piece, Failure> {
    /// Bytes asked for where a line is expected: what follows it comes along.
    const LINE: usize = 8 << 10;
    loop {
        match state {
            Chunked::Size => {
                // No digit at all would be taken for 0, which ends the body.
                if received.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
                    return Err(garbage("a chunk without a size"));
                }
                let parsed = httparse::parse_chunk_size(received);
                match parsed.map_err(|_| garbage("an invalid chunk size"))? {
                    httparse::Status::Complete((length, size)) => {
                        received.advance(length);
                        *state = if size == 0 { Chunked::Trailers } else { Chunked::Data(size) };
                    }
                    httparse::Status::Partial if received.len() > CHUNK_LINE_SIZE_MAX => {
                        return Err(garbage("a chunk's line is too long"));
                    }
                    httparse::Status::Partial => return Ok(Piece::Wanted(LINE)),
                }
            }
            Chunked::Data(left) => {
                let data = take_data(received, left);
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX - LINE);
                if *left == 0 {
                    *state = Chunked::DataEnd;
                }
                return Ok(match data {
                    Some(data) => Piece::Frame(Frame::data(data)),
                    // The next size comes along.
                    None => Piece::Wanted(wanted.saturating_add(LINE_MIN)),
                });
            }
            Chunked::DataEnd => match &received[..] {
                [] | [b'\r'] => return Ok(Piece::Wanted(LINE)),
                [b'\r', b'\n', ..] => {
                    received.advance(2);
                    *state = Chunked::Size;
                }
                _ => return Err(garbage("no end of line behind a chunk")),
            },
            Chunked::Trailers => {
                return match take_trailers(received)? {
                    None => Ok(Piece::Wanted(LINE)),
                    Some(trailers) if trailers.is_empty() => Ok(Piece::End),
                    Some(trailers) => Ok(Piece::Frame(Frame::trailers(trailers))),
                };
            }
        }
    }
}

/// The end of a chunk, a size and the end of the body fit.
const LINE_MIN: usize = 32;

fn take_trailers(received: &mut BytesMut) -> Result<Option<HeaderMap>, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let parsed = httparse::parse_headers(received, &mut fields).map_err(garbage)?;
    let httparse::Status::Complete((length, fields)) = parsed else {
        if received.len() >= HEAD_SIZE_MAX {
            return Err(garbage(format!("trailers above {HEAD_SIZE_MAX} bytes")));
        }
        return Ok(None);
    };
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(garbage)?;
        trailers.append(name, HeaderValue::from_bytes(field.value).map_err(garbage)?);
    }
    received.advance(length);
    Ok(Some(trailers))
}
