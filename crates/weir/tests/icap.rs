//! ICAP services: requests and responses that they let pass, change or answer, and what becomes of
//! messages when they fail.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;
#[path = "icap/scanner.rs"]
mod scanner;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::{Client, Response, ask};
use common::origin::{Origin, Received, answer};
use common::server::Weir;
use common::{PATIENCE, wait_for};
use scanner::{Say, Scanner, Shown};

const STORED: &str = "Cache-Control: max-age=600\r\nContent-Type: text/plain\r\n";
const VIRUS: &str = "a long enough text with a VIRUS in it";

/// A server that shows messages to a service, in front of an origin that says what its path says.
fn front(scanner: &Scanner, lines: &str) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(|received: &Received| {
        let line = received.line();
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let fields = if path.contains("stored") { STORED } else { "Cache-Control: no-store\r\n" };
        let body = match path.contains("virus") {
            true => VIRUS.to_owned(),
            false => format!("{} and {}", path, String::from_utf8_lossy(&received.body)),
        };
        answer("200 OK", fields, body.as_bytes())
    });
    let icap = format!(
        "icap \"scanner\" {{ {} }}\n",
        lines.replace("ADDRESS", &scanner.address.to_string())
    );
    let site = format!("route \"/*\" {{ proxy \"{}\"; icap \"scanner\"; }}", origin.url());
    let (weir, address) = Weir::front(&icap, &site);
    (origin, weir, address)
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// Lets pass what has no virus in it.
fn scan(shown: &Shown) -> Say {
    if !shown.is_whole {
        return Say::More;
    }
    match shown.body.contains("VIRUS") {
        false => Say::Unchanged,
        true => Say::Instead(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n\r\n"
                .to_owned(),
            "found something".to_owned(),
        ),
    }
}

#[test]
fn responses_are_judged_once_and_stored() {
    let scanner = Scanner::start(scan);
    let (origin, _weir, address) =
        front(&scanner, "respmod \"icap://ADDRESS/respmod\"; client-address #true;");
    for cache in ["fwd=uri-miss", "hit"] {
        let response = ask(address, "GET", "/stored/1", &[]);
        assert_eq!((response.status, text(&response)), (200, "/stored/1 and ".to_owned()));
        assert!(response.header("cache-status").unwrap().contains(cache), "{cache}");
    }
    let seen = scanner.take();
    let [options, shown] = &seen[..] else { panic!("{seen:?}") };
    assert!(options.icap.starts_with("OPTIONS icap://"), "{}", options.icap);
    assert!(
        shown.icap.contains("X-Client-IP: 127.0.0.1\r\n")
            || shown.icap.contains("x-client-ip: 127.0.0.1\r\n"),
        "{}",
        shown.icap
    );
    assert!(
        shown.heads.starts_with("GET http://site.example/stored/1 HTTP/1.1\r\n"),
        "{}",
        shown.heads
    );
    assert!(shown.heads.contains("HTTP/1.1 200 OK\r\n"), "{}", shown.heads);
    assert_eq!(shown.body, "/stored/1 and ");
    assert_eq!(origin.take().len(), 1);
}

#[test]
fn what_is_changed_is_told_apart_from_what_it_was() {
    let scanner = Scanner::start(|shown| {
        if !shown.is_whole {
            return Say::More;
        }
        // Its head is the origin's, as some services have it.
        let head = shown.heads.split("\r\n\r\n").nth(1).unwrap();
        match shown.heads.contains("/own") {
            true => Say::Instead(format!("{head}\r\n\r\n").replace("v1", "v9"), "other".to_owned()),
            false => Say::Instead(format!("{head}\r\n\r\n"), "other".to_owned()),
        }
    });
    let origin = Origin::start(|_| {
        let date =
            "Last-Modified: Sun, 22 Nov 2026 17:01:23 GMT\r\nRepr-Digest: sha-256=:AA==:\r\n";
        answer("200 OK", &format!("{STORED}{date}ETag: \"v1\"\r\n"), b"text")
    });
    let icap = format!("icap \"x\" {{ respmod \"icap://{}/r\"; }}\n", scanner.address);
    let site = format!("route \"/*\" {{ proxy \"{}\"; icap \"x\"; }}", origin.url());
    let (_weir, address) = Weir::front(&icap, &site);
    for (path, tag) in [("/", "\"v1-icap\""), ("/own", "\"v9\"")] {
        for _ in 0..2 {
            let response = ask(address, "GET", path, &[]);
            assert_eq!(text(&response), "other");
            assert_eq!(response.header("etag"), Some(tag));
            for name in ["last-modified", "repr-digest"] {
                assert_eq!(response.header(name), None, "{name}");
            }
        }
        assert_eq!(ask(address, "GET", path, &[("if-none-match", "\"v1\"")]).status, 200);
        assert_eq!(ask(address, "GET", path, &[("if-none-match", tag)]).status, 304);
    }
}

