//! The index by example: lookups, variants, passes, purges, limits.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use weir_arena::Arena;

use super::*;
use crate::body::Body;
use crate::error::CacheError;
use crate::key::KeyRef;
use crate::limits::{HEAP_BODY_BYTES_MAX, PASS_LIFETIME_MS, PASSES_PER_SHARD_MAX};
use crate::limits::{OBJECT_OVERHEAD_BYTES, VARIANTS_PER_KEY_MAX};
use crate::object::Head;
use crate::policy::{Freshness, RequestDirectives};
use crate::selectors::Selectors;
use crate::test_support::headers;

const NOW: u64 = 1_000_000;

fn cache_of(memory_bytes: u64) -> Cache {
    let settings = Settings { memory_bytes, object_bytes_max: 1 << 20, policy: Policy::Gdsf };
    Cache::new(settings, Arena::new(4 << 20).unwrap())
}

fn key(path: &str) -> KeyRef<'_> {
    KeyRef { scope: 1, authority: "a.example", path_and_query: path }
}

fn head(vary: &str, request: &str, freshness: Freshness) -> Head {
    let selectors = Selectors::new(&headers(vary), &headers(request)).unwrap();
    Head { selectors, ..Head::new(StatusCode::OK, headers(""), freshness) }
}

fn fresh() -> Freshness {
    Freshness::for_lifetime(NOW, 60_000)
}

fn store(cache: &Cache, path: &str, vary: &str, request: &str, body: &str) -> Arc<Object> {
    let body = Body::from(Bytes::copy_from_slice(body.as_bytes()));
    let (object, stored) = cache.insert(&key(path), head(vary, request, fresh()), body, None);
    assert!(stored);
    object
}

/// `fresh:body`, `stale`, `vary-miss`, `miss` or `pass`.
fn look(cache: &Cache, path: &str, request: &str, now_ms: u64) -> String {
    look_with(cache, path, request, "", now_ms)
}

fn look_with(cache: &Cache, path: &str, request: &str, directives: &str, now: u64) -> String {
    let directives = RequestDirectives::parse(directives.as_bytes());
    match cache.lookup(&key(path), &headers(request), &directives, now) {
        Lookup::Fresh(object) => {
            let body: Vec<u8> = object.body().chunks().concat();
            format!("fresh:{}", String::from_utf8(body).unwrap())
        }
        Lookup::Stale(_) => "stale".into(),
        Lookup::VaryMiss => "vary-miss".into(),
        Lookup::Miss => "miss".into(),
        Lookup::Pass(_) => "pass".into(),
    }
}

#[test]
fn a_stored_response_is_found_until_it_is_stale() {
    let cache = cache_of(1 << 20);
    store(&cache, "/", "", "", "one");
    assert_eq!(look(&cache, "/", "", NOW), "fresh:one");
    assert_eq!(look(&cache, "/", "", NOW + 59_999), "fresh:one");
    assert_eq!(look(&cache, "/", "", NOW + 60_000), "stale");
    assert_eq!(look(&cache, "/other", "", NOW), "miss");
    assert_eq!(look_with(&cache, "/", "", "no-cache", NOW), "stale");
    store(&cache, "/", "", "", "two");
    assert_eq!(look(&cache, "/", "", NOW), "fresh:two");
    let stats = cache.stats();
    assert_eq!((stats.objects, stats.hits, stats.stale, stats.misses), (1, 3, 2, 1));
}

#[test]
fn variants_are_selected_and_superseded() {
    let cache = cache_of(1 << 20);
    store(&cache, "/", "vary: accept", "accept: a", "a1");
    store(&cache, "/", "vary: accept", "accept: b", "b1");
    assert_eq!(look(&cache, "/", "accept: a", NOW), "fresh:a1");
    assert_eq!(look(&cache, "/", "accept: b", NOW), "fresh:b1");
    assert_eq!(look(&cache, "/", "accept: c", NOW), "vary-miss");
    store(&cache, "/", "vary: accept", "accept: a", "a2");
    assert_eq!(look(&cache, "/", "accept: a", NOW), "fresh:a2");
    assert_eq!(look(&cache, "/", "accept: b", NOW), "fresh:b1");
    assert_eq!(cache.stats().objects, 2);
}

#[test]
fn a_key_forgets_its_oldest_variant() {
    let cache = cache_of(1 << 20);
    for n in 0..=VARIANTS_PER_KEY_MAX {
        store(&cache, "/", "vary: x", &format!("x: {n}"), &n.to_string());
    }
    assert_eq!(look(&cache, "/", "x: 0", NOW), "vary-miss");
    assert_eq!(look(&cache, "/", "x: 1", NOW), "fresh:1");
    assert_eq!(cache.stats().objects, VARIANTS_PER_KEY_MAX as u64);
}

