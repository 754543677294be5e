//! The `guard` block: its settings, classes and lists. Rules are built in [`rule`], what they mean
//! together is checked here.

mod conditions;
mod rule;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::check::{Line, Lines};
use crate::files::LIST_PURPOSE;
use crate::limits::{CLASSES_MAX, LISTS_MAX, PATTERNS_SIZE_MAX, RULES_MAX, SHARES_MAX};
use crate::model::{
    AddressList, AddressSet, Class, Config, DEFAULT_CLASS, Guard, GuardRule, Interface,
    InterfaceHook, KernelUse, Match,
};
use crate::source::Span;
use crate::suggest;

use super::{Build, Expected};
use conditions::pattern_bytes;

pub(crate) use rule::default_answer;

/// Names that an error shows of those it would accept.
const SHOWN_MAX: usize = 20;

/// What rules may name.
#[derive(Default)]
pub(super) struct Known {
    classes: Names,
    lists: Names,
    /// First names of sites.
    sites: Names,
    /// The first name of the site that each further name belongs to.
    aliases: BTreeMap<String, String>,
}

/// Names of one kind.
#[derive(Default)]
struct Names {
    names: BTreeSet<String>,
    /// A line of the kind is wrong, so that a name that seems missing may be its.
    is_open: bool,
}

impl Known {
    /// What the lines of a file declare.
    pub(super) fn of_file(file: &Lines, guard: &Lines) -> Known {
        let mut known = Known {
            classes: Names::of_lines(guard, "class"),
            lists: Names::of_lines(guard, "list"),
            sites: Names::of_lines(file, "site"),
            aliases: BTreeMap::new(),
        };
        known.classes.names.insert(DEFAULT_CLASS.to_owned());
        for site in file.all("site") {
            let mut names = site.values::<String>("name").into_iter().map(|(name, _)| name);
            let Some(first) = names.next() else { continue };
            known.aliases.extend(names.map(|name| (name, first.clone())));
        }
        known
    }

    /// What a configuration has: the classes and lists of a `guard` block that is to be replaced
    /// are not among it.
    pub(super) fn of_config(config: &Config, guard: Option<&Lines>) -> Known {
        let names = |names: Vec<&String>| Names {
            names: names.into_iter().cloned().collect(),
            is_open: false,
        };
        let Guard { classes, lists, .. } = &config.guard;
        let (mut classes, lists) = match guard {
            Some(guard) => (Names::of_lines(guard, "class"), Names::of_lines(guard, "list")),
            None => (
                names(classes.iter().map(|class| &class.name).collect()),
                names(lists.iter().map(|list| &list.name).collect()),
            ),
        };
        classes.names.insert(DEFAULT_CLASS.to_owned());
        let first = config.sites.iter().filter_map(|site| site.names.first());
        let mut aliases = BTreeMap::new();
        for site in &config.sites {
            let Some((first, others)) = site.names.split_first() else { continue };
            aliases.extend(others.iter().map(|name| (name.clone(), first.clone())));
        }
        Known { classes, lists, sites: names(first.collect()), aliases }
    }
}

impl Names {
    /// The first names of a key's lines.
    fn of_lines(lines: &Lines, key: &str) -> Names {
        let mut names = Names { names: BTreeSet::new(), is_open: !lines.is_known() };
        for line in lines.all(key) {
            names.names.extend(line.value::<String>("name"));
            names.is_open |= line.is_refused("name");
        }
        names
    }

    fn has(&self, name: &str) -> bool {
        self.is_open || self.names.contains(name)
    }
}

impl Build<'_, '_> {
    pub(super) fn guard(&mut self, line: &Line, known: &Known) -> Option<Guard> {
        let lines = &line.lines;
        self.check_doubles(lines, "class");
        self.check_doubles(lines, "list");
        let overload = lines.one("overload").and_then(|line| self.overload(line));
        let classes = self.classes(lines);
        let lists = self.lists(lines);
        let rules = self.rules(lines, known);
        let kernel = match lines.value::<&str>("kernel") {
            Some("off") => KernelUse::Off,
            _ => KernelUse::Auto,
        };
        let (target, interval) = overload?;
        Some(Guard {
            classes: classes?,
            lists: lists?,
            rules: rules?,
            keys: lines.value("keys")?,
            target,
            interval,
            kernel,
            interface: self.interface(lines, kernel)?,
        })
    }

