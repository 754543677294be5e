//! What rules decide. Small, since every request carries one: what most do not need is in a box.

use std::time::Duration;

use weir_config::PrefixLengths;

use crate::class::{ClassId, ClassRef};
use crate::permit::Permit;
use crate::rule::Count;

/// How a moment stands.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// Limits that are not for always hold.
    pub is_overloaded: bool,
    /// Whose counts are written.
    pub worker: usize,
}

/// What rules decide. Holds the request's places among those being served, until it is dropped.
#[derive(Debug)]
pub struct Decision {
    /// Who goes first.
    pub class: ClassId,
    /// What ranks meant when it was decided.
    ranking: u32,
    /// A rule has given the class.
    has_class: bool,
    /// A rule has said that nothing after it counts.
    has_passed: bool,
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    refusal: Option<Refused>,
    /// The first rule that would have refused it.
    dry_run: Option<u32>,
    places: Vec<Permit>,
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The rule; none has this number where the source is under a penalty.
    pub rule: u32,
    /// Its limit.
    pub reason: Count,
    /// When it may be tried again: nanoseconds from now; 0 if that is not known.
    pub retry_ns: u64,
    /// For how long, and with whom, the source is not let in from now on.
    pub banned: Option<Ban>,
}

/// A penalty: nobody of the source's prefix is let in for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// How long, from now.
    pub lasts: Duration,
    /// How much of the source's address is its prefix.
    pub by: PrefixLengths,
}

impl Refused {
    /// The source is kept out, by a rule that is not known any more.
    pub(crate) const BANNED: Refused =
        Refused { rule: u32::MAX, reason: Count::Refused, retry_ns: 0, banned: None };
}

impl Decision {
    /// What is decided where there is no rule: the default class.
    #[inline]
    pub fn of_no_rule(class: ClassRef) -> Decision {
        Decision::new(class)
    }

    #[inline]
    pub(crate) fn new(class: ClassRef) -> Decision {
        let ClassRef { ranking, class } = class;
        Decision { class, ranking, has_class: false, has_passed: false, more: None }
    }

    #[inline]
    pub(crate) fn settled(class: ClassRef, has_class: bool, has_passed: bool) -> Decision {
        Decision { has_class, has_passed, ..Decision::new(class) }
    }

    /// The class, also for whoever knows it by another rank.
    #[inline]
    pub fn class_ref(&self) -> ClassRef {
        ClassRef { ranking: self.ranking, class: self.class }
    }

    /// Why it is refused, if it is.
    #[inline]
    pub fn refusal(&self) -> Option<Refused> {
        self.more.as_ref()?.refusal
    }

    /// The first rule that would have refused it, were it not only tried.
    #[inline]
    pub fn dry_run(&self) -> Option<u32> {
        self.more.as_ref()?.dry_run
    }

    pub(crate) fn note_dry_run(&mut self, rule: u32) {
        self.more.get_or_insert_default().dry_run.get_or_insert(rule);
    }

    /// Whether no rule after those that were met counts.
    pub(crate) fn has_passed(&self) -> bool {
        self.has_passed
    }

    pub(crate) fn pass(&mut self) {
        self.has_passed = true;
    }

    /// Gives the class, unless a rule has done so before.
    #[inline]
    pub(crate) fn give_class(&mut self, class: ClassId) {
        if !self.has_class {
            (self.class, self.has_class) = (class, true);
        }
    }

    /// It is refused, and needs no places any more.
    pub(crate) fn refuse(&mut self, refused: Refused) {
        let more = More { refusal: Some(refused), ..More::default() };
        self.more = Some(Box::new(more));
    }

    pub(crate) fn hold(&mut self, places: Permit) {
        if !places.is_empty() {
            self.more.get_or_insert_default().places.push(places);
        }
    }
}
