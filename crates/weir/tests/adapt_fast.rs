//! Hits on variants by the short way: whoever asks plainly is sent the very bytes that the long way
//! sends, whatever has become of the original, its variant and the settings.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::client::{Client, Response};
use common::origin::{Origin, Received, Step, answer};
use common::server::{Weir, command, front_config};
use common::{PATIENCE, free_address, wait_for};

/// Fields that take a request past the short way and change nothing about its answer: by the long
/// way of the fast lane, and by hyper.
const OTHER_WAYS: [(&str, &str); 2] = [("pragma", "x"), ("te", "x")];

const TEXT: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: text/html\r\n\
                    Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Two: a\r\nX-Two: b\r\n";

const COMPRESS: &str = "compress \"br:4\" \"zstd:3\" \"gzip:4\" wait=\"20s\" stream=#false";

/// More kinds of clients than are remembered of one original.
const ENCODINGS: [&str; 12] = [
    "gzip, deflate, br, zstd",
    "gzip",
    "br",
    "zstd",
    "br;q=0.1, gzip",
    "br;q=0.3, zstd;q=0.4, gzip;q=0.2",
    "gzip;q=0, br;q=0",
    "*",
    "identity",
    "deflate",
    "",
    "*;q=0",
];

fn page() -> Vec<u8> {
    let line = |number| format!("<p>{number}: water runs down to the weir, and over it.\n");
    (0..300).map(line).collect::<String>().into_bytes()
}

fn front(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static, lines: &str) -> Front {
    let (origin, admin, address) = (Origin::start(script), free_address(), free_address());
    let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
    let server = format!("server {{ workers 1; admin \"{admin}\"; }}");
    let weir = Weir::run(&front_config(address, &server, &site), &[address]);
    Front { origin, weir, address, admin, server }
}

struct Front {
    origin: Origin,
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
    server: String,
}

impl Front {
    fn command(&self, arguments: &[&str]) {
        let admin = self.admin.to_string();
        let arguments = [arguments, &["--admin", &admin]].concat();
        let output = command(self.weir.directory(), &arguments);
        assert!(output.status.success(), "{output:?}");
    }

    fn reload(&self, lines: &str) {
        let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", self.origin.url());
        let config = front_config(self.address, &self.server, &site);
        std::fs::write(self.weir.directory().join("weir.kdl"), config).unwrap();
        self.command(&["reload"]);
    }
}

fn ask(address: SocketAddr, method: &str, fields: &[(&str, &str)]) -> Response {
    let mut client = Client::connect(address).unwrap();
    client.ask(method, "/page", fields).unwrap()
}

/// Fields in their order, without what passes with time.
fn timeless(response: &Response) -> Vec<(&str, &str)> {
    let value = |name: &str, value| match name {
        "date" | "age" => "",
        "cache-status" => "hit",
        _ => value,
    };
    let fields = response.headers.iter();
    fields.map(|(name, said)| (&**name, value(name, said))).collect()
}

/// Asks until it is known what becomes of a request, and then by all ways, more than once.
#[track_caller]
fn check(address: SocketAddr, fields: &[(&str, &str)]) -> Response {
    let pending = ["pending", "not-stored", "queue-full"];
    let is_settled = |response: &Response| {
        let word = response.header("weir-adapt").unwrap_or_default();
        let is_late = pending.iter().any(|why| word.ends_with(&format!("reason={why}")));
        let is_hit = response.header("cache-status").unwrap_or_default().starts_with("weir; hit");
        is_hit && !is_late && !word.ends_with(";draft") && !word.ends_with(";stream")
    };
    let settled = wait_for(PATIENCE, || {
        let response = ask(address, "GET", &[fields, &[OTHER_WAYS[0]]].concat());
        is_settled(&response).then_some(response)
    });
    let settled = settled.unwrap_or_else(|| panic!("{:?}", ask(address, "GET", fields).headers));
    for _ in 0..3 {
        let plain = ask(address, "GET", fields);
        for other in OTHER_WAYS {
            let by_other = ask(address, "GET", &[fields, &[other]].concat());
            assert_eq!(timeless(&plain), timeless(&by_other), "{fields:?} and {other:?}");
            assert!(plain.body == by_other.body, "{fields:?} and {other:?}");
        }
    }
    let mut head = ask(address, "HEAD", fields);
    let mut plain = ask(address, "GET", fields);
    head.headers.sort();
    plain.headers.sort();
    assert_eq!(timeless(&head), timeless(&plain), "HEAD with {fields:?}");
    settled
}

