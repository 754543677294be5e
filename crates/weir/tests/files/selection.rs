//! What of a file a request gets: conditions (RFC 9110 section 13) and ranges (section 14), on a
//! miss, on a hit, without the cache, and of a file too large for it.

use super::Site;
use crate::common::client::Response;

const ROUTES: &str = r#"
    route "/*" { files "www"; }
    route "/uncached/*" { files "www" strip-prefix=#true; cache "off"; }
"#;

/// Bytes that differ from place to place, so that a range cut at the wrong place shows.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 251 + i % 251) as u8).collect()
}

fn modified(site: &Site, name: &str, unix_s: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
    std::fs::File::open(site.path(name)).unwrap().set_modified(time).unwrap();
}

#[test]
fn conditions() {
    let site = Site::start(ROUTES, &[("a.txt", b"hello")]);
    modified(&site, "a.txt", 1_700_000_000);
    let exact = "Tue, 14 Nov 2023 22:13:20 GMT";
    let (earlier, later) = ("Tue, 14 Nov 2023 22:13:19 GMT", "Wed, 15 Nov 2023 22:13:20 GMT");
    let etag = site.get("/a.txt").header("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    let list = format!("\"x\", {etag}");
    let check = |fields: &[(&str, &str)], expected: u16| {
        for method in ["GET", "HEAD"] {
            for target in ["/a.txt", "/a.txt", "/uncached/a.txt"] {
                let response = site.ask(method, target, fields);
                let context = format!("{method} {target} {fields:?}");
                assert_eq!(response.status, expected, "{context}");
                match expected {
                    200 => assert_eq!(response.header("content-length"), Some("5"), "{context}"),
                    304 => {
                        assert_eq!(response.header("etag"), Some(&*etag), "{context}");
                        assert_eq!(response.header("content-type"), None, "{context}");
                        assert_eq!(response.header("content-length"), None, "{context}");
                        assert!(response.header("date").is_some(), "{context}");
                    }
                    _ => assert!(response.body.is_empty(), "{context}"),
                }
            }
        }
    };
    check(&[("If-None-Match", &etag)], 304);
    check(&[("If-None-Match", &weak)], 304);
    check(&[("If-None-Match", &list)], 304);
    check(&[("If-None-Match", "\"x\""), ("If-None-Match", &etag)], 304);
    check(&[("If-None-Match", "*")], 304);
    check(&[("If-None-Match", "\"x\"")], 200);
    check(&[("If-Modified-Since", exact)], 304);
    check(&[("If-Modified-Since", later)], 304);
    check(&[("If-Modified-Since", earlier)], 200);
    check(&[("If-Modified-Since", "Tuesday, 14-Nov-23 22:13:20 GMT")], 304);
    check(&[("If-Modified-Since", "Tue Nov 14 22:13:20 2023")], 304);
    check(&[("If-Modified-Since", "yesterday")], 200);
    check(&[("If-Match", &etag)], 200);
    check(&[("If-Match", &list)], 200);
    check(&[("If-Match", "*")], 200);
    check(&[("If-Match", &weak)], 412);
    check(&[("If-Match", "\"x\"")], 412);
    check(&[("If-Unmodified-Since", exact)], 200);
    check(&[("If-Unmodified-Since", earlier)], 412);
    check(&[("If-Unmodified-Since", "never")], 200);
    // Tags go before dates, and what would fail goes before what would not send (section 13.2.2).
    check(&[("If-None-Match", "\"x\""), ("If-Modified-Since", exact)], 200);
    check(&[("If-None-Match", &etag), ("If-Modified-Since", earlier)], 304);
    check(&[("If-Match", &etag), ("If-Unmodified-Since", earlier)], 200);
    check(&[("If-Match", "\"x\""), ("If-None-Match", &etag)], 412);
    check(&[("If-Match", &etag), ("If-None-Match", &etag)], 304);
    check(&[("Range", "bytes=0-0"), ("If-None-Match", &etag)], 304);
    check(&[("Range", "bytes=0-0"), ("If-Match", "\"x\"")], 412);
}

