//! Overload control at the request: rules, buckets, places, and what those who are refused are
//! told.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::client::{Client, Response, ask};
use common::origin::{Origin, Step, answer};
use common::server::Weir;
use common::wait_for;
use rustix::process::Signal;

/// A server with these lines in its guard block. `/stored` is answered from a stored file, whatever
/// else is asked for from the configuration.
fn serve(guard: &str) -> (Weir, SocketAddr) {
    let site = "access-log \"access.log\" format=\"json\"\n\
        route \"/stored\" { files \".\"; }\n\
        route \"/*\" { respond \"hello\"; }";
    let (weir, address) = Weir::front(&format!("guard {{\n{guard}\n}}"), site);
    std::fs::write(weir.directory().join("stored"), "stored").unwrap();
    (weir, address)
}

fn get(address: SocketAddr, target: &str) -> Response {
    ask(address, "GET", target, &[])
}

fn statuses(address: SocketAddr, target: &str, count: usize) -> Vec<u16> {
    let mut client = Client::connect(address).unwrap();
    (0..count).map(|_| client.ask("GET", target, &[]).unwrap().status).collect()
}

#[test]
fn a_rate_refuses_with_the_reason_and_when_to_come_back() {
    let rule = "rule \"few\" { path \"/few\" \"/stored\"; rate 2 burst=3 per=\"hour\"; always; answer 429; }";
    let (weir, address) = serve(rule);
    assert_eq!(statuses(address, "/few", 5), [200, 200, 200, 429, 429]);
    let refused = get(address, "/stored");
    assert_eq!(refused.status, 429);
    let retry_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&retry_s), "{retry_s}");
    let why = refused.header("proxy-status");
    assert_eq!(why, Some("weir; error=http_request_denied; details=\"rate\""));
    assert_eq!(refused.body, b"429 Too Many Requests: rate\n");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    // Others are not concerned.
    assert_eq!(get(address, "/other").status, 200);
    let logged = wait_for(common::PATIENCE, || {
        let log = std::fs::read_to_string(weir.directory().join("access.log")).unwrap_or_default();
        log.lines().find(|line| line.contains("\"status\":429")).map(str::to_owned)
    });
    let logged: serde_json::Value = serde_json::from_str(&logged.unwrap()).unwrap();
    assert_eq!(logged["class"], "default");
    assert_eq!(logged["refused"], "rate");
    assert_eq!(logged["rule"], "few");
}

/// The fast path, the fast lane's other way, hyper and HEAD: one bucket, one answer.
#[test]
fn every_way_that_a_request_takes_is_counted_once() {
    let rule = "rule \"few\" { path \"/stored\"; rate 1 burst=4 per=\"hour\"; always; }";
    let (_weir, address) = serve(rule);
    let asks: [(&str, &[(&str, &str)]); 6] = [
        ("GET", &[]),
        ("GET", &[]),
        ("GET", &[("if-match", "*")]),
        ("HEAD", &[]),
        ("GET", &[]),
        ("OPTIONS", &[]),
    ];
    let seen: Vec<u16> = asks
        .iter()
        .map(|(method, fields)| ask(address, method, "/stored", fields).status)
        .collect();
    assert_eq!(seen, [200, 200, 200, 200, 503, 503]);
}

#[test]
fn values_have_buckets_of_their_own() {
    let rule = "rule \"keys\" { by \"header:x-key\"; rate 1 burst=2 per=\"hour\"; always; }";
    let (_weir, address) = serve(rule);
    let of = |key: &str| {
        let asked = (0..4).map(|_| ask(address, "GET", "/a", &[("x-key", key)]).status);
        asked.filter(|status| *status == 200).count()
    };
    assert_eq!((of("a"), of("b"), of("a")), (2, 2, 0));
    assert_eq!(statuses(address, "/a", 4), [200; 4]);
}

