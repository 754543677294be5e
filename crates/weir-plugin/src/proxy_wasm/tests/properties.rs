//! Properties and foreign functions: effects and statuses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::test_support::{ALLOCATOR, Arg::*, Options, fields};

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
        ("plugin_root_id", b"root".to_vec()),
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
        ("response.code_details", b"direct_response".to_vec()),
        ("source.address", b"192.0.2.7:4711".to_vec()),
        ("source.port", int(4711)),
        ("destination.address", b"192.0.2.1:443".to_vec()),
        ("connection.tls_version", b"TLSv1.3".to_vec()),
    ] {
        assert_eq!(property(&mut bench, path), Some(expect), "{path}");
    }
    let time = property(&mut bench, "request.time").unwrap();
    let time = Duration::from_nanos(u64::from_le_bytes(time.try_into().unwrap()));
    let duration = property(&mut bench, "request.duration").unwrap();
    let duration = Duration::from_nanos(u64::from_le_bytes(duration.try_into().unwrap()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(time <= now && now < time + Duration::from_secs(60), "{time:?}");
    assert!(!duration.is_zero() && duration < Duration::from_secs(60), "{duration:?}");
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
