//! Answers of Weir's own to requests that cannot be answered otherwise: status, one line of text,
//! and what the connection has to do afterwards.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use h2::Reason;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use weir_config::RefusalAnswer;
use weir_http::Malformed;
use weir_origin::egress::Denied;

use super::{plugins, reply};
use crate::adapt::Misasked;
use crate::body::{Content, ReplyBody};
use crate::metrics::Refused;
use crate::record::Record;

/// Methods that origins may be asked with; others are theirs to know.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS, POST, PUT, DELETE, PATCH";

/// Why a request is not answered by a source.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The request breaks HTTP's rules, or could be understood in two ways.
    Malformed(Malformed),
    /// No site has this host on this listener (RFC 9110 §15.5.20).
    Misdirected,
    /// No route or file has this path.
    NotFound,
    /// The file exists and may not be read.
    Forbidden,
    /// The source does not take this method; these it takes.
    MethodNotAllowed(&'static str),
    /// The body is larger than the route allows.
    BodyTooLarge,
    /// The body came too slowly while an upstream waited for it (RFC 9110 §15.5.9).
    BodyTooSlow,
    /// The request came back to us too often.
    Loop,
    /// `only-if-cached` and nothing is (RFC 9111 §5.2.1.7).
    NotCached,
    /// Overload control has turned it away.
    Turned(Turned),
    /// A forward proxy does not do it.
    Barred(Barred),
    /// What the query asks of a picture is not done.
    Misasked(Misasked),
    /// The source failed: the status for the client, and a word on what happened.
    Source(StatusCode, &'static str),
}

/// What a forward proxy does not do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Barred {
    /// The request names no origin, as one to a server does.
    NotWhole,
    /// This client may not use it.
    Client,
    /// It does not know this user.
    Password,
    /// Nor does it hear who guesses passwords.
    Guesses,
    /// Too many others are to be known first.
    Busy,
    /// It does not go there.
    Origin(Denied),
    /// It has as many tunnels as it may.
    Full,
    /// Nor does it look up more names at a time.
    Lookups,
}

/// How overload control turns a request away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned {
    pub(super) answer: RefusalAnswer,
    /// When to try again.
    pub(super) retry_s: u64,
    /// A word for the client.
    pub(super) why: &'static str,
}

impl Turned {
    /// The upstream is at its limit, and it was not the request's turn in time.
    pub(super) const UPSTREAM: Turned =
        Turned { answer: RefusalAnswer::Status(503), retry_s: 1, why: "upstream" };

    /// The worker is overloaded, and others go first.
    pub(super) const OVERLOAD: Turned =
        Turned { answer: RefusalAnswer::Status(503), retry_s: 1, why: "overload" };
}

impl From<Misasked> for Refusal {
    fn from(misasked: Misasked) -> Refusal {
        Refusal::Misasked(misasked)
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        Refusal::Malformed(malformed)
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::Malformed(malformed) => malformed.status(),
            Refusal::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Refusal::NotFound => StatusCode::NOT_FOUND,
            Refusal::Forbidden => StatusCode::FORBIDDEN,
            Refusal::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::Loop => StatusCode::LOOP_DETECTED,
            Refusal::NotCached => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Source(status, _) => *status,
            Refusal::Misasked(Misasked::Wrong(_)) => StatusCode::BAD_REQUEST,
            Refusal::Misasked(Misasked::Unsigned) => StatusCode::FORBIDDEN,
            Refusal::Barred(Barred::NotWhole) => StatusCode::BAD_REQUEST,
            Refusal::Barred(Barred::Password) => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Refusal::Barred(Barred::Guesses) => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Barred(Barred::Busy | Barred::Full | Barred::Lookups) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Refusal::Barred(Barred::Client | Barred::Origin(_)) => StatusCode::FORBIDDEN,
            Refusal::Turned(turned) => match turned.answer {
                RefusalAnswer::Status(429) => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Refusal::Malformed(malformed) => Some(malformed.to_string()),
            Refusal::Misdirected => Some("no site has this host here".to_owned()),
            Refusal::BodyTooSlow => Some("the content came too slowly".to_owned()),
            Refusal::Loop => Some("the request came back to this server".to_owned()),
            Refusal::NotCached => Some("only-if-cached, and nothing is".to_owned()),
            Refusal::Barred(barred) => Some(barred.to_string()),
            Refusal::Misasked(Misasked::Wrong(what)) => Some(what.clone()),
            Refusal::Misasked(Misasked::Unsigned) => Some("the query is not signed".to_owned()),
            Refusal::Source(_, what) => Some((*what).to_owned()),
            Refusal::Turned(turned) => Some(turned.why.to_owned()),
            Refusal::NotFound
            | Refusal::Forbidden
            | Refusal::MethodNotAllowed(_)
            | Refusal::BodyTooLarge => None,
        }
    }
}

/// RFC 9209.
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// The field that says who refused, and for what (RFC 9209 §2.1.4; §2.3.11 and
/// §2.3.12).
fn proxy_status(why: &'static str) -> HeaderValue {
    HeaderValue::from_static(match why {
        "rate" => "weir; error=http_request_denied; details=\"rate\"",
        "concurrency" => "weir; error=http_request_denied; details=\"concurrency\"",
        "upstream" => "weir; error=connection_limit_reached; details=\"upstream\"",
        "overload" => "weir; error=http_request_denied; details=\"overload\"",
        _ => "weir; error=http_request_denied; details=\"rule\"",
    })
}

