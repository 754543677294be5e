//! The `rule` block: what happens to those who meet its conditions, and what its lines mean
//! together.

use std::time::Duration;

use crate::check::{Line, Lines};
use crate::model::{BucketKey, GuardRule, Penalty, PrefixLengths, Rate, RateUnit, RefusalAnswer};
use crate::value::Value;

use super::conditions::of_requests;
use super::{Build, Known};

/// The keys by which a rule limits; each may refuse.
const LIMITS: [&str; 3] = ["rate", "concurrency", "refuse"];
/// What part of a rate may come at once where `burst` is left out.
const BURST_SHARE: u32 = 10;

impl Build<'_, '_> {
    pub(super) fn rule(&mut self, rule: &Line, known: &Known) -> Option<GuardRule> {
        let lines = &rule.lines;
        let on = self.conditions(rule, known);
        if let Some(line) = lines.one("class")
            && let Some(name) = line.value::<String>("name")
        {
            self.check_known("class", &name, line.span_of("name"), &known.classes, "");
        }
        self.check_acts(rule);
        self.check_meaning(lines);
        let by: BucketKey = lines.value("by")?;
        self.check_unit(lines, &by);
        let has = |key| lines.one(key).is_some();
        let optional =
            |line: Option<&Line>| line.map(rate).map_or(Some(None), |rate| rate.map(Some));
        Some(GuardRule {
            name: rule.value("name")?,
            on: on?,
            class: lines.value("class"),
            rate: optional(lines.one("rate"))?,
            concurrency: lines.value("concurrency"),
            answer: answer(lines).unwrap_or_else(|| default_answer(&by)),
            by,
            unit: match lines.value::<&str>("unit")? {
                "requests" => RateUnit::Requests,
                _ => RateUnit::Auto,
            },
            refuse: has("refuse"),
            pass: has("pass"),
            always: has("always"),
            dry_run: has("dry-run"),
            penalty: match lines.one("penalty") {
                Some(line) => Some(penalty(line)?),
                None => None,
            },
        })
    }

    /// A rule does something, and not everything at once.
    fn check_acts(&mut self, rule: &Line) {
        let lines = &rule.lines;
        let acts = ["class", "rate", "concurrency", "refuse", "pass"];
        if lines.is_known() && acts.iter().all(|key| lines.one(key).is_none()) {
            let error = self.source.error(rule.span, "this rule does nothing");
            error.expect(acts.map(|key| format!("`{key}`")));
        }
        let Some(refuse) = lines.one("refuse") else { return };
        for key in ["pass", "rate", "concurrency"] {
            let Some(line) = lines.one(key) else { continue };
            let what = match key {
                "pass" => "they pass or are refused, not both",
                _ => "where all are refused, there is nothing to count",
            };
            let later = if line.span.start > refuse.span.start { line } else { refuse };
            let message = format!("`{key}` and `refuse` contradict each other: {what}");
            self.source.error(later.span, message);
        }
        if let (Some(class), Some(_), None) =
            (lines.one("class"), lines.one("always"), lines.one("dry-run"))
        {
            let message = "`class` has no meaning where all are refused at all times";
            self.source.error(class.span, message);
        }
    }

    /// Lines that have a meaning beside others only.
    fn check_meaning(&mut self, lines: &Lines) {
        let has = |keys: &[&str]| keys.iter().any(|key| lines.one(key).is_some());
        for (key, needs) in [
            ("always", &LIMITS[..]),
            ("answer", &LIMITS),
            ("penalty", &LIMITS),
            ("dry-run", &LIMITS),
            ("by", &["rate", "concurrency"]),
        ] {
            let Some(line) = lines.one(key).filter(|line| is_written(line)) else { continue };
            if !has(needs) && lines.is_known() {
                let what = match key {
                    "by" => "counts",
                    _ => "limits or refuses",
                };
                let message = format!("`{key}` has no meaning in a rule that {what} nothing");
                let error = self.source.error(line.span, message);
                error.expect(needs.iter().map(|key| format!("`{key}`")));
            }
        }
    }

    /// What is counted and refused: connections need no more than addresses, and get no answer.
    fn check_unit(&mut self, lines: &Lines, by: &BucketKey) {
        let request = of_requests(lines).or_else(|| lines.one("concurrency")).or_else(|| {
            let is_named = matches!(by, BucketKey::Header(_) | BucketKey::Cookie(_));
            lines.one("by").filter(|_| is_named)
        });
        let Some(unit) = lines.one("unit") else { return };
        match (unit.value::<&str>("what"), request) {
            (Some("connections"), Some(line)) => {
                let number = self.source.line_of(line.span.start);
                let key = line.key.name;
                let message = format!("`{key}` on line {number} needs requests, not connections");
                self.source.error(unit.span_of("what"), message);
            }
            (Some("auto" | "connections"), None) if lines.is_known() => {
                for (key, why) in [
                    ("answer", "this rule refuses connections, which get no answer"),
                    (
                        "penalty",
                        "this rule refuses connections, and has them dropped before they cost anything",
                    ),
                ] {
                    let acts = ["rate", "refuse"].iter().any(|act| lines.one(act).is_some());
                    let Some(line) = lines.one(key).filter(|_| acts) else { continue };
                    let error = self.source.error(line.span, why);
                    error.expect(["`unit \"requests\"` beside it", &format!("no `{key}`")]);
                }
            }
            _ => {}
        }
    }
}

/// Whether a line stands in the file, rather than for one that is left out.
fn is_written(line: &Line) -> bool {
    line.key.slots().next().is_none() || line.written() > 0
}

fn rate(line: &Line) -> Option<Rate> {
    let count: u32 = line.value("count")?;
    let burst = match line.is_refused("burst") {
        true => return None,
        false => line.value("burst").unwrap_or_else(|| default_burst(count)),
    };
    let period = match line.value::<&str>("per")? {
        "second" => Duration::from_secs(1),
        "minute" => Duration::from_secs(60),
        _ => Duration::from_secs(3600),
    };
    Some(Rate { count, period, burst })
}

fn default_burst(count: u32) -> u32 {
    (count / BURST_SHARE).max(1)
}

fn answer(lines: &Lines) -> Option<RefusalAnswer> {
    match lines.value::<Value>("answer")? {
        Value::Number(status) => u16::try_from(status).ok().map(RefusalAnswer::Status),
        _ => Some(RefusalAnswer::Reset),
    }
}

/// A client is told that it is too much (429, RFC 6585, section 4); where all share a bucket it is
/// the server that has too much to do.
pub(crate) fn default_answer(by: &BucketKey) -> RefusalAnswer {
    match by {
        BucketKey::Rule => RefusalAnswer::Status(503),
        _ => RefusalAnswer::Status(429),
    }
}

fn penalty(line: &Line) -> Option<Penalty> {
    Some(Penalty {
        after: line.value("after")?,
        within: line.value("within")?,
        lasts: line.value("lasts")?,
        by: match line.value("by")? {
            BucketKey::Prefix { v4, v6 } => PrefixLengths { v4, v6 },
            _ => PrefixLengths { v4: 32, v6: 128 },
        },
    })
}