fn word(response: &Response) -> &str {
    response.header("weir-adapt").unwrap_or_default()
}

#[test]
fn codings_are_the_same_on_all_ways() {
    let front = front(|_| answer("200 OK", TEXT, &page()), COMPRESS);
    let address = front.address;
    assert_eq!(word(&check(address, &[])), "original;reason=not-accepted");
    // Those that were forgotten meanwhile, too.
    for encoding in ENCODINGS.iter().chain(&ENCODINGS) {
        let fields = [("accept-encoding", *encoding)];
        let response = check(address, &fields);
        assert_eq!(response.header("vary"), Some("Accept-Encoding"));
        check(address, &[fields[0], ("connection", "close"), ("user-agent", "x")]);
    }
    for (encoding, expected) in [("br", "br;q=4"), ("gzip", "gzip;q=4"), ("zstd", "zstd;q=3")] {
        assert_eq!(word(&check(address, &[("accept-encoding", encoding)])), expected);
    }
    // Two lines, of which the first says too little; one that is long; and one that forbids.
    let two = check(address, &[("accept-encoding", "gzip;q=0.1"), ("Accept-Encoding", "br")]);
    assert_eq!(word(&two), "br;q=4");
    let long = format!("{}br", "x, ".repeat(200));
    assert_eq!(word(&check(address, &[("accept-encoding", &long)])), "br;q=4");
    let forbids = [("accept-encoding", "br"), ("cache-control", "no-transform")];
    assert_eq!(word(&check(address, &forbids)), "original;reason=no-transform");
}

#[test]
fn what_is_kept_ends_with_its_configuration_and_its_object() {
    let front = front(|_| answer("200 OK", TEXT, &page()), COMPRESS);
    let fields = [("accept-encoding", "gzip, br")];
    assert_eq!(word(&check(front.address, &fields)), "br;q=4");
    let edits = "header { set \"X-New\" \"1\"; remove \"X-Two\"; set \"Vary\" \"X\"; }";
    front.reload(&format!("{COMPRESS}; {edits}"));
    let edited = check(front.address, &fields);
    assert_eq!((edited.header("x-new"), edited.header("x-two")), (Some("1"), None));
    assert_eq!(check(front.address, &[]).header("vary"), Some("X"));
    front.reload(&format!("{COMPRESS}; header {{ set \"Age\" \"7\"; }}"));
    assert_eq!(check(front.address, &fields).header("age"), Some("7"));
    assert_eq!(check(front.address, &[]).header("age"), Some("7"));
    front.reload("compress \"gzip:4\" wait=\"20s\" stream=#false");
    assert_eq!(word(&check(front.address, &fields)), "gzip;q=4");
    front.command(&["purge", "http://site.example/page"]);
    assert_eq!(word(&check(front.address, &fields)), "gzip;q=4");
    assert_eq!(word(&check(front.address, &[])), "original;reason=not-accepted");
    front.reload("cache ttl=\"1m\"");
    assert_eq!(check(front.address, &fields).header("weir-adapt"), None);
    front.reload(COMPRESS);
    assert_eq!(word(&check(front.address, &fields)), "br;q=4");
}

#[test]
fn a_validated_original_tells_its_new_fields() {
    let turn = AtomicUsize::new(0);
    let script = move |request: &Received| {
        let fields = format!(
            "Cache-Control: max-age=2\r\nETag: \"v1\"\r\nContent-Type: text/html\r\nX-Turn: {}\r\n",
            turn.fetch_add(1, SeqCst)
        );
        match request.values("if-none-match").is_empty() {
            true => answer("200 OK", &fields, &page()),
            false => answer("304 Not Modified", &fields, b""),
        }
    };
    let front = front(script, COMPRESS);
    let fields = [("accept-encoding", "br")];
    let mut turns = std::collections::BTreeSet::new();
    let seen = wait_for(PATIENCE, || {
        let [plain, full] = [&fields[..], &[fields[0], OTHER_WAYS[0]]]
            .map(|fields| ask(front.address, "GET", fields));
        let is_hit = |one: &Response| one.header("cache-status").unwrap().starts_with("weir; hit");
        let turn = plain.header("x-turn").unwrap().to_owned();
        if is_hit(&plain) && is_hit(&full) && full.header("x-turn") == Some(&*turn) {
            if word(&plain) == "br;q=4" && word(&full) == "br;q=4" {
                assert_eq!(timeless(&plain), timeless(&full));
            }
            turns.insert(turn);
        }
        (turns.len() > 2).then_some(())
    });
    assert!(seen.is_some(), "{turns:?}");
}

