//! What a client says first: a PROXY protocol header where the listener asks for one, then HTTP/2's
//! connection preface or an HTTP/1 request.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::ready;

use tokio::io::{AsyncRead, ReadBuf};

use crate::proxy_protocol::{self, Addresses, Parsed};
use crate::stream::Stream;

/// RFC 9113 §3.4.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes taken in one read while the protocol is not known yet. Larger than an ordinary request
/// head, so that a request needs one read.
const FIRST_READ_BYTES: usize = 4096;

/// The protocol of a cleartext connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
}

/// Waits for the client's first bytes and tells the protocol; the bytes stay unread. `None` if the
/// client closed the connection without a word, or speaks neither: then there is nothing to answer
/// that it would understand.
///
/// # Errors
/// What the socket says.
pub async fn detect(stream: &mut Stream) -> io::Result<Option<Protocol>> {
    let mut first = Vec::new();
    loop {
        let before = first.len();
        read_more(stream, &mut first).await?;
        let common = first.len().min(HTTP2_PREFACE.len());
        let protocol = match first[..common] == HTTP2_PREFACE[..common] {
            true if common == HTTP2_PREFACE.len() => Protocol::Http2,
            // The client stopped in the middle of the preface: HTTP/1's parser says what is wrong.
            true if first.len() == before && before > 0 => Protocol::Http1,
            true if first.is_empty() => return Ok(None),
            true => continue,
            false => Protocol::Http1,
        };
        let is_http = protocol == Protocol::Http2 || may_be_http1(&first);
        stream.unread(first);
        return Ok(is_http.then_some(protocol));
    }
}

/// Whether a first line, as far as it has arrived, could be HTTP/1's. One of three words or more
/// whose last is no version comes from no client of HTTP/1; it may be a bad preface of HTTP/2,
/// after which the connection is to be closed (RFC 9113 §3.4).
fn may_be_http1(first: &[u8]) -> bool {
    let Some(end) = first.iter().position(|&byte| byte == b'\n') else { return true };
    let mut words = first[..end].trim_ascii_end().rsplitn(3, |&byte| byte == b' ');
    match (words.next(), words.next(), words.next()) {
        (Some(last), Some(_), Some(_)) => last.starts_with(b"HTTP/"),
        _ => true,
    }
}

/// Reads a PROXY protocol header; what follows it stays unread. The result is the client's and the
/// server's address as the proxy saw them, `None` if the proxy speaks for itself.
///
/// # Errors
/// `InvalidData` if the connection does not begin with a header, or what the socket says.
pub async fn read_proxy_header(stream: &mut Stream) -> io::Result<Option<Addresses>> {
    let mut first = Vec::new();
    loop {
        let before = first.len();
        read_more(stream, &mut first).await?;
        if first.len() == before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match proxy_protocol::parse(&first) {
            Ok(Parsed::Incomplete { .. }) => {}
            Ok(Parsed::Complete { addresses, consumed }) => {
                first.drain(..consumed);
                stream.unread(first);
                return Ok(addresses);
            }
            Err(invalid) => return Err(io::Error::new(io::ErrorKind::InvalidData, invalid)),
        }
    }
}

async fn read_more(stream: &mut Stream, to: &mut Vec<u8>) -> io::Result<()> {
    poll_fn(|cx| {
        let mut scratch = [std::mem::MaybeUninit::uninit(); FIRST_READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut scratch);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf))?;
        to.extend_from_slice(buf.filled());
        std::task::Poll::Ready(Ok(()))
    })
    .await
}
