//! Many clients at once, of all kinds, for responses that change all the time, while they are
//! purged, the configuration is read again and helpers are killed: whatever comes is one whole
//! version, and an entity tag is one of bytes.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::client::{Client, Response, ask};
use common::free_address;
use common::origin::{Origin, Received, Step, answer};
use common::server::{Weir, command};
use rustix::process::{Pid, Signal, kill_process};

const CLIENTS: u32 = 6;
const PATHS: u32 = 12;
const TIME: Duration = Duration::from_secs(6);
/// A version of a response is the origin's for so long.
const VERSION: Duration = Duration::from_millis(300);

const CODINGS: [&str; 6] =
    ["gzip", "br", "zstd", "identity", "gzip;q=0.5, br", "zstd;q=0.1, gzip, *;q=0"];

/// Of some pages, what a list would hide and a rule puts in.
const AD: &str = "<li class=ad>Buy";
const END: &str = "<!-- end -->";

/// What an origin has at a path in a version.
fn original(path: u32, version: u64) -> String {
    let lines = (0..40 + path * 53).map(|line| {
        let number = u64::from(line).wrapping_mul(2_654_435_761).wrapping_mul(version | 1);
        format!("<p>Line {line} of {path}, version {version}, has {number}.</p>\n")
    });
    let lines: String = lines.collect();
    format!("<html><body><ul>{AD}<li>first<li>second</ul>\n{lines}</body></html>")
}

fn changed(path: u32, version: u64) -> String {
    original(path, version).replace(AD, "").replace("</body>", &format!("{END}</body>"))
}

fn path_of(target: &str) -> u32 {
    target.rsplit('/').next().unwrap().parse().unwrap()
}

/// The origin: every path has another version after a while, and the tag tells which.
fn serve(began: Instant, received: &Received) -> Vec<Step> {
    let line = received.line();
    let path = path_of(line.split(' ').nth(1).unwrap());
    let version = (began.elapsed() + Duration::from_millis(37) * path).as_millis();
    let version = version as u64 / VERSION.as_millis() as u64;
    let tag = format!("\"{path}-v{version}\"");
    let fields = format!("Content-Type: text/html\r\nCache-Control: max-age=1\r\nETag: {tag}\r\n");
    if received.values("if-none-match").iter().any(|known| known.contains(&*tag)) {
        return vec![Step::Send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes())];
    }
    let body = original(path, version);
    if path % 3 != 1 {
        return answer("200 OK", &fields, body.as_bytes());
    }
    // Some come in pieces.
    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    let mut steps = vec![Step::Send(head.into_bytes())];
    for piece in body.as_bytes().chunks(3001) {
        steps.push(Step::Send(piece.to_vec()));
        steps.push(Step::Pause(Duration::from_millis(1)));
    }
    steps
}

/// What is known of entity tags: the bytes that each one stands for.
type Tags = Mutex<HashMap<(String, String), Vec<u8>>>;

fn decoded(response: &Response) -> String {
    let (mut text, body) = (String::new(), &response.body[..]);
    let mut decoder: Box<dyn Read + '_> = match response.header("content-encoding") {
        Some("br") => Box::new(brotli::Decompressor::new(body, 4096)),
        Some("gzip") => Box::new(flate2::read::GzDecoder::new(body)),
        Some("zstd") => Box::new(zstd::Decoder::new(body).unwrap()),
        None => Box::new(body),
        Some(other) => panic!("{other}"),
    };
    decoder.read_to_string(&mut text).unwrap_or_else(|error| panic!("{error}: {response:?}"));
    text
}

