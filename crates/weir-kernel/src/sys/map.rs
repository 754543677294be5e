//! Maps: arrays of one value that the process sees as memory, and arrays of sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::{MAP_CREATE, MAP_DELETE, MAP_UPDATE, NAME_BYTES, bpf, bpf_open, name};
use crate::error::KernelError;

const ARRAY: u32 = 2;
const REUSEPORT_SOCKARRAY: u32 = 20;

/// `BPF_F_MMAPABLE` (Linux 5.5).
const MMAPABLE: u32 = 1 << 10;

/// The beginning of what `BPF_MAP_CREATE` takes.
#[repr(C)]
struct Create {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; NAME_BYTES],
}

/// What `BPF_MAP_*_ELEM` take.
#[repr(C)]
struct Element {
    map_fd: u32,
    // The addresses that follow are aligned to 8 bytes; what is between must be zero.
    gap: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// An array map of one value, which is words of 64 bits and mapped into the process: both sides
/// read and write it without a system call. Programs find it by its descriptor.
#[derive(Debug)]
pub(crate) struct Mapped {
    fd: OwnedFd,
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the value alone, and what is in it is atomic.
#[allow(unsafe_code, reason = "a mapping is an address")]
unsafe impl Send for Mapped {}
// SAFETY: as above; there is no access but by atomics.
#[allow(unsafe_code, reason = "a mapping is an address")]
unsafe impl Sync for Mapped {}

impl Mapped {
    /// So many words, all zero.
    pub(crate) fn new(label: &str, words: usize) -> Result<Mapped, KernelError> {
        let too_many =
            KernelError::TooMany { what: "words of a map", found: words, max: WORDS_MAX };
        if words == 0 || words > WORDS_MAX {
            return Err(too_many);
        }
        let fd = create(label, ARRAY, (words * 8) as u32, 1, MMAPABLE)
            .map_err(|e| KernelError::bpf("making a map", e))?;
        let map = |e: rustix::io::Errno| KernelError::bpf("mapping a map", e.into());
        let start = map_shared(&fd, words * 8).map_err(map)?;
        Ok(Mapped { fd, start, words })
    }

    /// The descriptor that programs name it by.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// How many words it has.
    pub(crate) fn len(&self) -> usize {
        self.words
    }

    /// Its words.
    #[allow(unsafe_code, reason = "a mapping is an address")]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many bytes, aligned to pages, and lives as long as `self`.
        // Others write it while we look, and all of them by atomic operations or by whole aligned
        // words, which is what `AtomicU64` is for.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Writes words one after another, for programs that are not loaded yet.
    pub(crate) fn fill(&self, words: impl IntoIterator<Item = u64>) {
        for (place, word) in self.words().iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code, reason = "a mapping is an address")]
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and nobody borrows from it any more. It
        // fails only for wrong arguments.
        let _unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// Words of one map: the verifier follows offsets below 2^29 bytes (`BPF_MAX_VAR_OFF`).
const WORDS_MAX: usize = 1 << 26;

#[allow(unsafe_code, reason = "a system call")]
fn map_shared(fd: &OwnedFd, bytes: usize) -> rustix::io::Result<NonNull<AtomicU64>> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses the place, so that no other memory is touched.
    let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) }?;
    NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)
}

/// An array of listening sockets, of which a steering program chooses. Sockets that close leave it
/// by themselves.
#[derive(Debug)]
pub(crate) struct SocketArray {
    fd: OwnedFd,
}

impl SocketArray {
    /// Room for so many, all empty.
    pub(crate) fn new(places: usize) -> Result<SocketArray, KernelError> {
        let fd = create("weir_sockets", REUSEPORT_SOCKARRAY, 8, places as u32, 0)
            .map_err(|e| KernelError::bpf("making an array of sockets", e))?;
        Ok(SocketArray { fd })
    }

    /// The descriptor that programs name it by.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Puts a listening socket of a SO_REUSEPORT group into a place, or in the place of another.
    #[allow(unsafe_code, reason = "a system call")]
    pub(crate) fn put(&self, place: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (key, value) = (place as u32, u64::from(socket.as_raw_fd().cast_unsigned()));
        let mut element = self.element(&key);
        element.value = address(&value);
        // SAFETY: key and value live until the call returns and have the map's sizes, 4 and 8.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map(drop)
    }

    /// Empties a place.
    #[allow(unsafe_code, reason = "a system call")]
    pub(crate) fn remove(&self, place: usize) -> io::Result<()> {
        let key = place as u32;
        let mut element = self.element(&key);
        // SAFETY: the key lives until the call returns and has the map's size, 4.
        unsafe { bpf(MAP_DELETE, &mut element) }.map(drop)
    }

    fn element(&self, key: &u32) -> Element {
        let map_fd = self.fd.as_raw_fd().cast_unsigned();
        Element { map_fd, gap: 0, key: address(key), value: 0, flags: 0 }
    }
}

impl AsFd for SocketArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A map with keys of 4 bytes.
#[allow(unsafe_code, reason = "a system call")]
fn create(label: &str, kind: u32, value: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Create {
        kind,
        key_size: 4,
        value_size: value,
        max_entries: entries,
        flags,
        inner_map_fd: 0,
        numa_node: 0,
        name: name(label),
    };
    // SAFETY: `Create` is the beginning of the command's attributes, without addresses.
    unsafe { bpf_open(MAP_CREATE, &mut attributes) }
}

/// An address as attributes have it.
pub(super) fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of).addr() as u64
}
