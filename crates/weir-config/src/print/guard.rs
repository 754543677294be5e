//! Prints the `guard` block.

use crate::build::default_answer;
use crate::model::{
    AddressSet, BucketKey, Class, FieldMatch, Guard, GuardRule, InterfaceHook, KernelUse, Match,
    PrefixLengths, RateUnit, RefusalAnswer, ValueMatch,
};
use crate::prefix::print_range;
use crate::rules::guard::{print_bucket_key, print_path};

use super::{Printer, path, property, quote, switch, time};

/// Prints rules as KDL, as they stand in a `guard` block and [`crate::parse_rules`] reads them.
pub fn print_rules(rules: &[GuardRule]) -> String {
    let mut out = Printer::default();
    rules.iter().for_each(|rule| out.rule(rule));
    out.text
}

impl Printer {
    /// Nothing for a configuration that says nothing of overload control.
    pub(super) fn guard(&mut self, guard: &Guard) {
        if *guard == Guard::default() {
            return;
        }
        self.block("guard", |out| {
            let (target, interval) = (time(guard.target), time(guard.interval));
            out.line(format_args!("overload target={target} interval={interval}"));
            out.line(format_args!("keys {}", guard.keys));
            let kernel = match guard.kernel {
                KernelUse::Auto => "auto",
                KernelUse::Off => "off",
            };
            out.line(format_args!("kernel \"{kernel}\""));
            if let Some(interface) = &guard.interface {
                let hook = match interface.hook {
                    InterfaceHook::Xdp => "xdp",
                    InterfaceHook::Tcx => "tcx",
                };
                out.line(format_args!("interface {} hook=\"{hook}\"", quote(&interface.name)));
            }
            for list in &guard.lists {
                out.line(format_args!("list {} {}", quote(&list.name), path(&list.path)));
            }
            for Class { name, priority, queue, wait, share } in &guard.classes {
                let (name, wait) = (quote(name), time(*wait));
                out.line(format_args!(
                    "class {name} priority={priority} queue={queue} wait={wait} share={share}"
                ));
            }
            for rule in &guard.rules {
                out.rule(rule);
            }
        });
    }

    fn rule(&mut self, rule: &GuardRule) {
        self.block(format_args!("rule {}", quote(&rule.name)), |out| {
            out.conditions(&rule.on);
            if let Some(class) = &rule.class {
                out.line(format_args!("class {}", quote(class)));
            }
            out.limits_of(rule);
            for (key, is_set) in [
                ("refuse", rule.refuse),
                ("pass", rule.pass),
                ("always", rule.always),
                ("dry-run", rule.dry_run),
            ] {
                if is_set {
                    out.line(key);
                }
            }
            // Where nothing is refused, no answer may stand.
            if rule.answer != default_answer(&rule.by) {
                match rule.answer {
                    RefusalAnswer::Status(status) => out.line(format_args!("answer {status}")),
                    RefusalAnswer::Reset => out.line("answer \"reset\""),
                }
            }
            if let Some(penalty) = &rule.penalty {
                let (within, lasts) = (time(penalty.within), time(penalty.lasts));
                let PrefixLengths { v4, v6 } = penalty.by;
                let (after, by) = (penalty.after, BucketKey::Prefix { v4, v6 });
                out.line(format_args!(
                    "penalty after={after} within={within} lasts={lasts} by=\"{}\"",
                    print_bucket_key(&by)
                ));
            }
        });
    }

    fn limits_of(&mut self, rule: &GuardRule) {
        if let Some(rate) = &rule.rate {
            let per = match rate.period.as_secs() {
                0..=1 => "second",
                2..=60 => "minute",
                _ => "hour",
            };
            self.line(format_args!("rate {} burst={} per=\"{per}\"", rate.count, rate.burst));
        }
        if let Some(concurrency) = rule.concurrency {
            self.line(format_args!("concurrency {concurrency}"));
        }
        if rule.by != BucketKey::Rule {
            self.line(format_args!("by {}", quote(&print_bucket_key(&rule.by))));
        }
        if rule.unit == RateUnit::Requests {
            self.line("unit \"requests\"");
        }
    }

    fn conditions(&mut self, on: &Match) {
        self.addresses("from", on.from.as_ref());
        self.ports("from-port", &on.from_ports);
        self.addresses("to", on.to.as_ref());
        self.ports("port", &on.ports);
        self.values("site", on.sites.iter().map(|name| quote(name)));
        self.values("path", on.paths.iter().map(|path| quote(&print_path(path))));
        self.values("method", on.methods.iter().map(|name| quote(name)));
        for (key, fields) in
            [("header", &on.headers), ("cookie", &on.cookies), ("query", &on.queries)]
        {
            for field in fields {
                self.field(key, field);
            }
        }
        self.values("server-name", on.server_names.iter().map(|name| quote(name)));
        self.values("content-type", on.content_types.iter().map(|name| quote(name)));
        self.values("verdict", on.verdicts.iter().map(|text| quote(text)));
    }

    /// A line of a key with these values, unless there is none.
    pub(super) fn values(&mut self, key: &str, values: impl Iterator<Item = String>) {
        let values: Vec<String> = values.collect();
        if !values.is_empty() {
            self.line(format_args!("{key} {}", values.join(" ")));
        }
    }

    /// Lists by their names, and whatever else is in a set.
    fn addresses(&mut self, key: &str, set: Option<&AddressSet>) {
        let Some(set) = set else { return };
        let lists = set.lists().iter().map(|name| quote(&format!("@{name}")));
        let own = set.own_ranges().iter().map(|range| quote(&print_range(range)));
        self.values(key, lists.chain(own));
    }

    pub(super) fn ports(&mut self, key: &str, ports: &[(u16, u16)]) {
        self.values(
            key,
            ports.iter().map(|(low, high)| match low == high {
                true => low.to_string(),
                false => quote(&format!("{low}-{high}")),
            }),
        );
    }

    fn field(&mut self, key: &str, field: &FieldMatch) {
        let mut line = format!("{key} {}", quote(&field.name));
        match &field.value {
            ValueMatch::Present => {}
            ValueMatch::Absent => property(&mut line, "absent", switch(true)),
            ValueMatch::Exact(value) if value.contains('*') => {
                property(&mut line, "exact", quote(value));
            }
            ValueMatch::Exact(value) | ValueMatch::Glob(value) => {
                line = format!("{line} {}", quote(value));
            }
        }
        self.line(line);
    }
}