#[test]
fn what_is_found_is_not_sent() {
    let scanner = Scanner::start(scan);
    let (_origin, _weir, address) = front(&scanner, "respmod \"icap://ADDRESS/respmod\";");
    for path in ["/stored/virus", "/virus", "/virus"] {
        let response = ask(address, "GET", path, &[]);
        assert_eq!(
            (response.status, text(&response)),
            (403, "found something".to_owned()),
            "{path}"
        );
        assert_eq!(response.header("content-type"), Some("text/plain"));
    }
    // Nobody gets it in parts either.
    let response = ask(address, "GET", "/virus", &[("range", "bytes=25-36")]);
    assert_eq!((response.status, text(&response)), (403, "found something".to_owned()));
    // What has no content is not shown.
    scanner.take();
    assert_eq!(ask(address, "HEAD", "/virus", &[]).status, 200);
    assert!(scanner.take().is_empty());
}

#[test]
fn requests_are_judged_before_anybody_is_asked() {
    let scanner = Scanner::start(|shown| {
        match shown.heads.contains("/forbidden") {
        true => Say::Instead("HTTP/1.1 403 Forbidden\r\n\r\n".to_owned(), "not for you".to_owned()),
        false if shown.heads.contains("/moved") => Say::Instead(
            "PUT http://other.example/elsewhere?x HTTP/1.1\r\nHost: other.example\r\nX-Judged: yes\r\n\r\n"
                .to_owned(),
            "changed content".to_owned(),
        ),
        false => scan(shown),
    }
    });
    let (origin, _weir, address) = front(&scanner, "reqmod \"icap://ADDRESS/reqmod\";");
    let response = ask(address, "GET", "/forbidden", &[]);
    assert_eq!((response.status, text(&response)), (403, "not for you".to_owned()));
    assert!(origin.take().is_empty());

    // Uploads are judged whole, and go on as they were.
    let mut client = Client::connect(address).unwrap();
    for (content, status) in [("harmless, if long, content", 200), (VIRUS, 403)] {
        let head = format!(
            "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        client.send(head.as_bytes()).unwrap();
        client.send(content.as_bytes()).unwrap();
        let response = client.response("POST").unwrap();
        assert_eq!(response.status, status, "{content}");
    }
    let received = origin.take();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].body, b"harmless, if long, content");

    // Another request in its place; the site stays the site.
    let response = ask(address, "GET", "/moved", &[]);
    assert_eq!(text(&response), "/elsewhere?x and changed content");
    let received = origin.take();
    assert_eq!(received[0].line(), "PUT /elsewhere?x HTTP/1.1");
    assert_eq!(received[0].values("x-judged"), ["yes"]);
    assert_eq!(received[0].values("host"), ["site.example"]);

    // Hits are judged too: it may depend on who asks.
    scanner.take();
    for _ in 0..3 {
        assert_eq!(ask(address, "GET", "/stored/2", &[]).status, 200);
    }
    assert_eq!(scanner.take().len(), 3);
    assert_eq!(origin.take().len(), 1);
}

