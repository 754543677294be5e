//! Tests of [`super`]: what is accepted with which framing and host, and each reason to refuse.

use super::*;
use http::{HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).expect(name);
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect(value));
    }
    map
}

#[derive(Clone, Copy)]
struct Head<'a> {
    method: &'a str,
    target: &'a str,
    version: Version,
    fields: &'a [(&'a str, &'a str)],
}

impl Head<'_> {
    #[track_caller]
    fn refused(self, expect: Malformed) {
        assert_eq!(self.outcome().map(|(framing, ..)| framing), Err(expect));
    }

    #[track_caller]
    fn accepted(self, framing: Framing, host: &str, authority: &str) {
        assert_eq!(self.outcome(), Ok((framing, host.to_owned(), authority.to_owned())));
    }

    fn outcome(self) -> Result<(Framing, String, String), Malformed> {
        let method = Method::from_bytes(self.method.as_bytes()).unwrap();
        let uri: Uri = self.target.parse().expect(self.target);
        let headers = headers(self.fields);
        let valid = validate(&method, &uri, self.version, &headers)?;
        let host = valid.host.map(|host| host.to_string()).unwrap_or_default();
        Ok((valid.framing, host, valid.authority.to_owned()))
    }
}

const H1: Version = Version::HTTP_11;
const H2: Version = Version::HTTP_2;

fn get<'a>(target: &'a str, version: Version, fields: &'a [(&'a str, &'a str)]) -> Head<'a> {
    Head { method: "GET", target, version, fields }
}

fn post<'a>(fields: &'a [(&'a str, &'a str)]) -> Head<'a> {
    Head { method: "POST", target: "/foo/bar", version: H1, fields }
}

#[test]
fn hosts() {
    use Framing::{Empty, Stream};
    get("/a", H1, &[("host", "a.example")]).accepted(Empty, "a.example", "a.example");
    get("/a", H1, &[("host", "A.example.:81")]).accepted(Empty, "a.example:81", "A.example.:81");
    get("/a", Version::HTTP_10, &[]).accepted(Empty, "", "");
    get("http://b/x", H1, &[("host", "a")]).accepted(Empty, "b", "b");
    get("http://b/x", H1, &[("host", "")]).accepted(Empty, "b", "b");
    get("http://b?q", H1, &[("host", "b")]).accepted(Empty, "b", "b");
    get("https://b/x", H2, &[]).accepted(Stream, "b", "b");
    get("https://b/x", H2, &[("host", "B")]).accepted(Stream, "b", "b");
    get("/x", H2, &[("host", "b")]).accepted(Stream, "b", "b");

    get("/a", H1, &[]).refused(Malformed::HostMissing);
    get("/a", H2, &[]).refused(Malformed::HostMissing);
    get("http://b/x", H1, &[]).refused(Malformed::HostMissing);
    get("/a", H1, &[("host", "")]).refused(Malformed::Host);
    get("/a", H1, &[("host", "a"), ("host", "a")]).refused(Malformed::HostRepeated);
    get("/a", H1, &[("host", "a, b")]).refused(Malformed::Host);
    get("/a", H1, &[("host", "user@a")]).refused(Malformed::Host);
    get("/a", Version::HTTP_10, &[("host", "a/b")]).refused(Malformed::Host);
    get("http://user@b/x", H1, &[("host", "b")]).refused(Malformed::Host);
    get("http://b/x", H1, &[("host", "a b")]).refused(Malformed::Host);
    get("https://b/x", H2, &[("host", "a")]).refused(Malformed::HostDiffers);
}

#[test]
fn targets() {
    let host = &[("host", "a")];
    let options = |target| Head { method: "OPTIONS", ..get(target, H1, host) };
    options("*").accepted(Framing::Empty, "a", "a");
    options("/x").accepted(Framing::Empty, "a", "a");
    get("*", H1, host).refused(Malformed::Target);
    get("a:80", H1, host).refused(Malformed::Target);
    get("ftp://a/x", H1, host).refused(Malformed::Scheme);
    let connect = Head { method: "CONNECT", ..get("a:80", H1, host) };
    connect.refused(Malformed::Connect);
    get("/x", Version::HTTP_3, host).refused(Malformed::Version);
    get("/x", Version::HTTP_09, host).refused(Malformed::Version);
    // Unknown methods are the origin's affair.
    Head { method: "BREW", ..get("/x", H1, host) }.accepted(Framing::Empty, "a", "a");
}

