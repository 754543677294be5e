//! The conditions of a rule.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use crate::check::{Line, Lines};
use crate::limits::CONDITIONS_MAX;
use crate::model::{AddressRange, AddressSet, FieldMatch, Match, PathMatch, ValueMatch};
use crate::prefix::Addresses;
use crate::source::Span;
use crate::value::FromValue;

use super::{Build, Known};

/// Keys of conditions that addresses and ports decide.
const OF_CONNECTIONS: [&str; 4] = ["from", "from-port", "to", "port"];
/// Keys of conditions that need a request.
const OF_REQUESTS: [&str; 9] = [
    "site",
    "path",
    "method",
    "header",
    "cookie",
    "query",
    "server-name",
    "content-type",
    "verdict",
];

/// The first condition that needs a request.
pub(super) fn of_requests(lines: &Lines) -> Option<&Line> {
    lines.iter().find(|line| OF_REQUESTS.contains(&line.key.name))
}

impl Build<'_, '_> {
    pub(super) fn conditions(&mut self, rule: &Line, known: &Known) -> Option<Match> {
        let lines = &rule.lines;
        if count(lines) > CONDITIONS_MAX {
            let message = format!("more than {CONDITIONS_MAX} values in the conditions of a rule");
            let error = self.source.error(rule.span, message);
            error.expect(["a `list` for addresses"]);
            return None;
        }
        let sites = self.values::<String>(lines, "site");
        for (name, span) in &sites {
            self.check_site(name, *span, known);
        }
        Some(Match {
            from: self.addresses(lines, "from", known),
            from_ports: self.plain(lines, "from-port"),
            to: self.addresses(lines, "to", known),
            ports: self.plain(lines, "port"),
            sites: sites.into_iter().map(|(name, _)| name).collect(),
            paths: self.paths(lines),
            methods: self.plain(lines, "method"),
            headers: self.fields(lines, "header"),
            cookies: self.fields(lines, "cookie"),
            queries: self.fields(lines, "query"),
            server_names: self.plain(lines, "server-name"),
            content_types: self.plain(lines, "content-type"),
            verdicts: self.plain(lines, "verdict"),
        })
    }

    /// The set of all addresses of a key's lines; none for no line.
    fn addresses(&mut self, lines: &Lines, key: &str, known: &Known) -> Option<AddressSet> {
        let mut own: Vec<AddressRange> = Vec::new();
        let mut lists = Vec::new();
        for (value, span) in values::<Addresses>(lines, key) {
            match value {
                Addresses::Range(range) => own.push(range),
                Addresses::List(name) => {
                    self.check_known("list", &name, span, &known.lists, "@");
                    if lists.contains(&name) {
                        self.source.error(span, format!("\"@{name}\" is given twice"));
                    } else {
                        lists.push(name);
                    }
                }
            }
        }
        let is_given = !own.is_empty() || !lists.is_empty();
        is_given.then(|| AddressSet::with_lists(own, lists))
    }

    fn check_site(&mut self, name: &str, span: Span, known: &Known) {
        match known.aliases.get(name) {
            Some(first) if !known.sites.names.contains(name) => {
                let message = format!("\"{name}\" is a further name of the site \"{first}\"");
                let error = self.source.error(span, message);
                error.expect([format!("\"{first}\", its first")]);
            }
            _ => self.check_known("site", name, span, &known.sites, ""),
        }
    }

    fn paths(&mut self, lines: &Lines) -> Vec<PathMatch> {
        let paths = self.values::<PathMatch>(lines, "path");
        let is_all = |path: &PathMatch| matches!(path, PathMatch::Prefix(path) if path == "/");
        if paths.len() > 1
            && let Some((_, span)) = paths.iter().find(|(path, _)| is_all(path))
        {
            let message = "beside \"/*\", which is every path, no other has a meaning";
            self.source.error(*span, message);
        }
        paths.into_iter().map(|(path, _)| path).collect()
    }

    /// The named values of a key's lines.
    fn fields(&mut self, lines: &Lines, key: &str) -> Vec<FieldMatch> {
        let mut fields: Vec<FieldMatch> = Vec::new();
        for line in lines.all(key) {
            let Some(name) = line.value::<String>("name") else { continue };
            for (value, span) in self.field_values(line) {
                let others = || fields.iter().filter(|field| field.name == name);
                let message = if others().any(|field| field.value == value) {
                    format!("this is given twice for {key} \"{name}\"")
                } else if others().any(|field| field.value == ValueMatch::Present)
                    || (value == ValueMatch::Present && others().next().is_some())
                {
                    format!(
                        "beside any value of {key} \"{name}\" no other line of it has a meaning"
                    )
                } else {
                    fields.push(FieldMatch { name: name.clone(), value });
                    continue;
                };
                self.source.error(span, message);
            }
        }
        fields
    }

    /// What a line says of its value.
    fn field_values(&mut self, line: &Line) -> Vec<(ValueMatch, Span)> {
        let mut values = line.values::<ValueMatch>("value");
        if let Some(exact) = line.value("exact") {
            values.push((exact, line.span_of("exact")));
        }
        let is_refused = line.is_refused("value") || line.is_refused("exact");
        if line.value("absent") == Some(true) {
            if let Some((_, span)) = values.first() {
                let message = "a value has no meaning beside `absent`";
                self.source.error(*span, message);
            }
            return vec![(ValueMatch::Absent, line.span_of("absent"))];
        }
        if values.is_empty() && !is_refused {
            values.push((ValueMatch::Present, line.span_of("name")));
        }
        values
    }

    /// The values of a key's lines, none of them twice.
    fn plain<T: FromValue + Eq + Hash + Clone + Debug>(
        &mut self,
        lines: &Lines,
        key: &str,
    ) -> Vec<T> {
        self.values(lines, key).into_iter().map(|(value, _)| value).collect()
    }

    fn values<T: FromValue + Eq + Hash + Clone>(
        &mut self,
        lines: &Lines,
        key: &str,
    ) -> Vec<(T, Span)> {
        let mut values = values::<T>(lines, key);
        let mut seen = HashSet::new();
        values.retain(|(value, span)| {
            let is_new = seen.insert(value.clone());
            if !is_new {
                self.source.error(*span, format!("this `{key}` is given twice"));
            }
            is_new
        });
        values
    }
}

/// The values of all lines of a key with one argument.
fn values<T: FromValue>(lines: &Lines, key: &str) -> Vec<(T, Span)> {
    let of_line = |line: &Line| {
        let slot = line.key.arguments.first();
        slot.map(|slot| line.values(slot.name)).unwrap_or_default()
    };
    lines.all(key).flat_map(of_line).collect()
}

/// Bytes of the patterns in a rule's conditions.
pub(super) fn pattern_bytes(on: &Match) -> usize {
    let path = |path: &PathMatch| match path {
        PathMatch::Glob(pattern) => pattern.len(),
        PathMatch::Exact(_) | PathMatch::Prefix(_) => 0,
    };
    let field = |field: &FieldMatch| match &field.value {
        ValueMatch::Glob(pattern) => pattern.len(),
        _ => 0,
    };
    let fields = [&on.headers, &on.cookies, &on.queries].into_iter().flatten();
    let types = on.content_types.iter().map(String::len);
    on.paths.iter().map(path).chain(fields.map(field)).chain(types).sum()
}

/// How many values the conditions have.
fn count(lines: &Lines) -> usize {
    let is_condition = |line: &&Line| {
        OF_CONNECTIONS.contains(&line.key.name) || OF_REQUESTS.contains(&line.key.name)
    };
    lines.iter().filter(is_condition).map(Line::written).sum()
}
