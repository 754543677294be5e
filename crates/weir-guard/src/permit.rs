//! What a request takes from rules, and the places that it gives back at its end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use crate::bucket::Taken;
use crate::keys::Tag;
use crate::rule::{Count, Rule, RuleState};
use crate::running::Running;
use crate::tables::Tables;

/// A request's places among those being served, given back when it is dropped.
#[derive(Default)]
pub struct Permit(SmallVec<[Place; 1]>);

/// A place among those being served.
enum Place {
    OfRule(Arc<RuleState>),
    OfKey(Arc<Running>, Tag),
}

/// What one rule asks of one request.
pub(crate) struct Toll<'r> {
    pub(crate) tables: &'r Tables,
    pub(crate) rule: &'r Rule,
    /// The key whose words it takes from; none for the rule's own.
    pub(crate) tag: Option<Tag>,
    pub(crate) now_ns: u64,
}

/// Why a toll was not taken.
pub(crate) struct Unpaid {
    pub(crate) reason: Count,
    pub(crate) retry_ns: u64,
}

impl Permit {
    /// Gives all places back.
    pub(crate) fn give_back(&mut self) {
        self.0.clear();
    }

    /// Whether it holds no place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} places", self.0.len())
    }
}

impl Toll<'_> {
    /// Takes a token and a place.
    pub(crate) fn take(&self, permit: &mut Permit) -> Result<(), Unpaid> {
        if self.rule.refuse {
            return Err(Unpaid { reason: Count::Refused, retry_ns: 0 });
        }
        if let Some(pace) = &self.rule.pace {
            let word = match self.tag {
                Some(tag) => self.tables.buckets.bucket(tag, self.now_ns),
                None => &self.rule.state.bucket,
            };
            if let Taken::Wait(retry_ns) = pace.take(word, self.now_ns) {
                return Err(Unpaid { reason: Count::Rate, retry_ns });
            }
        }
        match self.rule.concurrency {
            None => Ok(()),
            Some(most) => match self.place(most) {
                Ok(place) => {
                    permit.0.push(place);
                    Ok(())
                }
                Err(Full) => {
                    self.give_back();
                    Err(Unpaid { reason: Count::Concurrency, retry_ns: 0 })
                }
            },
        }
    }

    /// Gives the token back.
    pub(crate) fn give_back(&self) {
        let Some(pace) = &self.rule.pace else { return };
        match self.tag {
            None => pace.give_back(&self.rule.state.bucket),
            Some(tag) => {
                if let Some(word) = self.tables.buckets.find(tag) {
                    pace.give_back(word);
                }
            }
        }
    }

    fn place(&self, most: u32) -> Result<Place, Full> {
        let Some(tag) = self.tag else {
            let state = &self.rule.state;
            if state.running.fetch_add(1, Relaxed) >= most {
                state.running.fetch_sub(1, Relaxed);
                return Err(Full);
            }
            return Ok(Place::OfRule(Arc::clone(state)));
        };
        let running = &self.tables.running;
        match running.begin(tag, most) {
            true => Ok(Place::OfKey(Arc::clone(running), tag)),
            false => Err(Full),
        }
    }
}

/// As many are being served as may be.
struct Full;

impl Drop for Place {
    fn drop(&mut self) {
        match self {
            Place::OfRule(state) => {
                state.running.fetch_sub(1, Relaxed);
            }
            Place::OfKey(running, tag) => running.end(*tag),
        }
    }
}