#[test]
fn framing_accepted() {
    let a = ("host", "a");
    post(&[a]).accepted(Framing::Empty, "a", "a");
    post(&[a, ("content-length", "0012")]).accepted(Framing::Length(12), "a", "a");
    post(&[a, ("content-length", "18446744073709551615")]).accepted(
        Framing::Length(u64::MAX),
        "a",
        "a",
    );
    post(&[a, ("transfer-encoding", "ChUnKeD")]).accepted(Framing::Chunked, "a", "a");
    Head { version: H2, ..post(&[a, ("content-length", "3")]) }.accepted(
        Framing::Length(3),
        "a",
        "a",
    );
}

#[test]
fn framing_refused() {
    let a = ("host", "a");
    for value in [
        "1000,1000",
        "1000 1000",
        "1000.1000",
        "18446744073709551616",
        "+1",
        "-1",
        "0x1",
        "$9000",
        "",
        "1000\u{a0}",
        "chunked",
    ] {
        post(&[a, ("content-length", value)]).refused(Malformed::ContentLength);
    }
    for value in [
        "xchunked",
        "chunk",
        "chunked,chunked",
        "gzip",
        "identity",
        "",
        "chunked;a=b",
        "\u{a0}chunked",
        "chunked, identity",
        "gz ip, chunked",
        "\"chunked\"",
    ] {
        post(&[a, ("transfer-encoding", value)]).refused(Malformed::TransferEncoding);
    }
    post(&[a, ("transfer-encoding", "gzip, chunked")]).refused(Malformed::TransferCoding);
    let length = ("content-length", "5");
    let chunked = ("transfer-encoding", "chunked");
    post(&[a, length, length]).refused(Malformed::ContentLengthRepeated);
    post(&[a, length, chunked]).refused(Malformed::BothLengths);
    post(&[a, chunked, length]).refused(Malformed::BothLengths);
    post(&[a, ("transfer-encoding", "gzip"), chunked]).refused(Malformed::TransferCoding);
    post(&[a, chunked, ("transfer-encoding", "cow")]).refused(Malformed::TransferEncoding);
    for version in [Version::HTTP_10, H2] {
        Head { version, ..post(&[a, chunked]) }.refused(Malformed::TransferEncodingVersion);
    }
}

#[test]
fn names_that_imitate_framing() {
    let a = ("host", "a");
    for name in [
        "Transfer_Encoding",
        "Content_Length",
        "Transfer---Encoding",
        "Transfer___Encoding",
        "content.length",
        "'content-length",
        "transfer-encoding~",
        "_host",
        "ho-st",
        "contentlength",
    ] {
        post(&[a, (name, "1")]).refused(Malformed::SuspiciousName);
    }
    for name in [
        "My_Custom_Header",
        "My.Custom.Header",
        "x-host",
        "hosts",
        "content-length-2",
        "content-type",
        "content-len",
        "my-custom-header.!#$%&'*+^_`|~0123456789",
        "te",
        "h",
        "c",
    ] {
        post(&[a, (name, "1")]).accepted(Framing::Empty, "a", "a");
    }
}

#[test]
fn content_without_meaning() {
    for (framing, expect) in [
        (Framing::Length(1), true),
        (Framing::Chunked, true),
        (Framing::Length(0), false),
        (Framing::Empty, false),
        (Framing::Stream, false),
    ] {
        assert_eq!(framing.is_undefined_for(&Method::GET), expect, "{framing:?}");
        assert!(!framing.is_undefined_for(&Method::POST));
    }
}

