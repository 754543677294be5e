//! Headers of pictures: binary PPM (P6), as netpbm describes it.

/// Bytes of a header, comments included, that are waited for.
pub(crate) const HEADER_BYTES_MAX: usize = 4096;

/// What a picture begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A header: its length in bytes, and the picture's size.
    Complete {
        /// Bytes of the header.
        len: usize,
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// More bytes may make it one.
    Incomplete,
    /// It is no binary PPM with 8 bits a colour.
    Other,
}

/// Reads a header.
pub(crate) fn header(bytes: &[u8]) -> Header {
    let cut = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    let mut reader = Reader { bytes: cut, at: 0 };
    let incomplete =
        if bytes.len() < HEADER_BYTES_MAX { Header::Incomplete } else { Header::Other };
    let magic = &cut[..cut.len().min(2)];
    if magic != &b"P6"[..magic.len()] {
        return Header::Other;
    }
    reader.at = magic.len();
    let mut numbers = [0; 3];
    for number in &mut numbers {
        match reader.number() {
            Ok(Some(read)) => *number = read,
            Ok(None) => return incomplete,
            Err(NoNumber) => return Header::Other,
        }
    }
    let [width, height, max] = numbers;
    if width == 0 || height == 0 || max != 255 {
        return Header::Other;
    }
    // One white space, and then the pixels.
    Header::Complete { len: reader.at + 1, width, height }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct NoNumber;

impl Reader<'_> {
    /// The next number, which white space follows, and white space and comments precede.
    fn number(&mut self) -> Result<Option<u32>, NoNumber> {
        if !self.skip()? {
            return Ok(None);
        }
        let mut number: u32 = 0;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'0'..=b'9' => {
                    let digit = u32::from(byte - b'0');
                    number = number
                        .checked_mul(10)
                        .and_then(|n| n.checked_add(digit))
                        .ok_or(NoNumber)?;
                }
                byte if is_space(*byte) => return Ok(Some(number)),
                _ => return Err(NoNumber),
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Goes to the next digit. False if there is none yet.
    fn skip(&mut self) -> Result<bool, NoNumber> {
        let began = self.at;
        let mut in_comment = false;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' | b'\r' => in_comment = false,
                _ if in_comment => {}
                b'#' => in_comment = true,
                byte if is_space(*byte) => {}
                byte if byte.is_ascii_digit() && self.at > began => return Ok(true),
                _ => return Err(NoNumber),
            }
            self.at += 1;
        }
        Ok(false)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Header) {
        assert_eq!(header(bytes), expected, "{}", bytes.escape_ascii());
    }

    #[test]
    fn headers_are_read() {
        let complete = |len, width, height| Header::Complete { len, width, height };
        check(b"P6\n3 2\n255\npixels", complete(11, 3, 2));
        check(b"P6 3\t2\r255 \n", complete(11, 3, 2));
        check(b"P6\n# by hand\n3 # across\n2\n#\n255\n", complete(32, 3, 2));
        check(b"P6#x\n00012 7 255\xff", Header::Other);
        check(b"P6#x\n00012 7 255\x0c", complete(17, 12, 7));
    }

    #[test]
    fn beginnings_are_waited_for() {
        let whole = b"P6\n# by hand\n3 # across\n2\n#\n255\n";
        (0..whole.len()).for_each(|len| check(&whole[..len], Header::Incomplete));
        let endless = [&b"P6 #"[..], &[b'x'; HEADER_BYTES_MAX]].concat();
        check(&endless[..HEADER_BYTES_MAX - 1], Header::Incomplete);
        check(&endless, Header::Other);
    }

    #[test]
    fn other_pictures_are_told_apart() {
        for other in [
            &b"P5\n3 2\n255\n"[..],
            b"P3\n3 2\n255\n",
            b"P6\n3 2\n65535\n",
            b"P6\n3 2\n15\n",
            b"P6\n0 2\n255\n",
            b"P6\n-3 2\n255\n",
            b"P63 2\n255\n",
            b"P6\n3 2 255x",
            b"P6\n99999999999 2 255\n",
            b"GIF89a",
            b"PNG",
        ] {
            check(other, Header::Other);
        }
    }
}
