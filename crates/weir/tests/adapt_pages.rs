//! Pages that are changed while they are sent: those that are not stored, those that are being
//! stored, and those that no helper has changed yet.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use common::client::{Client, Response, ask};
use common::origin::{Origin, Received, Step, answer, cue};
use common::server::Weir;
use common::{PATIENCE, wait_for};
use rustix::process::{Pid, Signal};

const DYNAMIC: &str = "Cache-Control: no-store\r\nETag: \"v1\"\r\nContent-Type: text/html\r\n\
                       Content-Digest: sha-256=:x:\r\nAccept-Ranges: bytes\r\n\
                       Content-Security-Policy: script-src 'nonce-n0'\r\n";

const STORED: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: text/html\r\n\
                      Content-Security-Policy: script-src 'nonce-n0'\r\n";

const RULES: &str = "html { append \"head\" \"<script nonce='{nonce}'>1</script>\"
    remove \".banner\"
    strip \"comments\"
}";

const PAGE: &str = "<html><head></head><body><!-- a --><p class=banner>Buy</p><p>Text.</p>";
const CHANGED: &str = "<html><head><script nonce='n0'>1</script></head><body><p>Text.</p>";

fn front(
    adapt: &str,
    lines: &str,
    script: impl Fn(&str, &Received) -> Vec<Step> + Send + Sync + 'static,
) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(move |request| {
        let line = request.line();
        script(line.split(' ').nth(1).unwrap(), request)
    });
    let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
    let (weir, address) = Weir::front(adapt, &site);
    (origin, weir, address)
}

fn coded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut coded = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut coded, 4096, 4, 20);
            encoder.write_all(bytes).unwrap();
            drop(encoder);
            coded
        }
        _ => zstd::encode_all(bytes, 3).unwrap(),
    }
}

fn text(response: &Response) -> String {
    let (mut text, body) = (Vec::new(), &response.body[..]);
    match response.header("content-encoding") {
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut text).unwrap(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut text).unwrap(),
        Some("zstd") => zstd::Decoder::new(body).unwrap().read_to_end(&mut text).unwrap(),
        None => text.write(body).unwrap(),
        Some(other) => panic!("{other}"),
    };
    String::from_utf8(text).unwrap()
}

fn get(address: SocketAddr, target: &str, accept: &str) -> Response {
    ask(address, "GET", target, &[("accept-encoding", accept)])
}

#[test]
fn pages_that_are_not_stored_are_changed() {
    let served = |target: &str, _: &Received| match target {
        "/plain" => answer("200 OK", DYNAMIC, PAGE.as_bytes()),
        target => {
            let fields = format!("{DYNAMIC}Content-Encoding: {}\r\n", &target[1..]);
            answer("200 OK", &fields, &coded(&target[1..], PAGE.as_bytes()))
        }
    };
    let admin = common::free_address();
    let server = format!("server {{ workers 2; admin \"{admin}\"; }}");
    let (_origin, _weir, address) = front(&server, RULES, served);
    for (target, word, coding) in [
        ("/plain", "html;stream", None),
        ("/gzip", "html;stream, gzip;q=4;stream", Some("gzip")),
        ("/br", "html;stream, br;q=4;stream", Some("br")),
        ("/zstd", "html;stream, zstd;q=3;stream", Some("zstd")),
    ] {
        let response = get(address, target, "gzip, br, zstd");
        assert_eq!(text(&response), CHANGED, "{target}");
        let head = ask(address, "HEAD", target, &[("accept-encoding", "gzip, br, zstd")]);
        let tag = response.header("etag").unwrap();
        assert!(tag.starts_with("W/\"v1-html"), "{tag}");
        assert_eq!(head.header("etag"), Some(tag));
        for (name, value) in [
            ("weir-adapt", Some(word)),
            ("content-encoding", coding),
            ("vary", None),
            ("content-digest", None),
            ("accept-ranges", None),
        ] {
            assert_eq!(response.header(name), value, "{target} {name}");
            assert_eq!(head.header(name), value, "HEAD {target} {name}");
        }
        // Which nobody knows before it is made.
        assert_eq!(head.header("content-length"), None, "HEAD {target}");
    }
    // What has come of it is counted when it has ended.
    let counted = wait_for(PATIENCE, || {
        let page = ask(admin, "GET", "/metrics", &[("host", "localhost")]);
        text(&page).contains("\nweir_html_pages_total 4\n").then_some(())
    });
    assert!(counted.is_some());
    // Beside `compress` the client has its choice, also of what came coded.
    let (_origin, _weir, address) =
        front("", &format!("{RULES}; compress min-size=\"1B\""), served);
    for target in ["/plain", "/gzip", "/zstd"] {
        let response = get(address, target, "br");
        assert_eq!(text(&response), CHANGED, "{target}");
        assert_eq!(response.header("weir-adapt"), Some("html;stream, br;q=4;stream"), "{target}");
        assert_eq!(response.header("vary"), Some("Accept-Encoding"), "{target}");
        let response = get(address, target, "identity");
        assert_eq!((text(&response), response.header("content-encoding")), (CHANGED.into(), None));
    }
}

