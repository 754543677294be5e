//! The index and its eviction against a plain map, with random operations.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use proptest::prelude::*;
use weir_arena::Arena;

use super::*;
use crate::key::KeyRef;
use crate::object::Head;
use crate::policy::{Freshness, RequestDirectives};
use crate::selectors::Selectors;

const MEMORY_BYTES: u64 = 200_000;

#[derive(Clone, Debug)]
enum Step {
    Insert { path: u8, variant: u8, len: usize },
    Lookup { path: u8, variant: u8 },
    Purge { path: u8 },
    PurgeScope { scope: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = 0u8..24;
    let variant = 0u8..3;
    // Both sides of the limit between heap and arena, and more than the cache stores.
    let len = prop_oneof![4 => 0usize..2000, 2 => 14_000usize..30_000, 1 => 30_000usize..120_000];
    let step = prop_oneof![
        6 => (path.clone(), variant.clone(), len)
            .prop_map(|(path, variant, len)| Step::Insert { path, variant, len }),
        8 => (path.clone(), variant).prop_map(|(path, variant)| Step::Lookup { path, variant }),
        1 => path.prop_map(|path| Step::Purge { path }),
        1 => (0u8..2).prop_map(|scope| Step::PurgeScope { scope }),
    ];
    proptest::collection::vec(step, 1..200)
}

fn request(variant: u8) -> HeaderMap {
    let mut request = HeaderMap::new();
    request.insert("x-variant", HeaderValue::from(u16::from(variant)));
    request
}

fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_mul(31) + i * 7) as u8).collect()
}

struct Run {
    cache: Cache,
    /// What was stored last and not purged; the cache may have evicted it.
    model: HashMap<(u8, u8), Vec<u8>>,
}

impl Run {
    fn key(path: u8, text: &str) -> KeyRef<'_> {
        KeyRef { scope: u64::from(path % 2), authority: "a", path_and_query: text }
    }

    fn insert(&mut self, seed: u64, path: u8, variant: u8, len: usize) {
        let text = format!("/{path}");
        let bytes = body(seed, len);
        let Ok(mut destination) = self.cache.destination(len as u64) else { return };
        destination.write(&bytes).unwrap();
        let mut vary = HeaderMap::new();
        vary.insert(http::header::VARY, HeaderValue::from_static("x-variant"));
        let head = Head {
            selectors: Selectors::new(&vary, &request(variant)).unwrap(),
            ..Head::new(StatusCode::OK, vary, Freshness::for_lifetime(1, u64::MAX))
        };
        let key = Run::key(path, &text);
        if self.cache.insert(&key, head, destination.freeze(), None).1 {
            self.model.insert((path, variant), bytes);
        }
    }

    fn lookup(&mut self, tick: u64, path: u8, variant: u8) -> Result<(), TestCaseError> {
        let text = format!("/{path}");
        let plain = RequestDirectives::default();
        match self.cache.lookup(&Run::key(path, &text), &request(variant), &plain, tick) {
            Lookup::Fresh(object) => {
                let got = Bytes::from(object.body().chunks().concat());
                let expect = self.model.get(&(path, variant));
                prop_assert_eq!(Some(&got[..]), expect.map(|bytes| &bytes[..]));
            }
            // Evicted, or never stored: once gone it stays gone.
            Lookup::Miss | Lookup::VaryMiss => {
                self.model.remove(&(path, variant));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        Ok(())
    }
}

proptest! {
    // A case takes some 20 ms in a debug build.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn never_over_the_limit_and_every_hit_is_what_was_stored(
        steps in steps(),
        lru in any::<bool>(),
    ) {
        let policy = if lru { Policy::Lru } else { Policy::Gdsf };
        let settings =
            Settings { memory_bytes: MEMORY_BYTES, object_bytes_max: 100_000, policy };
        let cache = Cache::new(settings, Arena::new(MEMORY_BYTES).unwrap());
        let mut run = Run { cache, model: HashMap::new() };
        for (tick, step) in steps.into_iter().enumerate() {
            let tick = tick as u64;
            match step {
                Step::Insert { path, variant, len } => run.insert(tick, path, variant, len),
                Step::Lookup { path, variant } => run.lookup(tick, path, variant)?,
                Step::Purge { path } => {
                    let text = format!("/{path}");
                    run.cache.purge(&Run::key(path, &text), PurgeMode::Remove);
                    run.model.retain(|(other, _), _| *other != path);
                }
                Step::PurgeScope { scope } => {
                    run.cache.purge_scope(u64::from(scope), PurgeMode::Remove);
                    run.model.retain(|(path, _), _| path % 2 != scope);
                }
            }
            let stats = run.cache.stats();
            prop_assert!(stats.bytes <= stats.limit_bytes, "{stats:?}");
            prop_assert!(stats.objects <= run.model.len() as u64, "{stats:?}");
        }
        run.cache.purge_all(PurgeMode::Remove);
        let stats = run.cache.stats();
        prop_assert_eq!((stats.objects, stats.bytes, stats.arena_bytes), (0, 0, 0));
        prop_assert_eq!(run.cache.inner.memory.lock().reserved_bytes, 0);
    }
}

/// Threads insert, read and purge the same keys: what is read is whole, and the books balance.
#[test]
fn threads_agree() {
    let settings =
        Settings { memory_bytes: MEMORY_BYTES, object_bytes_max: 100_000, policy: Policy::Gdsf };
    let cache = Cache::new(settings, Arena::new(4 * MEMORY_BYTES).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || churn(cache, thread));
        }
    });
    let stats = cache.stats();
    assert!(stats.bytes <= stats.limit_bytes && stats.evictions > 0, "{stats:?}");
    assert_eq!(cache.purge_all(PurgeMode::Remove) as u64, stats.objects);
    let stats = cache.stats();
    assert_eq!((stats.objects, stats.bytes, stats.arena_bytes), (0, 0, 0));
    assert_eq!(cache.inner.memory.lock().reserved_bytes, 0);
}

fn churn(cache: &Cache, thread: u64) {
    let plain = RequestDirectives::default();
    let mut random = thread + 1;
    for tick in 0..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let path = ((random >> 33) % 40) as u8;
        let text = format!("/{path}");
        let key = Run::key(path, &text);
        match (random >> 50) % 8 {
            0..=2 => {
                let len = 100 + (random >> 20) as usize % 30_000;
                let head = Head::new(
                    StatusCode::OK,
                    HeaderMap::new(),
                    Freshness::for_lifetime(1, u64::MAX),
                );
                let Ok(mut destination) = cache.destination(len as u64) else { continue };
                destination.write(&vec![path; len]).unwrap();
                cache.insert(&key, head, destination.freeze(), None);
            }
            3 => {
                cache.purge(&key, PurgeMode::Remove);
            }
            _ => {
                if let Lookup::Fresh(object) = cache.lookup(&key, &HeaderMap::new(), &plain, tick) {
                    let whole = object.body().chunks().iter().all(|c| c.iter().all(|&b| b == path));
                    assert!(whole, "{path}");
                }
            }
        }
    }
}
