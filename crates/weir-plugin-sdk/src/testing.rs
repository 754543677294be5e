//! Frames for tests that run without a host.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::frame::{FIELD_BYTES, Frame};
use crate::hook::Hook;

/// Bytes of a frame's fixed part in version 1.
const FRAME_BYTES: usize = 136;

/// An address as good as any.
const BASE: u32 = 0x1_0000;

/// What a frame is to show.
#[derive(Clone, Debug)]
pub struct Sample {
    hook: Hook,
    flags: u32,
    note: u64,
    status: u16,
    line: [String; 3],
    sections: [Vec<(String, String)>; 3],
    body: Vec<u8>,
    body_offset: u64,
    call: u32,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample {
            hook: Hook::Request,
            flags: 0,
            note: 0,
            status: 0,
            line: ["GET".to_string(), "example.org".to_string(), "/".to_string()],
            sections: Default::default(),
            body: Vec::new(),
            body_offset: 0,
            call: 0,
        }
    }
}

impl Sample {
    /// A GET of `/` at `example.org`.
    pub fn new() -> Sample {
        Sample::default()
    }

    /// Which hook it is.
    pub fn hook(self, hook: Hook) -> Sample {
        Sample { hook, ..self }
    }

    /// The frame's flags, as numbers of the interface.
    pub fn flags(self, flags: u32) -> Sample {
        Sample { flags, ..self }
    }

    /// Nothing follows.
    pub fn end(self) -> Sample {
        Sample { flags: self.flags | 2, ..self }
    }

    /// The note.
    pub fn note(self, note: u64) -> Sample {
        Sample { note, ..self }
    }

    /// The request's line.
    pub fn request(self, method: &str, authority: &str, target: &str) -> Sample {
        Sample { line: [method, authority, target].map(ToString::to_string), ..self }
    }

    /// The response's status.
    pub fn status(self, status: u16) -> Sample {
        Sample { status, ..self }
    }

    fn line(mut self, section: usize, name: &str, value: &str) -> Sample {
        self.sections[section].push((name.to_ascii_lowercase(), value.to_string()));
        self
    }

    /// A line of the request's fields.
    pub fn request_field(self, name: &str, value: &str) -> Sample {
        self.line(0, name, value)
    }

    /// A line of the response's fields.
    pub fn response_field(self, name: &str, value: &str) -> Sample {
        self.line(1, name, value)
    }

    /// A line of the trailer section.
    pub fn trailer(self, name: &str, value: &str) -> Sample {
        self.line(2, name, value)
    }

    /// A piece of a body, and where in the body it begins.
    pub fn body(self, piece: &[u8], offset: u64) -> Sample {
        Sample { body: piece.to_vec(), body_offset: offset, ..self }
    }

    /// The call that is answered.
    pub fn call(self, call: u32) -> Sample {
        Sample { call, ..self }
    }

    /// Shows the frame.
    pub fn show<R>(&self, to: impl FnOnce(&Frame<'_>) -> R) -> R {
        let buffer = self.laid_out();
        to(&Frame::new(&buffer, BASE, &self.body))
    }

    fn laid_out(&self) -> Vec<u8> {
        let lines: usize = self.sections.iter().map(Vec::len).sum();
        let mut buffer = alloc::vec![0; FRAME_BYTES + lines * FIELD_BYTES];
        let put = |buffer: &mut Vec<u8>, at: usize, word: u64| {
            buffer[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        let string = |buffer: &mut Vec<u8>, string: &str| {
            let address = u64::from(BASE) + buffer.len() as u64;
            buffer.extend_from_slice(string.as_bytes());
            (string.len() as u64) << 32 | address
        };
        put(&mut buffer, 0, u64::from(self.flags) << 32 | self.hook as u64);
        put(&mut buffer, 8, 1);
        put(&mut buffer, 16, self.note);
        put(&mut buffer, 64, u64::from(self.status) << 32 | (FRAME_BYTES as u64) << 16);
        put(&mut buffer, 96, (self.body.len() as u64) << 32);
        put(&mut buffer, 104, self.body_offset);
        put(&mut buffer, 128, u64::from(self.call));
        for (index, part) in self.line.iter().enumerate() {
            let slice = string(&mut buffer, part);
            put(&mut buffer, 24 + 8 * index, slice);
        }
        let mut at = FRAME_BYTES;
        for (index, section) in self.sections.iter().enumerate() {
            let table = u64::from(BASE) + at as u64;
            put(&mut buffer, 72 + 8 * index, table << 32 | section.len() as u64);
            for (name, value) in section {
                let (name, value) = (string(&mut buffer, name), string(&mut buffer, value));
                put(&mut buffer, at, name);
                put(&mut buffer, at + 8, value);
                at += FIELD_BYTES;
            }
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_shows_what_the_sample_says() {
        let sample = Sample::new()
            .hook(Hook::Response)
            .request("POST", "a:1", "/p?q")
            .request_field("X-A", "1")
            .request_field("x-a", "2")
            .response_field("server", "s")
            .trailer("x-t", "3")
            .status(201)
            .note(77)
            .body(b"piece", 5)
            .end();
        sample.show(|frame| {
            assert_eq!(frame.hook(), Some(Hook::Response));
            assert_eq!((frame.note(), frame.is_end(), frame.is_tls()), (77, true, false));
            let request = frame.request();
            assert_eq!((request.method(), request.authority()), ("POST", "a:1"));
            assert_eq!((request.path(), request.query()), ("/p", Some("q")));
            assert_eq!(request.fields().values("x-a").collect::<Vec<_>>(), [b"1", b"2"]);
            assert_eq!((request.text("x-a"), request.field("none")), (Some("1"), None));
            assert_eq!(
                (frame.response().status(), frame.response().text("server")),
                (201, Some("s"))
            );
            assert_eq!(frame.trailers().value("x-t"), Some(&b"3"[..]));
            assert_eq!(
                (frame.body(), frame.body_offset(), frame.body_len()),
                (&b"piece"[..], 5, 5)
            );
            assert_eq!(frame.client(), None);
        });
    }
}
