//! Names and passwords.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::common::client::get;
use super::*;
use tempfile::TempDir;

/// What `weir password` prints.
pub(super) fn line(name: &str, password: &str) -> String {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["password", name]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut weir = weir.spawn().unwrap();
    weir.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    let output = weir.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A proxy with one user, ann, whose password is `se:cret`.
fn with_ann() -> (Origin, Weir, SocketAddr, SocketAddr) {
    with_ann_and("")
}

/// The same with these rules.
fn with_ann_and(rules: &str) -> (Origin, Weir, SocketAddr, SocketAddr) {
    let directory = TempDir::new().unwrap();
    let line = line("ann", "se:cret");
    assert!(line.starts_with("ann:$pbkdf2-sha256$i=600000$") && !line.contains("se:cret"));
    std::fs::write(directory.path().join("users"), line).unwrap();
    let (origin, address, admin) = (Origin::start(echo), free_address(), free_address());
    let forward = "forward { private \"127.0.0.1\"; ports \"1024-65535\"; \
                   connect \"1024-65535\"; users \"users\" realm=\"The lab\"; }";
    let route = format!("access-log \"-\" format=\"json\"\nroute \"/*\" {{ {forward}\n}}");
    let server = format!("server {{ admin \"{admin}\"; }}\n{rules}");
    let config = front_config(address, &server, &route);
    let weir = Weir::run_in(directory, &config, &[address]);
    (origin, weir, address, admin)
}

fn with(proxy: SocketAddr, url: &str, credentials: &str) -> Response {
    ask(proxy, "GET", url, &[("proxy-authorization", credentials)])
}

/// `ann:se:cret`
const RIGHT: &str = "Basic YW5uOnNlOmNyZXQ=";
/// `ann:secret`
const WRONG: &str = "Basic YW5uOnNlY3JldA==";

#[test]
fn clients_without_a_password_are_asked_for_one() {
    let (origin, weir, proxy, admin) = with_ann();
    let url = origin.url();
    let asked = fetch(proxy, &url);
    assert_eq!(asked.status, 407);
    let challenge = "Basic realm=\"The lab\", charset=\"UTF-8\"";
    assert_eq!(asked.header("proxy-authenticate"), Some(challenge));
    for wrong in [WRONG, "Basic", "Basic !", "Bearer YW5uOnNlOmNyZXQ="] {
        assert_eq!(with(proxy, &url, wrong).status, 407, "{wrong}");
    }
    assert_eq!(origin.take().len(), 0);
    assert_eq!(with(proxy, &url, RIGHT).status, 200);
    let asked = origin.take();
    assert_eq!(asked[0].values("proxy-authorization"), Vec::<String>::new());
    // What is stored is for users alone, too, and who is known need not wait.
    assert_eq!(fetch(proxy, &url).status, 407);
    let quickest = (0..10).map(|_| {
        let began = std::time::Instant::now();
        assert_eq!(with(proxy, &url, RIGHT).status, 200);
        began.elapsed().as_millis()
    });
    assert!(quickest.min().unwrap() < 100);
    let metrics = text(&get(admin, "localhost", "/metrics").unwrap());
    assert!(metrics.contains("weir_forward_denied_total{reason=\"password\"} 6"), "{metrics}");
    for secret in ["YW5uOnNlOmNyZXQ", "se:cret"] {
        assert!(!weir.log().contains(secret));
    }
}

#[test]
fn tunnels_are_for_users_alone() {
    let (origin, _weir, proxy, _admin) = with_ann();
    let to = origin.address;
    for (field, status) in [
        (String::new(), "407"),
        (format!("Proxy-Authorization: {WRONG}\r\n"), "407"),
        (format!("Proxy-Authorization: {RIGHT}\r\n"), "200"),
    ] {
        let mut client = Client::connect(proxy).unwrap();
        let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{field}\r\n");
        client.send(head.as_bytes()).unwrap();
        let head = String::from_utf8(client.head().unwrap()).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
}

#[test]
fn who_guesses_is_not_heard() {
    let (origin, weir, proxy, admin) = with_ann();
    let url = origin.url();
    assert_eq!(with(proxy, &url, RIGHT).status, 200);
    // `ann:0` to `ann:9`
    for guess in [
        "YW5uOjA=", "YW5uOjE=", "YW5uOjI=", "YW5uOjM=", "YW5uOjQ=", "YW5uOjU=", "YW5uOjY=",
        "YW5uOjc=", "YW5uOjg=", "YW5uOjk=",
    ] {
        assert_eq!(with(proxy, &url, &format!("Basic {guess}")).status, 407);
    }
    let metrics = text(&get(admin, "localhost", "/metrics").unwrap());
    assert!(metrics.contains("weir_forward_denied_total{reason=\"guesses\"} 0"), "{metrics}");
    // Credentials that nobody has shown before.
    let next = with(proxy, &url, "Basic Ym9iOnNlY3JldA==");
    assert_eq!(next.status, 429);
    assert_eq!(next.header("retry-after"), Some("60"));
    assert_eq!(with(proxy, &url, RIGHT).status, 200);
    // A reload forgets neither.
    weir.signal(Signal::HUP);
    weir.wait_for_log("reloaded");
    assert_eq!(with(proxy, &url, "Basic Ym9iOm90aGVy").status, 429);
    assert_eq!(with(proxy, &url, RIGHT).status, 200);
}

/// Verifying is dear: nobody has it done who is refused anyway.
#[test]
fn rules_go_before_passwords() {
    let rules = "guard { rule \"no\" { path \"/no\"; always; refuse; }\n}";
    let (origin, _weir, proxy, _admin) = with_ann_and(rules);
    let url = origin.url();
    for guess in 0..12 {
        let guess = format!("Basic YW5uOjA{guess:x}");
        let answer = with(proxy, &format!("{url}/no"), &guess);
        assert_eq!((answer.status, answer.header("proxy-authenticate")), (503, None));
    }
    // None of them counts as a wrong one.
    assert_eq!(with(proxy, &url, RIGHT).status, 200);
}

/// A browser that starts asks for many things at once, by many connections.
#[test]
fn who_is_unknown_may_ask_many_things_at_once() {
    let (origin, _weir, proxy, _admin) = with_ann();
    let url = origin.url();
    let asking: Vec<_> = (0..60)
        .map(|number| {
            let url = format!("{url}/{number}");
            std::thread::spawn(move || with(proxy, &url, RIGHT).status)
        })
        .collect();
    assert!(asking.into_iter().all(|asking| asking.join().unwrap() == 200));
}

#[test]
fn a_file_that_is_wrong_is_said_to_be() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("users"), "# none\nann:secret\n").unwrap();
    let route = "route \"/*\" { forward { users \"users\"; }\n}";
    let config = front_config(free_address(), "", route);
    std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
    let output = super::common::server::command(directory.path(), &["check", "weir.kdl"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("line 2: its password is not as `weir password` prints it"), "{said}");
}