#[test]
fn a_service_that_fails_is_passed_or_fails_the_request() {
    for broken in ["ICAP/1.0 500 No\r\n\r\n", "nonsense\r\n\r\n", ""] {
        let scanner = Scanner::start(move |_| Say::Raw(broken));
        let lines = "reqmod \"icap://ADDRESS/q\"; respmod \"icap://ADDRESS/r\";";
        let (_origin, weir, address) = front(&scanner, lines);
        for path in ["/stored/3", "/3"] {
            let response = ask(address, "GET", path, &[]);
            assert_eq!(response.status, 502, "{broken} {path}");
            assert!(
                text(&response).contains("the ICAP service has no answer"),
                "{}",
                text(&response)
            );
        }
        weir.wait_for_log("an ICAP service has no answer");

        let lines = format!("{lines} on-failure \"pass\";");
        let (_origin, _weir, address) = front(&scanner, &lines);
        let mut client = Client::connect(address).unwrap();
        client
            .send(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nsome content")
            .unwrap();
        assert_eq!(text(&client.response("POST").unwrap()), "/up and some content", "{broken}");
        assert_eq!(text(&ask(address, "GET", "/stored/4", &[])), "/stored/4 and ", "{broken}");
    }
}

#[test]
fn nothing_half_judged_is_stored() {
    let scanner = Scanner::start(|shown| match shown.is_whole {
        false => Say::More,
        // The head of an answer, and not half of its content.
        true => Say::Raw(
            "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, res-body=45\r\n\r\n\
             HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\n\r\n50\r\nhalf",
        ),
    });
    let (_origin, _weir, address) = front(&scanner, "respmod \"icap://ADDRESS/r\";");
    for _ in 0..2 {
        let mut client = Client::connect(address).unwrap();
        let answered = client.ask("GET", "/stored/long-enough", &[]);
        assert!(answered.is_err(), "half of an answer passed for a whole one");
    }
}

#[test]
fn metrics_count_what_became_of_messages() {
    let scanner = Scanner::start(scan);
    let admin = common::free_address();
    let server = format!(
        "server {{ workers 2; admin \"{admin}\"; }}\nicap \"scanner\" {{ respmod \"icap://{}/r\"; }}",
        scanner.address
    );
    let origin = Origin::start(|received: &Received| {
        let body = if received.line().contains("virus") { VIRUS } else { "fine" };
        answer("200 OK", "", body.as_bytes())
    });
    let site = format!("route \"/*\" {{ proxy \"{}\"; icap \"scanner\"; }}", origin.url());
    let (_weir, address) = Weir::front(&server, &site);
    ask(address, "GET", "/virus", &[]);
    ask(address, "GET", "/", &[]);
    let host = admin.to_string();
    let page = text(&ask(admin, "GET", "/metrics", &[("host", &host)]));
    for (result, count) in [("changed", 1), ("answered", 0), ("unchanged", 1), ("failed", 0)] {
        let line = format!(
            "weir_icap_messages_total{{service=\"scanner\",method=\"respmod\",result=\"{result}\"}} {count}\n"
        );
        assert!(page.contains(&line), "{line}{page}");
    }
}

#[test]
fn a_service_that_is_silent_is_asked_once_in_a_while() {
    let (asked, counted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    // Takes what comes, and says nothing.
    let silent = common::origin::raw(move |_, mut stream| {
        count.fetch_add(1, SeqCst);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let origin = Origin::start(|_| answer("200 OK", "", b"fine"));
    const TIMEOUT: Duration = Duration::from_secs(4);
    let icap = format!("icap \"scanner\" {{ respmod \"icap://{silent}/r\"; timeout \"4s\"; }}");
    let site = format!("route \"/*\" {{ proxy \"{}\"; icap \"scanner\"; }}", origin.url());
    let (_weir, address) = Weir::front(&icap, &site);
    let began = Instant::now();
    let asking: Vec<_> = (0..8)
        .map(|number| {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                let status = ask(address, "GET", &format!("/{number}"), &[]).status;
                counted.fetch_add(usize::from(status == 504), SeqCst);
                status
            })
        })
        .collect();
    for asking in asking {
        assert!(matches!(asking.join().unwrap(), 502 | 504));
    }
    // Who asked waited; nobody waits after him. One after the other they would have, for 32 s.
    assert!(began.elapsed() < TIMEOUT * 4, "{:?}", began.elapsed());
    // After three seconds it may be asked again.
    let turns = || 1 + began.elapsed().saturating_sub(TIMEOUT).as_secs() / 3;
    let asked = || asked.load(SeqCst);
    assert_eq!(asked(), counted.load(SeqCst));
    assert!((1..=turns()).contains(&(asked() as u64)), "{} of {}", asked(), turns());
    let after = ask(address, "GET", "/after", &[]).status;
    assert!(after == 502 || turns() > 1, "{after}");
}

/// A service may close a connection when it likes, and may say so.
#[test]
fn connections_that_end_cost_no_message() {
    const SIZE: usize = 70_000;
    let last = |shown: &Shown| if shown.is_whole { Say::Last } else { Say::More };
    let gone = |shown: &Shown| match (shown.before > 2, shown.is_whole) {
        (true, _) => Say::Raw(""),
        (false, true) => Say::Unchanged,
        (false, false) => Say::More,
    };
    for say in [last as fn(&Shown) -> Say, gone] {
        for options in ["", "Preview: 8\r\n", "Preview: 1000000\r\n"] {
            let scanner = Scanner::with(options, say);
            let lines = "reqmod \"icap://ADDRESS/q\"; respmod \"icap://ADDRESS/s\"; timeout \"9s\"";
            let (_origin, _weir, address) = front(&scanner, lines);
            let body = "x".repeat(SIZE);
            let began = Instant::now();
            for number in 0..12 {
                let mut client = Client::connect(address).unwrap();
                let head = format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n");
                client.send((head + &body).as_bytes()).unwrap();
                let response = client.response("POST").unwrap();
                assert_eq!(response.status, 200, "{options} {number}");
                assert_eq!(text(&response), format!("/a and {body}"), "{options} {number}");
            }
            assert!(began.elapsed() < Duration::from_secs(9), "{options}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn a_service_has_no_more_connections_than_it_can_serve() {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let scanner = Scanner::with("Max-Connections: 2\r\n", move |_| {
        seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        now.fetch_sub(1, SeqCst);
        Say::Unchanged
    });
    let (_origin, _weir, address) = front(&scanner, "respmod \"icap://ADDRESS/s\"");
    std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..12).map(|_| scope.spawn(|| ask(address, "GET", "/a", &[]).status)).collect();
        for status in asking {
            assert_eq!(status.join().unwrap(), 200);
        }
    });
    assert_eq!(most.load(SeqCst), 2);
}

