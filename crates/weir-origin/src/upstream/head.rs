//! The head of a request on its way to a server: framing made unambiguous, hop-by-hop leftovers
//! removed, then put into the form of HTTP/1.1 or HTTP/2. What the request *means* (forwarding
//! fields, prefix, Via) has been settled before.

use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, Method, Request, Uri, Version};
use http_body::Body;
use tokio::time::Instant;

use super::extra::Extra;
use super::http1::{Framing, Outbound, write_field};
use super::request::{Outgoing, Progress, RequestBody};
use super::server::Server;
use crate::error::{ErrorKind, OriginError};

/// Fields about the connection (RFC 9113, section 8.2.2). `Connection` itself, `Upgrade` and
/// `TE` mean something to HTTP/1.1 and are dealt with there.
static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whose name the server sees in Host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// The request's own.
    #[default]
    Keep,
    /// The chosen server's authority.
    Server,
}

/// A request that is being sent, kept for as long as it may have to be sent again.
#[derive(Debug)]
pub(super) struct Job {
    /// Gone while it is on its way and cannot be duplicated.
    request: Option<(Parts, RequestBody)>,
    /// For a request without Host.
    authority: Option<HeaderValue>,
    policy: HostPolicy,
    extra: Extra,
    framing: Framing,
    /// Has TE, and then it says `trailers`.
    te: bool,
    /// Whoever sends it does not trust the server to read the content, or the connection would be
    /// its user's.
    asks_to_close: bool,
    /// The body can be sent twice.
    duplicable: bool,
    /// So may the whole request, even if a server acted on it (RFC 9110, section 9.2.2).
    pub(super) repeatable: bool,
    /// Its response has no body, whatever its fields say.
    pub(super) is_head: bool,
    /// Asks for another protocol: needs an HTTP/1.1 connection of its own.
    pub(super) upgrade: bool,
}

/// Whether credentials are for the connection rather than for the request (RFC 4559, section 6):
/// whatever else went by it would be the same user's.
fn is_bound(headers: &HeaderMap) -> bool {
    let is = |value: &HeaderValue| {
        let scheme = value.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        [&b"ntlm"[..], b"negotiate"].iter().any(|bound| scheme.eq_ignore_ascii_case(bound))
    };
    headers.get_all(AUTHORIZATION).iter().any(is)
}

impl Job {
    /// Checks and normalises `request`.
    pub(super) fn new(
        request: Request<RequestBody>,
        policy: HostPolicy,
        extra: Extra,
        group: &str,
    ) -> Result<Job, OriginError> {
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::CONNECT {
            let cause = "CONNECT is for proxies that a client chose, not for origins";
            return Err(OriginError::new(ErrorKind::Request, group, cause));
        }
        parts.extensions.clear();
        // Whatever it came by.
        parts.version = Version::HTTP_11;
        let authority = parts.uri.authority();
        let authority = authority.and_then(|name| HeaderValue::from_str(name.as_str()).ok());
        if parts.uri.authority().is_some() {
            parts.uri = origin_form(&parts.uri);
        }
        let present = Present::in_fields(&parts.headers);
        let framing = normalise_framing(&mut parts, &body, &present);
        if present.hop {
            // Answered on our side: the client gets its 100 when the body is first asked for, which
            // is when the server takes it. Forwarding Expect would mean waiting for the server's
            // 100.
            parts.headers.remove(EXPECT);
            parts.headers.remove(&KEEP_ALIVE);
            parts.headers.remove(&PROXY_CONNECTION);
        }
        let te = present.hop && normalise_te(&mut parts);
        let upgrade = present.hop && parts.headers.contains_key(UPGRADE);
        let asks_to_close = is_bound(&parts.headers)
            || present.hop
                && parts.headers.get(CONNECTION).is_some_and(|options| options == "close");
        let duplicable = matches!(body, RequestBody::Empty | RequestBody::Full(_));
        let repeatable = duplicable && parts.method.is_idempotent() && !upgrade;
        let is_head = parts.method == Method::HEAD;
        let request = Some((parts, body));
        Ok(Job {
            request,
            authority,
            policy,
            extra,
            framing,
            te,
            asks_to_close,
            duplicable,
            repeatable,
            is_head,
            upgrade,
        })
    }

