//! Overload control: which rules mean a connection or a request, what their buckets still hold, who
//! waits for an upstream and who goes first. Knows no HTTP library, does no I/O and reads no clock:
//! time is a parameter, in nanoseconds of a clock that does not go back.

mod address_index;
mod bucket;
mod conditions;
mod index;
mod keys;
mod path_index;
mod pattern;
mod subject;
mod values;

pub use bucket::{Pace, Taken};
pub use keys::{KeyTable, Tag};
