//! Ads and trackers: requests that lists block, and pages that they take elements out of.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;

use common::client::{Response, ask};
use common::origin::{Origin, Received, answer};
use common::server::{Weir, command};
use common::{PATIENCE, wait_for};
use rustix::process::Signal;
use tempfile::TempDir;

const HTML: &str = "Cache-Control: max-age=600\r\nContent-Type: text/html\r\n";

const PAGE: &str = "<html><head></head><body><div class=ad-box>Buy</div><p id=top-banner>!</p>\
                    <div class=promo>x</div><p>Text.</p></body></html>";

const LIST: &str = "! Title: a test\n\
                    /ads/*$image\n\
                    /track.js$script,redirect=noopjs\n\
                    /pixel?\n\
                    /frame/ad.$subdocument\n\
                    @@/ads/fine.\n\
                    ##.ad-box\n\
                    ###top-banner\n\
                    ##a[href*=\"/sponsored/\"]\n\
                    no such rule$$$\n";

/// A server with a list in front of an origin that answers everything with a page.
fn front(list: &str, line: &str) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(|_: &Received| answer("200 OK", HTML, PAGE.as_bytes()));
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("list.txt"), list).unwrap();
    let address = common::free_address();
    let site = format!("route \"/*\" {{ proxy \"{}\"; {line}; }}", origin.url());
    let config = common::server::front_config(address, "", &site);
    let weir = Weir::run_in(directory, &config, &[address]);
    (origin, weir, address)
}

fn fetch(address: SocketAddr, target: &str, destination: &str) -> Response {
    ask(address, "GET", target, &[("sec-fetch-dest", destination)])
}

