//! The rules of a configuration, and what they decide about a connection or a request.
//!
//! Rules are met in order. Each that means the request takes its toll (a token of its bucket, a
//! place among those being served), and gives its class if none before did; the first that refuses
//! ends it, and what the others took is given back. A rule with `pass` ends the search.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use smallvec::SmallVec;
use weir_config::{BucketKey, Guard, GuardRule, RefusalAnswer};

use crate::bucket::{Pace, Taken};
use crate::class::{ClassId, Classes};
use crate::explain::Limit;
use crate::index::Index;
use crate::keys::{KeyTable, Tag};
use crate::permit::{Permit, Toll};
use crate::rule::{By, Count, Rule, RuleState, prefix_of};
use crate::running::Running;
use crate::subject::{Ends, Subject};
use crate::values::{Names, Values};

/// The rules.
pub struct Rules {
    pub(crate) all: Box<[Rule]>,
    pub(crate) names: Names,
    classes: Classes,
    /// Those decided with a request's head.
    at_head: Index,
    /// Those that ask for what plugins made of it.
    at_verdict: Index,
    /// Those for connections, in order.
    pub(crate) at_accept: Box<[u32]>,
    has_penalties: bool,
    by_name: HashMap<Box<str>, Arc<RuleState>>,
    tables: Tables,
}

/// Words of keys, over all rules.
#[derive(Clone)]
pub(crate) struct Tables {
    /// Buckets.
    buckets: Arc<KeyTable>,
    /// Requests being served.
    running: Arc<Running>,
    /// When sources are let in again, in nanoseconds.
    banned: Arc<KeyTable>,
    keys: usize,
}

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

/// What rules decide.
#[derive(Debug)]
pub struct Decision {
    /// Who goes first.
    pub class: ClassId,
    /// The rule that gave the class.
    pub class_rule: Option<u32>,
    /// Why it is refused.
    pub refusal: Option<Refused>,
    /// Given back when the request ends.
    pub permits: Permit,
    /// A rule has said that nothing after it counts.
    passed: bool,
    /// Whose tokens it took.
    paid: SmallVec<[(u32, Option<Tag>); 2]>,
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The rule.
    pub rule: u32,
    /// Its limit.
    pub reason: Count,
    /// When it may be tried again: nanoseconds from now; 0 if that is not known.
    pub retry_ns: u64,
    /// How long the source is not let in from now on.
    pub banned: Option<Duration>,
}

impl Rules {
    /// The rules of a configuration. What is known of rules of the same name `before` stays known.
    pub fn new(guard: &Guard, workers: usize, before: Option<&Rules>) -> Rules {
        let classes = Classes::new(&guard.classes);
        let tables = Tables::new(guard, before.map(|before| &before.tables));
        let (mut names, mut by_name) = (Names::default(), HashMap::new());
        let rule = |rule: &GuardRule| {
            let known = before.and_then(|before| before.by_name.get(rule.name.as_str()));
            let new = || Arc::new(RuleState::new(&rule.name, &tables.buckets, workers));
            let state = known.cloned().unwrap_or_else(new);
            by_name.insert(rule.name.as_str().into(), Arc::clone(&state));
            Rule::new(rule, &classes, &mut names, state)
        };
        let all: Box<[Rule]> = guard.rules.iter().map(rule).collect();
        let numbered = || (0..).zip(&all);
        let conditions = |is_late: bool| {
            let some = numbered().filter(move |(_, rule)| rule.on.asks_for_verdict() == is_late);
            some.map(|(number, rule): (u32, &Rule)| (number, &rule.on))
        };
        Rules {
            at_head: Index::new(conditions(false)),
            at_verdict: Index::new(conditions(true)),
            at_accept: numbered().filter(|(_, r)| r.is_of_connections).map(|(n, _)| n).collect(),
            has_penalties: all.iter().any(|rule| rule.penalty.is_some()),
            all,
            names,
            classes,
            by_name,
            tables,
        }
    }

    /// The classes.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether some rule waits for what plugins say.
    pub fn ask_for_verdicts(&self) -> bool {
        !self.at_verdict.is_empty()
    }

    /// A rule's name, if there is such a rule.
    pub fn name(&self, rule: u32) -> Option<&str> {
        self.all.get(rule as usize).map(|rule| &*rule.name)
    }

    /// How a rule refuses.
    pub fn answer(&self, rule: u32) -> Option<RefusalAnswer> {
        self.all.get(rule as usize).map(|rule| rule.answer)
    }

    /// The table of buckets by source, prefix, header or cookie: words are when they are full
    /// again.
    pub fn keys(&self) -> &KeyTable {
        &self.tables.buckets
    }

    /// Every rule's name and counts, in order.
    pub fn states(&self) -> impl Iterator<Item = (&str, &RuleState)> {
        self.all.iter().map(|rule| (&*rule.name, &*rule.state))
    }

