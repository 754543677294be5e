//! Modules as text with little to write: what every plugin needs is added, functions are imported
//! as they are used, and strings, maps and edit lists stand where they are needed:
//!
//! - `@{text}` becomes its address and length;
//! - `@map{name=value;…}` becomes the address and length of proxy-wasm's form of a map;
//! - `@list{SET name=value;BODY text;…}` becomes the address and length of an edit list;
//! - `@edits{…}` becomes what a hook of Weir's own interface returns for such a list.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of this")]

use std::fmt::Write as _;

/// Where strings begin; below is room for results and lists made at run time.
const DATA: usize = 4096;

/// Where they end, and buffers begin.
const BUFFERS: usize = 64 << 10;

/// Functions that can be imported: module, name, parameters and result, with `i` and `I` for 32 and
/// 64 bits.
const IMPORTS: &[(&str, &str, &str, &str)] = &[
    ("weir", "log", "iii", "i"),
    ("weir", "now", "", "I"),
    ("weir", "tick", "i", "i"),
    ("weir", "property", "ii", "I"),
    ("weir", "call", "iii", "i"),
    ("weir", "shared_get", "iii", "I"),
    ("weir", "shared_set", "iiiii", "i"),
    ("weir", "metric", "iii", "i"),
    ("weir", "metric_add", "iI", "i"),
    ("weir", "cache_query", "iii", "i"),
    ("weir", "cache_inject", "iiiiI", "i"),
    ("weir", "cache_expire", "ii", "i"),
    ("weir", "cache_purge", "ii", "i"),
    ("env", "proxy_log", "iii", "i"),
    ("env", "proxy_set_tick_period_milliseconds", "i", "i"),
    ("env", "proxy_set_effective_context", "i", "i"),
    ("env", "proxy_get_property", "iiii", "i"),
    ("env", "proxy_set_property", "iiii", "i"),
    ("env", "proxy_get_buffer_bytes", "iiiii", "i"),
    ("env", "proxy_set_buffer_bytes", "iiiii", "i"),
    ("env", "proxy_get_header_map_value", "iiiii", "i"),
    ("env", "proxy_get_header_map_pairs", "iii", "i"),
    ("env", "proxy_set_header_map_pairs", "iii", "i"),
    ("env", "proxy_add_header_map_value", "iiiii", "i"),
    ("env", "proxy_replace_header_map_value", "iiiii", "i"),
    ("env", "proxy_remove_header_map_value", "iii", "i"),
    ("env", "proxy_send_local_response", "iiiiiiii", "i"),
    ("env", "proxy_continue_stream", "i", "i"),
    ("env", "proxy_close_stream", "i", "i"),
    ("env", "proxy_http_call", "iiiiiiiiii", "i"),
    ("env", "proxy_get_shared_data", "iiiii", "i"),
    ("env", "proxy_set_shared_data", "iiiii", "i"),
    ("env", "proxy_call_foreign_function", "iiiiii", "i"),
];

/// A plugin on Weir's own interface. Beside the functions that are given it has
/// - `$flags frame`, `$target frame prefix length`: whether the target begins so,
/// - `$upper address length`: makes letters large,
/// - `$piece frame`: the edit list that makes the shown piece what is in the body buffer now,
/// - `$method frame first-letter`.
pub fn own(code: &str) -> String {
    module(
        code,
        r#"(func (export "weir_abi_1"))
        (func (export "weir_buffer") (param $kind i32) (param $size i32) (result i32)
          (if (i32.eqz (local.get $kind)) (then (return (i32.const 65536))))
          (if (i32.eq (local.get $kind) (i32.const 2)) (then (return (i32.const 196608))))
          (call $room (i32.add (i32.const 262144) (local.get $size)))
          (if (result i32) (i32.lt_u (i32.mul (memory.size) (i32.const 65536))
                                     (i32.add (i32.const 262144) (local.get $size)))
            (then (i32.const 0)) (else (i32.const 262144))))
        (func $flags (param $frame i32) (result i32) (i32.load offset=4 (local.get $frame)))
        (func $method (param $frame i32) (param $letter i32) (result i32)
          (i32.eq (i32.load8_u (i32.load offset=24 (local.get $frame))) (local.get $letter)))
        (func $target (param $frame i32) (param $prefix i32) (param $length i32) (result i32)
          (if (i32.lt_u (i32.load offset=44 (local.get $frame)) (local.get $length))
            (then (return (i32.const 0))))
          (call $same (i32.load offset=40 (local.get $frame)) (local.get $prefix)
                      (local.get $length)))
        (func $piece (param $frame i32) (result i64)
          (i32.store8 (i32.const 1024) (i32.const 9))
          (i32.store8 (i32.const 1025) (i32.const 1))
          (i32.store16 (i32.const 1026) (i32.const 0))
          (i32.store (i32.const 1028) (i32.const 8))
          (i64.store (i32.const 1032) (i64.load offset=96 (local.get $frame)))
          (i64.const 0x40000000010))"#,
    )
}

