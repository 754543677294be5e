//! One connection of the floor: read a head, send head and body, again or close.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::content::{Content, Document};

/// A request head longer than this ends the connection.
const HEAD_SIZE_MAX: usize = 4 << 10;

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Readable,
    Writable,
    Over,
}

pub(super) struct Connection {
    socket: OwnedFd,
    interest: EventFlags,
    /// What came before and was not a whole head; empty almost always.
    input: Vec<u8>,
    reply: Option<Reply>,
}

/// A response on its way out.
struct Reply {
    document: Arc<Document>,
    closing: bool,
    head_sent: usize,
    file_sent: u64,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Connection {
        Connection { socket, interest: EventFlags::empty(), input: Vec::new(), reply: None }
    }

    /// Makes epoll watch for `wanted`; false if it cannot.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, wanted: EventFlags) -> bool {
        if self.interest == wanted {
            return true;
        }
        let data = EventData::new_u64(self.socket.as_raw_fd() as u64);
        let done = if self.interest.is_empty() {
            epoll::add(epoll, &self.socket, data, wanted)
        } else {
            epoll::modify(epoll, &self.socket, data, wanted)
        };
        self.interest = wanted;
        done.is_ok()
    }

    /// Goes on until the socket has to be waited for. One request per call unless more have
    /// already been read: a connection that always has work must not hold up the others.
    pub(super) fn advance(&mut self, content: &mut dyn Content) -> Wait {
        if self.reply.is_none() {
            let mut buffer = [0; HEAD_SIZE_MAX];
            let count = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return Wait::Over,
                Ok((count, _)) => count,
                Err(Errno::AGAIN | Errno::INTR) => return Wait::Readable,
                Err(_) => return Wait::Over,
            };
            if self.input.is_empty() {
                let used = self.next_request(&buffer[..count], content);
                self.input.extend_from_slice(&buffer[used..count]);
            } else {
                self.input.extend_from_slice(&buffer[..count]);
            }
        }
        loop {
            if self.reply.is_none() && !self.input.is_empty() {
                let input = std::mem::take(&mut self.input);
                let used = self.next_request(&input, content);
                self.input = input;
                self.input.drain(..used);
            }
            let Some(reply) = &mut self.reply else {
                let endless = self.input.len() > HEAD_SIZE_MAX;
                return if endless { Wait::Over } else { Wait::Readable };
            };
            match reply.send(&self.socket) {
                Ok(true) if reply.closing => return Wait::Over,
                Ok(true) => self.reply = None,
                Ok(false) => return Wait::Writable,
                Err(_) => return Wait::Over,
            }
        }
    }

    /// Takes a request from the start of `input`, if it is all there; the bytes it used.
    fn next_request(&mut self, input: &[u8], content: &mut dyn Content) -> usize {
        let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") else { return 0 };
        let head = &input[..end];
        let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let found = if head.starts_with(b"GET ") { content.find(target) } else { None };
        let closing = found.is_none() || asks_to_close(head);
        let document = found.or_else(|| not_found().map(Arc::new));
        self.reply =
            document.map(|document| Reply { document, closing, head_sent: 0, file_sent: 0 });
        end + 4
    }
}

fn asks_to_close(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n').any(|line| {
        line.get(..11).is_some_and(|name| name.eq_ignore_ascii_case(b"connection:"))
            && memchr::memmem::find(&line[11..], b"close").is_some()
    })
}

fn not_found() -> Option<Document> {
    Document::new("404 Not Found", "", b"not found\n").ok()
}

impl Reply {
    /// `Ok(true)` when all of it is sent, `Ok(false)` when the socket is full.
    fn send(&mut self, socket: &OwnedFd) -> Result<bool, Errno> {
        let head = if self.closing { &self.document.closing } else { &self.document.kept };
        // Before a close the last data is held back, so that it leaves in one segment with the FIN.
        let last = self.document.file.is_none() && !self.closing;
        let more = if last { SendFlags::empty() } else { SendFlags::MORE };
        if self.closing && self.document.file.is_some() && self.head_sent == 0 {
            // sendfile knows no MSG_MORE; a cork says the same.
            sockopt::set_tcp_cork(socket, true)?;
        }
        while self.head_sent < head.len() {
            match send(socket, &head[self.head_sent..], SendFlags::NOSIGNAL | more) {
                Ok(count) => self.head_sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        let Some(file) = &self.document.file else { return Ok(true) };
        while self.file_sent < file.len {
            let left = (file.len - self.file_sent) as usize;
            match sendfile(socket, &file.pages, Some(&mut self.file_sent), left) {
                Ok(0) => return Err(Errno::IO),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_found_in_any_case() {
        let check =
            |head: &str, expect| assert_eq!(asks_to_close(head.as_bytes()), expect, "{head}");
        check("GET / HTTP/1.1\r\nHost: a\r\nConnection: close", true);
        check("GET / HTTP/1.1\r\nconnection:close\r\nHost: a", true);
        check("GET /connection:close HTTP/1.1\r\nHost: a", false);
        check("GET / HTTP/1.1\r\nConnection: keep-alive", false);
        check("GET / HTTP/1.1\r\nX", false);
    }
}
