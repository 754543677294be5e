//! Variants of stored responses: made by helper processes, in the background, and sent to those
//! who take them.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::client::{Response, ask};
use common::origin::{Origin, Received, Step, answer};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};

const FRESH: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\n";

/// Words in no order, of which a strong compression makes less than a quick one.
fn text(seed: &str) -> Vec<u8> {
    let words: Vec<String> = (0..400).map(|word| format!("{seed}{:x}", word * 7919)).collect();
    let mut state = 7_u64;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The first words are the most frequent.
        let at = ((state >> 40) as f64 / (1 << 24) as f64).powi(2) * words.len() as f64;
        words[at as usize].clone()
    });
    next.take(10_000).collect::<Vec<_>>().join(" ").into_bytes()
}

/// A line again and again, of which brotli's strongest level makes more than its quick one.
fn monotony() -> Vec<u8> {
    let line = |number| format!("a {number}: water runs down to the weir, and over it.\n");
    (0..2000).map(line).collect::<String>().into_bytes()
}

fn proxy(
    script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    compress: &str,
) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(script);
    let site = format!("route \"/*\" {{ proxy \"{}\"; {compress}; }}", origin.url());
    let (weir, address) = Weir::front("", &site);
    (origin, weir, address)
}

fn get(address: SocketAddr, target: &str, accept: &str) -> Response {
    ask(address, "GET", target, &[("accept-encoding", accept)])
}

/// Whether it was coded as it was sent.
fn is_streamed(response: &Response) -> bool {
    response.header("weir-adapt").is_some_and(|word| word.ends_with(";stream"))
}

/// Asks until a variant is there, and no longer just its draft.
fn variant(address: SocketAddr, target: &str, accept: &str) -> Response {
    let adapted = wait_for(PATIENCE, || {
        let response = get(address, target, accept);
        let is_draft = response.header("weir-adapt").is_some_and(|said| said.ends_with(";draft"));
        let is_coded = response.header("content-encoding").is_some();
        (is_coded && !is_draft && !is_streamed(&response)).then_some(response)
    });
    adapted.unwrap_or_else(|| panic!("no variant: {:?}", get(address, target, accept).headers))
}

/// Asks until it is known that there will be none.
fn never(address: SocketAddr, target: &str) -> Response {
    let pending = ["original;reason=pending", "original;reason=not-stored"];
    let known = wait_for(PATIENCE, || {
        let response = get(address, target, "br, gzip");
        let word = response.header("weir-adapt").unwrap_or_default().to_owned();
        (!pending.contains(&&*word) && !is_streamed(&response)).then_some(response)
    });
    known.unwrap()
}

fn decoded(response: &Response) -> Vec<u8> {
    let (mut text, body) = (Vec::new(), &response.body[..]);
    match response.header("content-encoding") {
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut text).unwrap(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut text).unwrap(),
        Some("zstd") => zstd::Decoder::new(body).unwrap().read_to_end(&mut text).unwrap(),
        other => panic!("{other:?}"),
    };
    text
}

#[test]
fn the_original_goes_out_until_its_variant_is_there() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/html\r\n"), &text("a"));
    let (_origin, _weir, address) = proxy(served, "compress stream=#false");
    let first = get(address, "/", "br, gzip, zstd");
    assert_eq!((first.status, &first.body), (200, &text("a")));
    assert_eq!(first.header("vary"), Some("Accept-Encoding"));
    assert_eq!(first.header("weir-adapt"), Some("original;reason=not-stored"));
    assert_eq!(first.header("etag"), Some("\"v1\""));
    for (accept, coding, level) in
        [("gzip, br;q=0.5", "gzip", 9), ("br, gzip, zstd", "br", 11), ("zstd", "zstd", 19)]
    {
        let response = variant(address, "/", accept);
        assert_eq!(response.header("content-encoding"), Some(coding), "{accept}");
        assert_eq!(decoded(&response), text("a"), "{accept}");
        assert!(response.body.len() < text("a").len() / 2);
        assert_eq!(response.header("vary"), Some("Accept-Encoding"));
        assert!(response.header("etag").unwrap().starts_with(&format!("\"v1-{coding}{level}-")));
        assert_eq!(response.header("content-type"), Some("text/html"));
        assert_eq!(response.header("content-length"), Some(&*response.body.len().to_string()));
        assert!(response.header("weir-adapt").unwrap().starts_with(coding));
        assert!(response.header("cache-status").unwrap().starts_with("weir; hit"));
        assert!(response.header("age").is_some());
    }
    // Who takes none gets the original, and is told that there are others.
    for accept in ["identity", "*;q=0", "deflate"] {
        let plain = get(address, "/", accept);
        assert_eq!((&plain.body, plain.header("content-encoding")), (&text("a"), None), "{accept}");
        assert_eq!(plain.header("weir-adapt"), Some("original;reason=not-accepted"));
        assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
    }
    assert_eq!(ask(address, "GET", "/", &[]).body, text("a"));
}

