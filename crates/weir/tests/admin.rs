//! The admin API and the commands that speak to it: health, metrics, status, purge, reload, and who
//! may not use it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use common::client::{self, Client, Response};
use common::origin::{self, Origin};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

struct Managed {
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
    origin: Origin,
}

impl Managed {
    /// Sites `a.example` and `b.example` in front of an origin that counts its answers.
    fn start() -> Managed {
        let (address, admin) = (free_address(), free_address());
        let count = AtomicUsize::new(0);
        let origin = Origin::start(move |request| {
            if request.line().contains("/fails") {
                return origin::answer("500 Internal Server Error", "", b"");
            }
            let answer = count.fetch_add(1, Relaxed).to_string();
            let fields = "Cache-Control: max-age=600, stale-while-revalidate=600\r\n";
            origin::answer("200 OK", fields, answer.as_bytes())
        });
        let site = |name: &str| {
            format!(
                r#"site "{name}" {{
                    listen "{address}"
                    route "/fixed" {{ respond "fixed"; }}
                    route "/dead" {{ proxy "http://127.0.0.1:1"; }}
                    route "/*" {{ proxy "{}"; }}
                }}"#,
                origin.url()
            )
        };
        let config = format!(
            "server {{ workers 2; admin \"{admin}\"; }}\n{}\n{}",
            site("a.example"),
            site("b.example")
        );
        Managed { weir: Weir::run(&config, &[address, admin]), address, admin, origin }
    }

    fn get(&self, host: &str, target: &str) -> Response {
        client::get(self.address, host, target).unwrap()
    }

    fn body(&self, host: &str, target: &str) -> String {
        String::from_utf8(self.get(host, target).body).unwrap()
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let mut client = Client::connect(self.admin).unwrap();
        let (admin, len) = (self.admin, body.len());
        let head = format!("POST {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: {len}\r\n");
        client
            .send(format!("{head}Content-Type: application/json\r\n\r\n{body}").as_bytes())
            .unwrap();
        let response = client.response("POST").unwrap();
        assert_eq!(response.header("content-type"), Some("application/json"));
        (response.status, serde_json::from_slice(&response.body).unwrap())
    }

    fn cli(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let admin = self.admin.to_string();
        let output = command(self.weir.directory(), &[arguments, &["--admin", &admin]].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let response = client::get(self.admin, &self.admin.to_string(), "/metrics").unwrap();
        assert_eq!(
            response.header("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        parse_metrics(&String::from_utf8(response.body).unwrap())
    }

    /// Requests counted so far; they are counted when their response is written.
    fn requests(&self, site: &str, route: &str, status: u16, cache: &str) -> f64 {
        let name = format!(
            "weir_requests_total{{site=\"{site}\",route=\"{route}\",status=\"{status}\",\
             cache=\"{cache}\"}}"
        );
        self.metrics().get(&name).copied().unwrap_or(0.0)
    }
}

/// Every sample by name and labels; panics at a line that Prometheus would not take, a sample
/// without a type, a family that is torn apart, or a sample that comes twice.
fn parse_metrics(text: &str) -> BTreeMap<String, f64> {
    let is_name = |name: &str| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
    };
    let mut families: Vec<(String, String)> = Vec::new();
    let mut samples = BTreeMap::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect(line);
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(families.iter().all(|(known, _)| known != name), "twice: {line}");
            families.push((name.to_owned(), String::new()));
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            let last = families.last_mut().expect(line);
            assert_eq!(last.0, name, "{line}");
            last.1 = kind.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (series, ""),
        };
        assert!(is_name(name), "{line}");
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (label, _) = label.split_once("=\"").expect(line);
            assert!(is_name(label), "{line}");
        }
        let (family, kind) = families.last().expect(line);
        let suffixes: &[&str] =
            if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.iter().any(|s| format!("{family}{s}") == name), "{line} in {family}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn health_and_resources() {
    let mut managed = Managed::start();
    let host = managed.admin.to_string();
    let get = |path: &str| client::get(managed.admin, &host, path).unwrap();
    let health = get("/healthz");
    assert_eq!((health.status, &health.body[..]), (200, &b"ok\n"[..]));
    assert_eq!(health.header("cache-control"), Some("no-store"));
    assert_eq!(get("/nothing").status, 404);
    assert!(get("/config").body.starts_with(b"server {"));
    for (method, path) in [("POST", "/healthz"), ("GET", "/purge"), ("GET", "/reload")] {
        let fields = [("Host", &*host), JSON, ("Content-Length", "0")];
        assert_eq!(client::ask(managed.admin, method, path, &fields).status, 405, "{path}");
    }
    // While it drains, it says so to whoever balances load.
    let mut busy = Client::connect(managed.address).unwrap();
    busy.send(b"GET /fixed HTTP/1.1\r\nHost: a.example\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    managed.weir.signal(Signal::TERM);
    let draining = wait_for(PATIENCE, || {
        let health = client::get(managed.admin, &host, "/healthz").ok()?;
        (health.status == 503).then_some(health.body)
    });
    assert_eq!(draining.as_deref(), Some(&b"draining\n"[..]));
    busy.send(b"\r\n").unwrap();
    let last = busy.response("GET").unwrap();
    assert_eq!((last.status, last.says_close()), (200, true));
    assert!(managed.weir.wait(PATIENCE).unwrap().success());
}

