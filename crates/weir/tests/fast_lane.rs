//! The fast lane, on which simple requests are answered without hyper: nobody can tell the
//! difference, and whatever is not simple leaves it with nothing lost.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::client::{Client, Response};
use common::origin::{self, Origin, Step};
use common::server::Weir;

/// A field that takes a request past the short cut for hits and changes nothing about its answer.
const NOT_PLAIN: &str = "Pragma: x\r\n";

/// A field that takes a request to hyper and changes nothing about its answer.
const BY_HYPER: &str = "TE: x\r\n";

fn body(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i / 7 % 251) as u8).collect()
}

/// One worker, an admin API at the second address.
fn start(site: &str) -> (Weir, SocketAddr, SocketAddr) {
    let admin = common::free_address();
    let trusted = "trusted-proxies \"127.0.0.1\"";
    let server = format!("server {{ workers 1; admin \"{admin}\"; {trusted}; }}");
    let (weir, address) = Weir::front(&server, site);
    (weir, address, admin)
}

/// After a file has changed it may change again at the same time stamp, so that it is not trusted
/// at once.
fn let_files_settle() {
    std::thread::sleep(Duration::from_millis(120));
}

fn with_files(sizes: &[usize]) -> (Weir, SocketAddr, SocketAddr) {
    let started = start("route \"/*\" { files \".\"; }");
    for &size in sizes {
        std::fs::write(started.0.directory().join(format!("{size}.bin")), body(size)).unwrap();
    }
    let_files_settle();
    started
}

fn request(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n").into_bytes()
}

fn ask(client: &mut Client, target: &str, fields: &str) -> Response {
    client.send(&request(target, fields)).unwrap();
    client.response("GET").unwrap()
}

