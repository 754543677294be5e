//! One rule as it is decided by: conditions, limits, and the state that outlives a reload.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use weir_config::{BucketKey, GuardRule, RefusalAnswer};

use crate::bucket::Pace;
use crate::class::{ClassId, Classes};
use crate::conditions::Conditions;
use crate::decision::Ban;
use crate::keys::KeyTable;
use crate::values::{Kind, Names};

/// A rule.
pub(crate) struct Rule {
    pub(crate) name: Box<str>,
    pub(crate) on: Conditions,
    pub(crate) class: Option<ClassId>,
    pub(crate) pace: Option<Pace>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) by: By,
    pub(crate) refuse: bool,
    pub(crate) pass: bool,
    pub(crate) always: bool,
    pub(crate) dry_run: bool,
    pub(crate) answer: RefusalAnswer,
    pub(crate) penalty: Option<(Pace, Ban)>,
    /// It counts connections, and is decided for them.
    pub(crate) is_of_connections: bool,
    pub(crate) state: Arc<RuleState>,
}

/// What a rule keeps a bucket for.
pub(crate) enum By {
    Rule,
    Source { v4: u8, v6: u8 },
    Value(usize),
}

/// What is known of a rule by its name, across reloads.
#[derive(Debug)]
pub struct RuleState {
    /// The bucket of the rule as a whole.
    pub(crate) bucket: AtomicU64,
    /// Requests of the rule as a whole that are being served.
    pub(crate) running: AtomicU32,
    /// Stands for the rule in keys.
    pub(crate) owner: u64,
    counts: Box<[RuleCounts]>,
}

/// One worker's counts of a rule, which nobody else writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct RuleCounts([AtomicU64; Count::ALL.len()]);

/// What is counted of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// It was met.
    Met,
    /// Its bucket was empty.
    Rate,
    /// As many as may were being served.
    Concurrency,
    /// It refuses all.
    Refused,
    /// It would have refused, were there overload.
    Spared,
    /// It would have refused, were it not only tried.
    DryRun,
}

impl Count {
    /// All of them.
    pub const ALL: [Count; 6] =
        [Count::Met, Count::Rate, Count::Concurrency, Count::Refused, Count::Spared, Count::DryRun];

    /// The word in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Count::Met => "met",
            Count::Rate => "rate",
            Count::Concurrency => "concurrency",
            Count::Refused => "refused",
            Count::Spared => "spared",
            Count::DryRun => "dry-run",
        }
    }
}

impl Rule {
    pub(crate) fn new(
        rule: &GuardRule,
        classes: &Classes,
        names: &mut Names,
        state: Arc<RuleState>,
    ) -> Rule {
        let by = match &rule.by {
            BucketKey::Rule => By::Rule,
            BucketKey::Source => By::Source { v4: 32, v6: 128 },
            BucketKey::Prefix { v4, v6 } => By::Source { v4: *v4, v6: *v6 },
            BucketKey::Header(name) => By::Value(names.slot(Kind::Header, name)),
            BucketKey::Cookie(name) => By::Value(names.slot(Kind::Cookie, name)),
        };
        let penalty = rule.penalty.map(|penalty| {
            let within_ns = u64::try_from(penalty.within.as_nanos()).unwrap_or(u64::MAX);
            let token_ns = (within_ns / u64::from(penalty.after.max(1))).max(1);
            // The last of so many refusals finds it empty.
            let bucket_ns = token_ns.saturating_mul(u64::from(penalty.after.max(1)) - 1);
            (Pace { token_ns, bucket_ns }, Ban { lasts: penalty.lasts, by: penalty.by })
        });
        Rule {
            name: rule.name.as_str().into(),
            on: Conditions::new(&rule.on, names),
            class: rule.class.as_deref().and_then(|name| classes.find(name)),
            pace: rule.rate.as_ref().map(Pace::new),
            concurrency: rule.concurrency,
            by,
            refuse: rule.refuse,
            pass: rule.pass,
            always: rule.always,
            dry_run: rule.dry_run,
            answer: rule.answer,
            penalty,
            is_of_connections: rule.is_of_connections(),
            state,
        }
    }

    /// Whether it can refuse anything.
    pub(crate) fn limits(&self) -> bool {
        self.refuse || self.pace.is_some() || self.concurrency.is_some()
    }
}

impl RuleState {
    pub(crate) fn new(name: &str, table: &KeyTable, workers: usize) -> RuleState {
        RuleState {
            bucket: AtomicU64::new(0),
            running: AtomicU32::new(0),
            owner: table.owner(name),
            counts: (0..workers).map(|_| RuleCounts::default()).collect(),
        }
    }

    /// Counts for one worker. Only that worker may call it.
    #[inline]
    pub(crate) fn count(&self, worker: usize, what: Count) {
        let count = &self.counts[worker].0[what as usize];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// What all workers have counted.
    pub fn counted(&self, what: Count) -> u64 {
        let all = self.counts.iter().map(|counts| counts.0[what as usize].load(Relaxed));
        all.fold(0, u64::wrapping_add)
    }
}

/// The first bits of an address, the others zero.
#[inline]
pub fn prefix_of(address: IpAddr, v4: u8, v6: u8) -> u128 {
    match address {
        IpAddr::V4(address) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(v4.min(32))).unwrap_or(0);
            // Apart from all of IPv6: its own mapped form (RFC 4291 §2.5.5.2).
            u128::from(address.to_bits() & kept) | 0xffff_0000_0000
        }
        IpAddr::V6(address) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(v6.min(128))).unwrap_or(0);
            address.to_bits() & kept
        }
    }
}
