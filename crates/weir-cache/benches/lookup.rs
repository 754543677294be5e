//! What does a hit cost in the index? Nanoseconds a lookup, the best of several rounds, beside a
//! floor: the standard library's map under a lock, found by an owned key, and nothing else.

#![allow(clippy::print_stdout, reason = "a benchmark's result is its output")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::RwLock;
use std::time::Instant;

use bytes::Bytes;
use http::header::VARY;
use http::{HeaderMap, HeaderValue, StatusCode};
use weir_arena::Arena;
use weir_cache::eviction::Policy;
use weir_cache::{Cache, Freshness, Head, KeyRef, Lookup, RequestDirectives, Selectors, Settings};

const ROUNDS: usize = 15;
const LOOKUPS: usize = 200_000;

fn main() {
    for keys in [1usize, 1_000, 100_000] {
        let paths: Vec<String> =
            (0..keys).map(|n| format!("/images/{}/photo-{n}.jpg?width=640", n % 97)).collect();
        let order: Vec<usize> = shuffled(keys);
        let floor = floor(&paths, &order);
        let plain = hits(&paths, &order, None, 1);
        let vary = hits(&paths, &order, Some("accept-encoding"), 1);
        let two = hits(&paths, &order, None, 2);
        println!(
            "{keys:>7} keys: floor {floor:>4.0} ns, hit {plain:>4.0} ns, hit by Vary {vary:>4.0} \
             ns, hit on two threads {two:>4.0} ns"
        );
    }
    println!("insert of 1 KiB into a full cache: {:.0} ns", inserts());
}

/// A fixed pseudo-random order of access, long enough for all lookups of a round.
fn shuffled(keys: usize) -> Vec<usize> {
    let mut random = 1u64;
    (0..LOOKUPS)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            (random >> 33) as usize % keys
        })
        .collect()
}

/// The least nanoseconds per lookup of all rounds: what other processes add is left out.
fn best(mut round: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_nanos() as f64 / LOOKUPS as f64);
    }
    best
}

fn floor(paths: &[String], order: &[usize]) -> f64 {
    let map: HashMap<String, Arc<u64>> =
        paths.iter().map(|path| (path.clone(), Arc::new(1))).collect();
    let map = RwLock::new(map);
    best(|| {
        for &at in order {
            let found = map.read().ok().and_then(|map| map.get(&paths[at]).cloned());
            black_box(found);
        }
    })
}

fn request() -> HeaderMap {
    let mut request = HeaderMap::new();
    for (name, value) in [
        ("host", "www.example"),
        ("user-agent", "bench"),
        ("accept", "*/*"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
    ] {
        request.insert(name, HeaderValue::from_static(value));
    }
    request
}

fn cache(memory_bytes: u64) -> Cache {
    let settings = Settings { memory_bytes, object_bytes_max: 1 << 20, policy: Policy::Gdsf };
    let arena = Arena::new(1 << 20).expect("an arena");
    Cache::new(settings, arena)
}

fn key(path: &str) -> KeyRef<'_> {
    KeyRef { scope: 7, authority: "www.example", path_and_query: path }
}

fn head(vary: Option<&'static str>) -> Head {
    let mut headers = HeaderMap::new();
    if let Some(vary) = vary {
        headers.insert(VARY, HeaderValue::from_static(vary));
    }
    let selectors = Selectors::new(&headers, &request()).expect("no *");
    Head { selectors, ..Head::new(StatusCode::OK, headers, Freshness::for_lifetime(0, 1 << 40)) }
}

fn hits(paths: &[String], order: &[usize], vary: Option<&'static str>, threads: usize) -> f64 {
    let cache = cache(1 << 30);
    for path in paths {
        cache.insert(&key(path), head(vary), Bytes::from_static(b"body").into(), None);
    }
    let run = |cache: &Cache| {
        let (request, plain) = (request(), RequestDirectives::default());
        best(|| {
            for &at in order {
                let found = cache.lookup(&key(&paths[at]), &request, &plain, 1000);
                assert!(matches!(found, Lookup::Fresh(_)));
                black_box(found);
            }
        })
    };
    if threads == 1 {
        return run(&cache);
    }
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(|| run(&cache))).collect();
        runs.into_iter().map(|run| run.join().expect("no panic")).fold(0.0, f64::max)
    })
}

fn inserts() -> f64 {
    let cache = cache(16 << 20);
    let body = Bytes::from(vec![0; 1024]);
    let mut number = 0u64;
    best(|| {
        for _ in 0..LOOKUPS {
            number += 1;
            let path = format!("/{number}");
            cache.insert(&key(&path), head(None), body.clone().into(), None);
        }
    })
}