#[test]
fn single_ranges() {
    let content = pattern(5000);
    let large = pattern(700_000);
    let site = Site::start(ROUTES, &[("a", &content), ("large", &large), ("empty", b"")]);
    let check = |target: &str, content: &[u8], range: &str, expected: Option<(usize, usize)>| {
        let response = site.ask("GET", target, &[("Range", range)]);
        let length = content.len();
        let context = format!("{target} {range}");
        match expected {
            Some((first, last)) => {
                assert_eq!(response.status, 206, "{context}");
                let content_range = format!("bytes {first}-{last}/{length}");
                assert_eq!(response.header("content-range"), Some(&*content_range), "{context}");
                assert!(response.body == content[first..=last], "{context}: wrong bytes");
                let type_ = response.header("content-type");
                assert_eq!(type_, Some("application/octet-stream"), "{context}");
                assert!(response.header("etag").is_some(), "{context}");
            }
            None => {
                assert_eq!(response.status, 416, "{context}");
                let content_range = format!("bytes */{length}");
                assert_eq!(response.header("content-range"), Some(&*content_range), "{context}");
                assert!(response.body.is_empty(), "{context}");
            }
        }
    };
    // The second turn is a hit; the third file does not fit into the cache at all.
    for (target, content) in
        [("/a", &content), ("/a", &content), ("/uncached/a", &content), ("/large", &large)]
    {
        let end = content.len() - 1;
        check(target, content, "bytes=0-0", Some((0, 0)));
        check(target, content, "bytes=0-4095", Some((0, 4095)));
        check(target, content, "bytes=4095-4097", Some((4095, 4097)));
        check(target, content, "bytes=1-", Some((1, end)));
        check(target, content, "bytes=-1", Some((end, end)));
        check(target, content, "bytes=-999999999", Some((0, end)));
        check(target, content, "BYTES=7-7", Some((7, 7)));
        check(target, content, &format!("bytes={end}-"), Some((end, end)));
        check(target, content, "bytes=10-99999999999999999999999", Some((10, end)));
        check(target, content, &format!("bytes={}-", end + 1), None);
        check(target, content, "bytes=-0", None);
        check(target, content, "bytes=99999999999999999999999-", None);
    }
    check("/empty", b"", "bytes=0-", None);
    check("/empty", b"", "bytes=-1", None);
    for ignored in ["bytes=5-4", "bytes=", "bytes=a-b", "bytes", "lines=1-2", "bytes=1-2,x", "1-2"]
    {
        for target in ["/a", "/uncached/a"] {
            let response = site.ask("GET", target, &[("Range", ignored)]);
            assert_eq!((response.status, response.body.len()), (200, 5000), "{ignored}");
        }
    }
    let head = site.ask("HEAD", "/a", &[("Range", "bytes=0-0")]);
    assert_eq!((head.status, head.header("content-length")), (200, Some("5000")));
}

