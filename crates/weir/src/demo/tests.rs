//! The demo's origin over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::*;

/// Runs the origin on a thread of its own; it ends with the test's process.
fn start() -> SocketAddr {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            serve(listener, Front::default()).await
        })
    });
    receive.recv().unwrap()
}

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&prefix))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Sends a request line with fields, `\n` for line ends, and reads to the end of the connection.
fn ask(origin: SocketAddr, request: &str) -> Answer {
    let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
    let mut stream = TcpStream::connect(origin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let fields = format!("Host: demo\r\nConnection: close\r\nContent-Length: {}", body.len());
    let head = head.replace('\n', "\r\n").replacen("\r\n", " HTTP/1.1\r\n", 1);
    let head = if head.contains("HTTP/1.1") { head } else { format!("{head} HTTP/1.1") };
    write!(stream, "{head}\r\n{fields}\r\n\r\n{body}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = answer.split_off(end);
    Answer { head: String::from_utf8(answer).unwrap(), body }
}

#[test]
fn each_page_has_its_head() {
    let origin = start();
    const KEEP: &str = "public, max-age=0, s-maxage=3600";
    for (path, status, content_type, cache_control) in [
        ("/", 200, "text/html; charset=utf-8", KEEP),
        ("/style.css", 200, "text/css; charset=utf-8", KEEP),
        ("/try.js", 200, "text/javascript; charset=utf-8", KEEP),
        ("/text/water.html", 200, "text/html; charset=utf-8", KEEP),
        ("/text/long.txt", 200, "text/plain; charset=utf-8", KEEP),
        ("/plugin", 200, "text/html; charset=utf-8", KEEP),
        ("/plugin.js", 200, "text/javascript; charset=utf-8", KEEP),
        ("/gray.wasm", 200, "application/wasm", KEEP),
        ("/crowd", 200, "text/html; charset=utf-8", KEEP),
        ("/crowd.js", 200, "text/javascript; charset=utf-8", KEEP),
        ("/adapt", 200, "text/html; charset=utf-8", KEEP),
        ("/adapt.js", 200, "text/javascript; charset=utf-8", KEEP),
        ("/adapt/routes", 200, "text/plain; charset=utf-8", KEEP),
        ("/adapt/figures", 409, "text/plain; charset=utf-8", "no-store"),
        ("/paper/", 200, "text/html; charset=utf-8", KEEP),
        ("/paper/ads/banner.svg", 200, "image/svg+xml", KEEP),
        ("/sale/guarded", 200, "text/plain; charset=utf-8", "no-store"),
        ("/sale/unguarded", 200, "text/plain; charset=utf-8", "no-store"),
        ("/crowd/run", 405, "text/plain; charset=utf-8", "no-store"),
        ("/pictures/landscape-480.ppm", 200, "image/x-portable-pixmap", KEEP),
        ("/large", 200, "application/octet-stream", KEEP),
        ("/vary", 200, "text/plain; charset=utf-8", KEEP),
        ("/now", 200, "text/plain; charset=utf-8", "public, max-age=5"),
        (
            "/stale",
            200,
            "text/plain; charset=utf-8",
            "public, max-age=2, stale-while-revalidate=60",
        ),
        ("/slow?ms=0", 200, "text/plain; charset=utf-8", "public, max-age=30"),
        ("/etag", 200, "text/plain; charset=utf-8", "public, no-cache"),
        ("/api/quote", 200, "application/json", "no-store"),
        ("/echo", 200, "application/json", "no-store"),
        ("/error", 500, "text/plain; charset=utf-8", "no-store"),
        ("/absent", 404, "text/plain; charset=utf-8", "no-store"),
    ] {
        let answer = ask(origin, &format!("GET {path}"));
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.field("content-type"), Some(content_type), "{path}");
        assert_eq!(answer.field("cache-control"), Some(cache_control), "{path}");
        let length = answer.field("content-length").unwrap().parse::<usize>().unwrap();
        assert_eq!(length, answer.body.len(), "{path}");
        let head_only = ask(origin, &format!("HEAD {path}"));
        assert_eq!((head_only.status(), head_only.body.len()), (status, 0), "{path}");
    }
    assert_eq!(ask(origin, "GET /large").body.len(), routes::LARGE_BYTES);
    assert_eq!(ask(origin, "POST /now\n\nx").field("allow"), Some("GET, HEAD"));
    assert_eq!(ask(origin, "GET /crowd/run").field("allow"), Some("POST"));
    // Nobody has said where Weir listens.
    assert_eq!(ask(origin, "POST /crowd/run").status(), 409);
}

/// A few are made at a time, and what waits makes all slower. Who has left waits no longer, but
/// work that has begun goes on.
#[test]
fn the_expensive_page_has_few_places() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sale = Arc::new(sale::Sale::new());
        assert_eq!(sale.make().await, Some(sale::WORK));
        assert_eq!(sale.take_most(), 1);
        let make = |_| {
            let sale = Arc::clone(&sale);
            tokio::spawn(async move { sale.make().await })
        };
        let mut makes: Vec<_> = (0..sale::INSIDE_MAX).map(make).collect();
        while sale.take_most() < sale::INSIDE_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(sale.make().await, None, "there is no end to what waits");
        let ninth = makes.remove(sale::PLACES as usize).await.unwrap().unwrap();
        assert!(ninth > sale::WORK, "{ninth:?}");
        for make in makes {
            make.abort();
            let _gone = make.await;
        }
        sale.take_most();
        let left = sale.take_most();
        assert!((1..=sale::PLACES).contains(&left), "{left}");
    });
}