/// A plugin on proxy-wasm. Beside the functions that are given it has
/// - `$path prefix length`: whether `:path` begins so,
/// - `$upper_body buffer`: makes the letters of a body large,
/// - `$answer status body length`: a local response.
pub fn proxy_wasm(code: &str) -> String {
    let mut more = String::from(
        r#"(func (export "proxy_abi_version_0_2_1"))
        (global $next (mut i32) (i32.const 65536))
        (func (export "proxy_on_memory_allocate") (param $size i32) (result i32)
          (local $at i32)
          (if (i32.lt_u (local.get $size) (i32.const 65536)) (then
            (if (i32.gt_u (i32.add (global.get $next) (local.get $size)) (i32.const 262144))
              (then (global.set $next (i32.const 65536))))
            (local.set $at (global.get $next))
            (global.set $next (i32.and (i32.add (i32.add (global.get $next) (local.get $size))
                                                (i32.const 7)) (i32.const -8)))
            (return (local.get $at))))
          (call $room (i32.add (i32.const 262144) (local.get $size)))
          (i32.const 262144))"#,
    );
    if !code.contains("proxy_on_context_create") {
        more.push_str("(func (export \"proxy_on_context_create\") (param i32 i32))");
    }
    let calls = |name: &str| code.contains(&format!("call ${name}"));
    let mut imported = String::new();
    if calls("path") {
        imported.push_str("proxy_get_header_map_value ");
        more.push_str(
            r#"(func $path (param $prefix i32) (param $length i32) (result i32)
              (drop (call $proxy_get_header_map_value (i32.const 0) @{:path}
                          (i32.const 512) (i32.const 516)))
              (if (i32.lt_u (i32.load (i32.const 516)) (local.get $length))
                (then (return (i32.const 0))))
              (call $same (i32.load (i32.const 512)) (local.get $prefix) (local.get $length)))"#,
        );
    }
    if calls("upper_body") {
        more.push_str(
            r#"(func $upper_body (param $buffer i32)
              (i32.store (i32.const 516) (i32.const 0))
              (drop (call $proxy_get_buffer_bytes (local.get $buffer) (i32.const 0)
                          (i32.const 0x7fffffff) (i32.const 512) (i32.const 516)))
              (call $upper (i32.load (i32.const 512)) (i32.load (i32.const 516)))
              (drop (call $proxy_set_buffer_bytes (local.get $buffer) (i32.const 0)
                          (i32.load (i32.const 516))
                          (i32.load (i32.const 512)) (i32.load (i32.const 516)))))"#,
        );
    }
    if calls("answer") {
        more.push_str(
            r#"(func $answer (param $status i32) (param $body i32) (param $length i32)
              (drop (call $proxy_send_local_response (local.get $status) (i32.const 0) (i32.const 0)
                (local.get $body) (local.get $length) (i32.const 0) (i32.const 0)
                (i32.const -1))))"#,
        );
    }
    module(code, &more)
}

