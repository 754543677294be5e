//! The end of chunked content, found without keeping the content. Neither extensions of chunks nor
//! trailers are expected.

/// A size longer than this is an error: 16^12 bytes are more than anybody sends here.
const DIGITS_MAX: u32 = 12;

/// Where in the framing the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In the digits of a size; so many there were.
    #[default]
    Size,
    /// Behind the CR of a size's line.
    SizeEnd,
    /// In content.
    Data,
    /// Before the CR behind content.
    DataEnd,
    /// Before its LF.
    DataEndLine,
    /// Before the CR of the last line.
    Last,
    /// Before its LF.
    LastLine,
    Done,
}

/// Chunked content as it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    state: State,
    digits: u32,
    /// Bytes of the chunk that are to come.
    left: usize,
    /// Bytes of content so far.
    pub(super) content: usize,
}

impl Chunks {
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what has arrived.
    ///
    /// # Errors
    /// In words, what is wrong with the framing.
    pub(super) fn feed(&mut self, mut input: &[u8]) -> Result<(), String> {
        while let Some((&byte, rest)) = input.split_first() {
            if self.state == State::Data {
                let count = self.left.min(input.len());
                self.left -= count;
                self.content += count;
                input = &input[count..];
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                continue;
            }
            input = rest;
            self.step(byte)?;
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<(), String> {
        self.state = match (self.state, byte) {
            (State::Size, b'\r') if self.digits > 0 => State::SizeEnd,
            (State::Size, _) => {
                let digit = char::from(byte).to_digit(16).filter(|_| self.digits < DIGITS_MAX);
                let digit = digit.ok_or_else(|| format!("byte {byte:#04x} in a chunk's size"))?;
                self.left = self.left * 16 + digit as usize;
                self.digits += 1;
                State::Size
            }
            (State::SizeEnd, b'\n') if self.left == 0 => State::Last,
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataEnd, b'\r') => State::DataEndLine,
            (State::DataEndLine, b'\n') => {
                (self.digits, self.left) = (0, 0);
                State::Size
            }
            (State::Last, b'\r') => State::LastLine,
            (State::LastLine, b'\n') => State::Done,
            (State::Done, _) => return Err("bytes after the end of the body".to_owned()),
            (state, _) => return Err(format!("byte {byte:#04x} in chunked content ({state:?})")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u8], expect: Result<(bool, usize), ()>) {
        // In one piece, and byte by byte.
        for size in [input.len().max(1), 1] {
            let mut chunks = Chunks::default();
            let fed = input.chunks(size).try_for_each(|piece| chunks.feed(piece));
            let got = fed.map(|()| (chunks.is_done(), chunks.content)).map_err(drop);
            assert_eq!(got, expect, "{} by {size}", input.escape_ascii());
        }
    }

    #[test]
    fn content_ends_where_it_says() {
        check(b"5\r\nhello\r\n0\r\n\r\n", Ok((true, 5)));
        check(b"0A\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", Ok((true, 11)));
        check(b"0\r\n\r\n", Ok((true, 0)));
        check(b"5\r\nhello\r\n0\r\n", Ok((false, 5)));
        check(b"5\r\nhel", Ok((false, 3)));
        check(b"", Ok((false, 0)));
    }

    #[test]
    fn wrong_framing_is_an_error() {
        for input in [
            &b"\r\n"[..],
            b"x\r\n",
            b"5 \r\nhello\r\n",
            b"5\nhello",
            b"5\r\nhello!\r\n",
            b"0\r\nTrailer: x\r\n\r\n",
            b"0\r\n\r\nx",
            b"1234567890abc\r\n",
        ] {
            check(input, Err(()));
        }
    }
}
