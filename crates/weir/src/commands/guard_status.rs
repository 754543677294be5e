//! `weir guard status`, and the same part of `weir status`.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::status::duration;
use super::{Failure, print};
use crate::admin_client;
use crate::cli::Admin;

/// Shows all of it.
///
/// # Errors
/// If the server cannot be reached.
pub(super) fn status(admin: &Admin) -> Result<(), Failure> {
    let answer = admin_client::get(&admin.admin, "/guard")?;
    if admin.json {
        return print(&answer);
    }
    let guard: Value = admin_client::parse(&answer)?;
    print(&render(&guard, None, SystemTime::now()))
}

/// For people. At most `rules_max` rules, those that were met most. Writing to a `String` cannot
/// fail; the results are dropped throughout.
pub(super) fn render(guard: &Value, rules_max: Option<usize>, now: SystemTime) -> String {
    let mut shown = String::from("guard: ");
    // One that lasts is among them.
    let of_upstreams = list(&guard["upstreams"]).iter().map(|it| number(&it["overloads"]));
    let overloads = number(&guard["overloads"]) + of_upstreams.sum::<u64>();
    let _ = match guard["overloaded"] == true {
        true => write!(shown, "OVERLOADED ({})", overloaded(guard)),
        false => write!(shown, "not overloaded"),
    };
    let _ = writeln!(shown, ", {overloads} overload{} so far", plural(overloads));
    if let Some(set_ms) = guard["rules_set_unix_ms"].as_u64() {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ago = now.saturating_sub(Duration::from_millis(set_ms)).as_secs();
        let ago = duration(ago);
        let _ = writeln!(
            shown,
            "rules were changed since the configuration was loaded, {ago} ago; a reload undoes that"
        );
    }
    for fact in list(&guard["enforcement"]) {
        let _ = writeln!(shown, "{}", text(fact));
    }
    counts(&mut shown, guard);
    classes(&mut shown, guard);
    rules(&mut shown, list(&guard["rules"]), rules_max);
    upstreams(&mut shown, guard);
    shown
}

fn counts(shown: &mut String, guard: &Value) {
    let (keys, kernel) = (&guard["keys"], &guard["kernel"]);
    let reset = number(&guard["connections_reset"]);
    let counts = [
        (reset, "connections reset after accept"),
        (number(&kernel["penalised"]), "connections dropped for their source's refusals"),
        (number(&kernel["unsteered"]), "connections without a socket of their class"),
        (number(&keys["forgotten"]), "buckets forgotten for want of room"),
        (number(&kernel["keys_forgotten"]), "buckets forgotten in the kernel for want of room"),
    ];
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(shown, "{count} {what}");
    }
    let (penalties, most) = (&guard["penalties"]["in_force"], &guard["penalties"]["limit"]);
    if number(penalties) > 0 {
        let _ = writeln!(shown, "{penalties} of {most} sources under a penalty");
    }
    if number(&keys["in_use"]) > 0 {
        let _ = writeln!(shown, "{} of {} buckets in use", keys["in_use"], keys["limit"]);
    }
}

fn classes(shown: &mut String, guard: &Value) {
    let _ = writeln!(
        shown,
        "\n{:<20} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9} {:>9}",
        "class", "priority", "admitted", "refused", "shed", "adm/s", "ref/s", "shed/s"
    );
    for class in list(&guard["classes"]) {
        let rate = |key: &str| format!("{:.1}", class[key].as_f64().unwrap_or_default());
        let _ = writeln!(
            shown,
            "{:<20} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9} {:>9}{}",
            text(&class["name"]),
            number(&class["priority"]),
            number(&class["admitted"]),
            number(&class["refused"]),
            number(&class["shed"]),
            rate("admitted_per_s"),
            rate("refused_per_s"),
            rate("shed_per_s"),
            share(class)
        );
    }
}

/// The turns that are a class's own.
fn share(class: &Value) -> String {
    match number(&class["share"]) {
        0 => String::new(),
        share => format!("  share {share}"),
    }
}

