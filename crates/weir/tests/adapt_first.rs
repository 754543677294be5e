//! Requests that missed: who may wait gets what is made of a response although nobody has stored it
//! before, and so does who gets a response that was validated, or is stale.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use common::client::{Client, Response, ask};
use common::origin::{Cue, Origin, Received, Step, answer, cue};
use common::server::Weir;
use common::{PATIENCE, wait_for};
use image::{ImageFormat, Rgb, RgbImage};

/// Longer than anything takes here.
const LONG: &str = "wait=\"50s\"";

fn photo() -> Vec<u8> {
    let wave = |at: u32| (127.0 + 90.0 * (at as f32 / 20.0).sin()) as u8;
    let drawn = RgbImage::from_fn(640, 480, |x, y| Rgb([wave(x + y), wave(x), wave(y)]));
    let mut bytes = Cursor::new(Vec::new());
    drawn.write_to(&mut bytes, ImageFormat::Jpeg).unwrap();
    bytes.into_inner()
}

fn picture(fields: &str) -> Vec<Step> {
    answer("200 OK", &format!("{fields}ETag: \"v1\"\r\nContent-Type: image/jpeg\r\n"), &photo())
}

const FRESH: &str = "Cache-Control: max-age=600\r\n";

fn front(
    global: &str,
    lines: &str,
    script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(script);
    let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
    let (weir, address) = Weir::front(global, &site);
    (origin, weir, address)
}

fn get(address: SocketAddr, target: &str) -> Response {
    ask(address, "GET", target, &[("accept", "image/webp")])
}

fn is_webp(response: &Response) -> bool {
    let word = response.header("weir-adapt").unwrap();
    assert_eq!(word.starts_with("webp;"), response.body.starts_with(b"RIFF"), "{word}");
    word.starts_with("webp;")
}

#[test]
fn the_first_gets_its_variant_if_it_may_wait() {
    let (origin, _weir, address) =
        front("", &format!("image max-width=320 formats=\"webp\" {LONG}"), |_| picture(FRESH));
    let first = get(address, "/a");
    assert!(is_webp(&first), "{:?}", first.headers);
    assert_eq!(first.header("cache-status"), Some("weir; fwd=uri-miss; fwd-status=200; stored"));
    assert_eq!(first.header("age"), None);
    assert_eq!(first.header("content-length"), Some(&*first.body.len().to_string()));
    let hit = get(address, "/a");
    assert_eq!((&hit.body, hit.header("etag")), (&first.body, first.header("etag")));
    // What is asked of it, is asked of the variant.
    let tag = first.header("etag").unwrap();
    let fields = [("accept", "image/webp"), ("if-none-match", tag)];
    assert_eq!(ask(address, "GET", "/b", &fields).status, 304);
    let part = ask(address, "GET", "/c", &[("accept", "image/webp"), ("range", "bytes=4-99")]);
    assert_eq!((part.status, &part.body[..]), (206, &first.body[4..100]));
    assert_eq!(origin.take().len(), 3);
}

#[test]
fn all_who_come_at_once_get_one_variant() {
    let (go, held) = cue();
    let script = move |_: &Received| {
        let mut steps = picture(FRESH);
        steps.insert(0, Step::Await(Cue::clone(&held)));
        steps
    };
    let line = format!("image formats=\"webp\" {LONG}");
    let (origin, _weir, address) = front("", &line, script);
    let clients: Vec<_> = (0..8).map(|_| thread::spawn(move || get(address, "/a"))).collect();
    wait_for(PATIENCE, || (!origin.take().is_empty()).then_some(())).unwrap();
    thread::sleep(Duration::from_millis(100));
    go.send(()).unwrap();
    let responses: Vec<Response> = clients.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(responses.iter().all(|one| is_webp(one) && one.body == responses[0].body));
    assert!(origin.take().is_empty());
}

/// Sends the first half of its picture, and the rest when it is told to.
fn halting(held: Cue, declares: bool) -> impl Fn(&Received) -> Vec<Step> + Send + Sync {
    move |_| {
        let body = photo();
        let (first, rest) = body.split_at(body.len() / 2);
        let framing = match declares {
            true => format!("Content-Length: {}", body.len()),
            false => "Connection: close".to_owned(),
        };
        let head =
            format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Type: image/jpeg\r\n{framing}\r\n\r\n");
        let (head, rest) = ([head.as_bytes(), first].concat(), Step::Send(rest.to_vec()));
        vec![Step::Send(head), Step::Await(held.clone()), rest, Step::Close]
    }
}

