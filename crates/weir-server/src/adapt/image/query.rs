//! What a request's query asks of a picture: what is listed, or what somebody who has the key has
//! signed.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use aws_lc_rs::hmac;
use http::Uri;
use weir_config as config;

use super::parameters::Parameters;
use crate::adapt::Asked;
use crate::error::StartError;

/// The last parameter of a signed query.
const SIGNATURE: &str = "signature";

/// Bytes of a key: fewer can be guessed, and more are no key.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// `query` of a route's `image`.
pub(crate) struct ImageQuery {
    by: By,
    refuses: bool,
}

enum By {
    /// Widths and formats that anybody may ask for.
    List {
        widths: Vec<u32>,
        formats: Vec<config::ImageFormat>,
    },
    Signature(Box<hmac::Key>),
}

/// What a request's query asks of pictures. It is read once: a signature takes a while to verify.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queried {
    /// Nobody has had to know yet.
    Unread,
    /// `None` if it asks nothing.
    Read(Option<Parameters>),
}

/// Why a query is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misasked {
    /// It is wrong in itself, or not listed.
    Wrong(String),
    /// Nobody who has the key has signed it.
    Unsigned,
}

impl ImageQuery {
    /// `None` if the route's pictures do not depend on queries.
    ///
    /// # Errors
    /// The key cannot be read.
    pub(crate) fn new(settings: &config::RouteAdapt) -> Result<Option<ImageQuery>, StartError> {
        let Some(image) = &settings.image else { return Ok(None) };
        let Some(query) = &image.query else { return Ok(None) };
        let by = match &query.by {
            config::ImageQueryBy::Listed { widths } => {
                By::List { widths: widths.clone(), formats: image.formats.clone() }
            }
            config::ImageQueryBy::Signed { key } => {
                let failed = |cause: String| StartError::ImageKey { path: key.clone(), cause };
                let bytes = start_of(key).map_err(|error| failed(error.to_string()))?;
                let secret = bytes.trim_ascii_end();
                if !KEY_BYTES.contains(&secret.len()) {
                    let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
                    let len = secret.len();
                    return Err(failed(format!("{len} bytes; expected {least} to {most}")));
                }
                By::Signature(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)))
            }
        };
        Ok(Some(ImageQuery { by, refuses: query.refuses }))
    }

    /// A query without what is said of pictures, which nobody else need know.
    pub(crate) fn strip<'q>(&self, query: &'q str) -> Option<Cow<'q, str>> {
        if !self.concerns(query) {
            return Some(Cow::Borrowed(query));
        }
        let others: Vec<&str> = query.split('&').filter(|pair| !is_ours(split(pair).0)).collect();
        (!others.is_empty()).then(|| Cow::Owned(others.join("&")))
    }

    /// What a request asks of a picture; `None` if it asks nothing, or what is not followed.
    pub(super) fn asked(&self, asked: &Asked<'_>) -> Option<Parameters> {
        match asked.queried {
            Queried::Read(parameters) => parameters,
            Queried::Unread => self.read(asked.uri).ok().flatten(),
        }
    }

    /// Whether a request is turned away for what it asks; if not, what that is, as far as that had
    /// to be read.
    ///
    /// # Errors
    /// Why.
    pub(crate) fn judge(&self, uri: &Uri) -> Result<Queried, Misasked> {
        if self.refuses { self.read(uri).map(Queried::Read) } else { Ok(Queried::Unread) }
    }

    /// Whether a query says anything of pictures.
    pub(crate) fn concerns(&self, query: &str) -> bool {
        pairs(query).any(|(name, _)| is_ours(name))
    }

    fn read(&self, uri: &Uri) -> Result<Option<Parameters>, Misasked> {
        let Some(query) = uri.query() else { return Ok(None) };
        if !self.concerns(query) {
            return Ok(None);
        }
        if let By::Signature(key) = &self.by {
            verify(key, uri.path(), query)?;
        }
        let mut parameters = Parameters::default();
        for (name, value) in pairs(query).filter(|(name, _)| is_ours(name)) {
            match (&self.by, name) {
                (By::Signature(_), SIGNATURE) => continue,
                (By::List { .. }, "width" | "format") | (By::Signature(_), _) => {}
                (By::List { .. }, _) => {
                    let message = format!("{name} is not for everybody to ask for");
                    return Err(Misasked::Wrong(message));
                }
            }
            parameters.read(name, value).map_err(Misasked::Wrong)?;
        }
        if let By::List { widths, formats } = &self.by {
            parameters.check(widths, formats).map_err(Misasked::Wrong)?;
        }
        Ok(Some(parameters))
    }
}

