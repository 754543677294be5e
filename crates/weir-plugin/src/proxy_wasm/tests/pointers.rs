//! Whatever a guest passes for an address, the worst that happens is a status.

use super::*;
use crate::test_support::{ALLOCATOR, Arg, Arg::*, MEMORY};

/// Arguments with which each function that has a pointer returns OK.
fn rows() -> Vec<(&'static str, Vec<Arg<'static>>)> {
    let request =
        map(&[(":method", "GET"), (":path", "/"), (":authority", "a"), ("x", "1")]).leak();
    let fields = map(&[("x", "1")]).leak();
    vec![
        ("proxy_log", vec![Num(2), Bytes(b"text")]),
        ("proxy_get_log_level", vec![Out(0)]),
        ("proxy_get_current_time_nanoseconds", vec![Out(0)]),
        ("proxy_get_status", vec![Out(2), Out(0), Out(1)]),
        ("proxy_get_property", vec![Bytes(b"request\0path"), Out(0), Out(1)]),
        ("proxy_set_property", vec![Bytes(b"mine"), Bytes(b"value")]),
        (
            "proxy_call_foreign_function",
            vec![Bytes(b"weir.cache_purge"), Bytes(b"http://a/"), Out(0), Out(1)],
        ),
        ("proxy_get_buffer_bytes", vec![Num(0), Num(0), Num(100), Out(0), Out(1)]),
        ("proxy_set_buffer_bytes", vec![Num(0), Num(0), Num(0), Bytes(b"more")]),
        ("proxy_get_buffer_status", vec![Num(0), Out(0), Out(1)]),
        ("proxy_get_header_map_size", vec![Num(0), Out(0)]),
        ("proxy_get_header_map_pairs", vec![Num(0), Out(0), Out(1)]),
        ("proxy_set_header_map_pairs", vec![Num(0), Bytes(fields)]),
        ("proxy_get_header_map_value", vec![Num(0), Bytes(b":path"), Out(0), Out(1)]),
        ("proxy_add_header_map_value", vec![Num(0), Bytes(b"x"), Bytes(b"2")]),
        ("proxy_replace_header_map_value", vec![Num(0), Bytes(b"x"), Bytes(b"3")]),
        ("proxy_remove_header_map_value", vec![Num(0), Bytes(b"x")]),
        (
            "proxy_send_local_response",
            vec![Num(403), Bytes(b"why"), Bytes(b"body"), Bytes(fields), Num(u64::from(u32::MAX))],
        ),
        (
            "proxy_http_call",
            vec![Bytes(b"up"), Bytes(request), Bytes(b"body"), Bytes(fields), Num(99), Out(0)],
        ),
        (
            "proxy_grpc_call",
            vec![
                Bytes(b"up"),
                Bytes(b"S"),
                Bytes(b"M"),
                Bytes(fields),
                Bytes(b"m"),
                Num(99),
                Out(0),
            ],
        ),
        ("proxy_grpc_stream", vec![Bytes(b"up"), Bytes(b"S"), Bytes(b"M"), Bytes(fields), Out(0)]),
        ("proxy_grpc_send", vec![Num(STREAM), Bytes(b"message"), Num(0)]),
        ("proxy_set_shared_data", vec![Bytes(b"key"), Bytes(b"value"), Num(0)]),
        ("proxy_get_shared_data", vec![Bytes(b"key"), Out(0), Out(1), Out(2)]),
        ("proxy_register_shared_queue", vec![Bytes(b"queue"), Out(0)]),
        ("proxy_resolve_shared_queue", vec![Bytes(b""), Bytes(b"queue"), Out(0)]),
        ("proxy_enqueue_shared_queue", vec![Num(1), Bytes(b"item")]),
        ("proxy_dequeue_shared_queue", vec![Num(1), Out(0), Out(1)]),
        ("proxy_define_metric", vec![Num(0), Bytes(b"metric"), Out(0)]),
        ("proxy_get_metric", vec![Num(1), Out(0)]),
    ]
}

/// The first gRPC stream.
const STREAM: u64 = (1 << 30) + 2;

/// Addresses and sizes of which the guest's memory has not all bytes.
const OUTSIDE: [(u32, u32); 5] =
    [(MEMORY, 1), (MEMORY - 3, 4), (u32::MAX, 1), (0, u32::MAX), (u32::MAX, u32::MAX)];