#[test]
fn nobody_waits_longer_than_the_route_says() {
    let (go, held) = cue();
    let line = "image formats=\"webp\" wait=\"200ms\"";
    let (_origin, _weir, address) = front("", line, halting(held, true));
    let mut client = Client::connect(address).unwrap();
    let began = Instant::now();
    client.send(b"GET /a HTTP/1.1\r\nHost: a\r\nAccept: image/webp\r\n\r\n").unwrap();
    let head = String::from_utf8(client.head().unwrap()).unwrap();
    // The origin is not done, and the client gets what there is.
    assert!(head.contains("weir-adapt: original;reason=not-stored\r\n"), "{head}");
    assert!(began.elapsed() >= Duration::from_millis(200));
    let half = photo().len() / 2;
    assert_eq!(client.take(half).unwrap(), photo()[..half]);
    go.send(()).unwrap();
    assert_eq!(client.take(photo().len() - half).unwrap(), photo()[half..]);
}

#[test]
fn who_waits_for_what_is_not_stored_gets_it_at_once() {
    // It is known at the first half that the whole is too large.
    let (_go, held) = cue();
    let half = photo().len() / 2;
    let global = format!("cache {{ memory \"16MiB\"; object-max {}; }}", half - 10);
    let line = format!("image formats=\"webp\" {LONG}");
    let (_origin, _weir, address) = front(&global, &line, halting(held, false));
    let mut client = Client::connect(address).unwrap();
    client.send(b"GET /a HTTP/1.0\r\nHost: a\r\nAccept: image/webp\r\n\r\n").unwrap();
    client.head().unwrap();
    assert_eq!(client.take(half).unwrap(), photo()[..half]);
}

#[test]
fn who_waits_for_what_is_torn_is_told_so() {
    let line = format!("image formats=\"webp\" {LONG}");
    let script = |_: &Received| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: 9\r\n";
        vec![Step::Send(format!("{head}{FRESH}\r\nhalf").into_bytes()), Step::Close]
    };
    let (_origin, _weir, address) = front("", &line, script);
    let response = get(address, "/a");
    assert_eq!(response.status, 502);
    let said = response.header("cache-status");
    assert_eq!(said, Some("weir; fwd=uri-miss; fwd-status=200; detail=\"torn\""));
    assert!(response.body != b"half");
}

/// An origin that confirms what it is asked about, until it fails.
fn confirming(fields: &'static str) -> (Arc<AtomicBool>, impl Fn(&Received) -> Vec<Step>) {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let script = move |request: &Received| {
        if failing.load(SeqCst) {
            return answer("503 Service Unavailable", "", b"");
        }
        match request.values("if-none-match").is_empty() {
            true => picture(fields),
            false => {
                let head = format!("HTTP/1.1 304 Not Modified\r\n{fields}ETag: \"v1\"\r\n\r\n");
                vec![Step::Send(head.into_bytes())]
            }
        }
    };
    (fails, script)
}

#[test]
fn what_was_confirmed_or_is_stale_is_adapted_as_what_is_fresh() {
    for (fields, confirmed, failed) in [
        (
            "Cache-Control: max-age=0, stale-if-error=600\r\n",
            "weir; fwd=stale; fwd-status=304; stored",
            Some("weir; fwd=stale; ttl="),
        ),
        ("Cache-Control: no-cache\r\n", "weir; fwd=stale; fwd-status=304; stored", None),
        ("Cache-Control: max-age=0, stale-while-revalidate=600\r\n", "weir; hit; ttl=", None),
    ] {
        let (fails, script) = confirming(fields);
        let (_origin, _weir, address) =
            front("", &format!("image formats=\"webp\" {LONG}"), script);
        assert!(is_webp(&get(address, "/a")), "{fields}");
        let again = get(address, "/a");
        assert!(is_webp(&again), "{fields} {:?}", again.headers);
        let said = again.header("cache-status").unwrap();
        assert!(said.starts_with(confirmed), "{said}");
        let Some(failed) = failed else { continue };
        fails.store(true, SeqCst);
        let stale = get(address, "/a");
        assert_eq!(stale.status, 200);
        assert!(is_webp(&stale), "{fields}");
        let said = stale.header("cache-status").unwrap();
        assert!(said.starts_with(failed), "{said}");
    }
}

#[test]
fn the_first_for_a_file_gets_its_variant_too() {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("a.jpg"), photo()).unwrap();
    let root = files.path().display();
    for (wait, expected) in [(LONG, true), ("", false)] {
        let site = format!("route \"/*\" {{ files \"{root}\"; image formats=\"webp\" {wait}; }}");
        let (_weir, address) = Weir::front("", &site);
        let first = get(address, "/a.jpg");
        assert_eq!(is_webp(&first), expected, "{:?}", first.headers);
        assert_eq!(first.header("cache-status"), Some("weir; fwd=uri-miss; stored"));
        assert_eq!(first.header("age"), None);
    }
}
