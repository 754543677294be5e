//! How plugins start, what makes a module no plugin, and the differences of older versions.

use super::*;
use crate::exchange::{Action, Phase};
use crate::failure::FailureKind;
use crate::module::ModuleError;
use crate::test_support::{ALLOCATOR, Arg::*, Options, compile};

/// A module that writes the letters of what is called, in order, from address 0 on.
fn writes(functions: &[(&str, &str, u8)]) -> String {
    let mut wat = "(module (func (export \"proxy_abi_version_0_2_1\"))
      (memory (export \"memory\") 1) (global $at (mut i32) (i32.const 0))
      (func $say (param i32) (i32.store8 (global.get $at) (local.get 0))
        (global.set $at (i32.add (global.get $at) (i32.const 1))))"
        .to_owned();
    for (name, ty, letter) in functions {
        let result = if ty.contains("result") { "(i32.const 1)" } else { "" };
        wat +=
            &format!("(func (export \"{name}\") {ty} (call $say (i32.const {letter})) {result})");
    }
    wat + ")"
}

#[test]
fn plugins_start_in_the_order_of_the_specification() {
    let two = "(param i32 i32)";
    let both = "(param i32 i32) (result i32)";
    let context = ("proxy_on_context_create", two, b'c');
    let start = ("proxy_on_vm_start", both, b's');
    let configure = ("proxy_on_configure", both, b'f');
    for (functions, expect) in [
        (
            &[("_initialize", "", b'i'), ("main", both, b'm'), context, start, configure][..],
            "imcsf",
        ),
        (&[("_initialize", "", b'i'), ("_start", "", b'_'), configure], "if"),
        (&[("_start", "", b'_'), ("main", both, b'm'), context], "_c"),
        (&[], ""),
    ] {
        let bench = Bench::of(writes(functions), Options::default()).unwrap();
        let said = bench.memory(|memory| memory[..expect.len() + 1].to_vec());
        assert_eq!(said, [expect.as_bytes(), &[0]].concat());
    }
}

#[test]
fn a_plugin_that_refuses_does_not_start() {
    for callback in ["proxy_on_vm_start", "proxy_on_configure"] {
        let refuses = format!(
            "{ALLOCATOR} (func (export \"{callback}\") (param i32 i32) (result i32) (i32.const 0))"
        );
        let started = Bench::with(FUNCTIONS, &refuses, Options::default());
        let failure = started.err().unwrap();
        assert_eq!(failure.kind, FailureKind::Start);
        assert!(failure.message.contains(callback));
    }
    for start in ["_initialize", "_start"] {
        let panics = format!("{ALLOCATOR} (func (export \"{start}\") unreachable)");
        let failure = Bench::with(FUNCTIONS, &panics, Options::default()).err().unwrap();
        assert_eq!(failure.kind, FailureKind::Trap, "{start}");
    }
}

#[test]
fn configurations_are_buffers_of_their_callbacks() {
    let looks = |callback: &str, buffer: u32| {
        format!(
            "(func (export \"{callback}\") (param i32 i32) (result i32)
               (i32.eqz (call $proxy_get_buffer_bytes (i32.const {buffer}) (i32.const 0)
                 (local.get 1) (i32.const {}) (i32.const {}))))",
            512 + 8 * (buffer - 6),
            516 + 8 * (buffer - 6),
        )
    };
    let more =
        [ALLOCATOR.to_owned(), looks("proxy_on_vm_start", 6), looks("proxy_on_configure", 7)];
    let bench = Bench::new(FUNCTIONS, &more.concat());
    assert_eq!(bench.given(), b"vm");
    let (data, size) = (bench.number(520) as usize, bench.number(524) as usize);
    bench.memory(|memory| assert_eq!(&memory[data..data + size], b"{\"depth\": 8}"));
}

fn module(more: &str) -> String {
    format!("(module {more} (func (export \"proxy_abi_version_0_2_1\")))")
}

#[test]
fn what_is_missing_or_mistyped_is_said_at_once() {
    let memory = "(memory (export \"memory\") 1)";
    let import = |name: &str, ty: &str| format!("(import {name} (func {ty}))");
    for (more, expect) in [
        (String::new(), "does not export memory"),
        ("(global (export \"memory\") i32 (i32.const 0))".to_owned(), "does not export memory"),
        (
            import("\"env\" \"proxy_log\"", "(param i32)") + memory,
            "incompatible import type for `env::proxy_log`",
        ),
        (
            [import("\"env\" \"nothing\"", ""), import("\"a\" \"b\"", ""), memory.to_owned()]
                .concat(),
            "what Weir does not have: env.nothing, a.b",
        ),
        // An older version's.
        (
            import("\"env\" \"proxy_continue_request\"", "(result i32)") + memory,
            "env.proxy_continue_request",
        ),
        (
            format!("{memory} (func (export \"proxy_on_tick\"))"),
            "proxy_on_tick has another type than its interface says: expected (i32) -> ()",
        ),
        (
            format!(
                "{memory} (func (export \"proxy_on_request_headers\") (param i32 i32) (result i32) unreachable)"
            ),
            "proxy_on_request_headers has another type",
        ),
        (
            format!("{memory} (global (export \"malloc\") i32 (i32.const 0))"),
            "malloc has another type than its interface says: expected (i32) -> (i32), found no function",
        ),
    ] {
        let error: ModuleError = compile(&module(&more)).err().unwrap();
        assert!(error.to_string().contains(expect), "{error}\nexpected: {expect}");
    }
}

#[test]
fn hooks_are_what_is_exported() {
    let hooks = compile(&writes(&[
        ("proxy_on_request_headers", "(param i32 i32 i32) (result i32)", b'r'),
        ("proxy_on_log", "(param i32)", b'l'),
    ]));
    let hooks = hooks.unwrap().hooks();
    for (phase, expect) in [
        (Phase::RequestHead, true),
        (Phase::Log, true),
        (Phase::RequestBody, false),
        (Phase::ResponseHead, false),
    ] {
        assert_eq!(hooks.has(phase), expect, "{phase:?}");
    }
}

/// 0.1.0: heads come without a word on what follows, and requests are continued by name.
fn old_guest(results: &str) -> String {
    format!(
        "(module
          (import \"env\" \"proxy_get_configuration\" (func $config (param i32 i32) (result i32)))
          (import \"env\" \"proxy_continue_request\" (func $request {results}))
          (import \"env\" \"proxy_continue_response\" (func $response {results}))
          (import \"env\" \"proxy_clear_route_cache\" (func $clear {results}))
          (import \"env\" \"proxy_get_header_map_value\"
            (func $value (param i32 i32 i32 i32 i32) (result i32)))
          (func (export \"proxy_abi_version_0_1_0\"))
          (memory (export \"memory\") 2) {ALLOCATOR}
          (func (export \"proxy_on_vm_start\") (param i32 i32) (result i32)
            (i32.eqz (call $config (i32.const 512) (i32.const 516))))
          (func (export \"proxy_on_configure\") (param i32 i32) (result i32)
            (i32.eqz (call $config (i32.const 520) (i32.const 524))))
          (func (export \"proxy_on_request_headers\") (param i32 i32) (result i32)
            (i32.store (i32.const 800) (local.get 1))
            (i32.store (i32.const 528) (i32.const 7))
            (i32.store (i32.const 804) (call $value (i32.const 0) (i32.const 0) (i32.const 3)
              (i32.const 528) (i32.const 532)))
            (call $clear) {drop} (i32.const 1))
          (func (export \"proxy_on_response_headers\") (param i32 i32) (result i32)
            (call $response) {drop} (i32.const 1))
          (func (export \"proxy_on_tick\") (param i32) (call $request) {drop})
          (data (i32.const 0) \"abc\"))",
        drop = if results.is_empty() { "" } else { "drop" },
    )
}

#[test]
fn modules_of_0_1_0_run() {
    // The specification says one, SDKs the other.
    for results in ["", "(result i32)"] {
        let bench = Bench::of(old_guest(results), Options::default()).unwrap();
        assert_eq!(bench.given(), b"vm");
        assert_eq!(bench.number(524), 12);
        let id = bench.open();
        let hook = |phase| bench.instance(|instance| instance.hook(id, phase, true).unwrap());
        assert_eq!(hook(Phase::RequestHead), Action::Pause);
        assert_eq!(bench.number(800), 7);
        // A missing field is an empty one.
        assert_eq!([804, 528, 532].map(|at| bench.number(at)), [OK, 0, 0]);
        bench.exchange(id, |exchange| assert!(exchange.wishes.reroute && exchange.is_paused));
        bench.store(|_, store| store.data_mut().proxy_wasm.current = id);
        assert_eq!(hook(Phase::ResponseHead), Action::Continue);
    }
}

#[test]
fn modules_of_0_2_0_run() {
    let wat = crate::test_support::guest(FUNCTIONS, ALLOCATOR)
        .replace("proxy_abi_version_0_2_1", "proxy_abi_version_0_2_0");
    let bench = Bench::of(&wat, Options::default()).unwrap();
    let id = bench.open();
    bench.instance(|instance| instance.hook(id, Phase::RequestHead, true).unwrap());
    assert_eq!(bench.notes().last(), Some(&("proxy_on_request_headers", vec![id, 7, 1])));
}

#[test]
fn older_runtimes_find_what_they_import() {
    let mut bench = Bench::new(&[("env", "pthread_equal", "ii")], "");
    for (one, other, expect) in [(3, 3, 1), (3, 4, 0)] {
        assert_eq!(bench.call("pthread_equal", &[Num(one), Num(other)]), expect);
    }
}

#[test]
fn abort_is_a_failure_with_a_message() {
    let wat = "(module (import \"env\" \"abort\" (func $abort (param i32 i32 i32 i32)))
      (import \"env\" \"seed\" (func (result f64)))
      (import \"env\" \"emscripten_notify_memory_growth\" (func (param i32)))
      (func (export \"proxy_abi_version_0_2_1\")) (memory (export \"memory\") 1)
      (data (i32.const 96) \"\\04\\00\\00\\00n\\00o\\00\")
      (func (export \"_start\")
        (call $abort (i32.const 100) (i32.const 0) (i32.const 7) (i32.const 8))))";
    let failure = Bench::of(wat, Options::default()).err().unwrap();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Trap, "abort: no at :7:8"));
}
