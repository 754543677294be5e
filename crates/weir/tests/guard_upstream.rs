//! Overload control before an upstream: who waits, who goes first, who is sent away.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::{Response, ask};
use common::net::connect_from;
use common::origin::{Origin, Step, answer};
use common::server::Weir;
use common::{PATIENCE, wait_for};

const CLASSES: &str = r#"guard {
    class "gold" priority=1 wait="10s"
    class "default" priority=2 wait="10s"
    class "bulk" priority=3 wait="150ms" queue=2
    class "night" priority=4 wait="10s"
    rule "night" { header "x-night"; class "night"; }
    rule "buyers" { cookie "tier" "gold"; class "gold"; }
    rule "few" { header "x-few"; rate 1 burst=1 per="hour"; answer 429; }
    rule "crawlers" { header "user-agent" "*bot*"; class "bulk"; }
}"#;

const GOLD: (&str, &str) = ("cookie", "a=b; tier=gold");
const BOT: (&str, &str) = ("user-agent", "crawlbot/1");

/// In front of an origin that may have so many requests at a time, and takes so long for each.
fn front(concurrency: usize, takes: Duration) -> (Weir, SocketAddr, Origin) {
    let origin = Origin::start(move |request| {
        let fields = match request.line().contains("/shared") {
            true => "Cache-Control: max-age=60\r\n",
            false => "Cache-Control: no-store\r\n",
        };
        let mut steps = vec![Step::Pause(takes)];
        steps.extend(answer("200 OK", fields, b"dear"));
        steps
    });
    let rest = format!(
        "{CLASSES}\nupstream \"app\" {{ server \"{}\"; concurrency {concurrency}; }}",
        origin.url()
    );
    let (weir, address) = Weir::front(&rest, "route \"/*\" { proxy \"app\"; }");
    (weir, address, origin)
}

#[test]
fn the_highest_class_goes_first() {
    let (_weir, address, _origin) = front(1, Duration::from_millis(1200));
    let order = Mutex::new(Vec::new());
    let ask = |who: &'static str, fields: &[(&str, &str)]| {
        assert_eq!(ask(address, "GET", &format!("/{who}"), fields).status, 200, "{who}");
        order.lock().unwrap().push(who);
    };
    std::thread::scope(|scope| {
        // The first is being served while the others come.
        scope.spawn(|| ask("first", &[]));
        std::thread::sleep(Duration::from_millis(200));
        scope.spawn(|| ask("default", &[]));
        std::thread::sleep(Duration::from_millis(200));
        scope.spawn(|| ask("gold", &[GOLD]));
    });
    assert_eq!(*order.lock().unwrap(), ["first", "gold", "default"]);
}

#[test]
fn who_has_waited_as_long_as_its_class_may_is_sent_away() {
    let (_weir, address, origin) = front(1, Duration::from_millis(1500));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(ask(address, "GET", "/dear", &[]).status, 200));
        let arrived = wait_for(PATIENCE, || (!origin.take().is_empty()).then_some(()));
        assert!(arrived.is_some());
        let began = Instant::now();
        let refused = ask(address, "GET", "/other", &[BOT]);
        assert_eq!(refused.status, 503);
        assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
        assert_eq!(refused.header("retry-after"), Some("1"));
        let why = refused.header("proxy-status");
        assert_eq!(why, Some("weir; error=connection_limit_reached; details=\"upstream\""));
    });
    // Nothing of it has reached the origin.
    assert_eq!(origin.take().len(), 0);
}

#[test]
fn no_more_wait_than_may() {
    let (_weir, address, _origin) = front(1, Duration::from_millis(2000));
    let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = &|response: Response| match response.status {
        200 => served.fetch_add(1, SeqCst),
        503 => refused.fetch_add(1, SeqCst),
        other => panic!("{other}"),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| count(ask(address, "GET", "/dear", &[])));
        std::thread::sleep(Duration::from_millis(200));
        for number in 0..6 {
            let target = format!("/dear/{number}");
            scope.spawn(move || count(ask(address, "GET", &target, &[BOT])));
        }
    });
    assert_eq!((served.load(SeqCst), refused.load(SeqCst)), (1, 6));
}

/// A crawler asks first for what somebody with more time asks for, too: it is sent away, and nobody
/// with it.
#[test]
fn a_leader_that_is_sent_away_takes_nobody_with_it() {
    let (_weir, address, origin) = front(1, Duration::from_millis(2000));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(ask(address, "GET", "/dear", &[]).status, 200));
        let arrived = wait_for(PATIENCE, || (!origin.take().is_empty()).then_some(()));
        assert!(arrived.is_some());
        scope.spawn(|| assert_eq!(ask(address, "GET", "/shared", &[BOT]).status, 503));
        std::thread::sleep(Duration::from_millis(50));
        let shared = ask(address, "GET", "/shared", &[("x-night", "yes")]);
        assert_eq!((shared.status, &shared.body[..]), (200, &b"dear"[..]));
    });
    assert_eq!(origin.take().len(), 1);
}

