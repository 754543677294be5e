//! Overload control as operators see and change it: status, metrics, what rules would make of a
//! request, and rules that are set while the server runs.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;

use common::client::{Client, Response, ask};
use common::origin::{Origin, ok};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

const FEW: &str =
    "rule \"few\" { path \"/few\"; rate 1 burst=3 per=\"hour\"; always; answer 429; }\n";

const GUARD: &str = r#"
    class "gold" priority=1
    class "bulk" priority=3 queue=7
    rule "partners" { from "127.0.0.0/8"; cookie "tier" "gold"; class "gold" }
    rule "crawlers" { header "user-agent" "*bot*"; class "bulk"; rate 5 burst=9; }
    rule "inside" { path "/inside"; pass; }
"#;

/// A server with an admin API, an upstream, and these rules.
struct Guarded {
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
    _origin: Origin,
}

impl Guarded {
    fn start() -> Guarded {
        let (address, admin) = (free_address(), free_address());
        let origin = Origin::start(|_| ok("from the origin"));
        let config = format!(
            "server {{ workers 2; admin \"{admin}\"; }}\nguard {{ {GUARD} {FEW} }}\n\
             upstream \"app\" {{ server \"{}\"; }}\n\
             site \"a.example\" {{\nlisten \"{address}\"\nroute \"/up/*\" {{ proxy \"app\"; }}\n\
             route \"/*\" {{ respond \"hello\"; }}\n}}\n\
             site \"b.example\" {{ listen \"{address}\"; \
             route \"/only\" {{ respond \"b\"; }}; }}\n",
            origin.url()
        );
        Guarded { weir: Weir::run(&config, &[address, admin]), address, admin, _origin: origin }
    }

    /// Statuses of so many requests.
    fn statuses(&self, target: &str, count: usize) -> Vec<u16> {
        let ask = |_| ask(self.address, "GET", target, &[("Host", "a.example")]).status;
        (0..count).map(ask).collect()
    }

    fn admin(&self, method: &str, path: &str, fields: &str, body: &str) -> Response {
        let mut client = Client::connect(self.admin).unwrap();
        let (host, len) = (self.admin, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len}\r\n");
        client.send(format!("{head}{fields}\r\n{body}").as_bytes()).unwrap();
        client.response(method).unwrap()
    }

    fn json(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let response = self.admin(method, path, "Content-Type: application/json\r\n", body);
        assert_eq!(response.header("content-type"), Some("application/json"), "{method} {path}");
        (response.status, serde_json::from_slice(&response.body).unwrap())
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.admin("GET", path, "", "").body).unwrap()
    }

    fn guard(&self) -> Value {
        self.json("GET", "/guard", "").1
    }

    fn rule_names(&self) -> Vec<String> {
        let guard = self.guard();
        let rules = guard["rules"].as_array().unwrap();
        rules.iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
    }

    fn test(&self, question: &Value) -> Value {
        let (status, answer) = self.json("POST", "/guard/test", &question.to_string());
        assert_eq!(status, 200, "{question}: {answer}");
        answer
    }

    fn cli(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let admin = self.admin.to_string();
        let output = command(self.weir.directory(), &[arguments, &["--admin", &admin]].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "weir {arguments:?}\n{out}\n{err}");
        (out, err)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.weir.directory().join(name), text).unwrap();
    }
}

