//! What is compiled: the rules for connections of a configuration, in order, with what the server
//! knows besides. How they become instructions is left to `compile`.

use std::time::Duration;

use weir_config::{
    AddressSet, BucketKey, DEFAULT_CLASS, Guard, GuardRule, Interface, KernelUse, Match,
    PrefixLengths,
};

use crate::limits::{
    CLASSES_MAX, INLINE_RANGES_MAX, KEYS_MAX, KEYS_MIN, TIME_NS_MAX, WAYS, WORKERS_MAX,
};

/// Rules for connections, and for whom they are.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    /// Names by rising priority number.
    pub(crate) classes: Vec<String>,
    pub(crate) default_class: usize,
    pub(crate) workers: usize,
    pub(crate) keys: usize,
    pub(crate) exempt: Option<AddressSet>,
    pub(crate) ports: Vec<u16>,
    pub(crate) interface: Option<Interface>,
    pub(crate) kernel: KernelUse,
    /// What a source is to rules, of requests perhaps, that have it policed for a while; each once.
    pub(crate) penalties: Vec<PrefixLengths>,
    /// Sources that this does not hold for.
    pub(crate) spared: Option<AddressSet>,
}

/// A rule as the kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) from: Option<AddressSet>,
    pub(crate) from_ports: Vec<(u16, u16)>,
    pub(crate) to: Option<AddressSet>,
    pub(crate) ports: Vec<(u16, u16)>,
    pub(crate) class: Option<usize>,
    pub(crate) limit: Option<Limit>,
    pub(crate) pass: bool,
    pub(crate) always: bool,
    /// What it would drop is counted, and let through.
    pub(crate) dry_run: bool,
}

/// What a rule lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Nothing.
    Refuse,
    /// So much of each bucket.
    Rate(Pace, Key),
}

/// A rate as GCRA has it (ITU-T I.371): the time that one connection stands for, and how far ahead
/// of time a bucket may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) interval_ns: u64,
    pub(crate) tolerance_ns: u64,
}

/// What there is a bucket for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The rule as a whole.
    Rule,
    /// Each source prefix of so many bits, which may be all.
    Prefix { v4: u8, v6: u8 },
}

impl Policy {
    /// The rules for connections of a configuration, for so many workers.
    pub fn new(guard: &Guard, workers: usize) -> Policy {
        let mut classes: Vec<String> =
            guard.classes.iter().map(|class| class.name.clone()).collect();
        if classes.is_empty() {
            classes.push(DEFAULT_CLASS.to_owned());
        }
        let index = |name: &str| classes.iter().position(|class| class == name);
        let default_class = index(DEFAULT_CLASS).unwrap_or(0);
        let of_connections = guard.rules.iter().filter(|rule| rule.is_of_connections());
        let rules = of_connections.map(|rule| Rule::new(rule, &index)).collect();
        let mut penalties: Vec<PrefixLengths> =
            guard.rules.iter().filter_map(|rule| Some(rule.penalty?.by)).collect();
        penalties.sort_unstable();
        penalties.dedup();
        let keys = guard.keys.clamp(KEYS_MIN, KEYS_MAX);
        // Whole lines of the table, and as many as a mask can choose of.
        let keys = (keys / WAYS + 1).next_power_of_two() / 2 * WAYS;
        Policy {
            rules,
            classes,
            default_class,
            workers: workers.clamp(1, WORKERS_MAX),
            keys,
            exempt: None,
            ports: Vec::new(),
            interface: guard.interface.clone(),
            kernel: guard.kernel,
            penalties,
            spared: guard.spared(),
        }
    }

    /// The same classes, and nothing that is enforced: what listeners can be attached for before it
    /// is certain that they will serve.
    #[must_use]
    pub fn at_rest(self) -> Policy {
        Policy { rules: Vec::new(), penalties: Vec::new(), interface: None, ..self }
    }

