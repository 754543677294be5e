//! Overload control: which rules mean a connection or a request, what their buckets still hold, who
//! waits for an upstream and who goes first. Knows no HTTP library, does no I/O and reads no clock:
//! time is a parameter, in nanoseconds of a clock that does not go back.

mod address_index;
mod bucket;
mod class;
mod conditions;
mod decision;
mod delay;
mod explain;
mod field;
mod gate;
mod glob_index;
mod index;
mod keys;
mod level;
mod limit;
mod path_index;
mod pattern;
mod paying;
mod permit;
mod queue;
mod rule;
mod rules;
mod running;
mod seen;
mod settled;
mod shares;
mod subject;
mod tables;
mod values;

pub use bucket::{Pace, Taken};
pub use class::{ClassId, ClassInfo, ClassRef, Classes, Heir};
pub use decision::{Ban, Decision, Moment, Refused};
pub use delay::DelayMeter;
pub use explain::{Explained, Limit, Met};
pub use gate::{
    Arrival, ClassCounts, DELAY_BOUNDS_NS, DelayHistogram, Due, Gate, GateSettings, Place,
};
pub use keys::{KeyTable, Tag};
pub use level::{AdmissionLevel, SHARES};
pub use limit::{AdaptiveLimit, LimitSettings, Outcome};
pub use permit::Permit;
pub use queue::{
    CLASSES_MAX, ClassLimits, ClassQueue, Pushed, Shed, ShedReason, TURN, Ticket, Waited,
};
pub use rule::{Count, RuleState, prefix_of};
pub use rules::Rules;
pub use settled::Settled;
pub use subject::{Ends, Fields, Subject};
