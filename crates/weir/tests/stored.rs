//! What is answered out of stored and arriving bodies: ranges, conditions, HEAD; what a key is; and
//! what makes room for what.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::{self, Client, Response};
use common::origin::{Origin, Received, Step, answer};
use common::server::{Weir, front_config};
use common::{PATIENCE, free_address};
use rcgen::{CertificateParams, KeyPair};

const FRESH: &str = "Cache-Control: max-age=600\r\n";

fn counting(
    script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
) -> (Origin, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let origin = Origin::start(move |request| {
        counted.fetch_add(1, SeqCst);
        script(request)
    });
    (origin, count)
}

fn front(origin: &Origin, rest: &str) -> (Weir, SocketAddr) {
    Weir::front(rest, &format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url()))
}

fn get(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Response {
    client::ask(address, "GET", target, fields)
}

/// A response with validators and a body of 2,000 numbered bytes.
fn numbered() -> (String, Vec<u8>) {
    let fields = format!("{FRESH}ETag: \"v1\"\r\nLast-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n");
    (fields, (0..2000_u32).map(|n| (n % 251) as u8).collect())
}

#[test]
fn stored_responses_answer_ranges_conditions_and_head() {
    let (fields, body) = numbered();
    let sent = body.clone();
    let (origin, count) = counting(move |_| answer("200 OK", &fields, &sent));
    let (_weir, address) = front(&origin, "");
    get(address, "/a", &[]);
    answers_selections(address, &body);
    let head = client::ask(address, "HEAD", "/a", &[]);
    assert_eq!((head.status, head.header("content-length")), (200, Some("2000")));
    assert_eq!(head.header("etag"), Some("\"v1\""));
    assert_eq!(count.load(SeqCst), 1, "the origin was asked for what is stored");
}

/// Ranges and conditions on `/a`, which has `body`.
fn answers_selections(address: SocketAddr, body: &[u8]) {
    let check = |fields: &[(&str, &str)], status: u16, range: Option<&str>, expect: &[u8]| {
        let got = get(address, "/a", fields);
        assert_eq!((got.status, got.header("content-range")), (status, range), "{fields:?}");
        assert!(got.body == expect, "{fields:?}: {} bytes", got.body.len());
    };
    let range = |range: &'static str| ("Range", range);
    check(&[range("bytes=10-19")], 206, Some("bytes 10-19/2000"), &body[10..20]);
    check(&[range("bytes=1990-")], 206, Some("bytes 1990-1999/2000"), &body[1990..]);
    check(&[range("bytes=-5")], 206, Some("bytes 1995-1999/2000"), &body[1995..]);
    check(&[range("bytes=0-9999")], 206, Some("bytes 0-1999/2000"), body);
    check(&[range("lines=1-2")], 200, None, body);
    check(&[range("bytes=0-1"), ("If-Range", "\"v1\"")], 206, Some("bytes 0-1/2000"), &body[..2]);
    check(&[range("bytes=0-1"), ("If-Range", "\"v0\"")], 200, None, body);
    check(&[("If-None-Match", "\"v0\", W/\"v1\"")], 304, None, b"");
    check(&[("If-None-Match", "\"v0\"")], 200, None, body);
    check(&[("If-Modified-Since", "Sun, 02 Jan 2000 00:00:00 GMT")], 304, None, b"");
    check(&[("If-Modified-Since", "Fri, 31 Dec 1999 00:00:00 GMT")], 200, None, body);
    check(&[("If-Match", "\"v1\"")], 200, None, body);
    let failed = get(address, "/a", &[("If-Match", "\"v0\"")]);
    assert_eq!(failed.status, 412);
    let beyond = get(address, "/a", &[range("bytes=2000-")]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */2000")));
}

#[test]
fn several_ranges_come_in_parts() {
    let (fields, body) = numbered();
    let sent = body.clone();
    let (origin, _) = counting(move |_| answer("200 OK", &fields, &sent));
    let (_weir, address) = front(&origin, "");
    get(address, "/a", &[]);
    let got = get(address, "/a", &[("Range", "bytes=0-1,100-102")]);
    assert_eq!(got.status, 206);
    let kind = got.header("content-type").unwrap();
    let boundary = kind.split("boundary=").nth(1).unwrap().trim_matches('"');
    for (first, last) in [(0, 1), (100, 102)] {
        let range = format!("Content-Range: bytes {first}-{last}/2000").to_lowercase();
        let part = [b"\r\n\r\n", &body[first..=last], b"\r\n--", boundary.as_bytes()].concat();
        let text = String::from_utf8_lossy(&got.body).to_lowercase();
        assert!(text.contains(&range), "{text}");
        assert!(client::find(&got.body, &part).is_some(), "{first}-{last} is not there");
    }
}

#[test]
fn a_body_that_is_arriving_answers_ranges_and_conditions() {
    let (fields, body) = numbered();
    let sent = body.clone();
    let pause = Duration::from_millis(1500);
    let (origin, count) = counting(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2000\r\n\r\n");
        let first = [head.as_bytes(), &sent[..1000]].concat();
        vec![Step::Send(first), Step::Pause(pause), Step::Send(sent[1000..].to_vec())]
    });
    let (_weir, address) = front(&origin, "");
    let mut leader = Client::connect(address).unwrap();
    leader.send(b"GET /a HTTP/1.1\r\nHost: site.example\r\n\r\n").unwrap();
    let start = Instant::now();
    leader.head().unwrap();
    // What has arrived is there at once.
    assert_eq!(leader.take(1000).unwrap(), &body[..1000]);
    let part = get(address, "/a", &[("Range", "bytes=10-19")]);
    assert_eq!((part.status, &part.body[..]), (206, &body[10..20]));
    assert_eq!(get(address, "/a", &[("If-None-Match", "\"v1\"")]).status, 304);
    assert_eq!(get(address, "/a", &[("If-Match", "\"v0\"")]).status, 412);
    assert!(start.elapsed() < pause, "waited for the whole body");
    // What has not is waited for.
    answers_selections(address, &body);
    assert_eq!(leader.take(1000).unwrap(), &body[1000..]);
    assert_eq!(count.load(SeqCst), 1);
}

/// A client that trusts one certificate; what it reads until the end.
fn get_by_tls(address: SocketAddr, certificate: &[u8], target: &str) -> String {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "site.example".try_into().unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = String::new();
    let _ = stream.read_to_string(&mut got);
    got
}

#[test]
fn keys_are_scheme_host_path_and_query() {
    let (origin, count) = counting(|request| {
        let proto = request.values("x-forwarded-proto").concat();
        let body = format!("{} {} {proto}", request.line(), request.values("host").concat());
        answer("200 OK", FRESH, body.as_bytes())
    });
    let directory = tempfile::TempDir::new().unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["site.example".into()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.path().join("site.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.path().join("site.key"), key.serialize_pem()).unwrap();
    let (address, secure) = (free_address(), free_address());
    let site = format!(
        r#"listen "{secure}" tls="auto"; certificate "site.pem" key="site.key"
        route "/*" {{ proxy "{}"; }}"#,
        origin.url()
    );
    let config = front_config(address, "", &site);
    let _weir = Weir::run_in(directory, &config, &[address, secure]);
    let asks = |target: &str, host: &str| {
        let before = count.load(SeqCst);
        let body = get(address, target, &[("Host", host)]).body;
        (String::from_utf8(body).unwrap(), count.load(SeqCst) > before)
    };
    let distinct = ["/a", "/a?", "/a?x=1", "/a?x=2", "/a?x=1&y", "/A", "/a/"];
    for target in distinct {
        let (body, asked) = asks(target, "site.example");
        assert!(asked && body.contains(&format!(" {target} ")), "{target}: {body}");
    }
    assert!(asks("/a", "other.example").1, "hosts share a key");
    for target in distinct {
        assert!(!asks(target, "site.example").1, "{target} is not stored");
    }
    assert!(!asks("/a", "SITE.Example").1, "the same host in other letters");
    let secret = get_by_tls(secure, certificate.der(), "/a");
    assert!(secret.ends_with("GET /a HTTP/1.1 site.example https"), "{secret}");
    assert!(asks("/a", "site.example").0.ends_with(" http"));
    let secret = get_by_tls(secure, certificate.der(), "/a").to_lowercase();
    assert!(secret.contains("cache-status: weir; hit"), "{secret}");
}

#[test]
fn large_objects_do_not_push_out_small_ones() {
    let (origin, count) = counting(|request| match request.line().contains("/small") {
        true => answer("200 OK", FRESH, &[b's'; 500]),
        false => answer("200 OK", FRESH, &[b'l'; 200 << 10]),
    });
    let (_weir, address) = front(&origin, "cache { memory \"2MiB\"; object-max \"1MiB\"; }");
    let mut client = Client::connect(address).unwrap();
    let mut asks = |target: String| {
        let before = count.load(SeqCst);
        assert_eq!(client.ask("GET", &target, &[]).unwrap().status, 200);
        count.load(SeqCst) > before
    };
    for _ in 0..2 {
        let _asked = (0..50).filter(|n| asks(format!("/small/{n}"))).count();
    }
    // Ten times what there is room for.
    (0..100).for_each(|n| assert!(asks(format!("/large/{n}"))));
    let lost = (0..50).filter(|n| asks(format!("/small/{n}"))).count();
    assert_eq!(lost, 0, "small and often used ones were evicted");
    assert!(asks("/large/0".to_owned()), "a large one was never evicted");
}

#[test]
fn what_is_larger_than_object_max_passes_through() {
    let (origin, count) = counting(|request| {
        let body = vec![b'x'; if request.line().contains("/large") { 200_000 } else { 100_000 }];
        match request.line().contains("chunked") {
            false => answer("200 OK", FRESH, &body),
            true => {
                let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n");
                let size = format!("{:x}\r\n", body.len());
                let all = [head.as_bytes(), size.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
                vec![Step::Send(all)]
            }
        }
    });
    let (_weir, address) = front(&origin, "cache { memory \"8MiB\"; object-max \"128KiB\"; }");
    let check = |target: &str, len: usize, stored: bool| {
        let before = count.load(SeqCst);
        for _ in 0..2 {
            let got = get(address, target, &[]);
            assert!(got.body.len() == len && got.body.iter().all(|&b| b == b'x'), "{target}");
        }
        assert_eq!(count.load(SeqCst) - before == 1, stored, "{target}");
    };
    check("/fits", 100_000, true);
    check("/large", 200_000, false);
    check("/chunked/fits", 100_000, true);
    check("/chunked/large", 200_000, false);
}

fn weir(directory: &Path, admin: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(directory).args(arguments).args(["--admin", &admin.to_string()]);
    command.output().unwrap()
}

#[test]
fn a_purge_removes_what_it_names() {
    let (origin, count) = counting(|_| answer("200 OK", FRESH, b"x"));
    let (address, admin) = (free_address(), free_address());
    let route = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
    let config = front_config(address, &format!("server {{ admin \"{admin}\"; }}"), &route);
    let server = Weir::run(&config, &[address, admin]);
    let refetched = || {
        let stored = |target: &&str| {
            let before = count.load(SeqCst);
            get(address, target, &[]);
            count.load(SeqCst) > before
        };
        ["/a", "/a?q", "/b"].into_iter().filter(stored).collect::<Vec<_>>()
    };
    let purge = |arguments: &[&str]| {
        let output = weir(server.directory(), admin, &[&["purge"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    assert_eq!(refetched(), ["/a", "/a?q", "/b"]);
    assert_eq!(refetched(), [""; 0]);
    purge(&[&format!("http://site.example:{}/a", address.port())]);
    assert_eq!(refetched(), ["/a"]);
    purge(&["http://site.example/a?q"]);
    assert_eq!(refetched(), ["/a?q"]);
    purge(&["--soft", "http://site.example/b"]);
    assert_eq!(refetched(), ["/b"]);
    purge(&["--site", "*"]);
    assert_eq!(refetched(), ["/a", "/a?q", "/b"]);
    purge(&["--all"]);
    assert_eq!(refetched(), ["/a", "/a?q", "/b"]);
    let missing = weir(server.directory(), admin, &["purge", "--site", "nowhere.example"]);
    assert!(!missing.status.success());
}