#[test]
fn a_test_says_which_rules_match_and_why_and_takes_nothing() {
    let guarded = Guarded::start();
    let question = json!({
        "url": "http://a.example/few?x=1", "from": "127.0.0.9", "cookies": {"tier": "gold"},
        "headers": {"User-Agent": ["curl", "x"]},
    });
    // More often than the bucket has tokens.
    for _ in 0..5 {
        let told = guarded.test(&question);
        assert_eq!(told["rules"][3]["limit"]["tokens_left"], 3, "{told}");
    }
    let told = guarded.test(&question);
    assert_eq!((&told["site"], &told["route"]), (&json!("a.example"), &json!("/*")));
    assert_eq!((&told["class"], &told["priority"]), (&json!("gold"), &json!(1)));
    assert_eq!((&told["class_rule"], &told["admitted"]), (&json!("partners"), &json!(true)));
    let fails: Vec<&Value> =
        told["rules"].as_array().unwrap().iter().map(|rule| &rule["fails"]).collect();
    assert_eq!(
        fails,
        [&Value::Null, &json!("header \"user-agent\""), &json!("path"), &Value::Null]
    );
    assert_eq!(guarded.statuses("/few", 4), [200, 200, 200, 429]);
    let told = guarded.test(&question);
    assert_eq!((&told["admitted"], &told["refused_by"]), (&json!(false), &json!("few")));
    assert_eq!(
        (&told["reason"], &told["rules"][3]["limit"]["answer"]),
        (&json!("rate"), &429.into())
    );
    // The same in a URL.
    let query = "/guard/test?url=/few&host=a.example&from=127.0.0.9&cookie=tier%3Dgold\
                 &header=User-Agent:+a+bot&overloaded=true";
    let (status, told) = guarded.json("POST", query, "");
    assert_eq!((status, &told["class"], &told["overloaded"]), (200, &json!("gold"), &json!(true)));
    let crawlers = &told["rules"][1];
    assert_eq!((&crawlers["matches"], &crawlers["gives_class"]), (&json!(true), &Value::Null));
    assert_eq!(crawlers["limit"]["holds"], true);
    // Nothing after a rule with `pass` is looked at.
    let told = guarded.test(&json!({"url": "/inside", "host": "a.example"}));
    assert_eq!((&told["rules"][2]["ends"], &told["rules_left"]), (&json!(true), &1.into()));
}

#[test]
fn wrong_questions_are_answered_with_what_is_wrong() {
    let guarded = Guarded::start();
    for (question, expected) in [
        (json!({"url": "/x"}), "the host is missing; there are the sites a.example, b.example"),
        (json!({"url": "http://c.example/"}), "no site is called \"c.example\" there"),
        (json!({"url": "http://b.example/x"}), "the site \"b.example\" has no route for \"/x\""),
        (json!({"url": "http://a.example/", "host": "a.example"}), "one of them is enough"),
        (json!({"url": "http://a.example/", "from": "me"}), "from: \"me\" is no address"),
        (
            json!({"url": "http://a.example/", "to": "127.0.0.1:1"}),
            "nothing listens on 127.0.0.1:1",
        ),
        (json!({"url": "a b"}), "url: \"a b\" is none"),
        (json!({"url": "http://a.example/../x"}), "url: "),
        (json!({"url": "http://a.example/", "method": "G T"}), "method: \"G T\" is none"),
        (json!({"url": "http://a.example/", "headers": {"a b": "c"}}), "\"a b\" is no name"),
        (json!({"url": "http://a.example/", "headers": {"a": 1}}), "a text or a list of texts"),
        (json!({"uri": "http://a.example/"}), "unknown field `uri`"),
        (json!([]), "url: "),
    ] {
        let (status, answer) = guarded.json("POST", "/guard/test", &question.to_string());
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(expected), "{question}: {status} {error}");
    }
    for (query, expected) in [
        ("urk=/", "urk: no such parameter; there are method, url,"),
        ("header=a", "\"a\" is no header field"),
        ("cookie=a", "\"a\" is no cookie"),
        ("overloaded=1", "expected true or false"),
    ] {
        let (status, answer) = guarded.json("POST", &format!("/guard/test?{query}"), "");
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(expected), "{query}: {status} {error}");
    }
    for (method, path, status) in [
        ("GET", "/guard/test", 405),
        ("POST", "/guard", 405),
        ("DELETE", "/guard/rules", 405),
        ("GET", "/guard/nothing", 404),
        ("GET", "/guard/rules/nobody", 404),
    ] {
        assert_eq!(guarded.json(method, path, "").0, status, "{method} {path}");
    }
    assert_eq!(guarded.admin("POST", "/guard/test", "", "{}").status, 403, "a form may send this");
}

