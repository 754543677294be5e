//! Shared immutable memory: a body is filled once into page-aligned extents of a memfd, frozen, and
//! from then on seen as [`bytes::Bytes`] by the cache, the socket and any other reader.
//!
//! Every address of an arena can be translated back to `(fd, offset)` by [`locate`], which is how a
//! stream sends stored bytes with sendfile although HTTP code only ever saw a slice. Knows no HTTP.
//!
//! # Life of an extent
//!
//! | state     | made by              | bytes                              | pages                     |
//! |-----------|----------------------|------------------------------------|---------------------------|
//! | filling   | [`Arena::reserve`]   | appended by pwrite, never twice    | counted against the limit |
//! | published | [`Extent::published`]| a prefix, readable while filling   | as above                  |
//! | frozen    | [`Extent::freeze`]   | immutable                          | the unused tail given back|
//! | freed     | last `Bytes` dropped | gone                               | punched out of the memfd  |
//!
//! # Memory of others
//!
//! Another process reads stored bodies through a [`Window`] onto [`Arena::reading_end`]. What it
//! has made in a memfd of its own, and sealed, becomes a stored body without being copied:
//! [`Arena::adopt`].
//!
//! # Why a freed page is punched, not overwritten
//!
//! A socket's send queue may still refer to a page after the last `Bytes` is gone. Punching a hole
//! detaches the page from the file, the kernel keeps it until the queue lets go, and the next fill
//! of that range gets a new page. Overwriting in place was measured to corrupt bytes in flight.

mod adopted;
mod arena;
mod error;
mod extent;
mod folios;
mod pages;
mod registry;
mod window;

pub use arena::Arena;
pub use error::ArenaError;
pub use extent::Extent;
pub use registry::{Location, locate};
pub use window::Window;

/// Size of a page, the unit in which extents are placed and counted. Weir targets platforms with
/// 4 KiB pages; [`Arena::new`] refuses others.
pub const PAGE_BYTES: usize = 4096;
