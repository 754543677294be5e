//! Whose turn it is at an upstream: while classes change, where a class has a share, and where
//! somebody waits for what another has asked for.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Scope;

use common::client::{Client, Response, ask};
use common::origin::{Origin, answer};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use serde_json::Value;

/// An origin that answers when it is told to.
#[derive(Default)]
struct Held {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Paths, in the order in which they were asked for.
    asked: Vec<String>,
    in_flight: usize,
    most: usize,
    /// Answers that may be given.
    may: usize,
}

impl Held {
    fn wait(&self, path: String) {
        let mut state = self.state.lock().unwrap();
        state.asked.push(path);
        state.in_flight += 1;
        state.most = state.most.max(state.in_flight);
        while state.may == 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.may -= 1;
        state.in_flight -= 1;
    }

    fn let_answer(&self, answers: usize) {
        self.state.lock().unwrap().may += answers;
        self.changed.notify_all();
    }

    fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    /// Has one request answered, and says which one comes in its place.
    fn next(&self) -> String {
        let count = self.asked().len();
        self.let_answer(1);
        wait_for(PATIENCE, || self.asked().get(count).cloned()).unwrap()
    }
}

struct Front {
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
    origin: Origin,
    held: Arc<Held>,
}

impl Front {
    /// `/503` is answered so at once, and everything else when it is time.
    fn start(guard: &str, concurrency: &str) -> Front {
        let held = Arc::new(Held::default());
        let waiting = Arc::clone(&held);
        let origin = Origin::start(move |request| {
            let path = request.line().split(' ').nth(1).unwrap_or_default().to_owned();
            if path == "/503" {
                return answer("503 Service Unavailable", "Cache-Control: no-store\r\n", b"");
            }
            let fields = match path.contains("shared") {
                true => "Cache-Control: max-age=60\r\n",
                false => "Cache-Control: no-store\r\n",
            };
            waiting.wait(path);
            answer("200 OK", fields, b"dear")
        });
        let (address, admin) = (free_address(), free_address());
        let text = config(guard, concurrency, &origin, address, admin);
        Front { weir: Weir::run(&text, &[address, admin]), address, admin, origin, held }
    }

    fn reload(&self, guard: &str, concurrency: &str) {
        let text = config(guard, concurrency, &self.origin, self.address, self.admin);
        std::fs::write(self.weir.directory().join("weir.kdl"), text).unwrap();
        let admin = self.admin.to_string();
        let output = command(self.weir.directory(), &["reload", "--admin", &admin]);
        assert!(output.status.success(), "{output:?}");
    }

    /// What the admin API says of the upstream.
    fn upstream(&self) -> Value {
        let mut client = Client::connect(self.admin).unwrap();
        let head = format!("GET /guard HTTP/1.1\r\nHost: {}\r\n\r\n", self.admin);
        client.send(head.as_bytes()).unwrap();
        let response = client.response("GET").unwrap();
        let status: Value = serde_json::from_slice(&response.body).unwrap();
        status["upstreams"][0].clone()
    }

    fn class(&self, name: &str) -> Value {
        let upstream = self.upstream();
        let classes = upstream["classes"].as_array().unwrap();
        classes.iter().find(|class| class["name"] == name).unwrap().clone()
    }

    /// Asks as one of a class, and returns once the request is in the upstream's hands or waits.
    fn begin<'s>(&'s self, scope: &'s Scope<'s, '_>, class: &'static str, path: &'static str) {
        let offered = || self.upstream()["classes"].as_array().unwrap().iter().map(offered).sum();
        let before: u64 = offered();
        scope.spawn(move || assert_eq!(self.ask(class, path).status, 200, "{path}"));
        let has_come = || (offered() > before).then_some(());
        assert!(wait_for(PATIENCE, has_come).is_some(), "{path}");
    }

    fn ask(&self, class: &str, path: &str) -> Response {
        ask(self.address, "GET", path, &[("x-class", class)])
    }
}

