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

/// Reads a response with status 200 and a length; returns its body.
///
/// # Errors
/// In words.
pub fn read_response(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut input = Vec::with_capacity(4 << 10);
    let head = read_head(stream, &mut input)?;
    if head.status != 200 {
        return Err(format!("status {}, expected 200", head.status));
    }
    let length = match head.framing {
        Framing::Length(length) if length <= BODY_SIZE_MAX => length,
        other => return Err(format!("body framed by {other:?}")),
    };
    let mut body = input.split_off(head.len);
    let have = body.len();
    if have > length {
        return Err(format!("{} bytes after the end of the body", have - length));
    }
    body.resize(length, 0);
    stream.read_exact(&mut body[have..]).map_err(|error| format!("reading a body: {error}"))?;
    Ok(body)
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
