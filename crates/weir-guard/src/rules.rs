//! The rules of a configuration, and what they decide about a connection or a request.
//!
//! Rules are met in order. Each that means the request takes its toll (a token of its bucket, a
//! place among those being served), and gives its class if none before did; the first that refuses
//! ends it, and what the others took is given back. A rule with `pass` ends the search.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir_config::{AddressSet, Guard, GuardRule, RefusalAnswer};

use crate::class::Classes;
use crate::decision::{Ban, Decision, Moment, Refused};
use crate::index::{Candidates, Index};
use crate::keys::{KeyTable, Tag};
use crate::paying::Paying;
use crate::rule::{By, Count, Rule, RuleState};
use crate::shares::Shares;
use crate::subject::{Ends, Subject};
use crate::tables::Tables;
use crate::values::{Names, Values};

/// Tells sets of rules apart.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The rules.
pub struct Rules {
    id: u64,
    pub(crate) all: Box<[Rule]>,
    pub(crate) names: Names,
    classes: Classes,
    /// Those decided with a request's head.
    at_head: Index,
    /// Those that ask for what plugins made of it.
    at_verdict: Index,
    /// Those for connections, in order.
    pub(crate) at_accept: Box<[u32]>,
    by_name: HashMap<Box<str>, Arc<RuleState>>,
    pub(crate) tables: Tables,
    /// Whom no penalty holds for.
    spared: Option<AddressSet>,
}

impl Rules {
    /// The rules of a configuration. What is known of rules of the same name `before` stays known.
    pub fn new(guard: &Guard, workers: usize, before: Option<&Rules>) -> Rules {
        let classes = Classes::new(&guard.classes, before.map(|before| &before.classes));
        let tables = Tables::new(guard, before.map(|before| &before.tables));
        let (mut names, mut by_name) = (Names::default(), HashMap::new());
        let rule = |rule: &GuardRule| {
            let known = before.and_then(|before| before.by_name.get(rule.name.as_str()));
            let new = || Arc::new(RuleState::new(&rule.name, &tables.buckets, workers));
            let state = known.cloned().unwrap_or_else(new);
            by_name.insert(rule.name.as_str().into(), Arc::clone(&state));
            Rule::new(rule, &classes, &mut names, state)
        };
        let mut all: Box<[Rule]> = guard.rules.iter().map(rule).collect();
        let shares = Shares::new(all.iter().map(|rule| &rule.on));
        all.iter_mut().for_each(|rule| rule.on.choose_key(&shares));
        let numbered = || (0..).zip(&all);
        let conditions = |is_late: bool| {
            let some = numbered().filter(move |(_, rule)| rule.on.asks_for_verdict() == is_late);
            some.map(|(number, rule): (u32, &Rule)| (number, &rule.on))
        };
        Rules {
            id: NEXT_ID.fetch_add(1, Relaxed),
            at_head: Index::new(conditions(false), &names),
            at_verdict: Index::new(conditions(true), &names),
            at_accept: numbered().filter(|(_, r)| r.is_of_connections).map(|(n, _)| n).collect(),
            all,
            names,
            classes,
            by_name,
            tables,
            spared: guard.spared(),
        }
    }

