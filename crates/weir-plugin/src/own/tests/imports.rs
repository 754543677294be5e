//! Every host function: what it does, and what it says of arguments that are wrong.

use std::time::UNIX_EPOCH;

use super::*;
use crate::own::imports::NAMES;

const IMPORTS: &str = r#"
    (import "weir" "log" (func $log (param i32 i32 i32) (result i32)))
    (import "weir" "now" (func $now (result i64)))
    (import "weir" "random" (func $random (param i32 i32) (result i32)))
    (import "weir" "tick" (func $tick (param i32) (result i32)))
    (import "weir" "property" (func $property (param i32 i32) (result i64)))
    (import "weir" "property_set" (func $property_set (param i32 i32 i32 i32) (result i32)))
    (import "weir" "call" (func $call (param i32 i32 i32) (result i32)))
    (import "weir" "shared_get" (func $shared_get (param i32 i32 i32) (result i64)))
    (import "weir" "shared_set" (func $shared_set (param i32 i32 i32 i32 i32) (result i32)))
    (import "weir" "queue_open" (func $queue_open (param i32 i32) (result i32)))
    (import "weir" "queue_push" (func $queue_push (param i32 i32 i32) (result i32)))
    (import "weir" "queue_pop" (func $queue_pop (param i32) (result i64)))
    (import "weir" "metric" (func $metric (param i32 i32 i32) (result i32)))
    (import "weir" "metric_add" (func $metric_add (param i32 i64) (result i32)))
    (import "weir" "metric_set" (func $metric_set (param i32 i64) (result i32)))
    (import "weir" "metric_get" (func $metric_get (param i32 i32) (result i32)))
    (import "weir" "cache_query" (func $cache_query (param i32 i32 i32) (result i32)))
    (import "weir" "cache_fields" (func $cache_fields (param i32 i32) (result i64)))
    (import "weir" "cache_read" (func $cache_read (param i32 i32 i64 i32) (result i64)))
    (import "weir" "cache_inject" (func $cache_inject (param i32 i32 i32 i32 i64) (result i32)))
    (import "weir" "cache_expire" (func $cache_expire (param i32 i32) (result i32)))
    (import "weir" "cache_purge" (func $cache_purge (param i32 i32) (result i32)))"#;

/// Strings that the calls refer to, one every 64 bytes from here on.
const STRINGS_AT: usize = 4096;
const STRINGS: &[&str] = &[
    "key",              // 4096
    "value",            // 4160
    "common/key",       // 4224
    "other/key",        // 4288
    "http://a/stored",  // 4352
    "http://a/unknown", // 4416
    "http://b/",        // 4480
    "request.method",   // 4544
    "node.id",          // 4608
    "no.such",          // 4672
    "my.note",          // 4736
    "common/queue",     // 4800
];

/// Not in the memory of 8 pages.
const OUTSIDE: &str = "(i32.const 0x7fff8) (i32.const 9)";

/// Where results lie.
const OUT: usize = 512;