#[test]
fn counters_move_as_requests_do() {
    let managed = Managed::start();
    let before = managed.metrics();
    managed.get("a.example", "/x");
    managed.get("a.example", "/x");
    managed.get("a.example", "/x");
    managed.get("b.example", "/x");
    managed.get("b.example", "/fixed");
    managed.get("b.example", "/dead");
    managed.get("b.example", "/fails");
    managed.get("c.example", "/x");
    let settled =
        wait_for(PATIENCE, || (managed.requests("", "", 421, "none") == 1.0).then_some(()));
    assert!(settled.is_some(), "{:#?}", managed.metrics());
    for (site, route, status, cache, count) in [
        ("a.example", "/*", 200, "miss", 1.0),
        ("a.example", "/*", 200, "hit", 2.0),
        ("b.example", "/*", 200, "miss", 1.0),
        ("b.example", "/*", 200, "hit", 0.0),
        ("b.example", "/fixed", 200, "none", 1.0),
        ("b.example", "/dead", 502, "miss", 1.0),
        ("b.example", "/*", 500, "miss", 1.0),
    ] {
        let counted = managed.requests(site, route, status, cache);
        assert_eq!(counted, count, "{site} {route} {status} {cache}\n{:#?}", managed.metrics());
    }
    let after = managed.metrics();
    let grown = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
    // The harness's own probe of the listener may be accepted after the first look.
    assert!((8.0..=9.0).contains(&grown("weir_connections_accepted_total")));
    assert_eq!(grown("weir_cache_hits_total"), 2.0);
    assert_eq!(after["weir_cache_objects"], 2.0);
    assert!(after["weir_cache_bytes"] > 0.0 && after["weir_cache_limit_bytes"] > 1e6);
    let of = |name: &str, labels: &str| after[&format!("{name}{{{labels}}}")];
    let route = "site=\"a.example\",route=\"/*\"";
    assert_eq!(of("weir_request_duration_seconds_count", route), 3.0);
    assert_eq!(of("weir_request_duration_seconds_bucket", &format!("{route},le=\"+Inf\"")), 3.0);
    assert_eq!(of("weir_response_body_bytes_total", route), 3.0);
    let buckets: Vec<f64> = after
        .iter()
        .filter(|(name, _)| name.starts_with("weir_request_duration_seconds_bucket{site=\"a."))
        .map(|(_, count)| *count)
        .collect();
    assert!(buckets.len() > 5 && buckets.iter().all(|count| *count <= 3.0), "{buckets:?}");
    let upstream =
        format!("upstream=\"{}\",server=\"{}\"", managed.origin.url(), managed.origin.address);
    assert_eq!(of("weir_upstream_requests_total", &upstream), 3.0);
    assert_eq!(of("weir_upstream_healthy", &upstream), 1.0);
}

