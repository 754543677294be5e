//! Classes that come, go and change places.

use weir_guard::{ClassLimits, Heir};

pub(crate) const MS: u64 = 1_000_000;

/// Names of classes, the one that goes first in front.
pub(crate) type Order = &'static str;

/// What may come after each other. The first is that with which tests begin.
pub(crate) const ORDERS: [Order; 6] = ["abc", "cba", "bc", "dabc", "b", "acdb"];

/// The limits of each class: entries, milliseconds and share.
pub(crate) fn limits_of(name: char) -> ClassLimits {
    let (entries_max, wait_ms, share) = match name {
        'a' => (3, 300, 0),
        'b' => (5, 50, 15),
        'c' => (2, 1000, 30),
        _ => (4, 200, 5),
    };
    ClassLimits { entries_max, wait_ns: wait_ms * MS, share }
}

pub(crate) fn limits(order: Order) -> Vec<ClassLimits> {
    order.chars().map(limits_of).collect()
}

/// What becomes of the classes of one order in another: those that are gone are of the one in the
/// middle.
pub(crate) fn heirs(before: Order, after: Order) -> Vec<Heir> {
    let heir = |name| match after.find(name) {
        Some(rank) => Heir::Is(rank),
        None => Heir::Joins(after.len() / 2),
    };
    before.chars().map(heir).collect()
}
