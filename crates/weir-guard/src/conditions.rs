//! A rule's conditions, in the form in which they are checked.

use std::net::SocketAddr;

use weir_config::{AddressSet, FieldMatch, Match, PathMatch};

use crate::field::{Field, Test};
use crate::pattern::Glob;
use crate::shares::Shares;
use crate::subject::Ends;
use crate::values::{Kind, Names, Values};

/// All of them must hold.
pub(crate) struct Conditions {
    /// Cheap ones first.
    checks: Box<[Check]>,
    /// Which of them the rule is found by, if there is one to find it by and it was chosen.
    key: Option<usize>,
}

/// A condition: of what is listed, one must be so.
pub(crate) enum Check {
    Method(Box<[Box<str>]>),
    Site(Box<[Box<str>]>),
    Path(Box<[Path]>),
    From(AddressSet),
    To(AddressSet),
    Port(Box<[(u16, u16)]>),
    FromPort(Box<[(u16, u16)]>),
    Verdict(Box<[Box<str>]>),
    ServerName(Box<[Name]>),
    Field(Field),
    ContentType(usize, Box<[Glob]>),
}

pub(crate) enum Path {
    Exact(Box<str>),
    Prefix(Box<str>),
    Glob(Glob),
}

/// A host name, or all below one.
pub(crate) enum Name {
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

impl Conditions {
    pub(crate) fn new(on: &Match, names: &mut Names) -> Conditions {
        let text = |text: &String| Box::from(text.as_str());
        let mut checks = Vec::new();
        checks.extend(listed(&on.methods, text).map(Check::Method));
        checks.extend(listed(&on.sites, text).map(Check::Site));
        checks.extend(listed(&on.paths, Path::new).map(Check::Path));
        checks.extend(on.from.clone().map(Check::From));
        checks.extend(on.to.clone().map(Check::To));
        checks.extend(listed(&on.ports, |range| *range).map(Check::Port));
        checks.extend(listed(&on.from_ports, |range| *range).map(Check::FromPort));
        checks.extend(listed(&on.verdicts, text).map(Check::Verdict));
        checks.extend(listed(&on.server_names, |name| Name::new(name)).map(Check::ServerName));
        for (kind, matches) in
            [(Kind::Header, &on.headers), (Kind::Cookie, &on.cookies), (Kind::Query, &on.queries)]
        {
            checks.extend(fields(kind, matches, names).into_iter().map(Check::Field));
        }
        if let Some(types) = listed(&on.content_types, |text| Glob::new(text)) {
            checks.push(Check::ContentType(names.slot(Kind::Header, "content-type"), types));
        }
        Conditions { checks: checks.into(), key: None }
    }

    /// All of them.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Chooses what the rule is found by: what few rules share, and of such conditions the one that
    /// is looked up fastest.
    pub(crate) fn choose_key(&mut self, shares: &Shares) {
        let checks = self.checks.iter().enumerate();
        let ranked = checks.filter_map(|(at, check)| Some((shares.of(check), check.rank()?, at)));
        self.key = ranked.min().map(|(_, _, at)| at);
    }

    /// The condition that the rule is found by.
    pub(crate) fn key(&self) -> Option<&Check> {
        self.key.map(|at| &self.checks[at])
    }

    /// Whether they hold only once plugins have seen the request.
    pub(crate) fn asks_for_verdict(&self) -> bool {
        self.checks.iter().any(|check| matches!(check, Check::Verdict(_)))
    }

    /// Whether all hold. Where the rule was found by its key, that need not be looked at again.
    #[inline]
    pub(crate) fn hold(&self, values: &mut Values<'_, '_>, is_key_proved: bool) -> bool {
        let proved = self.key.filter(|_| is_key_proved);
        let mut checks = self.checks.iter().enumerate();
        checks.all(|(at, check)| Some(at) == proved || check.holds(values))
    }

    /// Whether all hold for every request for a path; `None` if that depends on the request.
    pub(crate) fn hold_for_path(&self, path: &str) -> Option<bool> {
        let mut holds = Some(true);
        for check in &self.checks {
            match check {
                Check::Path(paths) if paths.iter().any(|known| known.is_match(path)) => {}
                Check::Path(_) => return Some(false),
                _ => holds = None,
            }
        }
        holds
    }

    /// Whether those on addresses and ports hold.
    pub(crate) fn hold_for(&self, ends: &Ends) -> bool {
        self.checks.iter().all(|check| check.holds_for(ends))
    }

