//! The body's way from writer to readers and into the index.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use weir_arena::Arena;

use super::*;
use crate::error::CacheError;
use crate::eviction::Policy;
use crate::key::KeyRef;
use crate::limits::{HEAP_BODY_BYTES_MAX, STREAM_AHEAD_BYTES_MAX};
use crate::object::Head;
use crate::policy::{Freshness, RequestDirectives};
use crate::store::{Cache, Lookup, PurgeMode, Settings};
use crate::test_support::headers;

const OBJECT_MAX: u64 = 4 << 20;
const KEY: KeyRef<'_> = KeyRef { scope: 1, authority: "a.example", path_and_query: "/" };

fn cache_with_arena(arena_bytes: u64) -> Cache {
    let settings =
        Settings { memory_bytes: 16 << 20, object_bytes_max: OBJECT_MAX, policy: Policy::Gdsf };
    Cache::new(settings, Arena::new(arena_bytes).unwrap())
}

fn cache() -> Cache {
    cache_with_arena(32 << 20)
}

fn collapse(cache: &Cache) -> Collapse {
    cache.collapse(&KEY, &HeaderMap::new(), &RequestDirectives::default(), 0)
}

fn lead(cache: &Cache) -> Lead {
    match collapse(cache) {
        Collapse::Lead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

fn head() -> Head {
    Head::new(StatusCode::OK, HeaderMap::new(), Freshness::for_lifetime(0, 1_000_000))
}

fn start(cache: &Cache, declared: Option<u64>) -> (FillWriter, FillReader) {
    match lead(cache).start(head(), declared) {
        Started::Fill { writer, reader } => (writer, reader),
        Started::Pass => panic!("passed"),
    }
}

fn stored(cache: &Cache) -> Option<Arc<crate::object::Object>> {
    match cache.lookup(&KEY, &HeaderMap::new(), &RequestDirectives::default(), 1) {
        Lookup::Fresh(object) => Some(object),
        _ => None,
    }
}

/// One poll, without anyone to wake.
fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// For futures that must not wait.
fn now<F: Future>(future: F) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("waits"),
    }
}