    /// No other rules have this number.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn at_head(&self) -> &Index {
        &self.at_head
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
        self.decide_at(subject, moment.worker, || *moment, as_connection)
    }

    /// The same where it costs something to say how the moment stands: it is asked for if a rule is
    /// met that limits something.
    #[inline]
    pub fn decide_at(
        &self,
        subject: &Subject<'_>,
        worker: usize,
        moment: impl Fn() -> Moment,
        as_connection: bool,
    ) -> Decision {
        let mut decision = Decision::new(self.classes.refer(self.classes.default()));
        let ban = || self.ban(&subject.ends, moment().now_ns);
        if let Some(Ban { lasts, .. }) = as_connection.then(ban).flatten() {
            let retry_ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
            decision.refuse(Refused { retry_ns, ..Refused::BANNED });
        } else if !self.all.is_empty() {
            self.meet(&self.at_head, subject, worker, moment, as_connection, &mut decision);
        }
        decision
    }

    /// Goes on with what plugins have made of the request.
    pub fn decide_verdict(&self, subject: &Subject<'_>, moment: &Moment, decision: &mut Decision) {
        if !decision.has_passed() {
            let worker = moment.worker;
            self.meet(&self.at_verdict, subject, worker, || *moment, false, decision);
        }
    }

    /// Whether connections can be refused.
    pub fn judge_connections(&self) -> bool {
        !self.at_accept.is_empty() || self.tables.has_penalties()
    }

    /// Decides about a connection by its ends. The first `decided` of the rules for connections
    /// were met already, by the kernel.
    pub fn decide_connection(&self, ends: &Ends, moment: &Moment, decided: usize) -> Decision {
        let mut decision = Decision::new(self.classes.refer(self.classes.default()));
        let mut paying = Paying::new(&self.tables, ends, *moment);
        for &number in self.at_accept.iter().skip(decided) {
            let rule = &self.all[number as usize];
            if !rule.on.hold_for(ends) {
                continue;
            }
            rule.state.count(moment.worker, Count::Met);
            if let Some(class) = rule.class {
                decision.give_class(class);
            }
            if rule.limits()
                && let Err(refused) = paying.pay(number, rule, None)
            {
                decision.refuse(refused);
                break;
            }
            if rule.pass {
                break;
            }
        }
        decision
    }

    /// Whether a source is not let in at the moment.
    pub fn is_banned(&self, ends: &Ends, now_ns: u64) -> bool {
        self.ban(ends, now_ns).is_some()
    }

    /// How long a source is not let in from now on, and with whom, if it is not.
    pub fn ban(&self, ends: &Ends, now_ns: u64) -> Option<Ban> {
        if !self.tables.has_penalties() {
            return None;
        }
        let source = ends.source_ip()?;
        let (until_ns, by) = self.tables.banned(source)?;
        let left_ns = until_ns.checked_sub(now_ns).filter(|left| *left > 0)?;
        if self.spared.as_ref().is_some_and(|spared| spared.contains(source)) {
            return None;
        }
        Some(Ban { lasts: Duration::from_nanos(left_ns), by })
    }

    /// Prefixes that are not let in, and how many can be kept out at a time; walks over all.
    pub fn bans(&self, now_ns: u64) -> (usize, usize) {
        (self.tables.bans(now_ns), self.tables.bans_max())
    }

    fn meet(
        &self,
        index: &Index,
        subject: &Subject<'_>,
        worker: usize,
        moment: impl Fn() -> Moment,
        as_connection: bool,
        decision: &mut Decision,
    ) {
        let mut values = Values::new(&self.names, subject);
        let mut found = Candidates::new();
        // Most requests meet no rule that limits them.
        let mut paying = None;
        for candidate in index.find(&mut values, &mut found) {
            let number = candidate.rule();
            let rule = &self.all[number as usize];
            if !rule.on.hold(&mut values, candidate.is_proved()) {
                continue;
            }
            if let Some(class) = rule.class {
                decision.give_class(class);
            }
            if !rule.is_of_connections || as_connection {
                rule.state.count(worker, Count::Met);
                if rule.limits() {
                    let key = self.value_key(rule, &mut values);
                    let new = || Paying::new(&self.tables, &subject.ends, moment());
                    if let Err(refused) = paying.get_or_insert_with(new).pay(number, rule, key) {
                        return decision.refuse(refused);
                    }
                }
            }
            if rule.pass {
                decision.pass();
                break;
            }
        }
        if let Some(paying) = paying {
            paying.end(decision);
        }
    }

    /// The key of a rule's bucket, where a named value is that.
    pub(crate) fn value_key(&self, rule: &Rule, values: &mut Values<'_, '_>) -> Option<Tag> {
        let By::Value(slot) = rule.by else { return None };
        let value = values.of(slot).next()?;
        Some(self.tables.buckets.tag(rule.state.owner, value))
    }
}
