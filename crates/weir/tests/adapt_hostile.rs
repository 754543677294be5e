//! What is meant to hurt those who adapt it, and helpers that end at the worst moment: clients get
//! the original, byte for byte, and the server goes on.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use common::client::{Response, ask};
use common::origin::{Origin, Received, Step, answer};
use common::server::Weir;
use common::{PATIENCE, wait_for};

const HTML: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: text/html\r\n";
const RULES: &str = "html stream=#false { remove \".banner\" }";
const PAGE: &[u8] = b"<html><body><p class=banner>Buy</p><p>Water</p></body></html>";

/// More than 500 times what codings make of it, and less than helpers may have.
const BOMB_BYTES: usize = 64 << 20;

/// A server whose origin answers every path by `script`.
fn front(
    script: impl Fn(&str) -> Vec<Step> + Send + Sync + 'static,
    adapt: &str,
    lines: &str,
) -> (Origin, Weir, SocketAddr) {
    let target = |request: &Received| request.line().split(' ').nth(1).unwrap().to_owned();
    let origin = Origin::start(move |request| script(&target(request)));
    let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
    let (weir, address) = Weir::front(adapt, &site);
    (origin, weir, address)
}

fn get(address: SocketAddr, target: &str, accept: &str) -> Response {
    ask(address, "GET", target, &[("accept-encoding", accept)])
}

/// Asks until `is_settled` is true of what a response says of itself.
fn until(
    address: SocketAddr,
    target: &str,
    accept: &str,
    is_settled: impl Fn(&str) -> bool,
) -> Response {
    let known = wait_for(PATIENCE, || {
        let response = get(address, target, accept);
        let word = response.header("weir-adapt").unwrap_or_default().to_owned();
        is_settled(&word).then_some(response)
    });
    known.unwrap_or_else(|| panic!("{target}: {:?}", get(address, target, accept).headers))
}