    /// Path and query, for hashing. Empty once the request is gone.
    pub(super) fn parts(&self) -> Option<&Parts> {
        self.request.as_ref().map(|(parts, _)| parts)
    }

    /// Puts the extra fields among the request's own.
    pub(super) fn join_extra(&mut self) {
        let extra = std::mem::take(&mut self.extra);
        if let Some((parts, _)) = &mut self.request {
            extra.join(&mut parts.headers);
        }
    }

    /// Whether there is still a request to send.
    pub(super) fn is_whole(&self) -> bool {
        self.request.is_some()
    }

    /// The request's table of fields, emptied, for those of its response: with a response there is
    /// nothing to be repeated.
    pub(super) fn take_table(&mut self) -> HeaderMap {
        let mut table = match self.request.take() {
            Some((parts, _)) => parts.headers,
            None => HeaderMap::new(),
        };
        table.clear();
        table
    }

    /// The request for an HTTP/1.1 connection to `server`; it stays if it may be repeated.
    /// `None` if the request is gone.
    pub(super) fn http1(&mut self, server: &Server, close: bool) -> Option<Outbound> {
        let (parts, _) = self.request.as_ref()?;
        let close = !self.upgrade && (close || self.asks_to_close);
        let head = self.write_head(parts, server, close);
        let body = match self.repeatable {
            true => self.request.as_ref()?.1.duplicate()?,
            false => self.request.take()?.1,
        };
        Some(Outbound {
            head,
            body: outgoing(body),
            framing: self.framing,
            is_head: self.is_head,
            upgrade: self.upgrade,
            close,
        })
    }