/// Whoever leaves while it waits gives its turn to the next.
#[test]
fn who_leaves_is_not_waited_for() {
    let (_weir, address, origin) = front(1, Duration::from_millis(1500));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(ask(address, "GET", "/dear", &[]).status, 200));
        let arrived = wait_for(PATIENCE, || (!origin.take().is_empty()).then_some(()));
        assert!(arrived.is_some());
        for _ in 0..3 {
            let mut client = common::client::Client::connect(address).unwrap();
            client.send(b"GET /left HTTP/1.1\r\nHost: site.example\r\n\r\n").unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(ask(address, "GET", "/other", &[]).status, 200);
    });
    let asked: Vec<String> = origin.take().iter().map(|received| received.line()).collect();
    assert!(!asked.iter().any(|line| line.contains("/left")), "{asked:?}");
}

/// A limit that is not for always holds while the upstream is overloaded, and then no more.
#[test]
fn limits_hold_while_the_upstream_is_overloaded() {
    let (_weir, address, _origin) = front(1, Duration::from_millis(300));
    let few =
        |number: usize| ask(address, "GET", &format!("/few/{number}"), &[("x-few", "yes")]).status;
    assert_eq!([few(0), few(1), few(2)], [200; 3]);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let target = format!("/crowd/{number}");
            scope.spawn(move || assert_eq!(ask(address, "GET", &target, &[]).status, 200));
        }
        // They wait for longer than an interval. Before that one would wait behind them all.
        std::thread::sleep(Duration::from_millis(600));
        let refused = wait_for(Duration::from_millis(1200), || (few(3) == 429).then_some(()));
        assert!(refused.is_some());
    });
    let passes = wait_for(PATIENCE, || (few(4) == 200).then_some(()));
    assert!(passes.is_some());
}

/// So it is for connections, whoever enforces their rules: where their requests go is not known.
#[test]
fn limits_of_connections_hold_while_an_upstream_is_overloaded() {
    let origin = Origin::start(|_| {
        let mut steps = vec![Step::Pause(Duration::from_millis(300))];
        steps.extend(answer("200 OK", "Cache-Control: no-store\r\n", b"dear"));
        steps
    });
    let rest = format!(
        "guard {{
             kernel \"off\"
             class \"default\" priority=2 wait=\"10s\"
             rule \"blocked\" {{ from \"127.0.0.2\"; refuse; }}
         }}
         upstream \"app\" {{ server \"{}\"; concurrency 1; }}",
        origin.url()
    );
    let routes = "route \"/*\" { proxy \"app\"; }\nroute \"/here\" { respond \"here\"; }";
    let (_weir, address) = Weir::front(&rest, routes);
    let is_let_in = || {
        let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), address, PATIENCE).unwrap();
        let request = "GET /here HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        let mut answer = Vec::new();
        let asked = stream.write_all(request.as_bytes());
        asked.and_then(|()| stream.read_to_end(&mut answer)).is_ok() && !answer.is_empty()
    };
    assert!(is_let_in());
    std::thread::scope(|scope| {
        for number in 0..5 {
            let target = format!("/crowd/{number}");
            scope.spawn(move || assert_eq!(ask(address, "GET", &target, &[]).status, 200));
        }
        let refused = wait_for(Duration::from_millis(1200), || (!is_let_in()).then_some(()));
        assert!(refused.is_some());
    });
    assert!(wait_for(PATIENCE, || is_let_in().then_some(())).is_some());
}

/// Nobody is looked after where nobody may wait, and overload is over all the same.
#[test]
fn overload_ends_where_nobody_may_wait() {
    let origin = Origin::start(|request| {
        let takes = if request.line().contains("/slow") { 2000 } else { 0 };
        let mut steps = vec![Step::Pause(Duration::from_millis(takes))];
        steps.extend(answer("200 OK", "Cache-Control: no-store\r\n", b"dear"));
        steps
    });
    let rest = format!(
        "guard {{
             class \"default\" priority=2 queue=0
             rule \"few\" {{ header \"x-few\"; refuse; answer 429; }}
         }}
         upstream \"app\" {{ server \"{}\"; concurrency 1; }}",
        origin.url()
    );
    let (_weir, address) = Weir::front(&rest, "route \"/*\" { proxy \"app\"; }");
    let few = || ask(address, "GET", "/quick", &[("x-few", "yes")]).status;
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(ask(address, "GET", "/slow", &[]).status, 200));
        assert!(wait_for(PATIENCE, || (!origin.take().is_empty()).then_some(())).is_some());
        assert_eq!(few(), 503);
        assert!(wait_for(PATIENCE, || (few() == 429).then_some(())).is_some());
    });
    assert!(wait_for(PATIENCE, || (few() == 200).then_some(())).is_some());
}