/// Asks until it is known what becomes of a response.
fn settled(address: SocketAddr, target: &str, accept: &str) -> Response {
    let pending = ["original;reason=pending", "original;reason=not-stored"];
    until(address, target, accept, |word| !pending.contains(&word) && !word.ends_with(";stream"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    let mut encoder = brotli::CompressorWriter::new(&mut coded, 4096, 4, 22);
    encoder.write_all(bytes).unwrap();
    drop(encoder);
    coded
}

fn zstd(bytes: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn bombs_of_every_coding_stay_as_they_came() {
    let page = PAGE.repeat(100);
    let spaces = vec![b' '; BOMB_BYTES];
    let twice = gzip(&gzip(&spaces));
    let mixed = brotli(&gzip(&spaces));
    let torn = |coded: Vec<u8>| coded[..coded.len() / 2].to_vec();
    let more = |coded: Vec<u8>| [&coded[..], b"and more"].concat();
    let coded: HashMap<&str, (&str, Vec<u8>)> = [
        ("/gzip", ("gzip", gzip(&spaces))),
        ("/br", ("br", brotli(&spaces))),
        ("/zstd", ("zstd", zstd(&spaces, 21))),
        ("/twice", ("gzip, gzip", twice.clone())),
        ("/mixed", ("gzip, br", mixed)),
        ("/thrice", ("gzip, gzip, gzip", gzip(&twice))),
        ("/window", ("zstd", zstd(&page, 27))),
        ("/torn-gzip", ("gzip", torn(gzip(&page)))),
        ("/torn-br", ("br", torn(brotli(&page)))),
        ("/torn-zstd", ("zstd", torn(zstd(&page, 21)))),
        ("/more-br", ("br", more(brotli(&page)))),
        ("/more-zstd", ("zstd", more(zstd(&page, 21)))),
        ("/other", ("br", gzip(&page))),
    ]
    .into();
    let targets: Vec<&str> = coded.keys().copied().collect();
    let originals = coded.clone();
    let served = move |target: &str| match coded.get(target) {
        Some((coding, body)) => {
            answer("200 OK", &format!("{HTML}Content-Encoding: {coding}\r\n"), body)
        }
        None => answer("200 OK", HTML, PAGE),
    };
    let (_origin, mut weir, address) = front(served, "", RULES);
    for target in targets {
        let (coding, original) = &originals[target];
        let response = settled(address, target, "gzip, br, zstd");
        // What is coded too often is no business of adapters at all.
        let word = (target != "/thrice").then_some("original;reason=failed");
        assert_eq!(response.header("weir-adapt"), word, "{target}");
        assert_eq!(response.header("content-encoding"), Some(*coding), "{target}");
        assert_eq!(response.header("etag"), Some("\"v1\""), "{target}");
        assert!(response.body == *original, "{target}");
    }
    weir.wait_for_log("decoded, it is more than 500 times larger");
    let page = settled(address, "/page", "identity");
    assert_eq!(page.header("weir-adapt"), Some("html;changed=1"));
    assert!(weir.is_running() && !weir.log().contains("panicked"), "{}", weir.log());
}

/// Texts that differ by their path.
fn text(target: &str) -> Vec<Step> {
    let line = |number| format!("{target} {number}: water runs down to the weir.\n");
    answer("200 OK", HTML, (0..2_000).map(line).collect::<String>().as_bytes())
}

fn signal(pid: i32, signal: Signal) {
    // One that has just ended needs none.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Waits for a variant.
fn variant(address: SocketAddr, target: &str) -> Response {
    until(address, target, "gzip", |word| word.starts_with("gzip") && !word.ends_with(";stream"))
}

/// The only helper of a server, when it has something to do no longer.
fn only_helper(weir: &Weir, address: SocketAddr) -> i32 {
    variant(address, "/first");
    let helpers = weir.helpers();
    assert_eq!(helpers.len(), 1, "{helpers:?}");
    helpers[0]
}

#[test]
fn a_helper_that_is_killed_at_its_work_is_replaced_and_the_work_done() {
    let (_origin, weir, address) =
        front(text, "adapt { helpers 1 }", "compress \"gzip\" stream=#false");
    let helper = only_helper(&weir, address);
    // Stopped, it has the job and does not finish it.
    signal(helper, Signal::STOP);
    let pending = until(address, "/second", "gzip", |word| word.ends_with("pending"));
    assert_eq!(pending.header("content-encoding"), None);
    signal(helper, Signal::KILL);
    assert!(variant(address, "/second").header("etag").unwrap().starts_with("\"v1-gzip9-"));
    assert_ne!(weir.helpers(), [helper]);
    weir.wait_for_log("a helper is ended that had to adapt a response");
}

#[test]
fn helpers_that_are_killed_whenever_there_is_one_leave_the_original() {
    // Long enough at its work to be killed at it: numbers, which are not guessed, and a level that
    // no quicker one goes before.
    let numbers: String = (0..500_000_u32).map(|n| format!("{:x} ", n.wrapping_mul(n))).collect();
    let served = move |target: &str| match target {
        "/large" => answer("200 OK", HTML, numbers.as_bytes()),
        _ => text(target),
    };
    let compress = "compress \"gzip\" \"br:6\" stream=#false";
    let (_origin, mut weir, address) = front(served, "adapt { helpers 1 }", compress);
    let original = get(address, "/large", "identity").body;
    let given_up = wait_for(PATIENCE, || {
        weir.helpers().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        let response = get(address, "/large", "br");
        assert!(response.status == 200 && response.body == original, "{:?}", response.headers);
        let word = response.header("weir-adapt").unwrap_or_default().to_owned();
        (word == "original;reason=quarantined").then_some(())
    });
    assert!(given_up.is_some(), "{}", weir.log());
    // Others have theirs.
    assert_eq!(variant(address, "/other").status, 200);
    assert!(weir.is_running());
}

#[test]
fn a_helper_that_hangs_is_ended() {
    // At the lowest priority a busy machine may leave the next one no time either.
    let adapt = "adapt { helpers 1; time \"100ms\"; priority \"normal\" }";
    let (_origin, weir, address) = front(text, adapt, "compress \"gzip\" stream=#false");
    let helper = only_helper(&weir, address);
    signal(helper, Signal::STOP);
    // Thirty times its time by the clock, and then another one does it.
    variant(address, "/second");
    assert!(!Path::new(&format!("/proc/{helper}")).exists());
    weir.wait_for_log("it took longer than");
}