/// Any module: memory, and functions that need nothing.
pub fn module(code: &str, more: &str) -> String {
    let all = format!("{code}\n{more}");
    let mut data = Vec::new();
    let all = expand(&all, &mut data);
    let mut text = String::from("(module\n");
    for (module, name, parameters, result) in IMPORTS {
        if calls(&all, name) {
            let (parameters, result) = (types(parameters), types(result));
            writeln!(
                text,
                "(import \"{module}\" \"{name}\" (func ${name} (param{parameters}) (result{result})))"
            )
            .unwrap();
        }
    }
    text.push_str(
        r#"(memory (export "memory") 8)
        (func $room (param $until i32)
          (if (i32.gt_u (local.get $until) (i32.mul (memory.size) (i32.const 65536))) (then
            (drop (memory.grow (i32.add (i32.const 1) (i32.div_u
              (i32.sub (local.get $until) (i32.mul (memory.size) (i32.const 65536)))
              (i32.const 65536))))))))
        (func $same (param $one i32) (param $other i32) (param $length i32) (result i32)
          (block $end (loop $next
            (br_if $end (i32.eqz (local.get $length)))
            (if (i32.ne (i32.load8_u (local.get $one)) (i32.load8_u (local.get $other)))
              (then (return (i32.const 0))))
            (local.set $one (i32.add (local.get $one) (i32.const 1)))
            (local.set $other (i32.add (local.get $other) (i32.const 1)))
            (local.set $length (i32.sub (local.get $length) (i32.const 1)))
            (br $next)))
          (i32.const 1))
        (func $upper (param $at i32) (param $length i32) (local $c i32)
          (block $end (loop $next
            (br_if $end (i32.eqz (local.get $length)))
            (local.set $c (i32.load8_u (local.get $at)))
            (if (i32.and (i32.ge_u (local.get $c) (i32.const 97))
                         (i32.le_u (local.get $c) (i32.const 122)))
              (then (i32.store8 (local.get $at) (i32.sub (local.get $c) (i32.const 32)))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $length (i32.sub (local.get $length) (i32.const 1)))
            (br $next))))
        "#,
    );
    assert!(DATA + data.len() <= BUFFERS, "{} bytes of strings", data.len());
    writeln!(text, "(data (i32.const {DATA}) \"{}\")", escaped(&data)).unwrap();
    text + &all + ")"
}

fn calls(text: &str, name: &str) -> bool {
    let call = format!("${name}");
    text.match_indices(&call).any(|(at, _)| {
        let next = text[at + call.len()..].chars().next();
        next.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_')
    })
}

fn types(letters: &str) -> String {
    letters.chars().map(|letter| if letter == 'I' { " i64" } else { " i32" }).collect()
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

/// Replaces what begins with `@`.
fn expand(text: &str, data: &mut Vec<u8>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        expanded.push_str(&rest[..at]);
        let open = at + rest[at..].find('{').unwrap();
        let close = open + rest[open..].find('}').unwrap();
        let (kind, content) = (&rest[at + 1..open], &rest[open + 1..close]);
        let bytes = match kind {
            "" => content.as_bytes().to_vec(),
            "map" => map(content),
            "list" | "edits" => edits(content),
            other => panic!("@{other}"),
        };
        while !data.len().is_multiple_of(8) {
            data.push(0);
        }
        let (ptr, len) = (DATA + data.len(), bytes.len());
        data.extend(bytes);
        match kind {
            "edits" => write!(expanded, "(i64.const {})", (ptr as u64) << 32 | len as u64).unwrap(),
            _ => write!(expanded, "(i32.const {ptr}) (i32.const {len})").unwrap(),
        }
        rest = &rest[close + 1..];
    }
    expanded + rest
}

fn split(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or_else(|| panic!("no = in {text:?}"))
}

fn map(text: &str) -> Vec<u8> {
    let pairs: Vec<_> = text.split(';').filter(|pair| !pair.is_empty()).map(split).collect();
    let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let mut bytes = number(pairs.len()).to_vec();
    for (name, value) in &pairs {
        bytes.extend([number(name.len()), number(value.len())].concat());
    }
    for (name, value) in &pairs {
        bytes.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    bytes
}

const OPS: [&str; 24] = [
    "SET",
    "ADD",
    "REMOVE",
    "METHOD",
    "TARGET",
    "AUTHORITY",
    "STATUS",
    "ANSWER",
    "BODY",
    "WANT",
    "NOTE",
    "HOLD",
    "KEY",
    "CACHE",
    "TTL",
    "UPSTREAM",
    "TRAILER",
    "CLOSE",
    "ROUTE",
    "NO_STORE",
    "RESUME",
    "KEEP",
    "PIECE",
    "VERDICT",
];

/// The bytes of an edit list.
fn edits(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for edit in text.split(';').filter(|edit| !edit.is_empty()) {
        let (op, value) = edit.split_once(' ').unwrap_or((edit, ""));
        let number = OPS.iter().position(|name| *name == op).unwrap_or_else(|| panic!("{op}"));
        let (name, value) = match op {
            "SET" | "ADD" | "TRAILER" => split(value),
            "REMOVE" => (value, ""),
            _ => ("", value),
        };
        let value = match op {
            "STATUS" | "ANSWER" | "WANT" | "HOLD" | "CACHE" | "KEEP" => {
                value.parse::<u32>().unwrap().to_le_bytes().to_vec()
            }
            "NOTE" | "TTL" => value.parse::<u64>().unwrap().to_le_bytes().to_vec(),
            _ => value.as_bytes().to_vec(),
        };
        bytes.extend([u8::try_from(number).unwrap() + 1, 0]);
        bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        bytes.extend([name.as_bytes(), &value].concat());
    }
    bytes
}
