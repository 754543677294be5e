//! Heads: fields and targets of requests, fields of responses, answers of a plugin's own, on every
//! kind of route.

use crate::common::client::find;
use crate::common::origin::{Origin, Step, answer, ok};
use crate::site::{Site, post, setup, text};
use crate::wasm::{own, proxy_wasm};

/// The same plugin by both interfaces: marks requests and responses, takes a field away, sends
/// `/old…` to `/new`, answers `/deny…` by itself.
fn marks() -> [(&'static str, String); 2] {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/p/deny}) (then (return
            @edits{ANSWER 403;SET content-type=text/plain;SET x-by=plugin;BODY denied})))
          (if (call $target (local.get 0) @{/p/old}) (then (return
            @edits{SET x-mark=own;REMOVE x-secret;TARGET /p/new?by=plugin})))
          @edits{SET x-mark=own;REMOVE x-secret})
        (func (export "weir_on_response") (param i32) (result i64)
          @edits{SET x-seen=own;ADD x-list=b;REMOVE x-gone})"#);
    let proxy_wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $path @{/p/deny}) (then
            (drop (call $proxy_send_local_response (i32.const 403) @{details} @{denied}
                        @map{content-type=text/plain;x-by=plugin} (i32.const -1)))
            (return (i32.const 1))))
          (if (call $path @{/p/old}) (then (drop
            (call $proxy_replace_header_map_value (i32.const 0) @{:path} @{/p/new?by=plugin}))))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{x-mark} @{proxy-wasm}))
          (drop (call $proxy_remove_header_map_value (i32.const 0) @{x-secret}))
          (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_replace_header_map_value (i32.const 2) @{x-seen} @{proxy-wasm}))
          (drop (call $proxy_add_header_map_value (i32.const 2) @{x-list} @{b}))
          (drop (call $proxy_remove_header_map_value (i32.const 2) @{x-gone}))
          (i32.const 0))"#,
    );
    [("own", own), ("proxy-wasm", proxy_wasm)]
}

/// Answers with the request's head; `…/error` fails.
fn echo() -> Origin {
    Origin::start(|request| {
        let head = String::from_utf8_lossy(&request.head).into_owned();
        let fields = "Cache-Control: max-age=600\r\nX-List: a\r\nX-Gone: 1\r\nETag: \"e\"\r\n";
        match request.line().contains("/error") {
            true => answer("500 Internal Server Error", "X-Gone: 1\r\n", head.as_bytes()),
            false => answer("200 OK", fields, head.as_bytes()),
        }
    })
}

fn marked(module: &str, origin: &Origin) -> Site {
    let url = origin.url();
    setup()
        .plugin("marks", module, "")
        .file("www/p/f/new", b"the new file")
        .file("www/p/f/a.txt", b"a file")
        .run(&format!(
            r#"
            route "/p/f/*" {{ files "www"; use "marks"; }}
            route "/p/u/*" {{ proxy "{url}"; cache "off"; use "marks"; }}
            route "/p/r/*" {{ respond "fixed"; use "marks"; }}
            route "/p/down/*" {{ proxy "http://127.0.0.1:1"; use "marks"; }}
            route "/p/*" {{ proxy "{url}"; use "marks"; }}
            route "/*" {{ proxy "{url}"; }}
            "#
        ))
}

#[test]
fn requests_reach_the_origin_as_the_plugin_has_made_them() {
    for (name, module) in marks() {
        let origin = echo();
        let site = marked(&module, &origin);
        for target in ["/p/u/a", "/p/a"] {
            let fields = [("X-Secret", "s"), ("X-Kept", "k")];
            let got = site.get(target, &fields);
            let seen = text(&got).to_ascii_lowercase();
            assert!(seen.contains(&format!("x-mark: {name}\r\n")), "{name} {target}: {seen}");
            assert!(seen.contains("x-kept: k") && !seen.contains("x-secret"), "{name}: {seen}");
            assert!(seen.contains("host: ") && !seen.contains(":path"), "{name}: {seen}");
        }
        let posted = site.post("/p/u/b", b"content");
        assert!(text(&posted).to_ascii_lowercase().contains(&format!("x-mark: {name}")));
        assert_eq!(origin.take().last().unwrap().body, b"content", "{name}");
        // Another route's requests are not touched.
        assert!(text(&site.get("/else", &[("X-Secret", "s")])).to_lowercase().contains("x-secret"));
        assert_eq!(origin.take_oddities(), [""; 0]);
    }
}

