//! Plugins deployed into a running server: by the command and by the admin API, on which routes,
//! back and forth, on trial, under load, and over a restart.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::client::{self, Client};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A module for Weir's own interface that marks responses with `x-plugin: MARK`, and does this
/// before.
fn module(mark: &str, first: &str) -> String {
    let edit = format!("\\02\\00\\08\\00\\{:02x}\\00\\00\\00x-plugin{mark}", mark.len());
    let length = 16 + mark.len();
    format!(
        "(module
           (memory (export \"memory\") 8)
           (data (i32.const 400000) \"{edit}\")
           (func (export \"weir_abi_1\"))
           (func (export \"weir_buffer\") (param $kind i32) (param $size i32) (result i32)
             (i32.add (i32.const 1024) (i32.mul (local.get $kind) (i32.const 70000))))
           (func (export \"weir_on_response\") (param i32) (result i64)
             {first}
             (i64.or (i64.shl (i64.const 400000) (i64.const 32)) (i64.const {length}))))"
    )
}

struct Site {
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Site {
    /// Three routes that answer by themselves; `blocks` beside the site.
    fn start(directory: TempDir, blocks: &str) -> Site {
        let (address, admin) = (free_address(), free_address());
        std::fs::write(directory.path().join("v1.wat"), module("v1", "")).unwrap();
        std::fs::write(directory.path().join("v2.wat"), module("v2", "")).unwrap();
        std::fs::write(directory.path().join("bad.wat"), module("bad", "unreachable")).unwrap();
        let config = Site::config(address, admin, blocks);
        Site { weir: Weir::run_in(directory, &config, &[address, admin]), address, admin }
    }

    fn config(address: SocketAddr, admin: SocketAddr, blocks: &str) -> String {
        format!(
            "server {{ workers 2; admin \"{admin}\"; }}\n{blocks}\nsite \"a.example\" {{\n\
             listen \"{address}\"\n\
             route \"/one\" {{ respond \"one\"; }}\n\
             route \"/two/*\" {{ respond \"two\"; }}\n\
             route \"/*\" {{ respond \"rest\"; }}\n}}\n"
        )
    }

    fn new() -> Site {
        Site::start(TempDir::new().unwrap(), "")
    }

    /// What the plugin wrote on the response, if it ran.
    fn mark(&self, target: &str) -> Option<String> {
        let response = client::get(self.address, "a.example", target).unwrap();
        assert_eq!(response.status, 200, "{target}");
        response.header("x-plugin").map(str::to_owned)
    }

    fn marks(&self) -> [Option<String>; 3] {
        ["/one", "/two/x", "/three"].map(|target| self.mark(target))
    }

    fn cli(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let admin = self.admin.to_string();
        let arguments = [&["plugin"], arguments, &["--admin", &admin]].concat();
        let output = command(self.weir.directory(), &arguments);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.cli(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
        out
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.cli(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {out}{err}");
        err
    }

    fn show(&self, name: &str) -> Value {
        serde_json::from_str(&self.done(&["show", name, "--json"])).unwrap()
    }

    /// A request to the admin API.
    fn ask(&self, method: &str, path: &str, fields: &str, body: &[u8]) -> (u16, Value) {
        let mut client = Client::connect(self.admin).unwrap();
        let (admin, len) = (self.admin, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {admin}\r\n{fields}Content-Length: {len}\r\n\r\n"
        );
        client.send(&[head.as_bytes(), body].concat()).unwrap();
        let response = client.response(method).unwrap();
        (response.status, serde_json::from_slice(&response.body).unwrap())
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let page = client::get(self.admin, &self.admin.to_string(), "/metrics").unwrap();
        let page = String::from_utf8(page.body).unwrap();
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
        samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
    }
}

fn some(mark: &str) -> Option<String> {
    Some(mark.to_owned())
}

#[test]
fn the_next_request_runs_what_was_deployed() {
    let site = Site::new();
    assert_eq!(site.marks(), [None, None, None]);
    assert!(site.done(&["list"]).starts_with("no plugins;"));
    let told = site.done(&["deploy", "mark", "v1.wat"]);
    assert!(
        told.starts_with("mark: generation 1 is active on every route\nweir 1, module "),
        "{told}"
    );
    assert!(
        told.ends_with("It ends with the server: no `plugins { store … }` is configured.\n"),
        "{told}"
    );
    assert_eq!(site.marks(), [some("v1"), some("v1"), some("v1")]);

    // A new version keeps the routes unless others are named.
    let told =
        site.done(&["deploy", "mark", "v2.wat", "--route", "/one", "--route", "a.example/two/*"]);
    assert!(told.starts_with("mark: generation 2 is active on /one, a.example/two/*\n"), "{told}");
    assert_eq!(site.marks(), [some("v2"), some("v2"), None]);
    site.done(&["deploy", "mark", "v1.wat", "--cpu", "20ms", "--on-failure", "fail"]);
    assert_eq!(site.marks(), [some("v1"), some("v1"), None]);
    let shown = site.show("mark");
    assert_eq!((&shown["generation"], &shown["state"]), (&json!(3), &json!("active")));
    assert_eq!(shown["policy"]["cpu_ms"], 20);
    assert_eq!(shown["policy"]["on_failure"], "fail");
    assert_eq!(shown["streams"], 2);
    assert_eq!(shown["history"].as_array().unwrap().len(), 2);
    let list = site.done(&["list"]);
    assert!(list.contains("mark                 active       3 weir 1"), "{list}");
    let text = site.done(&["show", "mark"]);
    assert!(
        text.contains("`weir plugin rollback` goes back to\n  generation 2, module "),
        "{text}"
    );

    let told = site.done(&["rollback", "mark"]);
    assert!(told.starts_with("mark: generation 4 is active on /one, a.example/two/*\n"), "{told}");
    assert_eq!(site.marks(), [some("v2"), some("v2"), None]);
    site.done(&["rollback", "mark"]);
    assert_eq!(site.marks(), [some("v1"), some("v1"), some("v1")]);
    let err = site.refused(&["rollback", "mark"]);
    assert_eq!(
        err,
        "weir: the server refused: plugin \"mark\" has no earlier deployment to go back to\n"
    );
    let metrics = site.metrics();
    let of = |name: &str| metrics[&format!("{name}{{plugin=\"mark\"}}")];
    assert_eq!(of("weir_plugin_generation"), 5.0);
    assert_eq!(of("weir_plugin_streams_total"), 3.0 + 2.0 + 2.0 + 2.0 + 3.0);
    assert!(of("weir_plugin_calls_total") >= 12.0 && of("weir_plugin_memory_bytes") > 1e6);
    assert!(of("weir_plugin_call_seconds_count") >= 1.0);
    assert_eq!(metrics["weir_plugin_state{plugin=\"mark\",state=\"active\"}"], 1.0);
    assert_eq!(metrics["weir_plugin_failures_total{plugin=\"mark\",kind=\"trap\"}"], 0.0);

    assert_eq!(site.done(&["remove", "mark"]), "removed mark\n");
    assert_eq!(site.marks(), [None, None, None]);
    for arguments in [["show", "mark"], ["remove", "mark"], ["rollback", "mark"]] {
        let err = site.refused(&arguments);
        assert_eq!(err, "weir: the server refused: no plugin is called \"mark\"; there are none\n");
    }
}

#[test]
fn what_is_wrong_is_said_and_nothing_changes() {
    let site = Site::new();
    site.done(&["deploy", "mark", "v1.wat", "--route", "/one"]);
    std::fs::write(site.weir.directory().join("none.wat"), "(module)").unwrap();
    for (arguments, word) in [
        (&["deploy", "mark", "none.wat"][..], "plugin \"mark\": the module speaks no interface"),
        (&["deploy", "mark", "absent.wat"], "cannot read absent.wat: No such file"),
        (&["deploy", "a/b", "v2.wat"], "\"a/b\" is no name of a plugin"),
        (
            &["deploy", "mark", "v2.wat", "--route", "/four"],
            "no route is \"/four\"; the routes are a.example/one, a.example/two/*, a.example/*",
        ),
        (
            &["deploy", "mark", "v2.wat", "--cpu", "1h"],
            "cpu must be from 1ms to 10s, not 3600000ms",
        ),
        (&["deploy", "mark", "v2.wat", "--memory", "lots"], "memory: \"lots\" is no size"),
        (
            &["deploy", "mark", "v2.wat", "--canary", "0", "--for", "1s"],
            "canary: \"0\" is no share",
        ),
        (&["deploy", "mark", "v2.wat", "--config-file", "absent.json"], "cannot read absent.json"),
    ] {
        let err = site.refused(arguments);
        assert!(err.contains(word), "{arguments:?}: {err}");
    }
    for arguments in [
        &["deploy", "mark"][..],
        &["deploy", "mark", "v2.wat", "--at", "fill"],
        &["deploy", "mark", "v2.wat", "--canary", "5%"],
        &["deploy", "mark", "v2.wat", "--for", "5s"],
        &["deploy", "mark", "v2.wat", "--config", "a", "--config-file", "b"],
    ] {
        assert_eq!(site.cli(arguments).0, Some(2), "{arguments:?}");
    }
    assert_eq!(site.marks(), [some("v1"), None, None]);
    assert_eq!(site.show("mark")["generation"], 1);
}

#[test]
fn the_api_takes_bodies_and_forms() {
    let site = Site::new();
    let v1 = module("v1", "");
    let wasm = "Content-Type: application/wasm\r\n";
    let (status, answer) = site.ask("POST", "/plugins/mark?route=/one", wasm, v1.as_bytes());
    assert_eq!((status, &answer["routes"]), (200, &json!(["/one"])), "{answer}");
    assert_eq!((&answer["state"], &answer["code"]), (&json!("active"), &json!("compiled")));
    assert_eq!(site.marks(), [some("v1"), None, None]);
    let form = format!(
        "--x\r\nContent-Disposition: form-data; name=\"module\"; filename=\"m.wasm\"\r\n\
         Content-Type: application/wasm\r\n\r\n{}\r\n\
         --x\r\nContent-Disposition: form-data; name=\"config\"\r\n\r\n{{\"a\": 1}}\r\n\
         --x\r\nContent-Disposition: form-data; name=\"policy\"\r\n\r\n{{\"cpu_ms\": 9}}\r\n\
         --x--\r\n",
        module("v2", "")
    );
    let multipart = "Content-Type: multipart/form-data; boundary=x\r\n";
    let (status, answer) = site.ask("POST", "/plugins/mark", multipart, form.as_bytes());
    assert_eq!((status, &answer["generation"]), (200, &json!(2)), "{answer}");
    assert_eq!(site.marks(), [some("v2"), None, None]);
    let (status, shown) = site.ask("GET", "/plugins/mark", "", b"");
    assert_eq!((status, &shown["config"]), (200, &json!("{\"a\": 1}")));
    assert_eq!(shown["policy"]["cpu_ms"], 9);

    let json = "Content-Type: application/json\r\n";
    let evil = "Origin: http://evil.example\r\nContent-Type: application/wasm\r\n";
    let fetch = "Sec-Fetch-Site: cross-site\r\nContent-Type: application/wasm\r\n";
    let v1 = v1.as_bytes();
    for (method, path, fields, body, status, word) in [
        ("POST", "/plugins/mark", evil, v1, 403, "another origin"),
        ("POST", "/plugins/mark", fetch, v1, 403, "another site"),
        ("DELETE", "/plugins/mark", "Origin: null\r\n", b"", 403, "another origin"),
        ("POST", "/plugins/mark/rollback", wasm, b"", 403, "application/json"),
        ("POST", "/plugins/mark", "Content-Type: text/plain\r\n", v1, 415, "application/wasm"),
        ("POST", "/plugins/mark", json, v1, 415, "multipart/form-data"),
        ("POST", "/plugins/mark", wasm, b"", 400, "there is no module"),
        ("POST", "/plugins/mark?x=1", wasm, v1, 400, "x: no such parameter; there are module,"),
        ("POST", "/plugins/mark", "Content-Type: multipart/form-data\r\n", v1, 400, "boundary"),
        ("POST", "/plugins/mark", multipart, &form.as_bytes()[..100], 400, "form"),
        ("POST", "/plugins/mark", wasm, b"\0asm\x01\0\0\0", 422, "speaks no interface"),
        ("GET", "/plugins/moon", "", b"", 404, "no plugin is called \"moon\"; there are mark"),
        ("GET", "/plugins/a/b", "", b"", 404, "/plugins/NAME/rollback"),
        ("PUT", "/plugins/mark", wasm, v1, 405, "POST /plugins/NAME with a module"),
        ("GET", "/plugins/mark/rollback", "", b"", 405, "POST /plugins/NAME/rollback"),
    ] {
        let (got, answer) = site.ask(method, path, fields, body);
        assert_eq!(got, status, "{method} {path}: {answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(word), "{method} {path}: {error}");
    }
    assert_eq!(site.show("mark")["generation"], 2);
    let (status, answer) = site.ask("POST", "/plugins/mark/rollback", json, b"{}");
    assert_eq!((status, &answer["generation"]), (200, &json!(3)));
    assert_eq!(site.ask("DELETE", "/plugins/mark", "", b""), (200, json!({ "removed": "mark" })));
    assert_eq!(site.ask("GET", "/plugins", "", b""), (200, json!({ "plugins": [] })));
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let site = Site::new();
    let ask = |framing: &str| {
        let mut client = Client::connect(site.admin).unwrap();
        let head = format!(
            "POST /plugins/mark HTTP/1.1\r\nHost: {}\r\nContent-Type: application/wasm\r\n\
             {framing}\r\n\r\n",
            site.admin
        );
        client.send(head.as_bytes()).unwrap();
        client
    };
    let refused = |mut client: Client| {
        let response = client.response("POST").unwrap();
        assert_eq!(response.status, 413);
        let answer = String::from_utf8(response.body).unwrap();
        assert!(answer.contains("a module has at most 67108864 bytes"), "{answer}");
    };
    // Before any of it is there.
    refused(ask("Content-Length: 104857600"));
    // One whose length nobody said is received as far as it may go.
    let mut client = ask("Transfer-Encoding: chunked");
    let piece = [&b"100000\r\n"[..], &[0; 1 << 20], b"\r\n"].concat();
    for _ in 0..68 {
        client.send(&piece).unwrap();
    }
    client.send(b"1\r\nx\r\n").unwrap();
    refused(client);
    assert_eq!(site.ask("GET", "/plugins", "", b""), (200, json!({ "plugins": [] })));
}

#[test]
fn a_trial_ends_by_itself() {
    let site = Site::new();
    site.done(&["deploy", "mark", "v1.wat"]);
    // A bad one is taken back early, and no request fails for it.
    let told = site.done(&["deploy", "mark", "bad.wat", "--canary", "50%", "--for", "10m"]);
    assert!(told.starts_with("mark: generation 2 is being tried out on every route\n"), "{told}");
    let shown = site.show("mark");
    assert_eq!(
        (&shown["state"], &shown["canary"]["share_percent"]),
        (&json!("canary"), &json!(50.0))
    );
    let ended = wait_for(PATIENCE, || {
        site.mark("/one");
        let shown = site.show("mark");
        shown["canary"].is_null().then_some(shown)
    });
    let shown = ended.unwrap();
    let how = shown["last_canary"].as_str().unwrap();
    assert!(how.starts_with("generation 2 was rolled back: "), "{how}");
    assert_eq!((&shown["generation"], &shown["state"]), (&json!(1), &json!("active")));
    assert_eq!(site.mark("/one"), some("v1"));
    // A good one comes into force at the end of its time, on routes of its own.
    let began = Instant::now();
    site.done(&["deploy", "mark", "v2.wat", "--canary", "30%", "--for", "2s", "--route", "/one"]);
    let mut seen = [0; 2];
    while began.elapsed() < Duration::from_secs(1) {
        seen[usize::from(site.mark("/two/x") == some("v2"))] += 1;
    }
    assert!(seen[0] > 10 && seen[1] > 2, "{seen:?}");
    let promoted = wait_for(PATIENCE, || {
        (site.mark("/one") == some("v2") && site.mark("/two/x").is_none()).then_some(())
    });
    assert!(promoted.is_some(), "{}", site.show("mark"));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(site.show("mark")["last_canary"], "generation 3 was promoted");
}

#[test]
fn no_request_fails_while_plugins_come_and_go() {
    let site = Site::new();
    site.done(&["deploy", "mark", "v1.wat"]);
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (stop, count, address) = (Arc::clone(&stop), Arc::clone(&count), site.address);
            std::thread::spawn(move || {
                let mut client = Client::connect(address).unwrap();
                while !stop.load(Relaxed) {
                    client.send(b"GET /one HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
                    let response = client.response("GET").unwrap();
                    let mark = response.header("x-plugin").unwrap_or_default();
                    assert!(["v1", "v2"].contains(&mark) && response.status == 200, "{response:?}");
                    assert_eq!(response.body, b"one");
                    count.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let wasm = "Content-Type: application/wasm\r\n";
    for number in 0..100 {
        let module = module(["v1", "v2"][number % 2], "");
        let (status, answer) = site.ask("POST", "/plugins/mark", wasm, module.as_bytes());
        assert_eq!(status, 200, "{answer}");
    }
    stop.store(true, Relaxed);
    for thread in load {
        thread.join().unwrap();
    }
    assert!(count.load(Relaxed) > 200, "{count:?}");
    let shown = site.show("mark");
    assert_eq!((&shown["generation"], &shown["draining"]), (&json!(101), &json!(0)));
}

#[test]
fn deployments_are_there_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let store = directory.path().join("store").display().to_string();
    let mut site = Site::start(directory, &format!("plugins {{ store \"{store}\"; }}"));
    let told = site.done(&["deploy", "mark", "v1.wat", "--route", "/one"]);
    assert!(!told.contains("It ends with the server"), "{told}");
    site.done(&["deploy", "mark", "v2.wat"]);
    assert_eq!(site.show("mark")["kept"], true);
    // However it ends.
    site.weir.signal(Signal::KILL);
    site.weir.wait(PATIENCE).unwrap();
    let again = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["run", "weir.kdl"])
        .current_dir(site.weir.directory())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut again = again.unwrap();
    let served = wait_for(PATIENCE, || client::get(site.address, "a.example", "/one").ok());
    let shown = served.is_some().then(|| (site.marks(), site.show("mark")));
    // A second server must not use the same store.
    let second = directory_of(&site, &store);
    let refused = command(second.path(), &["run", "weir.kdl"]);
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&again), Signal::TERM);
    let ended = wait_for(PATIENCE, || again.try_wait().unwrap());
    again.kill().unwrap();
    let (marks, shown) = shown.expect("the second serves");
    assert_eq!(marks, [some("v2"), None, None]);
    assert_eq!((&shown["code"], &shown["generation"]), (&json!("loaded"), &json!(2)));
    assert_eq!(shown["history"][0]["generation"], 1);
    assert!(ended.unwrap().success());
    let err = String::from_utf8(refused.stderr).unwrap();
    assert!(err.contains("another process uses it"), "{err}");
}

/// The configuration of another server with the same store.
fn directory_of(site: &Site, store: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let block = format!("plugins {{ store \"{store}\"; }}");
    let config = Site::config(free_address(), free_address(), &block);
    assert_ne!(site.address.port(), 0);
    std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
    directory
}

#[test]
fn the_configuration_and_deployments_get_along() {
    let directory = TempDir::new().unwrap();
    let mut site = Site::start(directory, "plugin \"mark\" { source \"v1.wat\"; }");
    assert_eq!(site.marks(), [None, None, None], "no route uses it");
    let file = site.weir.directory().join("weir.kdl");
    let config = std::fs::read_to_string(&file).unwrap();
    let used = config.replace("respond \"one\"", "respond \"one\"; use \"mark\"");
    std::fs::write(&file, &used).unwrap();
    let admin = site.admin.to_string();
    let reload = || {
        let output = command(site.weir.directory(), &["reload", "--admin", &admin]);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert_eq!(reload(), "reloaded; this is configuration 2\n");
    assert_eq!(site.marks(), [some("v1"), None, None]);
    let told = site.done(&["deploy", "mark", "v2.wat"]);
    assert!(told.starts_with("mark: generation 2 is active on a.example/one\n"), "{told}");
    assert_eq!(site.marks(), [some("v2"), None, None]);
    assert_eq!(reload(), "reloaded; this is configuration 3\n");
    assert_eq!(site.marks(), [some("v2"), None, None], "its block has not changed");
    let err = site.refused(&["remove", "mark"]);
    assert!(err.contains("part of the configuration (it has a block there)"), "{err}");
    std::fs::write(&file, used.replace("v1.wat", "none.wat")).unwrap();
    let answer = reload();
    assert!(answer.contains("none.wat"), "{answer}");
    std::fs::write(&file, used.replace("use \"mark\"", "use \"moon\"")).unwrap();
    let answer = reload();
    assert!(answer.contains("uses the plugin \"moon\", which is neither"), "{answer}");
    assert_eq!(site.marks(), [some("v2"), None, None]);
    std::fs::write(&file, config.replace("plugin \"mark\" { source \"v1.wat\"; }", "")).unwrap();
    assert_eq!(reload(), "reloaded; this is configuration 4\n");
    assert_eq!(site.marks(), [None, None, None]);
    assert!(site.done(&["list"]).starts_with("no plugins"));
    site.weir.signal(Signal::TERM);
    assert!(site.weir.wait(PATIENCE).unwrap().success(), "the threads of plugins let it end");
}
