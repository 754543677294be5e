//! A request's life in a plugin: holds, calls to upstreams, the end; what plugins do beside
//! requests; what they know.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::origin::{Origin, Step, answer, ok};
use crate::common::{PATIENCE, wait_for};
use crate::site::{setup, text};
use crate::wasm::{own, proxy_wasm};

/// An upstream that lets `/yes` and refuses the rest, or does not answer at all.
fn auth() -> Origin {
    Origin::start(|request| {
        let line = request.line();
        if line.contains("/never") {
            return vec![Step::Pause(Duration::from_secs(2)), Step::Close];
        }
        match line.contains("/yes") {
            true => answer("200 OK", "X-User: ann\r\n", b"welcome"),
            false => answer("403 Forbidden", "", b"no"),
        }
    })
}

/// Asks the upstream before the request goes on: its status decides.
fn asking() -> [(&'static str, String); 2] {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (i32.and (call $flags (local.get 0)) (i32.const 32))
            (then (return @edits{ANSWER 504;BODY late})))
          (if (call $target (local.get 0) @{/yes}) (then
            (drop (call $call @list{UPSTREAM auth;TARGET /yes;SET x-from=plugin} (i32.const 1000)))
            (return @edits{HOLD 3000})))
          (if (call $target (local.get 0) @{/never}) (then
            (drop (call $call @list{UPSTREAM auth;TARGET /never} (i32.const 100)))
            (return @edits{HOLD 3000})))
          (if (call $target (local.get 0) @{/forbidden}) (then
            (if (i32.eq (call $call @list{UPSTREAM app;TARGET /} (i32.const 100)) (i32.const -3))
              (then (return @edits{ANSWER 418})))))
          (drop (call $call @list{UPSTREAM auth;TARGET /no} (i32.const 1000)))
          @edits{HOLD 3000})
        (func (export "weir_on_call") (param i32) (result i64)
          (if (i32.and (call $flags (local.get 0)) (i32.const 16))
            (then (return @edits{ANSWER 503;BODY no answer})))
          (if (i32.eq (i32.load offset=68 (local.get 0)) (i32.const 200))
            (then (return @edits{SET x-allowed=yes;RESUME})))
          @edits{ANSWER 403;BODY refused})"#);
    let wasm = proxy_wasm(
        r#"
        (global $context (mut i32) (i32.const 0))
        (func $ask (param $id i32) (param $map i32) (param $length i32) (param $timeout i32)
          (drop (call $proxy_http_call @{auth} (local.get $map) (local.get $length)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (local.get $timeout) (i32.const 520)))
          ;; The context by the call.
          (i32.store
            (i32.add (i32.const 1024)
              (i32.shl (i32.and (i32.load (i32.const 520)) (i32.const 255)) (i32.const 2)))
            (local.get $id)))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $path @{/yes}) (then
            (call $ask (local.get 0) @map{:method=GET;:path=/yes;:authority=auth;x-from=plugin}
                       (i32.const 1000))
            (return (i32.const 1))))
          (if (call $path @{/never}) (then
            (call $ask (local.get 0) @map{:method=GET;:path=/never;:authority=auth} (i32.const 100))
            (return (i32.const 1))))
          (if (call $path @{/forbidden}) (then
            (if (call $proxy_http_call @{app} @map{:method=GET;:path=/;:authority=app}
                  (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 100)
                  (i32.const 520))
              (then (call $answer (i32.const 418) @{}) (return (i32.const 1))))))
          (call $ask (local.get 0) @map{:method=GET;:path=/no;:authority=auth} (i32.const 1000))
          (i32.const 1))
        (func (export "proxy_on_http_call_response") (param $root i32) (param $id i32)
            (param $fields i32) (param $body i32) (param $trailers i32)
          (drop (call $proxy_set_effective_context (i32.load (i32.add (i32.const 1024)
            (i32.shl (i32.and (local.get $id) (i32.const 255)) (i32.const 2))))))
          (if (i32.eqz (local.get $fields)) (then
            (call $answer (i32.const 503) @{no answer}) (return)))
          (drop (call $proxy_get_header_map_value (i32.const 6) @{:status}
                      (i32.const 512) (i32.const 516)))
          (if (call $same (i32.load (i32.const 512)) @{200}) (then
            (drop (call $proxy_add_header_map_value (i32.const 0) @{x-allowed} @{yes}))
            (drop (call $proxy_continue_stream (i32.const 0)))
            (return)))
          (call $answer (i32.const 403) @{refused}))"#,
    );
    [("own", own), ("proxy-wasm", wasm)]
}

