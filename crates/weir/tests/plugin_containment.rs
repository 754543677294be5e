//! Plugins that misbehave in every way that we could think of, and requests beside them that go on
//! undisturbed: on other routes, and on the same route with other plugins.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "plugins/bombs.rs"]
mod bombs;
#[path = "plugins/broken.rs"]
mod broken;
#[path = "plugins/bystanders.rs"]
mod bystanders;
#[path = "plugins/deployments.rs"]
mod deployments;
#[path = "plugins/making.rs"]
mod making;
#[path = "plugins/quarantine.rs"]
mod quarantine;
#[path = "plugins/site.rs"]
mod site;
#[path = "plugins/wasm.rs"]
mod wasm;

use std::time::{Duration, Instant};

use bystanders::undisturbed;
use common::origin::{Origin, answer};
use common::{PATIENCE, wait_for};
use site::{Setup, Site, setup, text};
use wasm::{own, proxy_wasm};

/// Marks responses.
fn good() -> String {
    own(r#"(func (export "weir_on_response") (param i32) (result i64) @edits{SET x-good=1})"#)
}

const GOOD_ROUTES: &str = r#"
    route "/plain" { respond "plain"; }
    route "/good" { respond "good"; use "good"; }
    route "/spare" { respond "spare"; }
"#;

/// Runs plugins that fail, each on a route of its own with the good plugin behind it.
fn misbehaving(modules: &[(&str, String)], policy: &str) -> (Site, Origin) {
    let origin = Origin::start(|request| {
        let fields = match request.line().contains("/trailers") {
            true => "Cache-Control: no-store\r\n",
            false => "Cache-Control: max-age=600\r\n",
        };
        answer("200 OK", fields, &[b'b'; 5000])
    });
    let mut setup: Setup = setup().plugin("good", &good(), "");
    let mut routes = GOOD_ROUTES.to_owned();
    for (name, module) in modules {
        let lines =
            format!("limits cpu=\"20ms\" memory=\"2MiB\"; quarantine failures=1000; {policy}");
        setup = setup.plugin(name, module, &lines);
        let url = origin.url();
        routes.push_str(&format!(
            "route \"/{name}/*\" {{ proxy \"{url}\"; use \"{name}\"; use \"good\"; }}\n"
        ));
    }
    (setup.run(&routes), origin)
}

fn failures(site: &Site, plugin: &str, kind: &str) -> f64 {
    let line = format!("weir_plugin_failures_total{{plugin=\"{plugin}\",kind=\"{kind}\"}}");
    site.metric(&line).unwrap_or_else(|| panic!("no {line}"))
}

/// How many of them fail at a time: a request waits for those before it on its worker, and more at
/// a time would show how busy the machine is rather than anything about Weir.
const AT_ONCE: usize = 3;

/// Every module fails so in every request; with the policy `pass` nobody notices.
fn contained(modules: &[(&str, String)], kind: &str) {
    let (site, _origin) = misbehaving(modules, "on-failure \"pass\"");
    undisturbed(&site, || {
        for some in modules.chunks(AT_ONCE) {
            std::thread::scope(|scope| {
                for (name, _) in some {
                    let site = &site;
                    scope.spawn(move || passes_through(site, name));
                }
            });
        }
        for (name, _) in modules {
            let counted = wait_for(PATIENCE, || (failures(&site, name, kind) > 0.0).then_some(()));
            assert!(counted.is_some(), "{name} did not fail by {kind}:\n{}", site.weir.log());
        }
    });
}

fn passes_through(site: &Site, plugin: &str) {
    for target in ["a", "a", "b"] {
        let got = site.get(&format!("/{plugin}/{target}"), &[]);
        assert_eq!((got.status, got.body.len()), (200, 5000), "{plugin}");
        assert_eq!(got.header("x-good"), Some("1"), "{plugin}");
    }
    let got = site.post(&format!("/{plugin}/a"), &[b'p'; 3000]);
    assert_eq!((got.status, got.body.len()), (200, 5000), "{plugin}");
}

/// One plugin for every hook in which `code` can be; `{code}` leaves a result behind.
fn in_every_hook(code: &str) -> Vec<(&'static str, String)> {
    let own_hook = |hook: &str, before: &str| {
        own(&format!(
            r#"{before}(func (export "weir_on_{hook}") (param i32) (result i64) {code} (i64.const 0))"#
        ))
    };
    let wasm_hook = |hook: &str, types: &str, result: &str| {
        proxy_wasm(&format!(r#"(func (export "proxy_on_{hook}") {types} {code} {result})"#))
    };
    let request_body =
        r#"(func (export "weir_on_request") (param i32) (result i64) @edits{WANT 1})"#;
    let response_body =
        r#"(func (export "weir_on_response") (param i32) (result i64) @edits{WANT 1})"#;
    let (three, one) = ("(param i32 i32 i32) (result i32)", "(param i32) (result i32)");
    let tick = r#"(func (export "weir_configure") (param i32 i32) (result i32)
      (drop (call $tick (i32.const 30))) (i32.const 0))"#;
    vec![
        ("o-request", own_hook("request", "")),
        ("o-request-body", own_hook("request_body", request_body)),
        ("o-lookup", own_hook("lookup", "")),
        ("o-hit", own_hook("hit", "")),
        ("o-miss", own_hook("miss", "")),
        ("o-store", own_hook("store", "")),
        ("o-response", own_hook("response", "")),
        ("o-response-body", own_hook("response_body", response_body)),
        ("o-log", own_hook("log", "")),
        ("o-tick", own_hook("tick", tick)),
        (
            "w-create",
            proxy_wasm(&format!(
                // The plugin's own context is not what is meant.
                r#"(func (export "proxy_on_context_create") (param i32 i32)
              (if (local.get 1) (then {code})))"#
            )),
        ),
        ("w-request", wasm_hook("request_headers", three, "(i32.const 0)")),
        ("w-request-body", wasm_hook("request_body", three, "(i32.const 0)")),
        ("w-response", wasm_hook("response_headers", three, "(i32.const 0)")),
        ("w-response-body", wasm_hook("response_body", three, "(i32.const 0)")),
        ("w-done", wasm_hook("done", one, "(i32.const 1)")),
        ("w-log", wasm_hook("log", "(param i32)", "")),
        ("w-delete", wasm_hook("delete", "(param i32)", "")),
    ]
}

#[test]
fn endless_loops_end() {
    contained(&in_every_hook("(loop $ever (br $ever))"), "deadline");
}

/// A long timer runs on a thread of its own while its worker runs other plugins: a call of theirs
/// once hid the timer's, and itself, from the watch over both.
#[test]
fn endless_loops_end_beside_an_endless_timer() {
    let hooks = in_every_hook("(loop $ever (br $ever))");
    let module = |name| hooks.iter().find(|(hook, _)| *hook == name).unwrap().1.clone();
    let lines = "limits cpu=\"20ms\"; quarantine failures=1000";
    let site = setup()
        .server("workers 1")
        .block("plugins { long-threads 1; }")
        .plugin("good", &good(), "")
        .plugin("tick", &module("o-tick"), lines)
        .plugin("loops", &module("o-request"), lines)
        .run(&format!("{GOOD_ROUTES} route \"/loops\" {{ respond \"the rest\"; use \"loops\"; }}"));
    // It has been found to take long, and is away from the worker.
    let known = wait_for(PATIENCE, || (failures(&site, "tick", "deadline") > 5.0).then_some(()));
    assert!(known.is_some(), "{}", site.weir.log());
    for _ in 0..60 {
        let got = site.get("/loops", &[]);
        assert_eq!((got.status, text(&got)), (200, "the rest"));
        assert_eq!(site.get("/good", &[]).status, 200);
    }
    assert!(failures(&site, "loops", "deadline") >= 60.0);
}

#[test]
fn traps_are_contained() {
    contained(&in_every_hook("(unreachable)"), "trap");
}

#[test]
fn what_a_plugin_does_to_its_own_memory_and_stack_is_contained() {
    let memory = own(r#"(func (export "weir_on_request") (param i32) (result i64)
      (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
      (unreachable))"#);
    let memory_wasm = proxy_wasm(
        r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (unreachable))"#,
    );
    let table = own(r#"(table $t 1 funcref)
      (func (export "weir_on_request") (param i32) (result i64)
        (loop $more (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 1000))
                                         (i32.const -1))))
        (unreachable))"#);
    contained(&[("memory", memory), ("memory-wasm", memory_wasm), ("table", table)], "memory");
    let recursion = r#"(func $deeper (param i32) (result i32)
        (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))"#;
    let stack = own(&format!(
        r#"{recursion} (func (export "weir_on_request") (param i32) (result i64)
          (drop (call $deeper (i32.const 0))) (i64.const 0))"#
    ));
    let stack_wasm = proxy_wasm(&format!(
        r#"{recursion} (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $deeper (i32.const 0))) (i32.const 0))"#
    ));
    contained(&[("stack", stack), ("stack-wasm", stack_wasm)], "stack");
}