    /// Request line and fields. Host comes first (RFC 9112, section 3.2).
    fn write_head(&self, parts: &Parts, server: &Server, close: bool) -> Vec<u8> {
        /// Of most requests; more makes it grow.
        const HEAD_SIZE: usize = 1024;
        let mut head = Vec::with_capacity(HEAD_SIZE);
        head.extend_from_slice(parts.method.as_str().as_bytes());
        head.push(b' ');
        let target = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        head.extend_from_slice(target.as_bytes());
        head.extend_from_slice(b" HTTP/1.1\r\n");
        write_field(&mut head, &HOST, self.host(parts, server).as_bytes());
        for (name, value) in &parts.headers {
            if name != HOST && (self.upgrade || name != CONNECTION) {
                write_field(&mut head, name, value.as_bytes());
            }
        }
        head.extend_from_slice(self.extra.lines());
        if close {
            write_field(&mut head, &CONNECTION, b"close");
        } else if !self.upgrade && self.te {
            // RFC 9110, section 10.1.4: TE is hop-by-hop.
            write_field(&mut head, &CONNECTION, b"te");
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// The request for an HTTP/2 connection to `server` (RFC 9113, section 8.3.1).
    pub(super) fn http2(
        &mut self,
        server: &Server,
    ) -> Option<Result<Request<Outgoing>, OriginError>> {
        // A server may refuse it unprocessed, and then any method may be sent again.
        let (mut parts, body) = self.take(self.duplicable)?;
        let authority = match Authority::try_from(self.host(&parts, server).as_bytes()) {
            Ok(authority) => authority,
            Err(error) => {
                return Some(Err(OriginError::new(ErrorKind::Request, &*server.name, error)));
            }
        };
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if server.tls { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(authority);
        uri.path_and_query = parts.uri.path_and_query().cloned();
        match Uri::from_parts(uri) {
            Ok(uri) => parts.uri = uri,
            Err(error) => {
                return Some(Err(OriginError::new(ErrorKind::Request, &*server.name, error)));
            }
        }
        parts.version = Version::HTTP_2;
        let headers = &mut parts.headers;
        self.extra.join(headers);
        if let Some(host) = headers.remove(HOST) {
            // The request may come back.
            self.authority = Some(host);
        }
        headers.remove(CONNECTION);
        headers.remove(UPGRADE);
        Some(Ok(Request::from_parts(parts, outgoing(body))))
    }

    /// Host as the server is to see it: the request's, or its authority where it has none (an
    /// absolute or HTTP/2 request), or the server's own.
    fn host<'a>(&'a self, parts: &'a Parts, server: &'a Server) -> &'a HeaderValue {
        let own = || parts.headers.get(HOST).or(self.authority.as_ref());
        match self.policy {
            HostPolicy::Keep => own().unwrap_or(&server.authority),
            HostPolicy::Server => &server.authority,
        }
    }

    /// Takes back a request that was never sent.
    pub(super) fn restore(&mut self, request: Request<Outgoing>) {
        let (mut parts, outgoing) = request.into_parts();
        if parts.uri.authority().is_some() {
            parts.uri = origin_form(&parts.uri);
        }
        parts.version = Version::HTTP_11;
        self.request = Some((parts, outgoing.body));
    }

    fn take(&mut self, keep: bool) -> Option<(Parts, RequestBody)> {
        if keep {
            let (parts, body) = self.request.as_ref()?;
            return Some((parts.clone(), body.duplicate()?));
        }
        self.request.take()
    }
}

fn origin_form(uri: &Uri) -> Uri {
    let mut parts = http::uri::Parts::default();
    let path = uri.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    // A path and query alone are a valid URI.
    Uri::from_parts(parts).unwrap_or_else(|_| Uri::from_static("/"))
}

/// What [`Job::new`] has to look at. One walk finds it; a look-up for each would cost several times
/// as much, mostly for nothing.
#[derive(Default)]
struct Present {
    /// Content-Length or Transfer-Encoding.
    framing: bool,
    /// Any other field that concerns the hop.
    hop: bool,
}

impl Present {
    fn in_fields(headers: &HeaderMap) -> Present {
        let mut present = Present::default();
        for name in headers.keys() {
            match name.as_str().as_bytes()[0] {
                // Most names begin with another letter.
                b'c' | b'e' | b'k' | b'p' | b't' | b'u' => {}
                _ => continue,
            }
            present.framing |= *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING;
            present.hop |= *name == CONNECTION
                || *name == TE
                || *name == EXPECT
                || *name == UPGRADE
                || *name == KEEP_ALIVE
                || *name == PROXY_CONNECTION;
        }
        present
    }
}

/// One statement of the body's length, and a true one (RFC 9112, section 6): the body is sent as
/// the fields say.
fn normalise_framing(parts: &mut Parts, body: &RequestBody, present: &Present) -> Framing {
    let headers = &mut parts.headers;
    let exact = body.size_hint().exact();
    // A wrapped body may not know its length while the field does: exactly that many bytes are
    // sent, or the request fails.
    let length = exact.or_else(|| declared_length(headers));
    if present.framing {
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    match length {
        Some(0) if exact.is_some() => {
            // "0" where the method gives a body meaning (RFC 9110, section 8.6).
            if matches!(parts.method, Method::POST | Method::PUT | Method::PATCH) {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        }
        Some(length) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        None => {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    length.map_or(Framing::Chunked, Framing::Length)
}

/// Asks for trailers if the client can take them, and for nothing else: a transfer coding that we
/// cannot undo would reach the client as garbage. Whether there is a TE then.
fn normalise_te(parts: &mut Parts) -> bool {
    let Some(first) = parts.headers.get(TE) else { return false };
    if first == "trailers" {
        return true;
    }
    let wants_trailers = parts.headers.get_all(TE).iter().any(|line| {
        line.as_bytes()
            .split(|byte| *byte == b',')
            .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    if wants_trailers {
        parts.headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        parts.headers.remove(TE);
    }
    wants_trailers
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    let digits = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn outgoing(body: RequestBody) -> Outgoing {
    let streamed = matches!(body, RequestBody::Incoming(_) | RequestBody::Boxed(_));
    let progress = streamed.then(|| Arc::new(Progress::new(Instant::now())));
    Outgoing { body, progress }
}
