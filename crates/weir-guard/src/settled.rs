//! What rules make of a path whatever else a request has. It is found once and kept with what the
//! path names, so that a request for that meets ten thousand rules at the price of a comparison.

use std::sync::Arc;

use crate::class::ClassRef;
use crate::decision::Decision;
use crate::index::Candidates;
use crate::rule::{Count, RuleState};
use crate::rules::Rules;

/// A decision about all requests for a path, while the rules are those that it was made by.
#[derive(Debug)]
pub struct Settled {
    /// [`Rules::id`] of those.
    rules: u64,
    /// `None` if it takes more than a path to decide.
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    class: ClassRef,
    has_class: bool,
    has_passed: bool,
    /// Rules that are met.
    met: Box<[Arc<RuleState>]>,
}

impl Settled {
    /// Whether these are the rules that it was made by.
    #[inline]
    pub fn is_of(&self, rules: u64) -> bool {
        self.rules == rules
    }

    /// The decision about a request, counted as one worker's, if its path decides. Not for one that
    /// is to be counted as a connection.
    #[inline]
    pub fn decide(&self, worker: usize) -> Option<Decision> {
        let outcome = self.outcome.as_ref()?;
        outcome.met.iter().for_each(|rule| rule.count(worker, Count::Met));
        Some(Decision::settled(outcome.class, outcome.has_class, outcome.has_passed))
    }
}

impl Rules {
    /// What is decided about every request for a path, as [`Rules::decide`] does: it depends on the
    /// path alone if all rules are found by paths and none that is met limits anything.
    pub fn settle(&self, path: &str) -> Settled {
        Settled { rules: self.id(), outcome: self.outcome(path) }
    }

    fn outcome(&self, path: &str) -> Option<Outcome> {
        let class = self.classes().refer(self.classes().default());
        let (mut met, mut given, mut has_passed) = (Vec::new(), None, false);
        let mut found = Candidates::new();
        for candidate in self.at_head().find_by_path(path, &mut found)? {
            let rule = &self.all[candidate.rule() as usize];
            if !rule.on.hold_for_path(path)? {
                continue;
            }
            if rule.limits() || rule.is_of_connections {
                return None;
            }
            given = given.or(rule.class);
            met.push(Arc::clone(&rule.state));
            if rule.pass {
                has_passed = true;
                break;
            }
        }
        let class = given.map_or(class, |given| self.classes().refer(given));
        Some(Outcome { class, has_class: given.is_some(), has_passed, met: met.into() })
    }
}
