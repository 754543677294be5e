//! A guest as WAT: it exports every host function that a test names, notes each callback with its
//! parameters, and returns what the test has put into its memory.

use std::fmt::Write as _;

/// Where the guest below has its things. Callbacks write what they were given to `NOTES`, return
/// what is in `RESULTS`; what a test passes to host functions lies from `INPUT` on.
pub(crate) const RESULTS: usize = 1024;
pub(crate) const OUT: u32 = 512;
pub(super) const CURSOR: usize = 2044;
pub(super) const NOTES: usize = 2048;
pub(super) const INPUT: usize = 16 << 10;
/// Bytes of the guest's memory, two pages, of which the allocator gives the second.
pub(crate) const MEMORY: u32 = 128 << 10;

/// proxy-wasm's callbacks: parameters, and whether there is a result.
pub(crate) const CALLBACKS: [(&str, usize, bool); 24] = [
    ("proxy_on_context_create", 2, false),
    ("proxy_on_vm_start", 2, true),
    ("proxy_on_configure", 2, true),
    ("proxy_on_request_headers", 3, true),
    ("proxy_on_request_body", 3, true),
    ("proxy_on_request_trailers", 2, true),
    ("proxy_on_response_headers", 3, true),
    ("proxy_on_response_body", 3, true),
    ("proxy_on_response_trailers", 2, true),
    ("proxy_on_done", 1, true),
    ("proxy_on_log", 1, false),
    ("proxy_on_delete", 1, false),
    ("proxy_on_tick", 1, false),
    ("proxy_on_queue_ready", 2, false),
    ("proxy_on_http_call_response", 5, false),
    ("proxy_on_grpc_receive_initial_metadata", 3, false),
    ("proxy_on_grpc_receive", 3, false),
    ("proxy_on_grpc_receive_trailing_metadata", 3, false),
    ("proxy_on_grpc_close", 3, false),
    ("proxy_on_new_connection", 1, true),
    ("proxy_on_downstream_data", 3, true),
    ("proxy_on_downstream_connection_close", 2, false),
    ("proxy_on_upstream_data", 3, true),
    ("proxy_on_upstream_connection_close", 2, false),
];

/// An allocator that gives the second page, once round.
pub(crate) const ALLOCATOR: &str = "(global $next (mut i32) (i32.const 65536))
  (func (export \"proxy_on_memory_allocate\") (param i32) (result i32)
    (if (i32.gt_u (i32.add (global.get $next) (local.get 0)) (i32.const 131072))
      (then (global.set $next (i32.const 65536))))
    (global.get $next)
    (global.set $next (i32.add (global.get $next) (local.get 0))))";

/// A guest that exports the given host functions, by `(module, name, parameters)` with `i` for a
/// 32-bit and `I` for a 64-bit number, and has every callback.
pub(crate) fn guest(functions: &[(&str, &str, &str)], more: &str) -> String {
    let mut wat = "(module\n".to_owned();
    let types = |params: &str| {
        params.chars().map(|c| if c == 'I' { " i64" } else { " i32" }).collect::<String>()
    };
    for (module, name, params) in functions {
        let params = types(params);
        writeln!(
            wat,
            "(import \"{module}\" \"{name}\" (func ${name} (param{params}) (result i32)))"
        )
        .unwrap();
    }
    for (_, name, params) in functions {
        let gets = (0..params.len()).map(|n| format!("(local.get {n}) ")).collect::<String>();
        let params = types(params);
        writeln!(
            wat,
            "(func (export \"{name}\") (param{params}) (result i32) (call ${name} {gets}))"
        )
        .unwrap();
    }
    writeln!(wat, "(func (export \"proxy_abi_version_0_2_1\"))").unwrap();
    writeln!(wat, "(memory (export \"memory\") 2 2)").unwrap();
    writeln!(wat, "(data (i32.const {CURSOR}) \"\\00\\08\\00\\00\")").unwrap();
    writeln!(
        wat,
        "(func $note (param i32) (i32.store (i32.load (i32.const {CURSOR})) (local.get 0))
           (i32.store (i32.const {CURSOR})
             (i32.add (i32.load (i32.const {CURSOR})) (i32.const 4))))"
    )
    .unwrap();
    for (index, (name, params, has_result)) in CALLBACKS.iter().enumerate() {
        if more.contains(&format!("\"{name}\"")) {
            continue;
        }
        let result = if *has_result { "(result i32)" } else { "" };
        write!(wat, "(func (export \"{name}\") (param{}) {result}", " i32".repeat(*params))
            .unwrap();
        write!(wat, " (call $note (i32.const {index}))").unwrap();
        for param in 0..*params {
            write!(wat, " (call $note (local.get {param}))").unwrap();
        }
        if *has_result {
            write!(wat, " (i32.load (i32.const {}))", RESULTS + 4 * index).unwrap();
        }
        writeln!(wat, ")").unwrap();
    }
    // Starting must succeed, and ending.
    for (index, (name, ..)) in CALLBACKS.iter().enumerate() {
        if matches!(*name, "proxy_on_vm_start" | "proxy_on_configure" | "proxy_on_done") {
            writeln!(wat, "(data (i32.const {}) \"\\01\")", RESULTS + 4 * index).unwrap();
        }
    }
    wat + more + ")"
}