#[test]
fn what_is_no_page_or_cannot_be_read_is_left_alone() {
    let (_origin, _weir, address) = front("", RULES, |target, _| match target {
        "/utf16" => {
            let fields = DYNAMIC.replace("text/html", "text/html; charset=utf-16");
            answer("200 OK", &fields, PAGE.as_bytes())
        }
        "/kept" => {
            let fields = DYNAMIC.replace("no-store", "no-store, no-transform");
            answer("200 OK", &fields, PAGE.as_bytes())
        }
        "/part" => {
            let fields = format!("{DYNAMIC}Content-Range: bytes 0-9/99\r\n");
            answer("206 Partial Content", &fields, &PAGE.as_bytes()[..10])
        }
        "/missing" => answer("404 Not Found", DYNAMIC, PAGE.as_bytes()),
        _ => answer("200 OK", &DYNAMIC.replace("text/html", "text/plain"), PAGE.as_bytes()),
    });
    for (target, word) in [
        ("/utf16", Some("original;reason=charset")),
        ("/kept", None),
        ("/part", None),
        ("/missing", None),
        ("/text", None),
    ] {
        let response = get(address, target, "gzip");
        assert_eq!(response.header("weir-adapt"), word, "{target}");
        assert_eq!(response.header("etag"), Some("\"v1\""), "{target}");
        assert!(PAGE.as_bytes().starts_with(&response.body), "{target}");
    }
    let (_origin, _weir, address) =
        front("", &RULES.replace("html {", "html stream=#false {"), |_, _| {
            answer("200 OK", DYNAMIC, PAGE.as_bytes())
        });
    let response = get(address, "/", "gzip");
    assert_eq!(response.header("weir-adapt"), Some("original;reason=not-stored"));
    assert_eq!(text(&response), PAGE);
}

#[test]
fn what_cannot_be_decoded_is_no_whole_response() {
    let bomb = coded("gzip", &vec![b' '; 64 << 20]);
    let (_origin, weir, address) = front("", RULES, move |target, _| {
        let fields = format!("{DYNAMIC}Content-Encoding: gzip\r\n");
        let body = match target {
            "/bomb" => bomb.clone(),
            "/torn" => coded("gzip", PAGE.as_bytes())[..40].to_vec(),
            _ => [b"\x1f\x8b\x08", PAGE.as_bytes()].concat(),
        };
        answer("200 OK", &fields, &body)
    });
    for target in ["/bomb", "/torn", "/other"] {
        let mut client = Client::connect(address).unwrap();
        let answered = client.ask("GET", target, &[("accept-encoding", "gzip")]);
        assert!(answered.is_err(), "{target}: passed for a whole page");
    }
    weir.wait_for_log("adapted while it comes");
    assert!(!weir.log().contains("panicked"), "{}", weir.log());
}

