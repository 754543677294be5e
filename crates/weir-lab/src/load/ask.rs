//! What clients ask for, and what they expect.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

/// What the clients of a group ask for.
#[derive(Clone, Debug)]
pub enum Asks {
    /// The same every time.
    Same(Ask),
    /// Another thing each time.
    Each(Arc<dyn Catalogue>),
}

/// Many things to ask for, by number: the same in every run, for every contender.
pub trait Catalogue: Debug + Send + Sync {
    /// Number `number`, from 0 on.
    fn ask(&self, number: u64) -> Ask;
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Path and query.
    pub target: String,
    /// Further fields, each line ended by CRLF.
    pub fields: &'static str,
    /// What comes back.
    pub expect: Expect,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum Expect {
    /// These bytes, by their length.
    Body(Arc<[u8]>),
    /// Whatever it is, with a length or in chunks.
    Any,
}

impl Asks {
    /// A plain request for one document.
    pub fn same(target: impl Into<String>, body: impl Into<Arc<[u8]>>) -> Asks {
        let (target, expect) = (target.into(), Expect::Body(body.into()));
        Asks::Same(Ask { target, fields: "", expect })
    }
}

impl Ask {
    /// The request to `server`, the same for every contender: the small set of fields that a simple
    /// client sends.
    #[must_use]
    pub fn render(&self, server: SocketAddr, persistent: bool) -> Vec<u8> {
        let connection = if persistent { "" } else { "Connection: close\r\n" };
        format!(
            "GET {} HTTP/1.1\r\nHost: {server}\r\nUser-Agent: weir-lab\r\nAccept: */*\r\n\
             {}{connection}\r\n",
            self.target, self.fields
        )
        .into_bytes()
    }
}

impl Expect {
    /// The length that is known beforehand.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Expect::Body(bytes) => Some(bytes.len()),
            Expect::Any => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_a_simple_client_sends() {
        let ask = Ask {
            target: "/a?b".to_owned(),
            fields: "Accept-Encoding: gzip\r\n",
            expect: Expect::Any,
        };
        let server = SocketAddr::from(([127, 0, 0, 1], 80));
        let text = |persistent| String::from_utf8(ask.render(server, persistent)).unwrap();
        let head = "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUser-Agent: weir-lab\r\n\
                    Accept: */*\r\nAccept-Encoding: gzip\r\n";
        assert_eq!(text(true), format!("{head}\r\n"));
        assert_eq!(text(false), format!("{head}Connection: close\r\n\r\n"));
    }
}
