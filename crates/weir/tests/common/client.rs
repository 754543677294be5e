//! A client that sends exactly the bytes it is given and reads HTTP/1 responses, strictly: what
//! is not framed as RFC 9112 says is an error, not a guess.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::PATIENCE;

/// Longest response head accepted.
const HEAD_LEN_MAX: usize = 64 << 10;

/// A connection.
pub struct Client {
    stream: TcpStream,
    /// Received and not yet taken.
    pending: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// In order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Without chunked framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether the server said it would close the connection.
    pub fn says_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// One request on a connection of its own.
pub fn get(address: SocketAddr, host: &str, target: &str) -> io::Result<Response> {
    let mut client = Client::connect(address)?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    client.send(request.as_bytes())?;
    client.response("GET")
}

/// One request with these fields on a connection of its own; no answer is a failed test.
pub fn ask(address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let mut client = Client::connect(address).unwrap();
    client.ask(method, target, fields).unwrap_or_else(|e| panic!("{method} {target}: {e}"))
}

impl Client {
    /// Connects; reads and writes fail after [`PATIENCE`].
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, pending: Vec::new() })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request without content (`Host: site.example` unless `fields` has one) and reads
    /// the response.
    pub fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> io::Result<Response> {
        let mut request = format!("{method} {target} HTTP/1.1\r\n");
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.push_str("Host: site.example\r\n");
        }
        for (name, value) in fields {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(format!("{request}\r\n").as_bytes())?;
        self.response(method)
    }

    /// The connection itself, for what is no request.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// How long a read may wait.
    pub fn set_patience(&mut self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    /// Reads the response to a request with `method`, interim responses left out.
    ///
    /// # Errors
    /// `UnexpectedEof` if the connection ends before the response does, `InvalidData` if what
    /// arrives is no response, or what the socket says.
    pub fn response(&mut self, method: &str) -> io::Result<Response> {
        loop {
            let response = self.one_response(method)?;
            if response.status == 101 || !(100..200).contains(&response.status) {
                return Ok(response);
            }
        }
    }

    /// Whether the server closes the connection, without sending any more, within the patience.
    pub fn is_closed(&mut self) -> bool {
        self.pending.is_empty()
            && match self.receive() {
                Ok(received) => received == 0,
                Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            }
    }

    /// Bytes that have arrived and were not taken.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Everything until the server closes the connection.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        while self.receive()? > 0 {}
        Ok(std::mem::take(&mut self.pending))
    }

    fn one_response(&mut self, method: &str) -> io::Result<Response> {
        let head = self.head()?;
        let text = String::from_utf8_lossy(&head);
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        let status = status.and_then(|digits| digits.parse().ok());
        let status: u16 = status.ok_or_else(|| invalid(format!("status line: {status_line}")))?;
        let headers = lines.filter(|line| !line.is_empty()).map(field).collect::<Result<_, _>>()?;
        let mut response = Response { status, headers, body: Vec::new() };
        response.body = self.body(method, &response)?;
        Ok(response)
    }

    /// Reads the head of a response, and leaves what follows.
    pub fn head(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = find(&self.pending, b"\r\n\r\n") {
                return Ok(self.pending.drain(..end + 4).collect());
            }
            if self.pending.len() > HEAD_LEN_MAX {
                return Err(invalid("endless response head"));
            }
            self.receive_some()?;
        }
    }

    /// RFC 9112 section 6.3.
    fn body(&mut self, method: &str, response: &Response) -> io::Result<Vec<u8>> {
        if method == "HEAD" || matches!(response.status, 100..200 | 204 | 304) {
            return Ok(Vec::new());
        }
        if let Some(coding) = response.header("transfer-encoding") {
            if coding != "chunked" || response.header("content-length").is_some() {
                return Err(invalid(format!("framing: {:?}", response.headers)));
            }
            return self.chunks();
        }
        match response.header("content-length") {
            Some(length) => {
                let length = length.parse().map_err(|_| invalid(format!("length {length}")))?;
                self.take(length)
            }
            None => self.read_to_end(),
        }
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("chunk size"))?;
            body.extend(self.take(size)?);
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            if self.take(2)? != b"\r\n" {
                return Err(invalid("chunk not ended by CRLF"));
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.pending, b"\r\n") {
                let line: Vec<u8> = self.pending.drain(..end + 2).collect();
                return String::from_utf8(line[..end].to_vec()).map_err(|_| invalid("line"));
            }
            self.receive_some()?;
        }
    }

    /// Reads this many bytes, whatever they are.
    pub fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.pending.len() < count {
            self.receive_some()?;
        }
        Ok(self.pending.drain(..count).collect())
    }

    fn receive_some(&mut self) -> io::Result<()> {
        match self.receive()? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16 << 10];
        let count = self.stream.read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

fn field(line: &str) -> io::Result<(String, String)> {
    let (name, value) = line.split_once(':').ok_or_else(|| invalid(format!("field: {line}")))?;
    Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
}

/// Where `needle` first occurs.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
