//! A rule's conditions, in the form in which they are checked.

use std::borrow::Cow;

use weir_config::{AddressSet, FieldMatch, Match, PathMatch, ValueMatch};

use crate::pattern::Glob;
use crate::subject::{Ends, Subject};
use crate::values::{Kind, Names, Values};

/// All of them must hold; an empty list is a condition that was not given.
#[derive(Default)]
pub(crate) struct Conditions {
    from: Option<AddressSet>,
    from_ports: Box<[(u16, u16)]>,
    to: Option<AddressSet>,
    ports: Box<[(u16, u16)]>,
    sites: Box<[Box<str>]>,
    pub(crate) paths: Box<[Path]>,
    methods: Box<[Box<str>]>,
    pub(crate) fields: Box<[Field]>,
    server_names: Box<[Name]>,
    content_types: Option<(usize, Box<[Glob]>)>,
    verdicts: Box<[Box<str>]>,
}

pub(crate) enum Path {
    Exact(Box<str>),
    Prefix(Box<str>),
    Glob(Glob),
}

/// A named value, and what it may be: any of these.
pub(crate) struct Field {
    pub(crate) slot: usize,
    kind: Kind,
    pub(crate) tests: Box<[Test]>,
}

pub(crate) enum Test {
    Present,
    Absent,
    Exact(Box<[u8]>),
    Glob(Glob),
}

/// A host name, or all below one.
enum Name {
    Exact(Box<str>),
    /// `.example` for `*.example`.
    Below(Box<str>),
}

/// The condition that does not hold: its key, and of values by name which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) key: &'static str,
    pub(crate) slot: Option<usize>,
}

impl Failing {
    fn of(key: &'static str) -> Option<Failing> {
        Some(Failing { key, slot: None })
    }
}

impl Conditions {
    pub(crate) fn new(on: &Match, names: &mut Names) -> Conditions {
        let texts = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
        let mut fields = Vec::new();
        for (kind, matches) in
            [(Kind::Header, &on.headers), (Kind::Cookie, &on.cookies), (Kind::Query, &on.queries)]
        {
            add_fields(&mut fields, kind, matches, names);
        }
        let content_types = (!on.content_types.is_empty()).then(|| {
            let slot = names.slot(Kind::Header, "content-type");
            (slot, on.content_types.iter().map(|text| Glob::new(text)).collect())
        });
        Conditions {
            from: on.from.clone(),
            from_ports: on.from_ports.as_slice().into(),
            to: on.to.clone(),
            ports: on.ports.as_slice().into(),
            sites: texts(&on.sites),
            paths: on.paths.iter().map(Path::new).collect(),
            methods: texts(&on.methods),
            fields: fields.into(),
            server_names: on.server_names.iter().map(|name| Name::new(name)).collect(),
            content_types,
            verdicts: texts(&on.verdicts),
        }
    }

    pub(crate) fn from(&self) -> Option<&AddressSet> {
        self.from.as_ref()
    }

    pub(crate) fn sites(&self) -> &[Box<str>] {
        &self.sites
    }

    /// Whether they hold only once plugins have seen the request.
    pub(crate) fn asks_for_verdict(&self) -> bool {
        !self.verdicts.is_empty()
    }

    /// The condition on addresses and ports that does not hold.
    #[inline]
    pub(crate) fn failing_ends(&self, ends: &Ends) -> Option<Failing> {
        if let Some(from) = &self.from
            && !ends.source_ip().is_some_and(|address| from.contains(address))
        {
            return Failing::of("from");
        }
        if let Some(to) = &self.to
            && !ends.destination_ip().is_some_and(|address| to.contains(address))
        {
            return Failing::of("to");
        }
        let fails = |ranges: &[(u16, u16)], port: Option<u16>| {
            let is_in = |port| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
            !ranges.is_empty() && !port.is_some_and(is_in)
        };
        if fails(&self.ports, ends.destination.map(|to| to.port())) {
            return Failing::of("port");
        }
        fails(&self.from_ports, ends.source.map(|from| from.port()))
            .then_some("from-port")
            .and_then(Failing::of)
    }