/// Every link of the index leads to a page, and nothing is loaded from elsewhere.
#[test]
fn the_index_links_only_what_exists() {
    let origin = start();
    let index = ask(origin, "GET /");
    let mut links = 0;
    for attribute in ["href=\"", "src=\""] {
        for link in index.text().split(attribute).skip(1) {
            let link = link.split('"').next().unwrap();
            if link == "data:," || link == "/stream" {
                continue;
            }
            assert!(link.starts_with('/') && !link.starts_with("//"), "{link} is elsewhere");
            // The large pictures are drawn in a test of their own.
            if link.starts_with("/pictures/") && !link.contains("-480.") {
                assert!(pictures::all().iter().any(|picture| picture.path == link), "{link}");
                continue;
            }
            let status = ask(origin, &format!("GET {link}")).status();
            assert!(status == 200 || link == "/error", "{link}: {status}");
            links += 1;
        }
    }
    assert!(links > 10, "{links}");
    for asset in ["/style.css", "/try.js", "/text/water.html", "/plugin", "/plugin.js", "/adapt"] {
        assert!(!ask(origin, &format!("GET {asset}")).text().contains("http"), "{asset}");
    }
}

#[test]
fn pictures_are_pictures_and_stay_the_same() {
    let origin = start();
    for (path, start, width) in [
        ("/pictures/landscape-480.jpg", &b"\xff\xd8\xff"[..], 480),
        ("/pictures/plasma-480.jpg", b"\xff\xd8\xff", 480),
        ("/pictures/mandelbrot-480.png", b"\x89PNG\r\n", 480),
        ("/pictures/plasma-960.png", b"\x89PNG\r\n", 960),
    ] {
        let answer = ask(origin, &format!("GET {path}"));
        assert!(answer.body.starts_with(start), "{path}");
        assert!(answer.body.len() > 10_000, "{path}: {} bytes, too plain", answer.body.len());
        let picture = image::load_from_memory(&answer.body).unwrap();
        assert_eq!((picture.width(), picture.height()), (width, width * 10 / 16), "{path}");
        assert!(ask(origin, &format!("GET {path}")).body == answer.body, "{path}");
    }
}

#[test]
fn validators_save_the_body() {
    let origin = start();
    for path in ["/etag", "/style.css", "/large"] {
        let first = ask(origin, &format!("GET {path}"));
        let etag = first.field("etag").unwrap();
        let modified = first.field("last-modified").unwrap();
        for condition in
            [format!("If-None-Match: {etag}"), format!("If-Modified-Since: {modified}")]
        {
            let again = ask(origin, &format!("GET {path}\n{condition}"));
            assert_eq!((again.status(), again.body.len()), (304, 0), "{path} {condition}");
            assert_eq!(again.field("etag"), Some(etag), "{path}");
            assert!(again.field("cache-control").is_some(), "{path}");
        }
        let other = ask(origin, &format!("GET {path}\nIf-None-Match: \"other\""));
        assert_eq!(other.status(), 200, "{path}");
    }
}

