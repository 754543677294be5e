//! TLS listeners: which certificate is shown, when a changed one is, which protocol is spoken, and
//! what becomes of clients that do not shake hands.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "tls/client.rs"]
mod tls_client;

use std::path::Path;
use std::time::{Duration, Instant};

use common::client::Client;
use common::origin::{self, Origin};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tls_client::{get, handshake};

/// Changed files are looked for once a second.
const RELOAD_MAX: Duration = Duration::from_secs(5);

/// Writes `NAME.pem` and `NAME.key` for these host names, and returns the certificate.
fn issue(directory: &Path, name: &str, hosts: &[&str]) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let certificate = CertificateParams::new(hosts).unwrap().self_signed(&key).unwrap();
    // Renamed into place, so that a reader sees an old file or a new one.
    for (ending, text) in [("pem", certificate.pem()), ("key", key.serialize_pem())] {
        let path = directory.join(format!("{name}.{ending}"));
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
    }
    certificate.der().to_vec()
}

fn config(address: std::net::SocketAddr, more: &str) -> String {
    format!(
        r#"
        server {{ workers 2; admin "off"; limits {{ {more} }}; }}
        site "a.example" {{
            listen "{address}" tls="auto"
            certificate "a.pem" key="a.key"
            route "/*" {{ files "."; }}
        }}
        site "b.example" "*.b.example" {{
            listen "{address}" tls="auto"
            certificate "b.pem" key="b.key"
            route "/*" {{ respond "b"; }}
        }}
        "#
    )
}

#[test]
fn the_name_asked_for_chooses_the_certificate() {
    let directory = TempDir::new().unwrap();
    let a = issue(directory.path(), "a", &["a.example"]);
    let b = issue(directory.path(), "b", &["b.example", "*.b.example"]);
    let address = free_address();
    let _weir = Weir::run_in(directory, &config(address, ""), &[address]);
    for (name, expected) in [
        ("a.example", &a),
        ("b.example", &b),
        ("x.b.example", &b),
        ("A.Example", &a),
        ("unknown.example", &a),
        // No name is sent for an address.
        ("127.0.0.1", &a),
    ] {
        let shaken = handshake(address, name, &[]).unwrap();
        assert!(shaken.certificate == **expected, "{name}");
    }
    assert_eq!(get(address, "b.example", "/", &[]).unwrap().body, b"b");
    // Another site's name within the connection: that site answers, for it listens here too.
    assert_eq!(get(address, "a.example", "/", &[]).unwrap().status, 404);
}

#[test]
fn the_protocol_is_negotiated() {
    let directory = TempDir::new().unwrap();
    issue(directory.path(), "a", &["a.example"]);
    issue(directory.path(), "b", &["b.example"]);
    let content: Vec<u8> = (0..3_000_000).map(|i| (i / 253 + i % 253) as u8).collect();
    std::fs::write(directory.path().join("large"), &content).unwrap();
    let address = free_address();
    let _weir = Weir::run_in(directory, &config(address, ""), &[address]);
    let check = |offered: &[&str], agreed: Option<&str>, version: &str| {
        let shaken = handshake(address, "a.example", offered).unwrap();
        assert_eq!(shaken.protocol.as_deref(), agreed, "{offered:?}");
        for turn in 0..2 {
            let response = get(address, "a.example", "/large", offered).unwrap();
            assert_eq!((response.status, &*response.version), (200, version), "{offered:?}");
            assert!(response.body == content, "{offered:?} {turn}: wrong bytes");
        }
    };
    check(&["h2", "http/1.1"], Some("h2"), "HTTP/2.0");
    check(&["http/1.1", "h2"], Some("h2"), "HTTP/2.0");
    check(&["h2"], Some("h2"), "HTTP/2.0");
    check(&["http/1.1"], Some("http/1.1"), "HTTP/1.1");
    check(&[], None, "HTTP/1.1");
    // None in common (RFC 7301 section 3.2).
    assert!(handshake(address, "a.example", &["spdy/3"]).is_err());
}

#[test]
fn changed_certificates_are_shown_without_a_restart() {
    let directory = TempDir::new().unwrap();
    let old = issue(directory.path(), "a", &["a.example"]);
    issue(directory.path(), "b", &["b.example"]);
    let address = free_address();
    let weir = Weir::run_in(directory, &config(address, ""), &[address]);
    let shown = || handshake(address, "a.example", &[]).unwrap().certificate;
    let shows = |expected: &[u8]| wait_for(RELOAD_MAX, || (shown() == expected).then_some(()));
    assert!(shown() == old);
    let mut kept = handshake(address, "a.example", &[]).unwrap();
    let new = issue(weir.directory(), "a", &["a.example"]);
    let began = Instant::now();
    assert!(shows(&new).is_some(), "the new one:\n{}", weir.log());
    println!("shown after {:?}", began.elapsed());
    // Connections that were there go on.
    assert!(kept.get("/").unwrap().starts_with(b"HTTP/1.1 404 "));

    // A key that does not fit, or no key at all, changes nothing and is said.
    let key = weir.directory().join("a.key");
    let good = std::fs::read(&key).unwrap();
    for bad in [KeyPair::generate().unwrap().serialize_pem(), "not a key".to_owned()] {
        let before = weir.log().matches("a.key").count();
        std::fs::write(&key, bad).unwrap();
        let said =
            wait_for(RELOAD_MAX, || (weir.log().matches("a.key").count() > before).then_some(()));
        assert!(said.is_some(), "not a word of it:\n{}", weir.log());
        assert!(shown() == new);
    }
    std::fs::write(&key, good).unwrap();
    let last = issue(weir.directory(), "a", &["a.example"]);
    assert!(shows(&last).is_some(), "the last one:\n{}", weir.log());
}

