//! Request smuggling: the corpus of crate `http_desync_guardian`, byte for byte, against the real
//! server with an origin behind it that records what arrives. What the corpus calls severe or
//! ambiguous must be refused and its connection closed, or reach the origin as one request that can
//! be read in one way; what it calls compliant must be served. After every case a request of
//! somebody else must get its own answer.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;
#[path = "desync/corpus.rs"]
mod corpus;

use std::net::SocketAddr;
use std::time::Duration;

use http_desync_guardian::request_analyzer::HttpRequestData;
use http_desync_guardian::{ClassificationReason as Reason, RequestSafetyTier as Verdict};

use common::client::{self, Client, find};
use common::free_address;
use common::origin::{self, Origin, Received};
use common::server::Weir;
use corpus::{Case, Tier};

/// How long a server may take to answer or close; a case that hangs has failed.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Cases that are called compliant and still refused, by file, and why.
const REFUSED_KNOWINGLY: &[(&str, &str, &str)] = &[
    ("more-compliant-tests", "Correct TE OK", CODINGS),
    ("more-compliant-tests", "Transfer-Encoding: identity and chunked OK", CODINGS),
    ("more-compliant-tests", "Multiple transfer encoding headers in a single request OK", CODINGS),
    ("more-compliant-tests", "TE with custom parameters OK", PARAMETERS),
    ("rfc-compliant", "Different Transfer-Encoding headers", CODINGS),
    ("rfc-compliant", "Different Transfer-Encoding headers combined", CODINGS),
    ("rfc-compliant", "Transfer-Encoding with a param: chunked;custom_param", PARAMETERS),
    ("rfc-compliant", "Empty URI", "without a target the request line is none (RFC 9112, 3)"),
];

const CODINGS: &str = "transfer codings but chunked are not decoded: 501 (RFC 9112, 6.1)";
const PARAMETERS: &str = "chunked has no parameters; some are an error (RFC 9112, 7.1)";

#[test]
fn corpus_of_desync_requests() {
    let cases = corpus::load();
    assert!(cases.len() > 150, "only {} cases", cases.len());
    // The answer is the request line, so that a mixed-up answer is seen.
    let origin = Origin::start(|request| origin::ok(&request.line()));
    let address = free_address();
    let config = format!(
        r#"
        server {{ workers 1; admin "off"; }}
        site "*" {{
            listen "{address}"
            route "/*" {{ proxy "{}"; cache "off"; }}
        }}
        "#,
        origin.url()
    );
    let mut weir = Weir::run(&config, &[address]);
    let mut failures = Vec::new();
    for case in &cases {
        let outcome = observe(address, &origin, case);
        if let Err(reason) = judge(case, &outcome).and_then(|()| check_stranger(address, &origin)) {
            failures.push(format!("[{:?}] {}: {}\n    {reason}", case.tier, case.file, case.name));
        }
        assert!(weir.is_running(), "{} ended the server", case.name);
    }
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of {} cases:\n{}", cases.len(), failures.join("\n"));
}

/// What happened to a case.
#[derive(Debug)]
struct Outcome {
    /// Status of the response; `None` if there was none.
    status: Option<u16>,
    /// Whether the server closed the connection.
    is_closed: bool,
    /// What reached the origin.
    received: Vec<Received>,
    /// What reached the origin and is no request.
    oddities: Vec<String>,
}

fn observe(address: SocketAddr, origin: &Origin, case: &Case) -> Outcome {
    origin.take();
    origin.take_oddities();
    let mut client = Client::connect(address).unwrap();
    client.set_patience(ANSWER_MAX);
    // The server may refuse and close before it has read everything.
    let _ = client.send(&request_bytes(case));
    let response = client.response(&case.method).ok();
    let status = response.as_ref().map(|response| response.status);
    // A connection that is kept is not waited for: only what must be closed is.
    let may_stay = response.is_some_and(|r| r.status == 200 && !r.says_close());
    client.set_patience(if may_stay { Duration::from_millis(20) } else { ANSWER_MAX });
    let is_closed = client.is_closed();
    Outcome { status, is_closed, received: origin.take(), oddities: origin.take_oddities() }
}

/// Whether a case came out as it must.
fn judge(case: &Case, outcome: &Outcome) -> Result<(), String> {
    let is_refused = matches!(outcome.status, Some(400..=599))
        && outcome.is_closed
        && outcome.received.is_empty()
        && outcome.oddities.is_empty();
    let is_known =
        REFUSED_KNOWINGLY.iter().any(|(file, name, _)| (*file, *name) == (&case.file, &case.name));
    match case.tier {
        Tier::Compliant if is_known && is_refused => Ok(()),
        Tier::Compliant => forwarded_once(outcome),
        _ if is_refused => Ok(()),
        _ => forwarded_once(outcome).and_then(|()| unambiguous(outcome)),
    }
}

