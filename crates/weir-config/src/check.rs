//! Checks a KDL document against the key table: unknown, misplaced, doubled and missing keys, and
//! every single value. What comes out is lines with typed values and defaults filled in; what keys
//! mean together is [`crate::build`]'s to check.

use std::collections::HashMap;

use kdl::{KdlEntry, KdlIdentifier, KdlNode};

use crate::source::{Source, Span};
use crate::suggest;
use crate::table::{Block, Key, Presence, Slot, all_keys};
use crate::value::{FromValue, Kind, Value};

/// The lines of a block, in file order; defaults come last.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    /// The block has keys that are not known, so that what seems missing may be misspelt.
    has_unknown: bool,
}

/// One line: a key with its values and its block.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) key: &'static Key,
    /// Where the key is written; of a default: where its block is.
    pub(crate) span: Span,
    values: Vec<Filled>,
    /// Arguments and properties that are written and wrong, for which there are errors already.
    refused: Vec<&'static str>,
    /// The lines of its block.
    pub(crate) lines: Lines,
}

#[derive(Debug)]
struct Filled {
    slot: &'static str,
    value: Value,
    /// Where it is written; none for a default.
    span: Option<Span>,
}

impl Lines {
    /// The line of a key that does not repeat.
    pub(crate) fn one(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.key.name == name)
    }

    /// The lines of a key, in file order.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.key.name == name)
    }

    /// All lines, in file order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    /// True if a key that is not there would have been written, were it meant: the block has no
    /// misspelt key, for which there is an error already.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        self.is_known() && self.one(name).is_none()
    }

    /// True if no key of the block is misspelt, so that what is not there is not meant to be.
    pub(crate) fn is_known(&self) -> bool {
        !self.has_unknown
    }

    /// The value of a key with one argument.
    pub(crate) fn value<T: FromValue>(&self, name: &str) -> Option<T> {
        let line = self.one(name)?;
        line.value(line.key.arguments.first()?.name)
    }
}

impl Line {
    /// The value of an argument or property, written or default.
    pub(crate) fn value<T: FromValue>(&self, slot: &str) -> Option<T> {
        let filled = self.values.iter().find(|filled| filled.slot == slot)?;
        T::from_value(filled.value.clone())
    }

    /// The values of a repeated argument, with their places.
    pub(crate) fn values<T: FromValue>(&self, slot: &str) -> Vec<(T, Span)> {
        let filled = self.values.iter().filter(|filled| filled.slot == slot);
        filled
            .filter_map(|f| Some((T::from_value(f.value.clone())?, f.span.unwrap_or(self.span))))
            .collect()
    }

    /// Where a value is written; the key's place if it is not.
    pub(crate) fn span_of(&self, slot: &str) -> Span {
        let filled = self.values.iter().find(|filled| filled.slot == slot);
        filled.and_then(|filled| filled.span).unwrap_or(self.span)
    }

    /// True if the value is written and wrong.
    pub(crate) fn is_refused(&self, slot: &str) -> bool {
        self.refused.contains(&slot)
    }

    /// How many values are written.
    pub(crate) fn written(&self) -> usize {
        self.values.iter().filter(|filled| filled.span.is_some()).count()
    }

    /// True if the value is written, rather than a default.
    pub(crate) fn is_written(&self, slot: &str) -> bool {
        self.values.iter().any(|filled| filled.slot == slot && filled.span.is_some())
    }
}

/// Checks the lines of a block. `place` is where the block's key is.
pub(crate) fn block(
    source: &mut Source<'_>,
    block: Block,
    nodes: &[KdlNode],
    place: Span,
) -> Lines {
    let mut lines = Vec::new();
    let mut has_unknown = false;
    let mut first: HashMap<&str, usize> = HashMap::new();
    for node in nodes {
        if source.is_full() {
            break;
        }
        let name = node.name().value();
        let span = identifier_span(node.name());
        let Some(key) = block.key(name) else {
            unknown_key(source, block, name, span);
            has_unknown = true;
            continue;
        };
        let at = *first.entry(key.name).or_insert(span.start);
        if !key.repeats && at != span.start {
            let line = source.line_of(at);
            source.error(span, format!("`{name}` is already set on line {line}"));
            continue;
        }
        lines.push(check_line(source, key, node, span));
    }
    for key in block.keys().filter(|key| key.has_defaults() && !first.contains_key(key.name)) {
        lines.push(implied(source, key, place));
    }
    Lines { lines, has_unknown }
}

