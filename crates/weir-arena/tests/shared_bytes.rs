//! The arena's promise on real sockets: every byte received equals every byte stored, also when the
//! object was dropped, its pages punched and the range refilled while a socket still held it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;

use bytes::Bytes;
use proptest::prelude::*;
use weir_arena::{Arena, ArenaError, PAGE_BYTES, locate};

/// A body that tells where it came from: `seed` and position are in every word.
fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|i| (i << 32) | u64::from(seed));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

fn store(arena: &Arena, body: &[u8]) -> Bytes {
    let mut extent = arena.reserve(body.len()).unwrap();
    for part in body.chunks(10_000) {
        extent.write(part).unwrap();
    }
    extent.freeze()
}

/// Queues all of `body` on the socket by sendfile, as a stream does.
fn send(socket: &UnixStream, body: &Bytes) {
    let location = locate(body).unwrap();
    let (mut offset, mut left) = (location.offset, body.len());
    while left > 0 {
        let sent = rustix::fs::sendfile(socket, location.fd, Some(&mut offset), left).unwrap();
        assert!(sent > 0, "sendfile made no progress");
        left -= sent;
    }
}

#[test]
fn bytes_read_back_through_the_mapping() {
    let arena = Arena::new(1 << 20).unwrap();
    let body = pattern(7, 100_001);
    let stored = store(&arena, &body);
    assert_eq!(stored, body);
    assert_eq!(stored.slice(4090..4100), body[4090..4100]);
    assert!(locate(&body).is_none(), "the heap is no arena");
}

#[test]
fn pages_are_counted_trimmed_and_given_back() {
    let arena = Arena::new(10 * PAGE_BYTES as u64).unwrap();
    let mut extent = arena.reserve(8 * PAGE_BYTES).unwrap();
    assert_eq!(arena.used(), 8 * PAGE_BYTES as u64);
    assert!(matches!(arena.reserve(3 * PAGE_BYTES), Err(ArenaError::Full { .. })));
    extent.write(&pattern(1, PAGE_BYTES + 1)).unwrap();
    let published = extent.published(0..PAGE_BYTES);
    let frozen = extent.freeze();
    assert_eq!(arena.used(), 2 * PAGE_BYTES as u64, "the tail went back although a part is shared");
    drop(frozen);
    assert_eq!(arena.used(), 2 * PAGE_BYTES as u64);
    assert_eq!(published, pattern(1, PAGE_BYTES + 1)[..PAGE_BYTES]);
    drop(published);
    assert_eq!(arena.used(), 0);
}

#[test]
fn an_extent_refuses_what_does_not_fit() {
    let arena = Arena::new(1 << 20).unwrap();
    let mut extent = arena.reserve(10).unwrap();
    extent.write(&[1; PAGE_BYTES]).unwrap();
    assert_eq!(extent.write(&[1]).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(extent.freeze().len(), PAGE_BYTES);
}

#[test]
#[should_panic(expected = "published beyond the fill")]
fn unwritten_bytes_are_never_published() {
    let mut extent = Arena::new(1 << 20).unwrap().reserve(100).unwrap();
    extent.write(b"abc").unwrap();
    let _ = extent.published(0..4);
}

#[test]
fn an_arena_lives_as_long_as_its_bytes() {
    let arena = Arena::new(1 << 20).unwrap();
    let body = pattern(3, 50_000);
    let stored = store(&arena, &body);
    drop(arena);
    let (left, mut right) = UnixStream::pair().unwrap();
    let reader = thread::spawn(move || {
        let mut received = Vec::new();
        right.read_to_end(&mut received).unwrap();
        received
    });
    send(&left, &stored);
    drop(left);
    assert_eq!(reader.join().unwrap(), body);
}

#[test]
fn readers_on_other_threads_see_what_was_written() {
    let arena = Arena::new(8 << 20).unwrap();
    let mut extent = arena.reserve(4 << 20).unwrap();
    let body = pattern(9, 4 << 20);
    let readers: Vec<_> = body
        .chunks(64 << 10)
        .map(|part| {
            let start = extent.len();
            extent.write(part).unwrap();
            let published = extent.published(start..extent.len());
            let expected = part.to_vec();
            thread::spawn(move || assert_eq!(published, expected))
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
}

/// The case that corrupts when a freed page is overwritten in place instead of punched.
#[test]
fn a_freed_and_refilled_range_never_changes_what_is_in_flight() {
    let arena = Arena::new(64 * PAGE_BYTES as u64).unwrap();
    for round in 0..50u32 {
        let body = pattern(round, 20 * PAGE_BYTES);
        let stored = store(&arena, &body);
        let (left, mut right) = UnixStream::pair().unwrap();
        send(&left, &stored);
        drop(stored);
        let refills: Vec<_> =
            (0..3).map(|i| store(&arena, &pattern(u32::MAX - i, 21 * PAGE_BYTES))).collect();
        let mut received = vec![0; body.len()];
        right.read_exact(&mut received).unwrap();
        assert!(received == body, "round {round}: bytes in flight changed");
        drop(refills);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store(usize),
    Send(usize),
    Evict(usize),
    Receive(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1usize..60_000).prop_map(Step::Store),
        2 => any::<usize>().prop_map(Step::Send),
        2 => any::<usize>().prop_map(Step::Evict),
        1 => any::<usize>().prop_map(Step::Receive),
    ]
}

struct InFlight {
    sender: UnixStream,
    receiver: UnixStream,
    expected: Vec<u8>,
}

impl InFlight {
    fn receive_and_check(mut self) {
        drop(self.sender);
        let mut received = Vec::new();
        self.receiver.read_to_end(&mut received).unwrap();
        assert!(received == self.expected, "what arrived is not what was stored");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_sent_arrives_unchanged(steps in proptest::collection::vec(step(), 1..80)) {
        // Small enough that ranges are reused all the time.
        let arena = Arena::new(64 * PAGE_BYTES as u64).unwrap();
        let mut stored: Vec<(Bytes, Vec<u8>)> = Vec::new();
        let mut in_flight: Vec<InFlight> = Vec::new();
        for (seed, step) in steps.into_iter().enumerate() {
            match step {
                Step::Store(len) => {
                    let body = pattern(seed as u32, len);
                    while arena.used() + (len + PAGE_BYTES) as u64 > arena.limit() {
                        stored.remove(0);
                    }
                    stored.push((store(&arena, &body), body));
                }
                Step::Send(i) if !stored.is_empty() => {
                    let (bytes, body) = &stored[i % stored.len()];
                    let (sender, receiver) = UnixStream::pair().unwrap();
                    send(&sender, bytes);
                    in_flight.push(InFlight { sender, receiver, expected: body.clone() });
                }
                Step::Evict(i) if !stored.is_empty() => {
                    stored.swap_remove(i % stored.len());
                }
                Step::Receive(i) if !in_flight.is_empty() => {
                    in_flight.swap_remove(i % in_flight.len()).receive_and_check();
                }
                _ => {}
            }
            for (bytes, body) in &stored {
                prop_assert!(bytes == body, "a stored body changed");
            }
        }
        in_flight.into_iter().for_each(InFlight::receive_and_check);
        drop(stored);
        prop_assert_eq!(arena.used(), 0);
    }
}