fn offered(class: &Value) -> u64 {
    class["offered"].as_u64().unwrap()
}

fn config(
    guard: &str,
    concurrency: &str,
    origin: &Origin,
    address: SocketAddr,
    admin: SocketAddr,
) -> String {
    let url = origin.url();
    format!(
        "server {{ workers 2; admin \"{admin}\"; }}\nguard {{\n{guard}\n}}\n\
         upstream \"app\" {{ server \"{url}\"; concurrency {concurrency}; }}\n\
         site \"*\" {{ listen \"{address}\"; \
         route \"/*\" {{ proxy \"app\"; cache collapse-timeout=\"60s\"; }}; }}\n"
    )
}

/// Classes in this order, with what else each has, and a header field that says who is of which.
fn classes(lines: &[&str]) -> String {
    let class = |(priority, line): (usize, &&str)| {
        let name = line.split(' ').next().unwrap();
        let more = &line[name.len()..];
        let class = format!("class \"{name}\" priority={priority} wait=\"60s\"{more}\n");
        let rule = format!("rule \"{name}\" {{ header \"x-class\" \"{name}\"; class \"{name}\" }}");
        format!("{class}{rule}\n")
    };
    (1..).zip(lines).map(class).collect()
}

/// The origin never has more than it may, nobody is lost, and who goes first stays so.
#[test]
fn a_gate_outlives_changes_of_classes() {
    let front = Front::start(&classes(&["gold", "default", "bulk"]), "4");
    std::thread::scope(|scope| {
        for path in ["/in/1", "/in/2", "/in/3", "/in/4"] {
            front.begin(scope, "default", path);
        }
        for (class, path) in [
            ("bulk", "/bulk/1"),
            ("default", "/default/1"),
            ("gold", "/gold/1"),
            ("bulk", "/bulk/2"),
            ("gold", "/gold/2"),
        ] {
            front.begin(scope, class, path);
        }
        front.reload(&classes(&["gold", "silver", "default", "bulk"]), "4");
        let upstream = front.upstream();
        assert_eq!((&upstream["in_flight"], &upstream["waiting"]), (&4.into(), &5.into()));
        let waiting = |name: &str| front.class(name)["waiting"].as_u64().unwrap();
        assert_eq!(["gold", "silver", "default", "bulk"].map(waiting), [2, 0, 1, 2]);
        // Counts go with names: six of "default" were asked for, five of which wait or have run.
        assert_eq!(front.class("default")["admitted"], 4);
        front.begin(scope, "silver", "/silver/1");
        assert_eq!(front.held.asked().len(), 4);
        assert_eq!([0; 2].map(|_| front.held.next()), ["/gold/1", "/gold/2"]);
        // Whose class is gone is of the one without a rule.
        front.reload(&classes(&["bulk", "default"]), "4");
        assert_eq!(["bulk", "default"].map(waiting), [2, 2]);
        assert_eq!([0; 2].map(|_| front.held.next()), ["/bulk/1", "/bulk/2"]);
        // The servers are the same, so that what they work on counts beside another limit, too.
        front.reload(&classes(&["bulk", "default"]), "5");
        assert!(wait_for(PATIENCE, || (front.held.asked().len() == 9).then_some(())).is_some());
        assert_eq!(front.upstream()["in_flight"], 5);
        front.held.let_answer(10);
    });
    let state = front.held.state.lock().unwrap();
    assert_eq!((state.asked.len(), state.most), (10, 5));
    let order: Vec<&str> = state.asked[8..].iter().map(String::as_str).collect();
    assert_eq!(order, ["/default/1", "/silver/1"]);
}