#[test]
fn variants_have_conditions_ranges_and_heads_of_their_own() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/css\r\n"), &text("b"));
    let (_origin, _weir, address) = proxy(served, "compress \"gzip\"");
    let whole = variant(address, "/s.css", "gzip");
    let with = |method, name, value| {
        ask(address, method, "/s.css", &[("accept-encoding", "gzip"), (name, value)])
    };
    let unchanged = with("GET", "if-none-match", whole.header("etag").unwrap());
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, whole.header("etag")));
    assert_eq!(unchanged.header("vary"), Some("Accept-Encoding"));
    assert_eq!(with("GET", "if-none-match", "\"v1\"").status, 200);
    assert_eq!(ask(address, "GET", "/s.css", &[("if-none-match", "\"v1\"")]).status, 304);
    let part = with("GET", "range", "bytes=10-19");
    assert_eq!((part.status, &part.body[..]), (206, &whole.body[10..20]));
    assert_eq!(part.header("content-encoding"), Some("gzip"));
    let head = with("HEAD", "accept", "*/*");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(&*whole.body.len().to_string()));
    assert_eq!(head.header("content-encoding"), Some("gzip"));
}

#[test]
fn what_takes_long_has_a_draft_until_it_is_there() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/html\r\n"), &text("a"));
    let (_origin, _weir, address) =
        proxy(served, "compress \"zstd:19\" wait=\"20s\" stream=#false");
    get(address, "/", "zstd");
    // The second waits, though not for as long as the strongest level takes.
    let draft = get(address, "/", "zstd");
    assert_eq!(draft.header("weir-adapt"), Some("zstd;q=3;draft"));
    let tag = draft.header("etag").unwrap();
    assert!(tag.starts_with("\"v1-zstd19-"), "{tag}");
    assert_eq!(decoded(&draft), text("a"));
    let whole = variant(address, "/", "zstd");
    assert_eq!(whole.header("weir-adapt"), Some("zstd;q=19"));
    assert!(whole.header("etag").is_some_and(|other| other != tag && tag.len() == other.len()));
    assert_eq!(decoded(&whole), text("a"));
    assert!(whole.body.len() < draft.body.len(), "{} {}", whole.body.len(), draft.body.len());
    // Who has begun with the one does not go on with the other.
    let on = [("accept-encoding", "zstd"), ("range", "bytes=100-"), ("if-range", tag)];
    let response = ask(address, "GET", "/", &on);
    assert_eq!((response.status, response.body), (200, whole.body));
}

#[test]
fn a_draft_stays_if_the_whole_is_no_smaller() {
    let served = |_: &Received| {
        answer("200 OK", &format!("{FRESH}Content-Type: text/html\r\n"), &monotony())
    };
    let origin = Origin::start(served);
    let admin = free_address();
    let site =
        format!("route \"/*\" {{ proxy \"{}\"; compress \"br:11\" stream=#false; }}", origin.url());
    let (_weir, address) =
        Weir::front(&format!("server {{ workers 2; admin \"{admin}\"; }}"), &site);
    // The whole has been made, and what is sent is a draft no more.
    let settled = variant(address, "/", "br");
    assert_eq!(settled.header("weir-adapt"), Some("br;q=4"));
    assert!(settled.header("etag").unwrap().starts_with("\"v1-br11-"));
    assert_eq!(decoded(&settled), monotony());
    let page = ask(admin, "GET", "/metrics", &[("host", "localhost")]).body;
    let page = String::from_utf8(page).unwrap();
    for line in ["weir_adapt_jobs_total{result=\"made\"} 2", "weir_adapt_drafts_total 1"] {
        assert!(page.lines().any(|said| said == line), "{page}");
    }
}

