//! Plugins and the cache: what is stored is what a plugin at the fill made of it, keys and
//! lifetimes are what plugins say, and stored content can be managed from them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::client::Response;
use crate::common::origin::{Origin, Received, Step, answer};
use crate::common::{PATIENCE, wait_for};
use crate::site::{Site, setup, text};
use crate::wasm::{own, proxy_wasm};

pub(crate) const FRESH: &str =
    "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\n";

/// Makes letters large, and logs every response that it sees.
fn upper(mark: &str) -> String {
    own(&upper_code(mark))
}

fn upper_code(mark: &str) -> String {
    format!(
        r#"(func (export "weir_on_response") (param i32) (result i64)
          (drop (call $log (i32.const 3) @{{seen by {mark}}}))
          @edits{{WANT 1;SET x-made-by={mark}}})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (call $upper (i32.load offset=96 (local.get 0)) (i32.load offset=100 (local.get 0)))
          (call $piece (local.get 0)))"#
    )
}

fn runs(site: &Site, mark: &str) -> usize {
    site.weir.log().matches(&format!("seen by {mark}")).count()
}

pub(crate) fn counting(
    script: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |request| script(count.fetch_add(1, SeqCst), request))
}

pub(crate) fn is_hit(response: &Response) -> bool {
    response.header("cache-status").is_some_and(|status| status.contains("; hit"))
}

#[test]
fn at_the_fill_a_response_is_transformed_once() {
    let proxy_wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_log (i32.const 3) @{seen by one}))
          (drop (call $proxy_add_header_map_value (i32.const 2) @{x-made-by} @{one}))
          (drop (call $proxy_remove_header_map_value (i32.const 2) @{content-length}))
          (i32.eqz (local.get 2)))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
          (call $upper_body (i32.const 1))
          (drop (call $proxy_continue_stream (i32.const 1)))
          (i32.const 0))"#,
    );
    for module in [upper("one"), proxy_wasm] {
        let origin = counting(|n, _| answer("200 OK", FRESH, format!("body {n}").as_bytes()));
        let site = setup().plugin("p", &module, "").run(&format!(
            r#"route "/plain/*" {{ proxy "{0}"; }}
            route "/*" {{ proxy "{0}"; use "p" at="fill"; }}"#,
            origin.url()
        ));
        let mut client = site.connect();
        for round in 0..4 {
            let got = client.ask("GET", "/a", &[]).unwrap();
            assert_eq!((got.status, text(&got)), (200, "BODY 0"), "{round}");
            assert_eq!(got.header("x-made-by"), Some("one"));
            assert_eq!(is_hit(&got), round > 0);
            assert_eq!(runs(&site, "one"), 1, "{round}");
        }
        // What is stored has parts, and a length.
        let part = client.ask("GET", "/a", &[("Range", "bytes=0-3")]).unwrap();
        assert_eq!((part.status, text(&part)), (206, "BODY"));
        let head = client.ask("HEAD", "/a", &[]).unwrap();
        assert_eq!(head.header("content-length"), Some("6"));
        let tag = head.header("etag").unwrap().to_owned();
        assert_eq!(client.ask("GET", "/a", &[("If-None-Match", &tag)]).unwrap().status, 304);
        assert_eq!(runs(&site, "one"), 1);
        // A purge by the URL finds it.
        assert_eq!(site.purge("/a"), 1);
        assert_eq!(text(&client.ask("GET", "/a", &[]).unwrap()), "BODY 1");
        assert_eq!(runs(&site, "one"), 2);
        assert_eq!(text(&client.ask("GET", "/plain/a", &[]).unwrap()), "body 2");
    }
}

#[test]
fn what_a_plugin_failed_over_is_not_taken_for_what_it_makes() {
    let fails = upper_code("one")
        + r#"(func (export "weir_on_request") (param i32) (result i64)
          (if (i32.gt_u (i32.load offset=72 (local.get 0)) (i32.const 3)) (then unreachable))
          (i64.const 0))"#;
    let module = own(&fails);
    let origin = counting(|n, _| answer("200 OK", FRESH, format!("body {n}").as_bytes()));
    let site = setup()
        .plugin("p", &module, "on-failure \"pass\"")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p" at="fill"; }}"#, origin.url()));
    let many: Vec<(&str, &str)> = vec![("x-a", "1"), ("x-b", "1"), ("x-c", "1"), ("x-d", "1")];
    assert_eq!(text(&site.get("/a", &many)), "body 0", "without the plugin");
    let made = wait_for(PATIENCE, || (text(&site.get("/a", &[])) == "BODY 1").then_some(()));
    assert!(made.is_some(), "made by it: {}", text(&site.get("/a", &[])));
}

