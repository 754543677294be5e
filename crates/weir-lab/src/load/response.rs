//! As much of HTTP/1.1 response parsing as a generator needs that knows what it asked for. Anything
//! else is an error: a contender that answers otherwise is not doing the same work.

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length`.
    Length(usize),
    /// Neither length nor chunks: until the connection closes.
    UntilClose,
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// How the body ends.
    pub framing: Framing,
    /// The server will close the connection.
    pub closes: bool,
    /// Bytes of the head, the empty line included.
    pub len: usize,
}

/// Parses the head at the start of `input`; `Ok(None)` if it is not complete yet.
///
/// # Errors
/// In words, what is wrong with it.
pub fn parse_head(input: &[u8]) -> Result<Option<Head>, String> {
    let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&input[..end]).map_err(|_| "head is not text".to_owned())?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let (version, rest) = status_line.split_once(' ').unwrap_or_default();
    let status = rest.get(..3).and_then(|digits| digits.parse().ok());
    let (Some(status), true) = (status, version.starts_with("HTTP/1.")) else {
        return Err(format!("status line {status_line:?}"));
    };
    let mut head =
        Head { status, framing: Framing::UntilClose, closes: version == "HTTP/1.0", len: end + 4 };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(format!("header line {line:?}"));
        };
        apply_field(&mut head, name, value.trim())?;
    }
    Ok(Some(head))
}

fn apply_field(head: &mut Head, name: &str, value: &str) -> Result<(), String> {
    if name.eq_ignore_ascii_case("content-length") {
        let length = value.parse().map_err(|_| format!("Content-Length {value:?}"))?;
        head.framing = Framing::Length(length);
    } else if name.eq_ignore_ascii_case("transfer-encoding") {
        head.framing = Framing::Chunked;
    } else if name.eq_ignore_ascii_case("connection") {
        let has = |token| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token));
        head.closes = has("close") || (head.closes && !has("keep-alive"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(input: &str, expect: Result<Option<Head>, &str>) {
        let got = parse_head(input.as_bytes());
        assert_eq!(got.as_ref().map(|head| *head).map_err(String::as_str), expect, "{input:?}");
    }

    #[test]
    fn complete_heads() {
        let head = |framing, closes, len| Ok(Some(Head { status: 200, framing, closes, len }));
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n";
        check(text, head(Framing::Length(12), false, text.len()));
        let text = "HTTP/1.1 200 OK\r\ncontent-length:7\r\nCONNECTION: Close\r\n\r\nbody...";
        check(text, head(Framing::Length(7), true, text.len() - 7));
        let text = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n";
        check(text, head(Framing::Length(1), false, text.len()));
        let text = "HTTP/1.0 200 OK\r\n\r\n";
        check(text, head(Framing::UntilClose, true, text.len()));
        let text = "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(text, head(Framing::Chunked, false, text.len()));
    }

    #[test]
    fn incomplete_heads() {
        check("", Ok(None));
        check("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r", Ok(None));
    }

    #[test]
    fn wrong_heads() {
        check("SMTP 200\r\n\r\n", Err("status line \"SMTP 200\""));
        check("HTTP/1.1 OK\r\n\r\n", Err("status line \"HTTP/1.1 OK\""));
        check("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", Err("header line \"nonsense\""));
        check("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Err("Content-Length \"-1\""));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(input: Vec<u8>) {
            let _ = parse_head(&input);
        }

        #[test]
        fn a_prefix_of_a_head_is_incomplete(cut in 0_usize..40) {
            let text = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n";
            prop_assert_eq!(parse_head(&text[..cut.min(text.len() - 1)]), Ok(None));
        }
    }
}
