//! Classes that come, go and change places.

use weir_guard::{ClassLimits, Heir};

pub(crate) const MS: u64 = 1_000_000;

/// Names of classes, the one that goes first in front.
pub(crate) type Order = &'static str;

/// What may come after each other. The first is that with which tests begin.
pub(crate) const ORDERS: [Order; 6] = ["abc", "cba", "bc", "dabc", "b", "acdb"];

/// The limits of each class: entries and milliseconds.
pub(crate) fn limits_of(name: char) -> ClassLimits {
    let (entries_max, wait_ms) = match name {
        'a' => (3, 300),
        'b' => (5, 50),
        'c' => (2, 1000),
        _ => (4, 200),
    };
    ClassLimits { entries_max, wait_ns: wait_ms * MS }
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