/// A page that is stored, and is none of what it says, goes to nobody in part.
#[test]
fn what_is_not_coded_as_it_says_is_sent_as_it_is_once_stored() {
    let (_origin, weir, address) = front("adapt { helpers 1 }", RULES, |target, _| {
        let coding = target.trim_start_matches('/');
        answer("200 OK", &format!("{STORED}Content-Encoding: {coding}\r\n"), PAGE.as_bytes())
    });
    // So that no helper finds it out.
    assert!(
        wait_for(PATIENCE, || {
            let _ = Client::connect(address).unwrap().ask("GET", "/gzip", &[]);
            weir.helpers().first().copied()
        })
        .is_some()
    );
    for pid in weir.helpers() {
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    }
    for coding in ["zstd", "gzip"] {
        let stored = wait_for(PATIENCE, || {
            let mut client = Client::connect(address).unwrap();
            let response = client.ask("GET", &format!("/{coding}"), &[("accept-encoding", coding)]);
            let is_hit = |one: &Response| one.header("cache-status").unwrap().contains("hit");
            response.ok().filter(is_hit)
        });
        let response = stored.unwrap();
        assert_eq!(&response.body[..], PAGE.as_bytes(), "{coding}");
        assert_eq!(response.header("content-encoding"), Some(coding));
        let word = response.header("weir-adapt").unwrap();
        assert!(["pending", "failed"].iter().any(|why| word.ends_with(why)), "{word}");
    }
    for pid in weir.helpers() {
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
    }
}

#[test]
fn a_slow_page_arrives_as_it_comes() {
    // Each part waits for the one before to have arrived: what is held back would never come.
    let (arrived, cue) = cue();
    let (_origin, _weir, address) = front("", RULES, move |_, _| {
        let head = format!("HTTP/1.1 200 OK\r\n{DYNAMIC}Connection: close\r\n\r\n");
        let mut steps = vec![Step::Send(head.into_bytes())];
        for number in 0..4 {
            // Each ends within a tag.
            let text = format!("<p>{number}</p><p class=banner>x</p><p cl");
            steps.push(Step::Send(text.into_bytes()));
            steps.push(Step::Await(cue.clone()));
            steps.push(Step::Send(b"ass=x>\n".to_vec()));
        }
        steps.push(Step::Close);
        steps
    });
    let mut client = Client::connect(address).unwrap();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    client.head().unwrap();
    let mut body = Vec::new();
    for number in 0..4 {
        let expect = format!("<p>{number}</p>");
        while !String::from_utf8_lossy(&body).contains(&expect) {
            body.extend(client.take(1).unwrap());
        }
        arrived.send(()).unwrap();
    }
}

/// Whoever asks first, and whoever reads along, has the page changed; what is stored is what came.
#[test]
fn pages_are_changed_while_they_are_stored() {
    let (origin, _weir, address) =
        front("", &format!("{RULES}; compress min-size=\"1B\""), |_, _| {
            let (first, second) = PAGE.split_at(60);
            let head = format!("HTTP/1.1 200 OK\r\n{STORED}Content-Length: {}\r\n\r\n", PAGE.len());
            vec![
                Step::Send([head.as_bytes(), first.as_bytes()].concat()),
                Step::Pause(Duration::from_secs(2)),
                Step::Send(second.as_bytes().to_vec()),
            ]
        });
    let readers: Vec<_> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50 * number));
                get(address, "/", if number % 2 == 0 { "gzip" } else { "identity" })
            })
        })
        .collect();
    for reader in readers {
        let response = reader.join().unwrap();
        assert_eq!(text(&response), CHANGED);
        assert!(response.header("weir-adapt").unwrap().starts_with("html;stream"));
        assert!(response.header("etag").unwrap().starts_with("W/\"v1-html"));
        assert_eq!(response.header("vary"), Some("Accept-Encoding"));
    }
    assert_eq!(origin.take().len(), 1, "they read along");
    let settled = wait_for(PATIENCE, || {
        let response = get(address, "/", "identity");
        (response.header("weir-adapt") == Some("html;changed=3")).then_some(response)
    });
    let settled = settled.unwrap();
    assert_eq!(text(&settled), CHANGED);
    assert!(settled.header("etag").unwrap().starts_with("\"v1-html"));
    assert_eq!(origin.take().len(), 0);
}

