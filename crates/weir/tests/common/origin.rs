//! An origin that records what it receives byte for byte and answers by script: whole, slowly, in
//! part, or with garbage. It reads requests strictly and reports what it cannot read in one way.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::PATIENCE;
use super::client::find;

/// Longest request head accepted.
const HEAD_LEN_MAX: usize = 1 << 20;

/// One step of an answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Wait, as a slow origin does.
    Pause(Duration),
    /// Wait until the test says so.
    Await(Cue),
    /// Close the connection.
    Close,
}

/// What an origin waits for: one word for each time.
#[derive(Clone, Debug)]
pub struct Cue(Arc<Mutex<Receiver<()>>>);

/// A way to tell an origin to go on, which gives up when that is dropped.
pub fn cue() -> (Sender<()>, Cue) {
    let (sender, receiver) = mpsc::channel();
    (sender, Cue(Arc::new(Mutex::new(receiver))))
}

impl Cue {
    fn wait(&self) -> io::Result<()> {
        self.0.lock().unwrap().recv_timeout(PATIENCE).map_err(io::Error::other)
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Number of the connection, from 0.
    pub connection: usize,
    /// Request line and fields, with the empty line.
    pub head: Vec<u8>,
    /// Content, without chunked framing.
    pub body: Vec<u8>,
}

impl Received {
    /// The request line.
    pub fn line(&self) -> String {
        String::from_utf8_lossy(&self.head).lines().next().unwrap_or_default().to_owned()
    }

    /// Values of a field.
    pub fn values(&self, name: &str) -> Vec<String> {
        let head = String::from_utf8_lossy(&self.head).into_owned();
        let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let matching = fields.filter(|(n, _)| n.eq_ignore_ascii_case(name));
        matching.map(|(_, value)| value.trim().to_owned()).collect()
    }
}

/// What an origin does with a request.
type Script = dyn Fn(&Received) -> Vec<Step> + Send + Sync;

/// A running origin.
pub struct Origin {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    received: Mutex<Vec<Received>>,
    oddities: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

/// A whole response with a body, after which the connection stays open.
pub fn ok(body: &str) -> Vec<Step> {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    vec![Step::Send(text.into_bytes())]
}

/// An origin that is nothing but a socket: `serve` gets every connection with its number, from 0,
/// on a thread of its own. It listens for as long as the test binary runs.
pub fn raw(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = Arc::clone(&serve);
            if let Ok(stream) = stream {
                thread::spawn(move || serve(number, stream));
            }
        }
    });
    address
}

/// Reads from a raw connection until an empty line; what came after it is dropped.
pub fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while find(&head, b"\r\n\r\n").is_none() {
        if receive(stream, &mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// A whole response: the status line's rest, fields each ended by CRLF, and a body.
pub fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<Step> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    vec![Step::Send([head.as_bytes(), body].concat())]
}

impl Origin {
    /// Listens on a port of its own and answers every request by `script`.
    pub fn start(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            received: Mutex::default(),
            oddities: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                if let Ok(stream) = stream {
                    thread::spawn(move || serve(&shared, number, stream));
                }
            }
        });
        Origin { address, shared }
    }

    /// The URL to proxy to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What has arrived since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.shared.received.lock().unwrap())
    }

    /// What could not be read in exactly one way since the last call.
    pub fn take_oddities(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.oddities.lock().unwrap())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(shared: &Shared, connection: usize, mut stream: TcpStream) {
    let mut pending = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let request = match read_request(&mut stream, &mut pending, connection) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                // A client that goes away is none; bytes that are no request are.
                if error.kind() == io::ErrorKind::InvalidData {
                    let bytes = pending.escape_ascii();
                    shared.oddities.lock().unwrap().push(format!("{error}: {bytes}"));
                }
                return;
            }
        };
        shared.received.lock().unwrap().push(request.clone());
        for step in (shared.script)(&request) {
            let sent = match step {
                Step::Send(bytes) => stream.write_all(&bytes),
                Step::Pause(time) => {
                    thread::sleep(time);
                    Ok(())
                }
                Step::Await(cue) => cue.wait(),
                Step::Close => return,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// The next request; `None` if the connection ends before one begins.
fn read_request(
    stream: &mut TcpStream,
    pending: &mut Vec<u8>,
    connection: usize,
) -> io::Result<Option<Received>> {
    let head_len = loop {
        if let Some(end) = find(pending, b"\r\n\r\n") {
            break end + 4;
        }
        if pending.len() > HEAD_LEN_MAX {
            return Err(odd("endless request head"));
        }
        if receive(stream, pending)? == 0 {
            return if pending.is_empty() { Ok(None) } else { Err(odd("request cut short")) };
        }
    };
    let mut request = Received { connection, head: pending[..head_len].to_vec(), body: Vec::new() };
    let line = request.line();
    let words: Vec<&str> = line.split(' ').collect();
    if words.len() != 3 || !words[2].starts_with("HTTP/1.") {
        return Err(odd("no request line"));
    }
    pending.drain(..head_len);
    let lengths = request.values("content-length");
    let codings = request.values("transfer-encoding");
    request.body = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Vec::new(),
        ([length], []) => {
            let length = length.parse().map_err(|_| odd("length that is no number"))?;
            take(stream, pending, length)?
        }
        ([], [coding]) if coding == "chunked" => read_chunks(stream, pending)?,
        _ => return Err(odd("framed in more than one way")),
    };
    Ok(Some(request))
}

fn read_chunks(stream: &mut TcpStream, pending: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream, pending)?;
        let size = usize::from_str_radix(&line, 16).map_err(|_| odd("chunk size"))?;
        if size == 0 {
            while !read_line(stream, pending)?.is_empty() {}
            return Ok(body);
        }
        body.extend(take(stream, pending, size)?);
        if take(stream, pending, 2)? != b"\r\n" {
            return Err(odd("chunk not ended by CRLF"));
        }
    }
}

fn read_line(stream: &mut TcpStream, pending: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(end) = find(pending, b"\r\n") {
            let line = pending.drain(..end + 2).collect::<Vec<u8>>();
            return String::from_utf8(line[..end].to_vec()).map_err(|_| odd("line"));
        }
        if receive(stream, pending)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn take(stream: &mut TcpStream, pending: &mut Vec<u8>, count: usize) -> io::Result<Vec<u8>> {
    while pending.len() < count {
        if receive(stream, pending)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(pending.drain(..count).collect())
}

fn receive(stream: &mut TcpStream, pending: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 16 << 10];
    let count = stream.read(&mut buffer)?;
    pending.extend_from_slice(&buffer[..count]);
    Ok(count)
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
