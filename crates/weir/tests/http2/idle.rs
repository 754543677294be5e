//! An idle connection ends with GOAWAY, so that no request is lost to the end (RFC 9113 §6.8); a
//! client that does not react loses it all the same.

use std::time::Instant;

use common::client::Client;

use super::*;

/// Frames of a connection with prior knowledge, read byte by byte.
struct Frames(Client);

struct Frame {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
}

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

impl Frames {
    fn connect(address: SocketAddr) -> Frames {
        let mut frames = Frames(Client::connect(address).unwrap());
        frames.0.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        frames.send(SETTINGS, 0, b"");
        frames
    }

    fn send(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags, 0, 0, 0, 0]].concat();
        self.0.send(&[&head, payload].concat()).unwrap();
    }

    /// The next frame; `None` at the end.
    fn next(&mut self) -> Option<Frame> {
        let head = match self.0.take(9) {
            Ok(head) => head,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
                return None;
            }
        };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        Some(Frame { kind: head[3], flags: head[4], payload: self.0.take(length).unwrap() })
    }
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let (_weir, address) = Weir::front(
        "server { workers 1; admin \"off\"; limits { idle-timeout \"500ms\"; }; }",
        "route \"/*\" { respond \"fixed\"; }",
    );
    for agrees in [true, false] {
        let mut frames = Frames::connect(address);
        let began = Instant::now();
        let mut goodbye = None;
        while let Some(frame) = frames.next() {
            match (frame.kind, frame.flags) {
                (SETTINGS, 0) => frames.send(SETTINGS, ACK, b""),
                (PING, 0) if agrees => frames.send(PING, ACK, &frame.payload),
                (GOAWAY, _) => goodbye = Some(frame.payload),
                _ => {}
            }
        }
        let elapsed = began.elapsed();
        let goodbye = goodbye.expect("GOAWAY before the end");
        assert_eq!(goodbye[4..8], [0; 4], "NO_ERROR");
        assert!(elapsed > Duration::from_millis(400), "agrees: {agrees}: {elapsed:?}");
        // Who agrees need not wait for the time that others are given.
        let limit = if agrees { Duration::from_secs(5) } else { PATIENCE };
        assert!(elapsed < limit, "agrees: {agrees}: {elapsed:?}");
    }
}
