//! What each host function does, and its statuses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::exchange::Phase;
use crate::shared::{Commons, MetricReading};
use crate::test_support::{ALLOCATOR, Arg::*, OUT, Options, fields, logged};

#[test]
fn log_says_what_it_is_told() {
    let mut bench = bench();
    let lines = logged(|| {
        for level in 0..=6 {
            let expect = if level < 6 { OK } else { BAD_ARGUMENT };
            assert_eq!(bench.call("proxy_log", &[Num(level), Bytes(b"hello\n")]), expect);
        }
        assert_eq!(bench.call("proxy_get_log_level", &[Out(0)]), OK);
        assert_eq!(bench.number(OUT), 0, "everything is logged");
    });
    let levels = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "ERROR"];
    assert_eq!(lines, levels.map(|level| format!("{level} hello")));
}

#[test]
fn log_is_limited_and_can_be_forbidden() {
    for (allowed, per_second, expect) in [(true, 2, 2), (false, 100, 0)] {
        let mut options = Options::default();
        options.policy.allow.log = allowed;
        options.policy.log_per_s = per_second;
        let mut bench = Bench::with(FUNCTIONS, ALLOCATOR, options).unwrap();
        let lines = logged(|| {
            for _ in 0..2 {
                assert_eq!(bench.call("proxy_log", &[Num(4), Bytes(b"hello")]), OK);
            }
        });
        assert!(lines.len() <= expect, "{lines:?}");
        assert_eq!(lines.is_empty(), !allowed);
    }
}

#[test]
fn time_is_the_clocks() {
    let mut bench = bench();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert_eq!(bench.call("proxy_get_current_time_nanoseconds", &[Out(0)]), OK);
    let time = u64::from(bench.number(OUT)) | u64::from(bench.number(OUT + 4)) << 32;
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!((before..=after).contains(&Duration::from_nanos(time)));
}

fn value(bench: &mut Bench, map: u64, name: &str) -> Result<String, u32> {
    let args = [Num(map), Bytes(name.as_bytes()), Out(0), Out(1)];
    match bench.call("proxy_get_header_map_value", &args) {
        OK => Ok(String::from_utf8(bench.given()).unwrap()),
        status => Err(status),
    }
}

#[test]
fn fields_are_read_by_name() {
    let mut bench = bench();
    let id = bench.open();
    bench.exchange(id, |exchange| {
        exchange.request_trailers = fields(&[("t", "1")]);
        exchange.response_trailers = fields(&[("t", "2")]);
    });
    for (map, name, expect) in [
        (0, ":method", Ok("GET")),
        (0, ":path", Ok("/cart?id=7")),
        (0, ":scheme", Ok("https")),
        (0, ":authority", Ok("shop.example")),
        (0, "Host", Ok("shop.example")),
        (0, "X-A", Ok("1")),
        (0, "missing", Err(NOT_FOUND)),
        (0, ":status", Err(NOT_FOUND)),
        (0, "no name", Err(NOT_FOUND)),
        (0, "", Err(NOT_FOUND)),
        (1, "t", Ok("1")),
        (2, ":status", Ok("200")),
        (2, "content-type", Ok("text/html")),
        (2, "host", Err(NOT_FOUND)),
        (3, "t", Ok("2")),
        (4, "t", Err(NOT_FOUND)),
        (7, "t", Err(NOT_FOUND)),
        (8, "t", Err(BAD_ARGUMENT)),
        (u64::from(u32::MAX), "t", Err(BAD_ARGUMENT)),
    ] {
        assert_eq!(value(&mut bench, map, name), expect.map(str::to_owned), "{map} {name}");
    }
    // Of the plugin's own context there are none.
    assert_eq!(bench.call("proxy_set_effective_context", &[Num(1)]), OK);
    assert_eq!(value(&mut bench, 0, ":path"), Err(NOT_FOUND));
}

