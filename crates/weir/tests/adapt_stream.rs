//! Compression of what is not stored, while it comes.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use common::client::{Client, Response, ask};
use common::origin::{Origin, Received, Step, answer, cue};
use common::server::Weir;
use common::{PATIENCE, wait_for};
use rustix::process::Signal;

const DYNAMIC: &str = "Content-Type: text/html\r\nCache-Control: no-store\r\nETag: \"v1\"\r\n";

fn page() -> String {
    (0..2_000).map(|line| format!("<p>Line {line} of a page.</p>\n")).collect()
}

fn front(
    line: &str,
    script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(script);
    let site = format!("route \"/*\" {{ proxy \"{}\"; {line}; }}", origin.url());
    let (weir, address) = Weir::front("", &site);
    (origin, weir, address)
}

fn dynamic(fields: &str) -> Vec<Step> {
    answer("200 OK", fields, page().as_bytes())
}

/// Decodes as much as there is.
fn decoded(coding: Option<&str>, body: &[u8]) -> String {
    let mut decoder: Box<dyn Read + '_> = match coding {
        Some("br") => Box::new(brotli::Decompressor::new(body, 4096)),
        Some("gzip") => Box::new(flate2::read::GzDecoder::new(body)),
        Some("zstd") => Box::new(zstd::Decoder::new(body).unwrap()),
        None => Box::new(body),
        Some(other) => panic!("{other}"),
    };
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = decoder.read(&mut piece) {
        text.extend_from_slice(&piece[..len]);
    }
    String::from_utf8(text).unwrap()
}

fn text(response: &Response) -> String {
    decoded(response.header("content-encoding"), &response.body)
}

#[test]
fn what_is_not_stored_is_coded_as_the_client_likes() {
    let (_origin, _weir, address) = front("compress", |_| dynamic(DYNAMIC));
    for (accept, coding, word) in [
        ("br, gzip, zstd", Some("br"), "br;q=4;stream"),
        ("gzip, br;q=0.5", Some("gzip"), "gzip;q=4;stream"),
        ("zstd", Some("zstd"), "zstd;q=3;stream"),
        ("gzip;q=0, *;q=0.1", Some("br"), "br;q=4;stream"),
        ("identity, gzip;q=0", None, "original;reason=not-accepted"),
        ("", None, "original;reason=not-accepted"),
    ] {
        let response = ask(address, "GET", "/", &[("accept-encoding", accept)]);
        assert_eq!(response.header("content-encoding"), coding, "{accept}");
        assert_eq!(response.header("weir-adapt"), Some(word), "{accept}");
        assert_eq!(response.header("vary"), Some("Accept-Encoding"), "{accept}");
        assert_eq!(text(&response), page(), "{accept}");
        if coding.is_some() {
            assert!(response.body.len() < page().len() / 5, "{accept}: {}", response.body.len());
            assert_eq!(response.header("etag"), Some("W/\"v1\""), "{accept}");
        }
        // HEAD says the same, but for the length of what nobody has made for it.
        let head = ask(address, "HEAD", "/", &[("accept-encoding", accept)]);
        for name in ["content-encoding", "etag", "vary", "weir-adapt"] {
            assert_eq!(head.header(name), response.header(name), "{accept} {name}");
        }
        assert_eq!(head.header("content-length").is_some(), coding.is_none(), "{accept}");
    }
}

