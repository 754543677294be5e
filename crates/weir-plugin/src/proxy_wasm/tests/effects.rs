//! What each host function does, and its statuses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::exchange::Phase;
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
    for (buffer, phase) in [(0, Phase::RequestBody), (1, Phase::ResponseBody)] {
        for elsewhere in [Phase::RequestHead, Phase::ResponseTrailers, Phase::Log] {
            bench.exchange(id, |exchange| exchange.phase = elsewhere);
            let args = [Num(buffer), Num(0), Num(max), Bytes(b"too early, or too late")];
            assert_eq!(bench.call("proxy_set_buffer_bytes", &args), NOT_FOUND);
        }
        bench.exchange(id, |exchange| exchange.phase = phase);
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
    bench.exchange(id, |exchange| exchange.phase = Phase::RequestBody);
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
fn maps_can_be_read_until_the_end() {
    let mut bench = bench();
    let id = bench.open();
    bench.exchange(id, |exchange| exchange.phase = Phase::Log);
    assert_eq!(value(&mut bench, 0, ":path").as_deref(), Ok("/cart?id=7"));
    assert_eq!(value(&mut bench, 2, ":status").as_deref(), Ok("200"));
}