/// Requests answered on the fast lane so far.
fn fast_requests(admin: SocketAddr) -> u64 {
    let metrics = common::client::get(admin, "localhost", "/metrics").unwrap();
    let text = String::from_utf8(metrics.body).unwrap();
    let of_routes = text.lines().filter(|line| line.starts_with("weir_fast_lane_requests_total{"));
    of_routes.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// A field that passes with time, between two requests for the same.
fn is_of_its_time(name: &str) -> bool {
    ["date", "age", "cache-status"].contains(&name)
}

fn timeless(response: &Response) -> (u16, Vec<&(String, String)>, &[u8]) {
    let fields = response.headers.iter().filter(|(name, _)| !is_of_its_time(name));
    (response.status, fields.collect(), &response.body)
}

/// Asks for a stored response all three ways, on kept and on closing connections.
#[track_caller]
fn check_hit((address, admin): (SocketAddr, SocketAddr), target: &str) {
    let mut client = Client::connect(address).unwrap();
    ask(&mut client, target, BY_HYPER);
    for fields in ["", "Connection: close\r\n", "User-Agent: x\r\nAccept-Encoding: gzip\r\n"] {
        let before = fast_requests(admin);
        let answers = ["", NOT_PLAIN, BY_HYPER].map(|more| {
            let mut client = Client::connect(address).unwrap();
            let response = ask(&mut client, target, &format!("{fields}{more}"));
            assert!(!response.says_close() || client.is_closed());
            response
        });
        assert_eq!(fast_requests(admin), before + 2, "{target} with {fields:?}");
        let [plain, not_plain, by_hyper] = &answers;
        assert_eq!(timeless(plain), timeless(by_hyper), "{target} with {fields:?}");
        assert_eq!(timeless(not_plain), timeless(by_hyper), "{target} with {fields:?}");
        for name in ["date", "age", "cache-status"] {
            assert_eq!(plain.header(name).is_some(), by_hyper.header(name).is_some(), "{name}");
        }
        assert!(plain.header("cache-status").unwrap().starts_with("weir; hit"));
    }
}

/// Asks both ways for something that need not be stored.
#[track_caller]
fn check_same((address, admin): (SocketAddr, SocketAddr), line: &str, fields: &str) -> Response {
    let before = fast_requests(admin);
    let method = line.split(' ').next().unwrap();
    let [fast, by_hyper] = ["", BY_HYPER].map(|more| {
        let mut client = Client::connect(address).unwrap();
        let head = format!("{line} HTTP/1.1\r\nHost: a.example\r\n{fields}{more}\r\n");
        client.send(head.as_bytes()).unwrap();
        let response = client.response(method).unwrap();
        assert_eq!(client.pending(), 0, "{line}: more than a response");
        assert!(!response.says_close() || client.is_closed());
        response
    });
    // What is malformed reaches no route that could count it.
    let counted = u64::from(fast.status != 400);
    assert_eq!(fast_requests(admin), before + counted, "{line} with {fields:?}");
    // hyper writes Content-Length last where there is no content.
    let [mut of_fast, mut of_hyper] = [timeless(&fast), timeless(&by_hyper)];
    of_fast.1.sort_by_key(|(name, _)| name);
    of_hyper.1.sort_by_key(|(name, _)| name);
    assert_eq!(of_fast, of_hyper, "{line} with {fields:?}");
    fast
}

#[test]
fn a_stored_file_is_the_same_on_both_ways() {
    const SIZES: [usize; 6] = [0, 1, 1500, 8192, 8193, 3_000_000];
    let (_weir, address, admin) = with_files(&SIZES);
    for size in SIZES {
        check_hit((address, admin), &format!("/{size}.bin"));
    }
    check_hit((address, admin), "/x/../%31.bin?query=1");
}

#[test]
fn a_stored_response_is_the_same_on_both_ways() {
    let origin = Origin::start(|_| {
        let fields = "Cache-Control: max-age=60\r\nAge: 3\r\nCache-Status: other; hit\r\n\
            X-Two: a\r\nX-Two: b\r\nX-Gone: x\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        origin::answer("200 OK", fields, &body(70_000))
    });
    let site = |edits: &str| {
        format!("route \"/*\" {{ {edits}; cache ttl=\"1m\"; proxy \"{}\"; }}", origin.url())
    };
    let edits = "header { set \"X-New\" \"1\"; add \"X-Two\" \"c\"; remove \"X-Gone\"; }";
    for edits in ["header {}", edits] {
        let (_weir, address, admin) = start(&site(edits));
        check_hit((address, admin), "/a");
        check_hit((address, admin), "/a?b=c");
        let mut client = Client::connect(address).unwrap();
        let response = ask(&mut client, "/a", "");
        assert_eq!(response.header("x-new"), edits.contains("set").then_some("1"));
        assert_eq!(response.header("x-gone").is_none(), edits.contains("remove"));
    }
}

#[test]
fn answers_about_files_are_the_same_on_both_ways() {
    let started = start(
        "route \"/*\" { files \".\" listing=#true; }
         route \"/moved\" { redirect \"/there{uri}\"; }
         route \"/fixed\" { respond \"text\" status=503; }
         route \"/empty\" { respond \"\" status=204; }",
    );
    let (weir, at) = (&started.0, (started.1, started.2));
    std::fs::create_dir(weir.directory().join("d")).unwrap();
    std::fs::write(weir.directory().join("d/f"), body(1000)).unwrap();
    let_files_settle();
    let etag = check_same(at, "GET /d/f", "").header("etag").unwrap().to_owned();
    check_same(at, "HEAD /d/f", "");
    assert_eq!(check_same(at, "GET /d/f", &format!("If-None-Match: {etag}\r\n")).status, 304);
    assert_eq!(check_same(at, "HEAD /d/f", &format!("If-None-Match: {etag}\r\n")).status, 304);
    assert_eq!(check_same(at, "GET /d/f", "If-Match: \"other\"\r\n").status, 412);
    assert_eq!(check_same(at, "GET /d/f", "Range: bytes=10-19\r\n").body, body(1000)[10..20]);
    assert_eq!(check_same(at, "GET /d/f", "Range: bytes=5000-\r\n").status, 416);
    assert_eq!(check_same(at, "GET /d", "").status, 301);
    assert_eq!(check_same(at, "GET /d/", "").status, 200);
    for target in ["/none", "/..%2f", "/%zz", "/../x", "/moved?q", "/fixed", "/empty"] {
        check_same(at, &format!("GET {target}"), "");
        check_same(at, &format!("HEAD {target}"), "Connection: close\r\n");
    }
    assert_eq!(check_same(at, "GET /d/f", "Host: other\r\n").status, 400);
}

#[test]
fn answers_of_origins_are_the_same_on_both_ways() {
    let chunks = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, X-Two\r\n";
    let origin = Origin::start(move |request| match request.line().split(' ').nth(1).unwrap() {
        "/length" => origin::answer("200 Fine", "Cache-Control: no-store\r\n", &body(100_000)),
        "/empty" => origin::answer("200 OK", "", b""),
        "/204" => vec![Step::Send(b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n".to_vec())],
        "/299" => origin::answer("299 Odd", "", b"odd"),
        "/chunks" => vec![
            Step::Send(format!("HTTP/1.1 200 OK\r\n{chunks}\r\n5\r\nfirst\r\n").into_bytes()),
            Step::Pause(Duration::from_millis(30)),
            Step::Send(b"6\r\nsecond\r\n0\r\nX-Sum: 1\r\nX-Not: 2\r\n\r\n".to_vec()),
        ],
        "/close" => vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\nto the end".to_vec()), Step::Close],
        "/garbage" => vec![Step::Send(b"what?\r\n\r\n".to_vec()), Step::Close],
        _ => origin::answer("404 Not Found", "", b"none"),
    });
    let site = format!("route \"/*\" {{ cache \"off\"; proxy \"{}\"; }}", origin.url());
    let (_weir, address, admin) = start(&site);
    for target in
        ["/length", "/empty", "/204", "/299", "/chunks", "/close", "/garbage", "/none?a=b"]
    {
        for method in ["GET", "HEAD"] {
            if method == "HEAD" && ["/chunks", "/close", "/length", "/299"].contains(&target) {
                // This origin sends a body all the same.
                continue;
            }
            origin.take();
            check_same((address, admin), &format!("{method} {target}"), "X-Mine: 1\r\n");
            let received = origin.take();
            let first = received.first().map(|request| &request.head);
            assert!(received.iter().all(|request| Some(&request.head) == first), "{target}");
        }
    }
}

#[test]
fn trailers_and_beginnings_arrive_as_they_are_sent() {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        vec![
            Step::Send(head.into()),
            Step::Pause(Duration::from_millis(300)),
            Step::Send(b"5\r\nfirst\r\n".to_vec()),
            Step::Pause(Duration::from_millis(300)),
            Step::Send(b"0\r\nX-Sum: 1\r\nX-Not: 2\r\n\r\n".to_vec()),
        ]
    });
    let site = format!("route \"/*\" {{ cache \"off\"; proxy \"{}\"; }}", origin.url());
    let (_weir, address, _) = start(&site);
    let mut client = Client::connect(address).unwrap();
    let begun = Instant::now();
    client.send(&request("/", "Connection: close\r\n")).unwrap();
    client.head().unwrap();
    assert!(begun.elapsed() < Duration::from_millis(250), "the head waited for the body");
    assert_eq!(client.take(10).unwrap(), b"5\r\nfirst\r\n");
    assert!(begun.elapsed() < Duration::from_millis(550), "a piece waited for the next");
    assert_eq!(client.read_to_end().unwrap(), b"0\r\nx-sum: 1\r\n\r\n");
}

#[test]
fn a_client_that_goes_takes_its_request_along() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    // One that answers nothing, and one that never ends.
    let address_of = |beginning: &'static [u8]| {
        let sender = std::sync::Mutex::new(sender.lock().unwrap().clone());
        origin::raw(move |_, mut stream| {
            origin::read_head(&mut stream).unwrap();
            stream.write_all(beginning).unwrap();
            stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
            let _ = sender.lock().unwrap().send(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        })
    };
    let silent = address_of(b"");
    let endless = address_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    let route = |path: &str, origin: SocketAddr| {
        format!("route \"{path}\" {{ cache \"off\"; proxy \"http://{origin}\"; }}\n")
    };
    let (_weir, address, _) = start(&[route("/a", silent), route("/b", endless)].concat());
    for path in ["/a", "/b"] {
        let mut client = Client::connect(address).unwrap();
        client.send(&request(path, "")).unwrap();
        if path == "/b" {
            client.head().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        drop(client);
        let begun = Instant::now();
        assert_eq!(receiver.recv_timeout(common::PATIENCE), Ok(true), "{path}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{path}: noticed by a timeout");
    }
}

#[test]
fn what_depends_on_other_fields_is_told_apart() {
    let origin = Origin::start(|request| {
        let language = request.values("accept-language").join("");
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n";
        origin::answer("200 OK", fields, language.as_bytes())
    });
    let files = "route \"/files/*\" { files \".\" strip-prefix=#true precompressed=#true; }";
    let site = format!("{files}; route \"/*\" {{ cache; proxy \"{}\"; }}", origin.url());
    let (weir, address, _) = start(&site);
    std::fs::write(weir.directory().join("a.txt"), "plain").unwrap();
    std::fs::write(weir.directory().join("a.txt.gz"), "squeezed").unwrap();
    let_files_settle();
    let mut client = Client::connect(address).unwrap();
    for _ in 0..4 {
        for language in ["de", "en", ""] {
            let response = ask(&mut client, "/x", &format!("Accept-Language: {language}\r\n"));
            assert_eq!(response.body, language.as_bytes());
        }
        let response = ask(&mut client, "/files/a.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!(response.body, b"squeezed");
        assert_eq!(ask(&mut client, "/files/a.txt", "").body, b"plain");
    }
}

#[test]
fn requests_of_both_kinds_are_answered_in_order() {
    let (_weir, address, admin) = with_files(&[10, 100_000]);
    let mut client = Client::connect(address).unwrap();
    for size in [10, 100_000] {
        ask(&mut client, &format!("/{size}.bin"), "");
    }
    let batch = [
        request("/10.bin", ""),
        request("/100000.bin", ""),
        request("/10.bin", "Range: bytes=0-3\r\n"),
        request("/10.bin", BY_HYPER),
        request("/none", ""),
        request("/100000.bin", ""),
        request("/10.bin", "Connection: close\r\n"),
    ]
    .concat();
    let mut client = Client::connect(address).unwrap();
    client.send(&batch).unwrap();
    for (status, size) in
        [(200, 10), (200, 100_000), (206, 4), (200, 10), (404, 0), (200, 100_000), (200, 10)]
    {
        let response = client.response("GET").unwrap();
        assert_eq!(response.status, status);
        assert!(status == 404 || response.body == body(size), "{status} {size}");
    }
    assert!(client.is_closed());
    assert!(fast_requests(admin) >= 2, "the batch did not begin on the fast lane");
}

#[test]
fn a_connection_returns_to_the_fast_lane() {
    let (_weir, address, admin) = with_files(&[10]);
    let mut client = Client::connect(address).unwrap();
    for _ in 0..3 {
        ask(&mut client, "/10.bin", BY_HYPER);
    }
    assert_eq!(fast_requests(admin), 0);
    for _ in 0..6 {
        ask(&mut client, "/10.bin", "");
    }
    assert!(fast_requests(admin) > 0, "a connection that has been with hyper stays there");
}

#[test]
fn a_head_in_pieces_is_answered() {
    let (_weir, address, _) = with_files(&[10]);
    let whole = request("/10.bin", "User-Agent: a browser\r\n");
    let mut client = Client::connect(address).unwrap();
    for cut in [1, 4, 20, whole.len() - 1] {
        client.send(&whole[..cut]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        client.send(&whole[cut..]).unwrap();
        assert_eq!(client.response("GET").unwrap().body, body(10), "cut at {cut}");
    }
}

#[test]
fn a_changed_file_is_served_anew() {
    let (weir, address, admin) = with_files(&[]);
    let file = weir.directory().join("f");
    let mut client = Client::connect(address).unwrap();
    for version in 0..5 {
        let content = format!("version {version}");
        std::fs::write(&file, &content).unwrap();
        assert_eq!(ask(&mut client, "/f", "").body, content.as_bytes());
        let_files_settle();
        for _ in 0..6 {
            let response = ask(&mut client, "/f", "");
            assert_eq!(response.body, content.as_bytes());
        }
    }
    assert!(fast_requests(admin) > 0);
}

#[test]
fn the_access_log_tells_the_same_of_both_ways() {
    let (weir, address, admin) =
        start("access-log \"log\" format=\"json\"; route \"/*\" { files \".\"; }");
    std::fs::write(weir.directory().join("f"), body(9)).unwrap();
    let_files_settle();
    let fields = "User-Agent: \"x\"\r\nReferer: /r\r\nX-Forwarded-For: 192.0.2.7\r\n";
    for more in [BY_HYPER, NOT_PLAIN, "", BY_HYPER] {
        let mut client = Client::connect(address).unwrap();
        ask(&mut client, "/f?q=%20", &format!("{fields}{more}"));
    }
    assert_eq!(fast_requests(admin), 2);
    let log = weir.directory().join("log");
    let lines = common::wait_for(common::PATIENCE, || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() == 4).then(|| text.lines().map(str::to_owned).collect::<Vec<_>>())
    });
    let facts = |line: &str| {
        let mut entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let entry = entry.as_object_mut().unwrap();
        entry.retain(|name, _| !["time", "duration_us"].contains(&&**name));
        entry.clone()
    };
    let lines = lines.unwrap();
    assert_eq!(facts(&lines[1]), facts(&lines[2]));
    assert_eq!(facts(&lines[2]), facts(&lines[3]));
    assert_eq!(facts(&lines[1])["client"], "192.0.2.7");
}

#[test]
fn a_flood_of_requests_leaves_others_their_turn() {
    let (_weir, address, admin) = with_files(&[10]);
    let mut client = Client::connect(address).unwrap();
    ask(&mut client, "/10.bin", "");
    let mut flood = std::net::TcpStream::connect(address).unwrap();
    let mut answers = flood.try_clone().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let batch = request("/10.bin", "").repeat(1000);
    let sender = std::thread::spawn(move || {
        while !stop.load(Relaxed) && flood.write_all(&batch).is_ok() {}
        flood.shutdown(std::net::Shutdown::Both)
    });
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while answers.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    std::thread::sleep(Duration::from_millis(50));
    let before = fast_requests(admin);
    for _ in 0..20 {
        let begun = Instant::now();
        ask(&mut client, "/10.bin", "");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    assert!(fast_requests(admin) > before + 1000, "there was no flood");
    over.store(true, Relaxed);
    sender.join().unwrap().ok();
    reader.join().unwrap();
}
