//! Weir's own interface, version 1. `docs/manual/plugin-interface.md` is its specification.
//!
//! One call a hook: [`show`] lays the request out in guest memory as [`frame`] says, the guest
//! returns a list of [`edits`], [`changes`] checks it against the table in [`ops`], and [`apply`]
//! does what it says.

mod answers;
mod apply;
mod area;
mod changes;
mod edits;
mod exports;
mod fields;
mod frame;
mod guest;
mod hook;
mod imports;
mod messages;
mod ops;
mod show;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) use apply::Trail;
pub(crate) use exports::check as check_exports;
pub(crate) use fields::may_be_trailer;
use foldhash::fast::RandomState;
pub(crate) use guest::Guest;
pub(crate) use imports::link;

use self::answers::Caller;
use self::area::{Area, BufferFunction};
use crate::timer::Timer;

/// What an instance's host functions remember.
pub(crate) struct State {
    /// `weir_buffer`, once the instance is there.
    buffer: Option<BufferFunction>,
    /// What host functions return.
    results: Area,
    /// The exchange of the hook that runs, or [`guest::NO_REQUEST`].
    current: u32,
    /// A function was called since this was last cleared.
    was_asked: bool,
    /// The last number that a request was given.
    last_number: u64,
    /// Who made the calls in flight.
    calls: HashMap<u32, Caller, RandomState>,
    last_call: u32,
    timer: Timer,
}

/// Instances so far: each numbers its requests within a range of its own.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

impl Default for State {
    fn default() -> State {
        State {
            buffer: None,
            results: Area::default(),
            current: guest::NO_REQUEST,
            was_asked: false,
            last_number: INSTANCES.fetch_add(1, Relaxed) << 32,
            calls: HashMap::default(),
            last_call: 0,
            timer: Timer::default(),
        }
    }
}

impl State {
    /// A number for a request that has none.
    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