#[test]
fn slow_clients_do_not_hold_the_service() {
    let scanner = Scanner::start(scan);
    let lines = "reqmod \"icap://ADDRESS/q\"; connections 1;";
    let (_origin, _weir, address) = front(&scanner, lines);
    assert_eq!(ask(address, "GET", "/", &[]).status, 200);
    let mut slow = Client::connect(address).unwrap();
    slow.send(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\nsome content")
        .unwrap();
    // It is not asked before as much is there as is gathered.
    assert_eq!(ask(address, "GET", "/", &[]).status, 200);
    assert!(!scanner.take().iter().any(|shown| shown.heads.starts_with("POST")));
    slow.send(&[b'x'; 70_000]).unwrap();
    assert_eq!(slow.response("POST").unwrap().status, 408);
    assert_eq!(ask(address, "GET", "/", &[]).status, 200);
}

/// Nor do those who take nothing of an answer that is not stored.
#[test]
fn slow_readers_do_not_hold_the_service() {
    let large = "x".repeat(32 << 20);
    let scanner = Scanner::start(move |shown: &Shown| match shown.heads.contains("/large") {
        true => {
            let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n\r\n";
            Say::Instead(head.to_owned(), large.clone())
        }
        false => scan(shown),
    });
    let lines = "respmod \"icap://ADDRESS/r\"; connections 1; timeout \"1s\";";
    let (_origin, _weir, address) = front(&scanner, lines);
    let mut slow = Client::connect(address).unwrap();
    slow.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let head = String::from_utf8(slow.head().unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let free = wait_for(PATIENCE, || (ask(address, "GET", "/", &[]).status == 200).then_some(()));
    assert!(free.is_some());
    // What he got is not taken for the whole.
    assert!(!slow.read_to_end().unwrap_or_default().ends_with(b"\r\n0\r\n\r\n"));
}