#[test]
fn stored_pages_are_changed_before_a_helper_has_done_it() {
    // Longer than what is kept of what was changed while it was sent.
    let filler = |tag: &str| format!("{tag}{}", "<p>More.</p>".repeat(100_000));
    let served = move |target: &str, _: &Received| match target {
        "/text" => answer("200 OK", &STORED.replace("html", "css"), filler(PAGE).as_bytes()),
        _ => answer("200 OK", STORED, filler(PAGE).as_bytes()),
    };
    let (_origin, weir, address) =
        front("adapt { helpers 1 }", &format!("{RULES}; compress min-size=\"1B\""), served);
    let done = wait_for(PATIENCE, || {
        let response = get(address, "/first", "identity");
        (response.header("weir-adapt") == Some("html;changed=3")).then_some(())
    });
    done.unwrap();
    for pid in weir.helpers() {
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    }
    let mut tag = String::new();
    for cache in ["weir; fwd=uri-miss", "weir; hit", "weir; hit"] {
        // A page that has come is stored a moment later.
        let is_stored = || {
            let response = get(address, "/second", "identity");
            response.header("cache-status").unwrap().starts_with(cache).then_some(())
        };
        assert!(cache.contains("fwd") || wait_for(PATIENCE, is_stored).is_some());
        let response = get(address, "/second", "identity");
        assert!(response.header("cache-status").unwrap().starts_with(cache));
        assert_eq!(response.header("weir-adapt"), Some("html;stream"), "{cache}");
        assert_eq!(response.header("age").is_some(), cache.ends_with("hit"));
        assert!(text(&response) == filler(CHANGED));
        tag = response.header("etag").unwrap().to_owned();
        assert!(tag.starts_with("W/\"v1-html"), "{tag}");
    }
    // What the client has is confirmed, and a part of what nobody has made yet cannot be had.
    let known = ask(address, "GET", "/second", &[("if-none-match", &tag)]);
    assert_eq!((known.status, known.header("etag")), (304, Some(&*tag)));
    // Not what it had by other rules.
    for other in ["W/\"v1\"", "W/\"v1-html\"", "W/\"v1-html00000000\""] {
        assert_eq!(ask(address, "GET", "/second", &[("if-none-match", other)]).status, 200);
    }
    let part = ask(address, "GET", "/second", &[("range", "bytes=0-4")]);
    assert_eq!((part.status, &part.body[..]), (206, &b"<html"[..]));
    assert_eq!(part.header("weir-adapt"), Some("original;reason=pending"));
    let head = ask(address, "HEAD", "/second", &[]);
    assert_eq!(head.header("weir-adapt"), Some("html;stream"));
    assert_eq!(head.header("content-length"), None);
    // What is only compressed waits for spare time.
    get(address, "/text", "identity");
    let waits = wait_for(PATIENCE, || {
        let response = get(address, "/text", "gzip");
        (response.header("weir-adapt") == Some("original;reason=pending")).then_some(())
    });
    assert!(waits.is_some());
    for pid in weir.helpers() {
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
    }
}

/// Whoever has a page as it was before it had rules does not keep it.
#[test]
fn pages_that_were_not_changed_are_not_confirmed() {
    let served = |_: &str, request: &Received| {
        let known = request.values("if-none-match").join(", ");
        let dated = !request.values("if-modified-since").is_empty() && known.is_empty();
        match known.contains("\"v1\"") || dated {
            true => answer("304 Not Modified", "ETag: \"v1\"\r\n", b""),
            false => answer("200 OK", DYNAMIC, PAGE.as_bytes()),
        }
    };
    let (_origin, _weir, address) = front("", RULES, served);
    let ask = |fields: &[(&str, &str)]| ask(address, "GET", "/", fields);
    let tag = ask(&[]).header("etag").unwrap().to_owned();
    assert!(tag.starts_with("W/\"v1-html"), "{tag}");
    let date = "Sun, 22 Nov 2026 17:01:23 GMT";
    let browser = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    for (fields, status) in [
        (&[browser, ("if-none-match", "\"v1\"")][..], 200),
        (&[browser, ("if-modified-since", date)], 200),
        (&[browser, ("if-none-match", "\"v1\""), ("if-modified-since", date)], 200),
        (&[browser, ("if-none-match", &tag)], 304),
        (&[browser, ("if-none-match", &format!("\"v1\", {tag}"))], 304),
        // What is no page has but the one form.
        (&[("accept", "*/*"), ("if-none-match", "\"v1\"")], 304),
        (&[("if-modified-since", date)], 304),
    ] {
        assert_eq!(ask(fields).status, status, "{fields:?}");
    }
}