#[test]
fn a_purge_takes_what_it_names_and_nothing_else() {
    let managed = Managed::start();
    let targets = [("a.example", "/x?q=1"), ("a.example", "/y"), ("b.example", "/x?q=1")];
    let look = || targets.map(|(host, target)| managed.body(host, target));
    assert_eq!(look(), ["0", "1", "2"]);
    assert_eq!(look(), ["0", "1", "2"], "hits");

    let purge = |body: Value| managed.post("/purge", &body.to_string());
    let url = "http://a.example/x?q=1";
    assert_eq!(purge(json!({ "url": url })), (200, json!({ "purged": 1 })));
    assert_eq!(look(), ["3", "1", "2"]);
    assert_eq!(purge(json!({ "url": "http://a.example/x" })), (200, json!({ "purged": 0 })));
    assert_eq!(purge(json!({ "site": "a.example" })), (200, json!({ "purged": 2 })));
    assert_eq!(look(), ["4", "5", "2"]);
    assert_eq!(purge(json!({ "all": true })), (200, json!({ "purged": 3 })));
    assert_eq!(look(), ["6", "7", "8"]);

    // Soft: stale while a fresh one is fetched, since the origin allows it.
    assert_eq!(purge(json!({ "url": url, "soft": true })), (200, json!({ "purged": 1 })));
    assert_eq!(managed.body("a.example", "/x?q=1"), "6");
    let fresh = wait_for(PATIENCE, || (managed.body("a.example", "/x?q=1") == "9").then_some(()));
    assert!(fresh.is_some());

    for (body, status, word) in [
        (json!({ "site": "c.example" }), 404, "a.example"),
        (json!({ "url": "/x" }), 404, "http://"),
        (json!({ "url": "http://c.example/" }), 404, "c.example"),
        (json!({ "what": 1 }), 400, "unknown field `what`, expected one of `url`, `site`, `all`"),
        (json!({}), 400, "expected one of \"url\", \"site\" and \"all\", as in {"),
        (json!({ "url": url, "all": true }), 400, "expected one of \"url\""),
        (json!({ "site": 1 }), 400, "expected a string"),
        (json!({ "all": false }), 404, "all"),
    ] {
        let (got, answer) = purge(body.clone());
        assert_eq!(got, status, "{body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(word), "{body}: {answer}");
    }
    assert_eq!(managed.post("/purge", "not json").0, 400);
    assert_eq!(managed.post("/purge", &"x".repeat(100_000)).0, 400);
}

#[test]
fn the_commands_do_what_the_api_does() {
    let managed = Managed::start();
    assert_eq!(managed.body("a.example", "/x"), "0");
    assert_eq!(managed.body("a.example", "/x"), "0");
    let done = |arguments: &[&str]| {
        let (code, out, err) = managed.cli(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
        out
    };
    let status = done(&["status"]);
    for part in [
        &format!("(pid {}), up ", managed.weir.pid()),
        "2 workers, configuration 1",
        &format!("listening on {}", managed.address),
        "a.example/*",
        "1 hits, 1 misses",
        "healthy",
    ] {
        assert!(status.contains(part), "no {part:?} in\n{status}");
    }
    let status: Value = serde_json::from_str(&done(&["status", "--json"])).unwrap();
    assert_eq!(status["pid"], managed.weir.pid());
    assert_eq!((&status["draining"], &status["workers"]), (&false.into(), &2.into()));
    let rows = status["routes"].as_array().unwrap();
    let row = rows.iter().find(|row| row["site"] == "a.example" && row["route"] == "/*").unwrap();
    assert_eq!((&row["requests"], &row["hits"]), (&2.into(), &1.into()), "{status:#}");

    assert_eq!(done(&["purge", "http://a.example/x"]), "purged 1 stored response\n");
    assert_eq!(managed.body("a.example", "/x"), "1");
    assert_eq!(done(&["purge", "--site", "b.example"]), "purged 0 stored responses\n");
    let answer: Value = serde_json::from_str(&done(&["purge", "--all", "--json"])).unwrap();
    assert_eq!(answer, json!({ "purged": 1 }));
    let (code, _, err) = managed.cli(&["purge", "--site", "c.example"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("weir: the server refused: no site is called \"c.example\""), "{err}");

    assert_eq!(done(&["reload"]), "reloaded; this is configuration 2\n");
    let answer: Value = serde_json::from_str(&done(&["reload", "--json"])).unwrap();
    assert_eq!(answer, json!({ "generation": 3 }));
    let file = managed.weir.directory().join("weir.kdl");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replacen("listen", "lisen", 1)).unwrap();
    let (code, _, err) = managed.cli(&["reload"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("weir.kdl:3:21: unknown key \"lisen\""), "{err}");
    assert!(err.contains("did you mean \"listen\"?"), "{err}");
    assert_eq!(managed.body("a.example", "/fixed"), "fixed", "the old one goes on");
    std::fs::write(&file, good.replace("respond \"fixed\"", "respond \"changed\"")).unwrap();
    assert_eq!(done(&["reload"]), "reloaded; this is configuration 4\n");
    assert_eq!(managed.body("a.example", "/fixed"), "changed");
    let metrics = managed.metrics();
    assert_eq!(metrics["weir_config_generation"], 4.0);
    assert_eq!(metrics["weir_config_reload_failures_total"], 1.0);
}

#[test]
fn pages_of_strangers_cannot_use_it() {
    let managed = Managed::start();
    let own = managed.admin.to_string();
    let check = |method: &str, path: &str, fields: &[(&str, &str)], expected: u16| {
        let response = client::ask(managed.admin, method, path, fields);
        assert_eq!(response.status, expected, "{method} {path} {fields:?}");
    };
    for path in ["/healthz", "/metrics", "/status", "/config"] {
        check("GET", path, &[("Host", &own)], 200);
        check("GET", path, &[("Host", "localhost:9900")], 200);
        check("GET", path, &[("Host", "evil.example")], 403);
        check("GET", path, &[("Host", "127.0.0.1.evil.example")], 403);
        check("GET", path, &[("Host", "")], 403);
    }
    let empty = ("Content-Length", "0");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let fields = [("Host", &*own), empty, ("Content-Type", content_type)];
        check("POST", "/reload", &fields, 403);
    }
    check("POST", "/reload", &[("Host", &own), empty], 403);
    check("POST", "/reload", &[("Host", "evil.example"), empty, JSON], 403);
    assert_eq!(managed.metrics()["weir_config_generation"], 1.0, "none of them reloaded");
    check("POST", "/reload", &[("Host", &own), empty, JSON], 200);
    let with_parameter = ("Content-Type", "Application/JSON; charset=utf-8");
    check("POST", "/reload", &[("Host", &own), empty, with_parameter], 200);
    assert_eq!(managed.metrics()["weir_config_generation"], 3.0);
}

#[test]
fn a_unix_socket_is_for_its_owner() {
    let directory = tempfile::TempDir::new().unwrap();
    let socket = directory.path().join("admin.sock");
    let admin = format!("unix:{}", socket.display());
    let address = free_address();
    let config = format!(
        "server {{ admin \"{admin}\"; workers 1; }}\n\
         site \"*\" {{ listen \"{address}\"; route \"/*\" {{ respond \"x\"; }}; }}\n"
    );
    let mut weir = Weir::run_in(directory, &config, &[address]);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for arguments in [&["status"][..], &["purge", "--all"], &["reload"]] {
        let output = command(weir.directory(), &[arguments, &["--admin", &admin]].concat());
        assert!(output.status.success(), "{output:?}");
    }
    // One that crashed leaves its socket behind, which must not keep the next from starting.
    weir.signal(Signal::KILL);
    weir.wait(PATIENCE).unwrap();
    assert!(socket.exists());
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["run", "weir.kdl"])
        .current_dir(weir.directory())
        .spawn();
    let mut second = second.unwrap();
    let served = wait_for(PATIENCE, || client::get(address, "a", "/").ok());
    let status = command(weir.directory(), &["status", "--admin", &admin]);
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&second), Signal::TERM);
    let ended = wait_for(PATIENCE, || second.try_wait().unwrap());
    second.kill().unwrap();
    assert_eq!(served.expect("the second serves").body, b"x");
    assert!(status.status.success(), "{status:?}");
    assert!(ended.expect("the second ends").success());
    assert!(!socket.exists(), "a stop takes it away");
}