#[test]
fn a_request_waits_for_an_upstreams_word() {
    for (name, module) in asking() {
        let auth = auth();
        let app = Origin::start(|request| ok(&request.values("x-allowed").join(",")));
        let site = setup()
            .plugin("p", &module, "allow { upstreams \"auth\"; }")
            .block(&format!("upstream \"auth\" {{ server \"{}\"; }}", auth.url()))
            .block(&format!("upstream \"app\" {{ server \"{}\"; }}", app.url()))
            .run(r#"route "/*" { proxy "app"; cache "off"; use "p"; }"#);
        let check = |target: &str, status: u16, body: &str| {
            let got = site.get(target, &[]);
            assert_eq!((got.status, text(&got)), (status, body), "{name} {target}");
        };
        check("/yes", 200, "yes");
        assert_eq!(auth.take()[0].values("x-from"), ["plugin"], "{name}");
        check("/no", 403, "refused");
        assert_eq!(app.take().len(), 1, "{name}");
        let began = Instant::now();
        check("/never", 503, "no answer");
        let took = began.elapsed();
        assert!(
            (Duration::from_millis(90)..Duration::from_millis(1900)).contains(&took),
            "{took:?}"
        );
        check("/forbidden", 418, "");
        // Many at once, on few instances.
        std::thread::scope(|scope| {
            for n in 0..16 {
                let check = &check;
                scope.spawn(move || match n % 3 {
                    0 => check("/yes", 200, "yes"),
                    1 => check("/no", 403, "refused"),
                    _ => check("/never", 503, "no answer"),
                });
            }
        });
        // With a body that waits, too.
        let got = site.post("/yes", &[b'x'; 100_000]);
        assert_eq!((got.status, text(&got)), (200, "yes"), "{name}");
        let got = site.post("/no", &[b'x'; 100_000]);
        assert_eq!((got.status, text(&got)), (403, "refused"), "{name}");
    }
}

#[test]
fn a_held_request_is_shown_again_when_its_time_is_over() {
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (i32.and (call $flags (local.get 0)) (i32.const 32)) (then
            (if (i64.eq (i64.load offset=16 (local.get 0)) (i64.const 2))
              (then (return @edits{SET x-again=yes})))
            (return @edits{NOTE 2;HOLD 50})))
          @edits{NOTE 1;HOLD 50})
        (func (export "weir_on_response") (param i32) (result i64)
          (if (i32.and (call $flags (local.get 0)) (i32.const 32))
            (then (return @edits{SET x-again=yes})))
          @edits{HOLD 50})"#);
    let origin = Origin::start(|request| ok(&request.values("x-again").join(",")));
    let site = setup()
        .plugin("p", &module, "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, origin.url()));
    let began = Instant::now();
    let got = site.get("/a", &[]);
    assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());
    assert_eq!((text(&got), got.header("x-again")), ("yes", Some("yes")));
}

#[test]
fn a_plugin_chooses_the_upstream_and_the_route() {
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/up}) (then (return @edits{UPSTREAM b})))
          (if (call $target (local.get 0) @{/away}) (then (return @edits{TARGET /b/x;ROUTE})))
          (if (call $target (local.get 0) @{/gone})
            (then (return @edits{AUTHORITY b.example;ROUTE})))
          (if (call $target (local.get 0) @{/stay}) (then (return @edits{TARGET /b/x})))
          (if (call $target (local.get 0) @{/not}) (then (return @edits{UPSTREAM c})))
          (i64.const 0))"#);
    let [a, b, c] = ["a", "b", "c"]
        .map(|name| Origin::start(move |request| ok(&format!("{name} {}", request.line()))));
    let mut setup = setup().plugin("p", &module, "allow { upstreams \"b\"; }; on-failure \"fail\"");
    for (name, origin) in [("a", &a), ("b", &b), ("c", &c)] {
        setup = setup.block(&format!("upstream \"{name}\" {{ server \"{}\"; }}", origin.url()));
    }
    let site = setup.run(
        r#"
        route "/b/*" { respond "route b"; }
        route "/*" { proxy "a"; use "p"; }"#,
    );
    let get = |target: &str| {
        let got = site.get(target, &[]);
        (got.status, text(&got).to_owned())
    };
    assert_eq!(get("/up"), (200, "b GET /up HTTP/1.1".to_owned()));
    assert_eq!(get("/plain"), (200, "a GET /plain HTTP/1.1".to_owned()));
    assert_eq!(get("/away"), (200, "route b".to_owned()));
    assert_eq!(get("/stay"), (200, "a GET /b/x HTTP/1.1".to_owned()));
    assert_eq!(get("/gone").0, 200);
    // One that it may not choose is a failure of the plugin.
    assert_eq!(get("/not").0, 500);
    assert_eq!(c.take().len(), 0);
}