/// Weir's own interface: what a hook returns, and where its buffers are.
#[test]
fn lies_about_addresses_and_lists_are_seen_through() {
    let returns = |value: &str| {
        own(&format!(
            r#"(func (export "weir_on_request") (param i32) (result i64) {value})
            (func (export "weir_on_response") (param i32) (result i64) {value})"#
        ))
    };
    // Bytes of a list by hand.
    let list = |bytes: &str| {
        let count = bytes.matches('\\').count();
        own(&format!(
            r#"(data (i32.const 2048) "{bytes}")
            (func (export "weir_on_request") (param i32) (result i64)
              (i64.const {}))"#,
            2048_u64 << 32 | count as u64
        ))
    };
    contained(
        &[
            ("beyond", returns("(i64.const 0x7fff0000_00000010)")),
            ("long", returns("(i64.const 0x00001000_7fffffff)")),
            ("wraps", returns("(i64.const 0x7ffffff0_ffffffff)")),
            ("cut", list(r"\01\00\04\00\05\00\00\00\61")),
            ("unknown", list(r"\63\00\00\00\00\00\00\00")),
            ("flags", list(r"\01\ff\01\00\00\00\00\00\61")),
            ("elsewhere", list(r"\09\01\00\00\08\00\00\00\ff\ff\ff\7f\ff\ff\ff\7f")),
            ("field", list(r"\01\00\01\00\01\00\00\00\0a\0d")),
            ("value", list(r"\01\00\01\00\04\00\00\00\61\62\0d\0a\63")),
            ("place", returns("@edits{STATUS 200;TTL 7}")),
            ("target", returns("@edits{TARGET nowhere}")),
            ("splits", list(r"\05\00\00\00\05\00\00\00\2f\20\48\0d\0a")),
        ],
        "protocol",
    );
}

