//! What must hold for any bytes from outside, one function a parser; each panics where it does not.
//! cargo-fuzz calls them with inputs it finds, the test `fuzz_corpus` of crate `weir` with the
//! committed corpus and mutations of it.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, RANGE};
use http::{Method, Uri, Version};
use weir_adapt::adapters::compress::Coding as Content;
use weir_adapt::adapters::html::{Action, Html, Rewriting, Rule, Strip};
use weir_adapt::adapters::{AdaptError, Adapted, decode as decoding, html as pages};
use weir_adapt::{Limits, Outcome as End};
use weir_http::cache_control::{DELTA_SECONDS_MAX, RequestDirectives, ResponseDirectives, Scope};
use weir_http::conditional::{Outcome, Validators};
use weir_http::negotiate::Coding;
use weir_http::range::{RANGES_MAX, Ranges};
use weir_http::{Malformed, conditional, etag, head as heads, host as hosts, negotiate};
use weir_http::{path as paths, range as ranges, request as requests};
use weir_icap::read_answer;
use weir_image::{Converted, Fit, Format, Size, Wish};
use weir_net::proxy_protocol::{self as proxy, Parsed, V1_SIZE_MAX, V2_SIZE_MAX};

/// A function that takes any bytes and panics where a parser breaks its promises.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its folder in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("accept_encoding", accept_encoding),
    ("cache_control", cache_control),
    ("conditional", conditional),
    ("config", config),
    ("decode", decode),
    ("head", head),
    ("helper_order", helper_order),
    ("helper_report", helper_report),
    ("host", host),
    ("html", html),
    ("icap", icap),
    ("image", image),
    ("path", path),
    ("proxy_protocol", proxy_protocol),
    ("range", range),
    ("request", request),
    ("users", users),
];

/// The choice is one that was offered, and offering it alone gives it again.
pub fn accept_encoding(data: &[u8]) {
    let mut request = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n') {
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        request.append(ACCEPT_ENCODING, value);
    }
    let all = Coding::PREFERENCE;
    for offered in [&all[..], &all[..1], &all[1..3], &all[3..], &[]] {
        let Some(chosen) = negotiate::accept_encoding(&request, offered) else { continue };
        assert!(offered.contains(&chosen), "{chosen:?} was not offered");
        assert_eq!(negotiate::accept_encoding(&request, &[chosen]), Some(chosen));
    }
}

/// Numbers are bounded, and what forbids storing cannot be hidden behind other directives.
pub fn cache_control(data: &[u8]) {
    let request = RequestDirectives::parse(data);
    let response = ResponseDirectives::parse(data);
    let targeted = ResponseDirectives::parse_targeted(data).unwrap_or_default();
    let seconds_max = Duration::from_secs(DELTA_SECONDS_MAX);
    let times = [request.max_age, request.min_fresh, request.stale_if_error].into_iter().chain(
        [&response, &targeted]
            .into_iter()
            .flat_map(|d| [d.max_age, d.s_maxage, d.stale_while_revalidate, d.stale_if_error]),
    );
    assert!(times.flatten().all(|time| time <= seconds_max));
    assert!(request.max_stale.is_none_or(|t| t <= seconds_max || t == Duration::MAX));

    let first = ResponseDirectives::parse(&[b"no-store, private, max-age=7, ", data].concat());
    assert!(first.no_store && first.private == Some(Scope::Response));
    assert_eq!(first.max_age, Some(Duration::from_secs(7)));
    assert!(RequestDirectives::parse(&[b"no-store,", data].concat()).no_store);
}

/// An entity tag that was parsed matches itself; nothing matches and fails to match.
pub fn conditional(data: &[u8]) {
    for tag in etag::list(data) {
        assert!(tag.weak_eq(&tag));
        assert_eq!(tag.strong_eq(&tag), !tag.weak);
    }
    let Some((method, head)) = split(data, b'\n') else { return };
    let Ok(method) = Method::from_bytes(method) else { return };
    let (request, response) = head_pair(head);
    let selected = Validators::of(&response);
    let outcome = conditional::evaluate(&method, &request, &selected);
    if !conditional::is_conditional(&request) {
        assert_eq!(outcome, Outcome::Proceed);
    }
    if outcome == Outcome::NotModified {
        assert!(matches!(method, Method::GET | Method::HEAD), "304 to {method}");
    }
}