fn unknown_key(source: &mut Source<'_>, block: Block, name: &str, span: Span) {
    let near = suggest::nearest(name, block.keys().map(|key| key.name));
    let owner = block.keys().find(|key| key.properties.iter().any(|slot| slot.name == name));
    if let Some(key) = owner {
        let message =
            format!("`{name}` is no key of {} but a property of `{}`", block.name(), key.name);
        source.error(span, message).expect([format!("`{} … {name}=…`", key.name)]);
        return;
    }
    let elsewhere = all_keys().find(|key| key.name == name).filter(|_| near.is_none());
    let place = block.name();
    let message = match elsewhere {
        Some(key) => {
            format!("`{}` does not belong in {place} but in {}", shorten(name), key.block.name())
        }
        None => format!("unknown key \"{}\" in {place}", shorten(name)),
    };
    let error = source.error(span, message);
    error.suggest(near);
    error.expect(block.keys().map(|key| key.name));
}

fn check_line(source: &mut Source<'_>, key: &'static Key, node: &KdlNode, span: Span) -> Line {
    let mut values = Vec::new();
    let mut position = 0;
    for entry in node.entries() {
        let slot = match entry.name() {
            None => {
                position += 1;
                argument(source, key, entry, position - 1)
            }
            Some(_) => property(source, key, entry, &values),
        };
        if let Some(slot) = slot {
            values.push(check_value(source, key, slot, entry));
        }
    }
    // A slot whose value is wrong counts as given: one error for it is enough.
    let given = |slot: &Slot| values.iter().any(|&(name, _)| name == slot.name);
    let missing: Vec<&Slot> = key.slots().filter(|slot| !given(slot)).collect();
    for slot in &missing {
        report_missing(source, key, slot, span);
    }
    let refused =
        values.iter().filter(|(_, value)| value.is_none()).map(|&(name, _)| name).collect();
    let mut values: Vec<Filled> = values.into_iter().filter_map(|(_, filled)| filled).collect();
    // Defaults of arguments hold for lines left out only; `report_missing` has complained.
    values.extend(missing.into_iter().filter_map(default_value));
    let lines = check_children(source, key, node, span);
    Line { key, span, values, refused, lines }
}

/// The slot of a value by position.
fn argument(
    source: &mut Source<'_>,
    key: &'static Key,
    entry: &KdlEntry,
    position: usize,
) -> Option<&'static Slot> {
    if let Some(slot) = key.arguments.get(position) {
        return Some(slot);
    }
    if let Some(slot) = key.arguments.last().filter(|slot| slot.repeats()) {
        return Some(slot);
    }
    // The first of many is enough.
    if position == key.arguments.len() {
        let message = match key.arguments.len() {
            0 => format!("`{}` takes no value of its own", key.name),
            1 => format!("`{}` takes one value", key.name),
            several => format!("`{}` takes {several} values", key.name),
        };
        let error = source.error(value_span(entry), message);
        if !key.properties.is_empty() {
            error.expect(key.properties.iter().map(|slot| format!("{}=…", slot.name)));
        } else if let Some(block) = key.children {
            error.expect([format!("a block: {{ {} }}", key_names(block))]);
        }
    }
    None
}

