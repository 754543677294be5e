//! Every host function and every callback of the specification, with a real guest.

mod callbacks;
mod calls;
mod effects;
mod grpc;
mod local;
mod pointers;
mod properties;
mod sdks;
mod sharing;
mod start;

use crate::test_support::Bench;

/// Every host function of 0.2.1 and its parameters.
const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("env", "proxy_log", "iii"),
    ("env", "proxy_get_log_level", "i"),
    ("env", "proxy_get_current_time_nanoseconds", "i"),
    ("env", "proxy_set_tick_period_milliseconds", "i"),
    ("env", "proxy_set_effective_context", "i"),
    ("env", "proxy_done", ""),
    ("env", "proxy_get_status", "iii"),
    ("env", "proxy_get_property", "iiii"),
    ("env", "proxy_set_property", "iiii"),
    ("env", "proxy_call_foreign_function", "iiiiii"),
    ("env", "proxy_continue_stream", "i"),
    ("env", "proxy_close_stream", "i"),
    ("env", "proxy_get_buffer_bytes", "iiiii"),
    ("env", "proxy_set_buffer_bytes", "iiiii"),
    ("env", "proxy_get_buffer_status", "iii"),
    ("env", "proxy_get_header_map_size", "ii"),
    ("env", "proxy_get_header_map_pairs", "iii"),
    ("env", "proxy_set_header_map_pairs", "iii"),
    ("env", "proxy_get_header_map_value", "iiiii"),
    ("env", "proxy_add_header_map_value", "iiiii"),
    ("env", "proxy_replace_header_map_value", "iiiii"),
    ("env", "proxy_remove_header_map_value", "iii"),
    ("env", "proxy_send_local_response", "iiiiiiii"),
    ("env", "proxy_http_call", "iiiiiiiiii"),
    ("env", "proxy_grpc_call", "iiiiiiiiiiii"),
    ("env", "proxy_grpc_stream", "iiiiiiiii"),
    ("env", "proxy_grpc_send", "iiii"),
    ("env", "proxy_grpc_cancel", "i"),
    ("env", "proxy_grpc_close", "i"),
    ("env", "proxy_get_shared_data", "iiiii"),
    ("env", "proxy_set_shared_data", "iiiii"),
    ("env", "proxy_register_shared_queue", "iii"),
    ("env", "proxy_resolve_shared_queue", "iiiii"),
    ("env", "proxy_enqueue_shared_queue", "iii"),
    ("env", "proxy_dequeue_shared_queue", "iii"),
    ("env", "proxy_define_metric", "iiii"),
    ("env", "proxy_record_metric", "iI"),
    ("env", "proxy_increment_metric", "iI"),
    ("env", "proxy_get_metric", "ii"),
];

/// Statuses by number.
const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;
const PARSE_FAILURE: u32 = 4;
const INVALID_MEMORY_ACCESS: u32 = 6;
const EMPTY: u32 = 7;
const CAS_MISMATCH: u32 = 8;
const INTERNAL_FAILURE: u32 = 10;

fn bench() -> Bench {
    Bench::new(FUNCTIONS, crate::test_support::ALLOCATOR)
}

/// A map as SDKs write it.
fn map(pairs: &[(&str, &str)]) -> Vec<u8> {
    super::maps::written(|| pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
}
