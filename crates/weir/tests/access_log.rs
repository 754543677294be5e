//! Access logs on the disk: what a line says, when it is there, and that a client cannot write
//! lines of its own.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use common::client::{self, Client};
use common::origin::{self, Origin};
use common::server::Weir;
use common::wait_for;
use rustix::process::Signal;
use serde_json::Value;

/// A line is on the disk within a second of the response's end; the rest is for a busy machine.
const SOON: Duration = Duration::from_millis(1500);

struct Logged {
    weir: Weir,
    address: SocketAddr,
}

impl Logged {
    fn start(format: &str, routes: &str) -> Logged {
        let site = format!("access-log \"access.log\" format=\"{format}\"\n{routes}");
        let (weir, address) = Weir::front("", &site);
        std::fs::write(weir.directory().join("file.txt"), "0123456789").unwrap();
        Logged { weir, address }
    }

    fn path(&self) -> PathBuf {
        self.weir.directory().join("access.log")
    }

    /// The log's lines, once there are this many.
    fn lines(&self, count: usize) -> Vec<String> {
        let enough = wait_for(SOON, || {
            let text = std::fs::read_to_string(self.path()).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (lines.len() >= count && text.ends_with('\n')).then_some(lines)
        });
        let lines = enough.unwrap_or_else(|| {
            panic!("fewer than {count} lines: {:?}", std::fs::read_to_string(self.path()))
        });
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }
}

const FILES: &str = r#"route "/*" { files "."; }"#;