    /// Decides about a request by its head. `as_connection` is for one whose connection says
    /// nothing of its client, as a trusted proxy's: rules for connections count it like one.
    #[inline]
    pub fn decide(&self, subject: &Subject<'_>, moment: &Moment, as_connection: bool) -> Decision {
        let mut decision = Decision::new(self.classes.default());
        if !self.all.is_empty() {
            self.meet(&self.at_head, subject, moment, as_connection, &mut decision);
        }
        decision
    }

    /// Goes on with what plugins have made of the request.
    pub fn decide_verdict(&self, subject: &Subject<'_>, moment: &Moment, decision: &mut Decision) {
        if !decision.passed {
            self.meet(&self.at_verdict, subject, moment, false, decision);
        }
    }

    /// Whether connections can be refused.
    pub fn judge_connections(&self) -> bool {
        !self.at_accept.is_empty() || self.has_penalties
    }

    /// Decides about a connection by its ends. The first `decided` of the rules for connections
    /// were met already, by the kernel.
    pub fn decide_connection(&self, ends: &Ends, moment: &Moment, decided: usize) -> Decision {
        let mut decision = Decision::new(self.classes.default());
        for &number in self.at_accept.iter().skip(decided) {
            let rule = &self.all[number as usize];
            if rule.on.failing_ends(ends).is_some() {
                continue;
            }
            rule.state.count(moment.worker, Count::Met);
            self.give_class(number, rule, &mut decision);
            if rule.limits() && !self.take(number, rule, ends, None, moment, &mut decision) {
                break;
            }
            if rule.pass {
                break;
            }
        }
        decision
    }

    /// The class of a connection by its ends, without counting it.
    pub fn class_of(&self, ends: &Ends) -> ClassId {
        for &number in &self.at_accept {
            let rule = &self.all[number as usize];
            if rule.on.failing_ends(ends).is_some() {
                continue;
            }
            if let Some(class) = rule.class {
                return class;
            }
            if rule.pass {
                break;
            }
        }
        self.classes.default()
    }

    /// Whether a source is not let in at the moment.
    pub fn is_banned(&self, ends: &Ends, now_ns: u64) -> bool {
        let Some(source) = ends.source_ip() else { return false };
        self.tables
            .banned
            .find(self.tables.ban_tag(source))
            .is_some_and(|until| until.load(Relaxed) > now_ns)
    }

    fn meet(
        &self,
        index: &Index,
        subject: &Subject<'_>,
        moment: &Moment,
        as_connection: bool,
        decision: &mut Decision,
    ) {
        let mut values = Values::new(&self.names, subject);
        for number in index.find(&mut values) {
            let rule = &self.all[number as usize];
            if rule.on.failing(&mut values).is_some() {
                continue;
            }
            self.give_class(number, rule, decision);
            if !rule.is_of_connections || as_connection {
                rule.state.count(moment.worker, Count::Met);
                let key = self.value_key(rule, &mut values);
                if rule.limits() && !self.take(number, rule, &subject.ends, key, moment, decision) {
                    return;
                }
            }
            if rule.pass {
                decision.passed = true;
                return;
            }
        }
    }

    #[inline]
    fn give_class(&self, number: u32, rule: &Rule, decision: &mut Decision) {
        if decision.class_rule.is_none()
            && let Some(class) = rule.class
        {
            (decision.class, decision.class_rule) = (class, Some(number));
        }
    }

    /// The key of a rule's bucket, where a named value is that.
    pub(crate) fn value_key(&self, rule: &Rule, values: &mut Values<'_, '_>) -> Option<Tag> {
        let By::Value(slot) = rule.by else { return None };
        let value = values.of(slot).first()?;
        Some(self.tables.buckets.tag(rule.state.owner, &**value))
    }

    /// Takes what a rule asks for; `false` if it refuses.
    fn take(
        &self,
        number: u32,
        rule: &Rule,
        ends: &Ends,
        value: Option<Tag>,
        moment: &Moment,
        decision: &mut Decision,
    ) -> bool {
        let Some(tag) = self.tag(rule, ends, value) else {
            // Nobody to keep a bucket for.
            return true;
        };
        let toll = Toll { tables: &self.tables, rule, tag, now_ns: moment.now_ns };
        let refused = match toll.take(&mut decision.permits) {
            Ok(()) => {
                decision.paid.push((number, tag));
                return true;
            }
            Err(refused) => refused,
        };
        if !rule.always && !moment.is_overloaded {
            rule.state.count(moment.worker, Count::Spared);
            return true;
        }
        rule.state.count(moment.worker, refused.reason);
        self.give_back(decision, moment.now_ns);
        let banned = self.punish(rule, ends, moment.now_ns);
        let (reason, retry_ns) = (refused.reason, refused.retry_ns);
        decision.refusal = Some(Refused { rule: number, reason, retry_ns, banned });
        false
    }