#[test]
fn what_must_not_be_coded_is_not() {
    let (_origin, _weir, address) = front("compress", |received| {
        let line = received.line();
        match line.split(' ').nth(1).unwrap_or_default() {
            "/no-transform" => {
                dynamic("Content-Type: text/html\r\nCache-Control: no-store, no-transform\r\n")
            }
            "/coded" => dynamic(
                "Content-Type: text/html\r\nCache-Control: no-store\r\nContent-Encoding: gzip\r\n",
            ),
            "/picture" => dynamic("Content-Type: image/jpeg\r\nCache-Control: no-store\r\n"),
            "/small" => answer("200 OK", DYNAMIC, b"small"),
            "/part" => answer(
                "206 Partial Content",
                "Content-Type: text/html\r\nContent-Range: bytes 0-9/99\r\n",
                &page().into_bytes()[..10],
            ),
            _ => answer("404 Not Found", DYNAMIC, page().as_bytes()),
        }
    });
    for path in ["/no-transform", "/coded", "/picture", "/small", "/part", "/missing"] {
        let response = ask(address, "GET", path, &[("accept-encoding", "gzip")]);
        let coding = (path == "/coded").then_some("gzip");
        assert_eq!(response.header("content-encoding"), coding, "{path}");
        assert!(response.header("content-length").is_some(), "{path}");
        assert_eq!(response.header("weir-adapt"), None, "{path}");
    }
}

#[test]
fn what_tells_of_the_original_is_not_said_of_another() {
    // A tag that is none, and a word of somebody else.
    let fields = "Content-Type: text/html\r\nETag: v1\r\nWeir-Adapt: nothing\r\n";
    for cached in ["no-store", "max-age=600"] {
        let fields = format!("{fields}Cache-Control: {cached}\r\n");
        let (_origin, _weir, address) = front("compress \"gzip:4\"", move |_| dynamic(&fields));
        for number in 0..2 {
            let response = ask(address, "GET", "/", &[("accept-encoding", "gzip")]);
            let said = response.headers.iter().filter(|(name, _)| name == "weir-adapt");
            let said: Vec<&str> = said.map(|(_, value)| &**value).collect();
            let is_kept = cached != "no-store" && number == 1;
            assert_eq!(said, [if is_kept { "gzip;q=4" } else { "gzip;q=4;stream" }], "{cached}");
            assert_eq!(response.header("etag"), None, "{cached}");
            assert_eq!(text(&response), page());
        }
        assert_eq!(ask(address, "GET", "/", &[]).header("etag"), Some("v1"));
    }
}

#[test]
fn it_can_be_switched_off_and_limited() {
    let (_origin, _weir, address) = front("compress stream=#false", |_| dynamic(DYNAMIC));
    let response = ask(address, "GET", "/", &[("accept-encoding", "gzip")]);
    assert_eq!(response.header("content-encoding"), None);
    assert_eq!(response.header("weir-adapt"), Some("original;reason=not-stored"));

    let (_goes_on, cue) = cue();
    let origin = Origin::start(move |received| match received.line().contains("/slow") {
        true => vec![
            Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>".to_vec()),
            Step::Await(cue.clone()),
            Step::Close,
        ],
        false => dynamic(DYNAMIC),
    });
    let site = format!("route \"/*\" {{ proxy \"{}\"; compress; }}", origin.url());
    let (_weir, address) = Weir::front("adapt { streams 1; }", &site);
    let mut slow = Client::connect(address).unwrap();
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    slow.head().unwrap();
    let response = ask(address, "GET", "/", &[("accept-encoding", "gzip")]);
    assert_eq!(response.header("weir-adapt"), Some("original;reason=no-place"));
    // HEAD needs none.
    let head = ask(address, "HEAD", "/", &[("accept-encoding", "gzip")]);
    assert_eq!(head.header("weir-adapt"), Some("gzip;q=4;stream"));
    assert_eq!(text(&response), page());
    drop(slow);
    // The place is free again when the server has seen that he is gone.
    let free = common::wait_for(common::PATIENCE, || {
        let response = ask(address, "GET", "/", &[("accept-encoding", "gzip")]);
        (response.header("weir-adapt") == Some("gzip;q=4;stream")).then_some(())
    });
    assert!(free.is_some(), "a place is lost");
}

/// The next chunk of a response.
fn chunk(client: &mut Client) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.take(1).unwrap());
    }
    let len = String::from_utf8(line).unwrap();
    let len = usize::from_str_radix(len.trim(), 16).unwrap();
    let data = client.take(len + 2).unwrap();
    data[..len].to_vec()
}

