//! What plugins make of a request, as rules of overload control see it.

use crate::site::setup;
use crate::wasm::{own, proxy_wasm};

const GUARD: &str = r#"guard {
    class "gold" priority=1
    rule "bots" { verdict "bot"; refuse; always; answer 429; }
    rule "friends" { verdict "friend"; class "gold"; rate 1 burst=2 per="hour"; always; }
}"#;

/// By path: `/bot`, `/friend`, and anything else.
fn own_plugin() -> String {
    own(r#"(func (export "weir_on_request") (param i32) (result i64)
      (if (call $target (local.get 0) @{/own/bot}) (then (return @edits{VERDICT bot})))
      (if (call $target (local.get 0) @{/own/friend}) (then (return @edits{VERDICT friend})))
      (i64.const 0))"#)
}

fn proxy_wasm_plugin() -> String {
    proxy_wasm(
        r#"(data (i32.const 4096) "weir\00guard\00verdict")
        (data (i32.const 4128) "bot")
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_set_property
            (i32.const 4096) (i32.const 18) (i32.const 4128) (i32.const 3)))
          (i32.const 0))"#,
    )
}

#[test]
fn rules_go_by_what_plugins_say() {
    let site = setup()
        .plugin("own", &own_plugin(), "")
        .plugin("wasm", &proxy_wasm_plugin(), "")
        .block(GUARD)
        .run(
            r#"route "/own/*" { respond "answer"; use "own"; }
            route "/wasm/*" { respond "answer"; use "wasm"; }
            route "/*" { respond "answer"; }"#,
        );
    for (target, expected) in [
        ("/own/bot", 429),
        ("/own/other", 200),
        ("/own/friend", 200),
        ("/own/friend", 200),
        ("/own/friend", 503),
        ("/wasm/x", 429),
        ("/bot", 200),
    ] {
        assert_eq!(site.get(target, &[]).status, expected, "{target}");
    }
    let refused = site.get("/own/bot", &[]);
    let why = refused.header("proxy-status");
    assert_eq!(why, Some("weir; error=http_request_denied; details=\"rule\""));
}
