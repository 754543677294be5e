//! What can go wrong between Weir and a source: one boxed error that says what happened, at which
//! server, whether it may be tried again, and which status a client should see for it.

use std::fmt;

use http::StatusCode;

/// Any failure of a cause that carries its own text.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The group's settings cannot be used: a CA file that is not there, a name TLS refuses.
    Config,
    /// The request cannot be sent to any server: no valid Host, the CONNECT method.
    Request,
    /// The client's request body failed while it was being sent.
    RequestBody,
    /// The server's name did not resolve.
    Resolve,
    /// No connection: refused, unreachable, no such socket.
    Connect,
    /// No connection within the connect timeout, resolution and TLS handshake included.
    ConnectTimeout,
    /// The TLS handshake failed or the certificate is not trusted.
    Tls,
    /// No response head within the first-byte timeout.
    FirstByteTimeout,
    /// A response body stood still for longer than the idle timeout.
    IdleTimeout,
    /// What came back is not HTTP, or breaks its rules or our limits.
    Garbage,
    /// The connection ended before a response head was complete.
    ClosedEarly,
    /// The connection ended in the middle of a response body.
    Truncated,
    /// Every server is at its limit of requests or connections.
    Overloaded,
    /// A forward proxy may not connect there.
    Denied,
}

impl ErrorKind {
    /// Every kind, in the order of their discriminants.
    pub const ALL: [ErrorKind; 14] = [
        ErrorKind::Config,
        ErrorKind::Request,
        ErrorKind::RequestBody,
        ErrorKind::Resolve,
        ErrorKind::Connect,
        ErrorKind::ConnectTimeout,
        ErrorKind::Tls,
        ErrorKind::FirstByteTimeout,
        ErrorKind::IdleTimeout,
        ErrorKind::Garbage,
        ErrorKind::ClosedEarly,
        ErrorKind::Truncated,
        ErrorKind::Overloaded,
        ErrorKind::Denied,
    ];

    /// The kind's name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::Request => "request",
            ErrorKind::RequestBody => "request_body",
            ErrorKind::Resolve => "resolve",
            ErrorKind::Connect => "connect",
            ErrorKind::ConnectTimeout => "connect_timeout",
            ErrorKind::Tls => "tls",
            ErrorKind::FirstByteTimeout => "first_byte_timeout",
            ErrorKind::IdleTimeout => "idle_timeout",
            ErrorKind::Garbage => "garbage",
            ErrorKind::ClosedEarly => "closed_early",
            ErrorKind::Truncated => "truncated",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Denied => "denied",
        }
    }

    /// What the client is told (RFC 9110, sections 15.5 and 15.6).
    pub fn status(self) -> StatusCode {
        match self {
            ErrorKind::Config => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::Request | ErrorKind::RequestBody => StatusCode::BAD_REQUEST,
            ErrorKind::Resolve
            | ErrorKind::Connect
            | ErrorKind::Tls
            | ErrorKind::Garbage
            | ErrorKind::ClosedEarly
            | ErrorKind::Truncated => StatusCode::BAD_GATEWAY,
            ErrorKind::ConnectTimeout | ErrorKind::FirstByteTimeout | ErrorKind::IdleTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            ErrorKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Denied => StatusCode::FORBIDDEN,
        }
    }

    /// Whether the server is to blame, so that passive health counts it. A client that stops
    /// sending, a limit of ours or a request nobody could send says nothing about the server.
    pub fn is_servers_fault(self) -> bool {
        !matches!(
            self,
            ErrorKind::Config
                | ErrorKind::Request
                | ErrorKind::RequestBody
                | ErrorKind::Overloaded
                | ErrorKind::Denied
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Config => "unusable configuration",
            ErrorKind::Request => "request cannot be forwarded",
            ErrorKind::RequestBody => "request body failed",
            ErrorKind::Resolve => "name does not resolve",
            ErrorKind::Connect => "cannot connect",
            ErrorKind::ConnectTimeout => "connect timeout",
            ErrorKind::Tls => "TLS failed",
            ErrorKind::FirstByteTimeout => "no response in time",
            ErrorKind::IdleTimeout => "response stood still",
            ErrorKind::Garbage => "invalid response",
            ErrorKind::ClosedEarly => "closed before a response",
            ErrorKind::Truncated => "response cut short",
            ErrorKind::Overloaded => "at its limit",
            ErrorKind::Denied => "denied",
        })
    }
}

/// A failure of a source. One word in size, so that results stay cheap to move.
#[derive(Debug)]
pub struct OriginError(Box<Failure>);

#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    /// The server, or the group when no server had been chosen.
    server: String,
    retry: bool,
    cause: BoxError,
}

impl OriginError {
    /// An error of `kind` at `server` (or group), because of `cause`. It may not be retried.
    pub fn new(kind: ErrorKind, server: impl Into<String>, cause: impl Into<BoxError>) -> Self {
        let server = server.into();
        OriginError(Box::new(Failure { kind, server, retry: false, cause: cause.into() }))
    }

    /// Says whether the same request may be sent again without harm (RFC 9110, section 9.2.2).
    pub(crate) fn retry(mut self, retry: bool) -> Self {
        self.0.retry = retry;
        self
    }

    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The server it happened at, or the group when no server had been chosen.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Whether the same request may be sent again without harm (RFC 9110, section 9.2.2).
    pub fn may_retry(&self) -> bool {
        self.0.retry
    }

    /// The cause, with its own causes, as text for the log.
    pub fn cause(&self) -> String {
        let mut text = self.0.cause.to_string();
        let mut next = self.0.cause.source();
        while let Some(source) = next {
            let inner = source.to_string();
            // Many libraries repeat their source in their own text.
            if !text.contains(&inner) {
                text.push_str(": ");
                text.push_str(&inner);
            }
            next = source.source();
        }
        text
    }

    /// What the client is told.
    pub fn status(&self) -> StatusCode {
        self.0.kind.status()
    }
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.0.server, self.0.kind, self.cause())
    }
}

impl std::error::Error for OriginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_in_order_and_named_apart() {
        let mut names = std::collections::HashSet::new();
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{kind:?}");
            assert!(names.insert(kind.as_str()), "{kind:?}");
        }
    }

    #[test]
    fn a_cause_names_its_own_causes_once() {
        let inner = std::io::Error::other("deep");
        let error = OriginError::new(ErrorKind::Tls, "a:1", std::io::Error::other(inner));
        assert_eq!(error.to_string(), "a:1: TLS failed: deep");
        assert_eq!(error.status(), StatusCode::BAD_GATEWAY);
    }
}