/// The slot of a property.
fn property(
    source: &mut Source<'_>,
    key: &'static Key,
    entry: &KdlEntry,
    before: &[(&'static str, Option<Filled>)],
) -> Option<&'static Slot> {
    let identifier = entry.name()?;
    let (name, span) = (identifier.value(), identifier_span(identifier));
    let Some(slot) = key.properties.iter().find(|slot| slot.name == name) else {
        unknown_property(source, key, name, span);
        return None;
    };
    if before.iter().any(|&(earlier, _)| earlier == slot.name) {
        source.error(span, format!("`{name}` is given twice"));
        return None;
    }
    Some(slot)
}

fn unknown_property(source: &mut Source<'_>, key: &'static Key, name: &str, span: Span) {
    let shown = shorten(name);
    if key.children.is_some_and(|block| block.key(name).is_some()) {
        let message = format!("`{shown}` of `{}` stands in its block", key.name);
        source.error(span, message).expect([format!("{} … {{ {shown} … }}", key.name)]);
        return;
    }
    let near = suggest::nearest(name, key.properties.iter().map(|slot| slot.name));
    // Like `rate 10 by="source"` for `rate 10; by "source"`.
    if key.block.key(name).is_some_and(|own| own.children.is_none()) {
        let message = format!("`{shown}` is no property of `{}` but a key of its own", key.name);
        source.error(span, message).expect([format!("`{shown} …` on a line of its own")]);
        return;
    }
    let error = source.error(span, format!("unknown property \"{shown}\" of `{}`", key.name));
    error.suggest(near);
    match key.properties {
        [] => error.expect(["no properties"]),
        slots => error.expect(slots.iter().map(|slot| format!("{}=…", slot.name))),
    }
}

fn check_value(
    source: &mut Source<'_>,
    key: &'static Key,
    slot: &'static Slot,
    entry: &KdlEntry,
) -> (&'static str, Option<Filled>) {
    let span = value_span(entry);
    let wrong = match slot.kind.parse(entry.value()) {
        Ok(value) => return (slot.name, Some(Filled { slot: slot.name, value, span: Some(span) })),
        Err(wrong) => wrong,
    };
    let given = shorten(&source.text()[span.start..span.end]);
    let reason = wrong.reason.map_or(String::new(), |reason| format!(": {reason}"));
    let message = format!("{} cannot be {given}{reason}", subject(key, slot));
    let error = source.error(span, message);
    error.suggest(wrong.suggestion);
    match slot.kind {
        Kind::Choice(words) => error.expect(words.iter().map(|word| format!("\"{word}\""))),
        Kind::Status(codes) => error.expect(codes.iter().map(u64::to_string)),
        kind => error.expect([kind.describe()]),
    }
    (slot.name, None)
}

/// A slot as an error names it.
fn subject(key: &Key, slot: &Slot) -> String {
    if key.properties.iter().any(|property| std::ptr::eq(property, slot)) {
        return format!("`{}` of `{}`", slot.name, key.name);
    }
    match key.arguments.len() {
        1 => format!("`{}`", key.name),
        _ => format!("the {} of `{}`", slot.name, key.name),
    }
}

fn report_missing(source: &mut Source<'_>, key: &Key, slot: &Slot, span: Span) {
    let is_argument = key.arguments.iter().any(|argument| std::ptr::eq(argument, slot));
    match slot.presence {
        Presence::Optional(_) | Presence::AnyNumber(_) => return,
        Presence::Default(_) if !is_argument => return,
        Presence::Within(_) => return,
        _ => {}
    }
    let message = if is_argument {
        format!("`{}` needs a value", key.name)
    } else {
        format!("`{}` needs {}=…", key.name, slot.name)
    };
    source.error(span, message).expect([slot.kind.describe()]);
}

fn check_children(source: &mut Source<'_>, key: &'static Key, node: &KdlNode, span: Span) -> Lines {
    match (key.children, node.children()) {
        (Some(block_kind), Some(document)) => block(source, block_kind, document.nodes(), span),
        (Some(block_kind), None) => {
            if key.slots().next().is_none() {
                let message = format!("`{}` needs a block", key.name);
                let keys = key_names(block_kind);
                source.error(span, message).expect([format!("{} {{ {keys} }}", key.name)]);
            }
            block(source, block_kind, &[], span)
        }
        (None, Some(document)) => {
            // The document's span begins after its brace; the key is the better place to point at.
            let error = source.error(span, format!("`{}` has no block", key.name));
            let inside = document.nodes().first().map(|node| node.name().value());
            if let Some(slot) = key.slots().find(|slot| Some(slot.name) == inside) {
                error.expect([format!("{}=… on the same line", slot.name)]);
            }
            Lines::default()
        }
        (None, None) => Lines::default(),
    }
}

/// The line that a key left out stands for.
fn implied(source: &mut Source<'_>, key: &'static Key, place: Span) -> Line {
    let values = key.slots().filter_map(default_value).collect();
    let lines = match key.children {
        Some(block_kind) => block(source, block_kind, &[], place),
        None => Lines::default(),
    };
    Line { key, span: place, values, refused: Vec::new(), lines }
}

fn default_value(slot: &'static Slot) -> Option<Filled> {
    Some(Filled { slot: slot.name, value: slot.default_value()?, span: None })
}

fn key_names(block: Block) -> String {
    block.keys().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// Characters of a wrong name or value that an error repeats.
const SHOWN_MAX: usize = 60;

fn shorten(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

pub(crate) fn identifier_span(identifier: &KdlIdentifier) -> Span {
    let span = identifier.span();
    Span::new(span.offset(), span.offset() + span.len())
}

/// Where an entry's value is written, without a property's name.
fn value_span(entry: &KdlEntry) -> Span {
    let span = entry.span();
    let whole = Span::new(span.offset(), span.offset() + span.len());
    let length = entry.format().map_or(0, |format| format.value_repr.len());
    Span::new(whole.end.saturating_sub(length).max(whole.start), whole.end)
}