#[test]
fn pointers_outside_of_memory_are_refused() {
    let mut bench = bench();
    let id = bench.open();
    bench.exchange(id, |exchange| {
        exchange.request_body.push("body".into());
        exchange.phase = crate::exchange::Phase::RequestBody;
    });
    for (name, args) in rows() {
        let good: Vec<Vec<u64>> = args
            .iter()
            .map(|arg| match *arg {
                Num(number) => vec![number],
                Out(nth) => vec![u64::from(crate::test_support::OUT + 4 * nth)],
                Bytes(bytes) => vec![u64::from(bench.put(bytes)), bytes.len() as u64],
            })
            .collect();
        for (index, arg) in args.iter().enumerate() {
            for (data, size) in OUTSIDE {
                let mut bad = good.clone();
                bad[index] = match arg {
                    Num(_) => continue,
                    Out(_) if size == u32::MAX && data == 0 => continue,
                    Out(_) => vec![u64::from(data)],
                    Bytes(_) => vec![u64::from(data), u64::from(size)],
                };
                let status = bench.raw(name, &bad.concat()).unwrap();
                assert_eq!(status, INVALID_MEMORY_ACCESS, "{name} {bad:x?}");
            }
        }
        let status = bench.raw(name, &good.concat()).unwrap();
        assert_eq!(status, OK, "{name} {good:?}");
    }
    // Whatever has a pointer was there.
    let rows: Vec<&str> = rows().iter().map(|(name, _)| *name).collect();
    let without = [
        "proxy_set_tick_period_milliseconds",
        "proxy_set_effective_context",
        "proxy_done",
        "proxy_continue_stream",
        "proxy_close_stream",
        "proxy_grpc_cancel",
        "proxy_grpc_close",
        "proxy_record_metric",
        "proxy_increment_metric",
    ];
    for (_, name, _) in FUNCTIONS {
        assert!(rows.contains(name) ^ without.contains(name), "{name}");
    }
}

/// Functions that return data.
fn gives() -> impl Iterator<Item = (&'static str, Vec<Arg<'static>>)> {
    rows().into_iter().filter(|(_, args)| {
        args.iter().any(|arg| matches!(arg, Out(0))) && args.iter().any(|arg| matches!(arg, Out(1)))
    })
}

#[test]
fn allocators_that_give_nothing_are_told_so() {
    let function = |name: &str, body: &str| {
        format!("(func (export \"{name}\") (param i32) (result i32) {body})")
    };
    let allocators = [
        String::new(),
        function("malloc", "(i32.const 0)"),
        function("proxy_on_memory_allocate", "(i32.const 0)"),
        function("proxy_on_memory_allocate", "(i32.const -4)"),
        function("proxy_on_memory_allocate", "(i32.const 131071)"),
    ];
    for allocator in allocators {
        let mut bench = Bench::new(FUNCTIONS, &allocator);
        let id = bench.open();
        bench.exchange(id, |exchange| exchange.request_body.push("body".into()));
        bench.store(|_, store| store.data_mut().proxy_wasm.status = (3, "why".to_owned()));
        for (name, args) in rows().into_iter().filter(|(name, _)| {
            name.starts_with("proxy_register")
                || name.starts_with("proxy_e")
                || name.contains("set_shared")
        }) {
            assert_eq!(bench.call(name, &args), OK, "{name}");
        }
        for (name, args) in gives() {
            let expect = match name {
                // It gives no bytes.
                "proxy_get_buffer_status" => OK,
                _ => INVALID_MEMORY_ACCESS,
            };
            assert_eq!(bench.call(name, &args), expect, "{name} with {allocator:?}");
        }
    }
}

#[test]
fn malloc_is_an_allocator_and_an_older_name() {
    let mut bench = Bench::new(FUNCTIONS, &ALLOCATOR.replace("proxy_on_memory_allocate", "malloc"));
    bench.open();
    assert_eq!(bench.call("proxy_get_property", &[Bytes(b"request\0path"), Out(0), Out(1)]), OK);
    assert_eq!(bench.given(), b"/cart?id=7");
}

#[test]
fn an_allocator_that_traps_ends_the_call() {
    let traps = "(func (export \"malloc\") (param i32) (result i32) unreachable)";
    let mut bench = Bench::new(FUNCTIONS, traps);
    bench.open();
    let path = bench.put(b"request\0path");
    let args = [u64::from(path), 12, 512, 516];
    let failure = bench.raw("proxy_get_property", &args).unwrap_err();
    assert_eq!(failure.kind, crate::failure::FailureKind::Trap);
}

#[test]
fn malformed_maps_are_bad_arguments() {
    let mut bench = bench();
    bench.open();
    let good = map(&[(":method", "GET"), (":path", "/"), (":authority", "a")]);
    let malformed: [&[u8]; 5] = [
        b"\x01",
        b"\x01\0\0\0",
        b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
        b"\x01\0\0\0\xff\xff\xff\xff\x01\0\0\0a\0b\0",
        b"\x01\0\0\0\x01\0\0\0\x01\0\0\0aXbX",
    ];
    for bad in malformed {
        for map in [0, 1, 2, 3] {
            let status = bench.call("proxy_set_header_map_pairs", &[Num(map), Bytes(bad)]);
            assert_eq!(status, BAD_ARGUMENT, "{bad:?}");
        }
        let none = Num(u64::from(u32::MAX));
        let local = [Num(200), Bytes(b""), Bytes(b""), Bytes(bad), none];
        assert_eq!(bench.call("proxy_send_local_response", &local), BAD_ARGUMENT, "{bad:?}");
        for (headers, trailers) in [(bad, &b""[..]), (&good, bad)] {
            let call = [Bytes(b"up"), Bytes(headers), Bytes(b""), Bytes(trailers), Num(1), Out(0)];
            assert_eq!(bench.call("proxy_http_call", &call), BAD_ARGUMENT, "{bad:?}");
        }
        let stream = [Bytes(b"up"), Bytes(b"S"), Bytes(b"M"), Bytes(bad), Out(0)];
        assert_eq!(bench.call("proxy_grpc_stream", &stream), PARSE_FAILURE, "{bad:?}");
    }
}
