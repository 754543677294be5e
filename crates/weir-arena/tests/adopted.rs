//! Files of others as stored bytes, and stored bytes in the eyes of others.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_arena::{Arena, ArenaError, Window, locate};

const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

fn memfd(content: &[u8], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("weir-test", flags).unwrap();
    let mut file = std::fs::File::from(fd);
    file.write_all(content).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// What sendfile would send.
fn at_location(bytes: &Bytes) -> Vec<u8> {
    let location = locate(bytes).unwrap();
    let mut content = vec![0; bytes.len()];
    let read = rustix::io::pread(location.fd, &mut content, location.offset).unwrap();
    content.truncate(read);
    content
}

#[test]
fn adopted_files_are_stored_bytes() {
    let arena = Arena::new(16 << 20).unwrap();
    for len in [1, 4095, 4096, 65_536, 65_537, 1_000_000] {
        let content = pattern(len, 7);
        let bytes = arena.adopt(memfd(&content, SEALS), len).unwrap();
        assert_eq!(bytes, content);
        assert_eq!(at_location(&bytes), content, "{len} bytes by their location");
        let part = bytes.slice(len / 2..);
        assert_eq!(at_location(&part), content[len / 2..], "a part of {len} bytes");
        assert_eq!(arena.used(), len.next_multiple_of(4096) as u64);
        drop(bytes);
        assert_eq!(part, content[len / 2..], "a part keeps the whole");
        drop(part);
        assert_eq!(arena.used(), 0);
    }
    assert!(arena.adopt(memfd(b"", SEALS), 0).unwrap().is_empty());
}

#[test]
fn what_may_still_change_is_not_adopted() {
    let arena = Arena::new(1 << 20).unwrap();
    let all = [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW];
    for missing in all {
        let seals = all.into_iter().filter(|seal| *seal != missing).collect();
        let refused = arena.adopt(memfd(b"content", seals), 7).unwrap_err();
        assert!(matches!(refused, ArenaError::NotAdopted { .. }), "{missing:?}: {refused}");
    }
    for len in [6, 8] {
        let other = arena.adopt(memfd(b"content", SEALS), len).unwrap_err();
        assert!(other.to_string().contains("it has 7 bytes"), "{other}");
    }
    let keeps = memfd(b"content", SealFlags::empty());
    let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&keeps, flags, 0, 1 << 16).unwrap();
    rustix::fs::fcntl_add_seals(&keeps, SEALS).unwrap();
    let keeps = arena.adopt(keeps, 7).unwrap_err();
    assert!(keeps.to_string().contains("behind its end"), "{keeps}");
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(arena.adopt(file.into(), 1).is_err(), "no memfd");
    assert_eq!(arena.used(), 0);
}

#[test]
fn the_limit_holds_for_adopted_files_too() {
    let arena = Arena::new(1 << 20).unwrap();
    let first = arena.adopt(memfd(&pattern(1 << 19, 1), SEALS), 1 << 19).unwrap();
    let extent = arena.reserve(1 << 18).unwrap();
    let full = arena.adopt(memfd(&pattern(1 << 19, 2), SEALS), 1 << 19).unwrap_err();
    assert!(matches!(full, ArenaError::Full { .. }), "{full}");
    drop((first, extent));
    assert_eq!(arena.used(), 0);
    arena.adopt(memfd(&pattern(1 << 19, 2), SEALS), 1 << 19).unwrap();
}

#[test]
fn descriptors_and_addresses_are_used_again() {
    let arena = Arena::new(64 << 20).unwrap();
    let mut kept: Vec<(Vec<u8>, Bytes)> = Vec::new();
    for round in 0..600_usize {
        let content = pattern(4096 + round * 37 % 200_000, round as u8);
        let fd = memfd(&content, SEALS);
        let number = fd.as_raw_fd();
        let bytes = arena.adopt(fd, content.len()).unwrap();
        assert!(number < 512, "descriptors leak: {number}");
        kept.push((content, bytes));
        if kept.len() > 100 {
            let (content, bytes) = kept.swap_remove(round * 7919 % kept.len());
            assert_eq!(at_location(&bytes), content);
        }
    }
    for (content, bytes) in kept {
        assert_eq!(bytes, content);
    }
    assert_eq!(arena.used(), 0);
}

#[test]
fn what_takes_too_many_descriptors_is_copied() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(800), ..limit }).unwrap();
    let arena = Arena::new(64 << 20).unwrap();
    let kept: Vec<Bytes> = (0..150)
        .map(|seed| arena.adopt(memfd(&pattern(70_000, seed), SEALS), 70_000).unwrap())
        .collect();
    setrlimit(Resource::Nofile, limit).unwrap();
    let fds: HashSet<i32> =
        kept.iter().map(|bytes| locate(bytes).unwrap().fd.as_raw_fd()).collect();
    assert_eq!(fds.len(), 101, "an eighth, and the arena's own");
    for (seed, bytes) in kept.iter().enumerate() {
        assert!(*bytes == pattern(70_000, seed as u8) && at_location(bytes) == *bytes, "{seed}");
    }
    assert_eq!(arena.used(), 150 * 70_000_u64.next_multiple_of(4096));
    drop(kept);
    assert_eq!(arena.used(), 0);
}

#[test]
fn adopted_bytes_are_read_on_other_threads() {
    let arena = Arena::new(1 << 20).unwrap();
    let content = pattern(300_000, 3);
    let bytes = arena.adopt(memfd(&content, SEALS), content.len()).unwrap();
    // The arena lives as long as its bytes.
    drop(arena);
    let reader = std::thread::spawn(move || (at_location(&bytes), bytes.to_vec()));
    let (by_location, read) = reader.join().unwrap();
    assert!(by_location == content && read == content);
}

#[test]
fn a_window_shows_what_is_stored() {
    let arena = Arena::new(1 << 20).unwrap();
    let content = pattern(100_000, 5);
    let mut extent = arena.reserve(content.len()).unwrap();
    extent.write(&content).unwrap();
    let bytes = extent.freeze();
    let fd = arena.reading_end().unwrap();
    let offset = arena.offset_of(&bytes[10_000..]).unwrap();
    let window = Window::map(&fd, offset, 50_000).unwrap();
    assert_eq!(window[..], content[10_000..60_000]);
    assert!(arena.offset_of(&content).is_none());
    assert!(Window::map(&fd, u64::MAX, 1).is_err());
    assert!(Window::map(memfd(b"content", SealFlags::GROW), 0, 1).is_err(), "it may shrink");
    assert!(Window::map(&fd, 0, 0).unwrap().is_empty());
}

#[test]
fn nobody_can_write_by_the_reading_end() {
    let arena = Arena::new(1 << 20).unwrap();
    let fd = arena.reading_end().unwrap();
    assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
    let file = std::fs::File::from(fd.as_fd().try_clone_to_owned().unwrap());
    assert!(file.set_len(0).is_err());
}
