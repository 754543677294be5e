//! The named values of a request that rules ask for, looked up once each, when a rule first asks.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
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
pub(crate) struct Names {
    all: Vec<(Kind, Box<str>)>,
    /// By kind.
    by_name: [HashMap<Box<[u8]>, usize, RandomState>; 3],
}

/// Header fields that are looked up one by one; for more of them, all fields of a request are
/// looked at.
const HEADERS_FEW: usize = 16;

impl Names {
    pub(crate) fn slot(&mut self, kind: Kind, name: &str) -> usize {
        self.find(kind, name.as_bytes()).unwrap_or_else(|| {
            let slot = self.all.len();
            self.all.push((kind, name.into()));
            self.by_name[kind as usize].insert(name.as_bytes().into(), slot);
            slot
        })
    }

    fn find(&self, kind: Kind, name: &[u8]) -> Option<usize> {
        self.by_name[kind as usize].get(name).copied()
    }

    pub(crate) fn of(&self, slot: usize) -> &str {
        &self.all[slot].1
    }

    /// Those of some slots that have to be looked up to have all of them looked up.
    pub(crate) fn representing(&self, slots: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut has_kind = [false; 3];
        let mut slots: Vec<usize> = slots.collect();
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|slot| {
            let kind = self.all[*slot].0;
            let is_new = !std::mem::replace(&mut has_kind[kind as usize], true);
            is_new || (kind == Kind::Header && self.has_few_headers())
        });
        slots
    }

    fn has_few_headers(&self) -> bool {
        self.by_name[Kind::Header as usize].len() <= HEADERS_FEW
    }
}

/// The values of one request.
pub(crate) struct Values<'r, 'a> {
    names: &'r Names,
    subject: &'r Subject<'a>,
    /// By slot: the header field has been looked up. Empty until somebody asks.
    has_header: SmallVec<[bool; 16]>,
    /// Likewise, all header fields.
    has_headers: bool,
    /// All cookies that rules ask for have been looked up.
    has_cookies: bool,
    /// Likewise, parameters of the query.
    has_parameters: bool,
    /// What was found, by slot: of most names nothing, of nearly all others one.
    found: SmallVec<[Found<'a>; 2]>,
}

/// A value, and its name's slot.
pub(crate) type Found<'a> = (usize, Cow<'a, [u8]>);

impl<'r, 'a> Values<'r, 'a> {
    #[inline]
    pub(crate) fn new(names: &'r Names, subject: &'r Subject<'a>) -> Values<'r, 'a> {
        let (has_header, found) = (SmallVec::new(), SmallVec::new());
        let (has_headers, has_cookies, has_parameters) = (false, false, false);
        Values { names, subject, has_header, has_headers, has_cookies, has_parameters, found }
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
        self.look_up(slot);
        self.found.iter().filter(move |(of, _)| *of == slot).map(|(_, value)| &**value)
    }

    /// All that were looked up, each name's together and in order.
    pub(crate) fn by_name(&mut self) -> impl Iterator<Item = (usize, &[Found<'a>])> {
        self.found.sort_by_key(|(slot, _)| *slot);
        self.found.chunk_by(|a, b| a.0 == b.0).map(|values| (values[0].0, values))
    }

    /// Looks a name up, unless that was done.
    #[inline]
    pub(crate) fn look_up(&mut self, slot: usize) {
        let (kind, name) = &self.names.all[slot];
        match kind {
            Kind::Header if self.has_headers || self.has_header.get(slot) == Some(&true) => {}
            Kind::Header if self.names.has_few_headers() => self.find_header(slot, name),
            Kind::Header => self.find_headers(),
            Kind::Cookie if !self.has_cookies => self.find_cookies(),
            Kind::Query if !self.has_parameters => self.find_parameters(),
            _ => {}
        }
    }

    fn find_header(&mut self, slot: usize, name: &str) {
        self.has_header.resize(self.names.all.len(), false);
        self.has_header[slot] = true;
        let see = &mut |value| self.found.push((slot, Cow::Borrowed(value)));
        self.subject.fields.values(name, see);
    }

    fn find_headers(&mut self) {
        self.has_headers = true;
        self.subject.fields.each(&mut |name, value| {
            let is_lower = !name.iter().any(u8::is_ascii_uppercase);
            let name = if is_lower { name.into() } else { Cow::from(name.to_ascii_lowercase()) };
            self.keep(Kind::Header, &name, Cow::Borrowed(value));
        });
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