#[test]
fn what_has_come_whole_is_sent_whole() {
    let (arrived, cue) = cue();
    let (_origin, _weir, address) = front("compress", move |received| {
        let content = &page().into_bytes()[..3_000];
        match received.line().contains("slow") {
            false => answer("200 OK", DYNAMIC, content),
            true => {
                let head = format!("HTTP/1.1 200 OK\r\n{DYNAMIC}Content-Length: 3000\r\n\r\n");
                vec![
                    Step::Send(head.into_bytes()),
                    Step::Await(cue.clone()),
                    Step::Send(content.to_vec()),
                ]
            }
        }
    });
    for coding in ["br", "gzip", "zstd"] {
        let response = ask(address, "GET", "/", &[("accept-encoding", coding)]);
        assert_eq!(text(&response).len(), 3_000, "{coding}");
        let length = response.body.len().to_string();
        assert_eq!(response.header("content-length"), Some(&*length), "{coding}");
        assert_eq!(response.header("transfer-encoding"), None, "{coding}");
        // A head does not wait for content that its origin has not sent yet.
        let mut client = Client::connect(address).unwrap();
        let request = format!("GET /slow HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        client.send(request.as_bytes()).unwrap();
        let head = String::from_utf8(client.head().unwrap()).unwrap();
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        arrived.send(()).unwrap();
        let mut body = Vec::new();
        while decoded(Some(coding), &body).len() < 3_000 {
            body.extend(chunk(&mut client));
        }
    }
}

#[test]
fn events_arrive_when_they_happen() {
    // Each waits for the one before to have arrived: what is held back would never come.
    let (arrived, cue) = cue();
    let (_origin, _weir, address) = front("compress", move |_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut steps = vec![Step::Send(head.as_bytes().to_vec())];
        for number in 0..4 {
            let event = format!("data: {number}\n\n");
            steps.push(Step::Send(format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()));
            steps.push(Step::Await(cue.clone()));
        }
        steps.push(Step::Send(b"0\r\n\r\n".to_vec()));
        steps
    });
    for coding in ["br", "gzip", "zstd"] {
        let mut client = Client::connect(address).unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        client.send(request.as_bytes()).unwrap();
        let head = String::from_utf8(client.head().unwrap()).unwrap();
        assert!(head.contains(&format!("content-encoding: {coding}\r\n")), "{head}");
        let mut body = Vec::new();
        for number in 0..4_u32 {
            let expect: String = (0..=number).map(|number| format!("data: {number}\n\n")).collect();
            while decoded(Some(coding), &body) != expect {
                body.extend(chunk(&mut client));
            }
            arrived.send(()).unwrap();
        }
    }
}

#[test]
fn an_origin_that_dies_leaves_no_whole_response() {
    let (_origin, _weir, address) = front("compress", |received| {
        let framing = match received.line().contains("chunked") {
            true => "Transfer-Encoding: chunked\r\n\r\n5000\r\n",
            false => "Content-Length: 50000\r\n\r\n",
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: no-store\r\n{framing}"
        );
        vec![
            Step::Send(head.into_bytes()),
            Step::Send(page().into_bytes()[..9_000].to_vec()),
            Step::Close,
        ]
    });
    for path in ["/chunked", "/length"] {
        let mut client = Client::connect(address).unwrap();
        let answered = client.ask("GET", path, &[("accept-encoding", "gzip")]);
        assert!(answered.is_err(), "{path}: half a page passed for a whole one");
    }
}