impl fmt::Display for Barred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Barred::NotWhole => f.write_str("a forward proxy is asked for whole URLs"),
            Barred::Client => f.write_str("this proxy is not for you"),
            Barred::Password => f.write_str("a name and its password are needed"),
            Barred::Guesses => f.write_str("too many wrong passwords came from there"),
            Barred::Busy => f.write_str("too many passwords are to be verified"),
            Barred::Origin(denied) => denied.fmt(f),
            Barred::Full => f.write_str("too many tunnels are open"),
            Barred::Lookups => f.write_str("too many names are being looked up"),
        }
    }
}

impl Barred {
    fn reason(self) -> Refused {
        match self {
            Barred::NotWhole => Refused::Target,
            Barred::Client => Refused::Client,
            Barred::Password => Refused::Password,
            Barred::Guesses => Refused::Guesses,
            Barred::Busy => Refused::Busy,
            Barred::Full => Refused::Tunnels,
            Barred::Lookups => Refused::Lookups,
            Barred::Origin(denied) => Refused::Origin(denied),
        }
    }

    /// When to try again, in seconds.
    fn retry_s(self) -> Option<u64> {
        match self {
            Barred::Guesses => Some(60),
            Barred::Busy | Barred::Full | Barred::Lookups => Some(1),
            Barred::NotWhole | Barred::Client | Barred::Password | Barred::Origin(_) => None,
        }
    }

    /// RFC 9209 §2.3.5, §2.3.11 and §2.3.12; the reason as metrics have it.
    fn proxy_status(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Barred::NotWhole => "weir; error=http_request_error",
            Barred::Client => "weir; error=http_request_denied; details=\"client\"",
            Barred::Origin(Denied::Host) => "weir; error=http_request_denied; details=\"host\"",
            Barred::Origin(Denied::Port) => "weir; error=http_request_denied; details=\"port\"",
            Barred::Origin(Denied::Private) => {
                "weir; error=destination_ip_prohibited; details=\"private\""
            }
            Barred::Origin(Denied::Own) => "weir; error=destination_ip_prohibited; details=\"own\"",
            Barred::Password => "weir; error=http_request_denied; details=\"password\"",
            Barred::Guesses => "weir; error=http_request_denied; details=\"guesses\"",
            Barred::Busy => "weir; error=http_request_denied; details=\"busy\"",
            Barred::Full => "weir; error=connection_limit_reached; details=\"tunnels\"",
            Barred::Lookups => "weir; error=http_request_denied; details=\"lookups\"",
            Barred::Origin(_) => "weir; error=destination_ip_prohibited; details=\"address\"",
        })
    }
}

/// Makes the answer and completes the record with it.
pub(super) fn refuse(
    refusal: Refusal,
    mut record: Record,
    head: &Parts,
    body: Option<&Incoming>,
) -> Response<ReplyBody> {
    if let Refusal::Turned(Turned { answer: RefusalAnswer::Reset, .. }) = refusal {
        // RFC 9113 §7: what the client does might cause excessive load. Nothing says that it may
        // be tried again at once, as REFUSED_STREAM would.
        return plugins::broken_off(Some(record), Reason::ENHANCE_YOUR_CALM);
    }
    count(&refusal, &record);
    let status = refusal.status();
    let mut text =
        format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    if let Some(detail) = refusal.detail() {
        text.insert_str(text.len() - 1, ": ");
        text.insert_str(text.len() - 1, &detail);
    }
    record.status = status.as_u16();
    if let Refusal::Barred(_) = refusal {
        record.shed = Some("barred");
    }
    let challenge =
        matches!(refusal, Refusal::Barred(Barred::Password)).then(|| challenge(&record));
    let draining = record.connection().worker.shared.is_draining();
    // What is left of a body that is too large or slow is not read, also where its beginning was.
    let mut closes = draining
        || matches!(refusal, Refusal::Malformed(_) | Refusal::BodyTooLarge | Refusal::BodyTooSlow);
    if body.is_some_and(|body| !body.is_end_stream()) {
        record.connection().socket.set_body_left();
        closes = true;
    }
    let content = if record.is_head() { Content::Empty } else { Content::One(text.into()) };
    let mut response = Response::new(ReplyBody::new(content, Some(record)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Refusal::MethodNotAllowed(allowed) = refusal {
        headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    match refusal {
        Refusal::Turned(turned) => {
            headers.insert(header::RETRY_AFTER, turned.retry_s.into());
            headers.insert(PROXY_STATUS, proxy_status(turned.why));
        }
        Refusal::Barred(barred) => {
            headers.insert(PROXY_STATUS, barred.proxy_status());
            if let Some(challenge) = challenge {
                headers.insert(header::PROXY_AUTHENTICATE, challenge);
            }
            if let Some(after_s) = barred.retry_s() {
                headers.insert(header::RETRY_AFTER, after_s.into());
            }
        }
        _ if status == StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    if closes && head.version < Version::HTTP_2 {
        headers.insert(header::CONNECTION, reply::CLOSE);
    }
    response
}

/// What a forward proxy's clients are asked for (RFC 7617).
fn challenge(record: &Record) -> HeaderValue {
    let proxy = record.route().and_then(|route| route.source.forward_proxy());
    let users = proxy.and_then(|proxy| proxy.settings.users.as_ref());
    let realm = users.map_or("", |users| &users.realm);
    let value = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
    // Realms are printable ASCII without quotes.
    HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("Basic realm=\"\""))
}

/// Counts what the metrics have no status and route for that would tell it from others.
fn count(refusal: &Refusal, record: &Record) {
    let shared = &record.connection().worker.shared;
    let connections = &shared.connections;
    match refusal {
        Refusal::BodyTooLarge => connections.large_bodies.fetch_add(1, Relaxed),
        Refusal::BodyTooSlow => connections.slow_bodies.fetch_add(1, Relaxed),
        Refusal::Barred(barred) => shared.metrics.forward.refuse(barred.reason()),
        _ => 0,
    };
}
