//! The PROXY protocol on a listener that asks for it: whose connection it is reaches the origin and
//! the log; whoever does not begin with a header is not served.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::client::Client;
use common::origin::{self, Origin};
use common::server::Weir;
use common::{PATIENCE, free_address, wait_for};
use tempfile::TempDir;

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: site.example\r\n\r\n";

struct Front {
    weir: Weir,
    address: SocketAddr,
    origin: Origin,
}

impl Front {
    fn start() -> Front {
        let origin = Origin::start(|_| origin::ok("hello"));
        let address = free_address();
        let config = format!(
            r#"
            server {{ workers 2; admin "off"; limits {{ header-timeout "500ms"; }}; }}
            site "*" {{
                listen "{address}" proxy-protocol=#true
                access-log "access.log" format="json"
                route "/*" {{ proxy "{}"; cache "off"; }}
            }}
            "#,
            origin.url()
        );
        let weir = Weir::run_in(TempDir::new().unwrap(), &config, &[address]);
        Front { weir, address, origin }
    }

    /// Client addresses in the access log, once it has `count` lines.
    fn logged(&self, count: usize) -> Vec<String> {
        let path = self.weir.directory().join("access.log");
        let lines = wait_for(PATIENCE, || {
            let text = std::fs::read_to_string(&path).ok()?;
            (text.lines().count() >= count).then_some(text)
        });
        let client = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            record["client"].as_str().unwrap().to_owned()
        };
        lines.expect("the log's lines").lines().map(client).collect()
    }
}

/// A version 2 header.
fn v2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    let prefix = [0x20 | command, family];
    [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &prefix, &length, addresses].concat()
}

#[test]
fn the_client_is_whom_the_header_names() {
    let front = Front::start();
    let ipv4 = [192, 0, 2, 9, 198, 51, 100, 1, 0x13, 0x88, 0x01, 0xbb];
    let mut ipv6 = [0u8; 36];
    ipv6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    ipv6[15] = 9;
    ipv6[16..20].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    ipv6[31] = 1;
    ipv6[34..].copy_from_slice(&8443u16.to_be_bytes());
    // An authority extension (type 2) of four bytes.
    let extended = [&ipv4[..], &[0x02, 0, 4], b"a.de"].concat();
    let own_port = front.address.port().to_string();
    let cases: &[(Vec<u8>, &str, &str)] = &[
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n".to_vec(), "192.0.2.7", "443"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 8080\r\n".to_vec(), "2001:db8::7", "8080"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", &own_port),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), "127.0.0.1", &own_port),
        (v2(1, 0x11, &ipv4), "192.0.2.9", "443"),
        (v2(1, 0x21, &ipv6), "2001:db8::9", "8443"),
        (v2(1, 0x11, &extended), "192.0.2.9", "443"),
        (v2(0, 0x00, &[]), "127.0.0.1", &own_port),
        (v2(0, 0x11, &ipv4), "127.0.0.1", &own_port),
    ];
    for (header, expected, port) in cases {
        let context = header.escape_ascii().to_string();
        // Header and request in one piece; twice, since a connection keeps its client.
        let mut client = Client::connect(front.address).unwrap();
        client.send(&[&header[..], REQUEST].concat()).unwrap();
        assert_eq!(client.response("GET").expect(&context).body, b"hello", "{context}");
        client.send(REQUEST).unwrap();
        assert_eq!(client.response("GET").expect(&context).body, b"hello", "{context}");
        // Byte by byte.
        let mut client = Client::connect(front.address).unwrap();
        for byte in header {
            client.send(&[*byte]).unwrap();
        }
        client.send(REQUEST).unwrap();
        assert_eq!(client.response("GET").expect(&context).body, b"hello", "{context}");
        let received = front.origin.take();
        assert_eq!(received.len(), 3, "{context}");
        for request in received {
            assert_eq!(request.values("x-forwarded-for"), [*expected], "{context}");
            assert_eq!(request.values("x-forwarded-port"), [*port], "{context}");
        }
    }
    let logged = front.logged(3 * cases.len());
    let expected: Vec<&str> = cases.iter().flat_map(|(_, client, _)| [*client; 3]).collect();
    let sorted = |mut clients: Vec<String>| {
        clients.sort();
        clients
    };
    // Workers write their lines by turns.
    assert_eq!(sorted(logged), sorted(expected.into_iter().map(str::to_owned).collect()));
}

#[test]
fn without_a_header_nobody_is_served() {
    let front = Front::start();
    let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
    let cases: &[&[u8]] = &[
        REQUEST,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000\r\n",
        b"PROXY TCP4 192.0.2.700 198.51.100.1 5000 443\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 5000 443\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 65536\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\n",
        b"proxy TCP4 192.0.2.7 198.51.100.1 5000 443\r\n",
        &long,
        &v2(2, 0x11, &[0; 12]),
        &v2(1, 0x11, &[0; 11]),
        &v2(1, 0x44, &[0; 12]),
    ];
    for case in cases {
        let context = case.escape_ascii().to_string();
        let mut client = Client::connect(front.address).unwrap();
        // The server may close before all of it is sent.
        let _ = client.send(&[case, REQUEST].concat());
        assert!(client.is_closed(), "{context}");
    }
    // One that stops in its middle is not waited for for long.
    let mut client = Client::connect(front.address).unwrap();
    client.set_patience(Duration::from_secs(5));
    client.send(b"PROXY TCP4 192.0.2.7").unwrap();
    let rest = client.read_to_end().unwrap();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "), "{}", rest.escape_ascii());
    assert!(front.origin.take().is_empty(), "nothing reached the origin");
    // A second header is no request.
    let mut client = Client::connect(front.address).unwrap();
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n";
    client.send(&[header.as_slice(), header, REQUEST].concat()).unwrap();
    let answer = client.read_to_end().unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
    assert!(front.origin.take().is_empty(), "nothing reached the origin");
}
