//! Connections that wait, and connections that end: a kept connection gives up its buffers after a
//! second and must be none the worse for it; the last response travels with the end.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::client::Client;
use common::server::Weir;

/// Longer than a connection is idle before it rests, with the sweep that notices.
const REST: Duration = Duration::from_millis(1400);

/// A server with files on both sides of the size from which bodies go by sendfile.
fn with_files(sizes: &[usize]) -> (Weir, SocketAddr) {
    let front =
        Weir::front("server { workers 1; admin \"off\"; }", "route \"/*\" { files \".\"; }");
    for &size in sizes {
        std::fs::write(front.0.directory().join(format!("{size}.bin")), body(size)).unwrap();
    }
    front
}

fn body(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i / 7 % 251) as u8).collect()
}

fn request(size: usize, fields: &str) -> Vec<u8> {
    format!("GET /{size}.bin HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

#[test]
fn a_connection_that_has_rested_serves_as_before() {
    let (_weir, address) = with_files(&[500, 100_000]);
    let mut client = Client::connect(address).unwrap();
    for size in [500, 100_000, 500] {
        client.send(&request(size, "")).unwrap();
        assert!(client.response("GET").unwrap().body == body(size), "{size} bytes");
        std::thread::sleep(REST);
    }
    // Two at once, and one in two pieces, right after a rest.
    client.send(&[request(500, ""), request(100_000, "")].concat()).unwrap();
    assert!(client.response("GET").unwrap().body == body(500));
    assert!(client.response("GET").unwrap().body == body(100_000));
    std::thread::sleep(REST);
    let whole = request(500, "");
    client.send(&whole[..10]).unwrap();
    std::thread::sleep(REST);
    client.send(&whole[10..]).unwrap();
    assert!(client.response("GET").unwrap().body == body(500));
}

#[test]
fn a_response_that_is_still_being_sent_is_not_put_to_rest() {
    const LARGE: usize = 20_000_000;
    let (_weir, address) = with_files(&[LARGE]);
    let mut client = Client::connect(address).unwrap();
    client.send(&request(LARGE, "")).unwrap();
    std::thread::sleep(REST);
    assert!(client.response("GET").unwrap().body == body(LARGE));
}

#[test]
fn the_last_response_is_whole_whatever_its_size() {
    const SIZES: [usize; 6] = [0, 1, 500, 8_192, 8_193, 3_000_000];
    let (_weir, address) = with_files(&SIZES);
    for size in SIZES {
        // A miss, then hits, which are the ones that travel with the end.
        for _ in 0..3 {
            let mut client = Client::connect(address).unwrap();
            client.send(&request(size, "Connection: close\r\n")).unwrap();
            assert!(client.response("GET").unwrap().body == body(size), "{size} bytes");
            assert!(client.is_closed(), "{size} bytes");
        }
    }
}
