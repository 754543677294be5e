//! An ICAP service on threads: it reads messages as they come and says what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::common::origin;

/// What a service is shown of a message.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The service's own head.
    pub(crate) icap: String,
    /// Heads of the HTTP messages.
    pub(crate) heads: String,
    pub(crate) body: String,
    /// There is no more of it.
    pub(crate) is_whole: bool,
    /// How many messages there were before it on its connection.
    pub(crate) before: usize,
}

impl Shown {
    pub(crate) fn is_options(&self) -> bool {
        self.icap.starts_with("OPTIONS ")
    }
}

/// What a service says.
pub(crate) enum Say {
    /// It wants the rest.
    More,
    Unchanged,
    /// The same, as the last word on the connection, which is not closed before the client does.
    Last,
    /// A response, or a request: its head and its content.
    Instead(String, String),
    /// Whatever that is; then the connection is closed.
    Raw(&'static str),
}

pub(crate) struct Scanner {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Shown>>>,
}

impl Scanner {
    /// A service that wants a preview of 8 bytes.
    pub(crate) fn start(say: impl Fn(&Shown) -> Say + Send + Sync + 'static) -> Scanner {
        Scanner::with("Preview: 8\r\n", say)
    }

    /// A service that says this of itself.
    pub(crate) fn with(
        options: &'static str,
        say: impl Fn(&Shown) -> Say + Send + Sync + 'static,
    ) -> Scanner {
        let seen: Arc<Mutex<Vec<Shown>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let address = origin::raw(move |_, stream| {
            serve(stream, options, &say, &noted).unwrap_or_default();
        });
        Scanner { address, seen }
    }

    /// The messages that it has seen the whole of, or said something about.
    pub(crate) fn take(&self) -> Vec<Shown> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

const UNCHANGED: &str =
    "ICAP/1.0 204 No Content\r\nISTag: \"t\"\r\nEncapsulated: null-body=0\r\n\r\n";
const LAST: &str = "ICAP/1.0 204 No Content\r\nISTag: \"t\"\r\nConnection: Keep-Nothing, Close\r\n\
                    Encapsulated: null-body=0\r\n\r\n";

fn serve(
    mut stream: TcpStream,
    options: &str,
    say: &(impl Fn(&Shown) -> Say + Send + Sync + 'static),
    noted: &Mutex<Vec<Shown>>,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    for before in 0.. {
        let icap = until(&mut stream, &mut buffer, "\r\n\r\n")?;
        let (heads, body) = (String::new(), String::new());
        let mut shown = Shown { icap, heads, body, is_whole: false, before };
        if shown.is_options() {
            noted.lock().unwrap().push(shown);
            let said = "Methods: REQMOD, RESPMOD\r\nISTag: \"t\"\r\nEncapsulated: null-body=0";
            write!(stream, "ICAP/1.0 200 OK\r\n{options}{said}\r\n\r\n")?;
            continue;
        }
        let encapsulated = shown.icap.lines().find_map(|line| line.strip_prefix("Encapsulated: "));
        let (before, heads_len) = encapsulated.unwrap().rsplit_once('=').unwrap();
        let has_body = !before.ends_with("null-body");
        let heads_len: usize = heads_len.parse().unwrap();
        while buffer.len() < heads_len {
            more(&mut stream, &mut buffer)?;
        }
        shown.heads = String::from_utf8(buffer.drain(..heads_len).collect()).unwrap();
        let previews = shown.icap.contains("Preview: ");
        shown.is_whole =
            !has_body || content(&mut stream, &mut buffer, &mut shown.body)? || !previews;
        let mut said = say(&shown);
        if let Say::More = said {
            assert!(!shown.is_whole, "there is no more");
            stream.write_all(b"ICAP/1.0 100 Continue\r\n\r\n")?;
            content(&mut stream, &mut buffer, &mut shown.body)?;
            shown.is_whole = true;
            said = say(&shown);
        }
        noted.lock().unwrap().push(shown);
        match said {
            Say::Unchanged => stream.write_all(UNCHANGED.as_bytes())?,
            Say::Last => {
                stream.write_all(LAST.as_bytes())?;
                let more = stream.read(&mut [0; 1])?;
                assert_eq!(more, 0, "something comes behind the last word");
            }
            Say::Instead(head, content) => {
                let kind = if head.starts_with("HTTP/") { "res" } else { "req" };
                let text = format!(
                    "ICAP/1.0 200 OK\r\nISTag: \"t\"\r\n\
                     Encapsulated: {kind}-hdr=0, {kind}-body={}\r\n\r\n{head}\
                     {:x}\r\n{content}\r\n0\r\n\r\n",
                    head.len(),
                    content.len()
                );
                stream.write_all(text.as_bytes())?;
            }
            Say::Raw(text) => return stream.write_all(text.as_bytes()),
            Say::More => panic!("there is no more"),
        }
    }
    Ok(())
}

/// Reads chunks to the end of what is shown; tells whether that is all.
fn content(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    body: &mut String,
) -> std::io::Result<bool> {
    loop {
        let line = until(stream, buffer, "\r\n")?;
        let (len, extension) = line.trim_end().split_once(';').unwrap_or((line.trim_end(), ""));
        let len = usize::from_str_radix(len, 16).unwrap();
        while buffer.len() < len + 2 {
            more(stream, buffer)?;
        }
        body.push_str(&String::from_utf8_lossy(&buffer[..len]));
        buffer.drain(..len + 2);
        if len == 0 {
            return Ok(extension.trim() == "ieof");
        }
    }
}

fn until(stream: &mut TcpStream, buffer: &mut Vec<u8>, end: &str) -> std::io::Result<String> {
    loop {
        if let Some(at) = crate::common::client::find(buffer, end.as_bytes()) {
            let taken: Vec<u8> = buffer.drain(..at + end.len()).collect();
            return Ok(String::from_utf8(taken).unwrap());
        }
        more(stream, buffer)?;
    }
}

fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    let mut piece = [0; 16_384];
    match stream.read(&mut piece)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        len => {
            buffer.extend_from_slice(&piece[..len]);
            Ok(())
        }
    }
}
