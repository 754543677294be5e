//! What rules would decide about a request, and why, without counting it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_config::RefusalAnswer;

use crate::bucket::Pace;
use crate::class::ClassId;
use crate::decision::Moment;
use crate::keys::Tag;
use crate::rule::Rule;
use crate::rules::Rules;
use crate::subject::{Ends, Subject};
use crate::values::Values;

/// What each rule makes of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The class it gets.
    pub class: ClassId,
    /// The rules in order, as far as the search goes.
    pub rules: Vec<Met>,
    /// The rule that refuses it at this moment, by its place in `rules`.
    pub refused_by: Option<usize>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Met {
    /// Its name.
    pub rule: String,
    /// The first condition that does not hold, as configuration writes it.
    pub fails: Option<String>,
    /// The class that the request gets by this rule.
    pub gives_class: Option<ClassId>,
    /// What it limits, if it does.
    pub limit: Option<Limit>,
    /// The search ends here.
    pub ends: bool,
}

/// A rule's limit on the request at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// It counts connections, not requests.
    pub of_connections: bool,
    /// It holds at this moment: always, or since there is overload.
    pub holds: bool,
    /// It holds at all times.
    pub always: bool,
    /// It is only tried, and lets through what it would refuse.
    pub dry_run: bool,
    /// It refuses all.
    pub refuses_all: bool,
    /// Tokens left in the bucket of this request, if it has a rate.
    pub tokens_left: Option<u64>,
    /// Requests being served of as many as may, likewise.
    pub running: Option<(u32, u32)>,
    /// How it refuses.
    pub answer: RefusalAnswer,
}

impl Limit {
    /// Whether the next request is refused.
    fn refuses(&self) -> bool {
        !self.dry_run && self.is_exceeded()
    }

    /// Whether the next request is refused, or would be if the rule were not only tried.
    pub fn is_exceeded(&self) -> bool {
        let is_full = self.running.is_some_and(|(running, most)| running >= most);
        self.holds && (self.refuses_all || self.tokens_left == Some(0) || is_full)
    }
}

impl Rules {
    /// Explains what would become of a request at a moment. Takes nothing from any bucket.
    pub fn explain(&self, subject: &Subject<'_>, moment: &Moment) -> Explained {
        self.explain_with(subject, moment, &|_| None)
    }

    /// The same where somebody else keeps buckets of rules for connections: `elsewhere` says how
    /// many tokens are left in that of a rule.
    pub fn explain_with(
        &self,
        subject: &Subject<'_>,
        moment: &Moment,
        elsewhere: &dyn Fn(&str) -> Option<u64>,
    ) -> Explained {
        let mut values = Values::new(&self.names, subject);
        let (mut class, mut given, mut refused_by) = (self.classes().default(), false, None);
        let mut rules = Vec::new();
        // Rules that ask for plugins' verdicts come after all others.
        let is_late = |at: &usize| self.all[*at].on.asks_for_verdict();
        let (late, early): (Vec<_>, Vec<_>) = (0..self.all.len()).partition(is_late);
        for at in early.into_iter().chain(late) {
            let rule = &self.all[at];
            let failing = rule.on.failing(&mut values);
            let fails = failing.map(|failing| match failing.slot {
                Some(slot) => format!("{} \"{}\"", failing.key, values.name(slot)),
                None => failing.key.to_owned(),
            });
            let mut met = Met {
                rule: rule.name.to_string(),
                fails,
                gives_class: None,
                limit: None,
                ends: false,
            };
            if met.fails.is_none() {
                met.gives_class = rule.class.filter(|_| !given);
                (class, given) = (met.gives_class.unwrap_or(class), given || rule.class.is_some());
                let key = self.value_key(rule, &mut values);
                met.limit = rule.limits().then(|| {
                    let mut limit = self.limit(rule, &subject.ends, key, moment);
                    if let Some(left) = elsewhere(&rule.name).filter(|_| limit.of_connections) {
                        limit.tokens_left = Some(left);
                    }
                    limit
                });
                met.ends = rule.pass;
            }
            let refuses = met.limit.as_ref().is_some_and(Limit::refuses);
            let ends = met.ends || refuses;
            rules.push(met);
            if refuses {
                refused_by = Some(rules.len() - 1);
            }
            if ends {
                break;
            }
        }
        Explained { class, rules, refused_by }
    }

    /// A rule's limit on a request as it stands.
    fn limit(&self, rule: &Rule, ends: &Ends, value: Option<Tag>, moment: &Moment) -> Limit {
        let tag = self.tables.tag(rule, ends, value);
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
            dry_run: rule.dry_run,
            refuses_all: rule.refuse,
            tokens_left: rule.pace.as_ref().and_then(left),
            running: rule.concurrency.and_then(running),
            answer: rule.answer,
        }
    }
}