#[test]
fn languages_have_their_own_text() {
    let origin = start();
    for (accept, language, expect) in [
        ("", "en", "Good day"),
        ("Accept-Language: de-AT, en;q=0.5", "de", "Guten Tag"),
        ("Accept-Language: pt, fr;q=0.8", "fr", "Bonjour"),
        ("Accept-Language: xx", "en", "Good day"),
    ] {
        let answer = ask(origin, format!("GET /vary\n{accept}").trim_end());
        assert!(answer.text().starts_with(expect), "{accept}: {}", answer.text());
        assert_eq!(answer.field("content-language"), Some(language));
        assert_eq!(answer.field("vary"), Some("Accept-Language"));
    }
}

#[test]
fn slow_pages_are_slow_and_bounded() {
    let origin = start();
    for (path, at_least, expect) in [
        ("/slow?ms=120", 120, "took the origin 120 ms"),
        ("/slow?x=1&ms=0", 0, "took the origin 0 ms"),
        ("/slow?ms=soon", 800, "took the origin 800 ms"),
    ] {
        let begin = Instant::now();
        let answer = ask(origin, &format!("GET {path}"));
        assert!(begin.elapsed() >= Duration::from_millis(at_least), "{path}");
        assert!(answer.text().contains(expect), "{path}: {}", answer.text());
    }
}

#[test]
fn every_answer_of_the_origin_counts() {
    let origin = start();
    let count = || {
        let answer = ask(origin, "GET /now");
        let number = answer.text().trim_end().trim_end_matches('.').rsplit(' ').next().unwrap();
        number.parse::<u64>().unwrap()
    };
    let first = count();
    assert_eq!(count(), first + 1);
}

#[test]
fn echo_shows_what_arrived() {
    let origin = start();
    let answer = ask(origin, "POST /echo?a=b\nVia: 1.1 weir\n\nhello");
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(json["method"], "POST");
    assert_eq!(json["target"], "/echo?a=b");
    assert_eq!(json["body"], "hello");
    let fields = json["fields"].as_array().unwrap();
    assert!(fields.iter().any(|field| field == "via: 1.1 weir"), "{json}");
    let body = "x".repeat(routes::ECHO_BYTES_MAX + 1);
    assert_eq!(ask(origin, &format!("POST /echo\n\n{body}")).status(), 413);
}

/// The first events are there long before the last is made.
#[test]
fn events_come_one_by_one() {
    let origin = start();
    let mut stream = TcpStream::connect(origin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET /stream HTTP/1.1\r\nHost: demo\r\n\r\n").unwrap();
    let (mut seen, mut buffer) = (String::new(), [0; 1024]);
    while !seen.contains("event 2 of") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "ended: {seen}");
        seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    assert!(seen.contains("content-type: text/event-stream"), "{seen}");
    assert!(seen.contains("transfer-encoding: chunked"), "{seen}");
    assert!(!seen.contains(&format!("event {} of", routes::EVENTS)), "collected: {seen}");
}

#[test]
fn the_banner_can_be_pasted() {
    for (front, admin) in
        [("127.0.0.1:8080", "127.0.0.1:9900"), ("http://127.0.0.1:8080/", "http://127.0.0.1:9900")]
    {
        let shown = plugin::Shown {
            before: ("image/x-portable-pixmap".to_owned(), 432_015),
            after: ("image/x-portable-graymap".to_owned(), 144_015),
            deployed_ms: 17,
        };
        let text = banner::banner_for("weir", front, admin, &Ok(shown));
        assert!(text.contains("\n    http://127.0.0.1:8080/\n"), "{text}");
        assert!(text.contains(" http://127.0.0.1:8080/pictures/landscape-960.jpg\n"), "{text}");
        let purge = "weir purge 'http://127.0.0.1:8080/slow?ms=800' --admin 127.0.0.1:9900\n";
        assert!(text.contains(purge), "{text}");
        assert!(text.contains("weir reload --admin 127.0.0.1:9900"), "{text}");
        assert!(text.contains("\n  a plugin: gray was deployed"), "{text}");
        assert!(text.contains("weir plugin remove gray --admin 127.0.0.1:9900\n"), "{text}");
        assert!(text.contains("432015 bytes  image/x-portable-pixmap\n"), "{text}");
        assert!(text.contains("144015 bytes  image/x-portable-graymap\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
    let without = banner("127.0.0.1:1", "127.0.0.1:2", &Err("there is no admin API".to_owned()));
    assert!(without.contains("http://127.0.0.1:1/"), "{without}");
    assert!(without.contains("since there is no admin API\n"), "{without}");
}
