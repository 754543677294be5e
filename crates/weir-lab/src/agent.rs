//! The out-of-process extension of P3: an agent of HAProxy's stream processing offload protocol
//! (SPOP 2.0, `doc/SPOE.txt` of HAProxy) that does nothing but say that it has seen the request.
//! It answers all that it reads at once with one write, so that it costs as little as such an agent
//! can.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use crate::error::{Doing, Result};

/// Largest frame that is agreed on; HAProxy's own default.
const FRAME_SIZE_MAX: usize = 16_380;
/// Bytes that one read may take: several frames.
const BUFFER_SIZE: usize = 64 << 10;
/// Flag of a frame that is not continued in another one.
const FLAG_FIN: u32 = 1;

/// Kinds of frames.
mod kind {
    pub(super) const HAPROXY_HELLO: u8 = 1;
    pub(super) const HAPROXY_DISCONNECT: u8 = 2;
    pub(super) const NOTIFY: u8 = 3;
    pub(super) const AGENT_HELLO: u8 = 101;
    pub(super) const AGENT_DISCONNECT: u8 = 102;
    pub(super) const ACK: u8 = 103;
}

/// Serves agents' connections on a Unix socket until the process ends. A thread for each, as
/// HAProxy opens only a few.
///
/// # Errors
/// When it cannot listen.
pub fn serve(path: &Path) -> Result<()> {
    let listener = UnixListener::bind(path).doing(|| format!("listening on {}", path.display()))?;
    loop {
        let (stream, _) = listener.accept().doing(|| "accepting".to_owned())?;
        thread::spawn(move || {
            // HAProxy opens another one; there is nothing else to be done about it.
            let _ = converse(stream);
        });
    }
}

fn converse(mut stream: UnixStream) -> std::io::Result<()> {
    let mut input = Vec::with_capacity(BUFFER_SIZE);
    let mut output = Vec::with_capacity(BUFFER_SIZE);
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..count]);
        let done = answer_all(&input, &mut output);
        stream.write_all(&output)?;
        output.clear();
        match done {
            Some(taken) => drop(input.drain(..taken)),
            None => return Ok(()),
        }
    }
}

/// Answers every whole frame in `input`. Returns the bytes they took; `None` if the connection is
/// over: HAProxy says so, or what it says is no frame.
fn answer_all(input: &[u8], output: &mut Vec<u8>) -> Option<usize> {
    let mut taken = 0;
    while let Some(length) = input.get(taken..taken + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if length > FRAME_SIZE_MAX {
            return None;
        }
        let Some(frame) = input.get(taken + 4..taken + 4 + length) else { break };
        answer(frame, output)?;
        taken += 4 + length;
    }
    Some(taken)
}

fn answer(frame: &[u8], output: &mut Vec<u8>) -> Option<()> {
    let (&kind, rest) = frame.split_first()?;
    let rest = rest.get(4..)?;
    match kind {
        kind::HAPROXY_HELLO => {
            let mut payload = Vec::new();
            put_text(&mut payload, "version");
            put_text_value(&mut payload, "2.0");
            put_text(&mut payload, "max-frame-size");
            // 3: an unsigned number of 32 bits.
            payload.push(3);
            put_number(&mut payload, FRAME_SIZE_MAX as u64);
            put_text(&mut payload, "capabilities");
            put_text_value(&mut payload, "pipelining");
            put_frame(output, kind::AGENT_HELLO, 0, 0, &payload);
            Some(())
        }
        kind::NOTIFY => {
            let (stream_id, rest) = take_number(rest)?;
            let (frame_id, _) = take_number(rest)?;
            // set-var, with three arguments: the scope txn, the name, and true.
            const SEEN: [u8; 9] = [1, 3, 2, 4, b's', b'e', b'e', b'n', 0x11];
            put_frame(output, kind::ACK, stream_id, frame_id, &SEEN);
            Some(())
        }
        kind::HAPROXY_DISCONNECT => {
            let mut payload = Vec::new();
            put_text(&mut payload, "status-code");
            payload.extend_from_slice(&[3, 0]);
            put_text(&mut payload, "message");
            put_text_value(&mut payload, "");
            put_frame(output, kind::AGENT_DISCONNECT, 0, 0, &payload);
            None
        }
        _ => None,
    }
}

