//! What a request pays to the rules that it meets: tokens of their buckets, and places among those
//! being served. If one refuses, the others give back what they took.

use smallvec::SmallVec;

use crate::bucket::Taken;
use crate::decision::{Ban, Decision, Moment, Refused};
use crate::keys::Tag;
use crate::permit::{Permit, Toll};
use crate::rule::{Count, Rule};
use crate::subject::Ends;
use crate::tables::Tables;

/// A request, or a connection, while it meets the rules.
pub(crate) struct Paying<'r> {
    tables: &'r Tables,
    ends: &'r Ends,
    moment: Moment,
    places: Permit,
    /// Whose tokens it took, and by which key.
    paid: SmallVec<[(&'r Rule, Option<Tag>); 2]>,
    /// The first rule that would have refused it, were it not only tried.
    dry_run: Option<u32>,
}

impl<'r> Paying<'r> {
    pub(crate) fn new(tables: &'r Tables, ends: &'r Ends, moment: Moment) -> Paying<'r> {
        let (places, paid) = (Permit::default(), SmallVec::new());
        Paying { tables, ends, moment, places, paid, dry_run: None }
    }

    /// Gives a decision the places it has taken, and what rules would have done that are tried.
    pub(crate) fn end(self, decision: &mut Decision) {
        decision.hold(self.places);
        if let Some(rule) = self.dry_run {
            decision.note_dry_run(rule);
        }
    }

    /// Pays a rule; `value` is the key of the named value that the rule has buckets for.
    ///
    /// # Errors
    /// If the rule refuses. Everything is given back.
    pub(crate) fn pay(
        &mut self,
        number: u32,
        rule: &'r Rule,
        value: Option<Tag>,
    ) -> Result<(), Refused> {
        let Some(tag) = self.tables.tag(rule, self.ends, value) else {
            // Nobody to keep a bucket for.
            return Ok(());
        };
        let refused = match self.toll(rule, tag).take(&mut self.places) {
            Ok(()) => {
                self.paid.push((rule, tag));
                return Ok(());
            }
            Err(refused) => refused,
        };
        if !rule.always && !self.moment.is_overloaded {
            rule.state.count(self.moment.worker, Count::Spared);
            return Ok(());
        }
        if rule.dry_run {
            rule.state.count(self.moment.worker, Count::DryRun);
            self.dry_run.get_or_insert(number);
            return Ok(());
        }
        rule.state.count(self.moment.worker, refused.reason);
        self.give_back();
        let (reason, retry_ns) = (refused.reason, refused.retry_ns);
        Err(Refused { rule: number, reason, retry_ns, banned: self.punish(rule) })
    }

    fn toll(&self, rule: &'r Rule, tag: Option<Tag>) -> Toll<'r> {
        Toll { tables: self.tables, rule, tag, now_ns: self.moment.now_ns }
    }

    fn give_back(&mut self) {
        self.places.give_back();
        for (rule, tag) in std::mem::take(&mut self.paid) {
            self.toll(rule, tag).give_back();
        }
    }

    /// Whether a refusal was one too many.
    fn punish(&self, rule: &Rule) -> Option<Ban> {
        let (pace, ban) = rule.penalty?;
        let source = self.ends.source_ip()?;
        let now_ns = self.moment.now_ns;
        if self.tables.refusals(rule, source, &pace, ban.by, now_ns) == Taken::Token {
            return None;
        }
        let lasts_ns = u64::try_from(ban.lasts.as_nanos()).unwrap_or(u64::MAX);
        self.tables.ban(source, ban.by, now_ns.saturating_add(lasts_ns), now_ns);
        Some(ban)
    }
}
