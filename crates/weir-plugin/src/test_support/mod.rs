//! For tests: an instance in its slot, a server that records what plugins ask of it, and a guest
//! that exports every host function, so that a test is a list of calls.

mod bench;
mod exchange;
mod guest;
mod log;
mod services;

pub(crate) use bench::{Arg, Bench, Options, compile};
pub(crate) use exchange::fields;
pub(crate) use guest::{ALLOCATOR, MEMORY, OUT, guest};
pub(crate) use log::logged;
pub(crate) use services::Script;