#[test]
fn a_changed_target_is_what_is_looked_up_and_asked_for() {
    for (name, module) in marks() {
        let origin = echo();
        let site = marked(&module, &origin);
        let first = site.get("/p/old", &[]);
        assert!(text(&first).starts_with("GET /p/new?by=plugin HTTP/1.1"), "{name}");
        assert_eq!(origin.take().len(), 1);
        // Both names have one stored response.
        for target in ["/p/old", "/p/older", "/p/new?by=plugin"] {
            let hit = site.get(target, &[]);
            assert_eq!(hit.body, first.body, "{name} {target}");
            assert!(hit.header("cache-status").unwrap().contains("hit"), "{name} {target}");
        }
        assert_eq!(origin.take().len(), 0, "{name}");
    }
}

#[test]
fn responses_are_changed_whatever_their_source() {
    for (name, module) in marks() {
        let origin = echo();
        let site = marked(&module, &origin);
        let check = |what: &str, target: &str, status: u16, has_list: bool| {
            for method in ["GET", "HEAD"] {
                let got = site.ask(method, target, &[]);
                assert_eq!(got.status, status, "{name} {what} {method}");
                assert_eq!(got.header("x-seen"), Some(name), "{name} {what} {method}");
                assert_eq!(got.header("x-gone"), None, "{name} {what} {method}");
                let list: Vec<_> = got.headers.iter().filter(|(n, _)| n == "x-list").collect();
                assert_eq!(list.len(), 1 + usize::from(has_list), "{name} {what} {method}");
            }
        };
        check("miss", "/p/a", 200, true);
        check("hit", "/p/a", 200, true);
        check("uncached", "/p/u/a", 200, true);
        check("error of the origin", "/p/u/error", 500, false);
        check("no origin", "/p/down/a", 502, false);
        check("file", "/p/f/a.txt", 200, false);
        check("file again", "/p/f/a.txt", 200, false);
        check("no file", "/p/f/none", 404, false);
        check("fixed", "/p/r/a", 200, false);
        // What is stored is what the origin said: the change is made on each delivery.
        let not_modified = site.get("/p/a", &[("If-None-Match", "\"e\"")]);
        assert_eq!(not_modified.status, 304, "{name}");
        assert_eq!(not_modified.header("x-seen"), Some(name));
        let part = site.get("/p/a", &[("Range", "bytes=0-3")]);
        assert_eq!((part.status, &*part.body), (206, &b"GET "[..]), "{name}");
        assert_eq!(part.header("x-seen"), Some(name));
        assert_eq!(part.header("content-length"), Some("4"));
    }
}

#[test]
fn a_plugin_answers_in_the_place_of_any_source() {
    for (name, module) in marks() {
        let origin = echo();
        let site = marked(&module, &origin);
        let mut client = site.connect();
        for method in ["GET", "HEAD", "GET"] {
            let got = client.ask(method, "/p/deny", &[]).unwrap();
            assert_eq!(got.status, 403, "{name}");
            assert_eq!(got.header("x-by"), Some("plugin"), "{name}");
            assert_eq!(got.header("content-length"), Some("6"), "{name} {method}");
            assert!(!got.says_close(), "{name}");
            assert_eq!(text(&got), if method == "GET" { "denied" } else { "" });
        }
        // Even if a body follows that nobody wants.
        let got = post(&mut client, "/p/deny", &[b'x'; 100_000]);
        assert_eq!((got.status, text(&got)), (403, "denied"), "{name}");
        assert!(got.says_close() || client.ask("GET", "/p/deny", &[]).unwrap().status == 403);
        assert_eq!(origin.take().len(), 0, "{name}");
    }
}

