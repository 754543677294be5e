//! What programs have counted, read from the memory that they share with the process.

use std::sync::atomic::Ordering;

use crate::policy::{Key, Limit, Policy};
use crate::state::{
    CONTENDED, DROPPED, FORGOTTEN, OFFERED, PENALISED, SPARED, SPARED_ALL, State, UNSTEERED,
};

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Of each rule in the kernel, in order.
    pub rules: Vec<RuleCounters>,
    /// Connections that got each class: its name, and how many.
    pub classes: Vec<(String, u64)>,
    /// Dropped because their source is policed.
    pub penalised: u64,
    /// Buckets by key that were forgotten while they held something, for want of room.
    pub forgotten: u64,
    /// Dropped because other processors kept changing their bucket; among those dropped by rules.
    pub contended: u64,
    /// Connections for which no socket of their class was found; another took them.
    pub unsteered: u64,
}

/// Counts of a rule. SYNs that a client sends again count again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Its name.
    pub name: String,
    /// Connections it meant.
    pub offered: u64,
    /// Those of them that it dropped.
    pub dropped: u64,
    /// Those of them that it would have dropped, were there overload. `None` of rules for always,
    /// and of those with buckets by source, whom the kernel does not look up for that.
    pub spared: Option<u64>,
    /// Those of them that it would have dropped, were it not only tried. `None` of other rules.
    pub dry_run: Option<u64>,
}

impl Counters {
    pub(crate) fn read(state: &State, policy: &Policy, slots: &[usize]) -> Counters {
        let word = |index| state.word(index).load(Ordering::Relaxed);
        let rules = policy.rules.iter().zip(slots).map(|(rule, slot)| {
            let word = |word| state.of_rule(*slot, word).load(Ordering::Relaxed);
            let can_spare = match rule.limit {
                Some(Limit::Refuse) => !rule.always,
                Some(Limit::Rate(_, Key::Rule)) => !rule.always && state.jiffies().is_some(),
                _ => false,
            };
            RuleCounters {
                name: rule.name.clone(),
                offered: word(OFFERED) + word(SPARED_ALL),
                dropped: if rule.dry_run { 0 } else { word(DROPPED) },
                dry_run: rule.dry_run.then(|| word(DROPPED)),
                spared: can_spare.then(|| word(SPARED) + word(SPARED_ALL)),
            }
        });
        let classes = policy.classes.iter().take(policy.class_count()).enumerate();
        let classes = classes
            .map(|(index, name)| (name.clone(), state.of_class(index).load(Ordering::Relaxed)));
        Counters {
            rules: rules.collect(),
            classes: classes.collect(),
            penalised: word(PENALISED),
            forgotten: word(FORGOTTEN),
            contended: word(CONTENDED),
            unsteered: word(UNSTEERED),
        }
    }
}