#[test]
fn a_plugin_used_twice_keeps_what_it_makes_apart_too() {
    let origin = counting(|n, _| answer("200 OK", FRESH, format!("body {n}").as_bytes()));
    let site = setup().plugin("p", &upper("one"), "").run(&format!(
        r#"route "/*" {{ proxy "{}"; use "p" at="fill"; use "p" at="fill"; }}"#,
        origin.url()
    ));
    assert_eq!(text(&site.get("/a", &[])), "BODY 0");
    let routes = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
    let (status, why) = site.reload("", &routes);
    assert_eq!(status, 200, "{why}");
    assert_eq!(text(&site.get("/a", &[])), "body 1", "not what the plugin made");
}

#[test]
fn at_the_fill_files_are_transformed_once() {
    let site = setup()
        .plugin("p", &upper("one"), "")
        .file("www/a.txt", b"the file")
        .run(r#"route "/*" { files "www"; use "p" at="fill"; }"#);
    for round in 0..3 {
        let got = site.get("/a.txt", &[]);
        assert_eq!((got.status, text(&got)), (200, "THE FILE"), "{round}");
        assert_eq!(runs(&site, "one"), 1, "{round}");
    }
    let has_length =
        || (site.get("/a.txt", &[]).header("content-length") == Some("8")).then_some(());
    assert!(wait_for(PATIENCE, has_length).is_some(), "once it is stored");
    // Another content is another file.
    std::fs::write(site.weir.directory().join("www/a.txt"), b"another file").unwrap();
    let changed =
        wait_for(PATIENCE, || (text(&site.get("/a.txt", &[])) == "ANOTHER FILE").then_some(()));
    assert!(changed.is_some());
}

#[test]
fn another_generation_has_its_own_copies() {
    let origin = counting(|_, _| answer("200 OK", FRESH, b"body"));
    let routes = format!(r#"route "/*" {{ proxy "{}"; use "p" at="fill"; }}"#, origin.url());
    let site = setup().plugin("p", &upper("one"), "").run(&routes);
    let made_by = |expected: &str, hit: bool| {
        let got = site.get("/a", &[]);
        assert_eq!(got.header("x-made-by"), Some(expected));
        assert_eq!(is_hit(&got), hit, "{expected}");
    };
    made_by("one", false);
    made_by("one", true);
    let wat = site.weir.directory().join("p.wat");
    std::fs::write(&wat, upper("two")).unwrap();
    assert_eq!(site.reload("", &routes).0, 200);
    made_by("two", false);
    made_by("two", true);
    // The first comes back as it was left.
    std::fs::write(&wat, upper("one")).unwrap();
    assert_eq!(site.reload("", &routes).0, 200);
    made_by("one", true);
    // A purge finds what was stored before the reloads, too.
    assert_eq!(site.purge("/a"), 2, "both copies");
    made_by("one", false);
}

/// Decides by the target: the key by a field, neither look-up nor store, validation.
fn decides() -> String {
    own(r#"
        (func (export "weir_on_lookup") (param i32) (result i64)
          (if (call $target (local.get 0) @{/key/a}) (then (return @edits{KEY a})))
          (if (call $target (local.get 0) @{/key/b}) (then (return @edits{KEY b})))
          (if (call $target (local.get 0) @{/pass}) (then (return @edits{CACHE 1})))
          (if (call $target (local.get 0) @{/field}) (then (return
            @edits{SET x-looked=up;ADD x-added=1;REMOVE x-removed})))
          (i64.const 0))
        (func (export "weir_on_hit") (param i32) (result i64)
          (if (call $target (local.get 0) @{/validate}) (then (return @edits{CACHE 2})))
          (if (call $target (local.get 0) @{/hitpass}) (then (return @edits{CACHE 1})))
          (if (call $target (local.get 0) @{/hitanswer})
            (then (return @edits{ANSWER 410;BODY gone})))
          (i64.const 0))
        (func (export "weir_on_miss") (param i32) (result i64)
          (if (call $target (local.get 0) @{/missanswer})
            (then (return @edits{ANSWER 404;BODY none})))
          (if (call $target (local.get 0) @{/missfield}) (then (return
            @edits{SET x-missed=yes;REMOVE x-removed;TARGET /elsewhere?q=1;AUTHORITY within:81})))
          (if (call $target (local.get 0) @{/missup}) (then (return @edits{UPSTREAM other})))
          (if (call $target (local.get 0) @{/missput}) (then (return @edits{METHOD PUT})))
          (if (call $target (local.get 0) @{/misshead}) (then (return @edits{METHOD HEAD})))
          (if (call $target (local.get 0) @{/missbad}) (then (return @edits{TARGET /%00})))
          (i64.const 0))
        (func (export "weir_on_store") (param i32) (result i64)
          (if (call $target (local.get 0) @{/nostore}) (then (return @edits{NO_STORE})))
          (if (call $target (local.get 0) @{/storeanswer})
            (then (return @edits{ANSWER 418;SET x-instead=yes;BODY instead})))
          (if (call $target (local.get 0) @{/storeclose}) (then (return @edits{CLOSE})))
          (if (call $target (local.get 0) @{/ttl}) (then (return @edits{TTL 300})))
          (if (call $target (local.get 0) @{/head}) (then (return
            @edits{SET x-stored=yes;REMOVE x-dropped})))
          (i64.const 0))"#)
}

pub(crate) fn deciding() -> (Site, Origin, Origin) {
    let other = Origin::start(|_| answer("200 OK", FRESH, b"other"));
    let origin = counting(|n, request| {
        let line = request.line();
        let target = line.split(' ').nth(1).unwrap_or_default();
        if line.starts_with("HEAD ") {
            return vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec())];
        }
        if target.contains("field") || target.contains("elsewhere") {
            let fields: Vec<String> = ["host", "x-looked", "x-added", "x-missed", "x-removed"]
                .iter()
                .map(|name| format!("{name}={}", request.values(name).join(",")))
                .collect();
            let seen = format!("{target} {}", fields.join(" "));
            return answer("200 OK", FRESH, seen.as_bytes());
        }
        if !request.values("if-none-match").is_empty() {
            return answer("304 Not Modified", "ETag: \"v1\"\r\nX-Dropped: 2\r\n", b"");
        }
        let fields = format!("{FRESH}X-Dropped: 1\r\n");
        answer("200 OK", &fields, n.to_string().as_bytes())
    });
    let site = setup()
        .plugin("p", &decides(), "allow { upstreams \"other\"; }")
        .block(&format!("upstream \"other\" {{ server \"{}\"; }}", other.url()))
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
    (site, origin, other)
}

#[test]
fn lookups_and_misses_change_what_the_origin_is_asked() {
    let (site, origin, other) = deciding();
    let removed = [("X-Removed", "1")];
    let got = site.get("/field", &removed);
    assert_eq!(
        text(&got),
        "/field host=site.example x-looked=up x-added=1 x-missed= x-removed=",
        "by the lookup"
    );
    for is_stored in [false, true] {
        let got = site.get("/missfield", &removed);
        assert_eq!(
            text(&got),
            "/elsewhere?q=1 host=within:81 x-looked= x-added= x-missed=yes x-removed=",
            "by the miss"
        );
        assert_eq!(is_hit(&got), is_stored, "stored as what was looked up");
    }
    assert_eq!(site.purge("/missfield"), 1);
    for is_stored in [false, true] {
        let got = site.get("/missup", &[]);
        assert_eq!((text(&got), is_hit(&got)), ("other", is_stored));
    }
    assert_eq!(other.take().len(), 1);
    // Another method's answer is nobody else's.
    origin.take();
    for _ in 0..2 {
        let got = site.get("/missput", &[]);
        assert_eq!((got.status, is_hit(&got)), (200, false));
    }
    let asked = origin.take();
    assert!(asked.len() == 2 && asked.iter().all(|request| request.line().starts_with("PUT ")));
    let mut client = site.connect();
    for _ in 0..2 {
        let got = client.ask("GET", "/misshead", &[]).unwrap();
        assert_eq!((got.status, text(&got)), (200, ""));
    }
    assert_eq!(client.ask("GET", "/missbad", &[]).unwrap().status, 400);
}

#[test]
fn a_plugin_decides_what_is_looked_up_and_what_is_stored() {
    let (site, origin, _other) = deciding();
    // How often the origin is asked when the same is asked for twice.
    let check = |target: &str, asked: usize| {
        origin.take();
        let first = site.get(target, &[]);
        let second = site.get(target, &[]);
        assert_eq!((first.status, second.status), (200, 200), "{target}");
        assert_eq!(origin.take().len(), asked, "{target}");
        (first, second)
    };
    check("/usual", 1);
    check("/pass", 2);
    check("/nostore", 2);
    let (first, second) = check("/validate", 2);
    assert_eq!(first.body, second.body, "validated, not fetched");
    let (first, second) = check("/hitpass", 2);
    assert_ne!(first.body, second.body);
    let (first, second) = check("/head", 1);
    for got in [first, second] {
        assert_eq!(got.header("x-stored"), Some("yes"));
        assert_eq!(got.header("x-dropped"), None);
    }
    assert_eq!(site.get("/hitanswer", &[]).status, 200);
    let answered = site.get("/hitanswer", &[]);
    assert_eq!((answered.status, text(&answered)), (410, "gone"));
    origin.take();
    let answered = site.get("/missanswer", &[]);
    assert_eq!((answered.status, text(&answered)), (404, "none"));
    assert_eq!(origin.take().len(), 0);
    // Its own lifetime.
    let first = site.get("/ttl", &[]);
    assert!(is_hit(&site.get("/ttl", &[])));
    std::thread::sleep(Duration::from_millis(400));
    assert!(!is_hit(&site.get("/ttl", &[])));
    assert_eq!(first.status, 200);
}

#[test]
fn a_plugin_answers_or_closes_where_a_response_would_be_stored() {
    let (site, origin, _other) = deciding();
    let mut client = site.connect();
    for _ in 0..2 {
        let got = client.ask("GET", "/storeanswer", &[]).unwrap();
        assert_eq!((got.status, text(&got)), (418, "instead"));
        assert_eq!(got.header("x-instead"), Some("yes"));
        assert_eq!(got.header("etag"), None, "nothing of the response is left");
        assert!(!is_hit(&got));
    }
    assert_eq!(origin.take().len(), 2, "it is not stored");
    for _ in 0..2 {
        assert!(site.connect().ask("GET", "/storeclose", &[]).is_err());
    }
    assert_eq!(origin.take().len(), 2);
    // All that wait get it.
    let origin = counting(|_, _| {
        let mut steps = vec![Step::Pause(Duration::from_millis(800))];
        steps.extend(answer("200 OK", FRESH, b"body"));
        steps
    });
    let site = setup()
        .plugin("p", &decides(), "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..3).map(|_| scope.spawn(|| site.get("/storeanswer", &[]))).collect();
        for got in asked {
            let got = got.join().unwrap();
            assert_eq!((got.status, text(&got)), (418, "instead"));
        }
    });
    assert_eq!(origin.take().len(), 1);
}

