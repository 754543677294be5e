//! Changing the configuration of a server at work, and stopping one: not one request is lost, and a
//! bad file changes nothing.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;
#[path = "reload/load.rs"]
mod load;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::client::{self, Client};
use common::origin::{Origin, Step, answer, raw, read_head};
use common::server::Weir;
use common::{PATIENCE, free_address, wait_for};
use load::Load;
use rustix::process::Signal;

const TARGETS: &[&str] = &["/fixed", "/files/large", "/app/slow", "/app/cached", "/files/small"];

/// Those under load one at a time: they are about time.
static TURN: Mutex<()> = Mutex::new(());

fn is_right(target: &str, body: &[u8]) -> bool {
    match target {
        "/fixed" => body.starts_with(b"version "),
        "/files/large" => body.len() == 300_000 && body.iter().all(|&byte| byte == b'L'),
        "/files/small" => body == b"small",
        _ => body == b"from the origin",
    }
}

fn origin() -> Origin {
    Origin::start(|request| {
        let slow = request.line().contains("/slow");
        let life = if slow { "no-store" } else { "max-age=1" };
        let fields = format!("Cache-Control: {life}\r\n");
        let pause = Step::Pause(Duration::from_millis(if slow { 20 } else { 0 }));
        vec![pause, answer("200 OK", &fields, b"from the origin").remove(0)]
    })
}

/// A server with everything in it that a reload may change.
struct Site {
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
    extra: SocketAddr,
    origin: Origin,
}

impl Site {
    fn start() -> Site {
        let directory = tempfile::TempDir::new().unwrap();
        fs::create_dir(directory.path().join("files")).unwrap();
        fs::write(directory.path().join("files/large"), [b'L'; 300_000]).unwrap();
        fs::write(directory.path().join("files/small"), "small").unwrap();
        let (address, admin, extra) = (free_address(), free_address(), free_address());
        let origin = origin();
        let config = config(address, admin, extra, &origin.url(), 0);
        let weir = Weir::run_in(directory, &config, &[address, admin, extra]);
        Site { weir, address, admin, extra, origin }
    }

    /// Puts a version of the configuration into the file.
    fn write(&self, version: usize) {
        let Site { address, admin, extra, .. } = *self;
        self.write_text(&config(address, admin, extra, &self.origin.url(), version));
    }

    fn write_text(&self, text: &str) {
        // As editors do: the server must never see half of it.
        let directory = self.weir.directory();
        fs::write(directory.join("new"), text).unwrap();
        fs::rename(directory.join("new"), directory.join("weir.kdl")).unwrap();
    }

    fn reload(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["reload", "--admin", &self.admin.to_string()]).output().unwrap()
    }

    fn version(&self) -> String {
        let got = client::get(self.address, "a", "/fixed").unwrap();
        String::from_utf8(got.body).unwrap()
    }

    fn wait_for_version(&self, version: usize) {
        let expect = format!("version {version}");
        let seen = wait_for(PATIENCE, || (self.version() == expect).then_some(()));
        assert!(seen.is_some(), "still {}\n{}", self.version(), self.weir.log());
    }
}