fn rules(shown: &mut String, rules: &[Value], rules_max: Option<usize>) {
    if rules.is_empty() {
        shown.push_str("no rules\n");
        return;
    }
    let offered = |rule: &Value| number(&rule["kernel_offered"]).max(number(&rule["met"]));
    let mut kept: Vec<&Value> = rules.iter().collect();
    if let Some(most) = rules_max.filter(|most| *most < kept.len()) {
        kept.sort_by_key(|rule| std::cmp::Reverse(offered(rule)));
        kept.truncate(most);
    }
    let _ = writeln!(
        shown,
        "\n{:<20} {:<12} {:>12} {:>9} {:>11} {:>9} {:>9} {:>12} {:>9}",
        "rule", "counts", "met", "rate", "concurrency", "refused", "spared", "in kernel", "dropped"
    );
    for rule in &kept {
        let shown_count = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let count = |key: &str| shown_count(rule[key].as_u64());
        // Where the kernel decides, what it cannot count is not known.
        let in_user_space = rule["spared"].as_u64();
        let spared = match (rule["kernel_offered"].as_u64(), rule["kernel_spared"].as_u64()) {
            (_, Some(in_kernel)) => Some(in_kernel + in_user_space.unwrap_or_default()),
            (Some(_), None) => in_user_space.filter(|count| *count > 0),
            (None, None) => in_user_space,
        };
        let _ = writeln!(
            shown,
            "{:<20} {:<12} {:>12} {:>9} {:>11} {:>9} {:>9} {:>12} {:>9}{}",
            text(&rule["name"]),
            text(&rule["counts"]),
            count("met"),
            count("rate"),
            count("concurrency"),
            count("refused"),
            shown_count(spared),
            count("kernel_offered"),
            count("kernel_dropped"),
            dry_run(rule)
        );
    }
    let left = rules.len() - kept.len();
    if left > 0 {
        let _ = writeln!(shown, "and {left} more: `weir guard status` shows all");
    }
}

/// What a rule would have refused that is only tried.
fn dry_run(rule: &Value) -> String {
    let count = rule["dry_run"].as_u64();
    count.map_or_else(String::new, |count| format!("  dry run: {count} would be refused"))
}

fn upstreams(shown: &mut String, guard: &Value) {
    let all = list(&guard["upstreams"]);
    if all.is_empty() {
        return;
    }
    let _ = writeln!(
        shown,
        "\n{:<32} {:>9} {:>9} {:>9} {:>10} {:>12}",
        "upstream", "limit", "in flight", "waiting", "baseline", "shed"
    );
    for upstream in all {
        let shed: u64 = list(&upstream["classes"])
            .iter()
            .filter_map(|class| class["shed"].as_object())
            .flat_map(|reasons| reasons.values().map(number))
            .sum();
        let limit = upstream["limit"].as_u64().map_or("none".to_owned(), |n| n.to_string());
        let baseline = upstream["baseline_us"].as_u64();
        let baseline = baseline.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1e3));
        let _ = writeln!(
            shown,
            "{:<32} {limit:>9} {:>9} {:>9} {baseline:>10} {shed:>12}{}",
            text(&upstream["name"]),
            number(&upstream["in_flight"]),
            number(&upstream["waiting"]),
            if upstream["overloaded"] == true { "  OVERLOADED" } else { "" }
        );
    }
}

/// Who is.
fn overloaded(guard: &Value) -> String {
    let workers = number(&guard["overloaded_workers"]);
    let upstreams = list(&guard["upstreams"]).iter().filter(|it| it["overloaded"] == true);
    let upstreams = upstreams.count() as u64;
    format!("{workers} worker{}, {upstreams} upstream{}", plural(workers), plural(upstreams))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_overload_that_lasts_is_counted() {
        let told = json!({
            "overloaded": true, "overloaded_workers": 0, "overloads": 1,
            "upstreams": [{ "name": "app", "overloaded": true, "overloads": 2, "classes": [] }],
        });
        let shown = render(&told, None, SystemTime::now());
        let first = shown.lines().next();
        assert_eq!(first, Some("guard: OVERLOADED (0 workers, 1 upstream), 3 overloads so far"));
    }
}