/// What is not what it says is nothing to break off for: it goes as it came.
#[test]
fn pages_that_are_not_coded_as_they_say_are_sent_as_they_are() {
    let served = |target: &str, _: &Received| {
        let fields = if target.starts_with("/stored") { STORED } else { DYNAMIC };
        let coding = if target.ends_with("zstd") { "zstd" } else { "gzip" };
        let fields = format!("{fields}Content-Encoding: {coding}\r\n");
        match target.contains("slowly") {
            false => answer("200 OK", &fields, PAGE.as_bytes()),
            true => {
                let head =
                    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", PAGE.len());
                let pause = Step::Pause(Duration::from_millis(50));
                let (first, rest) = PAGE.as_bytes().split_at(10);
                vec![
                    Step::Send(head.into_bytes()),
                    pause.clone(),
                    Step::Send(first.to_vec()),
                    pause,
                    Step::Send(rest.to_vec()),
                ]
            }
        }
    };
    let (_origin, _weir, address) = front("", RULES, served);
    let paths = ["/gzip", "/zstd", "/slowly-gzip"];
    for path in paths.iter().flat_map(|path| [(*path).to_owned(), format!("/stored{path}")]) {
        let response = get(address, &path, "gzip, zstd");
        assert_eq!(response.header("weir-adapt"), Some("original;reason=failed"), "{path}");
        assert_eq!(response.body, PAGE.as_bytes(), "{path}");
        assert_eq!(response.header("content-length"), Some(&*PAGE.len().to_string()), "{path}");
        assert!(response.header("content-encoding").is_some(), "{path}");
    }
}

#[test]
fn streams_can_be_switched_off() {
    let (_origin, _weir, address) = front("adapt { streams 0 }", RULES, |target, _| match target {
        "/dynamic" => answer("200 OK", DYNAMIC, PAGE.as_bytes()),
        _ => answer("200 OK", STORED, PAGE.as_bytes()),
    });
    for target in ["/dynamic", "/stored"] {
        let response = get(address, target, "identity");
        assert_eq!(response.header("weir-adapt"), Some("original;reason=off"), "{target}");
        assert_eq!(text(&response), PAGE, "{target}");
    }
}

/// However long a page is, here 100 MB, no more than some of it lies in memory.
#[test]
fn long_pages_take_little_memory() {
    const LINES: usize = 250_000;
    let left = format!("<p>{}</p>\n", "Some text of a long page. ".repeat(16));
    let body = coded("gzip", format!("<p class=banner>Buy</p>{left}").repeat(LINES).as_bytes());
    let (_origin, weir, address) = front("", "html { remove \".banner\"; }", move |target, _| {
        let fields = format!("{DYNAMIC}Content-Encoding: gzip\r\n");
        match target {
            "/long" => answer("200 OK", &fields, &body),
            _ => answer("200 OK", &fields, &coded("gzip", PAGE.as_bytes())),
        }
    });
    get(address, "/warm", "gzip");
    let before = weir.resident_bytes();
    let asking = std::thread::spawn(move || get(address, "/long", "gzip"));
    let mut most = before;
    while !asking.is_finished() {
        most = most.max(weir.resident_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    let changed = text(&asking.join().unwrap());
    assert!(changed.len() > 100 << 20);
    assert!(changed == left.repeat(LINES), "{}", changed.len());
    assert!(most - before < 24 << 20, "{} bytes more", most - before);
}