    fn overload(&mut self, line: &Line) -> Option<(std::time::Duration, std::time::Duration)> {
        let (target, interval) = (line.value("target")?, line.value("interval")?);
        if target >= interval {
            let slot = if line.is_written("target") { "target" } else { "interval" };
            let message = "`target` is not shorter than `interval`";
            self.source.error(line.span_of(slot), message);
        }
        Some((target, interval))
    }

    /// `Some(None)` where there is no such line.
    fn interface(&mut self, lines: &Lines, kernel: KernelUse) -> Option<Option<Interface>> {
        let Some(line) = lines.one("interface") else { return Some(None) };
        if kernel == KernelUse::Off {
            let message = "`interface` has no meaning beside `kernel \"off\"`";
            self.source.error(line.span, message);
        }
        let hook = match line.value::<&str>("hook")? {
            "tcx" => InterfaceHook::Tcx,
            _ => InterfaceHook::Xdp,
        };
        Some(Some(Interface { name: line.value("name")?, hook }))
    }

    /// Reports names that are given twice to lines of one key.
    fn check_doubles(&mut self, lines: &Lines, key: &str) {
        let mut first: HashMap<String, Span> = HashMap::new();
        for line in lines.all(key) {
            let Some(name) = line.value::<String>("name") else { continue };
            let span = line.span_of("name");
            if let Some(earlier) = first.get(&name) {
                let number = self.source.line_of(earlier.start);
                let message = format!("there is a {key} \"{name}\" on line {number} already");
                self.source.error(span, message);
            }
            first.entry(name).or_insert(span);
        }
    }

    /// All classes, the default one included, by priority.
    fn classes(&mut self, lines: &Lines) -> Option<Vec<Class>> {
        let mut classes = Vec::new();
        let mut priorities: HashMap<u8, Span> = HashMap::new();
        for line in lines.all("class") {
            if let Some(priority) = line.value::<u8>("priority") {
                let span = line.span_of("priority");
                if let Some(earlier) = priorities.get(&priority) {
                    let number = self.source.line_of(earlier.start);
                    let message = format!("the class on line {number} has this priority already");
                    self.source.error(span, message);
                }
                priorities.entry(priority).or_insert(span);
            }
            classes.push(class(line));
        }
        self.check_shares(lines);
        let is_default =
            |line: &Line| line.value::<String>("name").as_deref() == Some(DEFAULT_CLASS);
        let mut lines_max = CLASSES_MAX;
        if !lines.all("class").any(is_default) {
            lines_max -= 1;
            let default = Class::default();
            if let (Some(span), true) = (priorities.get(&default.priority), lines.is_known()) {
                self.report_default_priority(*span, default.priority);
            }
            classes.push(Some(default));
        }
        if let Some(line) = lines.all("class").nth(lines_max) {
            let message =
                format!("more than {CLASSES_MAX} classes, \"{DEFAULT_CLASS}\" being one of them");
            self.source.error(line.span, message);
        }
        let mut classes = classes.into_iter().collect::<Option<Vec<_>>>()?;
        classes.sort_by_key(|class| class.priority);
        Some(classes)
    }

    /// Reports the class with which shares are too many.
    fn check_shares(&mut self, lines: &Lines) {
        let mut sum = 0;
        for line in lines.all("class") {
            sum += line.value::<u64>("share").unwrap_or(0);
            if sum > SHARES_MAX {
                let message = format!(
                    "shares of classes are {sum} in all with this one, and {SHARES_MAX} at most: \
                     the other turns go by priority"
                );
                self.source.error(line.span_of("share"), message);
                return;
            }
        }
    }