#[test]
fn a_json_line_has_the_facts() {
    let origin = Origin::start(|_| {
        origin::answer("200 OK", "Cache-Control: max-age=60\r\n", b"from the origin")
    });
    let routes = format!(
        r#"
        route "/fixed" {{ respond "fixed"; }}
        route "/dead/*" {{ proxy "http://127.0.0.1:1"; }}
        route "/proxied/*" {{ proxy "{}"; }}
        route "/*" {{ files "."; }}
        "#,
        origin.url()
    );
    let log = Logged::start("json", &routes);
    // Method, target, more fields, and what the line must say.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Value);
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let cases: &[Case<'_>] = &[
        (
            "GET",
            "/file.txt?q=1",
            &[("User-Agent", "test/1"), ("Referer", "http://a/b")],
            json(
                r#"{"method":"GET","uri":"/file.txt?q=1","status":200,"body_bytes":10,"route":"/*",
            "user_agent":"test/1","referer":"http://a/b","protocol":"HTTP/1.1","cache":"miss"}"#,
            ),
        ),
        ("HEAD", "/file.txt", &[], json(r#"{"method":"HEAD","status":200,"body_bytes":0}"#)),
        ("GET", "/file.txt", &[("Range", "bytes=2-4")], json(r#"{"status":206,"body_bytes":3}"#)),
        ("GET", "/file.txt", &[("If-None-Match", "*")], json(r#"{"status":304,"body_bytes":0}"#)),
        ("GET", "/nothing", &[], json(r#"{"status":404,"route":"/*"}"#)),
        ("DELETE", "/file.txt", &[], json(r#"{"method":"DELETE","status":405,"cache":"none"}"#)),
        ("GET", "/fixed", &[], json(r#"{"route":"/fixed","status":200,"body_bytes":5}"#)),
        (
            "GET",
            "/proxied/a",
            &[],
            json(r#"{"route":"/proxied/*","status":200,"body_bytes":15,"cache":"miss"}"#),
        ),
        ("GET", "/proxied/a", &[], json(r#"{"status":200,"body_bytes":15,"cache":"hit"}"#)),
        ("GET", "/dead/a", &[], json(r#"{"route":"/dead/*","status":502}"#)),
    ];
    let mut client = Client::connect(log.address).unwrap();
    let before = std::time::SystemTime::now();
    for (method, target, fields, _) in cases {
        client.ask(method, target, fields).unwrap();
    }
    let lines = log.lines(cases.len());
    for ((method, target, _, expected), line) in cases.iter().zip(&lines) {
        let record = json(line);
        let context = format!("{method} {target}: {line}");
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(record[name], *value, "{name} of {context}");
        }
        assert_eq!(record["client"], "127.0.0.1", "{context}");
        assert_eq!((&record["site"], &record["host"]), (&"*".into(), &"site.example".into()));
        assert_eq!(record["complete"], true, "{context}");
        let duration_us = record["duration_us"].as_u64().unwrap();
        assert!(duration_us < 20_000_000, "{context}");
        let time: jiff::Timestamp = record["time"].as_str().unwrap().parse().unwrap();
        let at = std::time::SystemTime::from(time) + Duration::from_millis(1);
        assert!(at >= before && at <= std::time::SystemTime::now(), "{context}");
    }
    assert!(json(&lines[1]).get("referer").is_none());
}

#[test]
fn a_site_logs_what_it_refuses() {
    let log = Logged::start("json", r#"route "/only/*" { files "."; }"#);
    for (target, status) in [("/elsewhere", 404), ("/../up", 400), ("/%zz", 400)] {
        assert_eq!(client::ask(log.address, "GET", target, &[]).status, status, "{target}");
    }
    let mut statuses = Vec::new();
    for line in log.lines(3) {
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&record["route"], &record["site"]), (&"".into(), &"*".into()), "{line}");
        statuses.push(record["status"].as_u64().unwrap());
    }
    statuses.sort();
    assert_eq!(statuses, [400, 400, 404]);
}

#[test]
fn a_trusted_proxy_names_the_client() {
    for (trusted, expected) in [("", "127.0.0.1"), ("trusted-proxies \"127.0.0.1\";", "192.0.2.7")]
    {
        let server = format!("server {{ workers 1; admin \"off\"; {trusted} }}");
        let site = r#"access-log "access.log" format="json"; route "/*" { files "."; }"#;
        let (mut weir, address) = Weir::front(&server, site);
        std::fs::write(weir.directory().join("file.txt"), "0123456789").unwrap();
        let fields = [("X-Forwarded-For", "203.0.113.1, 192.0.2.7")];
        // A miss, hits, and one that no route answers.
        for target in ["/file.txt", "/file.txt", "/file.txt", "/../up"] {
            client::ask(address, "GET", target, &fields);
        }
        assert!(weir.stop().success());
        let text = std::fs::read_to_string(weir.directory().join("access.log")).unwrap();
        assert_eq!(text.lines().count(), 4);
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["client"], expected, "{line}");
        }
    }
}

#[test]
fn what_reaches_no_site_is_logged_by_the_first() {
    let address = common::free_address();
    let site = |name: &str, format: &str| {
        format!(
            r#"site "{name}.example" {{
                listen "{address}"
                access-log "{name}.log" format="{format}"
                route "/*" {{ respond "x"; }}
            }}"#
        )
    };
    for format in ["json", "combined"] {
        let server = "server { workers 1; admin \"off\"; limits { header-size \"8KiB\"; }; }";
        let config = format!("{server}\n{}\n{}", site("first", format), site("other", format));
        let mut weir = Weir::run(&config, &[address]);
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        // The request, its answer, and what the log knows of the request line.
        let cases = [
            ("GET /a HTTP/1.1\r\nHost: third.example\r\n\r\n", 421, "GET /a HTTP/1.1"),
            ("GET /b HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "GET /b HTTP/1.1"),
            ("GET\0/ HTTP/1.1\r\n\r\n", 400, "-"),
            ("nonsense\r\n\r\n", 400, "-"),
            ("GET / HTTP/1.1\r\nHost: a\r\nbad field\r\n\r\n", 400, "-"),
            (&*long, 431, "-"),
        ];
        for (request, status, _) in cases {
            let mut client = Client::connect(address).unwrap();
            client.send(request.as_bytes()).unwrap();
            assert_eq!(client.response("GET").unwrap().status, status, "{request}");
            // The line is written when the connection ends.
            if status != 421 {
                assert!(client.is_closed(), "{request}");
            }
        }
        assert!(weir.stop().success());
        let read = |name| std::fs::read_to_string(weir.directory().join(name)).unwrap();
        assert_eq!(read("other.log"), "");
        let text = read("first.log");
        assert_eq!(text.lines().count(), cases.len(), "{text}");
        for ((_, status, said), line) in cases.iter().zip(text.lines()) {
            if format == "combined" {
                assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
                assert!(line.contains(&format!("] \"{said}\" {status} ")), "{line}");
                continue;
            }
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&record["client"], &record["site"]), (&"127.0.0.1".into(), &"".into()));
            assert_eq!(record["status"], *status, "{line}");
            assert_eq!(record.get("method").is_some(), *said != "-", "{line}");
        }
    }
}

#[test]
fn a_combined_line_is_apaches() {
    let log = Logged::start("combined", FILES);
    // One connection, and so one worker's buffer: the order is the requests'.
    let mut client = Client::connect(log.address).unwrap();
    client.ask("GET", "/file.txt?a", &[("User-Agent", "x/1"), ("Referer", "r")]).unwrap();
    client.ask("GET", "/none", &[]).unwrap();
    let lines = log.lines(2);
    let (start, rest) = lines[0].split_once(" [").unwrap();
    assert_eq!(start, "127.0.0.1 - -");
    let (time, rest) = rest.split_once("] ").unwrap();
    assert_eq!(rest, "\"GET /file.txt?a HTTP/1.1\" 200 10 \"r\" \"x/1\"");
    let shape: String = time
        .chars()
        .map(|c| match c {
            '0'..='9' => '9',
            'A'..='Z' | 'a'..='z' => 'a',
            c => c,
        })
        .collect();
    assert_eq!(shape, "99/aaa/9999:99:99:99 +9999", "{time}");
    assert!(lines[1].contains("] \"GET /none HTTP/1.1\" 404 "), "{}", lines[1]);
    assert!(lines[1].ends_with(" \"-\" \"-\""), "{}", lines[1]);
}

#[test]
fn rotation_loses_no_line() {
    let log = Logged::start("json", FILES);
    let mut client = Client::connect(log.address).unwrap();
    let moved = log.weir.directory().join("access.log.1");
    for i in 0..20 {
        client.ask("GET", &format!("/file.txt?before={i}"), &[]).unwrap();
    }
    // On the disk before the file is moved, or they would be in the new one.
    log.lines(20);
    std::fs::rename(log.path(), &moved).unwrap();
    client.ask("GET", "/file.txt?between", &[]).unwrap();
    log.weir.signal(Signal::USR1);
    let fresh = wait_for(SOON, || log.path().exists().then_some(()));
    assert!(fresh.is_some(), "no new file:\n{}", log.weir.log());
    client.ask("GET", "/file.txt?after", &[]).unwrap();
    let all = wait_for(SOON, || {
        let old = std::fs::read_to_string(&moved).unwrap();
        let new = std::fs::read_to_string(log.path()).unwrap();
        let lines = old.lines().count() + new.lines().count();
        (lines == 22 && new.contains("?after")).then_some((old, new))
    });
    let (old, _) = all.expect("22 lines in both files together, the last in the new one");
    assert!(old.contains("?before=0") && !old.contains("?after"), "{old}");
}

#[test]
fn a_stop_writes_what_is_left() {
    let mut log = Logged::start("json", FILES);
    for i in 0..5 {
        client::ask(log.address, "GET", &format!("/file.txt?{i}"), &[]);
    }
    assert!(log.weir.stop().success());
    assert_eq!(std::fs::read_to_string(log.path()).unwrap().lines().count(), 5);
}

#[test]
fn a_client_cannot_write_lines_of_its_own() {
    for format in ["json", "combined"] {
        let log = Logged::start(format, FILES);
        let nasty: &[&[u8]] = &[
            b"\" 200 1\"",
            b"\\\" \\x0a 9.9.9.9 - - [",
            b"\x80\xff\xc3\x28",
            b"tab\there",
            "\u{2028}\u{202e}".as_bytes(),
            b"{\"status\":200}",
        ];
        // One connection, and so one worker's buffer: the order is the requests'.
        let mut client = Client::connect(log.address).unwrap();
        let ask = |value: &&[u8]| {
            let head = [
                b"GET /\"x\" HTTP/1.1\r\nHost: site.example\r\nUser-Agent: ",
                *value,
                b"\r\nReferer: ",
                *value,
                b"\r\n\r\n",
            ];
            client.send(&head.concat()).unwrap();
            client.response("GET").unwrap().status
        };
        let statuses: Vec<u16> = nasty.iter().map(ask).collect();
        let lines = log.lines(nasty.len());
        for ((value, status), line) in nasty.iter().zip(statuses).zip(lines) {
            assert!(line.bytes().all(|byte| byte >= b' '), "{format}: {line:?}");
            if format == "json" {
                let record: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(record["status"], status, "{line}");
                let said = String::from_utf8_lossy(value).into_owned();
                assert_eq!(record["user_agent"], said, "{line}");
                assert_eq!(record["referer"], said, "{line}");
            } else {
                assert!(line.is_ascii(), "{line:?}");
                // The request, its status and two quoted fields: six quotes that are not escaped.
                let bare = line.replace("\\\\", "").replace("\\\"", "");
                assert_eq!(bare.matches('"').count(), 6, "{line}");
                assert!(bare.contains(&format!("\" {status} ")), "{line}");
            }
        }
    }
}

#[test]
fn a_download_that_is_cut_off_is_not_complete() {
    let log = Logged::start("json", FILES);
    const LEN: u64 = 24 << 20;
    std::fs::write(log.weir.directory().join("large"), vec![b'x'; LEN as usize]).unwrap();
    let mut client = Client::connect(log.address).unwrap();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    client.take(1000).unwrap();
    drop(client);
    let record: Value = serde_json::from_str(&log.lines(1)[0]).unwrap();
    assert_eq!((&record["status"], &record["complete"]), (&200.into(), &false.into()), "{record}");
}

#[test]
fn every_site_has_its_own_log() {
    let address = common::free_address();
    let site = |name: &str| {
        format!(
            r#"site "{name}" {{
                listen "{address}"
                access-log "{name}.log" format="json"
                route "/*" {{ respond "{name}"; }}
            }}"#
        )
    };
    let config =
        format!("server {{ admin \"off\"; }}\n{}\n{}", site("a.example"), site("b.example"));
    let mut weir = Weir::run(&config, &[address]);
    for host in ["a.example", "b.example", "B.EXAMPLE:80"] {
        assert_eq!(client::get(address, host, "/").unwrap().status, 200);
    }
    assert_eq!(client::get(address, "c.example", "/").unwrap().status, 421);
    assert!(weir.stop().success());
    let count = |name: &str| {
        let text = std::fs::read_to_string(weir.directory().join(name)).unwrap();
        let own = |line: &&str| line.contains(&name.replace(".log", ""));
        (text.lines().filter(own).count(), text.lines().count())
    };
    // The first site's log has what reached none, too.
    assert_eq!((count("a.example.log"), count("b.example.log")), ((1, 2), (2, 2)));
}
