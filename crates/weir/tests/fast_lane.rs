//! The fast lane, on which plain hits are answered without hyper: nobody can tell the difference,
//! and whatever is not plain leaves it with nothing lost.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::client::{Client, Response};
use common::origin::{self, Origin};
use common::server::Weir;

/// A field that makes a request more than plain and changes nothing about its answer.
const NOT_PLAIN: &str = "Pragma: x\r\n";

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

/// Asks for a stored response both ways, on kept and on closing connections.
#[track_caller]
fn check_same((address, admin): (SocketAddr, SocketAddr), target: &str) {
    let mut client = Client::connect(address).unwrap();
    ask(&mut client, target, NOT_PLAIN);
    for fields in ["", "Connection: close\r\n", "User-Agent: x\r\nAccept-Encoding: gzip\r\n"] {
        let mut fast = Client::connect(address).unwrap();
        let mut full = Client::connect(address).unwrap();
        let before = fast_requests(admin);
        let by_fast = ask(&mut fast, target, fields);
        assert_eq!(fast_requests(admin), before + 1, "{target} with {fields:?}");
        let by_full = ask(&mut full, target, &format!("{fields}{NOT_PLAIN}"));
        assert_eq!(fast_requests(admin), before + 1, "{target} with {fields:?}");
        assert_eq!(timeless(&by_fast), timeless(&by_full), "{target} with {fields:?}");
        for name in ["date", "age", "cache-status"] {
            assert_eq!(by_fast.header(name).is_some(), by_full.header(name).is_some(), "{name}");
        }
        assert!(by_fast.header("cache-status").unwrap().starts_with("weir; hit"));
        if by_fast.says_close() {
            assert!(fast.is_closed() && full.is_closed());
        }
    }
}

#[test]
fn a_stored_file_is_the_same_on_both_ways() {
    const SIZES: [usize; 6] = [0, 1, 1500, 8192, 8193, 3_000_000];
    let (_weir, address, admin) = with_files(&SIZES);
    for size in SIZES {
        check_same((address, admin), &format!("/{size}.bin"));
    }
    check_same((address, admin), "/x/../%31.bin?query=1");
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
        check_same((address, admin), "/a");
        check_same((address, admin), "/a?b=c");
        let mut client = Client::connect(address).unwrap();
        let response = ask(&mut client, "/a", "");
        assert_eq!(response.header("x-new"), edits.contains("set").then_some("1"));
        assert_eq!(response.header("x-gone").is_none(), edits.contains("remove"));
    }
}

#[test]
fn what_depends_on_other_fields_is_not_answered_on_the_fast_lane() {
    let origin = Origin::start(|request| {
        let language = request.values("accept-language").join("");
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n";
        origin::answer("200 OK", fields, language.as_bytes())
    });
    let files = "route \"/files/*\" { files \".\" strip-prefix=#true precompressed=#true; }";
    let site = format!("{files}; route \"/*\" {{ cache; proxy \"{}\"; }}", origin.url());
    let (weir, address, admin) = start(&site);
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
    assert_eq!(fast_requests(admin), 0);
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
        request("/10.bin", ""),
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
    ask(&mut client, "/10.bin", "");
    for _ in 0..3 {
        ask(&mut client, "/10.bin", NOT_PLAIN);
    }
    assert_eq!(fast_requests(admin), 0);
    for _ in 0..3 {
        ask(&mut client, "/10.bin", "");
    }
    assert!(fast_requests(admin) > 0, "a connection with a miss stays away for good");
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
    let mut client = Client::connect(address).unwrap();
    for more in [NOT_PLAIN, NOT_PLAIN, ""] {
        let mut client = Client::connect(address).unwrap();
        ask(&mut client, "/f?q=%20", &format!("{fields}{more}"));
    }
    assert_eq!(fast_requests(admin), 1);
    ask(&mut client, "/none", "");
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
    assert_eq!(facts(&lines[1])["client"], "192.0.2.7");
}