#[test]
fn what_is_not_to_be_coded_is_left_alone() {
    let noise: Vec<u8> = {
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..20_000).map(|_| next()).collect()
    };
    let served = move |request: &Received| {
        let line = request.line();
        let html = "Content-Type: text/html\r\n";
        match line.split(' ').nth(1).unwrap() {
            "/image" => {
                answer("200 OK", &format!("{FRESH}Content-Type: image/png\r\n"), &text("c"))
            }
            "/small" => answer("200 OK", &format!("{FRESH}{html}"), b"<p>small</p>"),
            "/coded" => {
                answer("200 OK", &format!("{FRESH}{html}Content-Encoding: gzip\r\n"), &text("c"))
            }
            "/forbidden" => {
                let fields = "Cache-Control: max-age=600, no-transform\r\n";
                answer("200 OK", &format!("{fields}{html}"), &text("c"))
            }
            "/missing" => answer("404 Not Found", &format!("{FRESH}{html}"), &text("c")),
            _ => answer("200 OK", &format!("{FRESH}{html}"), &noise),
        }
    };
    let (_origin, _weir, address) = proxy(served, "compress");
    for target in ["/image", "/small", "/coded", "/forbidden", "/missing"] {
        for _ in 0..3 {
            let response = get(address, target, "br, gzip");
            assert_eq!(response.header("weir-adapt"), None, "{target}");
            assert_eq!(response.header("vary"), None, "{target}");
        }
    }
    let noise = never(address, "/noise");
    assert_eq!(noise.header("weir-adapt"), Some("original;reason=not-smaller"));
    assert_eq!(noise.header("content-encoding"), None);
}

#[test]
fn a_variant_ends_with_its_original() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let served = move |_: &Received| {
        let number = counted.fetch_add(1, SeqCst);
        let fields = format!("Cache-Control: max-age=1\r\nETag: \"{number}\"\r\n");
        let body = text(&number.to_string());
        answer("200 OK", &format!("{fields}Content-Type: text/plain\r\n"), &body)
    };
    let (_origin, _weir, address) = proxy(served, "compress \"gzip:1\"");
    let first = variant(address, "/", "gzip");
    let newer = wait_for(PATIENCE, || {
        let response = variant(address, "/", "gzip");
        (response.header("etag") != first.header("etag")).then_some(response)
    });
    let newer = newer.unwrap();
    let tag = newer.header("etag").unwrap();
    let (number, _) = tag.trim_matches('"').split_once("-gzip1-").unwrap();
    assert_eq!(decoded(&newer), text(number));
}

#[test]
fn a_purge_takes_variants_with_their_original() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/css\r\n"), &text("p"));
    let origin = Origin::start(served);
    let admin = free_address();
    let site =
        format!("route \"/*\" {{ proxy \"{}\"; compress \"br:4\" \"gzip:1\"; }}", origin.url());
    let (weir, address) =
        Weir::front(&format!("server {{ workers 2; admin \"{admin}\"; }}"), &site);
    for accept in ["gzip", "br"] {
        variant(address, "/", accept);
    }
    let url = "http://site.example/";
    let out = command(weir.directory(), &["purge", url, "--admin", &admin.to_string()]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "purged 3 stored responses\n", "{out:?}");
    let page = ask(admin, "GET", "/metrics", &[("host", "localhost")]).body;
    let page = String::from_utf8(page).unwrap();
    assert!(page.lines().any(|line| line == "weir_cache_objects 0"), "{page}");
}

