//! For how long what plugins have seen is stored, if it is: their word at the fill, and when it is
//! stored or confirmed.

use std::time::Duration;

use crate::cache::{FRESH, counting, deciding, is_hit};
use crate::common::origin::answer;
use crate::site::{setup, text};
use crate::wasm::proxy_wasm;

#[test]
fn at_the_fill_a_proxy_wasm_plugin_may_forbid_to_store() {
    let module = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_set_property @{weir.cache.no_store} @{true}))
          (i32.const 0))"#,
    );
    let origin = counting(|n, _| answer("200 OK", FRESH, format!("body {n}").as_bytes()));
    let site = setup()
        .plugin("p", &module, "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p" at="fill"; }}"#, origin.url()));
    for round in 0..3 {
        let got = site.get("/a", &[]);
        assert_eq!((text(&got), is_hit(&got)), (format!("body {round}").as_str(), false));
    }
}

#[test]
fn at_the_fill_a_proxy_wasm_plugin_says_for_how_long() {
    let module = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_set_property @{weir.cache.ttl_ms} @{500}))
          (i32.const 0))"#,
    );
    // With a longer lifetime, with none, and where it must not be stored.
    for (fields, is_stored) in
        [(FRESH, true), ("X-None: 1\r\n", true), ("Cache-Control: no-store\r\n", false)]
    {
        let origin = counting(move |n, _| answer("200 OK", fields, n.to_string().as_bytes()));
        let site = setup()
            .plugin("p", &module, "")
            .run(&format!(r#"route "/*" {{ proxy "{}"; use "p" at="fill"; }}"#, origin.url()));
        let mut client = site.connect();
        client.ask("GET", "/a", &[]).unwrap();
        assert_eq!(is_hit(&client.ask("GET", "/a", &[]).unwrap()), is_stored, "{fields}");
        std::thread::sleep(Duration::from_millis(600));
        assert!(!is_hit(&client.ask("GET", "/a", &[]).unwrap()), "{fields}");
    }
}

#[test]
fn what_the_origin_confirms_is_stored_as_the_plugin_says() {
    let (site, origin, _other) = deciding();
    let status = |target: &str, fields: &[(&str, &str)]| {
        let got = site.get(target, fields);
        (got.header("cache-status").unwrap_or_default().to_owned(), got)
    };
    // The lifetime that the plugin gave it is no other afterwards.
    status("/ttl", &[]);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(400));
        let (said, _) = status("/ttl", &[]);
        assert!(said.contains("fwd-status=304; stored"), "{said}");
        assert!(is_hit(&status("/ttl", &[]).1));
    }
    assert_eq!(origin.take().len(), 3);
    // Nor are the fields.
    status("/head", &[]);
    for (fields, expected) in
        [(&[("Cache-Control", "no-cache")][..], "fwd-status=304; stored"), (&[], "; hit")]
    {
        let (said, got) = status("/head", fields);
        assert!(said.contains(expected), "{said}");
        assert_eq!(got.header("x-stored"), Some("yes"), "{said}");
        assert_eq!(got.header("x-dropped"), None, "{said}");
    }
}