#[test]
fn a_key_keeps_responses_apart() {
    let origin = counting(|n, _| answer("200 OK", FRESH, n.to_string().as_bytes()));
    // The key is the method's first letter and what the field says.
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/a?1}) (then (return @edits{TARGET /a;NOTE 1})))
          (if (call $target (local.get 0) @{/a?2}) (then (return @edits{TARGET /a;NOTE 2})))
          (i64.const 0))
        (func (export "weir_on_lookup") (param i32) (result i64)
          (if (i64.eq (i64.load offset=16 (local.get 0)) (i64.const 1))
            (then (return @edits{KEY 1})))
          (if (i64.eq (i64.load offset=16 (local.get 0)) (i64.const 2))
            (then (return @edits{KEY 2})))
          (i64.const 0))"#);
    let site = setup()
        .plugin("p", &module, "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
    for _ in 0..2 {
        assert_eq!(text(&site.get("/a?1", &[])), "0");
        assert_eq!(text(&site.get("/a?2", &[])), "1");
        assert_eq!(text(&site.get("/a", &[])), "2");
    }
    assert_eq!(origin.take().len(), 3);
    assert_eq!(site.purge("/a"), 3, "by the one URL");
}

#[test]
fn however_many_keys_there_were_the_next_is_stored() {
    let origin = counting(|_, _| answer("200 OK", FRESH, b"body"));
    // The key is the target, by reference.
    let module = own(r#"
        (func (export "weir_on_lookup") (param i32) (result i64)
          (i32.store8 (i32.const 1024) (i32.const 13))
          (i32.store8 (i32.const 1025) (i32.const 1))
          (i32.store16 (i32.const 1026) (i32.const 0))
          (i32.store (i32.const 1028) (i32.const 8))
          (i64.store (i32.const 1032) (i64.load offset=40 (local.get 0)))
          (i64.const 0x40000000010))"#);
    let site = setup()
        .plugin("p", &module, "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
    let mut client = site.connect();
    let mut is_hit_of = |target: &str| is_hit(&client.ask("GET", target, &[]).unwrap());
    for key in 0..4200 {
        assert!(!is_hit_of(&format!("/{key}")), "{key}");
        if key % 100 == 0 {
            is_hit_of("/0");
        }
    }
    // It may be stored a moment after the client has it.
    let last = wait_for(PATIENCE, || is_hit_of("/4199").then_some(()));
    assert!(last.is_some(), "the last is stored");
    assert!(is_hit_of("/0"), "what is used stays");
    assert!(!is_hit_of("/1"), "what is not made room");
    for target in ["/4199", "/0"] {
        assert_eq!(site.purge(target), 1, "{target}");
    }
}

#[test]
fn a_client_or_a_response_is_closed_from_any_hook() {
    for hook in ["lookup", "hit", "miss"] {
        let origin = counting(|_, _| answer("200 OK", FRESH, b"body"));
        let module = own(&format!(
            r#"(func (export "weir_on_{hook}") (param i32) (result i64) @edits{{CLOSE}})"#
        ));
        let site = setup()
            .plugin("p", &module, "")
            .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
        let first = site.connect().ask("GET", "/a", &[]);
        let second = site.connect().ask("GET", "/a", &[]);
        let is_first_fine = hook == "hit";
        assert_eq!(first.is_ok(), is_first_fine, "{hook}: {first:?}");
        assert!(second.is_err(), "{hook}: {second:?}");
    }
}

#[test]
fn a_plugin_manages_stored_content() {
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/do/inject}) (then
            (drop (call $cache_inject @{http://site.example/a}
              @list{STATUS 200;SET content-type=text/plain;BODY injected} (i64.const 60000)))
            (return @edits{ANSWER 200})))
          (if (call $target (local.get 0) @{/do/purge}) (then
            (if (i32.eq (call $cache_purge @{http://site.example/a}) (i32.const 1))
              (then (return @edits{ANSWER 200})))
            (return @edits{ANSWER 404})))
          (if (call $target (local.get 0) @{/do/expire}) (then
            (if (i32.eq (call $cache_expire @{http://site.example/a}) (i32.const 1))
              (then (return @edits{ANSWER 200})))
            (return @edits{ANSWER 404})))
          (i64.const 0))"#);
    let origin = counting(|n, _| answer("200 OK", FRESH, format!("origin {n}").as_bytes()));
    let site =
        setup().plugin("p", &module, "allow { cache; }").plugin("q", &module, "").run(&format!(
            r#"route "/do/*" {{ respond ""; use "p"; }}
            route "/*" {{ proxy "{}"; use "q"; }}"#,
            origin.url()
        ));
    assert_eq!(site.get("/do/purge", &[]).status, 404);
    assert_eq!(site.get("/do/inject", &[]).status, 200);
    assert_eq!(text(&site.get("/a", &[])), "injected");
    assert_eq!(site.get("/do/purge", &[]).status, 200);
    assert_eq!(text(&site.get("/a", &[])), "origin 0");
    // The second response may be stored a moment after the client has it.
    assert!(wait_for(PATIENCE, || is_hit(&site.get("/a", &[])).then_some(())).is_some());
    assert_eq!(site.get("/do/expire", &[]).status, 200);
    assert!(!is_hit(&site.get("/a", &[])));
    assert_eq!(origin.take().len(), 2);
    // One without leave changes nothing.
    let module = own(r#"(func (export "weir_on_request") (param i32) (result i64)
          (if (i32.eq (call $cache_purge @{http://site.example/a}) (i32.const -3))
            (then (return @edits{ANSWER 418})))
          (i64.const 0))"#);
    let site = setup().plugin("p", &module, "").run(r#"route "/*" { respond ""; use "p"; }"#);
    assert_eq!(site.get("/", &[]).status, 418);
}
