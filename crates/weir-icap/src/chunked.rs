//! Content as ICAP frames it: in chunks as HTTP/1.1 has them (RFC 9112 §7.1), where the last one
//! may say that it is all there is (`ieof`, RFC 3507 §4.5).

use bytes::{Buf, Bytes, BytesMut};

use crate::error::IcapError;

/// Longest line of a chunk's size and its extensions, and of a trailer.
const LINE_MAX: usize = 8 << 10;
/// Longest trailer section.
const TRAILERS_MAX: usize = 64 << 10;
/// Hexadecimal digits of a size.
const DIGITS_MAX: usize = 15;

/// What ends content, or what is shown of it so far.
pub(crate) const END: &[u8] = b"0\r\n\r\n";
/// What ends a preview that is everything.
pub(crate) const WHOLE_END: &[u8] = b"0; ieof\r\n\r\n";

/// A piece, which must not be empty, as a chunk around what is not copied.
pub(crate) fn around(piece: Bytes) -> impl Buf {
    let size = Bytes::from(format!("{:x}\r\n", piece.len()));
    size.chain(piece).chain(&b"\r\n"[..])
}

/// Appends a piece, which must not be empty, as a chunk.
pub(crate) fn put(piece: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
    text.extend_from_slice(piece);
    text.extend_from_slice(b"\r\n");
}

/// Reads chunks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Size,
    Data {
        left: u64,
    },
    /// The end of line after a chunk's data.
    Closing,
    Trailers {
        len: usize,
    },
    Done,
}

/// What the bytes that are there mean.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Content.
    Data(Bytes),
    /// More is needed.
    Partial,
    /// That was all.
    End,
}

impl Decoder {
    /// Takes what there is at the beginning of `buffer`.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, IcapError> {
        loop {
            match &mut self.state {
                State::Size => {
                    let Some(line) = line(buffer)? else { return Ok(Decoded::Partial) };
                    self.state = match size(&line)? {
                        0 => State::Trailers { len: 0 },
                        left => State::Data { left },
                    };
                }
                State::Data { left } => {
                    if buffer.is_empty() {
                        return Ok(Decoded::Partial);
                    }
                    let len = usize::try_from(*left).map_or(buffer.len(), |n| n.min(buffer.len()));
                    *left -= len as u64;
                    if *left == 0 {
                        self.state = State::Closing;
                    }
                    return Ok(Decoded::Data(buffer.split_to(len).freeze()));
                }
                State::Closing => {
                    if buffer.len() < 2 {
                        return Ok(Decoded::Partial);
                    }
                    if !buffer.starts_with(b"\r\n") {
                        return Err(IcapError::Garbage("a chunk that is longer than it says"));
                    }
                    buffer.advance(2);
                    self.state = State::Size;
                }
                State::Trailers { len } => {
                    let Some(line) = line(buffer)? else { return Ok(Decoded::Partial) };
                    *len += line.len();
                    if *len > TRAILERS_MAX {
                        return Err(IcapError::Garbage("trailers that are too long"));
                    }
                    // They are nobody's: what is stored has the fields of its head.
                    if line.is_empty() {
                        self.state = State::Done;
                    }
                }
                State::Done => return Ok(Decoded::End),
            }
        }
    }
}

/// A whole line without its end.
fn line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, IcapError> {
    let end = buffer.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
    let Some(end) = end else {
        return match buffer.len() < LINE_MAX {
            true => Ok(None),
            false => Err(IcapError::Garbage("a line of a chunk that is too long")),
        };
    };
    let mut line = buffer.split_to(end + 1);
    line.truncate(end);
    if line.last() != Some(&b'\r') {
        return Err(IcapError::Garbage("a line of a chunk that ends without a carriage return"));
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

fn size(line: &[u8]) -> Result<u64, IcapError> {
    let wrong = IcapError::Garbage("a chunk whose size is no hexadecimal number");
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return Err(wrong);
    }
    digits
        .iter()
        .try_fold(0, |size, digit| {
            let digit = char::from(*digit).to_digit(16);
            digit.map(|digit| size << 4 | u64::from(digit))
        })
        .ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &[u8], step: usize) -> Result<(Vec<u8>, bool), IcapError> {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
        let mut content = Vec::new();
        for piece in text.chunks(step) {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut buffer)? {
                    Decoded::Data(data) => content.extend_from_slice(&data),
                    Decoded::Partial => break,
                    Decoded::End => return Ok((content, true)),
                }
            }
        }
        Ok((content, false))
    }

    #[test]
    fn chunks_are_read_however_they_come() {
        for (text, expect, is_end) in [
            (&b"5\r\nhello\r\n0\r\n\r\n"[..], &b"hello"[..], true),
            (b"5;name=value\r\nhello\r\n0\r\nX: y\r\n\r\n", b"hello", true),
            (b"0; ieof\r\n\r\n", b"", true),
            (b"00A\r\n0123456789\r\n", b"0123456789", false),
            (b"5\r\nhe", b"he", false),
        ] {
            for step in 1..=text.len() {
                assert_eq!(decoded(text, step).unwrap(), (expect.to_vec(), is_end), "{step}");
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for text in [
            &b"\r\n"[..],
            b"x\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"1\nx",
            b"1\r\nxy\r\n",
            b"fffffffffffffffff\r\n",
            &[b'1'; LINE_MAX + 1],
            &[&b"0\r\n"[..], &b"a: b\r\n".repeat(TRAILERS_MAX / 2)].concat(),
        ] {
            let shown = String::from_utf8_lossy(&text[..text.len().min(40)]);
            assert!(matches!(decoded(text, 7), Err(IcapError::Garbage(_))), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn what_is_put_is_read(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            step in 1..700_usize,
        ) {
            let mut text = Vec::new();
            for piece in &pieces {
                let before = text.len();
                put(piece, &mut text);
                let mut chunk = around(Bytes::from(piece.clone()));
                prop_assert_eq!(&chunk.copy_to_bytes(chunk.remaining()), &text[before..]);
            }
            text.extend_from_slice(END);
            prop_assert_eq!(decoded(&text, step).unwrap(), (pieces.concat(), true));
        }
    }
}