fn put_frame(output: &mut Vec<u8>, kind: u8, stream_id: u64, frame_id: u64, payload: &[u8]) {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    output.push(kind);
    output.extend_from_slice(&FLAG_FIN.to_be_bytes());
    put_number(output, stream_id);
    put_number(output, frame_id);
    output.extend_from_slice(payload);
    let length = (output.len() - start - 4) as u32;
    output[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_text(output: &mut Vec<u8>, text: &str) {
    put_number(output, text.len() as u64);
    output.extend_from_slice(text.as_bytes());
}

/// 8: a string.
fn put_text_value(output: &mut Vec<u8>, text: &str) {
    output.push(8);
    put_text(output, text);
}

/// The protocol's numbers of variable length: up to 239 in a byte; otherwise four bits, then seven
/// at a time, least significant first, all but the last with their highest bit set.
fn put_number(output: &mut Vec<u8>, number: u64) {
    if number < 240 {
        output.push(number as u8);
        return;
    }
    output.push(number as u8 | 240);
    let mut rest = (number - 240) >> 4;
    while rest >= 128 {
        output.push(rest as u8 | 128);
        rest = (rest - 128) >> 7;
    }
    output.push(rest as u8);
}

fn take_number(input: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, mut input) = input.split_first()?;
    let mut number = u64::from(first);
    if first < 240 {
        return Some((number, input));
    }
    for shift in (4..60).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        number = number.checked_add(u64::from(byte) << shift)?;
        input = rest;
        if byte < 128 {
            return Some((number, input));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(number in prop_oneof![0..5_000_u64, 0..1_u64 << 58]) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            bytes.push(0xaa);
            prop_assert_eq!(take_number(&bytes), Some((number, &[0xaa_u8][..])));
        }

        #[test]
        fn any_input_ends(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let taken = answer_all(&input, &mut Vec::new());
            prop_assert!(taken.is_none_or(|taken| taken <= input.len()));
        }
    }

    #[test]
    fn numbers_are_written_as_haproxy_writes_them() {
        // From the examples of HAProxy's doc/SPOE.txt: 240 and 2288 are where one more byte begins.
        for (number, expect) in
            [(239, &[239][..]), (240, &[240, 0]), (2_287, &[255, 127]), (2_288, &[240, 128, 0])]
        {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(bytes, expect, "{number}");
        }
    }

    #[test]
    fn every_request_of_a_batch_is_acknowledged_under_its_own_number() {
        let mut input = Vec::new();
        put_frame(&mut input, kind::NOTIFY, 300, 1, b"payload");
        put_frame(&mut input, kind::NOTIFY, 301, 2, b"");
        let whole = input.len();
        put_frame(&mut input, kind::NOTIFY, 302, 1, b"cut");
        input.pop();
        let mut output = Vec::new();
        assert_eq!(answer_all(&input, &mut output), Some(whole));
        let mut expect = Vec::new();
        for (stream_id, frame_id) in [(300, 1), (301, 2)] {
            put_frame(&mut expect, kind::ACK, stream_id, frame_id, b"\x01\x03\x02\x04seen\x11");
        }
        assert_eq!(output, expect);
    }

    #[test]
    fn a_farewell_is_answered_and_ends_the_conversation() {
        let mut input = Vec::new();
        put_frame(&mut input, kind::HAPROXY_DISCONNECT, 0, 0, b"");
        let mut output = Vec::new();
        assert_eq!(answer_all(&input, &mut output), None);
        assert_eq!(output[4], kind::AGENT_DISCONNECT);
    }
}