/// What was learned of the upstream has nothing to do with classes.
#[test]
fn a_limit_that_was_lowered_stays_so_while_classes_change() {
    let front = Front::start(&classes(&["gold", "default"]), "\"auto\"");
    let limit = || front.upstream()["limit"].as_u64().unwrap();
    assert_eq!(limit(), 64);
    for _ in 0..8 {
        assert_eq!(front.ask("gold", "/503").status, 503);
    }
    let lowered = limit();
    assert!(lowered < 64, "{lowered}");
    for order in [&["gold", "silver", "default"][..], &["default", "gold"], &["default"]] {
        front.reload(&classes(order), "\"auto\"");
        assert_eq!(limit(), lowered, "{order:?}");
    }
}

/// Without it, whoever is of the last class waits for as long as others come.
#[test]
fn a_class_has_its_share_whoever_waits_before_it() {
    let guard = classes(&["gold", "default", "bulk share=50"]);
    let front = Front::start(&guard, "1");
    std::thread::scope(|scope| {
        front.begin(scope, "default", "/in");
        for path in ["/gold/1", "/gold/2", "/gold/3", "/gold/4"] {
            front.begin(scope, "gold", path);
        }
        front.begin(scope, "bulk", "/bulk/1");
        front.begin(scope, "bulk", "/bulk/2");
        let order = [0; 6].map(|_| front.held.next());
        let expected = ["/gold/1", "/bulk/1", "/gold/2", "/bulk/2", "/gold/3", "/gold/4"];
        assert_eq!(order, expected);
        front.held.let_answer(1);
    });
    let output =
        command(front.weir.directory(), &["guard", "status", "--admin", &front.admin.to_string()]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let line = shown.lines().find(|line| line.starts_with("bulk"));
    assert!(line.unwrap().ends_with("  share 50"), "{shown}");
}

/// A customer waits for a page that a crawler has asked for: its turn is the customer's.
#[test]
fn who_leads_goes_with_the_highest_of_those_who_follow() {
    let front = &Front::start(&classes(&["gold", "default", "bulk"]), "1");
    std::thread::scope(|scope| {
        front.begin(scope, "default", "/in");
        for path in ["/bulk/1", "/bulk/2", "/bulk/3", "/shared/1"] {
            front.begin(scope, "bulk", path);
        }
        front.begin(scope, "default", "/default");
        // Followers are nobody to the gate; that the leader is of their class now is what it knows.
        let follow = |class: &'static str| {
            let raised = || front.class(class)["offered"].as_u64().unwrap();
            let before = raised();
            scope.spawn(move || assert_eq!(front.ask(class, "/shared/1").status, 200));
            assert!(wait_for(PATIENCE, || (raised() > before).then_some(())).is_some());
        };
        follow("gold");
        let waiting = |name: &str| front.class(name)["waiting"].as_u64().unwrap();
        assert_eq!(["gold", "default", "bulk"].map(waiting), [1, 1, 3]);
        let order = [0; 5].map(|_| front.held.next());
        assert_eq!(order, ["/shared/1", "/default", "/bulk/1", "/bulk/2", "/bulk/3"]);
        front.held.let_answer(1);
    });
    assert_eq!(front.class("bulk")["raised"], 1);
}

/// So it is where the leader was of a class that other classes have come before since.
#[test]
fn who_leads_is_raised_also_after_classes_have_changed() {
    let front = &Front::start(&classes(&["default", "bulk"]), "1");
    std::thread::scope(|scope| {
        front.begin(scope, "default", "/in");
        front.begin(scope, "bulk", "/shared/1");
        front.begin(scope, "default", "/default");
        front.reload(&classes(&["gold", "bulk", "default"]), "1");
        let gold = scope.spawn(|| assert_eq!(front.ask("gold", "/shared/1").status, 200));
        let raised = || (front.class("gold")["waiting"] == 1).then_some(());
        assert!(wait_for(PATIENCE, raised).is_some());
        assert_eq!(front.held.next(), "/shared/1");
        assert_eq!(front.held.next(), "/default");
        gold.join().unwrap();
        front.held.let_answer(1);
    });
}