#[test]
fn buffers_that_are_none_do_not_start() {
    let buffer = |result: &str| {
        format!(
            r#"(module (memory (export "memory") 1) (func (export "weir_abi_1"))
            (func (export "weir_buffer") (param i32 i32) (result i32) {result})
            (func (export "weir_on_request") (param i32) (result i64) (i64.const 0)))"#
        )
    };
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    undisturbed(&site, || {
        for result in [
            "(i32.const 0)",
            "(i32.const -8)",
            "(i32.const 65528)",
            "(i32.const 3)",
            "(unreachable)",
        ] {
            let (status, said) =
                site.manage("POST", "/plugins/bad?route=/spare", buffer(result).as_bytes());
            assert!((400..500).contains(&status), "{result}: {status} {said}");
            assert!(said.contains("start"), "{result}: {said}");
        }
    });
}

/// proxy-wasm: what host functions are given. They say that it is bad, and nothing else happens.
#[test]
fn host_functions_refuse_what_is_wrong() {
    // Answers 418 unless every call returns an error.
    let refused: String = [
        "$proxy_set_header_map_pairs (i32.const 0) (i32.const 1024) (i32.const 13)",
        "$proxy_set_header_map_pairs (i32.const 0) (i32.const 0x7fffffff) (i32.const 8)",
        "$proxy_set_header_map_pairs (i32.const 0) (i32.const 1028) (i32.const 8)",
        "$proxy_set_header_map_pairs (i32.const 77) @map{a=b}",
        "$proxy_add_header_map_value (i32.const 0) @{} @{b}",
        "$proxy_add_header_map_value (i32.const 0) (i32.const -1) (i32.const 1) @{b}",
        "$proxy_add_header_map_value (i32.const 0) @{a} (i32.const 16) (i32.const -1)",
        "$proxy_get_header_map_value (i32.const 0) @{:path} (i32.const -2) (i32.const 516)",
        "$proxy_get_property (i32.const -1) (i32.const -1) (i32.const 512) (i32.const 516)",
        "$proxy_set_buffer_bytes (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -9) (i32.const 20)",
        "$proxy_send_local_response (i32.const 200) @{} @{} (i32.const 1024) (i32.const 13) (i32.const -1)",
        "$proxy_send_local_response (i32.const 200) @{} (i32.const -5) (i32.const 50) @map{} (i32.const -1)",
        "$proxy_http_call @{none} @map{:method=GET;:path=/;:authority=a} @{} @{} (i32.const 100) (i32.const 512)",
    ]
    .iter()
    .map(|call| {
        format!("(if (i32.eqz (call {call})) (then (local.set $fine (i32.const 1))))\n")
    })
    .collect();
    let module = proxy_wasm(&format!(
        r#"(data (i32.const 1024) "\ff\ff\ff\7f\01\00\00\00\ff\ff\ff\ff\00")
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (local $fine i32)
          {refused}
          (if (local.get $fine) (then
            (call $answer (i32.const 418) @{{taken}})
            (return (i32.const 1))))
          (i32.const 0))"#
    ));
    let (site, origin) = misbehaving(&[("bad", module)], "on-failure \"fail\"");
    undisturbed(&site, || {
        for _ in 0..3 {
            let got = site.get("/bad/a", &[("X-Kept", "1")]);
            assert_eq!((got.status, got.body.len()), (200, 5000), "{}", text(&got));
        }
    });
    assert_eq!(origin.take()[0].values("x-kept"), ["1"]);
}