/// Versions differ in a body, in header edits, in the upstream's settings and in a listener.
fn config(
    address: SocketAddr,
    admin: SocketAddr,
    extra: SocketAddr,
    origin: &str,
    version: usize,
) -> String {
    let odd = version % 2 == 1;
    let listen = if odd { String::new() } else { format!("listen \"{extra}\"") };
    let balance = if odd { "least-connections" } else { "round-robin" };
    let header = if odd { "header { set \"X-Odd\" \"1\"; }" } else { "" };
    format!(
        r#"
        server {{ workers 2; admin "{admin}"; watch #{}; drain-timeout "20s"; }}
        upstream "app" {{ server "{origin}"; balance "{balance}"; keep-alive {}; }}
        site "*" {{
            listen "{address}"; {listen}
            access-log "access-{}.log"
            route "/fixed" {{ respond "version {version}"; {header}; }}
            route "/files/*" {{ files "files" strip-prefix=#true; {header}; }}
            route "/app/*" {{ proxy "app"; }}
        }}
        "#,
        version >= 1000,
        1 + version % 5,
        version % 3
    )
}

#[test]
fn a_hundred_reloads_lose_no_request() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let site = Site::start();
    let load = Load::start(site.address, TARGETS, is_right);
    for version in 1..=100 {
        let before = load.answered();
        site.write(version);
        if version % 10 == 0 {
            site.weir.signal(Signal::HUP);
            site.wait_for_version(version);
        } else {
            let output = site.reload();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(site.version(), format!("version {version}"));
        }
        // Every version is used by the load.
        let used = wait_for(PATIENCE, || (load.answered() > before + 20).then_some(()));
        assert!(used.is_some(), "the load stands still");
    }
    let (answered, by_http2, failures) = load.stop();
    println!("{answered} requests answered, {by_http2} by HTTP/2");
    assert!(failures.is_empty(), "{} of {answered} failed: {:#?}", failures.len(), failures);
    assert!(answered > 2000 && by_http2 > 50, "{answered}, {by_http2}: hardly a load");
}

#[test]
fn a_stop_loses_no_request() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..3 {
        let mut site = Site::start();
        let load = Load::start(site.address, TARGETS, is_right);
        let running = wait_for(PATIENCE, || (load.answered() > 300).then_some(()));
        assert!(running.is_some(), "the load stands still");
        site.weir.signal(Signal::TERM);
        let (answered, by_http2, failures) = load.finish();
        println!("{answered} requests answered, {by_http2} by HTTP/2");
        assert!(failures.is_empty(), "{} of {answered} failed: {:#?}", failures.len(), failures);
        assert!(by_http2 > 0);
        assert_eq!(site.weir.wait(PATIENCE).unwrap().code(), Some(0));
    }
}

#[test]
fn a_bad_file_changes_nothing_and_says_where_it_is_bad() {
    let site = Site::start();
    let check = |find: &str, replace: &str, place: &str, says: &str| {
        let Site { address, admin, extra, .. } = site;
        let good = config(address, admin, extra, &site.origin.url(), 7);
        assert!(good.contains(find), "{find}");
        site.write_text(&good.replacen(find, replace, 1));
        let output = site.reload();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{replace} was taken");
        assert!(said.contains(place) && said.contains(says), "{said}");
        assert_eq!(site.version(), "version 0");
        assert!(TcpStream::connect(site.extra).is_ok(), "a listener is gone");
        site.weir.wait_for_log(says);
    };
    check("balance", "balanse", "weir.kdl:3:", "balanse");
    check("site \"*\" {", "site \"*\" ", "weir.kdl:", "}");
    check("proxy \"app\"", "proxy \"ap\"", "weir.kdl:9:", "ap");
    check("files \"files\"", "files \"nowhere\"", "", "nowhere");
    // Good for a start, but not for this server.
    check("workers 2", "workers 3", "", "workers");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("listen \"{}\"; listen", taken.local_addr().unwrap());
    check("listen", &taken, "", "in use");
    site.write(8);
    assert!(site.reload().status.success());
    assert_eq!(site.version(), "version 8");
}

#[test]
fn listeners_come_and_go() {
    let site = Site::start();
    let mut kept = Client::connect(site.extra).unwrap();
    assert_eq!(kept.ask("GET", "/fixed", &[]).unwrap().body, b"version 0");
    site.write(1);
    assert!(site.reload().status.success());
    let refused = || TcpStream::connect(site.extra).is_err().then_some(());
    assert!(wait_for(PATIENCE, refused).is_some(), "a removed listener still accepts");
    // What was accepted goes on.
    assert_eq!(kept.ask("GET", "/files/small", &[]).unwrap().status, 200);
    site.write(2);
    assert!(site.reload().status.success());
    let got = client::get(site.extra, "a", "/fixed").unwrap();
    assert_eq!(got.body, b"version 2");
}

#[test]
fn another_upstream_takes_over_and_the_old_one_finishes() {
    let old = Origin::start(|_| {
        vec![Step::Pause(Duration::from_millis(500)), answer("200 OK", "", b"old").remove(0)]
    });
    let site = Site::start();
    let Site { address, admin, extra, .. } = site;
    site.write_text(&config(address, admin, extra, &old.url(), 1));
    assert!(site.reload().status.success());
    let mut waiting = Client::connect(address).unwrap();
    waiting.send(b"GET /app/slow HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(wait_for(PATIENCE, || (!old.take().is_empty()).then_some(())).is_some());
    site.write(2);
    assert!(site.reload().status.success());
    let new = client::get(address, "a", "/app/slow").unwrap();
    assert_eq!(new.body, b"from the origin");
    assert_eq!(waiting.response("GET").unwrap().body, b"old");
}

#[test]
fn a_watched_file_is_taken_when_it_changes() {
    let site = Site::start();
    site.write(1000);
    assert!(site.reload().status.success());
    // `watch` was off at the start, and a reload switches it on.
    site.write(1001);
    site.wait_for_version(1001);
    site.write_text("site \"*\" { lisen \":80\"; }");
    site.weir.wait_for_log("lisen");
    assert_eq!(site.version(), "version 1001");
    site.write(1002);
    site.wait_for_version(1002);
}

/// Whatever has begun when the signal comes: half a head, half a body, half a response; and an idle
/// connection's client that has not noticed yet.
#[test]
fn a_stop_finishes_what_has_begun() {
    let origin = Origin::start(|request| {
        let length = request.body.len().to_string();
        let half = answer("200 OK", "Cache-Control: no-store\r\n", length.as_bytes()).remove(0);
        vec![Step::Pause(Duration::from_millis(1000)), half]
    });
    let rest = "server { workers 2; admin \"off\"; drain-timeout \"20s\"; }";
    let (mut weir, address) =
        Weir::front(rest, &format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url()));
    let connect = |sent: &str| {
        let mut client = Client::connect(address).unwrap();
        client.send(sent.as_bytes()).unwrap();
        client
    };
    let mut waiting = connect("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut uploading = connect("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nxx");
    let mut asking = connect("GET /c HTTP/1.1\r\nHo");
    let mut idle = connect("GET /d HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(idle.response("GET").unwrap().status, 200);
    weir.signal(Signal::TERM);
    weir.wait_for_log("draining");
    std::thread::sleep(Duration::from_millis(200));
    idle.send(b"GET /e HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(600));
    uploading.send(b"xx").unwrap();
    asking.send(b"st: a\r\n\r\n").unwrap();
    let clients = [&mut waiting, &mut uploading, &mut asking, &mut idle];
    for (number, (client, body)) in clients.into_iter().zip(["0", "4", "0", "0"]).enumerate() {
        let got = client.response("GET").unwrap_or_else(|e| panic!("client {number}: {e}"));
        assert_eq!((got.status, &got.body[..]), (200, body.as_bytes()), "client {number}");
        assert!(got.says_close() || number == 0, "client {number}");
        assert!(client.is_closed(), "client {number}");
    }
    assert_eq!(weir.wait(PATIENCE).unwrap().code(), Some(0));
}

#[test]
fn a_stop_ends_after_the_drain_timeout() {
    let origin = raw(|_, mut stream| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(b"more").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let rest = "server { workers 2; admin \"off\"; drain-timeout \"1s\"; }";
    let route = format!(r#"route "/*" {{ proxy "http://{origin}"; cache "off"; }}"#);
    let (mut weir, address) = Weir::front(rest, &route);
    let mut endless = Client::connect(address).unwrap();
    endless.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    endless.head().unwrap();
    let start = Instant::now();
    assert_eq!(weir.stop().code(), Some(0));
    let took = start.elapsed();
    assert!((900..4000).contains(&took.as_millis()), "{took:?}");
    weir.wait_for_log("drain timeout");
    assert!(endless.read_to_end().is_ok());
}
