//! For tests: which programs and links there are in the whole kernel.

use std::collections::BTreeSet;

use super::bpf;

/// What `BPF_*_GET_NEXT_ID` take.
#[repr(C)]
struct Next {
    start: u32,
    next: u32,
    open_flags: u32,
}

const PROG_GET_NEXT_ID: i32 = 11;
const MAP_GET_NEXT_ID: i32 = 12;
const LINK_GET_NEXT_ID: i32 = 31;

/// The numbers of all programs, maps and links.
pub(crate) fn all() -> [BTreeSet<u32>; 3] {
    [PROG_GET_NEXT_ID, MAP_GET_NEXT_ID, LINK_GET_NEXT_ID].map(|command| {
        let mut found = BTreeSet::new();
        let mut next = Next { start: 0, next: 0, open_flags: 0 };
        // SAFETY: `Next` is the commands' part of the attributes, without addresses.
        #[allow(unsafe_code, reason = "a system call")]
        while unsafe { bpf(command, &mut next) }.is_ok() {
            found.insert(next.next);
            next.start = next.next;
        }
        found
    })
}