fn puppet(calls: &[&str], more: &str, policy: PluginPolicy) -> Puppet {
    let mut functions = IMPORTS.to_owned();
    let _ = write!(functions, r#"(func (export "weir_on_request") (param i32) (result i64)"#);
    for (index, call) in calls.iter().enumerate() {
        let is_long =
            ["$now", "$property ", "$shared_get", "$queue_pop", "$cache_fields", "$cache_read"]
                .iter()
                .any(|name| {
                    call.starts_with(&format!("call {}", name.trim_end())) && !call.contains("_set")
                });
        let value =
            if is_long { format!("({call})") } else { format!("(i64.extend_i32_s ({call}))") };
        let _ = write!(functions, "(i64.store (i32.const {}) {value})", OUT + 8 * index);
    }
    functions += "(i64.const 0))";
    for (index, string) in STRINGS.iter().enumerate() {
        let _ = write!(functions, r#"(data (i32.const {}) "{string}")"#, STRINGS_AT + 64 * index);
    }
    functions += more;
    Puppet::start(module(&functions), policy, "").unwrap()
}

/// Runs calls and returns their results.
fn run(calls: &[&str], more: &str, policy: PluginPolicy) -> (Vec<i64>, Puppet) {
    let mut puppet = puppet(calls, more, policy);
    puppet.hook(Phase::RequestHead).unwrap();
    let results = (0..calls.len()).map(|i| puppet.word(OUT + 8 * i).cast_signed()).collect();
    (results, puppet)
}

/// Arguments that name one of the strings.
fn string(index: usize) -> String {
    format!("(i32.const {}) (i32.const {})", STRINGS_AT + 64 * index, STRINGS[index].len())
}

fn check(cases: &[(&str, i64)], policy: PluginPolicy) -> Puppet {
    let calls: Vec<&str> = cases.iter().map(|(call, _)| *call).collect();
    let (results, puppet) = run(&calls, "", policy);
    for ((call, expected), result) in cases.iter().zip(results) {
        assert_eq!(result, *expected, "{call}");
    }
    puppet
}

/// Where the last returned bytes lie, as a result says it.
fn given(puppet: &Puppet, result: i64) -> Vec<u8> {
    assert_eq!(result >> 32, RESULTS_AT as i64);
    puppet.memory(RESULTS_AT, (result & 0xffff_ffff) as usize).to_vec()
}

#[test]
fn every_function_is_imported_here() {
    for name in NAMES {
        assert!(IMPORTS.contains(&format!(r#""weir" "{name}""#)), "{name}");
    }
    let unknown = refused(&module(r#"(import "weir" "format_disk" (func))"#));
    assert!(unknown.to_string().contains("weir.format_disk"), "{unknown}");
}

#[test]
fn no_function_trusts_an_address() {
    let key = string(0);
    let cases = [
        format!("call $log (i32.const 2) {OUTSIDE}"),
        format!("call $random {OUTSIDE}"),
        format!("call $property {OUTSIDE}"),
        format!("call $property_set {OUTSIDE} {key}"),
        format!("call $property_set {key} {OUTSIDE}"),
        format!("call $call {OUTSIDE} (i32.const 0)"),
        format!("call $shared_get {OUTSIDE} (i32.const 0)"),
        format!("call $shared_get {key} (i32.const 0x7fffd)"),
        format!("call $shared_set {OUTSIDE} {key} (i32.const 0)"),
        format!("call $shared_set {key} {OUTSIDE} (i32.const 0)"),
        format!("call $queue_open {OUTSIDE}"),
        format!("call $queue_push (i32.const 1) {OUTSIDE}"),
        format!("call $metric (i32.const 0) {OUTSIDE}"),
        "call $metric_get (i32.const 1) (i32.const 0x7fff9)".to_owned(),
        format!("call $cache_query {OUTSIDE} (i32.const 0)"),
        format!("call $cache_query {} (i32.const -1)", string(4)),
        format!("call $cache_fields {OUTSIDE}"),
        format!("call $cache_read {OUTSIDE} (i64.const 0) (i32.const 9)"),
        format!("call $cache_inject {OUTSIDE} {key} (i64.const 0)"),
        format!("call $cache_inject {} {OUTSIDE} (i64.const 0)", string(4)),
        format!("call $cache_expire {OUTSIDE}"),
        format!("call $cache_purge {OUTSIDE}"),
    ];
    // The longest there is, from everywhere.
    let wrapped =
        cases.iter().map(|case| case.replace("0x7fff8", "-1").replace("const 9)", "const -1)"));
    let all: Vec<String> = cases.iter().cloned().chain(wrapped).collect();
    let all: Vec<(&str, i64)> = all.iter().map(|call| (&call[..], -4)).collect();
    // $random has a limit of its own, and $cache_read reads no address from a size.
    let all: Vec<_> =
        all.into_iter().filter(|(call, _)| !call.contains("$random (i32.const -1)")).collect();
    check(&all, lenient());
}

#[test]
fn clocks_randomness_and_the_log() {
    let (results, puppet) = run(
        &[
            "call $now",
            "call $random (i32.const 8192) (i32.const 16)",
            "call $random (i32.const 8192) (i32.const 0x100001)",
            "call $log (i32.const 2) (i32.const 4096) (i32.const 3)",
            "call $log (i32.const 6) (i32.const 4096) (i32.const 3)",
            "call $tick (i32.const 10)",
            "call $tick (i32.const 0)",
        ],
        "",
        lenient(),
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    assert!((now - results[0]).abs() < 10_000_000_000);
    assert_eq!(results[1..], [0, -5, 0, -2, 0, 0]);
    assert_ne!(puppet.memory(8192, 16), [0; 16]);
    let mut silent = lenient();
    silent.allow.log = false;
    check(&[("call $log (i32.const 2) (i32.const 4096) (i32.const 3)", -3)], silent);
}

#[test]
fn properties_are_read_and_set() {
    let (results, puppet) = run(&[&format!("call $property {}", string(7))], "", lenient());
    assert_eq!(given(&puppet, results[0]), b"GET");
    let (results, puppet) = run(&[&format!("call $property {}", string(8))], "", lenient());
    assert_eq!(given(&puppet, results[0]), b"weir-1");
    let set = format!("call $property_set {} {}", string(10), string(1));
    let (results, puppet) = run(&[&set, &format!("call $property {}", string(10))], "", lenient());
    assert_eq!((results[0], given(&puppet, results[1])), (0, b"value".to_vec()));
    check(
        &[
            (&format!("call $property {}", string(9)), -1),
            ("call $property (i32.const 4096) (i32.const 0)", -2),
            ("call $property (i32.const 4096) (i32.const 2000)", -2),
            (&format!("call $property_set {} (i32.const 0) (i32.const 0x20000)", string(10)), -5),
        ],
        lenient(),
    );
}

#[test]
fn shared_data_is_compared_and_swapped() {
    let (key, value) = (string(0), string(1));
    let get = format!("call $shared_get {key} (i32.const 8192)");
    let set = |cas: u32| format!("call $shared_set {key} {value} (i32.const {cas})");
    let nothing = check(&[(&get, -1)], lenient());
    assert_eq!(nothing.half(8192) as u32, u32::MAX, "there is none");
    let puppet = check(
        &[
            (&set(u32::MAX), 0),
            (&set(u32::MAX), -7),
            (&set(0), 0),
            (&set(99), -7),
            (
                &format!(
                    "call $shared_set (i32.const 16384) (i32.const 2000) {value} (i32.const 0)"
                ),
                -5,
            ),
            (&get, (RESULTS_AT as i64) << 32 | 5),
        ],
        lenient(),
    );
    assert_eq!(puppet.memory(RESULTS_AT, 5), b"value");
    let cas = puppet.half(8192) as u32;
    let (space, key) = ("puppet", "key");
    let environment = &puppet.store.data().environment;
    assert_eq!(environment.commons.data(space, key), Some((Bytes::from("value"), cas)));
    let puppet = check(
        &[
            (&format!("call $shared_set {} {value} (i32.const 0)", string(2)), 0),
            (&format!("call $shared_set {} {value} (i32.const 0)", string(3)), 0),
        ],
        lenient(),
    );
    let commons = &puppet.store.data().environment.commons;
    assert!(commons.data("common", "key").is_some());
    // A space that it may not use is nobody's: the name is one of its own.
    assert!(commons.data("other", "key").is_none());
    assert!(commons.data("puppet", "other/key").is_some());
}

#[test]
fn queues_are_opened_filled_and_emptied() {
    let (name, item) = (string(0), string(1));
    let puppet = check(
        &[
            (&format!("call $queue_open {}", string(11)), -1),
            (&format!("call $queue_open {name}"), 1),
            ("call $queue_open (i32.const 0) (i32.const 0)", -2),
            ("call $queue_pop (i32.const 1)", -8),
            ("call $queue_pop (i32.const 2)", -1),
            (&format!("call $queue_push (i32.const 2) {item}"), -1),
            (&format!("call $queue_push (i32.const 1) {item}"), 0),
            ("call $queue_pop (i32.const 1)", (RESULTS_AT as i64) << 32 | 5),
        ],
        lenient(),
    );
    assert_eq!(puppet.memory(RESULTS_AT, 5), b"value");
}

#[test]
fn metrics_count() {
    let name = string(0);
    let puppet = check(
        &[
            (&format!("call $metric (i32.const 1) {name}"), 1),
            (&format!("call $metric (i32.const 3) {name}"), -2),
            ("call $metric_set (i32.const 1) (i64.const 7)", 0),
            ("call $metric_add (i32.const 1) (i64.const -2)", 0),
            ("call $metric_get (i32.const 1) (i32.const 8192)", 0),
            ("call $metric_add (i32.const 9) (i64.const 1)", -1),
            ("call $metric_set (i32.const 9) (i64.const 1)", -1),
            ("call $metric_get (i32.const 9) (i32.const 8192)", -1),
            (&format!("call $metric (i32.const 0) {}", string(1)), 2),
            ("call $metric_add (i32.const 2) (i64.const -1)", -2),
        ],
        lenient(),
    );
    assert_eq!(puppet.word(8192), 5);
}

#[test]
fn stored_content_is_managed() {
    let (url, unknown, nobody) = (string(4), string(5), string(6));
    let query = format!("call $cache_query {url} (i32.const 8192)");
    let puppet = check(
        &[
            (&query, 0),
            (&format!("call $cache_query {unknown} (i32.const 8192)"), -1),
            (&format!("call $cache_query {nobody} (i32.const 8192)"), -2),
            (&format!("call $cache_expire {url}"), 1),
            (&format!("call $cache_purge {url}"), 1),
            (&format!("call $cache_purge {unknown}"), -1),
            (&format!("call $cache_read {url} (i64.const 99) (i32.const 9)"), 0),
            (
                &format!("call $cache_read {url} (i64.const 4) (i32.const 6)"),
                (RESULTS_AT as i64) << 32 | 6,
            ),
        ],
        lenient(),
    );
    let info: Vec<i64> = (0..5).map(|i| puppet.word(8192 + 8 * i).cast_signed()).collect();
    assert_eq!(info, [200, -5, 1000, 3, 14]);
    assert_eq!(puppet.memory(RESULTS_AT, 6), b"ed con");
    let purged = puppet.stage.purged.lock().clone();
    assert_eq!(purged.iter().map(|(_, soft)| *soft).collect::<Vec<_>>(), [true, false, false]);
    let (results, puppet) = run(&[&format!("call $cache_fields {url}")], "", lenient());
    assert_eq!(given(&puppet, results[0]), b"\x04\0\0\0\x03\0\0\0etag\"1\"");

    let mut policy = lenient();
    policy.allow.cache = false;
    check(
        &[
            (&query, -3),
            (&format!("call $cache_fields {url}"), -3),
            (&format!("call $cache_read {url} (i64.const 0) (i32.const 9)"), -3),
            (&format!("call $cache_inject {url} {url} (i64.const 0)"), -3),
            (&format!("call $cache_expire {url}"), -3),
            (&format!("call $cache_purge {url}"), -3),
        ],
        policy,
    );
}

/// A list of edits in the guest's memory, and the arguments that name it.
fn list_at(at: usize, list: &List) -> (String, String) {
    let data: String = list.0.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let arguments = format!("(i32.const {at}) (i32.const {})", list.0.len());
    (arguments, format!(r#"(data (i32.const {at}) "{data}")"#))
}

#[test]
fn responses_are_injected() {
    let list = List::new()
        .number(Op::Status, 203)
        .line(Op::Set, "content-type", "text/plain")
        .text(Op::Body, "bo")
        .text(Op::Body, "dy");
    let (good, data) = list_at(8192, &list);
    let (bad, more) = list_at(12288, &List::new().text(Op::Target, "/"));
    let url = string(4);
    let (results, puppet) = run(
        &[
            &format!("call $cache_inject {url} {good} (i64.const 1500)"),
            &format!("call $cache_inject {url} {bad} (i64.const 1500)"),
            &format!("call $cache_inject {url} {good} (i64.const -1)"),
        ],
        &(data + &more),
        lenient(),
    );
    assert_eq!(results, [0, -2, -2]);
    let injected = puppet.stage.injected.lock();
    let (url, response) = &injected[0];
    assert_eq!((&url[..], response.status.as_u16()), ("http://a/stored", 203));
    assert_eq!((&response.body[..], response.ttl), (&b"body"[..], Duration::from_millis(1500)));
    assert_eq!(response.headers, headers(&[("content-type", "text/plain")]));
}

#[tokio::test]
async fn upstreams_are_called() {
    let list = List::new()
        .text(Op::Upstream, "auth")
        .text(Op::Method, "POST")
        .text(Op::Target, "/check?a=1")
        .line(Op::Add, "x-token", "t")
        .text(Op::Body, "question");
    let (good, mut data) = list_at(8192, &list);
    let mut case = |at: usize, list: List| {
        let (arguments, more) = list_at(at, &list);
        data += &more;
        format!("call $call {arguments} (i32.const 5)")
    };
    let calls = [
        format!("call $call {good} (i32.const 0)"),
        format!("call $call {good} (i32.const 100)"),
        case(12288, List::new().text(Op::Target, "/")),
        case(12800, List::new().text(Op::Upstream, "nobody")),
        case(13312, List::new().text(Op::Upstream, "auth").bare(Op::Close)),
        case(13824, List::new().text(Op::Upstream, "auth").line(Op::Set, "te", "x")),
    ];
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let (results, puppet) = run(&calls, &data, lenient());
    assert_eq!(results, [1, 2, -2, -1, -2, -2]);
    tokio::task::yield_now().await;
    let made = puppet.stage.calls.lock();
    assert_eq!(made.len(), 2);
    let (upstream, request) = &made[0];
    assert_eq!((&upstream[..], request.method()), ("auth", &Method::POST));
    assert_eq!(request.uri(), "/check?a=1");
    assert_eq!(request.headers(), &headers(&[("x-token", "t"), ("host", "auth")]));
    drop(made);
    let (results, _) = run(&calls[..1], &data, PluginPolicy::default());
    assert_eq!(results, [-3]);
}

#[test]
fn calls_in_flight_are_bounded() {
    let (arguments, data) = list_at(8192, &List::new().text(Op::Upstream, "auth"));
    let calls: Vec<String> =
        (0..300).map(|_| format!("call $call {arguments} (i32.const 0)")).collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let mut puppet = puppet(&calls, &data, lenient());
    puppet.hook(Phase::RequestHead).unwrap();
    let results: Vec<i64> = (0..300).map(|i| puppet.word(OUT + 8 * i).cast_signed()).collect();
    assert_eq!((results[255], results[256], results[299]), (256, -5, -5));
}

#[test]
fn results_need_a_buffer() {
    // 64 KiB is all that the puppet gives.
    let value = "(i32.const 0) (i32.const 0x10001)";
    check(
        &[
            (&format!("call $shared_set {} {value} (i32.const 0)", string(0)), 0),
            (&format!("call $shared_get {} (i32.const 0)", string(0)), -5),
        ],
        lenient(),
    );
}