#[test]
fn a_plugin_without_an_allocator_is_told_nothing() {
    let module = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (i32.eqz (call $proxy_get_header_map_value (i32.const 0) @{:path}
                             (i32.const 512) (i32.const 516)))
            (then (unreachable)))
          (i32.const 0))"#,
    );
    let without = module.replace("(export \"proxy_on_memory_allocate\")", "");
    let gives_nothing = module.replace(
        "(local $at i32)",
        "(local $at i32) (if (i32.const 1) (then (return (i32.const 0))))",
    );
    let gives_nonsense = gives_nothing.replace("(return (i32.const 0))", "(return (i32.const -4))");
    let modules = [("without", without), ("nothing", gives_nothing), ("nonsense", gives_nonsense)];
    let (site, _origin) = misbehaving(&modules, "on-failure \"fail\"");
    undisturbed(&site, || {
        for (name, _) in &modules {
            let got = site.get(&format!("/{name}/a"), &[]);
            // An address beyond its memory is the plugin's failure, no address is an answer.
            let expected = if *name == "nonsense" { [200, 500] } else { [200, 200] };
            assert!(expected.contains(&got.status), "{name}: {}", got.status);
        }
    });
}

#[test]
fn a_body_hook_that_never_continues_holds_nothing_but_its_request() {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64) @edits{WANT 1})
        (func (export "weir_on_request_body") (param i32) (result i64) @edits{HOLD 60000})"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 1))"#,
    );
    let response = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 1))"#,
    );
    let modules = [("own", own), ("wasm", wasm), ("response", response)];
    let (site, _origin) = misbehaving(&modules, "");
    undisturbed(&site, || {
        let mut stuck = Vec::new();
        for (name, _) in &modules {
            for _ in 0..20 {
                let mut client = site.connect();
                let head =
                    format!("POST /{name}/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
                client.send(head.as_bytes()).unwrap();
                stuck.push(client);
            }
        }
        // None is answered, and the plugins let requests without a body pass.
        stuck[0].set_patience(Duration::from_millis(300));
        assert!(stuck[0].response("POST").is_err());
        assert_eq!(site.get("/own/a", &[]).status, 200);
        assert_eq!(site.get("/wasm/a", &[]).status, 200);
    });
}

