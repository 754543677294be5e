//! `weir guard`: overload control of a running server, and what rules would make of a request.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use weir_server::admin::guard::{Question, explain};

use super::{Failure, guard_status, print};
use crate::admin_client;
use crate::cli::{Apply, Guard, GuardTest};

/// Runs one of the commands.
///
/// # Errors
/// What to tell the user.
pub(super) fn guard(command: &Guard) -> Result<(), Failure> {
    match command {
        Guard::Status(admin) => guard_status::status(admin),
        Guard::Test(wanted) => test(wanted),
        Guard::Apply(wanted) => apply(wanted),
    }
}

fn test(wanted: &GuardTest) -> Result<(), Failure> {
    let question = question(wanted)?;
    let answer = match &wanted.config {
        Some(file) => {
            let config = weir_config::load(file)?;
            let explanation = explain(&config, &question)?;
            // Strings, numbers and lists of them always serialise.
            let mut answer = serde_json::to_string_pretty(&explanation).unwrap_or_default();
            answer.push('\n');
            answer
        }
        None => {
            let body = serde_json::to_string(&question).unwrap_or_default();
            admin_client::post(&wanted.admin.admin, "/guard/test", &body)?
        }
    };
    if wanted.admin.json {
        return print(&answer);
    }
    let answer: Value = admin_client::parse(&answer)?;
    print(&render(&answer))
}

fn question(wanted: &GuardTest) -> Result<Question, Failure> {
    let request = wanted.request.trim();
    let (method, url) = match request.split_once(char::is_whitespace) {
        Some((method, url)) => (Some(method.to_owned()), url.trim()),
        None => (None, request),
    };
    let mut question = Question {
        method,
        url: url.to_owned(),
        host: wanted.host.clone(),
        from: wanted.from.clone(),
        to: wanted.to.clone(),
        server_name: wanted.server_name.clone(),
        verdict: wanted.verdict.clone(),
        overloaded: wanted.overload.then_some(true),
        ..Question::default()
    };
    for field in &wanted.headers {
        question.add_header(field).map_err(|why| format!("--header: {why}"))?;
    }
    for cookie in &wanted.cookies {
        question.add_cookie(cookie).map_err(|why| format!("--cookie: {why}"))?;
    }
    Ok(question)
}

fn apply(wanted: &Apply) -> Result<(), Failure> {
    let name = wanted.file.display().to_string();
    let rules = fs::read(&wanted.file).map_err(|cause| format!("cannot read {name}: {cause}"))?;
    let mut path = format!("/guard/rules?name={}", encoded(&name));
    if wanted.remove_all {
        path.push_str("&remove-all=true");
    }
    let answer = admin_client::put(&wanted.admin.admin, &path, "text/plain", rules)?;
    if wanted.admin.json {
        return print(&answer);
    }
    let answer: Value = admin_client::parse(&answer)?;
    let warning = answer["warning"].as_str().map(|text| format!("WARNING: {text}\n"));
    let count = answer["rules"].as_u64().unwrap_or_default();
    print(&format!(
        "{count} rule{} in force until the next reload\n{}",
        if count == 1 { "" } else { "s" },
        warning.unwrap_or_default()
    ))
}