#[test]
fn a_pass_lasts_a_while_and_ends_when_something_is_stored() {
    let cache = cache_of(1 << 20);
    let hash = cache.inner.hash(&key("/"));
    cache.inner.mark_pass(hash, false, NOW);
    assert_eq!(look(&cache, "/", "", NOW), "pass");
    assert_eq!(look(&cache, "/", "", NOW + PASS_LIFETIME_MS - 1), "pass");
    assert_eq!(look(&cache, "/", "", NOW + PASS_LIFETIME_MS), "miss");
    cache.inner.mark_pass(hash, false, NOW);
    store(&cache, "/", "vary: x", "x: 1", "one");
    assert_eq!(look(&cache, "/", "x: 2", NOW), "vary-miss");
    cache.inner.mark_pass(hash, false, NOW);
    assert_eq!(look(&cache, "/", "x: 1", NOW), "fresh:one");
    assert_eq!(look(&cache, "/", "x: 2", NOW), "pass");
    assert_eq!(cache.purge(&key("/"), PurgeMode::Remove), 1);
    assert_eq!(look(&cache, "/", "x: 2", NOW), "miss");
}

#[test]
fn passes_are_bounded() {
    let mut index = Index::default();
    for hash in 0..5 * PASSES_PER_SHARD_MAX as u64 {
        index.mark_pass(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), false, NOW);
        assert!(index.passes_len() <= PASSES_PER_SHARD_MAX);
    }
    assert!(index.passes_len() > 0);
}

#[test]
fn purges() {
    let cache = cache_of(1 << 20);
    let other = KeyRef { scope: 2, ..key("/a") };
    let fill = || {
        store(&cache, "/a", "vary: x", "x: 1", "a1");
        store(&cache, "/a", "vary: x", "x: 2", "a2");
        store(&cache, "/b", "", "", "b");
        cache.insert(&other, head("", "", fresh()), Body::default(), None);
    };
    fill();
    assert_eq!(cache.purge(&key("/a"), PurgeMode::Remove), 2);
    assert_eq!(look(&cache, "/a", "x: 1", NOW), "miss");
    assert_eq!(look(&cache, "/b", "", NOW), "fresh:b");
    assert_eq!(cache.purge(&key("/a"), PurgeMode::Remove), 0);
    fill();
    assert_eq!(cache.purge(&key("/a"), PurgeMode::Expire { now_ms: NOW }), 2);
    assert_eq!(look(&cache, "/a", "x: 1", NOW), "stale");
    assert_eq!(look(&cache, "/b", "", NOW), "fresh:b");
    fill();
    assert_eq!(cache.purge_scope(1, PurgeMode::Expire { now_ms: NOW }), 3);
    assert_eq!(look(&cache, "/b", "", NOW), "stale");
    assert_eq!(cache.purge_scope(1, PurgeMode::Remove), 3);
    assert_eq!(cache.stats().objects, 1);
    assert_eq!(cache.purge_all(PurgeMode::Remove), 1);
    let stats = cache.stats();
    assert_eq!((stats.objects, stats.bytes, stats.purged), (0, 0, 6));
}

#[test]
fn a_soft_purge_leaves_the_stale_windows_open() {
    let cache = cache_of(1 << 20);
    let freshness = Freshness { stale_while_revalidate_ms: 1000, ..fresh() };
    cache.insert(&key("/"), head("", "", freshness), Body::default(), None);
    cache.purge(&key("/"), PurgeMode::Expire { now_ms: NOW + 5000 });
    let directives = RequestDirectives::default();
    for (now_ms, expect) in [(NOW + 5999, true), (NOW + 6000, false)] {
        let found = cache.lookup(&key("/"), &headers(""), &directives, now_ms);
        let Lookup::Stale(stale) = found else { panic!("{found:?}") };
        assert_eq!(stale.while_revalidating, expect);
    }
}

#[test]
fn the_memory_limit_evicts_what_is_worth_least() {
    // Room for three small objects, their heads included.
    let cache = cache_of(3 * (OBJECT_OVERHEAD_BYTES + 200));
    let body = "x".repeat(100);
    for path in ["/1", "/2", "/3"] {
        store(&cache, path, "", "", &body);
    }
    assert_eq!(cache.stats().objects, 3);
    look(&cache, "/1", "", NOW);
    store(&cache, "/4", "", "", &body);
    let stats = cache.stats();
    assert!(stats.bytes <= stats.limit_bytes && stats.evictions > 0);
    assert_eq!(look(&cache, "/2", "", NOW), "miss");
    assert_eq!(look(&cache, "/1", "", NOW), format!("fresh:{body}"));
    assert_eq!(look(&cache, "/4", "", NOW), format!("fresh:{body}"));
}