/// An error points into the file and can be printed; what is accepted prints to the same.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match weir_config::parse("/fuzz/site.kdl", text) {
        Ok(config) => {
            let printed = weir_config::print(&config);
            let again = weir_config::parse("/fuzz/site.kdl", &printed);
            assert_eq!(again.as_ref(), Ok(&config), "{printed}");
        }
        Err(errors) => {
            assert!(errors.len() > 0);
            for error in &errors {
                let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
                assert!(error.line <= text.lines().count().max(1) + 1, "{error}");
                assert!(error.column <= line.chars().count() + 1, "{error}");
                let shown = error.to_string();
                assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            }
        }
    }
}

/// What decoding gives is never more than it may be, whatever is decoded. The first byte says which
/// codings.
pub fn decode(data: &[u8]) {
    let Some((&kinds, coded)) = data.split_first() else { return };
    let kind = |number| match number % 3 {
        0 => Content::Gzip,
        1 => Content::Brotli,
        _ => Content::Zstd,
    };
    let codings = [kind(kinds), kind(kinds >> 4)];
    let codings = if kinds & 8 == 0 { &codings[..1] } else { &codings };
    let limits = Limits { output_bytes: 4 << 20, time: Duration::from_secs(1) };
    match decoding::decode(coded, codings, &limits) {
        Ok(decoded) => assert!(decoded.len() as u64 <= limits.output_bytes),
        Err(AdaptError::TooLarge { limit_bytes }) => assert_eq!(limit_bytes, limits.output_bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Whatever a helper is told, it ends or reports what the server takes; an order is no reason to
/// panic. The arena has a text of 100 KB.
pub fn helper_order(data: &[u8]) {
    let stored = b"<p>Water runs down to the weir.</p>\n".repeat(2800);
    let limits = Limits { output_bytes: 1 << 20, time: Duration::from_secs(1) };
    let report = match weir_adapt::helper::follow_packet(data, &stored, &limits, &PICTURES) {
        Ok(report) => report,
        Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::InvalidData),
    };
    let judged = weir_adapt::judge_packet(&report, &limits).expect("a report");
    for end in judged {
        match end {
            Ok((len, _)) => assert!(len <= limits.output_bytes),
            Err(Some(End::Failed(what))) => assert_ne!(what, "a panic"),
            Err(_) => {}
        }
    }
}

/// What a helper says decides nothing but what becomes of its job, and is fit to be shown.
pub fn helper_report(data: &[u8]) {
    let limits = Limits { output_bytes: 1 << 20, time: Duration::from_secs(1) };
    let is_plain =
        |text: &str| text.len() <= 256 && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let judged = match weir_adapt::judge_packet(data, &limits) {
        Ok(judged) => judged,
        Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::InvalidData),
    };
    for end in judged {
        match end {
            Ok((len, detail)) => assert!(len <= limits.output_bytes && is_plain(&detail)),
            Err(None) => {}
            Err(Some(End::Made(made))) => panic!("nothing is made yet: {made:?}"),
            Err(Some(End::Original(why))) => assert!(is_plain(why)),
            Err(Some(End::Failed(what))) => assert!(is_plain(&what)),
            Err(Some(End::Died(what))) => panic!("it said so: {what}"),
        }
    }
}

/// A page in which nothing is to be changed is left alone, and one that is stripped becomes no
/// longer.
pub fn html(data: &[u8]) {
    let limits = Limits { output_bytes: 4 << 20, time: Duration::from_secs(1) };
    let rewrite = |page: &[u8], html: Html| {
        let rewriting = Rewriting { html: html.into(), ..Rewriting::default() };
        pages::rewrite(page, &rewriting, &[], &limits)
    };
    let rule = Rule { selector: "x-none[y-none]".to_owned(), action: Action::Remove };
    let nothing = Html { rules: vec![rule], ..Html::default() };
    if !contains(data, b"y-none") {
        assert!(!matches!(rewrite(data, nothing), Ok(Adapted::Made(..))), "changed by nothing");
    }
    let strip = || Html { strip: Strip { comments: true, space: true }, ..Html::default() };
    let Ok(Adapted::Made(once, _)) = rewrite(data, strip()) else { return };
    assert!(once.len() <= data.len(), "stripped, and longer");
}

fn contains(data: &[u8], word: &[u8]) -> bool {
    data.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// What pictures may cost here.
const PICTURES: weir_image::Limits = weir_image::Limits {
    source_bytes: 4096,
    pixels: 4096,
    side: 128,
    frames: 4,
    decoded_bytes: 1 << 20,
};

/// Whatever is made of a picture is smaller than it, is a picture of the size that is said, and no
/// larger than what was asked for; what is beyond limits is not touched.
pub fn image(data: &[u8]) {
    let limits = PICTURES;
    let size = Size { width: Some(16), height: Some(16), fit: Fit::Inside };
    let formats = vec![Format::WebP, Format::Png];
    let wish = Wish { formats, size, ..Wish::default() };
    let Ok(Converted::Made(made)) = weir_image::convert(data, &wish, &limits) else { return };
    assert!(made.bytes.len() < data.len() && made.frames <= limits.frames);
    assert!(made.width <= 16 && made.height <= 16);
    let read = weir_image::probe(&made.bytes, &limits);
    let Ok(Some(read)) = read else { panic!("what was made is no picture") };
    assert_eq!((read.width, read.height), (made.width, made.height));
}

/// What is accepted is in its one form, and that form means the same.
pub fn host(data: &[u8]) {
    let Ok(host) = hosts::parse(data) else { return };
    let text = host.to_string();
    assert_eq!(hosts::parse(text.as_bytes()).as_ref(), Ok(&host));
    assert!(!text.bytes().any(|byte| byte.is_ascii_uppercase() || byte <= b' ' || byte >= 0x7f));
    assert!(!host.name.is_empty() && !host.name.ends_with('.'));
}

/// An answer means the same however its bytes come, and is no longer than they are.
pub fn icap(data: &[u8]) {
    let read = |len| read_answer(data.chunks(len)).map_err(|error| error.to_string());
    let whole = read(data.len().max(1));
    if let Ok(Some(answer)) = &whole {
        assert!(answer.content.len() < data.len());
        assert!((100..1000).contains(&answer.response_status.unwrap_or(100)));
    }
    for len in [1, 7] {
        assert_eq!(read(len), whole, "in pieces of {len}");
    }
}

/// No way out of the root, and every form leads to the same place.
pub fn path(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let Ok(path) = paths::normalise(raw) else { return };
    for form in [path.as_str(), path.forward()] {
        assert!(form.starts_with('/') && form.is_ascii(), "{form:?}");
        assert!(!form.split('/').any(|segment| segment == "." || segment == ".."), "{form:?}");
        let again = paths::normalise(form).expect("a normal form is a path");
        assert_eq!(again.as_str(), path.as_str());
        assert_eq!(again.forward(), form);
    }
    for segment in path.segments() {
        match segment {
            Ok(name) => {
                assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0));
                assert!(*name != *b"." && *name != *b"..");
            }
            Err(error) => assert_eq!(error, Malformed::PathFile),
        }
    }
    if let Ok(relative) = path.relative("") {
        let parts = relative.split(|&byte| byte == b'/');
        assert!(relative.first() != Some(&b'/'));
        assert!(parts.into_iter().all(|part| part != b".." && part != b"."));
    }
}

