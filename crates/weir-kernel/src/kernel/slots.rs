//! Which rule has which line of the shared state. A rule keeps its line, and so its bucket and
//! counters, as long as some policy has a rule of that name.

use std::collections::HashMap;

use crate::limits::RULES_MAX;
use crate::policy::{Limit, Rule};
use crate::state::{NOBODY, State};

/// Lines by rules' names.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_name: HashMap<String, usize>,
    free: Vec<usize>,
    used: usize,
}

impl Slots {
    /// Lines for the first of these rules, as many as there are; new ones begin idle.
    pub(super) fn assign(&mut self, rules: &[Rule], state: &State) -> Vec<usize> {
        let mut slots = Vec::with_capacity(rules.len());
        for rule in rules {
            let slot = match self.by_name.get(&rule.name) {
                Some(slot) => *slot,
                None => match self.fresh() {
                    Some(slot) => {
                        state.clear_rule(slot);
                        self.by_name.insert(rule.name.clone(), slot);
                        slot
                    }
                    None => break,
                },
            };
            slots.push(slot);
        }
        slots
    }

    /// Writes what programs find of rules.
    pub(super) fn write(rules: &[Rule], slots: &[usize], state: &State) {
        for (rule, slot) in rules.iter().zip(slots) {
            let pace = match rule.limit {
                Some(Limit::Rate(pace, _)) => Some(pace),
                Some(Limit::Refuse) | None => None,
            };
            state.set_rule(*slot, pace, rule.class);
        }
    }

    /// Frees the lines of rules that are no more.
    pub(super) fn keep(&mut self, rules: &[Rule]) {
        let names: std::collections::HashSet<&str> =
            rules.iter().map(|rule| rule.name.as_str()).collect();
        let free = &mut self.free;
        self.by_name.retain(|name, slot| {
            let stays = names.contains(name.as_str());
            if !stays {
                free.push(*slot);
            }
            stays
        });
    }

    fn fresh(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            // The first line is nobody's.
            let slot = NOBODY + 1 + self.used;
            (slot < RULES_MAX).then(|| self.used += 1).map(|()| slot)
        })
    }
}