    /// The first condition that does not hold, cheap ones first.
    #[inline]
    pub(crate) fn failing(&self, values: &mut Values<'_, '_>) -> Option<Failing> {
        let subject = values.subject();
        let lacks = |texts: &[Box<str>], text: &str| {
            !texts.is_empty() && !texts.iter().any(|known| **known == *text)
        };
        if lacks(&self.methods, subject.method) {
            return Failing::of("method");
        }
        if lacks(&self.sites, subject.site) {
            return Failing::of("site");
        }
        if !self.paths.is_empty() && !self.paths.iter().any(|path| path.is_match(subject.path)) {
            return Failing::of("path");
        }
        if let Some(failing) = self.failing_ends(&subject.ends) {
            return Some(failing);
        }
        if lacks(&self.verdicts, subject.verdict) {
            return Failing::of("verdict");
        }
        self.failing_server_name(subject).or_else(|| self.failing_value(values))
    }

    fn failing_server_name(&self, subject: &Subject<'_>) -> Option<Failing> {
        if self.server_names.is_empty() {
            return None;
        }
        let is_one = |asked| self.server_names.iter().any(|name| name.is_match(asked));
        (!subject.server_name.is_some_and(is_one)).then_some("server-name").and_then(Failing::of)
    }

    fn failing_value(&self, values: &mut Values<'_, '_>) -> Option<Failing> {
        let holds = |field: &Field, values: &mut Values<'_, '_>| {
            let found = values.of(field.slot);
            field.tests.iter().any(|test| test.holds(found))
        };
        if let Some(field) = self.fields.iter().find(|field| !holds(field, values)) {
            return Some(Failing { key: field.kind.as_str(), slot: Some(field.slot) });
        }
        let (slot, types) = self.content_types.as_ref()?;
        // The media type without its parameters (RFC 9110 §8.3.1).
        let is_one = |value: &Cow<'_, [u8]>| {
            let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
            let media_type = value[..end].trim_ascii().to_ascii_lowercase();
            types.iter().any(|glob| glob.is_match(&media_type))
        };
        (!values.of(*slot).iter().any(is_one)).then_some("content-type").and_then(Failing::of)
    }
}

fn add_fields(fields: &mut Vec<Field>, kind: Kind, matches: &[FieldMatch], names: &mut Names) {
    let mut of_kind: Vec<(usize, Vec<Test>)> = Vec::new();
    for field in matches {
        let slot = names.slot(kind, &field.name);
        let test = Test::new(&field.value);
        match of_kind.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, tests)) => tests.push(test),
            None => of_kind.push((slot, vec![test])),
        }
    }
    let field = |(slot, tests): (usize, Vec<Test>)| Field { slot, kind, tests: tests.into() };
    fields.extend(of_kind.into_iter().map(field));
}

impl Path {
    fn new(path: &PathMatch) -> Path {
        match path {
            PathMatch::Exact(path) => Path::Exact(path.as_str().into()),
            PathMatch::Prefix(prefix) => Path::Prefix(prefix.as_str().into()),
            PathMatch::Glob(pattern) => Path::Glob(Glob::new(pattern)),
        }
    }

    fn is_match(&self, path: &str) -> bool {
        match self {
            Path::Exact(exact) => **exact == *path,
            Path::Prefix(prefix) => path.starts_with(&**prefix),
            Path::Glob(glob) => glob.is_match(path.as_bytes()),
        }
    }
}

impl Test {
    fn new(value: &ValueMatch) -> Test {
        match value {
            ValueMatch::Present => Test::Present,
            ValueMatch::Absent => Test::Absent,
            ValueMatch::Exact(text) => Test::Exact(text.as_bytes().into()),
            ValueMatch::Glob(pattern) => Test::Glob(Glob::new(pattern)),
        }
    }

    fn holds(&self, found: &[Cow<'_, [u8]>]) -> bool {
        match self {
            Test::Present => !found.is_empty(),
            Test::Absent => found.is_empty(),
            Test::Exact(text) => found.iter().any(|value| **value == **text),
            Test::Glob(glob) => found.iter().any(|value| glob.is_match(value)),
        }
    }
}

impl Name {
    fn new(name: &str) -> Name {
        match name.strip_prefix('*') {
            Some(below) => Name::Below(below.into()),
            None => Name::Exact(name.into()),
        }
    }

    /// Names are compared without regard to case (RFC 6066 §3).
    fn is_match(&self, asked: &str) -> bool {
        match self {
            Name::Exact(name) => name.eq_ignore_ascii_case(asked),
            Name::Below(suffix) => {
                let at = asked.len().saturating_sub(suffix.len());
                at > 0 && asked.as_bytes()[at..].eq_ignore_ascii_case(suffix.as_bytes())
            }
        }
    }
}