    fn report_default_priority(&mut self, span: Span, priority: u8) {
        let message = format!(
            "the class \"{DEFAULT_CLASS}\", which is of all that no rule gives another, has \
             priority {priority} already"
        );
        self.source.error(span, message).expect([
            "another priority".to_owned(),
            format!("a line `class \"{DEFAULT_CLASS}\" priority=…` that gives it another"),
        ]);
    }

    /// Lists without their contents, and their files noted.
    fn lists(&mut self, lines: &Lines) -> Option<Vec<AddressList>> {
        let mut lists = Vec::new();
        for (position, line) in lines.all("list").enumerate() {
            if position == LISTS_MAX {
                self.source.error(line.span, format!("more than {LISTS_MAX} lists"));
                return None;
            }
            let expected = Expected::AddressList(position);
            let path = line
                .value::<String>("path")
                .map(|path| self.file(&path, LIST_PURPOSE, expected, line.span_of("path")));
            lists.push(line.value("name").zip(path).map(|(name, path)| AddressList {
                name,
                path,
                addresses: AddressSet::default(),
            }));
        }
        lists.into_iter().collect()
    }

    /// All rules, whose names differ.
    pub(super) fn rules(&mut self, lines: &Lines, known: &Known) -> Option<Vec<GuardRule>> {
        if let Some(line) = lines.all("rule").nth(RULES_MAX) {
            self.source.error(line.span, format!("more than {RULES_MAX} rules"));
            return None;
        }
        self.check_doubles(lines, "rule");
        let mut rules = Vec::new();
        for line in lines.all("rule") {
            if self.source.is_full() {
                return None;
            }
            rules.push(self.rule(line, known));
        }
        let rules = rules.into_iter().collect::<Option<Vec<GuardRule>>>()?;
        self.check_reach(lines, &rules);
        self.check_patterns(lines, &rules);
        Some(rules)
    }

    /// Reports the rule with which patterns are too much for what finds them.
    fn check_patterns(&mut self, lines: &Lines, rules: &[GuardRule]) {
        let mut bytes = 0;
        for (line, rule) in lines.all("rule").zip(rules) {
            bytes += pattern_bytes(&rule.on);
            if bytes > PATTERNS_SIZE_MAX {
                let message = format!(
                    "patterns with a `*` are more than {PATTERNS_SIZE_MAX} bytes in all rules up to \
                     this one"
                );
                let error = self.source.error(line.span, message);
                error.expect(["shorter patterns, or values without a `*`"]);
                return;
            }
        }
    }

    /// Reports the first rule after one that lets everything pass.
    fn check_reach(&mut self, lines: &Lines, rules: &[GuardRule]) {
        let is_last = |rule: &GuardRule| rule.pass && rule.on == Match::default();
        let Some(position) = rules.iter().position(is_last) else { return };
        let mut lines = lines.all("rule").skip(position);
        let (Some(last), Some(next)) = (lines.next(), lines.next()) else { return };
        // A rule whose conditions are misspelt has errors already.
        if last.lines.is_known() {
            let number = self.source.line_of(last.span.start);
            let message = format!(
                "this rule is never looked at: the one on line {number} has no condition, and \
                 lets everything pass"
            );
            self.source.error(next.span, message);
        }
    }

    /// Reports a name that is not known; `names` are those that are.
    fn check_known(&mut self, what: &str, name: &str, span: Span, names: &Names, mark: &str) {
        if names.has(name) {
            return;
        }
        let near = suggest::nearest(name, names.names.iter().map(String::as_str));
        let near = near.map(|name| format!("{mark}{name}"));
        let error = self.source.error(span, format!("there is no {what} \"{name}\""));
        error.suggest(near);
        match names.names.is_empty() {
            true => error.expect([format!("a `{what}` line that makes it")]),
            false => error
                .expect(names.names.iter().take(SHOWN_MAX).map(|name| format!("\"{mark}{name}\""))),
        }
    }
}

fn class(line: &Line) -> Option<Class> {
    Some(Class {
        name: line.value("name")?,
        priority: line.value("priority")?,
        queue: line.value("queue")?,
        wait: line.value("wait")?,
        share: line.value("share")?,
    })
}