/// Hits of plain requests take a short way, which must not show a response twice.
#[test]
fn a_response_is_shown_once() {
    let own =
        own(r#"(func (export "weir_on_response") (param i32) (result i64) @edits{ADD x-by=a})"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_add_header_map_value (i32.const 2) @{x-by} @{b})) (i32.const 0))"#,
    );
    let origin = echo();
    let site =
        setup().plugin("a", &own, "").plugin("b", &wasm, "").file("www/file/a", b"a file").run(
            &format!(
                r#"route "/file/*" {{ files "www"; use "a"; use "b"; }}
            route "/a/*" {{ proxy "{0}"; use "a"; }}
            route "/*" {{ proxy "{0}"; use "b"; use "a"; }}"#,
                origin.url()
            ),
        );
    let mut client = site.connect();
    for (target, expected) in [("/file/a", "a,b"), ("/a/x", "a"), ("/x", "b,a")] {
        for method in ["GET", "GET", "GET", "HEAD", "GET"] {
            let got = client.ask(method, target, &[]).unwrap();
            let by = got.headers.iter().filter(|(name, _)| name == "x-by");
            let by: Vec<_> = by.map(|(_, value)| value.as_str()).collect();
            assert_eq!((got.status, by.join(",").as_str()), (200, expected), "{method} {target}");
        }
    }
}

/// By a field: what a plugin makes of the method and of the host.
fn becomes() -> [(&'static str, String); 2] {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/head}) (then (return @edits{METHOD HEAD})))
          (if (call $target (local.get 0) @{/get}) (then (return @edits{METHOD GET})))
          (if (call $target (local.get 0) @{/ownhead})
            (then (return @edits{METHOD HEAD;ANSWER 200;BODY own})))
          (if (call $target (local.get 0) @{/host})
            (then (return @edits{AUTHORITY unknown.example:81})))
          (if (call $target (local.get 0) @{/away})
            (then (return @edits{AUTHORITY unknown.example;ROUTE})))
          (i64.const 0))"#);
    let wasm = proxy_wasm(
        r#"
        (func $set (param $name i32) (param $name_len i32) (param $value i32) (param $len i32)
          (drop (call $proxy_replace_header_map_value (i32.const 0) (local.get $name)
                      (local.get $name_len) (local.get $value) (local.get $len))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $path @{/head}) (then (call $set @{:method} @{HEAD})))
          (if (call $path @{/get}) (then (call $set @{:method} @{GET})))
          (if (call $path @{/ownhead}) (then (call $set @{:method} @{HEAD})
            (call $answer (i32.const 200) @{own}) (return (i32.const 1))))
          (if (call $path @{/host}) (then (call $set @{:authority} @{unknown.example:81})))
          (if (call $path @{/away}) (then (call $set @{:authority} @{unknown.example})
            (drop (call $proxy_set_property @{weir.reroute} @{1}))))
          (i32.const 0))"#,
    );
    [("own", own), ("proxy-wasm", wasm)]
}

#[test]
fn another_method_is_the_origins_and_the_framing_the_clients() {
    for (name, module) in becomes() {
        let origin = Origin::start(|request| {
            let line = request.line();
            let age = if line.contains("stored") { "max-age=600" } else { "no-store" };
            let body = if line.starts_with("HEAD ") { "" } else { "content" };
            let head = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: {age}\r\nETag: \"v1\"\r\n\
                 Content-Length: 7\r\n\r\n{body}"
            );
            vec![Step::Send(head.into_bytes())]
        });
        let site = setup().plugin("p", &module, "").run(&format!(
            r#"route "/head/off" {{ proxy "{0}"; cache "off"; use "p"; }}
            route "/get/off" {{ proxy "{0}"; cache "off"; use "p"; }}
            route "/head/fixed" {{ respond "content"; use "p"; }}
            route "/get/fixed" {{ respond "content"; use "p"; }}
            route "/plain/*" {{ proxy "{0}"; }}
            route "/*" {{ proxy "{0}"; use "p"; }}"#,
            origin.url()
        ));
        let mut client = site.connect();
        // A HEAD has no content, so neither has its answer.
        for target in ["/head/off", "/head/a", "/head/stored", "/head/stored", "/head/fixed"] {
            let got = client.ask("GET", target, &[]).unwrap();
            assert_eq!((got.status, text(&got)), (200, ""), "{name} {target}");
            assert_eq!(got.header("etag"), None, "{name} {target}: of something else");
        }
        assert!(origin.take().iter().all(|request| request.line().starts_with("HEAD ")), "{name}");
        // The client of a HEAD must get none; what was fetched for it is stored.
        for target in ["/get/off", "/get/a", "/get/stored", "/get/stored", "/get/fixed"] {
            let got = client.ask("HEAD", target, &[]).unwrap();
            assert_eq!((got.status, text(&got)), (200, ""), "{name} {target}");
            assert_eq!(got.header("content-length"), Some("7"), "{name} {target}");
        }
        let asked = origin.take();
        assert!(asked.iter().all(|request| request.line().starts_with("GET ")), "{name}");
        assert_eq!(asked.len(), 3, "{name}: one of them is a hit, another fixed");
        // What a plugin answers is for the client, too.
        let got = client.ask("GET", "/ownhead", &[]).unwrap();
        assert_eq!((got.status, text(&got)), (200, "own"), "{name}");
        assert_eq!(text(&client.ask("GET", "/plain/", &[]).unwrap()), "content", "{name}");
    }
}

