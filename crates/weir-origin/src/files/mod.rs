//! Files under a directory as a source: finding the file a request names, opening it without ever
//! leaving the root, and reading it whole or as a stream. Status codes, conditional requests,
//! ranges and caching belong to others; what they need to know is on [`OpenFile`] and [`Stamp`].
//!
//! Lookups are synchronous: a lookup in the kernel's directory cache takes microseconds, less than
//! handing it to another thread. [`Directory::list`] and large reads are for a blocking thread.

mod beneath;
mod coding;
mod error;
mod facts;
mod listing;
mod media_type;
mod open_file;
mod path;
mod root;
mod stamp;
mod stream;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

pub use coding::Accepted;
pub use error::FilesError;
pub use listing::{Directory, Entry, Listing, ListingFormat};
pub use open_file::OpenFile;
pub use root::{FileRoot, Found};
pub use stamp::Stamp;
pub use stream::FileStream;

/// How long the way to a file (the root's path and the path below it) is trusted. A stamp and its
/// root each use it once, so a swapped directory or symlink is noticed within twice this: a second.
pub const RESOLVE_INTERVAL: Duration = Duration::from_millis(500);

/// A file changed less than this before it was looked at may change again without its times
/// showing it: the kernel takes file times from a clock that advances every 1 to 10 ms (its HZ).
/// Twice the coarsest.
pub const RACY_WINDOW: Duration = Duration::from_millis(20);

/// Entries shown of one directory; more are cut off, and the listing says so.
pub const LISTING_ENTRIES_MAX: usize = 10_000;

/// Bytes read at once: large enough that the system call does not count, small enough for the
/// second-level cache.
pub const PIECE_BYTES: usize = 256 << 10;

/// Pieces of one [`FileStream`] that are read or wait to be taken.
pub const PIECES_IN_FLIGHT_MAX: usize = 2;

/// Bytes of a path below the root: the kernel's PATH_MAX, less its terminating NUL.
pub const PATH_BYTES_MAX: usize = 4095;
