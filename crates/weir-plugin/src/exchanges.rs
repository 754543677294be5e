//! The requests that are open in an instance. The one in hand is kept apart: nearly every look is
//! for it, and one that only visits never gets into the table.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::exchange::{Exchange, Facts};

/// Exchanges by number.
#[derive(Default)]
pub(crate) struct Exchanges {
    in_hand: Option<(u32, Box<Exchange>)>,
    others: HashMap<u32, Box<Exchange>, RandomState>,
    /// Some that are over, to be used again: making one anew costs more than a call.
    #[allow(clippy::vec_box, reason = "they come in boxes and go in boxes")]
    spares: Vec<Box<Exchange>>,
}

/// How many are kept.
const SPARES_MAX: usize = 16;

impl Exchanges {
    #[inline]
    pub(crate) fn get(&self, id: &u32) -> Option<&Exchange> {
        match &self.in_hand {
            Some((known, exchange)) if known == id => Some(exchange),
            _ => self.others.get(id).map(|exchange| &**exchange),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: &u32) -> Option<&mut Exchange> {
        match &mut self.in_hand {
            Some((known, exchange)) if known == id => Some(exchange),
            _ => self.others.get_mut(id).map(|exchange| &mut **exchange),
        }
    }

    #[inline]
    pub(crate) fn contains_key(&self, id: &u32) -> bool {
        self.get(id).is_some()
    }

    /// One for another request.
    #[inline]
    pub(crate) fn fresh(&mut self, facts: &Facts) -> Box<Exchange> {
        match self.spares.pop() {
            Some(mut spare) => {
                spare.begin(facts);
                spare
            }
            None => Box::new(Exchange::new(facts.clone())),
        }
    }

    /// One is over.
    #[inline]
    pub(crate) fn retire(&mut self, id: &u32) {
        if let Some(mut over) = self.remove(id) {
            over.end();
            self.keep(over);
        }
    }

    /// One that holds nothing of its request is there for another.
    #[inline]
    pub(crate) fn keep(&mut self, spare: Box<Exchange>) {
        if self.spares.len() < SPARES_MAX {
            self.spares.push(spare);
        }
    }

    /// Puts one in.
    #[inline]
    pub(crate) fn insert(&mut self, id: u32, exchange: Box<Exchange>) {
        if let Some((before, other)) = self.in_hand.replace((id, exchange)) {
            self.others.insert(before, other);
        }
    }

    /// Takes one out.
    #[inline]
    pub(crate) fn remove(&mut self, id: &u32) -> Option<Box<Exchange>> {
        match self.in_hand.take_if(|(known, _)| known == id) {
            Some((_, exchange)) => Some(exchange),
            None if self.others.is_empty() => None,
            None => self.others.remove(id),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.others.len() + usize::from(self.in_hand.is_some())
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        *self = Exchanges::default();
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Exchange> {
        let in_hand = self.in_hand.iter().map(|(_, exchange)| &**exchange);
        in_hand.chain(self.others.values().map(|exchange| &**exchange))
    }
}