#[test]
fn pages_that_are_changed_are_the_same_on_all_ways() {
    let rules = "html wait=\"20s\" stream=#false { append \"head\" \"<!-- mine -->\"; }";
    let page = |_: &Received| answer("200 OK", TEXT, b"<html><head></head><body>x</body></html>");
    let html = front(page, rules);
    let changed = check(html.address, &[("accept-encoding", "br")]);
    assert_eq!(word(&changed), "html;changed=1");
    assert_eq!((changed.header("last-modified"), changed.header("vary")), (None, None));
    check(html.address, &[]);
    let both = front(|_| answer("200 OK", TEXT, &self::page()), &format!("{rules}; {COMPRESS}"));
    for encoding in ENCODINGS {
        check(both.address, &[("accept-encoding", encoding)]);
    }
}

#[test]
fn hosts_of_one_file_hide_what_is_theirs() {
    let address = free_address();
    let site = "route \"/*\" { files \".\"; ads { lists \"list.txt\"; }; }";
    let directory = tempfile::TempDir::new().unwrap();
    let list = "a.example##.one\nb.example##.two\n";
    std::fs::write(directory.path().join("list.txt"), list).unwrap();
    let page = "<html><body><p class=one>1</p><p class=two>2</p></body></html>";
    std::fs::write(directory.path().join("page.html"), page).unwrap();
    let _weir = Weir::run_in(directory, &front_config(address, "", site), &[address]);
    let ask = |host, more: &[(&str, &str)]| {
        let mut client = Client::connect(address).unwrap();
        client.ask("GET", "/page.html", &[&[("host", host)], more].concat()).unwrap()
    };
    for (host, hidden) in [("a.example", ".one"), ("b.example", ".two"), ("a.example", ".one")] {
        let is_made =
            |one: &Response| word(one).starts_with("html") && !word(one).ends_with("stream");
        let made = wait_for(PATIENCE, || {
            let answers = [ask(host, &[]), ask(host, &[OTHER_WAYS[0]])];
            answers.iter().all(is_made).then_some(answers)
        });
        let [plain, full] = made.unwrap_or_else(|| panic!("{:?}", ask(host, &[]).headers));
        assert_eq!(timeless(&plain), timeless(&full));
        assert!(plain.body == full.body);
        let text = String::from_utf8(plain.body).unwrap();
        let shown = [".one", ".two"].map(|class| text.contains(&format!("class={}", &class[1..])));
        assert_eq!(shown, [hidden != ".one", hidden != ".two"], "{host}: {text}");
    }
}

#[test]
fn pictures_are_the_same_on_all_ways() {
    let mut jpeg = std::io::Cursor::new(Vec::new());
    let drawn = image::RgbImage::from_fn(160, 120, |x, y| {
        image::Rgb([(x * 7 + y) as u8, (y * 5) as u8, (x ^ y) as u8])
    });
    drawn.write_to(&mut jpeg, image::ImageFormat::Jpeg).unwrap();
    let fields = TEXT.replace("text/html", "image/jpeg");
    let lines = "image max-width=80 formats=\"avif,webp\" { save-data; dpr; }";
    let front = front(move |_| answer("200 OK", &fields, jpeg.get_ref()), lines);
    for (accept, format) in [
        ("image/avif,image/webp,image/*,*/*;q=0.8", "avif"),
        ("image/webp,*/*", "webp"),
        ("*/*", "jpeg"),
    ] {
        for more in [&[][..], &[("save-data", "on")], &[("dpr", "1.5")], &[("sec-ch-dpr", "2")]] {
            let made = check(front.address, &[&[("accept", accept)], more].concat());
            assert!(word(&made).starts_with(format) || more[..].len() == 1, "{:?}", made.headers);
        }
    }
}