/// What a reader can have without waiting, and how it ends: `Some(Ok)` well, `None` not yet.
fn drain(reader: &mut FillReader) -> (Vec<u8>, Option<Result<(), CacheError>>) {
    let mut got = Vec::new();
    loop {
        match poll(reader.chunk()) {
            Poll::Ready(Some(Ok(chunk))) => {
                assert!(!chunk.is_empty());
                got.extend_from_slice(&chunk);
            }
            Poll::Ready(Some(Err(error))) => return (got, Some(Err(error))),
            Poll::Ready(None) => return (got, Some(Ok(()))),
            Poll::Pending => return (got, None),
        }
    }
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Writes `body` in pieces of `piece` bytes.
fn write_all(writer: &mut FillWriter, body: &Bytes, piece: usize) {
    for start in (0..body.len()).step_by(piece) {
        now(writer.write(body.slice(start..body.len().min(start + piece)))).unwrap();
    }
}

#[test]
fn bodies_of_all_sizes_are_read_while_written_and_stored_whole() {
    let lens = [0, 1, 1000, HEAP_BODY_BYTES_MAX, HEAP_BODY_BYTES_MAX + 1, 70_000, 3_000_000];
    for len in lens {
        for piece in [1, 1000, 8192, 300_000] {
            if len / piece > 20_000 {
                continue;
            }
            for declared in [Some(len as u64), None] {
                let context = format!("{len} in pieces of {piece}, declared {declared:?}");
                let cache = cache();
                let body = bytes(len);
                let (mut writer, mut reader) = start(&cache, declared);
                let mut late = writer.fill().reader().unwrap();
                let mut got = Vec::new();
                for start in (0..len).step_by(piece) {
                    now(writer.write(body.slice(start..len.min(start + piece)))).unwrap();
                    let (part, end) = drain(&mut reader);
                    assert!(end.is_none(), "{context}");
                    got.extend(part);
                }
                let finished = writer.finish(Some(headers("x-sum: 1"))).unwrap();
                assert!(matches!(finished, Finished::Stored(_)), "{context}");
                assert_eq!(drain(&mut reader), (Vec::new(), Some(Ok(()))), "{context}");
                assert_eq!(got, body, "{context}");
                assert_eq!(drain(&mut late), (body.to_vec(), Some(Ok(()))), "{context}");
                assert_eq!(late.trailers().unwrap(), headers("x-sum: 1"));
                let object = stored(&cache).unwrap();
                assert_eq!(object.body().chunks().concat(), body, "{context}");
                assert_eq!(object.trailers().unwrap(), &headers("x-sum: 1"));
                let small = len <= HEAP_BODY_BYTES_MAX;
                let chunks = object.body().chunks();
                assert!(!small || chunks.len() <= 1, "{context}");
                assert_eq!(cache.stats().arena_bytes == 0, small, "{context}");
            }
        }
    }
}

#[test]
fn readers_get_the_stored_pages_themselves() {
    let cache = cache();
    let body = bytes(100_000);
    let (mut writer, mut reader) = start(&cache, Some(100_000));
    now(writer.write(body.clone())).unwrap();
    let chunk = now(reader.chunk()).unwrap().unwrap();
    writer.finish(None).unwrap();
    let object = stored(&cache).unwrap();
    assert_eq!(chunk.as_ptr(), object.body().chunks()[0].as_ptr());
    assert_eq!(chunk.len(), 100_000);
}

#[test]
fn a_fill_goes_on_without_readers() {
    let cache = cache();
    let (mut writer, reader) = start(&cache, None);
    drop(reader);
    write_all(&mut writer, &bytes(500_000), 10_000);
    assert!(matches!(writer.finish(None), Ok(Finished::Stored(_))));
    assert_eq!(stored(&cache).unwrap().body().len(), 500_000);
}

#[test]
fn a_waiting_reader_is_woken() {
    struct Flag(std::sync::atomic::AtomicU32);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let cache = cache();
    let (mut writer, mut reader) = start(&cache, None);
    let flag = Arc::new(Flag(0.into()));
    let waker = Waker::from(Arc::clone(&flag));
    let mut cx = Context::from_waker(&waker);
    let woken = || flag.0.load(std::sync::atomic::Ordering::SeqCst);
    assert!(reader.poll_chunk(&mut cx).is_pending());
    now(writer.write(bytes(10))).unwrap();
    assert_eq!(woken(), 1);
    assert!(reader.poll_chunk(&mut cx).is_ready() && reader.poll_chunk(&mut cx).is_pending());
    writer.finish(None).unwrap();
    assert_eq!(woken(), 2);
}

#[test]
fn torn_bodies_are_torn_for_readers_and_not_stored() {
    type End = fn(FillWriter);
    let ends: [(&str, End, CacheError); 4] = [
        ("dropped", drop, CacheError::Abandoned),
        ("failed", |w| w.fail("reset"), CacheError::Source("reset".into())),
        (
            "too short",
            |w| {
                w.finish(None).unwrap_err();
            },
            CacheError::Shorter { declared_bytes: 20_000, got_bytes: 10_000 },
        ),
        (
            "too long",
            |mut w| {
                now(w.write(bytes(10_001))).unwrap_err();
            },
            CacheError::Longer { declared_bytes: 20_000 },
        ),
    ];
    for (name, end, expect) in ends {
        let cache = cache();
        let (mut writer, mut reader) = start(&cache, Some(20_000));
        now(writer.write(bytes(10_000))).unwrap();
        end(writer);
        let (got, error) = drain(&mut reader);
        assert_eq!((got.len(), error), (10_000, Some(Err(expect))), "{name}");
        assert!(stored(&cache).is_none(), "{name}");
        let stats = cache.stats();
        assert_eq!((stats.flights, stats.fills_failed, stats.objects), (0, 1, 0), "{name}");
        drop(reader);
        assert_eq!(cache.stats().arena_bytes, 0, "{name}");
    }
}

#[test]
fn exactly_the_declared_length_and_then_more_is_torn() {
    let cache = cache();
    let (mut writer, _reader) = start(&cache, Some(5));
    now(writer.write(bytes(5))).unwrap();
    let error = now(writer.write(bytes(1))).unwrap_err();
    assert_eq!(error, CacheError::Longer { declared_bytes: 5 });
    drop(writer);
    assert!(stored(&cache).is_none());
}

#[test]
fn a_purge_during_a_fill_keeps_it_out_of_the_index() {
    type Purge = fn(&Cache);
    let purges: [(&str, Purge); 3] = [
        ("key", |c| assert_eq!(c.purge(&KEY, PurgeMode::Remove), 0)),
        ("scope", |c| assert_eq!(c.purge_scope(1, PurgeMode::Remove), 0)),
        ("soft", |c| assert_eq!(c.purge(&KEY, PurgeMode::Expire { now_ms: 1 }), 0)),
    ];
    for (name, purge) in purges {
        let cache = cache();
        let (mut writer, mut reader) = start(&cache, None);
        now(writer.write(bytes(100))).unwrap();
        purge(&cache);
        // Who comes after the purge asks the source again.
        let next = lead(&cache);
        now(writer.write(bytes(100))).unwrap();
        let finished = writer.finish(None).unwrap();
        assert!(matches!(finished, Finished::NotStored(NotStored::Purged)), "{name}");
        assert_eq!(drain(&mut reader).0.len(), 200, "{name}");
        assert!(stored(&cache).is_none(), "{name}");
        next.complete(head(), bytes(5).into(), None);
        assert_eq!(stored(&cache).unwrap().body().len(), 5, "{name}");
    }
    let cache = cache();
    let (writer, _reader) = start(&cache, None);
    cache.purge(&KeyRef { path_and_query: "/other", ..KEY }, PurgeMode::Remove);
    cache.purge_scope(2, PurgeMode::Remove);
    assert!(matches!(writer.finish(None), Ok(Finished::Stored(_))));
}

#[test]
fn a_body_declared_too_large_is_passed_at_once() {
    let cache = cache();
    assert!(matches!(lead(&cache).start(head(), Some(OBJECT_MAX + 1)), Started::Pass));
    assert!(matches!(collapse(&cache), Collapse::Pass(_)));
}

/// Reads one byte's worth of progress: the next chunk.
fn step(reader: &mut FillReader) -> usize {
    match poll(reader.chunk()) {
        Poll::Ready(Some(Ok(chunk))) => chunk.len(),
        _ => 0,
    }
}

#[test]
fn a_body_that_outgrows_the_limit_becomes_a_stream() {
    let cache = cache();
    let (mut writer, mut fast) = start(&cache, None);
    let mut slow = writer.fill().reader().unwrap();
    let piece = bytes(100_000);
    let mut written = 0;
    while written + piece.len() as u64 <= OBJECT_MAX {
        now(writer.write(piece.clone())).unwrap();
        written += piece.len() as u64;
    }
    assert!(matches!(collapse(&cache), Collapse::Follow(_)));
    // The next does not fit. Nobody has read anything: the writer waits, and nobody joins.
    assert!(poll(writer.write(piece.clone())).is_pending());
    assert!(matches!(collapse(&cache), Collapse::Lead(_)));
    assert_eq!(cache.stats().fills_streamed, 1);
    // One fast reader does not help while another is slow.
    let fast_got = drain(&mut fast).0.len() as u64;
    assert_eq!(fast_got, written);
    assert!(poll(writer.write(piece.clone())).is_pending());
    let mut slow_got = 0;
    while written - slow_got + piece.len() as u64 > STREAM_AHEAD_BYTES_MAX {
        assert!(poll(writer.write(piece.clone())).is_pending());
        slow_got += step(&mut slow) as u64;
    }
    now(writer.write(piece.clone())).unwrap();
    written += piece.len() as u64;
    // What both have read is given up, and with it the possibility to join.
    assert_eq!(writer.fill().reader().unwrap_err(), CacheError::TooLate);
    drop(slow);
    assert_eq!(fast_got + drain(&mut fast).0.len() as u64, written);
    assert_eq!(cache.stats().arena_bytes, 0);
    for _ in 0..100 {
        now(writer.write(piece.clone())).unwrap();
        assert_eq!(drain(&mut fast).0, piece);
    }
    let finished = writer.finish(None).unwrap();
    assert!(matches!(finished, Finished::NotStored(NotStored::TooLarge)));
    assert_eq!(drain(&mut fast), (Vec::new(), Some(Ok(()))));
    assert!(stored(&cache).is_none());
}

#[test]
fn a_stream_whose_last_reader_left_ends() {
    let cache = cache();
    let (mut writer, reader) = start(&cache, None);
    write_all(&mut writer, &bytes(OBJECT_MAX as usize), 500_000);
    drop(reader);
    assert_eq!(now(writer.write(bytes(1))).unwrap_err(), CacheError::NoReaders);
    assert_eq!(cache.stats().fills_failed, 1);
}

#[test]
fn a_full_arena_makes_a_stream_of_the_fill() {
    for declared in [None, Some(1_000_000)] {
        let cache = cache_with_arena(100 << 10);
        let (mut writer, mut reader) = start(&cache, declared);
        let body = bytes(1_000_000);
        let mut got = Vec::new();
        for start in (0..body.len()).step_by(10_000) {
            now(writer.write(body.slice(start..start + 10_000))).unwrap();
            got.extend(drain(&mut reader).0);
        }
        let finished = writer.finish(None).unwrap();
        assert!(matches!(finished, Finished::NotStored(NotStored::TooLarge)), "{declared:?}");
        assert!(got == body, "{declared:?}");
        assert_eq!(cache.stats().arena_full, 1);
    }
}

#[test]
fn a_fill_takes_its_room_from_what_is_worth_less() {
    let cache = cache_with_arena(1 << 20);
    let old = KeyRef { path_and_query: "/old", ..KEY };
    let mut destination = cache.destination(900_000).unwrap();
    destination.write(&[1; 900_000]).unwrap();
    cache.insert(&old, head(), destination.freeze(), None);
    let (mut writer, _reader) = start(&cache, Some(500_000));
    write_all(&mut writer, &bytes(500_000), 50_000);
    assert!(matches!(writer.finish(None), Ok(Finished::Stored(_))));
    assert_eq!((cache.stats().objects, cache.stats().evictions), (1, 1));
}

/// One writer and many readers on threads of their own, each at its own pace.
#[test]
fn readers_on_other_threads_get_every_byte() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = bytes(2_000_000);
    for object_max in [OBJECT_MAX, 500_000] {
        let settings =
            Settings { memory_bytes: 16 << 20, object_bytes_max: object_max, policy: Policy::Gdsf };
        let cache = Cache::new(settings, Arena::new(32 << 20).unwrap());
        let (mut writer, reader) = start(&cache, None);
        let mut readers: Vec<FillReader> =
            (0..7).map(|_| writer.fill().reader().unwrap()).collect();
        readers.push(reader);
        std::thread::scope(|scope| {
            for (pace, mut reader) in readers.into_iter().enumerate() {
                let body = &body;
                scope.spawn(move || {
                    runtime().block_on(async {
                        let mut got = 0;
                        while let Some(chunk) = reader.chunk().await {
                            let chunk = chunk.unwrap();
                            assert!(chunk == body[got..got + chunk.len()]);
                            got += chunk.len();
                            for _ in 0..pace * 3 {
                                std::thread::yield_now();
                            }
                        }
                        assert_eq!(got, body.len());
                    });
                });
            }
            let body = &body;
            scope.spawn(move || {
                runtime().block_on(async {
                    for start in (0..body.len()).step_by(7_777) {
                        let end = body.len().min(start + 7_777);
                        writer.write(body.slice(start..end)).await.unwrap();
                    }
                    writer.finish(None).unwrap();
                });
            });
        });
        assert_eq!(stored(&cache).is_some(), object_max == OBJECT_MAX);
        assert_eq!(cache.stats().flights, 0);
    }
}