#[test]
fn what_a_client_has_is_confirmed() {
    let (origin, _weir, address) = front("compress", |received| {
        let known = received.values("if-none-match").join(", ");
        // As many applications do: letter by letter.
        match known.split(", ").any(|tag| tag == "\"v1\"") {
            true => vec![Step::Send(
                b"HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: no-store\r\n\r\n"
                    .to_vec(),
            )],
            false => dynamic(DYNAMIC),
        }
    });
    // The first request for it asks without conditions: it might be stored.
    assert_eq!(ask(address, "GET", "/", &[]).status, 200);
    let fields = [("accept-encoding", "gzip"), ("if-none-match", "W/\"v1\"")];
    let response = ask(address, "GET", "/", &fields);
    assert_eq!((response.status, response.header("etag")), (304, Some("W/\"v1\"")));
    assert_eq!(response.header("vary"), Some("Accept-Encoding"));
    // So is the tag of a variant, whose page is stored no more.
    for (tag, status) in [("\"v1-gzip\"", 304), ("\"v0\", \"v1-br\"", 304), ("\"v1-xz\"", 200)] {
        let response = ask(address, "GET", "/", &[("if-none-match", tag)]);
        assert_eq!(response.status, status, "{tag}");
        if status == 304 {
            assert!(tag.ends_with(response.header("etag").unwrap()), "{tag}");
            assert_eq!(response.header("vary"), Some("Accept-Encoding"), "{tag}");
        }
    }
    let strong = ask(address, "GET", "/", &[("if-none-match", "\"v1\"")]);
    assert_eq!((strong.status, strong.header("etag")), (304, Some("\"v1\"")));
    let other =
        ask(address, "GET", "/", &[("accept-encoding", "gzip"), ("if-none-match", "W/\"v0\"")]);
    assert_eq!(other.status, 200);
    drop(origin);
}

#[test]
fn much_comes_whole_and_in_order() {
    let large: String =
        (0..400_000_u64).map(|line| format!("{line} {}\n", line * 7919 % 10_007)).collect();
    let sent = large.clone();
    let (_origin, _weir, address) = front("compress; cache \"off\"", move |_| {
        answer("200 OK", "Content-Type: text/plain\r\n", sent.as_bytes())
    });
    for coding in ["br", "gzip", "zstd"] {
        let response = ask(address, "GET", "/", &[("accept-encoding", coding)]);
        assert_eq!(response.header("content-encoding"), Some(coding));
        assert!(text(&response) == large, "{coding}");
    }
}

/// Weakened, it would be of no use for If-Match.
#[test]
fn the_tag_of_what_was_put_is_left_alone() {
    let (_origin, _weir, address) = front("compress", |_| dynamic(DYNAMIC));
    let fields = [("accept-encoding", "gzip"), ("content-length", "0")];
    let put = ask(address, "PUT", "/", &fields);
    assert_eq!((put.header("content-encoding"), put.header("etag")), (None, Some("\"v1\"")));
    let posted = ask(address, "POST", "/", &fields);
    assert_eq!(posted.header("content-encoding"), Some("gzip"));
    assert_eq!(text(&posted), page());
}

/// A worker that cannot keep up has no streams begun: what is sent as it is costs less.
#[test]
fn a_worker_that_is_overloaded_begins_no_stream() {
    let origin = Origin::start(|_| dynamic(DYNAMIC));
    let site = format!("route \"/*\" {{ proxy \"{}\"; compress; }}", origin.url());
    let rest = "server { workers 1; admin \"off\"; }\n\
                guard { overload target=\"1ms\" interval=\"10ms\"; }";
    let (weir, address) = Weir::front(rest, &site);
    let word = || {
        let response = ask(address, "GET", "/", &[("accept-encoding", "gzip")]);
        let word = response.header("weir-adapt").unwrap().to_owned();
        assert_eq!(text(&response), page(), "{word}");
        word
    };
    // A worker that is stopped finds that its turn has come late.
    let late = wait_for(PATIENCE, || {
        word();
        weir.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(30));
        weir.signal(Signal::CONT);
        // As long as nothing else is late, the next look finds that out.
        (0..5).any(|_| word() == "original;reason=overloaded").then_some(())
    });
    assert!(late.is_some());
    let over = wait_for(PATIENCE, || (word() == "gzip;q=4;stream").then_some(()));
    assert!(over.is_some());
}