#[test]
fn what_lists_block_is_answered_with_nothing() {
    let (origin, weir, address) = front(LIST, "ads { lists \"list.txt\"; }");
    for (target, destination, status, content_type, word) in [
        ("/ads/1.gif", "image", 200, Some("image/gif"), Some("ads;blocked")),
        ("/track.js", "script", 200, Some("text/javascript"), Some("ads;redirect=noop.js")),
        ("/pixel?id=1", "empty", 204, None, Some("ads;blocked")),
        ("/frame/ad.html", "iframe", 200, Some("text/html"), Some("ads;blocked")),
    ] {
        let response = fetch(address, target, destination);
        assert_eq!(response.status, status, "{target}");
        assert_eq!(response.header("content-type"), content_type, "{target}");
        assert_eq!(response.header("weir-adapt"), word, "{target}");
        assert_eq!(
            response.header("cache-control"),
            Some("private, max-age=3600, no-transform"),
            "{target}"
        );
        assert!(!text(&response).contains("Text."), "{target}");
    }
    assert!(fetch(address, "/ads/1.gif", "image").body.starts_with(b"GIF89a"));
    assert_eq!(origin.take().len(), 0, "nobody was asked");
    // The same URL as something else, an exception, and what no rule is about.
    for (target, destination) in
        [("/ads/1.gif", "document"), ("/ads/fine.gif", "image"), ("/a.js", "script")]
    {
        let response = fetch(address, target, destination);
        assert!(text(&response).contains("Text."), "{target}");
    }
    assert_eq!(origin.take().len(), 3);
    // A POST is not let through either, and its connection goes on.
    let post = ask(address, "POST", "/pixel?id=2", &[("content-length", "0")]);
    assert_eq!(post.status, 204);
    weir.wait_for_log("lines that are no rules are left out");
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[test]
fn what_lists_hide_is_taken_out_of_pages() {
    let (_origin, _weir, address) = front(LIST, "ads { lists \"list.txt\"; }");
    // Who asks first gets it while it is stored.
    let first = ask(address, "GET", "/", &[]);
    assert_eq!(first.header("weir-adapt"), Some("html;stream"));
    let page = wait_for(PATIENCE, || {
        let response = ask(address, "GET", "/", &[]);
        (response.header("weir-adapt")?.starts_with("html;changed")).then_some(response)
    });
    let page = page.unwrap();
    assert_eq!(
        text(&page),
        "<html><head><style>a[href*=\"/sponsored/\"]{display:none!important}</style></head>\
         <body><div class=promo>x</div><p>Text.</p></body></html>"
    );
    assert_eq!(page.header("weir-adapt"), Some("html;changed=1;hidden=2"));
    assert_eq!(text(&first), text(&page));
}

#[test]
fn a_reload_reads_lists_anew() {
    let (_origin, weir, address) = front(LIST, "ads { lists \"list.txt\"; }");
    assert_eq!(fetch(address, "/ads/1.gif", "image").header("weir-adapt"), Some("ads;blocked"));
    assert_eq!(fetch(address, "/new/1.gif", "image").header("weir-adapt"), Some("html;stream"));
    std::fs::write(weir.directory().join("list.txt"), "/new/*$image\n##.promo\n").unwrap();
    weir.signal(Signal::HUP);
    let blocked = wait_for(PATIENCE, || {
        let response = fetch(address, "/new/1.gif", "image");
        (response.header("weir-adapt") == Some("ads;blocked")).then_some(())
    });
    assert!(blocked.is_some());
    assert_ne!(fetch(address, "/ads/1.gif", "image").header("weir-adapt"), Some("ads;blocked"));
    let page = wait_for(PATIENCE, || {
        let response = ask(address, "GET", "/", &[]);
        (response.header("weir-adapt")?.starts_with("html;changed")).then_some(response)
    });
    let page = text(&page.unwrap());
    assert!(page.contains("ad-box") && !page.contains("promo"), "{page}");
}

#[test]
fn either_half_can_be_had_alone() {
    let (_origin, _weir, address) = front(LIST, "ads hide=#false { lists \"list.txt\"; }");
    assert_eq!(fetch(address, "/ads/1.gif", "image").header("weir-adapt"), Some("ads;blocked"));
    assert_eq!(ask(address, "GET", "/", &[]).header("weir-adapt"), None);
    let (_origin, _weir, address) = front(LIST, "ads block=#false { lists \"list.txt\"; }");
    let response = fetch(address, "/ads/1.gif", "image");
    assert_eq!(response.header("weir-adapt"), Some("html;stream"));
}

#[test]
fn the_command_line_tries_lists_out() {
    let directory = TempDir::new().unwrap();
    let own = "shop.example##.promo\n@@||ads.example/fine.\n||ads.example^$image\n";
    for (name, content) in [("list.txt", LIST), ("own.txt", own), ("page.html", PAGE)] {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let lists = ["--ads", "list.txt", "--ads", "own.txt"];
    let run = |arguments: &[&str]| {
        let out = command(directory.path(), &[&["adapt"], &lists[..], arguments].concat());
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{out:?}");
        said
    };
    // What is hidden anywhere, and what is hidden there.
    let said = run(&["page.html", "-o", "out.html"]);
    let [first, unknown, second, made] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}");
    };
    assert_eq!(first, "list.txt: 5 rules on requests, 3 on elements, 1 unknown lines");
    assert_eq!(unknown, "  unknown: line 10: no such rule$$$");
    assert_eq!(second, "own.txt: 2 rules on requests, 1 on elements, 0 unknown lines");
    assert!(made.starts_with("html;changed=1;hidden=2: "), "{made}");
    let out = || std::fs::read_to_string(directory.path().join("out.html")).unwrap();
    assert!(!out().contains("ad-box") && out().contains("promo"), "{}", out());
    let said = run(&["page.html", "--url", "http://Shop.Example:8080/", "-o", "out.html"]);
    let judged = "http://Shop.Example:8080/ (document): passed: no rule is about it";
    assert!(said.lines().any(|line| line == judged), "{said}");
    assert!(said.contains("html;changed=1;hidden=3: "), "{said}");
    assert!(!out().contains("promo"), "{}", out());
    // With rules of a route's, and coded.
    std::fs::write(directory.path().join("rules.kdl"), "remove \"p\"\n").unwrap();
    let said = run(&["page.html", "--html", "rules.kdl", "--compress", "br:5"]);
    assert!(said.contains("html;changed=") && said.contains(", br;q=5: "), "{said}");
    // What becomes of requests.
    for (arguments, expected) in [
        (
            &["http://x.example/ads/1.gif"][..],
            "(image): blocked by /ads/*$image, answered by 1x1.gif",
        ),
        (
            &["http://x.example/ads/1.gif", "--header", "sec-fetch-dest: document"],
            "(document): passed: no rule is about it",
        ),
        (
            &["https://x.example/track.js"],
            "(script): redirected to noop.js by /track.js$script,redirect=noopjs",
        ),
        (&["https://x.example/pixel?id=1"], "(other): blocked by /pixel?, answered by 204"),
        (
            &["https://ads.example/fine.gif"],
            "(image): passed by @@||ads.example/fine., an exception of what would be blocked by \
             ||ads.example^$image",
        ),
    ] {
        let said = run(&[&["--url"], arguments].concat());
        assert!(said.contains(&format!("{} {expected}\n", arguments[0])), "{said}");
    }
    let said = run(&["--url", "https://x.example/track.js", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["request"]["verdict"], "redirected");
    assert_eq!(answer["request"]["instead"], "noop.js");
    assert_eq!(answer["request"]["rule"], "/track.js$script,redirect=noopjs");
    assert_eq!(answer["lists"][0]["unknown"], 1);
    assert!(answer["adapted"].is_null());
}

#[test]
fn the_command_line_says_what_it_cannot_try() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("list.txt"), LIST).unwrap();
    for (arguments, expected) in [
        (
            &["--ads", "absent.txt", "--url", "http://a.example/"][..],
            "`--ads`: absent.txt: No such",
        ),
        (&["--ads", "list.txt", "--url", "a.example/x"], "\"a.example/x\" is no whole URL"),
        (&["--ads", "list.txt", "--url", "ftp://a.example/"], "is no whole URL; expected one"),
        (
            &["--ads", "list.txt", "--url", "http://a.example/", "--header", "x"],
            "\"x\" is no header field; expected one such as",
        ),
        (
            &["--ads", "list.txt", "--url", "http://a.example/", "--compress", "br"],
            "there is no file",
        ),
        (&["--ads", "list.txt"], "<FILE>"),
        (&["list.txt", "--url", "http://a.example/"], "--ads"),
    ] {
        let out = command(directory.path(), &[&["adapt"], arguments].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}