#[test]
fn who_waits_is_told_what_has_become_of_it() {
    let cache = cache();
    let (mut writer, mut reader) = start(&cache, None);
    now(writer.write(Bytes::from_static(b"all"))).unwrap();
    assert!(poll(reader.stored()).is_pending());
    writer.finish(None).unwrap();
    let object = now(reader.stored()).unwrap().unwrap();
    assert!(Arc::ptr_eq(&object, &stored(&cache).unwrap()));
    assert!(cache.holds(&object));
    // Nothing was read meanwhile.
    assert_eq!(now(reader.chunk()).unwrap().unwrap(), "all");
    cache.purge(&KEY, PurgeMode::Remove);
    assert!(!cache.holds(&object));

    let (writer, mut reader) = start(&cache, None);
    assert!(poll(reader.stored()).is_pending());
    writer.fail("gone");
    assert!(now(reader.stored()).is_err());
}

#[test]
fn who_waits_for_what_turns_out_too_large_is_woken() {
    let cache = cache();
    let (mut writer, mut reader) = start(&cache, None);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(pin!(reader.stored()).poll(&mut Context::from_waker(&waker)).is_pending());
    let piece = Bytes::from(vec![0; OBJECT_MAX as usize + 1]);
    // It is further ahead than a stream may be: the writer waits for its reader now.
    now(writer.write(Bytes::from_static(b"x"))).unwrap();
    assert!(pin!(reader.stored()).poll(&mut Context::from_waker(&waker)).is_pending());
    woken.0.store(false, Relaxed);
    assert!(poll(writer.write(piece)).is_pending());
    assert!(woken.0.load(Relaxed));
    assert!(now(reader.stored()).unwrap().is_none());
}

#[derive(Default)]
struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}
