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
    /// By slot: the header field has been looked up. Empty until somebody asks.
    has_header: SmallVec<[bool; 16]>,
    /// All cookies that rules ask for have been looked up.
    has_cookies: bool,
    /// Likewise, parameters of the query.
    has_parameters: bool,
    /// What was found, by slot: of most names nothing, of nearly all others one.
    found: SmallVec<[(usize, Cow<'a, [u8]>); 2]>,
}

impl<'r, 'a> Values<'r, 'a> {
    #[inline]
    pub(crate) fn new(names: &'r Names, subject: &'r Subject<'a>) -> Values<'r, 'a> {
        let (has_header, found) = (SmallVec::new(), SmallVec::new());
        Values { names, subject, has_header, has_cookies: false, has_parameters: false, found }
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
        let (kind, name) = &self.names.0[slot];
        match kind {
            Kind::Header if self.has_header.get(slot) != Some(&true) => {
                self.find_header(slot, name)
            }
            Kind::Cookie if !self.has_cookies => self.find_cookies(),
            Kind::Query if !self.has_parameters => self.find_parameters(),
            _ => {}
        }
        self.found.iter().filter(move |(of, _)| *of == slot).map(|(_, value)| &**value)
    }

    fn find_header(&mut self, slot: usize, name: &str) {
        self.has_header.resize(self.names.0.len(), false);
        self.has_header[slot] = true;
        let see = &mut |value| self.found.push((slot, Cow::Borrowed(value)));
        self.subject.fields.values(name, see);
    }

    fn find_cookies(&mut self) {
        self.has_cookies = true;
        self.subject.fields.values("cookie", &mut |field| {
            each_cookie(field, |name, value| {
                self.keep(Kind::Cookie, name, Cow::Borrowed(value));
            });
        });
    }

    fn find_parameters(&mut self) {
        self.has_parameters = true;
        each_parameter(self.subject.query.unwrap_or_default(), |name, value| {
            self.keep(Kind::Query, &name, value);
        });
    }

    fn keep(&mut self, kind: Kind, name: &[u8], value: Cow<'a, [u8]>) {
        if let Some(slot) = self.names.find(kind, name) {
            self.found.push((slot, value));
        }
    }
}