/// An answer holds whatever arrives later, and never needs more than there may be.
pub fn proxy_protocol(data: &[u8]) {
    let whole = proxy::parse(data);
    match whole {
        Ok(Parsed::Incomplete { at_least }) => {
            assert!(at_least > data.len() && at_least <= V1_SIZE_MAX.max(V2_SIZE_MAX));
        }
        Ok(Parsed::Complete { consumed, addresses }) => {
            assert!(consumed <= data.len());
            assert_eq!(proxy::parse(&data[..consumed]), whole);
            assert!(matches!(proxy::parse(&data[..consumed - 1]), Ok(Parsed::Incomplete { .. })));
            let same_family = |source: SocketAddr, destination: SocketAddr| {
                source.is_ipv4() == destination.is_ipv4()
            };
            assert!(addresses.is_none_or(|a| same_family(a.source, a.destination)));
        }
        Err(error) => {
            assert_eq!(proxy::parse(&[data, b"\r\n"].concat()), Err(error));
        }
    }
}

/// Spans lie within the representation, do not meet, and are few. The input is a length in
/// decimal, a line break, a Range value.
pub fn range(data: &[u8]) {
    let Some((length, value)) = split(data, b'\n') else { return };
    let Some(length) = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok()) else {
        return;
    };
    let spans = match ranges::parse(value, length) {
        Ranges::Ignore | Ranges::Unsatisfiable => return,
        Ranges::Single(span) => vec![span],
        Ranges::Several(spans) => {
            assert!(spans.len() >= 2 && spans.len() <= RANGES_MAX);
            spans
        }
    };
    let mut sorted = spans.clone();
    sorted.sort();
    assert!(sorted.windows(2).all(|pair| pair[0].last < pair[1].first), "{spans:?}");
    for span in &spans {
        assert!(span.first <= span.last && span.last < length, "{span:?} of {length}");
        let text = span.content_range(length);
        assert_eq!(text, format!("bytes {}-{}/{length}", span.first, span.last));
        // Asking for exactly that gives exactly that.
        let exact = format!("bytes={}-{}", span.first, span.last);
        assert_eq!(ranges::parse(exact.as_bytes(), length), Ranges::Single(*span));
    }
}