#[test]
fn several_ranges_are_multipart_to_the_byte() {
    let content = pattern(5000);
    let site = Site::start(ROUTES, &[("a.txt", &content)]);
    let check = |range: &str, spans: &[(usize, usize)]| {
        for turn in 0..2 {
            let response = site.ask("GET", "/a.txt", &[("Range", range)]);
            assert_eq!(response.status, 206, "{range} {turn}");
            assert_eq!(response.header("content-range"), None, "{range}");
            let expected = multipart(&response, &content, spans);
            assert!(
                response.body == expected,
                "{range}:\n{}\nexpected\n{}",
                response.body.escape_ascii(),
                expected.escape_ascii()
            );
        }
    };
    check("bytes=0-0,1000-1001", &[(0, 0), (1000, 1001)]);
    check("bytes=4000-4001, 10-12", &[(4000, 4001), (10, 12)]);
    check("bytes=0-9,-5", &[(0, 9), (4995, 4999)]);
    check("bytes=0-4,2000-,9000-9001", &[(0, 4), (2000, 4999)]);
    // Ranges that overlap or touch are one (section 15.3.7.2).
    let response = site.ask("GET", "/a.txt", &[("Range", "bytes=0-9,5-20,21-30")]);
    assert_eq!(response.header("content-range"), Some("bytes 0-30/5000"));
    assert_eq!(response.body, &content[..31]);
    let none = site.ask("GET", "/a.txt", &[("Range", "bytes=5000-5001,6000-")]);
    assert_eq!((none.status, none.header("content-range")), (416, Some("bytes */5000")));
    // Requests for a great many ranges are an attack or a mistake; all of it is the answer.
    let many: Vec<String> = (0..100).map(|i| format!("{0}-{0}", i * 50)).collect();
    let response = site.ask("GET", "/a.txt", &[("Range", &format!("bytes={}", many.join(",")))]);
    assert_eq!((response.status, response.body.len()), (200, 5000));
}

/// The one body that RFC 9110 section 14.6 allows, with the boundary that the response names.
fn multipart(response: &Response, content: &[u8], spans: &[(usize, usize)]) -> Vec<u8> {
    let content_type = response.header("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=");
    let boundary = boundary.expect(content_type).trim_matches('"');
    let mut body = Vec::new();
    for (i, &(first, last)) in spans.iter().enumerate() {
        let start = if i == 0 { "" } else { "\r\n" };
        let length = content.len();
        let head = format!(
            "{start}--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes {first}-{last}/{length}\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&content[first..=last]);
    }
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

#[test]
fn if_range_decides_between_the_part_and_all() {
    let site = Site::start(ROUTES, &[("a.txt", b"hello")]);
    modified(&site, "a.txt", 1_700_000_000);
    let etag = site.get("/a.txt").header("etag").unwrap().to_owned();
    let check = |value: &str, expected: u16| {
        for target in ["/a.txt", "/uncached/a.txt"] {
            let fields = [("Range", "bytes=1-2"), ("If-Range", value)];
            let response = site.ask("GET", target, &fields);
            assert_eq!(response.status, expected, "{target} {value}");
            let body: &[u8] = if expected == 206 { b"el" } else { b"hello" };
            assert_eq!(response.body, body, "{target} {value}");
        }
    };
    check(&etag, 206);
    check(&format!("W/{etag}"), 200);
    check("\"other\"", 200);
    check("Tue, 14 Nov 2023 22:13:20 GMT", 206);
    check("Tue, 14 Nov 2023 22:13:21 GMT", 200);
    check("Tue, 14 Nov 2023 22:13:19 GMT", 200);
    // A range that cannot be had does not matter when all is sent anyway.
    let fields = [("Range", "bytes=9-"), ("If-Range", "\"other\"")];
    assert_eq!(site.ask("GET", "/a.txt", &fields).status, 200);
}

#[test]
fn a_file_larger_than_the_cache_takes_is_streamed() {
    let large = pattern(3_000_000);
    let site = Site::start(ROUTES, &[("large", &large)]);
    for _ in 0..2 {
        let response = site.get("/large");
        assert_eq!(response.header("content-length"), Some("3000000"));
        assert!(response.body == large, "wrong bytes");
        assert_ne!(response.header("cache-status"), Some("weir; hit"));
    }
    let head = site.ask("HEAD", "/large", &[]);
    assert_eq!((head.status, head.header("content-length")), (200, Some("3000000")));
    let part = site.ask("GET", "/large", &[("Range", "bytes=1000000-2000000")]);
    assert!(part.status == 206 && part.body == large[1_000_000..=2_000_000]);
    let etag = part.header("etag").unwrap();
    assert_eq!(site.ask("GET", "/large", &[("If-None-Match", etag)]).status, 304);
}