#[test]
fn a_refusal_may_be_a_reset() {
    let (_weir, address) =
        serve("rule \"no\" { header \"user-agent\" \"*Bad*\"; refuse; always; answer \"reset\"; }");
    let mut client = Client::connect(address).unwrap();
    let error = client.ask("GET", "/", &[("user-agent", "VeryBad/1")]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    assert_eq!(ask(address, "GET", "/", &[("user-agent", "Good/1")]).status, 200);
}

#[test]
fn as_many_as_may_are_served_at_a_time() {
    let origin = Origin::start(|_| {
        let mut steps = vec![Step::Pause(Duration::from_millis(700))];
        steps.extend(answer("200 OK", "Cache-Control: no-store\r\n", b"slow"));
        steps
    });
    let (_weir, address) = Weir::front(
        "guard { rule \"two\" { path \"/slow*\"; concurrency 2; always; }; }",
        &format!("route \"/*\" {{ proxy \"{}\"; }}", origin.url()),
    );
    let at_once = || -> Vec<u16> {
        std::thread::scope(|scope| {
            let ask = |n: usize| move || get(address, &format!("/slow{n}")).status;
            let threads: Vec<_> = (0..5).map(|n| scope.spawn(ask(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    for _ in 0..2 {
        let mut seen = at_once();
        seen.sort_unstable();
        assert_eq!(seen, [200, 200, 503, 503, 503]);
    }
}

#[test]
fn a_reload_keeps_the_buckets_of_rules_that_stay() {
    let rule = |name: &str| {
        format!("rule \"{name}\" {{ path \"/{name}\"; rate 1 burst=3 per=\"hour\"; always; }}\n")
    };
    let (weir, address) = serve(&rule("a"));
    assert_eq!(statuses(address, "/a", 4), [200, 200, 200, 503]);
    let path = weir.directory().join("weir.kdl");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace(&rule("a"), &(rule("b") + &rule("a")))).unwrap();
    weir.signal(Signal::HUP);
    weir.wait_for_log("configuration reloaded");
    assert_eq!(statuses(address, "/a", 2), [503, 503]);
    assert_eq!(statuses(address, "/b", 4), [200, 200, 200, 503]);
}

#[test]
fn limits_wait_for_overload_unless_always() {
    let (_weir, address) = serve("rule \"few\" { path \"/few\"; rate 1 burst=1 per=\"hour\"; }");
    assert_eq!(statuses(address, "/few", 5), [200; 5]);
}

#[test]
fn a_list_that_changes_is_read_again() {
    let directory = tempfile::TempDir::new().unwrap();
    let list = directory.path().join("bad.txt");
    std::fs::write(&list, "192.0.2.0/24 # nobody here\n").unwrap();
    let rest = "server { workers 1; admin \"off\"; watch #true; }\n\
        guard { list \"bad\" \"bad.txt\"; \
        rule \"bad\" { from \"@bad\"; unit \"requests\"; refuse; always; answer 429; }; }";
    let address = common::free_address();
    let config = common::server::front_config(address, rest, "route \"/*\" { respond \"hello\"; }");
    let _weir = Weir::run_in(directory, &config, &[address]);
    assert_eq!(get(address, "/").status, 200);
    std::fs::write(&list, "127.0.0.1\n").unwrap();
    let refused = || (get(address, "/").status == 429).then_some(());
    assert!(wait_for(common::PATIENCE, refused).is_some());
}

/// Behind a trusted proxy requests are refused, where the client has no connection of its own.
#[test]
fn a_penalty_holds_for_clients_of_a_trusted_proxy() {
    let rest = "server { workers 1; admin \"off\"; trusted-proxies \"127.0.0.1\"; }\n\
        guard { rule \"no\" { path \"/no\"; refuse; always; answer 429; \
        penalty after=2 within=\"10s\" lasts=\"1h\"; }; }";
    let (_weir, address) = Weir::front(rest, "route \"/*\" { respond \"hello\"; }");
    let from = |client: &str, target: &str| {
        ask(address, "GET", target, &[("x-forwarded-for", client)]).status
    };
    assert_eq!([0; 3].map(|_| from("192.0.2.1", "/no")), [429, 429, 503]);
    assert_eq!((from("192.0.2.1", "/yes"), from("192.0.2.2", "/yes")), (503, 200));
}

/// A client of IPv6 has more addresses than anybody can count; a penalty holds for its /64. Here it
/// is a trusted proxy that names them, so that each is refused with an answer.
#[test]
fn a_penalty_holds_for_all_addresses_of_a_client() {
    let rest = "server { workers 1; admin \"off\"; trusted-proxies \"127.0.0.1\"; }\n\
        guard { rule \"no\" { path \"/no\"; refuse; always; answer 429; \
        penalty after=3 within=\"10s\" lasts=\"1h\"; }; \
        rule \"net\" { path \"/net\"; refuse; always; answer 429; \
        penalty after=3 within=\"10s\" lasts=\"1h\" by=\"source/24,64\"; }; }";
    let (_weir, address) = Weir::front(rest, "route \"/*\" { respond \"hello\"; }");
    let from = |client: &str, target: &str| {
        let answer = ask(address, "GET", target, &[("x-forwarded-for", client)]);
        let retry = answer.header("retry-after").map(|text| text.parse::<u32>().unwrap());
        (answer.status, retry)
    };
    let statuses = |clients: [&str; 4], target| clients.map(|client| from(client, target).0);
    let own = ["2001:db8::1", "2001:db8::2", "2001:db8::3:0:0", "2001:db8::ffff"];
    assert_eq!(statuses(own, "/no"), [429, 429, 429, 503]);
    assert_eq!(statuses(own, "/yes"), [503; 4]);
    let (status, retry_s) = from(own[0], "/yes");
    assert!(status == 503 && (3000..=3600).contains(&retry_s.unwrap()), "{retry_s:?}");
    let others = ["2001:db8:0:1::1", "2001:db9::1", "192.0.2.1", "192.0.2.2"];
    assert_eq!(statuses(others, "/yes"), [200; 4]);
    // Of IPv4 it is the address, unless the rule says else.
    let neighbours = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
    assert_eq!(statuses(neighbours, "/no"), [429; 4]);
    assert_eq!(statuses(neighbours, "/net"), [429, 429, 429, 503]);
    assert_eq!((from("192.0.2.200", "/yes").0, from("192.0.3.1", "/yes").0), (503, 200));
}

/// To rules several slashes in a row are one, as they are to most applications.
#[test]
fn doubled_slashes_do_not_get_round_a_rule() {
    let rest = r#"guard { rule "login" { path "/login" "/login/*"; refuse; always; } }"#;
    let origin = Origin::start(|_| answer("200 OK", "", b"x"));
    let proxy = format!("route \"/*\" {{ proxy \"{}\"; }}", origin.url());
    let (_weir, address) = Weir::front(rest, &proxy);
    for (target, status) in
        [("/login", 503), ("//login", 503), ("///login//", 503), ("/logins", 200), ("//", 200)]
    {
        // Both ways through the server: without content, and with it.
        let fields = [("content-length", "0")];
        assert_eq!(ask(address, "GET", target, &[]).status, status, "{target}");
        assert_eq!(ask(address, "PUT", target, &fields).status, status, "{target}");
    }
}

/// Whoever looks for holes asks for what is not there.
#[test]
fn what_no_route_answers_meets_rules_too() {
    let address = common::free_address();
    let config = format!(
        "server {{ workers 2; admin \"off\"; }}
        guard {{ rule \"probing\" {{
            path \"/*\"; rate 4 burst=4 per=\"hour\"; always; answer 429;
        }} }}
        site \"known.example\" {{
            listen \"{address}\"; route \"/there\" {{ respond \"hello\"; }}
        }}"
    );
    let _weir = Weir::run(&config, &[address]);
    let status = |host, target| ask(address, "GET", target, &[("host", host)]).status;
    let probes = [
        ("known.example", "/there", 200),
        ("known.example", "/.env", 404),
        ("known.example", "/%00", 400),
        ("nobody.example", "/there", 421),
    ];
    for (host, target, expected) in probes {
        assert_eq!(status(host, target), expected, "{host}{target}");
    }
    for (host, target, _) in probes {
        assert_eq!(status(host, target), 429, "{host}{target}");
    }
}

#[test]
fn rules_know_the_path_that_no_route_has() {
    let guard = "guard { rule \"hidden\" { path \"/.*\"; refuse; always; answer 429; } }";
    let (_weir, address) = Weir::front(guard, "route \"/there\" { respond \"hello\"; }");
    assert_eq!(get(address, "/.env").status, 429);
    assert_eq!(get(address, "//.env").status, 429);
    assert_eq!(get(address, "/%2Eenv").status, 429);
    assert_eq!(get(address, "/absent").status, 404);
}