#[test]
fn a_plugin_that_does_not_start_changes_nothing() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    let start = |code: &str| own(&format!("(func (export \"_initialize\") {code})"));
    let section = |code: &str| own(&format!("(func $begin {code}) (start $begin)"));
    let configure = |code: &str| {
        own(&format!("(func (export \"weir_configure\") (param i32 i32) (result i32) {code})"))
    };
    let vm_start = |code: &str| {
        proxy_wasm(&format!(
            "(func (export \"proxy_on_vm_start\") (param i32 i32) (result i32) {code})"
        ))
    };
    undisturbed(&site, || {
        for (module, why) in [
            (start("(unreachable)"), "unreachable"),
            (section("(unreachable)"), "unreachable"),
            (configure("(unreachable)"), "unreachable"),
            (configure("(i32.const 7)"), "7"),
            (vm_start("(unreachable)"), "unreachable"),
            (vm_start("(i32.const 0)"), "proxy_on_vm_start"),
            (start("(drop (memory.grow (i32.const 60000))) (unreachable)"), "memory"),
            (own("(func $again (export \"_initialize\") (call $again))"), "stack"),
        ] {
            let (status, said) =
                site.manage("POST", "/plugins/bad?route=/spare", module.as_bytes());
            assert!((400..500).contains(&status), "{why}: {status} {said}");
            assert!(said.contains(why), "{why}: {said}");
        }
        let (_, listed) = site.manage("GET", "/plugins", b"");
        assert!(!listed.contains("\"bad\""), "{listed}");
    });
}

/// It has ten seconds of CPU time for it, at low priority, away from all workers.
#[test]
fn an_endless_start_is_given_up_and_a_slow_one_is_waited_for() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    let spin = |rounds: u64| {
        own(&format!(
            r#"(func (export "_initialize") (local $n i64)
              (loop $more
                (local.set $n (i64.add (local.get $n) (i64.const 1)))
                (br_if $more (i64.lt_u (local.get $n) (i64.const {rounds})))))
            (func (export "weir_on_response") (param i32) (result i64) @edits{{SET x-slow=1}})"#
        ))
    };
    undisturbed(&site, || {
        let began = Instant::now();
        let (status, said) =
            site.manage("POST", "/plugins/slow?route=/spare", spin(100_000_000).as_bytes());
        assert_eq!(status, 200, "{said}");
        assert!(began.elapsed() > Duration::from_millis(20));
        let mut admin = common::client::Client::connect(site.admin).unwrap();
        admin.set_patience(Duration::from_secs(120));
        let module = spin(u64::MAX);
        let head = format!(
            "POST /plugins/endless?route=/spare HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\
             Content-Type: text/wat\r\n\r\n",
            site.admin,
            module.len()
        );
        admin.send(&[head.as_bytes(), module.as_bytes()].concat()).unwrap();
        let got = admin.response("POST").unwrap();
        assert!((400..500).contains(&got.status), "{}", text(&got));
        assert!(text(&got).contains("deadline"), "{}", text(&got));
    });
}