fn forwarded_once(outcome: &Outcome) -> Result<(), String> {
    if !outcome.oddities.is_empty() {
        return Err(format!("the origin could not read {:?}", outcome.oddities));
    }
    match (outcome.status, outcome.received.as_slice()) {
        (Some(200), [_]) => Ok(()),
        (status, received) => {
            let lines: Vec<String> = received.iter().map(Received::line).collect();
            let closed = if outcome.is_closed { "closed" } else { "kept" };
            Err(format!("answered {status:?} and {closed}; the origin got {lines:?}"))
        }
    }
}

/// Whether the one request that reached the origin means the same to every server. An origin may
/// ignore the content of a GET or HEAD and take it for the next request, so it may only be the last
/// on its connection. A method is any token (RFC 9110 section 9.1) and frames nothing.
fn unambiguous(outcome: &Outcome) -> Result<(), String> {
    let request = &outcome.received[0];
    let verdict = HttpRequestData::analyze_raw_request(&request.head);
    let is_last = request.values("connection") == ["close"];
    let is_harmless = match verdict.reason {
        Reason::UndefinedContentLengthSemantics => is_last,
        Reason::UndefinedTransferEncodingSemantics => is_last,
        Reason::BadMethod => true,
        _ => verdict.tier <= Verdict::Acceptable,
    };
    if is_harmless {
        return Ok(());
    }
    let head = request.head.escape_ascii();
    Err(format!("forwarded as {:?} ({:?}): {head}", verdict.tier, verdict.reason))
}

/// Somebody else's request, right after: it must arrive as it is and get its own answer.
fn check_stranger(address: SocketAddr, origin: &Origin) -> Result<(), String> {
    let answer = client::get(address, "stranger.example", "/stranger");
    let lines: Vec<String> = origin.take().iter().map(Received::line).collect();
    let expect = "GET /stranger HTTP/1.1";
    match answer {
        Ok(answer) if answer.body == expect.as_bytes() && lines == [expect] => Ok(()),
        answer => Err(format!("the next client got {answer:?}; the origin got {lines:?}")),
    }
}

/// The request as the corpus describes it, with a Host where it has none and content that fits its
/// framing – both framings, where it has two, with a request hidden behind the end of the one.
fn request_bytes(case: &Case) -> Vec<u8> {
    let mut bytes = case.method.clone().into_bytes();
    bytes.push(b' ');
    bytes.extend(&case.uri);
    if !case.version.is_empty() {
        bytes.push(b' ');
        bytes.extend(case.version.as_bytes());
    }
    bytes.extend(b"\r\n");
    for (name, value) in &case.headers {
        bytes.extend([&name[..], b": ", value, b"\r\n"].concat());
    }
    if !case.headers.iter().any(|(name, _)| name.trim_ascii().eq_ignore_ascii_case(b"host")) {
        bytes.extend(b"Host: site.example\r\n");
    }
    bytes.extend(b"\r\n");
    bytes.extend(content(case));
    bytes
}

fn content(case: &Case) -> Vec<u8> {
    /// More than this no case needs; a length beyond it is there to be refused.
    const LENGTH_MAX: usize = 8 << 20;
    const HIDDEN: &[u8] = b"0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: hidden\r\n\r\n";
    let mentions = |what: &[u8], (name, _): &(Vec<u8>, Vec<u8>)| {
        find(&name.to_ascii_lowercase(), what).is_some()
    };
    let length = case.headers.iter().find(|header| mentions(b"length", header));
    let length = length.map(|(_, value)| {
        let digits: String = value.iter().map(|b| char::from(*b)).collect();
        let digits = digits.trim().chars().take_while(char::is_ascii_digit).collect::<String>();
        digits.parse::<usize>().unwrap_or(0).min(LENGTH_MAX)
    });
    let is_chunked = case.headers.iter().any(|header| mentions(b"encoding", header));
    match (length, is_chunked) {
        (None, false) => Vec::new(),
        (None, true) => b"5\r\nhello\r\n0\r\n\r\n".to_vec(),
        (Some(length), _) => {
            let mut content = HIDDEN.to_vec();
            content.resize(length, b'.');
            // Whole chunks for a server that goes by the other framing.
            if is_chunked && length < 5 { HIDDEN[..5].to_vec() } else { content }
        }
    }
}