/// As much of a file as a key may have, with white space behind it, and no more.
fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(2 * *KEY_BYTES.end() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks that a query ends with its signature: HMAC-SHA256 (RFC 2104), in hexadecimal digits, of
/// the path and the query before it, as they are written.
fn verify(key: &hmac::Key, path: &str, query: &str) -> Result<(), Misasked> {
    let signed = query.rsplit_once('&').unwrap_or(("", query));
    let (before, (SIGNATURE, digits)) = (signed.0, split(signed.1)) else {
        return Err(Misasked::Unsigned);
    };
    let tag = from_hex(digits).ok_or(Misasked::Unsigned)?;
    let text = format!("{path}?{before}");
    // Takes as long for one that is nearly right as for any other.
    hmac::verify(key, text.as_bytes(), &tag).map_err(|_| Misasked::Unsigned)
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) || digits.len() != 64 {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(split)
}

fn split(pair: &str) -> (&str, &str) {
    pair.split_once('=').unwrap_or((pair, ""))
}

fn is_ours(name: &str) -> bool {
    name == SIGNATURE || Parameters::NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> ImageQuery {
        let formats = vec![config::ImageFormat::WebP];
        ImageQuery { by: By::List { widths: vec![320, 640], formats }, refuses: true }
    }

    #[test]
    fn what_is_listed_may_be_asked_for() {
        for (query, expected) in [
            ("/a?width=320", Ok(true)),
            ("/a?x=1&format=webp&width=640", Ok(true)),
            ("/a?x=1", Ok(false)),
            ("/a", Ok(false)),
            ("/a?width=321", Err("width cannot be 321: expected one of 320, 640")),
            ("/a?format=png", Err("format cannot be png: expected one of webp")),
            ("/a?quality=1", Err("quality is not for everybody to ask for")),
            ("/a?width=320&width=640", Err("width stands twice")),
            ("/a?width=", Err("width cannot be \"\": expected a number from 1 to 16383")),
        ] {
            let read = listed().read(&query.parse().unwrap()).map(|found| found.is_some());
            let expected = expected.map_err(|error| Misasked::Wrong(error.to_owned()));
            assert_eq!(read, expected, "{query}");
        }
    }

    #[test]
    fn others_do_not_learn_of_it() {
        for (query, expected) in [
            ("width=320", None),
            ("a=1", Some("a=1")),
            ("a=1&width=320&b=%20&signature=00", Some("a=1&b=%20")),
            ("widths=1&", Some("widths=1&")),
            ("", Some("")),
        ] {
            assert_eq!(listed().strip(query).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn signatures_are_of_path_and_query() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let sign = |text: &str| -> String {
            let tag = hmac::sign(&key, text.as_bytes());
            tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let good = sign("/a.jpg?v=1&width=500&fit=fill");
        let query = ImageQuery { by: By::Signature(Box::new(key.clone())), refuses: true };
        let read = |target: String| query.read(&target.parse().unwrap());
        let found = read(format!("/a.jpg?v=1&width=500&fit=fill&signature={good}"));
        assert!(found.is_ok_and(|found| found.is_some()));
        for target in [
            format!("/b.jpg?v=1&width=500&fit=fill&signature={good}"),
            format!("/a.jpg?v=1&width=501&fit=fill&signature={good}"),
            format!("/a.jpg?v=1&width=500&fit=fill&signature={good}&grey=1"),
            format!("/a.jpg?v=1&width=500&fit=fill&signature={}", &good[2..]),
            format!("/a.jpg?v=1&width=500&fit=fill&signature={}", "é".repeat(32)),
            format!("/a.jpg?signature={good}"),
            "/a.jpg?width=500".to_owned(),
        ] {
            let Ok(uri) = target.parse::<Uri>() else { continue };
            assert_eq!(query.read(&uri).err(), Some(Misasked::Unsigned), "{target}");
        }
        assert_eq!(read("/a.jpg?v=1".to_owned()), Ok(None));
    }

    #[test]
    fn what_has_been_judged_is_not_read_again() {
        let headers = http::HeaderMap::new();
        let uri = |target: &'static str| Uri::from_static(target);
        for refuses in [true, false] {
            let query = ImageQuery { refuses, ..listed() };
            let queried = query.judge(&uri("/a?width=320")).unwrap();
            let asked = |target| {
                query.asked(&Asked { queried, ..Asked::new(&uri(target), &headers) }).is_some()
            };
            // Of what nobody had to know, the request itself is asked.
            assert_eq!((asked("/a"), asked("/a?width=640")), (refuses, true), "{refuses}");
            assert_eq!(query.judge(&uri("/a?width=321")).is_err(), refuses);
        }
    }
}