#[test]
fn what_is_too_large_is_returned_but_not_stored() {
    let cache = cache_of(64 << 10);
    let body = Body::from(Bytes::from(vec![0; 100 << 10]));
    let (object, stored) = cache.insert(&key("/"), head("", "", fresh()), body, None);
    assert!(!stored && object.body().len() == 100 << 10);
    assert_eq!(look(&cache, "/", "", NOW), "miss");
    let wanted = cache.destination((1 << 20) + 1);
    assert!(matches!(wanted, Err(CacheError::TooLarge { .. })), "{wanted:?}");
}

#[test]
fn destinations_are_heap_or_arena_by_length() {
    use crate::body::Destination;
    let cache = cache_of(1 << 20);
    for len in [0, 1, HEAP_BODY_BYTES_MAX, HEAP_BODY_BYTES_MAX + 1, 100_000] {
        let mut destination = cache.destination(len as u64).unwrap();
        let in_arena = matches!(destination, Destination::Arena(_));
        assert_eq!(in_arena, len > HEAP_BODY_BYTES_MAX, "{len}");
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        for part in bytes.chunks(30_000) {
            destination.write(part).unwrap();
        }
        let body = destination.freeze();
        assert_eq!(body.chunks().concat(), bytes);
        assert_eq!(
            body.chunks().iter().all(|c| weir_arena::locate(c).is_some()),
            in_arena || len == 0
        );
    }
}

#[test]
fn a_full_arena_evicts_its_own_and_then_gives_up() {
    let settings =
        Settings { memory_bytes: 64 << 20, object_bytes_max: 1 << 20, policy: Policy::Lru };
    let cache = Cache::new(settings, Arena::new(1 << 20).unwrap());
    store(&cache, "/small", "", "", "small");
    let put = |path: &str, len: usize| {
        let mut destination = cache.destination(len as u64)?;
        destination.write(&vec![7; len]).unwrap();
        cache.insert(&key(path), head("", "", fresh()), destination.freeze(), None);
        Ok::<(), CacheError>(())
    };
    for n in 0..10 {
        put(&format!("/{n}"), 300_000).unwrap();
    }
    assert!(cache.stats().evictions >= 7);
    assert_eq!(look(&cache, "/small", "", NOW), "fresh:small");
    // Pages that are still being read cannot be had.
    let lookup =
        |path: &str| cache.lookup(&key(path), &headers(""), &RequestDirectives::default(), NOW);
    let held: Vec<Lookup> = (7..10).map(|n| lookup(&format!("/{n}"))).collect();
    assert!(held.iter().all(|found| matches!(found, Lookup::Fresh(_))));
    assert!(matches!(put("/x", 500_000), Err(CacheError::Full { .. })));
    assert_eq!(cache.stats().arena_full, 1);
    assert_eq!(look(&cache, "/small", "", NOW), "fresh:small");
    drop(held);
    put("/x", 500_000).unwrap();
}

#[test]
fn memory_is_given_back_with_the_last_holder() {
    let cache = cache_of(1 << 20);
    let mut destination = cache.destination(100_000).unwrap();
    destination.write(&[1; 100_000]).unwrap();
    let (object, _) = cache.insert(&key("/"), head("", "", fresh()), destination.freeze(), None);
    assert_eq!(cache.purge(&key("/"), PurgeMode::Remove), 1);
    assert!(cache.stats().arena_bytes >= 100_000);
    assert_eq!(object.body().chunks()[0][..], [1; 100_000]);
    drop(object);
    assert_eq!(cache.stats().arena_bytes, 0);
}

#[test]
fn what_is_made_of_a_response_goes_with_it() {
    let cache = cache_of(1 << 20);
    let derive = |original: &Object| {
        let key = KeyRef { scope: 2, ..key("/") };
        let head =
            Head { derived_from: NonZeroU64::new(original.body().id()), ..head("", "", fresh()) };
        cache.insert_derived(&key, head, Body::from(Bytes::from_static(b"made")), original)
    };
    let old = store(&cache, "/", "", "", "old");
    assert!(derive(&old));
    assert_eq!(cache.stats().objects, 2);
    // Validated, it is another object with the same body.
    let (validated, _) = cache.insert(&key("/"), head("", "", fresh()), old.body().clone(), None);
    assert!(derive(&old) && derive(&validated));
    assert_eq!(cache.stats().objects, 2);
    // What is still being made when its original goes is not stored.
    assert_eq!(cache.purge_scopes(&[1, 2].into(), PurgeMode::Remove), 2);
    assert!(!derive(&old));
    assert_eq!(cache.stats().objects, 0);
    let new = store(&cache, "/", "", "", "new");
    assert!(!derive(&old) && derive(&new));
    assert_eq!(cache.stats().objects, 2);
}