#[test]
fn a_plugin_that_fails_lets_requests_pass_or_fail() {
    let modules = [
        own(r#"(func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/bad}) (then (unreachable))) @edits{SET x-fine=1})"#),
        own(r#"(func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/bad}) (then (return (i64.const -1))))
          @edits{SET x-fine=1})"#),
        proxy_wasm(
            r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $path @{/bad}) (then (unreachable)))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{x-fine} @{1})) (i32.const 0))"#,
        ),
    ];
    for module in modules {
        for (policy, status) in [("pass", 200), ("fail", 500)] {
            let origin = Origin::start(|request| ok(&request.values("x-fine").join(",")));
            let lines = format!("on-failure \"{policy}\"; quarantine failures=100");
            let site = setup().plugin("p", &module, &lines).run(&format!(
                r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#,
                origin.url()
            ));
            let mut client = site.connect();
            for _ in 0..3 {
                let fine = client.ask("GET", "/fine", &[]).unwrap();
                assert_eq!((fine.status, text(&fine)), (200, "1"), "{policy}");
                assert_eq!(client.ask("GET", "/bad", &[]).unwrap().status, status, "{policy}");
            }
            let posted = site.post("/bad", b"content");
            assert_eq!(posted.status, status, "{policy}");
            let arrived = origin.take();
            let bad = arrived.iter().filter(|request| request.line().contains("/bad"));
            assert_eq!(bad.count(), if policy == "pass" { 4 } else { 0 });
        }
    }
}

#[test]
fn a_response_outlives_the_plugins_failure() {
    let in_head =
        own(r#"(func (export "weir_on_response") (param i32) (result i64) (unreachable))"#);
    let in_body = own(r#"
        (func (export "weir_on_response") (param i32) (result i64) @edits{WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64) (unreachable))"#);
    let held = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (local.get 2) (then (unreachable))) (i32.const 1))"#,
    );
    for (name, module) in [("head", in_head), ("body", in_body), ("held", held)] {
        for policy in ["pass", "fail"] {
            let body = "x".repeat(100_000);
            let origin = Origin::start(move |_| ok(&body));
            let lines = format!("on-failure \"{policy}\"; quarantine failures=100");
            let site = setup().plugin("p", &module, &lines).run(&format!(
                r#"route "/u/*" {{ proxy "{0}"; cache "off"; use "p"; }}
                route "/*" {{ proxy "{0}"; use "p"; }}"#,
                origin.url()
            ));
            for target in ["/u/a", "/a", "/a"] {
                let got = site.connect().ask("GET", target, &[]);
                match (policy, name) {
                    ("pass", _) => {
                        let got = got.unwrap();
                        assert_eq!((got.status, got.body.len()), (200, 100_000), "{name} {target}");
                    }
                    // The head is gone already: the body breaks off.
                    (_, "body") => assert!(got.is_err(), "{got:?}"),
                    _ => assert_eq!(got.unwrap().status, 500, "{name} {target}"),
                }
            }
        }
    }
}