/// As a parameter of a URL (RFC 3986 §2.1).
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// Writing to a `String` cannot fail; the results are dropped throughout.
fn render(told: &Value) -> String {
    let mut shown = format!("{} {}{}", text(&told["method"]), text(&told["site"]), path(told));
    if let Some(from) = told["from"].as_str() {
        let _ = write!(shown, " from {from}");
    }
    if let Some(to) = told["to"].as_str() {
        let _ = write!(shown, " to {to}");
        let _ = match told["to_assumed"].as_str() {
            Some("loopback") => write!(shown, " (loopback is assumed)"),
            Some(_) => write!(shown, " (the first listener is assumed)"),
            None => Ok(()),
        };
    }
    let _ = writeln!(shown, "\nroute {}{}\n", text(&told["site"]), text(&told["route"]));
    let rules = told["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let width = rules.iter().map(|rule| text(&rule["rule"]).len()).max().unwrap_or_default();
    for rule in rules {
        let mark = if rule["matches"] == true { '+' } else { '-' };
        let _ = writeln!(shown, "{mark} {:<width$}  {}", text(&rule["rule"]), meaning(rule));
    }
    let left = told["rules_left"].as_u64().unwrap_or_default();
    if left > 0 {
        let _ = writeln!(shown, "  ({left} more are not looked at)");
    }
    if rules.is_empty() {
        shown.push_str("there are no rules\n");
    }
    let class_rule = told["class_rule"].as_str();
    let by = class_rule.map_or_else(|| "no rule gives one".to_owned(), |rule| format!("by {rule}"));
    let _ = writeln!(
        shown,
        "\nclass     {} (priority {}; {by})",
        text(&told["class"]),
        told["priority"]
    );
    let _ = writeln!(shown, "outcome   {}", outcome(told, rules));
    shown
}

fn path(told: &Value) -> &str {
    text(&told["path"])
}

/// What a rule makes of the request, in a line.
fn meaning(rule: &Value) -> String {
    if let Some(fails) = rule["fails"].as_str() {
        return format!("does not match: {fails}");
    }
    let mut parts = Vec::new();
    if let Some(class) = rule["gives_class"].as_str() {
        parts.push(format!("gives class {class}"));
    }
    if !rule["limit"].is_null() {
        parts.push(limit(&rule["limit"]));
    }
    match (&rule["would_refuse"], &rule["limit"]["dry_run"]) {
        (Value::Bool(true), _) => parts.push("WOULD REFUSE, but is a dry run".to_owned()),
        (_, Value::Bool(true)) => parts.push("is a dry run".to_owned()),
        _ => {}
    }
    if rule["refuses"] == true {
        parts.push("REFUSES".to_owned());
    } else if rule["ends"] == true {
        parts.push("ends the search".to_owned());
    }
    match parts.is_empty() {
        true => "matches".to_owned(),
        false => format!("matches: {}", parts.join("; ")),
    }
}

fn limit(limit: &Value) -> String {
    let mut parts = Vec::new();
    if limit["counts"] == "connections" {
        let place = if limit["in_kernel"] == true { " in the kernel" } else { "" };
        parts.push(format!("counts connections{place}"));
    }
    if limit["refuses_all"] == true {
        parts.push("refuses all".to_owned());
    } else if let Some(left) = limit["tokens_left"].as_u64() {
        parts.push(format!("{left} token{} left", if left == 1 { "" } else { "s" }));
    }
    if let (Some(running), Some(most)) = (limit["running"].as_u64(), limit["running_max"].as_u64())
    {
        parts.push(format!("{running} of {most} being served"));
    }
    if limit["always"] != true {
        let now = if limit["holds"] == true { ", which there is" } else { "" };
        parts.push(format!("holds only under overload{now}"));
    }
    parts.join(", ")
}

fn outcome(told: &Value, rules: &[Value]) -> String {
    if let Some(prefix) = told["penalty"]["prefix"].as_str() {
        let left = told["penalty"]["left_ms"].as_u64().unwrap_or_default().div_ceil(1000);
        return format!("not let in: {prefix} is under a penalty for {left} s more");
    }
    let Some(refused_by) = told["refused_by"].as_str() else {
        let overload = "the server is overloaded, and may let higher classes go first";
        return match told["overloaded"] == true {
            true => format!("no rule refuses it; {overload}"),
            false => "admitted".to_owned(),
        };
    };
    let limit = rules.iter().find(|rule| rule["rule"] == refused_by).map(|rule| &rule["limit"]);
    let answer = match limit.map(|limit| &limit["answer"]) {
        Some(Value::String(word)) if word == "dropped" => "its connection is dropped".to_owned(),
        Some(Value::String(_)) => "its connection is reset".to_owned(),
        Some(Value::Number(status)) => format!("the answer is {status}"),
        _ => "it is refused".to_owned(),
    };
    format!("refused by {refused_by} ({}): {answer}", text(&told["reason"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_is_shown_for_people() {
        let limit = json!({
            "counts": "requests", "in_kernel": false, "always": false, "holds": false,
            "refuses_all": false, "tokens_left": 1, "running": 2, "running_max": 9,
            "exhausted": null, "answer": 503,
        });
        let mut connections = limit.clone();
        connections["counts"] = "connections".into();
        connections["in_kernel"] = true.into();
        connections["tokens_left"] = Value::Null;
        connections["running"] = Value::Null;
        let rule = |name: &str, fails: Option<&str>, class: Option<&str>, limit: &Value| {
            json!({
                "rule": name, "matches": fails.is_none(), "fails": fails, "gives_class": class,
                "limit": limit, "refuses": false, "ends": false,
            })
        };
        let mut refusing = limit.clone();
        refusing["always"] = true.into();
        let mut last = rule("search", None, None, &refusing);
        last["refuses"] = true.into();
        let told = json!({
            "method": "GET", "site": "shop.example", "route": "/*", "path": "/x",
            "from": "10.0.0.1", "to": null, "overloaded": false, "class": "gold", "priority": 1,
            "class_rule": "partners", "admitted": false, "refused_by": "search", "reason": "rate",
            "rules_left": 7,
            "rules": [
                rule("partners", None, Some("gold"), &Value::Null),
                rule("crawlers", Some("header \"user-agent\""), None, &Value::Null),
                rule("flood", None, None, &connections),
                rule("all", None, None, &Value::Null),
                last,
            ],
        });
        assert_eq!(
            render(&told),
            "GET shop.example/x from 10.0.0.1\n\
             route shop.example/*\n\
             \n\
             + partners  matches: gives class gold\n\
             - crawlers  does not match: header \"user-agent\"\n\
             + flood     matches: counts connections in the kernel, holds only under overload\n\
             + all       matches\n\
             + search    matches: 1 token left, 2 of 9 being served; REFUSES\n\
             \x20 (7 more are not looked at)\n\
             \n\
             class     gold (priority 1; by partners)\n\
             outcome   refused by search (rate): the answer is 503\n"
        );
    }

    #[test]
    fn names_of_files_stand_in_urls() {
        assert_eq!(encoded("a/b-1.kdl"), "a/b-1.kdl");
        assert_eq!(encoded("a b&ü"), "a%20b%26%C3%BC");
    }
}
