//! The named values of a request that rules ask for, looked up once each, when a rule first asks.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::subject::{Subject, each_cookie, each_parameter};

/// Where a named value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Header,
    Cookie,
    Query,
}

impl Kind {
    /// As configuration calls it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Header => "header",
            Kind::Cookie => "cookie",
            Kind::Query => "query",
        }
    }
}

/// All names that a set of rules asks for. A name's position is what rules know it by.
#[derive(Default)]
pub(crate) struct Names(Vec<(Kind, Box<str>)>);

impl Names {
    pub(crate) fn slot(&mut self, kind: Kind, name: &str) -> usize {
        self.find(kind, name.as_bytes()).unwrap_or_else(|| {
            self.0.push((kind, name.into()));
            self.0.len() - 1
        })
    }

    fn find(&self, kind: Kind, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|(known, text)| *known == kind && text.as_bytes() == name)
    }

    pub(crate) fn of(&self, slot: usize) -> &str {
        &self.0[slot].1
    }
}

/// The values of one request.
pub(crate) struct Values<'r, 'a> {
    names: &'r Names,
    subject: &'r Subject<'a>,
    /// By slot: it has been looked up. Empty until somebody asks.
    known: SmallVec<[bool; 16]>,
    /// What was found, by slot: of most names nothing, of nearly all others one.
    found: SmallVec<[(usize, Cow<'a, [u8]>); 2]>,
}

impl<'r, 'a> Values<'r, 'a> {
    #[inline]
    pub(crate) fn new(names: &'r Names, subject: &'r Subject<'a>) -> Values<'r, 'a> {
        Values { names, subject, known: SmallVec::new(), found: SmallVec::new() }
    }

    #[inline]
    pub(crate) fn subject(&self) -> &'r Subject<'a> {
        self.subject
    }

    pub(crate) fn name(&self, slot: usize) -> &'r str {
        self.names.of(slot)
    }

    /// The values of a name.
    #[inline]
    pub(crate) fn of(&mut self, slot: usize) -> impl Iterator<Item = &[u8]> {
        if self.known.get(slot) != Some(&true) {
            self.look_up(slot);
        }
        self.found.iter().filter(move |(of, _)| *of == slot).map(|(_, value)| &**value)
    }

    fn look_up(&mut self, slot: usize) {
        self.known.resize(self.names.0.len(), false);
        let (names, subject, found) = (self.names, self.subject, &mut self.found);
        let (kind, name) = &names.0[slot];
        let mut keep = |name: &[u8], value| {
            if let Some(slot) = names.find(*kind, name) {
                found.push((slot, value));
            }
        };
        match kind {
            Kind::Header => {
                self.known[slot] = true;
                let see = &mut |value| found.push((slot, Cow::Borrowed(value)));
                return subject.fields.values(name, see);
            }
            Kind::Cookie => subject.fields.values("cookie", &mut |field| {
                each_cookie(field, |name, value| keep(name, Cow::Borrowed(value)));
            }),
            Kind::Query => {
                let query = subject.query.unwrap_or_default();
                each_parameter(query, |name, value| keep(&name, value));
            }
        }
        // All names of such a kind are looked for at once.
        for ((of, _), known) in names.0.iter().zip(&mut self.known) {
            *known |= of == kind;
        }
    }
}