    /// Connections from these are left alone and get the default class: proxies that are trusted to
    /// say whom they speak for, so that their own address says nothing.
    #[must_use]
    pub fn exempt(mut self, sources: Option<AddressSet>) -> Policy {
        self.exempt = sources;
        self
    }

    /// Ports that the server listens on. A program on an interface judges packets to no others;
    /// listeners that are attached judge those themselves.
    #[must_use]
    pub fn listening_on(mut self, ports: Vec<u16>) -> Policy {
        self.ports = ports;
        self.ports.sort_unstable();
        self.ports.dedup();
        self
    }

    /// The interface, if there is something to judge there.
    pub(crate) fn interface(&self) -> Option<&Interface> {
        self.interface.as_ref().filter(|_| !self.ports.is_empty())
    }

    /// Names of the rules for connections, in order.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// How many of the rules, from the first, can be said in instructions at all. Order counts: one
    /// that cannot ends the list, since it might let pass what a later one refuses.
    pub(crate) fn expressible(&self) -> usize {
        self.rules.iter().position(|rule| !rule.is_expressible()).unwrap_or(self.rules.len())
    }

    pub(crate) fn class_count(&self) -> usize {
        self.classes.len().min(CLASSES_MAX)
    }
}

impl Rule {
    fn new(rule: &GuardRule, class: &dyn Fn(&str) -> Option<usize>) -> Rule {
        let Match { from, from_ports, to, ports, .. } = rule.on.clone();
        let limit = match rule.rate {
            _ if rule.refuse => Some(Limit::Refuse),
            Some(rate) => {
                Some(Limit::Rate(Pace::new(rate.count, rate.period, rate.burst), key(&rule.by)))
            }
            None => None,
        };
        Rule {
            name: rule.name.clone(),
            from,
            from_ports,
            to,
            ports,
            class: rule.class.as_deref().and_then(class),
            limit,
            pass: rule.pass,
            always: rule.always,
            dry_run: rule.dry_run,
        }
    }

    fn is_expressible(&self) -> bool {
        let destinations = self.to.as_ref().map_or(0, |to| to.ranges().len());
        let longest = destinations.max(self.ports.len()).max(self.from_ports.len());
        longest <= INLINE_RANGES_MAX && self.class.is_none_or(|class| class < CLASSES_MAX)
    }

    /// Whether the source address alone decides if it matches.
    pub(crate) fn is_of_source(&self) -> bool {
        self.from_ports.is_empty() && self.to.is_none() && self.ports.is_empty()
    }

    /// Whether both have the same instructions, so that what differs is in memory that both share.
    pub(crate) fn is_same_code(&self, other: &Rule) -> bool {
        let limit = |rule: &Rule| match rule.limit {
            Some(Limit::Rate(_, key)) => Some(Some(key)),
            Some(Limit::Refuse) => Some(None),
            None => None,
        };
        let without_pace = |rule: &Rule| Rule { limit: None, ..rule.clone() };
        limit(self) == limit(other) && without_pace(self) == without_pace(other)
    }
}

impl Pace {
    pub(crate) fn new(count: u32, period: Duration, burst: u32) -> Pace {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(TIME_NS_MAX);
        let interval_ns = (period_ns / u64::from(count.max(1))).clamp(1, TIME_NS_MAX);
        let ahead = interval_ns.saturating_mul(u64::from(burst.max(1)) - 1);
        Pace { interval_ns, tolerance_ns: ahead.min(TIME_NS_MAX) }
    }
}

fn key(by: &BucketKey) -> Key {
    match *by {
        BucketKey::Source => Key::Prefix { v4: 32, v6: 128 },
        BucketKey::Prefix { v4, v6 } => Key::Prefix { v4: v4.min(32), v6: v6.min(128) },
        BucketKey::Rule | BucketKey::Header(_) | BucketKey::Cookie(_) => Key::Rule,
    }
}