#[test]
fn status_and_metrics_count_what_became_of_requests() {
    let guarded = Guarded::start();
    assert_eq!(guarded.statuses("/few", 5), [200, 200, 200, 429, 429]);
    assert_eq!(guarded.statuses("/up/a", 2), [200, 200]);
    let gold = [("Host", "a.example"), ("Cookie", "tier=gold")];
    assert_eq!(ask(guarded.address, "GET", "/x", &gold).status, 200);

    let guard = guarded.guard();
    assert_eq!((&guard["overloaded"], &guard["rules_set_unix_ms"]), (&json!(false), &Value::Null));
    let names: Vec<_> = guard["classes"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["gold", "default", "bulk"]);
    assert_eq!(
        (&guard["classes"][0]["admitted"], &guard["classes"][1]["refused"]),
        (&1.into(), &2.into())
    );
    let few = &guard["rules"][3];
    assert_eq!((&few["name"], &few["met"], &few["rate"]), (&json!("few"), &5.into(), &2.into()));
    let app = &guard["upstreams"][0];
    assert_eq!(
        (&app["name"], &app["in_flight"], &app["waiting"]),
        (&json!("app"), &0.into(), &0.into())
    );
    assert_eq!(
        (&app["classes"][1]["offered"], &app["classes"][1]["admitted"]),
        (&2.into(), &2.into())
    );
    assert_eq!(app["classes"][1]["shed"]["queue-full"], 0);
    let (_, status) = guarded.json("GET", "/status", "");
    assert_eq!(status["guard"]["rules"], guard["rules"]);
    // Rates are means over some seconds.
    let rate = wait_for(PATIENCE, || {
        let rate = guarded.guard()["classes"][1]["refused_per_s"].as_f64().unwrap();
        (rate > 0.0).then_some(rate)
    });
    assert!(rate.is_some_and(|rate| rate < 20.0), "{rate:?}");

    let metrics = guarded.text("/metrics");
    for sample in [
        "weir_guard_class_requests_total{class=\"gold\",result=\"admitted\"} 1",
        "weir_guard_class_requests_total{class=\"default\",result=\"refused\"} 2",
        "weir_guard_rule_total{rule=\"few\",result=\"met\"} 5",
        "weir_guard_rule_total{rule=\"few\",result=\"rate\"} 2",
        "weir_guard_rule_total{rule=\"crawlers\",result=\"spared\"} 0",
        "weir_guard_overloaded{worker=\"1\"} 0",
        "weir_guard_overloads_total 0",
        "weir_upstream_overloads_total{upstream=\"app\"} 0",
        "weir_guard_enforced{where=\"request\"} 4",
        "weir_upstream_admitted_total{upstream=\"app\",class=\"default\"} 2",
        "weir_upstream_shed_total{upstream=\"app\",class=\"bulk\",reason=\"queue-wait\"} 0",
        "weir_upstream_queue_seconds_bucket{upstream=\"app\",class=\"default\",le=\"+Inf\"} 2",
        "weir_upstream_queue_seconds_count{upstream=\"app\",class=\"default\"} 2",
        "weir_upstream_limit_used{upstream=\"app\"} 0",
        "weir_upstream_waiting{upstream=\"app\",class=\"gold\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "no {sample} in\n{metrics}");
    }
    // `partners` limits nothing, and `few` always holds.
    assert!(!metrics.contains("rule=\"partners\",result=\"rate\""));
    assert!(!metrics.contains("rule=\"few\",result=\"spared\""));

    let (out, _) = guarded.cli(0, &["guard", "status"]);
    assert!(out.starts_with("guard: not overloaded, 0 overloads so far\n"), "{out}");
    let line = |name: &str| {
        let line = out.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("default")[..5], ["default", "2", "5", "2", "0"]);
    assert_eq!(line("few"), ["few", "requests", "5", "2", "0", "0", "0", "-", "-"]);
    assert_eq!(line("app")[2..4], ["0", "0"]);
    let (out, _) = guarded.cli(0, &["status"]);
    assert!(out.contains("\nguard: not overloaded") && out.contains("\nfew "), "{out}");
    let (out, _) = guarded.cli(0, &["guard", "status", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["rules"], guard["rules"]);
}

#[test]
fn penalties_are_shown() {
    let guarded = Guarded::start();
    let penalties = || guarded.guard()["penalties"].clone();
    assert_eq!(penalties(), json!({"in_force": 0, "limit": 0}), "no rule has any");
    let no = "rule \"no\" { path \"/no\"; refuse; always; \
              penalty after=1 within=\"1s\" lasts=\"1h\" by=\"source/8,64\"; }";
    assert_eq!(guarded.admin("PUT", "/guard/rules/no", "", no).status, 200);
    assert_eq!(guarded.statuses("/no", 1), [503]);
    assert_eq!((&penalties()["in_force"], &penalties()["limit"]), (&1.into(), &65_536.into()));
    let metrics = guarded.text("/metrics");
    for sample in ["weir_guard_penalties 1", "weir_guard_penalties_limit 65536"] {
        assert!(metrics.lines().any(|line| line == sample), "no {sample} in\n{metrics}");
    }
    let told = |from: &str| {
        guarded.test(&json!({"url": "/", "host": "a.example", "from": from}))["penalty"].clone()
    };
    assert_eq!(
        (&told("127.9.9.9")["prefix"], &told("126.0.0.1")),
        (&json!("127.0.0.0/8"), &Value::Null)
    );
    let (out, _) = guarded.cli(0, &["guard", "status"]);
    assert!(out.contains("\n1 of 65536 sources under a penalty\n"), "{out}");
    let asked = ["guard", "test", "/", "--host", "a.example", "--from", "127.0.0.1"];
    let (out, _) = guarded.cli(0, &asked);
    assert!(out.contains("outcome   not let in: 127.0.0.0/8 is under a penalty for 3"), "{out}");
}

#[test]
fn rules_of_run_time_keep_buckets_and_end_with_a_reload() {
    let guarded = Guarded::start();
    assert_eq!(guarded.statuses("/few", 2), [200, 200]);
    let new = "rule \"no\" { path \"/x\"; refuse; always; }\n";
    // The first rule with buckets by key.
    let each = "rule \"each\" { path \"/k\"; by \"header:x-key\"; rate 1 burst=1; always; }\n";
    guarded.write("rules.kdl", &format!("{new}{each}{FEW}"));
    let (out, _) = guarded.cli(0, &["guard", "apply", "rules.kdl"]);
    assert_eq!(out, "3 rules in force until the next reload\n");
    assert_eq!(guarded.rule_names(), ["no", "each", "few"]);
    assert_eq!(guarded.statuses("/few", 2), [200, 429], "the bucket is the same");
    assert_eq!(guarded.statuses("/x", 1), [503]);
    assert_eq!(guarded.guard()["rules"][2]["met"], 4, "and so are the counters");
    let (out, _) = guarded.cli(0, &["guard", "status"]);
    assert!(out.contains("rules were changed since the configuration was loaded"), "{out}");
    assert!(guarded.text("/config").contains("rule \"no\" {"));

    // What is shown can be sent back.
    let shown = guarded.text("/guard/rules");
    let response = guarded.admin("PUT", "/guard/rules", "", &shown);
    assert_eq!(response.status, 200, "{shown}");
    assert_eq!(guarded.text("/guard/rules"), shown);
    assert!(guarded.text("/guard/rules/no").starts_with("rule \"no\" {\n"));

    // One rule at a time.
    let softer = "rule \"no\" { path \"/y\"; refuse; always; }";
    assert_eq!(guarded.admin("PUT", "/guard/rules/no", "", softer).status, 200);
    assert_eq!((guarded.statuses("/x", 1), guarded.statuses("/y", 1)), (vec![200], vec![503]));
    let last = "rule \"last\" { path \"/z\"; refuse; always; }";
    assert_eq!(guarded.json("PUT", "/guard/rules/last", last).1["rules"], 4);
    assert_eq!(guarded.rule_names(), ["no", "each", "few", "last"]);
    assert_eq!(guarded.json("DELETE", "/guard/rules/no", "").1["rules"], 3);
    assert_eq!(guarded.statuses("/y", 1), [200]);
    assert_eq!(guarded.json("DELETE", "/guard/rules/no", "").0, 404);

    guarded.weir.signal(Signal::HUP);
    guarded.weir.wait_for_log("configuration reloaded");
    guarded.weir.wait_for_log("rules set at run time are gone");
    assert_eq!(guarded.rule_names(), ["partners", "crawlers", "inside", "few"]);
    assert_eq!(guarded.guard()["rules_set_unix_ms"], Value::Null);
    assert_eq!(guarded.statuses("/few", 1), [429]);
    assert_eq!(guarded.statuses("/z", 1), [200]);
}

#[test]
fn wrong_rules_change_nothing() {
    let guarded = Guarded::start();
    let shown = guarded.text("/guard/rules");
    let check = |path: &str, text: &str, status: u16, expected: &str| {
        let (got, answer) = guarded.json("PUT", path, text);
        let error = answer["error"].as_str().unwrap();
        assert!(got == status && error.contains(expected), "{text}: {got} {error}");
        answer
    };
    let all = "/guard/rules?name=my%20rules.kdl";
    let wrong = check(all, "rule \"a\" {\n  pth \"/x\"\n}", 422, "my rules.kdl:2:3: unknown key");
    let first = &wrong["errors"][0];
    assert_eq!((&first["line"], &first["column"]), (&2.into(), &3.into()));
    assert_eq!((&first["file"], &first["suggestion"]), (&json!("my rules.kdl"), &json!("path")));
    check(all, "rule \"a\" { path \"/x\"; class \"silver\"; }", 422, "silver");
    check(all, "rule \"a\" { from \"@nobody\"; refuse; }", 422, "nobody");
    check(all, "site \"x\" { }", 422, "only `rule` blocks stand here");
    check(all, "rule \"a\" { refuse", 422, "my rules.kdl:1:");
    check(all, "\u{0}", 422, "my rules.kdl");
    check("/guard/rules?nme=a", "", 400, "there is name");
    check("/guard/rules?name=%0a", "", 400, "name: expected 1 to 256 bytes");
    check(
        "/guard/rules/a",
        "rule \"b\" { path \"/x\"; refuse; }",
        400,
        "is called \"b\", not \"a\"",
    );
    check("/guard/rules/a", "", 400, "expected one rule");
    // An empty text is no wish to have no rules.
    check("/guard/rules", "", 400, "rules has no `rule` block: to remove all rules that are in");
    check(all, "// nothing\n", 400, "my rules.kdl has no `rule` block");
    check("/guard/rules?remove-all=1", "", 400, "remove-all: expected true or false");
    let set = "rule \"b\" { path \"/x\"; refuse; }";
    check("/guard/rules?remove-all=true", set, 400, "remove-all: rules has rules");
    check("/guard/rules/b?remove-all=true", set, 400, "a rule is removed by DELETE");
    // What is announced to be too large is not waited for.
    let mut client = Client::connect(guarded.admin).unwrap();
    let head = "PUT /guard/rules HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4194305\r\n\r\n";
    client.send(head.as_bytes()).unwrap();
    assert_eq!(client.response("PUT").unwrap().status, 413);
    let foreign = "Origin: http://evil.example\r\n";
    assert_eq!(guarded.admin("PUT", "/guard/rules", foreign, "").status, 403);
    assert_eq!(guarded.admin("DELETE", "/guard/rules/few", foreign, "").status, 403);
    assert_eq!(guarded.text("/guard/rules"), shown);
    assert_eq!(guarded.guard()["rules_set_unix_ms"], Value::Null);

    guarded.write("bad.kdl", "rule \"a\" {\n    pth \"/x\"\n}\n");
    let (out, err) = guarded.cli(1, &["guard", "apply", "bad.kdl"]);
    assert_eq!(out, "");
    assert!(err.contains("bad.kdl:2:5: unknown key \"pth\"") && err.contains("\"path\"?"), "{err}");
    let (_, err) = guarded.cli(1, &["guard", "apply", "missing.kdl"]);
    assert!(err.contains("cannot read missing.kdl"), "{err}");
    guarded.write("empty.kdl", "\n");
    let (_, err) = guarded.cli(1, &["guard", "apply", "empty.kdl"]);
    assert!(err.contains("empty.kdl has no `rule` block") && err.contains("--remove-all"), "{err}");
    assert_eq!(guarded.text("/guard/rules"), shown);

    let (out, _) = guarded.cli(0, &["guard", "apply", "empty.kdl", "--remove-all"]);
    assert_eq!(out, "0 rules in force until the next reload\n");
    assert_eq!(guarded.text("/guard/rules"), "");
}

/// The first rules for connections come at run time: they hold, in the kernel or without it.
#[test]
fn rules_for_connections_may_come_at_run_time() {
    let guarded = Guarded::start();
    let rules = "rule \"bulk\" { from \"127.0.0.0/8\"; class \"bulk\"; }\n\
                 rule \"nobody\" { from \"127.0.0.2\"; refuse; always; }";
    let (status, answer) = guarded.json("PUT", "/guard/rules", rules);
    assert_eq!((status, &answer["warning"]), (200, &Value::Null), "{answer}");
    assert_eq!(guarded.statuses("/x", 3), [200; 3]);
    let guard = guarded.guard();
    // Where they are enforced depends on the machine; the metrics say the same.
    let enforced = |place: &str| guard["enforced"][place].as_u64().unwrap();
    let (in_kernel, at_accept) = (enforced("kernel"), enforced("accept"));
    assert_eq!((in_kernel + at_accept, enforced("request")), (2, 0), "{guard}");
    assert_eq!(guard["enforced"]["policing"], in_kernel > 0);
    let metrics = guarded.text("/metrics");
    for (place, rules) in [("kernel", in_kernel), ("accept", at_accept)] {
        let sample = format!("weir_guard_enforced{{where=\"{place}\"}} {rules}\n");
        assert!(metrics.contains(&sample), "no {sample} in\n{metrics}");
    }
    assert!(guard["rules_set_unix_ms"].is_u64(), "{guard}");
    assert_eq!(guard["classes"][2]["admitted"], 3, "{guard}");
    let enforcement = guard["enforcement"].to_string();
    assert!(enforcement.contains("kernel: ") || enforcement.contains("user space: "), "{guard}");
    let told = guarded.test(&json!({"url": "http://a.example/", "from": "127.0.0.2"}));
    assert_eq!(told["rules"][1]["limit"]["counts"], "connections");
    assert_eq!((&told["refused_by"], &told["class"]), (&json!("nobody"), &json!("bulk")));
    let word = told["rules"][1]["limit"]["answer"].as_str();
    assert_eq!(word == Some("dropped"), guard["rules"][1]["kernel_offered"].is_u64());
    let (out, _) = guarded.cli(0, &["guard", "test", "http://a.example/", "--from", "127.0.0.2"]);
    assert!(out.contains("+ nobody  matches: counts connections"), "{out}");

    guarded.weir.signal(Signal::HUP);
    guarded.weir.wait_for_log("rules set at run time are gone");
    let back = wait_for(PATIENCE, || (guarded.rule_names().len() == 4).then_some(()));
    assert!(back.is_some());
    assert_eq!(guarded.statuses("/x", 2), [200; 2]);
}

#[test]
fn the_command_asks_a_server_or_a_file() {
    let guarded = Guarded::start();
    assert_eq!(guarded.statuses("/few", 3), [200; 3]);
    let arguments = ["guard", "test", "GET /few", "--host", "a.example", "--from", "127.0.0.1"];
    let (out, _) = guarded.cli(0, &[&arguments[..], &["--cookie", "tier=gold"]].concat());
    assert!(out.starts_with(&format!("GET a.example/few from 127.0.0.1 to {}\n", guarded.address)));
    assert!(out.contains("\n- crawlers  does not match: header \"user-agent\"\n"), "{out}");
    assert!(out.contains("\n+ few       matches: 0 tokens left; REFUSES\n"), "{out}");
    let last = "class     gold (priority 1; by partners)\n\
                outcome   refused by few (rate): the answer is 429\n";
    assert!(out.ends_with(last), "{out}");

    // A file's buckets are full.
    let offline = |more: &[&str], code: i32| {
        let all = [&arguments[..], &["--config", "weir.kdl"], more].concat();
        let output = command(guarded.weir.directory(), &all);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{all:?}\n{out}\n{err}");
        (out, err)
    };
    let (out, _) = offline(&["--header", "User-Agent: robot", "--overload"], 0);
    assert!(out.contains("9 tokens left, holds only under overload, which there is"), "{out}");
    assert!(out.contains("\n+ few       matches: 3 tokens left\n"), "{out}");
    assert!(out.contains("class     bulk (priority 3; by crawlers)"), "{out}");
    let (out, _) = offline(&["--json"], 0);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["admitted"], &told["class"]), (&json!(true), &json!("default")));
    let (_, err) = offline(&["--header", "nonsense"], 1);
    assert!(err.contains("--header: \"nonsense\" is no header field"), "{err}");
    let (_, err) = offline(&["--admin", "127.0.0.1:1"], 2);
    assert!(err.contains("cannot be used with"), "{err}");
    let (_, err) = guarded.cli(1, &["guard", "test", "/few"]);
    assert!(err.contains("the host is missing"), "{err}");
    let nobody = free_address().to_string();
    for arguments in [&["guard", "status"][..], &["guard", "test", "/"]] {
        let all = [arguments, &["--admin", &nobody]].concat();
        let output = command(guarded.weir.directory(), &all);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.contains(&nobody) && err.contains("Is the server running?"), "{err}");
        assert_eq!(output.status.code(), Some(1));
    }
    guarded.write("broken.kdl", "guard {");
    let broken = ["guard", "test", "/", "--config", "broken.kdl"];
    let output = command(guarded.weir.directory(), &broken);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("broken.kdl:1:"), "{output:?}");
}
