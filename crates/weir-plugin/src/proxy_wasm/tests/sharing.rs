//! Shared data, queues and metrics: effects and statuses.

use super::*;
use crate::shared::{Commons, MetricReading};
use crate::test_support::{ALLOCATOR, Arg::*, OUT, Options};

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
        (0, "c", OK),
        (1, "c", OK),
    ] {
        let args = [Num(kind), Bytes(name.as_bytes()), Out(0)];
        assert_eq!(bench.call("proxy_define_metric", &args), expect, "{name}");
        if expect == OK {
            ids.push(u64::from(bench.number(OUT)));
        }
    }
    let [c, g, h, again, other] = ids[..] else { panic!("{ids:?}") };
    assert_eq!(c, again);
    // A name is another metric in another kind.
    assert!(![c, g, h].contains(&other));
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