/// What [`validate`] leaves to the types it is given. If a new version of `http` lets one of these
/// through, this fails and the check belongs here.
#[test]
fn types_hold_no_control_characters() {
    for byte in (0..=0x1f).chain([0x7f]).filter(|&byte| byte != b'\t') {
        assert!(HeaderValue::from_bytes(&[b'a', byte]).is_err(), "value {byte:#x}");
        assert!(HeaderName::from_bytes(&[b'a', byte]).is_err(), "name {byte:#x}");
        assert!(Method::from_bytes(&[b'a', byte]).is_err(), "method {byte:#x}");
        assert!(Uri::try_from(&[b'/', byte][..]).is_err(), "target {byte:#x}");
    }
    for byte in [b' ', b'\t', b':', b'(', 0x80, 0xff] {
        assert!(HeaderName::from_bytes(&[b'a', byte]).is_err(), "name {byte:#x}");
        assert!(Method::from_bytes(&[b'a', byte]).is_err(), "method {byte:#x}");
    }
    let uri: Uri = "/a?b#c".parse().unwrap();
    assert_eq!(uri.to_string(), "/a?b", "fragments never reach an origin");
}

#[test]
fn every_refusal_has_a_status() {
    assert_eq!(Malformed::Host.status(), StatusCode::BAD_REQUEST);
    assert_eq!(Malformed::TransferCoding.status(), StatusCode::NOT_IMPLEMENTED);
    assert_eq!(Malformed::Version.status(), StatusCode::HTTP_VERSION_NOT_SUPPORTED);
}

proptest! {
    #[test]
    fn what_is_accepted_is_unambiguous(
        host in "[a-c:,@]{0,3}",
        length in proptest::option::of("[0-9+, ]{0,4}"),
        coding in proptest::option::of("(chunked|gzip|,| ){0,3}"),
    ) {
        let mut fields = vec![("host", host.as_str())];
        fields.extend(length.iter().map(|value| ("content-length", value.as_str())));
        fields.extend(coding.iter().map(|value| ("transfer-encoding", value.as_str())));
        if let Ok((framing, ..)) = post(&fields).outcome() {
            let expect = match (&length, &coding) {
                (None, None) => Framing::Empty,
                (Some(length), None) => Framing::Length(length.parse().unwrap()),
                (None, Some(coding)) => {
                    prop_assert_eq!(coding, "chunked");
                    Framing::Chunked
                }
                (Some(_), Some(_)) => return Err(TestCaseError::fail("both lengths")),
            };
            prop_assert_eq!(framing, expect);
        }
    }
}

#[test]
fn tunnels() {
    let check = |target: &str, fields: &[(&str, &str)], expected: Result<String, Malformed>| {
        let headers = headers(fields);
        let uri: Uri = target.parse().unwrap();
        for version in [Version::HTTP_10, H1] {
            let host = validate_connect(&uri, version, &headers).map(|host| host.to_string());
            assert_eq!(host, expected, "{version:?} {target} {fields:?}");
        }
    };
    let a = ("host", "a:443");
    check("a:443", &[a], Ok("a:443".to_owned()));
    // What a client says beside its target counts for nothing, and must be well-formed.
    check("A.example.:8443", &[a], Ok("a.example:8443".to_owned()));
    check("[::1]:443", &[], Ok("[::1]:443".to_owned()));
    check("a:443", &[("host", "a b")], Err(Malformed::Host));
    check("a:443", &[a, a], Err(Malformed::HostRepeated));
    check("a", &[a], Err(Malformed::Target));
    check("/a:443", &[a], Err(Malformed::Target));
    check("http://a:443/", &[a], Err(Malformed::Target));
    check("user@a:443", &[a], Err(Malformed::Host));
    check("a:443", &[a, ("content-length", "0")], Err(Malformed::ConnectContent));
    let headers = headers(&[a, ("transfer-encoding", "chunked")]);
    let uri: Uri = "a:443".parse().unwrap();
    let refused = validate_connect(&uri, H1, &headers).map(|host| host.to_string());
    assert_eq!(refused, Err(Malformed::ConnectContent));
}