#[test]
fn files_have_variants_too() {
    let (weir, address) = Weir::front("", "route \"/*\" { files \".\"; compress \"br:5\"; }");
    std::fs::write(weir.directory().join("page.html"), text("one")).unwrap();
    assert_eq!(decoded(&variant(address, "/page.html", "br")), text("one"));
    std::fs::write(weir.directory().join("page.html"), text("another")).unwrap();
    let changed = wait_for(PATIENCE, || {
        let response = variant(address, "/page.html", "br");
        (decoded(&response) == text("another")).then_some(())
    });
    assert!(changed.is_some());
}

#[test]
fn a_request_may_wait_for_its_variant() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/html\r\n"), &text("d"));
    let (_origin, _weir, address) = proxy(served, "compress \"gzip\" wait=\"30s\" stream=#false");
    for number in 0..2 {
        let response = get(address, "/", "gzip");
        assert_eq!(response.header("content-encoding"), Some("gzip"), "{number}");
        assert_eq!(decoded(&response), text("d"));
    }
}

#[test]
fn helpers_may_do_nothing_and_end_with_the_server() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/html\r\n"), &text("e"));
    let (_origin, mut weir, address) = proxy(served, "compress");
    assert!(weir.helpers().is_empty(), "none is started before there is something to do");
    variant(address, "/", "gzip");
    let helpers = weir.helpers();
    assert!(!helpers.is_empty());
    for pid in &helpers {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim_start_matches(':').trim().to_owned()
        };
        assert_eq!(value("Seccomp"), "2", "filtered");
        assert_eq!(value("CapEff"), "0000000000000000", "nor more rights than anybody");
        assert_eq!(value("NoNewPrivs"), "1");
        assert_eq!(value("Threads"), "1");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let policy =
            stat.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap().to_owned();
        assert_eq!(policy, "5", "SCHED_IDLE");
    }
    assert!(weir.stop().success());
    for pid in helpers {
        let gone = wait_for(PATIENCE, || {
            (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
        assert!(gone.is_some(), "helper {pid} outlives its server");
    }
}

#[test]
fn a_helper_that_is_killed_is_replaced() {
    let served =
        |_: &Received| answer("200 OK", &format!("{FRESH}Content-Type: text/html\r\n"), &text("f"));
    let (_origin, weir, address) = proxy(served, "compress");
    variant(address, "/first", "gzip");
    for pid in weir.helpers() {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let second = variant(address, "/second", "gzip");
    assert_eq!(decoded(&second), text("f"));
}

#[test]
fn the_command_line_adapts_files() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page.html"), text("g")).unwrap();
    std::fs::write(directory.path().join("small"), "small").unwrap();
    let run = |arguments: &[&str]| command(directory.path(), arguments);
    let out = run(&["adapt", "page.html", "--compress", "br:5", "-o", "page.br"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.starts_with("br;q=5: "), "{out:?}");
    let coded = std::fs::read(directory.path().join("page.br")).unwrap();
    let mut back = Vec::new();
    brotli::Decompressor::new(&coded[..], 4096).read_to_end(&mut back).unwrap();
    assert_eq!(back, text("g"));
    let out = run(&["adapt", "page.html", "--compress", "zstd", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (answer["adapted"].as_bool(), answer["what"].as_str()),
        (Some(true), Some("zstd;q=19"))
    );
    let out = run(&["adapt", "small", "--compress", "gzip", "-o", "out"]);
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("not-smaller"), "{out:?}");
    // What a client would be sent.
    assert_eq!(std::fs::read(directory.path().join("out")).unwrap(), b"small");
    for (arguments, status, expected) in [
        (["page.html", "--compress", "lzma"], 2, "expected \"gzip\", \"br\" or \"zstd\""),
        (
            ["page.html", "--compress", "br:12"],
            2,
            "a level of br cannot be \"12\": expected 0 to 11",
        ),
        (["page.html", "--image", "width=0"], 2, "expected a number from 1 to 16383"),
        (["absent", "--compress", "br"], 1, "absent: No such file"),
        // It says that it has no length, and has no end.
        (["/dev/zero", "--compress", "br"], 1, "/dev/zero: more than 268435456 bytes"),
    ] {
        let out = run(&[&["adapt"][..], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
