//! Single requests on blocking sockets: the first answer of a contender, and the many connections
//! of the memory experiments, where speed does not matter.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::response::{Framing, Head, parse_head};

/// Longest wait for one read or write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A response head longer than this is an error.
const HEAD_SIZE_MAX: usize = 16 << 10;
/// A body longer than this is an error.
const BODY_SIZE_MAX: usize = 64 << 20;
/// Bytes that one read of chunked content may take.
const CHUNKS_READ_SIZE: usize = 256 << 10;

/// Where a connection comes from, and how much it will hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Source address; the system's choice if `None`. A single one has too few ports for many
    /// thousand connections.
    pub source: Option<IpAddr>,
    /// Receive buffer in bytes, for clients that are slow on purpose.
    pub receive_buffer: Option<usize>,
    /// Largest segment that the other side may send, in bytes.
    pub segment_size: Option<u32>,
}

/// Opens a connection.
///
/// # Errors
/// In words.
pub fn open(address: SocketAddr, options: Options) -> Result<TcpStream, String> {
    let attempt = || -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if let Some(size) = options.receive_buffer {
            socket.set_recv_buffer_size(size)?;
        }
        if let Some(size) = options.segment_size {
            socket.set_tcp_mss(size)?;
        }
        if let Some(source) = options.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.connect_timeout(&address.into(), TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(socket.into())
    };
    attempt().map_err(|error| format!("connecting to {address}: {error}"))
}

