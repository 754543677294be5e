//! What is adapted while it is sent, and stored as it is: no helper makes it again.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use common::client::{Client, Response, ask, get as plain};
use common::origin::{Origin, Received, Step, answer, cue};
use common::server::Weir;
use common::{PATIENCE, free_address, wait_for};

const STORED: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: text/html\r\n";
const RULES: &str = "html { remove \".banner\"; }";

fn page(banner: &str) -> String {
    // Numbers, which are not guessed.
    let lines = (0..300_u32).map(|line| {
        let number = line.wrapping_mul(line).wrapping_mul(2_654_435_761);
        format!("{banner}<p>Line {line} of a page has the number {number}.</p>\n")
    });
    lines.collect()
}

fn origins() -> String {
    page("<p class=banner>Buy</p>")
}

struct Front {
    address: SocketAddr,
    admin: SocketAddr,
    origin: Origin,
    _weir: Weir,
}

impl Front {
    fn new(
        global: &str,
        lines: &str,
        script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> Front {
        let (origin, admin) = (Origin::start(script), free_address());
        let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
        let global = format!("server {{ workers 2; admin \"{admin}\"; }}\n{global}");
        let (weir, address) = Weir::front(&global, &site);
        Front { address, admin, origin, _weir: weir }
    }

    fn get(&self, target: &str, accept: &str) -> Response {
        ask(self.address, "GET", target, &[("accept-encoding", accept)])
    }

    fn metric(&self, name: &str) -> u64 {
        let page = plain(self.admin, "localhost", "/metrics").unwrap().body;
        let page = String::from_utf8(page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }

    fn made_by_helpers(&self) -> u64 {
        self.metric("weir_adapt_jobs_total{result=\"made\"} ")
    }

    fn kept(&self) -> u64 {
        self.metric("weir_adapt_streams_kept_total ")
    }
}

fn text(response: &Response) -> String {
    let body = &response.body[..];
    let mut text = String::new();
    match response.header("content-encoding") {
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut text).unwrap(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_string(&mut text).unwrap(),
        None => (&body[..]).read_to_string(&mut text).unwrap(),
        Some(other) => panic!("{other}"),
    };
    text
}

fn word(response: &Response) -> &str {
    response.header("weir-adapt").unwrap()
}

#[test]
fn a_page_is_changed_once() {
    let front = Front::new("", RULES, |_| answer("200 OK", STORED, origins().as_bytes()));
    let first = front.get("/", "identity");
    assert_eq!((word(&first), text(&first)), ("html;stream", page("")));
    let hit = front.get("/", "identity");
    assert_eq!((word(&hit), text(&hit)), ("html;changed=300", page("")));
    assert!(hit.header("cache-status").unwrap().starts_with("weir; hit"));
    assert_eq!(hit.header("content-length"), Some(&*page("").len().to_string()));
    let tag = hit.header("etag").unwrap();
    assert!(tag.starts_with("\"v1-html"), "{tag}");
    let known = ask(front.address, "GET", "/", &[("if-none-match", tag)]);
    assert_eq!(known.status, 304);
    let part = ask(front.address, "GET", "/", &[("range", "bytes=3-9"), ("if-range", tag)]);
    assert_eq!((part.status, &*part.body), (206, &page("").as_bytes()[3..10]));
    // No helper had a hand in it.
    assert_eq!((front.made_by_helpers(), front.kept()), (0, 1));
    assert_eq!(front.metric("weir_html_pages_total "), 1);
    assert_eq!(front.origin.take().len(), 1);
}

/// Encoders of streams are not those of helpers, and cut where pieces come.
#[test]
fn other_bytes_have_another_entity_tag() {
    let served = |_: &Received| answer("200 OK", STORED, origins().as_bytes());
    let front = Front::new("", "compress \"gzip:4\"", served);
    front.get("/sent", "gzip");
    let kept = front.get("/sent", "gzip");
    assert_eq!((front.kept(), word(&kept)), (1, "gzip;q=4"));
    front.get("/stored", "identity");
    let made = wait_for(PATIENCE, || {
        let response = front.get("/stored", "gzip");
        (word(&response) == "gzip;q=4").then_some(response)
    });
    let made = made.unwrap();
    assert_eq!((front.made_by_helpers(), text(&made)), (1, text(&kept)));
    let tag = |response: &Response| response.header("etag").unwrap().to_owned();
    assert!(tag(&made).starts_with("\"v1-gzip4-") && tag(&kept).starts_with("\"v1-gzip4-"));
    assert_eq!(tag(&made) == tag(&kept), made.body == kept.body);
    assert_ne!(made.body, kept.body);
}

#[test]
fn what_was_coded_quickly_is_a_draft_of_what_is_coded_well() {
    let lines = format!("{RULES}; compress \"br:11\" \"gzip:4\"");
    let front = Front::new("", &lines, |_| answer("200 OK", STORED, origins().as_bytes()));
    let first = front.get("/", "br");
    assert_eq!((word(&first), text(&first)), ("html;stream, br;q=4;stream", page("")));
    let draft = front.get("/", "br");
    assert_eq!((word(&draft), text(&draft)), ("html;changed=300, br;q=4;draft", page("")));
    assert_eq!(draft.body, first.body);
    assert!(draft.header("etag").unwrap().contains("-br11-"));
    let whole = wait_for(PATIENCE, || {
        let response = front.get("/", "br");
        (!word(&response).ends_with(";draft")).then_some(response)
    });
    let whole = whole.unwrap();
    assert_eq!((word(&whole), text(&whole)), ("html;changed=300, br;q=11", page("")));
    assert_eq!((front.made_by_helpers(), front.kept()), (1, 1));
    // Where no more effort is asked for there is no more to do.
    assert_eq!(front.metric("weir_adapt_drafts_total "), 1);
    assert_eq!(word(&front.get("/b", "gzip")), "html;stream, gzip;q=4;stream");
    let gzip = front.get("/b", "gzip");
    assert_eq!((word(&gzip), text(&gzip)), ("html;changed=300, gzip;q=4", page("")));
    assert_eq!((front.made_by_helpers(), front.kept()), (1, 2));
}

#[test]
fn other_forms_of_a_stored_page_are_kept_too() {
    let lines = format!("{RULES}; compress \"gzip:4\"");
    let front = Front::new("", &lines, |_| answer("200 OK", STORED, origins().as_bytes()));
    front.get("/", "identity");
    // The first who takes gzip finds it stored, and has it made: by a helper or while it is sent.
    let first = front.get("/", "gzip");
    assert!(first.header("cache-status").unwrap().starts_with("weir; hit"));
    assert_eq!(word(&first), "html;stream, gzip;q=4;stream");
    let second = front.get("/", "gzip");
    assert_eq!((word(&second), text(&second)), ("html;changed=300, gzip;q=4", page("")));
    assert_eq!(text(&front.get("/", "identity")), page(""));
}

#[test]
fn what_comes_to_nothing_is_remembered() {
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
    let front = Front::new("", &format!("{RULES}; compress"), move |request| {
        match request.line().split(' ').nth(1).unwrap() {
            "/unchanged" => answer("200 OK", STORED, b"<p>No banner at all.</p>"),
            _ => answer("200 OK", &STORED.replace("html", "plain"), &noise),
        }
    });
    assert_eq!(word(&front.get("/unchanged", "identity")), "html;stream");
    assert_eq!(word(&front.get("/unchanged", "identity")), "original;reason=unchanged");
    assert_eq!((front.kept(), front.made_by_helpers()), (0, 0));
    assert_eq!(front.metric("weir_adapt_jobs_total{result=\"original\"} "), 0);
    // Coded quickly it would be larger; perhaps a helper has more success.
    let first = front.get("/noise", "gzip");
    assert_eq!(word(&first), "gzip;q=4;stream");
    let second = front.get("/noise", "gzip");
    assert!(word(&second).starts_with("original;reason="), "{}", word(&second));
    assert_eq!(front.kept(), 0);
}

#[test]
fn only_wholes_of_what_is_stored_are_kept() {
    let (go, held) = cue();
    let long = origins().repeat(150);
    let script = move |request: &Received| match request.line().split(' ').nth(1).unwrap() {
        "/long" => answer("200 OK", STORED, long.as_bytes()),
        "/dynamic" => answer("200 OK", &STORED.replace("max-age=600", "no-store"), b"<p>"),
        "/short" => {
            let head = format!("HTTP/1.1 200 OK\r\n{STORED}Content-Length: 99999\r\n\r\n");
            let body = origins();
            vec![Step::Send([head.as_bytes(), body.as_bytes()].concat()), Step::Close]
        }
        _ => {
            let body = origins();
            let head = format!("HTTP/1.1 200 OK\r\n{STORED}Content-Length: {}\r\n\r\n", body.len());
            let (first, rest) = body.as_bytes().split_at(5000);
            let first = Step::Send([head.as_bytes(), first].concat());
            vec![first, Step::Await(held.clone()), Step::Send(rest.to_vec())]
        }
    };
    let front = Front::new("adapt { helpers 0; }", RULES, script);
    assert!(text(&front.get("/long", "identity")) == page("").repeat(150));
    for _ in 0..2 {
        assert_eq!(word(&front.get("/dynamic", "identity")), "html;stream");
    }
    let mut client = Client::connect(front.address).unwrap();
    assert!(client.ask("GET", "/short", &[]).is_err());
    // Whose client leaves in the middle of it.
    let mut client = Client::connect(front.address).unwrap();
    client.send(b"GET /left HTTP/1.1\r\nHost: site.example\r\n\r\n").unwrap();
    client.head().unwrap();
    drop(client);
    std::thread::sleep(Duration::from_millis(200));
    go.send(()).unwrap();
    let stored = wait_for(PATIENCE, || {
        // A part is not changed, and so nothing of it kept.
        let part = ask(front.address, "GET", "/left", &[("range", "bytes=0-0")]);
        part.header("cache-status").unwrap().starts_with("weir; hit").then_some(())
    });
    stored.unwrap();
    assert_eq!(word(&front.get("/left", "identity")), "original;reason=off");
    assert_eq!(front.kept(), 0);
}