/// A head that is taken ends where it says, and what is plain in it is what the full way makes of
/// it: valid, without content, for the same host.
pub fn head(data: &[u8]) {
    let mut room = heads::Room::new();
    let Some(head) = heads::parse(data, &mut room, data.len(), usize::MAX) else { return };
    assert!(data[..head.len].ends_with(b"\n"), "a head of {} bytes", head.len);
    let (Some(parts), Some(plain)) = (head.to_parts(), head.plain()) else { return };
    let valid = requests::validate(&parts.method, &parts.uri, parts.version, &parts.headers);
    let valid = valid.unwrap_or_else(|malformed| panic!("plain, but {malformed}"));
    assert_eq!(valid.framing, requests::Framing::Empty);
    assert_eq!(valid.host.as_ref(), Some(&plain.host));
    assert_eq!(valid.authority.as_bytes(), plain.authority);
    let notes = valid.notes;
    assert!(!notes.selects && !notes.directs && !notes.upgrades, "{notes:?}");
    assert_eq!(notes.closes, head.closes);
    assert_eq!(parts.uri.path_and_query().map(|target| target.as_str()), Some(plain.target));
}

/// A head that is accepted has one host, one way to find its end, and survives being read again
/// from what would be forwarded.
pub fn request(data: &[u8]) {
    let Some((method, uri, version, headers)) = request_head(data) else { return };
    let Ok(valid) = requests::validate(&method, &uri, version, &headers) else { return };
    let count = |name: HeaderName| headers.get_all(name).iter().count();
    let lengths = count(http::header::CONTENT_LENGTH);
    let codings = count(http::header::TRANSFER_ENCODING);
    assert!(lengths <= 1 && codings <= 1 && !(lengths == 1 && codings == 1));
    assert!(count(http::header::HOST) <= 1);
    match valid.framing {
        requests::Framing::Empty | requests::Framing::Stream => {
            assert_eq!((lengths, codings), (0, 0))
        }
        requests::Framing::Length(_) => assert_eq!(lengths, 1),
        requests::Framing::Chunked => assert_eq!(codings, 1),
    }
    match valid.host {
        Some(host) => assert_eq!(hosts::parse(valid.authority.as_bytes()), Ok(host)),
        None => assert_eq!(version, Version::HTTP_10),
    }
    if let Some(value) = headers.get(RANGE) {
        range(&[b"10000\n", value.as_bytes()].concat());
    }
    path(uri.path().as_bytes());
}

/// A file that is accepted means the same when its users are written down again; what is wrong with
/// another is said of one of its lines.
pub fn users(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match weir_server::passwords::users(text) {
        Ok(users) => {
            let lines = users.iter().map(|(name, hash)| format!("{name}:{hash}\n"));
            let again = weir_server::passwords::users(&lines.collect::<String>());
            assert!(again.is_ok_and(|again| again == users), "{users:?}");
        }
        Err(what) => {
            let number = what.strip_prefix("line ").and_then(|rest| rest.split_once(':'));
            let number = number.map_or(1, |(number, _)| number.parse().expect("a number"));
            assert!((1..=text.lines().count().max(1)).contains(&number), "{what}");
            assert!(!what.chars().any(char::is_control), "{what}");
        }
    }
}

/// Method, target, version and fields of an HTTP/1 head, split as leniently as the `http` types
/// allow; the parser in front of Weir is stricter.
fn request_head(data: &[u8]) -> Option<(Method, Uri, Version, HeaderMap)> {
    let (line, fields) = split(data, b'\n')?;
    let (method, rest) = split(line.trim_ascii_end(), b' ')?;
    let (target, version) = split(rest, b' ')?;
    let version = match version {
        b"HTTP/1.0" => Version::HTTP_10,
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/2.0" => Version::HTTP_2,
        b"HTTP/0.9" => Version::HTTP_09,
        _ => return None,
    };
    Some((
        Method::from_bytes(method).ok()?,
        Uri::try_from(target).ok()?,
        version,
        header_map(fields),
    ))
}

/// Two header sections with an empty line between them.
fn head_pair(text: &[u8]) -> (HeaderMap, HeaderMap) {
    let middle = text.windows(2).position(|pair| pair == b"\n\n").unwrap_or(text.len());
    let (request, response) = text.split_at(middle);
    (header_map(request), header_map(response))
}

/// The lines that are header fields.
fn header_map(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let Some((name, value)) = split(line, b':') else { continue };
        let name = HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.trim_ascii())) {
            headers.append(name, value);
        }
    }
    headers
}

fn split(data: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = data.iter().position(|&byte| byte == at)?;
    Some((&data[..index], &data[index + 1..]))
}