#[test]
fn fields_are_read_at_once() {
    let mut bench = bench();
    bench.open();
    let request: [(&[u8], &[u8]); 7] = [
        (b":method", b"GET"),
        (b":path", b"/cart?id=7"),
        (b":scheme", b"https"),
        (b":authority", b"shop.example"),
        (b"accept", b"text/html"),
        (b"x-a", b"1"),
        (b"x-a", b"2"),
    ];
    let response: [(&[u8], &[u8]); 3] =
        [(b":status", b"200"), (b"content-type", b"text/html"), (b"x-b", b"3")];
    for (map, expect) in
        [(0, &request[..]), (1, &[]), (2, &response), (3, &[]), (4, &[]), (6, &[]), (7, &[])]
    {
        assert_eq!(bench.call("proxy_get_header_map_size", &[Num(map), Out(2)]), OK);
        assert_eq!(bench.call("proxy_get_header_map_pairs", &[Num(map), Out(0), Out(1)]), OK);
        let given = bench.given();
        assert_eq!(bench.number(OUT + 8) as usize, given.len());
        assert_eq!(super::super::maps::parse(&given).unwrap(), expect, "{map}");
    }
    for name in ["proxy_get_header_map_size", "proxy_get_header_map_pairs"] {
        let args = &[Num(8), Out(0), Out(1)][..name.len() - 23];
        assert_eq!(bench.call(name, args), BAD_ARGUMENT, "{name}");
    }
}

/// Changes a map; each row is a function, a name, a value, the status, and what the name has then.
#[test]
fn fields_are_changed() {
    let mut bench = bench();
    let id = bench.open();
    let (add, replace) = ("proxy_add_header_map_value", "proxy_replace_header_map_value");
    for (function, map, name, new, status, expect) in [
        (add, 0, "X-New", "1", OK, "1"),
        (replace, 0, "x-a", "9", OK, "9"),
        (replace, 0, ":path", "/b?c#d", OK, "/b?c"),
        (replace, 0, ":path", "b", BAD_ARGUMENT, "/b?c"),
        (replace, 0, ":path", "/a b", BAD_ARGUMENT, "/b?c"),
        (replace, 0, ":method", "PUT", OK, "PUT"),
        (replace, 0, ":method", "P T", BAD_ARGUMENT, "PUT"),
        (replace, 0, ":scheme", "http", OK, "http"),
        (replace, 0, ":scheme", "ftp", BAD_ARGUMENT, "http"),
        (replace, 0, ":authority", "a:1", OK, "a:1"),
        (replace, 0, "host", "b", OK, "b"),
        (replace, 0, ":authority", "x@y", BAD_ARGUMENT, "b"),
        (replace, 0, ":authority", "", BAD_ARGUMENT, "b"),
        (add, 0, "x-a", "a\r\nb: c", BAD_ARGUMENT, "9"),
        (add, 2, "x-a", "1", OK, "1"),
        (replace, 2, ":status", "404", OK, "404"),
        (replace, 2, ":status", "100", BAD_ARGUMENT, "404"),
        (replace, 2, ":status", "4040", BAD_ARGUMENT, "404"),
        (add, 1, "t", "1", OK, "1"),
        (add, 3, "t", "1", OK, "1"),
    ] {
        let args = [Num(map), Bytes(name.as_bytes()), Bytes(new.as_bytes())];
        assert_eq!(bench.call(function, &args), status, "{map} {name} {new}");
        assert_eq!(value(&mut bench, map, name).as_deref(), Ok(expect), "{map} {name}");
    }
    for (map, name) in [
        (0, "a b"),
        (0, ""),
        (0, ":foo"),
        (0, ":status"),
        (1, ":path"),
        (2, ":path"),
        (4, "x"),
        (8, "x"),
    ] {
        for function in [add, replace] {
            let args = [Num(map), Bytes(name.as_bytes()), Bytes(b"1")];
            assert_eq!(bench.call(function, &args), BAD_ARGUMENT, "{map} {name:?}");
        }
    }
    bench.exchange(id, |exchange| {
        let head = exchange.request.as_ref().unwrap().get();
        assert_eq!((head.method.as_str(), &*head.target, &*head.authority), ("PUT", "/b?c", "b"));
        assert_eq!(head.headers.get_all("x-a").iter().count(), 1);
        assert!(!head.secure);
        assert_eq!(exchange.response.as_ref().unwrap().get().status, 404);
        // Before the response is there, it cannot be changed.
        exchange.response = None;
    });
    assert_eq!(bench.call(add, &[Num(2), Bytes(b"x"), Bytes(b"1")]), BAD_ARGUMENT);
}