#[test]
fn a_plugin_ends_a_connection() {
    let own = own(r#"(func (export "weir_on_request") (param i32) (result i64)
      (if (call $target (local.get 0) @{/end}) (then (return @edits{CLOSE}))) (i64.const 0))"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $path @{/end}) (then
            (drop (call $proxy_close_stream (i32.const 0))) (return (i32.const 1))))
          (i32.const 0))"#,
    );
    for module in [own, wasm] {
        let site =
            setup().plugin("p", &module, "").run(r#"route "/*" { respond "fine"; use "p"; }"#);
        let mut client = site.connect();
        assert_eq!(client.ask("GET", "/a", &[]).unwrap().status, 200);
        client.send(b"GET /end HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(client.is_closed(), "without an answer");
        assert_eq!(site.get("/a", &[]).status, 200);
    }
}

/// Counts requests in data that all its instances share.
#[test]
fn requests_share_data_whichever_worker_serves_them() {
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64) (local $old i64) (local $at i32)
          (loop $again
            (i64.store (i32.const 1024) (i64.const 0))
            (i32.store (i32.const 1040) (i32.const 0))
            (local.set $old (call $shared_get @{count} (i32.const 1040)))
            (if (i64.gt_s (local.get $old) (i64.const 0)) (then
              (i64.store (i32.const 1024)
                (i64.load (i32.wrap_i64 (i64.shr_u (local.get $old) (i64.const 32)))))))
            (i64.store (i32.const 1024) (i64.add (i64.load (i32.const 1024)) (i64.const 1)))
            (br_if $again (i32.eq (i32.const -7)
              (call $shared_set @{count} (i32.const 1024) (i32.const 8)
                    (i32.load (i32.const 1040))))))
          (if (i64.eq (i64.load (i32.const 1024)) (i64.const 200))
            (then (return @edits{ANSWER 202;BODY the last})))
          (i64.const 0))"#);
    let site = setup().plugin("p", &module, "").run(r#"route "/*" { respond "fine"; use "p"; }"#);
    let last = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = site.connect();
                for _ in 0..25 {
                    let status = client.ask("GET", "/", &[]).unwrap().status;
                    last.fetch_add(usize::from(status == 202), SeqCst);
                }
            });
        }
    });
    assert_eq!(last.into_inner(), 1, "the two hundredth, once");
}

#[test]
fn timers_and_logs_run_beside_requests() {
    let own = own(r#"
        (func (export "weir_configure") (param i32 i32) (result i32)
          (drop (call $tick (i32.const 20))) (i32.const 0))
        (func (export "weir_on_tick") (param i32) (result i64)
          (drop (call $log (i32.const 3) @{a tick})) (i64.const 0))
        (func (export "weir_on_log") (param i32) (result i64)
          (if (i32.eq (i32.load offset=68 (local.get 0)) (i32.const 200))
            (then (drop (call $log (i32.const 3) @{the end with 200}))))
          (i64.const 0))"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
          (drop (call $proxy_set_tick_period_milliseconds (i32.const 20))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32) (drop (call $proxy_log (i32.const 3) @{a tick})))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_log") (param i32)
          (drop (call $proxy_get_header_map_value (i32.const 2) @{:status}
                      (i32.const 512) (i32.const 516)))
          (if (call $same (i32.load (i32.const 512)) @{200})
            (then (drop (call $proxy_log (i32.const 3) @{the end with 200})))))"#,
    );
    for module in [own, wasm] {
        let site = setup()
            .plugin("p", &module, "limits log=100000")
            .run(r#"route "/*" { respond "fine"; use "p"; }"#);
        let said = |text: &str, times: usize| {
            wait_for(PATIENCE, || (site.weir.log().matches(text).count() >= times).then_some(()))
                .unwrap_or_else(|| panic!("{text} is missing:\n{}", site.weir.log()));
        };
        said("a tick", 5);
        let mut client = site.connect();
        for _ in 0..3 {
            assert_eq!(client.ask("GET", "/", &[]).unwrap().status, 200);
        }
        said("the end with 200", 3);
    }
}

#[test]
fn a_client_that_leaves_ends_its_request_in_the_plugin() {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/held}) (then (return @edits{HOLD 30000})))
          (i64.const 0))
        (func (export "weir_on_log") (param i32) (result i64)
          (if (call $target (local.get 0) @{/held})
            (then (drop (call $log (i32.const 3) @{held no more}))))
          (i64.const 0))"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (call $path @{/held}))
        (func (export "proxy_on_done") (param i32) (result i32)
          (if (call $path @{/held}) (then (drop (call $proxy_log (i32.const 3) @{held no more}))))
          (i32.const 1))"#,
    );
    for (name, module) in [("own", own), ("proxy-wasm", wasm)] {
        let site =
            setup().plugin("p", &module, "").run(r#"route "/*" { respond "fine"; use "p"; }"#);
        let mut leaving = site.connect();
        leaving.send(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut staying = site.connect();
        for _ in 0..20 {
            assert_eq!(staying.ask("GET", "/a", &[]).unwrap().status, 200, "{name}");
        }
        assert!(!site.weir.log().contains("held no more"), "{name}");
        drop(leaving);
        site.weir.wait_for_log("held no more");
        assert_eq!(staying.ask("GET", "/a", &[]).unwrap().status, 200, "{name}");
    }
}