#[test]
fn a_request_stays_on_its_route_whatever_host_a_plugin_gives_it() {
    for (name, module) in becomes() {
        let origin = Origin::start(|request| ok(&request.values("host").join(",")));
        let site = setup()
            .name("site.example")
            .plugin("p", &module, "")
            .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
        let got = site.get("/host", &[]);
        assert_eq!((got.status, text(&got)), (200, "unknown.example:81"), "{name}");
        // Looked for anew, it is nobody's.
        assert_eq!(site.get("/away", &[]).status, 421, "{name}");
        assert_eq!(text(&site.get("/else", &[])), "site.example", "{name}");
    }
}

#[test]
fn two_plugins_act_in_the_order_in_which_they_are_used() {
    // Requests and responses both pass the plugins in order.
    let adds = |name: &str| {
        own(&format!(
            r#"(func (export "weir_on_request") (param i32) (result i64) @edits{{ADD x-by={name}}})
            (func (export "weir_on_response") (param i32) (result i64) @edits{{ADD x-by={name}}})"#
        ))
    };
    let third = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_add_header_map_value (i32.const 0) @{x-by} @{c}))
          (i32.const 0))"#,
    );
    let origin = Origin::start(|request| ok(&request.values("x-by").join(",")));
    let url = origin.url();
    let site = setup()
        .plugin("a", &adds("a"), "")
        .plugin("b", &adds("b"), "")
        .plugin("c", &third, "")
        .run(&format!(
            r#"route "/ab" {{ proxy "{url}"; use "a"; use "b"; use "c"; }}
            route "/*" {{ proxy "{url}"; use "c"; use "b"; use "a"; }}"#
        ));
    let by = |response: &crate::common::client::Response| {
        let values = response.headers.iter().filter(|(name, _)| name == "x-by");
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",")
    };
    let ab = site.get("/ab", &[]);
    assert_eq!((text(&ab), &*by(&ab)), ("a,b,c", "a,b"));
    let ba = site.get("/ba", &[]);
    assert_eq!((text(&ba), &*by(&ba)), ("c,b,a", "b,a"));
}

#[test]
fn framing_is_not_the_plugins_business() {
    // What would split or smuggle messages is refused to the plugin, or does not get out.
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          @edits{SET content-length=1})
        (func (export "weir_on_response") (param i32) (result i64)
          @edits{SET transfer-encoding=chunked})"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_replace_header_map_value (i32.const 0) @{content-length} @{1}))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{transfer-encoding} @{chunked}))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{connection} @{x-mark}))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{x-mark} @{proxy-wasm}))
          (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_replace_header_map_value (i32.const 2) @{content-length} @{1}))
          (drop (call $proxy_add_header_map_value (i32.const 2) @{transfer-encoding} @{chunked}))
          (i32.const 0))"#,
    );
    for (module, is_refused) in [(own, true), (wasm, false)] {
        let origin = Origin::start(|_| ok("the body"));
        let site = setup()
            .plugin("odd", &module, "")
            .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "odd"; }}"#, origin.url()));
        let mut client = site.connect();
        for _ in 0..2 {
            let got = post(&mut client, "/", b"content");
            assert_eq!((got.status, text(&got)), (200, "the body"));
        }
        let asked = origin.take();
        assert_eq!(asked.len(), 2);
        assert!(asked.iter().all(|request| request.body == b"content"));
        assert!(asked.iter().all(|request| request.values("host").len() == 1));
        let marks = asked.iter().filter(|request| find(&request.head, b"x-mark").is_some()).count();
        assert_eq!(marks, if is_refused { 0 } else { 2 });
        assert_eq!(origin.take_oddities(), [""; 0]);
    }
}
