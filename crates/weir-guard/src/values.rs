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
        let known = self.0.iter().position(|(k, n)| *k == kind && **n == *name);
        known.unwrap_or_else(|| {
            self.0.push((kind, name.into()));
            self.0.len() - 1
        })
    }

    pub(crate) fn of(&self, slot: usize) -> &str {
        &self.0[slot].1
    }
}

/// Values of one name; nearly always one.
type Found<'a> = SmallVec<[Cow<'a, [u8]>; 1]>;

/// The values of one request.
pub(crate) struct Values<'r, 'a> {
    names: &'r Names,
    subject: &'r Subject<'a>,
    /// By slot; `None` until somebody asks.
    found: SmallVec<[Option<Found<'a>>; 4]>,
}

impl<'r, 'a> Values<'r, 'a> {
    pub(crate) fn new(names: &'r Names, subject: &'r Subject<'a>) -> Values<'r, 'a> {
        Values { names, subject, found: SmallVec::new() }
    }

    pub(crate) fn subject(&self) -> &'r Subject<'a> {
        self.subject
    }

    pub(crate) fn name(&self, slot: usize) -> &'r str {
        self.names.of(slot)
    }

    /// The values of a name.
    pub(crate) fn of(&mut self, slot: usize) -> &[Cow<'a, [u8]>] {
        if self.found.is_empty() {
            self.found.resize_with(self.names.0.len(), || None);
        }
        if self.found[slot].is_none() {
            match self.names.0[slot].0 {
                Kind::Header => self.find_header(slot),
                Kind::Cookie => self.find_cookies(),
                Kind::Query => self.find_parameters(),
            }
        }
        self.found[slot].as_deref().unwrap_or_default()
    }

    fn find_header(&mut self, slot: usize) {
        let mut values = Found::new();
        let see = &mut |value| values.push(Cow::Borrowed(value));
        self.subject.fields.values(self.names.of(slot), see);
        self.found[slot] = Some(values);
    }

    fn find_cookies(&mut self) {
        self.prepare(Kind::Cookie);
        let (names, found) = (self.names, &mut self.found);
        self.subject.fields.values("cookie", &mut |field| {
            each_cookie(field, |name, value| {
                keep(names, found, Kind::Cookie, name, Cow::Borrowed(value));
            });
        });
    }

    fn find_parameters(&mut self) {
        self.prepare(Kind::Query);
        let (names, found) = (self.names, &mut self.found);
        each_parameter(self.subject.query.unwrap_or_default(), |name, value| {
            keep(names, found, Kind::Query, &name, value);
        });
    }

    /// All names of a kind are looked for at once.
    fn prepare(&mut self, kind: Kind) {
        for ((known, _), found) in self.names.0.iter().zip(&mut self.found) {
            if *known == kind {
                *found = Some(Found::new());
            }
        }
    }
}

fn keep<'a>(
    names: &Names,
    found: &mut [Option<Found<'a>>],
    kind: Kind,
    name: &[u8],
    value: Cow<'a, [u8]>,
) {
    let is_it = |(known, text): &(Kind, Box<str>)| *known == kind && text.as_bytes() == name;
    if let Some(slot) = names.0.iter().position(is_it) {
        found[slot].get_or_insert_default().push(value);
    }
}