/// Sends a GET that keeps the connection.
///
/// # Errors
/// In words.
pub fn send_request(stream: &mut TcpStream, target: &str) -> Result<(), String> {
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: weir-lab\r\nAccept: */*\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(|error| format!("sending: {error}"))
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its head, as it came.
    pub head: Vec<u8>,
    /// Its body, out of its chunks.
    pub body: Vec<u8>,
}

/// Sends a request on a kept connection; returns the answer, whatever its status.
///
/// # Errors
/// In words.
pub fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<Answer, String> {
    stream.write_all(request).map_err(|error| format!("sending: {error}"))?;
    read_any_response(stream)
}

/// Sends a body on a connection of its own; returns that of the answer.
///
/// # Errors
/// In words; an answer that is no success with what it says.
pub fn post(
    address: SocketAddr,
    target: &str,
    content_type: &str,
    body: &[u8],
) -> Result<Vec<u8>, String> {
    let mut stream = open(address, Options::default())?;
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    let Answer { status, body, .. } = exchange(&mut stream, &request)?;
    match status {
        200..300 => Ok(body),
        _ => Err(format!("POST {target}: {status} {}", String::from_utf8_lossy(&body))),
    }
}

/// Reads a response with status 200; returns its body.
///
/// # Errors
/// In words.
pub fn read_response(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    match read_any_response(stream)? {
        Answer { status: 200, body, .. } => Ok(body),
        Answer { status, .. } => Err(format!("status {status}, expected 200")),
    }
}

/// Reads a response with a length, or in chunks.
fn read_any_response(stream: &mut TcpStream) -> Result<Answer, String> {
    let mut input = Vec::with_capacity(4 << 10);
    let head = read_head(stream, &mut input)?;
    let body = input.split_off(head.len);
    let body = match head.framing {
        Framing::Length(length) if length <= BODY_SIZE_MAX => read_length(stream, body, length)?,
        Framing::Chunked => read_chunks(stream, body)?,
        other => return Err(format!("body framed by {other:?}")),
    };
    Ok(Answer { status: head.status, head: input, body })
}

fn read_length(
    stream: &mut TcpStream,
    mut body: Vec<u8>,
    length: usize,
) -> Result<Vec<u8>, String> {
    let have = body.len();
    if have > length {
        return Err(format!("{} bytes after the end of the body", have - length));
    }
    body.resize(length, 0);
    stream.read_exact(&mut body[have..]).map_err(|error| format!("reading a body: {error}"))?;
    Ok(body)
}

fn read_chunks(stream: &mut TcpStream, mut input: Vec<u8>) -> Result<Vec<u8>, String> {
    let (mut body, mut at) = (Vec::new(), 0);
    let mut buffer = vec![0; CHUNKS_READ_SIZE];
    loop {
        match next_chunk(&input[at..])? {
            Chunk::Data { before, size } => {
                body.extend_from_slice(&input[at + before..at + before + size]);
                at += before + size + 2;
                if body.len() > BODY_SIZE_MAX {
                    return Err("endless body".to_owned());
                }
            }
            Chunk::Last { size } if at + size == input.len() => return Ok(body),
            Chunk::Last { .. } => return Err("bytes after the end of the body".to_owned()),
            Chunk::Incomplete => {
                input.drain(..at);
                at = 0;
                let count =
                    stream.read(&mut buffer).map_err(|error| format!("reading a body: {error}"))?;
                if count == 0 {
                    return Err("connection closed within a body".to_owned());
                }
                input.extend_from_slice(&buffer[..count]);
            }
        }
    }
}

/// What chunked content goes on with.
#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    /// So many bytes of framing, so many of content, and a line's end.
    Data {
        before: usize,
        size: usize,
    },
    /// The end, which takes so many bytes.
    Last {
        size: usize,
    },
    Incomplete,
}

/// The chunk at the start of `input`. Trailers are not expected.
fn next_chunk(input: &[u8]) -> Result<Chunk, String> {
    let Some(line) = memchr::memmem::find(input, b"\r\n") else { return Ok(Chunk::Incomplete) };
    let digits = std::str::from_utf8(&input[..line]).unwrap_or_default();
    let size = usize::from_str_radix(digits, 16).ok().filter(|size| *size <= BODY_SIZE_MAX);
    let size = size.ok_or_else(|| format!("chunk size {digits:?}"))?;
    let before = line + 2;
    match input.get(before + size..before + size + 2) {
        None => Ok(Chunk::Incomplete),
        Some(b"\r\n") if size == 0 => Ok(Chunk::Last { size: before + 2 }),
        Some(b"\r\n") => Ok(Chunk::Data { before, size }),
        Some(_) => Err("a chunk, or the content, does not end where it should".to_owned()),
    }
}

fn read_head(stream: &mut TcpStream, input: &mut Vec<u8>) -> Result<Head, String> {
    let mut buffer = [0; 4 << 10];
    while input.len() < HEAD_SIZE_MAX {
        let count = stream.read(&mut buffer).map_err(|error| format!("reading: {error}"))?;
        if count == 0 {
            return Err("connection closed before the response's head".to_owned());
        }
        input.extend_from_slice(&buffer[..count]);
        if let Some(head) = parse_head(input)? {
            return Ok(head);
        }
    }
    Err("endless response head".to_owned())
}

/// One request on a connection of its own; returns the body.
///
/// # Errors
/// In words.
pub fn fetch(address: SocketAddr, target: &str) -> Result<Vec<u8>, String> {
    let mut stream = open(address, Options::default())?;
    send_request(&mut stream, target)?;
    read_response(&mut stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks() {
        let check = |input: &[u8], expect: Result<Chunk, ()>| {
            assert_eq!(next_chunk(input).map_err(drop), expect, "{}", input.escape_ascii());
        };
        check(b"5\r\nhello\r\n", Ok(Chunk::Data { before: 3, size: 5 }));
        check(b"1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0", Ok(Chunk::Data { before: 4, size: 26 }));
        check(b"5\r\nhello\r", Ok(Chunk::Incomplete));
        check(b"5", Ok(Chunk::Incomplete));
        check(b"", Ok(Chunk::Incomplete));
        check(b"0\r\n\r\n", Ok(Chunk::Last { size: 5 }));
        check(b"0\r\n", Ok(Chunk::Incomplete));
        check(b"5\r\nhello!!", Err(()));
        check(b"x\r\n", Err(()));
        check(b"ffffffffffffffff\r\n", Err(()));
    }
}