#[test]
fn a_certificate_is_made_on_request() {
    let address = free_address();
    let config = format!(
        r#"
        server {{ workers 1; admin "off"; }}
        site "dev.example" "*.dev.example" {{
            listen "{address}" tls="self-signed"
            route "/*" {{ respond "secret"; }}
        }}
        "#
    );
    let weir = Weir::run(&config, &[address]);
    weir.wait_for_log("self-signed");
    for host in ["dev.example", "x.dev.example", "localhost", "127.0.0.1"] {
        let shaken = handshake(address, host, &[]).unwrap();
        tls_client::verify_own(&shaken.certificate, host).unwrap_or_else(|e| panic!("{host}: {e}"));
    }
    let shaken = handshake(address, "dev.example", &[]).unwrap();
    assert!(tls_client::verify_own(&shaken.certificate, "other.example").is_err());
    assert_eq!(get(address, "dev.example", "/", &[]).unwrap().body, b"secret");
}

#[test]
fn a_bad_certificate_ends_the_start_with_its_name() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    issue(directory, "a", &["a.example"]);
    issue(directory, "b", &["b.example"]);
    std::fs::write(directory.join("weir.kdl"), config(free_address(), "")).unwrap();
    let good = |ending: &str| std::fs::read(directory.join(format!("b.{ending}"))).unwrap();
    let (chain, key) = (good("pem"), good("key"));
    let check = |chain: Option<&[u8]>, key: Option<&[u8]>, expected: &str| {
        for (ending, content) in [("pem", chain), ("key", key)] {
            let path = directory.join(format!("b.{ending}"));
            match content {
                Some(content) => std::fs::write(path, content).unwrap(),
                None => std::fs::remove_file(path).unwrap(),
            }
        }
        let output = command(directory, &["run", "weir.kdl"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("weir: ") && text.contains(expected), "no {expected:?} in\n{text}");
        assert!(!text.contains("panicked"), "{text}");
    };
    let other = std::fs::read(directory.join("a.key")).unwrap();
    check(Some(&chain), Some(&other), "b.key");
    check(Some(&chain), Some(b""), "b.key");
    check(
        Some(&chain),
        Some(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        "b.key",
    );
    check(Some(b"no certificate"), Some(&key), "b.pem");
    check(Some(&key), Some(&key), "b.pem");
    check(None, Some(&key), "b.pem");
    check(Some(&chain), None, "b.key");
}

#[test]
fn clients_that_do_not_shake_hands_are_let_go() {
    let directory = TempDir::new().unwrap();
    issue(directory.path(), "a", &["a.example"]);
    issue(directory.path(), "b", &["b.example"]);
    let address = free_address();
    let limits = "header-timeout \"400ms\"; idle-timeout \"400ms\"";
    let mut weir = Weir::run_in(directory, &config(address, limits), &[address]);
    // HTTP in clear on a TLS port: an alert at most, no answer in clear, and the end.
    let mut plain = Client::connect(address).unwrap();
    plain.send(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
    let rest = plain.read_to_end().unwrap_or_default();
    assert!(rest.is_empty() || rest[0] == 21, "{}", rest.escape_ascii());
    // The beginning of a ClientHello and then nothing, or a byte now and then.
    let mut silent = Client::connect(address).unwrap();
    silent.send(b"\x16\x03\x01\x02\x00\x01\x00\x01").unwrap();
    let began = Instant::now();
    assert_eq!(silent.read_to_end().unwrap_or_default(), b"", "nothing in clear");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let mut slow = Client::connect(address).unwrap();
    slow.send(b"\x16\x03\x01\x02\x00\x01\x00\x01").unwrap();
    slow.set_patience(Duration::from_millis(50));
    let gone = wait_for(Duration::from_secs(5), || {
        (slow.send(b"\0").is_err() || slow.is_closed()).then_some(())
    });
    assert!(gone.is_some(), "still there");
    // A connection that has shaken hands and asks for nothing, or not again.
    let mut idle = handshake(address, "a.example", &["http/1.1"]).unwrap();
    assert!(idle.is_ended(Duration::from_secs(5)), "never asked");
    let mut idle = handshake(address, "a.example", &["http/1.1"]).unwrap();
    assert!(idle.get("/").unwrap().starts_with(b"HTTP/1.1 404 "));
    assert!(idle.is_ended(Duration::from_secs(5)), "asked once");
    assert!(weir.is_running());
    assert_eq!(get(address, "b.example", "/", &[]).unwrap().body, b"b");
}

#[test]
fn a_proxy_header_comes_before_the_handshake() {
    let directory = TempDir::new().unwrap();
    issue(directory.path(), "a", &["a.example"]);
    let origin = Origin::start(|_| origin::ok("hello"));
    let address = free_address();
    let config = format!(
        r#"
        server {{ workers 1; admin "off"; }}
        site "a.example" {{
            listen "{address}" tls="auto" proxy-protocol=#true
            certificate "a.pem" key="a.key"
            route "/*" {{ proxy "{}"; cache "off"; }}
        }}
        "#,
        origin.url()
    );
    let mut weir = Weir::run_in(directory, &config, &[address]);
    assert!(handshake(address, "a.example", &[]).is_err(), "no header");
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n";
    let mut shaken = tls_client::handshake_after(header, address, "a.example", &[]).unwrap();
    assert!(shaken.get("/x").unwrap().ends_with(b"hello"));
    let received = origin.take();
    assert_eq!(received[0].values("x-forwarded-for"), ["192.0.2.7"]);
    assert_eq!(received[0].values("x-forwarded-proto"), ["https"]);
    // An idle connection does not hold up a stop.
    let began = Instant::now();
    assert!(weir.stop().success());
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}
