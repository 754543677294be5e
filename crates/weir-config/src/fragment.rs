//! Parts of a configuration from texts of their own: rules of overload control, which change while
//! the server runs, and changes of HTML, which the command line tries out. They get the errors that
//! a file would get.

use std::path::Path;

use kdl::KdlDocument;

use crate::build;
use crate::check;
use crate::error::Errors;
use crate::limits::ADDRESS_RANGES_MAX;
use crate::lists;
use crate::model::{AddressList, Config, Guard, GuardRule, Html};
use crate::source::{Source, Span};
use crate::table::Block;

/// Parses `rule` blocks as they stand in a `guard` block. They may name the classes, lists and
/// sites of `config`; lists have the addresses that they have there. `name` stands for the text in
/// errors. No file is read.
///
/// # Errors
/// All errors that were found, at most [`crate::limits::ERRORS_MAX`]. To have no rule is none.
pub fn parse_rules(name: &str, text: &str, config: &Config) -> Result<Vec<GuardRule>, Errors> {
    let mut source = Source::new(name, text, Path::new(""));
    let rules = rules(&mut source, config);
    finish(source, rules)
}

/// Parses a `guard` block. Its rules may name its own classes and lists and the sites of `config`.
/// Its lists must be lists of `config`, from which they have their addresses: no file is read.
/// Relative paths are relative to the directory of `name`.
///
/// # Errors
/// All errors that were found, at most [`crate::limits::ERRORS_MAX`].
pub fn parse_guard(name: &str, text: &str, config: &Config) -> Result<Guard, Errors> {
    let directory = Path::new(name).parent().unwrap_or(Path::new(""));
    let mut source = Source::new(name, text, directory);
    let guard = guard(&mut source, config);
    finish(source, guard)
}

/// Parses lines as they stand in the `html` block of a route.
///
/// # Errors
/// All errors that were found, at most [`crate::limits::ERRORS_MAX`].
pub fn parse_html(name: &str, text: &str) -> Result<Html, Errors> {
    let mut source = Source::new(name, text, Path::new(""));
    let html = source.document().and_then(|document| {
        let lines = check::block(&mut source, Block::Html, document.nodes(), Span::new(0, 0));
        build::html(&mut source, &lines)
    });
    finish(source, html)
}

fn finish<T>(source: Source<'_>, parsed: Option<T>) -> Result<T, Errors> {
    let file = source.file().to_owned();
    match (source.finish(), parsed) {
        (None, Some(parsed)) => Ok(parsed),
        (Some(errors), _) => Err(errors),
        (None, None) => Err(crate::lost_value(file)),
    }
}

fn rules(source: &mut Source<'_>, config: &Config) -> Option<Vec<GuardRule>> {
    let mut document = source.document()?;
    keep_only(source, &mut document, "rule", "rule \"name\" { … }");
    let lines = check::block(source, Block::Guard, document.nodes(), Span::new(0, 0));
    let mut rules = build::rules(source, &lines, config)?;
    if !source.has_errors() && !lists::fill_rules(&mut rules, &config.guard.lists) {
        report_ranges(source);
    }
    Some(rules)
}

fn guard(source: &mut Source<'_>, config: &Config) -> Option<Guard> {
    let mut document = source.document()?;
    if keep_only(source, &mut document, "guard", "guard { … }") == 0 && !source.has_errors() {
        source.whole_error("there is no `guard` block").expect(["guard { … }"]);
    }
    let lines = check::block(source, Block::File, document.nodes(), Span::new(0, 0));
    let (mut guard, spans) = build::guard(source, &lines, config)?;
    for (list, span) in guard.lists.iter_mut().zip(spans) {
        let is_it = |known: &&AddressList| known.name == list.name && known.path == list.path;
        match config.guard.lists.iter().find(is_it) {
            Some(known) => list.addresses = known.addresses.clone(),
            None => {
                let message = format!(
                    "the running configuration has no list \"{}\" from this file",
                    list.name
                );
                let error = source.error(span, message);
                error.expect(["a reload of a configuration with this list, which reads it"]);
            }
        }
    }
    if !source.has_errors() && !lists::fill(&mut guard) {
        report_ranges(source);
    }
    Some(guard)
}

/// Reports what is not this key, and takes it away. How many are left.
fn keep_only(
    source: &mut Source<'_>,
    document: &mut KdlDocument,
    key: &str,
    example: &str,
) -> usize {
    let nodes = document.nodes_mut();
    nodes.retain(|node| {
        let name = node.name();
        let is_it = name.value() == key;
        if !is_it {
            let message = format!("only `{key}` blocks stand here");
            source.error(check::identifier_span(name), message).expect([example]);
        }
        is_it
    });
    nodes.len()
}

/// Reports that rules and lists come to too many ranges of addresses.
pub(crate) fn report_ranges(source: &mut Source<'_>) {
    let message = format!("the lists of addresses come to more than {ADDRESS_RANGES_MAX} ranges");
    source.whole_error(message).expect([
        "fewer entries",
        "lists that stand alone in `from` and `to`, which many rules can share",
    ]);
}