/// One client's requests, which differ by its number and theirs.
fn client(address: SocketAddr, number: u32, until: Instant, tags: &Tags) -> u64 {
    let mut connection = Client::connect(address).unwrap();
    let (mut seed, mut count) = (number, 0);
    let mut next = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    let mut known: HashMap<String, Response> = HashMap::new();
    while Instant::now() < until {
        let kind = ["plain", "wait", "pages", "stored"][next(4) as usize];
        let target = format!("/{kind}/{}", next(PATHS));
        let mut fields = vec![("accept-encoding", CODINGS[next(CODINGS.len() as u32) as usize])];
        let before = known.get(&target).cloned();
        let tag = before.as_ref().and_then(|before| before.header("etag")).unwrap_or_default();
        match next(4) {
            _ if tag.is_empty() => {}
            0 => fields.push(("if-none-match", tag)),
            1 if !tag.starts_with("W/") => {
                fields.extend([("range", "bytes=50-149"), ("if-range", tag)]);
            }
            _ => {}
        }
        let response = connection.ask("GET", &target, &fields).unwrap();
        count += 1;
        match response.status {
            200 => {
                whole(&target, &response, tags);
                known.insert(target, response);
            }
            206 => {
                let before = before.as_ref().unwrap();
                assert_eq!(response.header("etag"), before.header("etag"), "{target} {fields:?}");
                assert!(response.body == before.body[50..150], "{target} {fields:?} {response:?}");
            }
            304 => assert!(fields.iter().any(|(name, _)| *name == "if-none-match"), "{target}"),
            _ => panic!("{target} {fields:?}: {response:?}"),
        }
    }
    count
}

/// Looks at a whole response.
fn whole(target: &str, response: &Response, tags: &Tags) {
    let (path, text) = (path_of(target), decoded(response));
    let tag = response.header("etag").unwrap();
    let version = tag.split_once("-v").unwrap().1;
    let version = version.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    // What is not there in time is the original, by its own tag.
    let is_changed = tag.contains("-html");
    let expected = if is_changed { changed(path, version) } else { original(path, version) };
    assert!(text == expected, "{target}: not as its tag says: {response:?}");
    // A weak one is for all forms of the same.
    let bytes = if tag.starts_with("W/") { text.into_bytes() } else { response.body.clone() };
    let mut tags = tags.lock().unwrap();
    let first = tags.entry((target.to_owned(), tag.to_owned())).or_insert_with(|| bytes.clone());
    assert!(*first == bytes, "{target}: other bytes by the same tag: {response:?}");
}

#[test]
fn whatever_comes_is_one_whole_version() {
    let began = Instant::now();
    let origin = Origin::start(move |received| serve(began, received));
    let (url, admin, address) = (origin.url(), free_address(), free_address());
    let rules = format!("html {{ remove \".ad\"; append \"body\" {END:?}; }}");
    let waits = rules.replacen("html", "html wait=\"2s\" stream=#false", 1);
    let config = format!(
        "server {{ workers 2; admin \"{admin}\"; }}\nadapt {{ helpers 2; }}\n\
         site \"*\" {{\nlisten \"{address}\"\n\
         route \"/plain/*\" {{ proxy \"{url}\"; compress; }}\n\
         route \"/wait/*\" {{ proxy \"{url}\"; compress wait=\"2s\" stream=#false; }}\n\
         route \"/pages/*\" {{ proxy \"{url}\"; {rules}; compress \"br:9\" \"gzip\" \"zstd\"; }}\n\
         route \"/stored/*\" {{ proxy \"{url}\"; {waits}; compress wait=\"2s\" stream=#false; }}\n\
         }}\n"
    );
    let weir = Weir::run(&config, &[address, admin]);
    let (tags, until) = (Arc::new(Tags::default()), began + TIME);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let tags = Arc::clone(&tags);
            thread::spawn(move || client(address, number, until, &tags))
        })
        .collect();
    let admin = admin.to_string();
    for turn in 0.. {
        thread::sleep(Duration::from_millis(150));
        if Instant::now() >= until {
            break;
        }
        match turn % 4 {
            0 => drop(command(weir.directory(), &["purge", "--all", "--admin", &admin])),
            1 => weir.signal(Signal::HUP),
            _ => {
                for helper in weir.helpers().into_iter().filter_map(Pid::from_raw) {
                    // It may have ended in the meantime.
                    let _ = kill_process(helper, Signal::KILL);
                }
            }
        }
    }
    let count: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let tags = tags.lock().unwrap();
    let known = |part: &str| tags.keys().filter(|(_, tag)| tag.contains(part)).count();
    let (all, pages, coded) = (tags.len(), known("-html"), known("-br"));
    let told = format!("{count} responses, {all} tags, {pages} of pages, {coded} of brotli");
    assert!(count > 500 && all > 100 && pages > 50 && coded > 20, "{told}");
    let last = ask(address, "GET", "/plain/1", &[("accept-encoding", "gzip")]);
    assert_eq!(last.status, 200);
}