    /// The key of a rule's words, none for those of the rule as a whole. Nothing if the request has
    /// nothing to keep any for.
    fn tag(&self, rule: &Rule, ends: &Ends, value: Option<Tag>) -> Option<Option<Tag>> {
        if rule.refuse {
            return Some(None);
        }
        match rule.by {
            By::Rule => Some(None),
            By::Value(_) => value.map(Some),
            By::Source { v4, v6 } => {
                let prefix = prefix_of(ends.source_ip()?, v4, v6);
                Some(Some(self.tables.buckets.tag(rule.state.owner, prefix)))
            }
        }
    }

    /// A rule's limit on a request as it stands.
    pub(crate) fn limit(
        &self,
        rule: &Rule,
        ends: &Ends,
        value: Option<Tag>,
        moment: &Moment,
    ) -> Limit {
        let tag = self.tag(rule, ends, value);
        let none = AtomicU64::new(0);
        let left = |pace: &Pace| {
            let word = match tag? {
                None => &rule.state.bucket,
                Some(tag) => self.tables.buckets.find(tag).unwrap_or(&none),
            };
            Some(pace.left(word, moment.now_ns))
        };
        let running = |most: u32| match tag? {
            None => Some((rule.state.running.load(Relaxed), most)),
            Some(tag) => Some((self.tables.running.of(tag), most)),
        };
        Limit {
            of_connections: rule.is_of_connections,
            holds: rule.always || moment.is_overloaded,
            always: rule.always,
            refuses_all: rule.refuse,
            tokens_left: rule.pace.as_ref().and_then(left),
            running: rule.concurrency.and_then(running),
            answer: rule.answer,
        }
    }

    /// Gives back what a request took that does not run.
    fn give_back(&self, decision: &mut Decision, now_ns: u64) {
        decision.permits.give_back();
        for (number, tag) in decision.paid.drain(..) {
            let rule = &self.all[number as usize];
            Toll { tables: &self.tables, rule, tag, now_ns }.give_back();
        }
    }

    /// Whether a refusal was one too many.
    fn punish(&self, rule: &Rule, ends: &Ends, now_ns: u64) -> Option<Duration> {
        let (pace, lasts) = rule.penalty?;
        let source = ends.source_ip()?;
        if self.tables.refusals(rule, source, &pace, now_ns) == Taken::Token {
            return None;
        }
        let until = now_ns.saturating_add(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX));
        let word = self.tables.banned.bucket(self.tables.ban_tag(source), now_ns);
        word.store(until, Relaxed);
        Some(lasts)
    }
}

impl Decision {
    /// What is decided where there is no rule.
    pub fn of_no_rule(classes: &Classes) -> Decision {
        Decision::new(classes.default())
    }

    fn new(class: ClassId) -> Decision {
        Decision {
            class,
            class_rule: None,
            refusal: None,
            permits: Permit::default(),
            passed: false,
            paid: SmallVec::new(),
        }
    }
}

impl Tables {
    /// Tables with room for as many keys as configured, `before`'s if they have it, and as few as
    /// can be if no rule needs them.
    fn new(guard: &Guard, before: Option<&Tables>) -> Tables {
        let is_keyed = |by: &BucketKey| *by != BucketKey::Rule;
        let needs = guard.rules.iter().any(|rule| is_keyed(&rule.by) || rule.penalty.is_some());
        let keys = if needs { guard.keys } else { 0 };
        if let Some(before) = before.filter(|before| before.keys == keys || keys == 0) {
            return before.clone();
        }
        match before {
            // Keys have the same tags, so that rules and requests that are being served are known.
            Some(Tables { buckets, running, banned, .. }) => Tables {
                buckets: Arc::new(buckets.resized(keys)),
                running: Arc::clone(running),
                banned: Arc::new(banned.resized(keys)),
                keys,
            },
            None => Tables {
                buckets: Arc::new(KeyTable::new(keys)),
                running: Arc::new(Running::new()),
                banned: Arc::new(KeyTable::new(keys)),
                keys,
            },
        }
    }

    pub(crate) fn buckets(&self) -> &KeyTable {
        &self.buckets
    }

    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    fn ban_tag(&self, source: IpAddr) -> Tag {
        self.banned.tag(0, source)
    }

    /// Takes a token of the refusals that a source may have.
    fn refusals(&self, rule: &Rule, source: IpAddr, pace: &Pace, now_ns: u64) -> Taken {
        let tag = self.buckets.tag(!rule.state.owner, source);
        pace.take(self.buckets.bucket(tag, now_ns), now_ns)
    }
}