    /// The first that does not hold.
    pub(crate) fn failing(&self, values: &mut Values<'_, '_>) -> Option<Failing> {
        let failing = self.checks.iter().find(|check| !check.holds(values))?;
        let (key, slot) = match failing {
            Check::Method(_) => ("method", None),
            Check::Site(_) => ("site", None),
            Check::Path(_) => ("path", None),
            Check::From(_) => ("from", None),
            Check::To(_) => ("to", None),
            Check::Port(_) => ("port", None),
            Check::FromPort(_) => ("from-port", None),
            Check::Verdict(_) => ("verdict", None),
            Check::ServerName(_) => ("server-name", None),
            Check::Field(field) => (field.kind.as_str(), Some(field.slot)),
            Check::ContentType(..) => ("content-type", None),
        };
        Some(Failing { key, slot })
    }
}

/// The list of a condition that was given.
fn listed<T, U>(values: &[T], form: impl Fn(&T) -> U) -> Option<Box<[U]>> {
    (!values.is_empty()).then(|| values.iter().map(form).collect())
}

fn fields(kind: Kind, matches: &[FieldMatch], names: &mut Names) -> Vec<Field> {
    let mut of_kind: Vec<(usize, Vec<Test>)> = Vec::new();
    for field in matches {
        let slot = names.slot(kind, &field.name);
        let test = Test::new(&field.value);
        match of_kind.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, tests)) => tests.push(test),
            None => of_kind.push((slot, vec![test])),
        }
    }
    of_kind.into_iter().map(|(slot, tests)| Field::new(slot, kind, tests)).collect()
}

impl Check {
    /// How cheap it is to look up: the least is cheapest; nothing if no rule is found by it.
    fn rank(&self) -> Option<u8> {
        match self {
            Check::Field(field) if field.tests.iter().all(Test::is_exact) => Some(0),
            Check::Path(_) => Some(1),
            Check::Field(field) if !field.tests.iter().any(Test::is_absent) => Some(2),
            Check::From(_) => Some(3),
            Check::Verdict(_) => Some(4),
            Check::ServerName(names) if names.iter().all(Name::is_listed) => Some(5),
            Check::ContentType(..) => Some(6),
            Check::Site(_) => Some(7),
            Check::To(_) => Some(8),
            _ => None,
        }
    }

    /// How many values it lists.
    pub(crate) fn len(&self) -> usize {
        match self {
            Check::Method(list) | Check::Site(list) | Check::Verdict(list) => list.len(),
            Check::Path(paths) => paths.len(),
            Check::Port(ranges) | Check::FromPort(ranges) => ranges.len(),
            Check::ServerName(names) => names.len(),
            Check::Field(field) => field.tests.len(),
            Check::ContentType(_, types) => types.len(),
            // Looked up as one.
            Check::From(_) | Check::To(_) => 1,
        }
    }

    #[inline]
    fn holds(&self, values: &mut Values<'_, '_>) -> bool {
        let subject = values.subject();
        let has = |texts: &[Box<str>], text: &str| texts.iter().any(|known| **known == *text);
        match self {
            Check::Method(methods) => has(methods, subject.method),
            Check::Site(sites) => has(sites, subject.site),
            Check::Path(paths) => paths.iter().any(|path| path.is_match(subject.path)),
            Check::From(_) | Check::To(_) | Check::Port(_) | Check::FromPort(_) => {
                self.holds_for(&subject.ends)
            }
            Check::Verdict(verdicts) => has(verdicts, subject.verdict),
            Check::ServerName(names) => {
                let is_one = |asked| names.iter().any(|name| name.is_match(asked));
                subject.server_name.is_some_and(is_one)
            }
            Check::Field(field) => field.holds(values),
            Check::ContentType(slot, types) => {
                values.of(*slot).any(|value| is_media_type(value, types))
            }
        }
    }

    /// Whether it holds if it asks for addresses or ports, and nothing against it otherwise.
    fn holds_for(&self, ends: &Ends) -> bool {
        let has = |ranges: &[(u16, u16)], end: Option<SocketAddr>| {
            let is_in = |port| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
            end.is_some_and(|end| is_in(end.port()))
        };
        match self {
            Check::From(from) => ends.source_ip().is_some_and(|address| from.contains(address)),
            Check::To(to) => ends.destination_ip().is_some_and(|address| to.contains(address)),
            Check::Port(ports) => has(ports, ends.destination),
            Check::FromPort(ports) => has(ports, ends.source),
            _ => true,
        }
    }
}

/// Compares the media type.
fn is_media_type(value: &[u8], types: &[Glob]) -> bool {
    let media_type = media_type(value);
    types.iter().any(|glob| glob.is_match(&media_type))
}

/// The media type without its parameters (RFC 9110 §8.3.1).
pub(crate) fn media_type(value: &[u8]) -> Vec<u8> {
    let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
    value[..end].trim_ascii().to_ascii_lowercase()
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

impl Name {
    fn new(name: &str) -> Name {
        match name.strip_prefix('*') {
            Some(below) => Name::Below(below.into()),
            None => Name::Exact(name.into()),
        }
    }

    /// Whether it can be looked up by what is asked for from one of its dots on.
    fn is_listed(&self) -> bool {
        !matches!(self, Name::Below(suffix) if !suffix.starts_with('.'))
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