#[test]
fn fields_are_removed() {
    let mut bench = bench();
    let id = bench.open();
    for (map, name, status) in [
        (0, "X-A", OK),
        (0, "missing", OK),
        (0, "no name", OK),
        (0, ":path", BAD_ARGUMENT),
        (2, "x-b", OK),
        (2, ":status", BAD_ARGUMENT),
        (5, "x", BAD_ARGUMENT),
        (9, "x", BAD_ARGUMENT),
    ] {
        let args = [Num(map), Bytes(name.as_bytes())];
        assert_eq!(bench.call("proxy_remove_header_map_value", &args), status, "{map} {name}");
    }
    bench.exchange(id, |exchange| {
        assert_eq!(exchange.request.as_ref().unwrap().get().headers.len(), 1);
        assert_eq!(exchange.response.as_ref().unwrap().get().headers.len(), 1);
    });
}

#[test]
fn fields_are_replaced_at_once_or_not_at_all() {
    let mut bench = bench();
    let id = bench.open();
    let set = |bench: &mut Bench, at: u64, pairs: &[(&str, &str)]| {
        bench.call("proxy_set_header_map_pairs", &[Num(at), Bytes(&map(pairs))])
    };
    assert_eq!(set(&mut bench, 0, &[(":path", "/new"), ("a", "1"), ("A", "2")]), OK);
    assert_eq!(set(&mut bench, 0, &[("b", "1"), ("c", "\n")]), BAD_ARGUMENT);
    assert_eq!(set(&mut bench, 3, &[("t", "1")]), OK);
    assert_eq!(set(&mut bench, 6, &[("t", "1")]), BAD_ARGUMENT);
    assert_eq!(set(&mut bench, 8, &[("t", "1")]), BAD_ARGUMENT);
    bench.exchange(id, |exchange| {
        let head = exchange.request.as_ref().unwrap().get();
        assert_eq!((&*head.target, head.method.as_str()), ("/new", "GET"));
        assert_eq!(head.headers, fields(&[("a", "1"), ("a", "2")]));
        assert_eq!(exchange.response_trailers, fields(&[("t", "1")]));
    });
    let many: Vec<(String, &str)> = (0..2000).map(|n| (format!("x-{n}"), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    assert_eq!(set(&mut bench, 0, &many), BAD_ARGUMENT, "more than any section may have");
}

#[test]
fn bodies_are_read_and_changed() {
    let mut bench = bench();
    let id = bench.open();
    bench.exchange(id, |exchange| {
        for piece in ["one ", "two ", "three"] {
            exchange.request_body.push(piece.into());
            exchange.response_body.push(piece.into());
        }
    });
    let max = u64::from(u32::MAX);
    for buffer in [0, 1] {
        for (start, size, expect) in [
            (0, max, "one two three"),
            (2, 4, "e tw"),
            (5, max, "wo three"),
            (13, 1, ""),
            (99, 1, ""),
            (0, 0, ""),
        ] {
            let args = [Num(buffer), Num(start), Num(size), Out(0), Out(1)];
            assert_eq!(bench.call("proxy_get_buffer_bytes", &args), OK, "{start} {size}");
            assert_eq!(bench.given(), expect.as_bytes(), "{start} {size}");
        }
        assert_eq!(bench.call("proxy_get_buffer_status", &[Num(buffer), Out(0), Out(1)]), OK);
        assert_eq!((bench.number(OUT), bench.number(OUT + 4)), (13, 0));
        for (start, size, with, expect) in [
            (0, 0, "zero ", "zero one two three"),
            (max, max, " four", "zero one two three four"),
            (5, 3, "1", "zero 1 two three four"),
            (4, max, "", "zero"),
            (0, max, "all", "all"),
        ] {
            let args = [Num(buffer), Num(start), Num(size), Bytes(with.as_bytes())];
            assert_eq!(bench.call("proxy_set_buffer_bytes", &args), OK);
            let all = [Num(buffer), Num(0), Num(max), Out(0), Out(1)];
            assert_eq!(bench.call("proxy_get_buffer_bytes", &all), OK);
            assert_eq!(bench.given(), expect.as_bytes());
        }
    }
    let too_much = vec![0; 32 << 10];
    for _ in 0..crate::limits::HELD_BYTES_MAX >> 15 {
        bench.call("proxy_set_buffer_bytes", &[Num(0), Num(max), Num(0), Bytes(&too_much)]);
    }
    let last = [Num(0), Num(max), Num(0), Bytes(&too_much)];
    assert_eq!(bench.call("proxy_set_buffer_bytes", &last), INVALID_MEMORY_ACCESS);
}

#[test]
fn buffers_that_are_not_there_are_not_found() {
    let mut bench = bench();
    let mut options = Options::default();
    options.policy.allow.request_body = false;
    options.policy.allow.response_body = false;
    let mut forbidden = Bench::with(FUNCTIONS, ALLOCATOR, options).unwrap();
    forbidden.open();
    for bench in [&mut bench, &mut forbidden] {
        for buffer in 0..=9 {
            let (get, set) = match buffer {
                6 | 7 => (OK, NOT_FOUND),
                9 => (BAD_ARGUMENT, BAD_ARGUMENT),
                _ => (NOT_FOUND, NOT_FOUND),
            };
            let args = [Num(buffer), Num(0), Num(9), Out(0), Out(1)];
            assert_eq!(bench.call("proxy_get_buffer_bytes", &args), get, "{buffer}");
            let args = [Num(buffer), Out(0), Out(1)];
            assert_eq!(bench.call("proxy_get_buffer_status", &args), get, "{buffer}");
            let args = [Num(buffer), Num(0), Num(0), Bytes(b"x")];
            assert_eq!(bench.call("proxy_set_buffer_bytes", &args), set, "{buffer}");
        }
    }
}

fn answer(bench: &mut Bench, status: u64, body: &str, headers: &[(&str, &str)], grpc: i32) -> u32 {
    let grpc = Num(u64::from(grpc.cast_unsigned()));
    let headers = map(headers);
    let args = [Num(status), Bytes(b"details"), Bytes(body.as_bytes()), Bytes(&headers), grpc];
    bench.call("proxy_send_local_response", &args)
}

#[test]
fn local_responses_are_answers() {
    let plain = ("content-type", "text/plain");
    for (status, body, given, grpc, expect_status, expect) in [
        (403, "no", &[("x", "1")][..], -1, 403, vec![("x", "1"), plain]),
        (403, "", &[], -1, 403, vec![]),
        (200, "{}", &[("Content-Type", "a/b")], -1, 200, vec![("content-type", "a/b")]),
        (
            200,
            "a\u{e9}",
            &[],
            7,
            200,
            vec![("grpc-status", "7"), ("grpc-message", "a%C3%A9"), plain],
        ),
        (0, "", &[], -1, 500, vec![]),
        (100, "", &[], -1, 500, vec![]),
        (70_000, "", &[], -1, 500, vec![]),
    ] {
        let mut bench = bench();
        let id = bench.open();
        assert_eq!(answer(&mut bench, status, body, given, grpc), OK);
        // The first one counts.
        assert_eq!(answer(&mut bench, 418, "", &[], -1), OK);
        bench.exchange(id, |exchange| {
            let answer = exchange.wishes.answer.take().unwrap();
            assert_eq!(answer.status.as_u16(), expect_status);
            assert_eq!(answer.body, body);
            assert_eq!(answer.details, "details");
            assert_eq!(answer.headers, fields(&expect));
        });
    }
}

#[test]
fn local_responses_to_grpc_are_grpcs() {
    for (status, grpc, expect) in [(503, -1, "14"), (200, 5, "5"), (404, -1, "12")] {
        let mut bench = bench();
        let id = bench.open();
        bench.exchange(id, |exchange| {
            let head = exchange.request.as_mut().unwrap().to_mut();
            head.headers = fields(&[("content-type", "application/grpc+proto")]);
        });
        assert_eq!(answer(&mut bench, status, "why", &[], grpc), OK);
        bench.exchange(id, |exchange| {
            let answer = exchange.wishes.answer.take().unwrap();
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
            let kind = ("content-type", "application/grpc");
            let expect = fields(&[kind, ("grpc-status", expect), ("grpc-message", "why")]);
            assert_eq!(answer.headers, expect);
        });
    }
}

#[test]
fn local_responses_that_cannot_be_are_refused() {
    let mut bench = bench();
    let id = bench.open();
    for bad in [&[("a b", "1")], &[("a", "\n")], &[(":status", "200")]] {
        assert_eq!(answer(&mut bench, 200, "", bad, -1), BAD_ARGUMENT);
    }
    bench.exchange(id, |exchange| assert!(exchange.wishes.answer.is_none()));
}

#[test]
fn streams_are_closed_and_routes_found_anew() {
    let mut bench = bench();
    let id = bench.open();
    assert_eq!(bench.call("proxy_close_stream", &[Num(4)]), BAD_ARGUMENT);
    bench.exchange(id, |exchange| assert!(!exchange.wishes.close));
    for stream in 0..4 {
        bench.exchange(id, |exchange| exchange.wishes.close = false);
        assert_eq!(bench.call("proxy_close_stream", &[Num(stream)]), OK);
        bench.exchange(id, |exchange| assert!(exchange.wishes.close, "{stream}"));
    }
    let clear = [Bytes(b"clear_route_cache"), Bytes(b""), Out(0), Out(1)];
    assert_eq!(bench.call("proxy_call_foreign_function", &clear), OK);
    bench.exchange(id, |exchange| assert!(exchange.wishes.reroute));
}

#[test]
fn contexts_are_turned_to_while_they_are_there() {
    let mut bench = bench();
    let (one, other) = (bench.open(), bench.open());
    bench
        .exchange(one, |exchange| exchange.request.as_mut().unwrap().to_mut().target = "/1".into());
    for (context, expect) in
        [(one, OK), (other, OK), (1, OK), (0, BAD_ARGUMENT), (other + 1, BAD_ARGUMENT)]
    {
        let status = bench.call("proxy_set_effective_context", &[Num(u64::from(context))]);
        assert_eq!(status, expect, "{context}");
    }
    bench.call("proxy_set_effective_context", &[Num(u64::from(one))]);
    assert_eq!(value(&mut bench, 0, ":path").as_deref(), Ok("/1"));
    bench.store(|_, store| store.data_mut().exchanges.remove(&one));
    // Back to the one whose callback runs.
    assert_eq!(value(&mut bench, 0, ":path").as_deref(), Ok("/cart?id=7"));
    assert_eq!(bench.call("proxy_done", &[]), NOT_FOUND);
}

#[test]
fn shared_data_is_compared_and_swapped() {
    let mut bench = bench();
    let get = [Bytes(b"key"), Out(0), Out(1), Out(2)];
    assert_eq!(bench.call("proxy_get_shared_data", &get), NOT_FOUND);
    let set = |bench: &mut Bench, value: &[u8], cas: u32| {
        bench.call("proxy_set_shared_data", &[Bytes(b"key"), Bytes(value), Num(u64::from(cas))])
    };
    assert_eq!(set(&mut bench, b"one", 0), OK);
    assert_eq!(bench.call("proxy_get_shared_data", &get), OK);
    assert_eq!(bench.given(), b"one");
    let cas = bench.number(OUT + 8);
    assert_ne!(cas, 0);
    assert_eq!(set(&mut bench, b"two", cas), OK);
    assert_eq!(set(&mut bench, b"three", cas), CAS_MISMATCH);
    assert_eq!(bench.call("proxy_get_shared_data", &get), OK);
    assert_eq!(bench.given(), b"two");
    let long = vec![b'k'; 2000];
    let args = [Bytes(&long), Bytes(b""), Num(0)];
    assert_eq!(bench.call("proxy_set_shared_data", &args), CAS_MISMATCH, "over a limit");
}

#[test]
fn shared_names_are_ones_own_and_those_allowed() {
    let commons = Commons::new();
    let bench_of = |name, commons: &std::sync::Arc<Commons>| {
        let options = Options { name, commons: commons.clone(), ..Options::default() };
        Bench::with(FUNCTIONS, ALLOCATOR, options).unwrap()
    };
    let (mut one, mut other) = (bench_of("one", &commons), bench_of("other", &commons));
    for key in ["mine", "common/ours", "other/x"] {
        let set = [Bytes(key.as_bytes()), Bytes(b"1"), Num(0)];
        assert_eq!(one.call("proxy_set_shared_data", &set), OK);
    }
    for (key, expect) in [("mine", NOT_FOUND), ("common/ours", OK), ("x", NOT_FOUND)] {
        let get = [Bytes(key.as_bytes()), Out(0), Out(1), Out(2)];
        assert_eq!(other.call("proxy_get_shared_data", &get), expect, "{key}");
    }
    // The queue of somebody else, by name and by number.
    assert_eq!(one.call("proxy_register_shared_queue", &[Bytes(b"q"), Out(0)]), OK);
    let queue = u64::from(one.number(OUT));
    let resolve = [Bytes(b"one"), Bytes(b"q"), Out(0)];
    assert_eq!(one.call("proxy_resolve_shared_queue", &resolve), OK);
    assert_eq!(other.call("proxy_resolve_shared_queue", &resolve), NOT_FOUND);
    assert_eq!(other.call("proxy_enqueue_shared_queue", &[Num(queue), Bytes(b"x")]), NOT_FOUND);
    assert_eq!(other.call("proxy_dequeue_shared_queue", &[Num(queue), Out(0), Out(1)]), NOT_FOUND);
}

#[test]
fn queues_are_first_in_first_out() {
    let mut bench = bench();
    assert_eq!(bench.call("proxy_register_shared_queue", &[Bytes(b"q"), Out(0)]), OK);
    let queue = Num(u64::from(bench.number(OUT)));
    for vm in [&b""[..], b"gray"] {
        let resolve = [Bytes(vm), Bytes(b"q"), Out(0)];
        assert_eq!(bench.call("proxy_resolve_shared_queue", &resolve), OK);
        assert_eq!(
            Some(u64::from(bench.number(OUT))),
            if let Num(q) = queue { Some(q) } else { None }
        );
    }
    let resolve = [Bytes(b""), Bytes(b"other"), Out(0)];
    assert_eq!(bench.call("proxy_resolve_shared_queue", &resolve), NOT_FOUND);
    for item in [&b"one"[..], b"", b"three"] {
        assert_eq!(bench.call("proxy_enqueue_shared_queue", &[queue, Bytes(item)]), OK);
    }
    for item in [&b"one"[..], b"", b"three"] {
        assert_eq!(bench.call("proxy_dequeue_shared_queue", &[queue, Out(0), Out(1)]), OK);
        assert_eq!(bench.given(), item);
    }
    assert_eq!(bench.call("proxy_dequeue_shared_queue", &[queue, Out(0), Out(1)]), EMPTY);
    assert_eq!(bench.call("proxy_dequeue_shared_queue", &[Num(99), Out(0), Out(1)]), NOT_FOUND);
    assert_eq!(bench.call("proxy_enqueue_shared_queue", &[Num(99), Bytes(b"")]), NOT_FOUND);
    bench.settle();
    let notes = bench.notes();
    let told = notes.iter().filter(|(name, _)| *name == "proxy_on_queue_ready").count();
    assert_eq!(told, 3, "{notes:?}");
}

#[test]
fn metrics_are_defined_changed_and_read() {
    let mut bench = bench();
    let mut ids = Vec::new();
    for (kind, name, expect) in [
        (0, "c", OK),
        (1, "g", OK),
        (2, "h", OK),
        (3, "x", BAD_ARGUMENT),
        (1, "c", BAD_ARGUMENT),
        (0, "c", OK),
    ] {
        let args = [Num(kind), Bytes(name.as_bytes()), Out(0)];
        assert_eq!(bench.call("proxy_define_metric", &args), expect, "{name}");
        if expect == OK {
            ids.push(u64::from(bench.number(OUT)));
        }
    }
    let [c, g, h, again] = ids[..] else { panic!("{ids:?}") };
    assert_eq!(c, again);
    let minus = (-2_i64).cast_unsigned();
    for (function, id, value, expect) in [
        ("increment", c, 5, OK),
        ("increment", c, minus, BAD_ARGUMENT),
        ("record", g, 7, OK),
        ("increment", g, minus, OK),
        ("record", h, 3, OK),
        ("increment", h, 3, BAD_ARGUMENT),
        ("increment", 99, 1, NOT_FOUND),
        ("record", 0, 1, NOT_FOUND),
    ] {
        let name = format!("proxy_{function}_metric");
        assert_eq!(bench.call(&name, &[Num(id), Num(value)]), expect, "{function} {id} {value}");
    }
    for (id, expect) in [(c, Some(5)), (g, Some(5)), (h, None), (99, None)] {
        let status = bench.call("proxy_get_metric", &[Num(id), Out(0)]);
        assert_eq!(status, if expect.is_some() { OK } else { NOT_FOUND });
        assert!(expect.is_none_or(|value| bench.number(OUT) == value));
    }
    let mut seen = Vec::new();
    bench.metrics.each(|name, reading| seen.push((name.to_owned(), reading)));
    assert_eq!(seen[0], ("c".to_owned(), MetricReading::Counter(5)));
    assert_eq!(seen[1], ("g".to_owned(), MetricReading::Gauge(5)));
}

fn property(bench: &mut Bench, path: &str) -> Option<Vec<u8>> {
    let path = path.replace('.', "\0");
    match bench.call("proxy_get_property", &[Bytes(path.as_bytes()), Out(0), Out(1)]) {
        OK => Some(bench.given()),
        status => {
            assert_eq!(status, NOT_FOUND, "{path}");
            None
        }
    }
}

#[test]
fn properties_have_envoys_names() {
    let mut bench = bench();
    let id = bench.open();
    bench.exchange(id, |exchange| {
        exchange.request_body_offset = 100;
        exchange.request_body.push("12345".into());
        exchange.response_body.push("123".into());
        exchange.response_trailers = fields(&[("t", "v")]);
        let head = exchange.request.as_mut().unwrap().to_mut();
        head.headers = fields(&[("referer", "r"), ("user-agent", "u"), ("x-request-id", "i")]);
    });
    let int = |number: i64| number.to_le_bytes().to_vec();
    for (path, expect) in [
        ("plugin_name", b"gray".to_vec()),
        ("plugin_root_id", b"gray".to_vec()),
        ("plugin_vm_id", b"gray".to_vec()),
        ("listener_direction", int(1)),
        ("node.id", b"node-1".to_vec()),
        ("route_name", b"shop /cart".to_vec()),
        ("cluster_name", b"up".to_vec()),
        ("request.path", b"/cart?id=7".to_vec()),
        ("request.url_path", b"/cart".to_vec()),
        ("request.query", b"id=7".to_vec()),
        ("request.host", b"shop.example".to_vec()),
        ("request.scheme", b"https".to_vec()),
        ("request.method", b"GET".to_vec()),
        ("request.protocol", b"HTTP/1.1".to_vec()),
        ("request.referer", b"r".to_vec()),
        ("request.useragent", b"u".to_vec()),
        ("request.id", b"i".to_vec()),
        ("request.time", int(1_700_000_000_000_000_000)),
        ("request.size", int(105)),
        ("request.total_size", int(105 + 8 + 11 + 13 + 25)),
        ("request.headers.referer", b"r".to_vec()),
        ("request.headers.:path", b"/cart?id=7".to_vec()),
        ("response.code", int(200)),
        ("response.size", int(3)),
        ("response.total_size", int(3 + 21 + 4 + 2)),
        ("response.headers.x-b", b"3".to_vec()),
        ("response.trailers.t", b"v".to_vec()),
        ("response.trailers", map(&[("t", "v")])),
        ("response.flags", int(0)),
        ("response.code_details", b"via_upstream".to_vec()),
        ("source.address", b"192.0.2.7:4711".to_vec()),
        ("source.port", int(4711)),
        ("destination.address", b"192.0.2.1:443".to_vec()),
        ("connection.tls_version", b"TLSv1.3".to_vec()),
    ] {
        assert_eq!(property(&mut bench, path), Some(expect), "{path}");
    }
    assert_eq!(property(&mut bench, "request.duration").map(|value| value.len()), Some(8));
    for path in ["request", "request.x", "request.headers.missing", "nothing", "", "request.path.x"]
    {
        assert_eq!(property(&mut bench, path), None, "{path}");
    }
    // Elsewhere there is only what does not depend on a request.
    bench.call("proxy_set_effective_context", &[Num(1)]);
    assert_eq!(property(&mut bench, "request.path"), None);
    assert_eq!(property(&mut bench, "plugin_name"), Some(b"gray".to_vec()));
}

#[test]
fn properties_are_set_for_others_and_as_wishes() {
    let mut bench = bench();
    let id = bench.open();
    let set = |bench: &mut Bench, path: &str, value: &[u8]| {
        let path = path.replace('/', "\0");
        bench.call("proxy_set_property", &[Bytes(path.as_bytes()), Bytes(value)])
    };
    for (path, value, expect) in [
        ("mine", &b"1"[..], OK),
        ("mine", b"2", OK),
        ("weir/cache/key", b"variant-b", OK),
        ("weir.cache.pass", b"true", OK),
        ("weir.cache.no_store", &[1], OK),
        ("weir.cache.validate", b"0", OK),
        ("weir.cache.ttl_ms", b"1500", OK),
        ("weir.cache.ttl_ms", b"soon", NOT_FOUND),
        ("weir.reroute", b"1", OK),
        ("weir.upstream", b"up", OK),
        ("weir.upstream", b"forbidden", NOT_FOUND),
        ("weir.upstream", b"missing", NOT_FOUND),
        ("weir.unknown", b"", NOT_FOUND),
    ] {
        assert_eq!(set(&mut bench, path, value), expect, "{path}");
    }
    assert_eq!(property(&mut bench, "mine").as_deref(), Some(&b"2"[..]));
    bench.exchange(id, |exchange| {
        let wishes = &exchange.wishes;
        assert_eq!(wishes.cache.key.as_deref(), Some(&b"variant-b"[..]));
        assert!(wishes.cache.pass && wishes.cache.no_store && !wishes.cache.validate);
        assert_eq!(wishes.cache.ttl_ms, Some(1500));
        assert!(wishes.reroute);
        assert_eq!(wishes.upstream.as_deref(), Some("up"));
    });
    let many = (0..100).filter(|n| set(&mut bench, &format!("p{n}"), b"") == OK).count();
    assert_eq!(many, crate::limits::BAG_MAX - 1);
    bench.call("proxy_set_effective_context", &[Num(1)]);
    assert_eq!(set(&mut bench, "mine", b"3"), NOT_FOUND);
}

#[test]
fn stored_content_is_managed_by_foreign_functions() {
    let mut bench = bench();
    let call = |bench: &mut Bench, name: &str, arguments: &[u8]| {
        let args = [Bytes(name.as_bytes()), Bytes(arguments), Out(0), Out(1)];
        match bench.call("proxy_call_foreign_function", &args) {
            OK => Ok(bench.given()),
            status => Err(status),
        }
    };
    let url = b"http://shop/a";
    let head = map(&[(":status", "203"), ("x", "1")]);
    let inject = |ttl_ms: u64| {
        let sizes = [url.len(), head.len()].map(|size| (size as u32).to_le_bytes()).concat();
        [&ttl_ms.to_le_bytes()[..], &sizes, url, &head, b"0123456789"].concat()
    };
    let read =
        |offset: u64, size: u32| [&offset.to_le_bytes()[..], &size.to_le_bytes(), url].concat();
    for (name, arguments, expect) in [
        ("weir.cache_query", url.to_vec(), Ok(&b""[..])),
        ("weir.cache_read", read(0, 9), Ok(b"")),
        ("weir.cache_inject", inject(5000), Ok(b"")),
        ("weir.cache_inject", inject(0), Err(INTERNAL_FAILURE)),
        ("weir.cache_inject", inject(1)[..20].to_vec(), Err(BAD_ARGUMENT)),
        ("weir.cache_read", read(0, u32::MAX), Ok(b"0123456789")),
        ("weir.cache_read", read(3, 4), Ok(b"3456")),
        ("weir.cache_read", read(u64::MAX, 4), Ok(b"")),
        ("weir.cache_read", vec![0; 3], Err(BAD_ARGUMENT)),
        ("weir.cache_expire", url.to_vec(), Ok(&[1, 0, 0, 0])),
        ("weir.cache_purge", b"ftp:".to_vec(), Err(BAD_ARGUMENT)),
        ("weir.cache_purge", b"\xff".to_vec(), Err(BAD_ARGUMENT)),
        ("weir.unknown", vec![], Err(NOT_FOUND)),
        ("declare_property", vec![], Ok(b"")),
    ] {
        let result = call(&mut bench, name, &arguments);
        assert_eq!(result, expect.map(<[u8]>::to_vec), "{name} {arguments:?}");
    }
    let described = call(&mut bench, "weir.cache_query", url).unwrap();
    let described: serde_json::Value = serde_json::from_slice(&described).unwrap();
    let expect = serde_json::json!({
        "status": 203, "age_ms": 0, "ttl_ms": 0, "hits": 3, "body_bytes": 10,
        "headers": [["x", "1"]],
    });
    assert_eq!(described, expect);
    assert_eq!(call(&mut bench, "weir.cache_purge", url), Ok(vec![1, 0, 0, 0]));
    assert_eq!(call(&mut bench, "weir.cache_purge", url), Ok(vec![0; 4]));
    // Without places for results.
    let args = [Bytes(b"weir.cache_purge"), Bytes(url), Num(0), Num(0)];
    assert_eq!(bench.call("proxy_call_foreign_function", &args), OK);
    // Not allowed: unknown.
    let mut options = Options::default();
    options.policy.allow.cache = false;
    let mut bench = Bench::with(FUNCTIONS, ALLOCATOR, options).unwrap();
    assert_eq!(call(&mut bench, "weir.cache_purge", url), Err(NOT_FOUND));
}

#[test]
fn maps_can_be_read_until_the_end() {
    let mut bench = bench();
    let id = bench.open();
    bench.exchange(id, |exchange| exchange.phase = Phase::Log);
    assert_eq!(value(&mut bench, 0, ":path").as_deref(), Ok("/cart?id=7"));
    assert_eq!(value(&mut bench, 2, ":status").as_deref(), Ok("200"));
}
