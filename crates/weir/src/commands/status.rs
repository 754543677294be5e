//! `weir status`: a running server at one moment, for people.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::Value;

use super::{Failure, guard_status, print};
use crate::admin_client;
use crate::cli::Admin;

/// Rules shown, those that were met most; `weir guard status` shows all.
const RULES_SHOWN: usize = 10;

/// Shows the status.
///
/// # Errors
/// If the server cannot be reached.
pub(super) fn status(admin: &Admin) -> Result<(), Failure> {
    let answer = admin_client::get(&admin.admin, "/status")?;
    if admin.json {
        return print(&answer);
    }
    let status: Value = admin_client::parse(&answer)?;
    print(&render(&status))
}

/// Writing to a `String` cannot fail; the results are dropped throughout.
fn render(status: &Value) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let _ = writeln!(
        text,
        "weir {} (pid {}), up {}, {} workers, configuration {}{}",
        status["version"].as_str().unwrap_or_default(),
        status["pid"],
        duration(number(&status["uptime_s"])),
        status["workers"],
        status["config_generation"],
        if status["draining"] == true { ", draining" } else { "" }
    );
    for address in status["listening"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "listening on {}", address.as_str().unwrap_or_default());
    }
    let connections = &status["connections"];
    let _ = writeln!(
        text,
        "connections: {} open (limit {}), {} accepted, {} refused",
        connections["open"], connections["limit"], connections["accepted"], connections["refused"]
    );
    let cache = &status["cache"];
    let (hits, misses) = (number(&cache["hits"]), number(&cache["misses"]));
    let _ = writeln!(
        text,
        "cache: {} objects, {} of {}; {hits} hits, {misses} misses, {} evictions",
        cache["objects"],
        bytes(number(&cache["bytes"])),
        bytes(number(&cache["limit_bytes"])),
        cache["evictions"]
    );
    cgroup(&mut text, &status["cgroup"]);
    routes(&mut text, status);
    adapters(&mut text, status);
    upstreams(&mut text, status);
    text.push('\n');
    text.push_str(&guard_status::render(&status["guard"], Some(RULES_SHOWN), SystemTime::now()));
    text
}

/// What helpers are put in, where the configuration names something.
fn cgroup(text: &mut String, cgroup: &Value) {
    let Some(path) = cgroup["path"].as_str() else { return };
    let holds = cgroup["holds"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let holds = holds.collect::<Vec<_>>().join(", ");
    let said = match cgroup["error"].as_str() {
        Some(why) => format!("not used: {why}"),
        None if holds.is_empty() => "no controllers".to_owned(),
        None => holds,
    };
    let outside = match cgroup["outside"].as_u64() {
        None | Some(0) => String::new(),
        Some(count) => format!("; {count} could not be put there"),
    };
    let _ = writeln!(text, "helpers in cgroup {path}: {said}{outside}");
}

fn routes(text: &mut String, status: &Value) {
    let _ = writeln!(
        text,
        "\n{:<32} {:>10} {:>8} {:>10} {:>9} {:>9} {:>9}",
        "route", "requests", "5xx", "hits", "body", "p50", "p99"
    );
    for route in status["routes"].as_array().into_iter().flatten() {
        let name = |key: &str| route[key].as_str().unwrap_or_default().to_owned();
        let label = match name("site").as_str() {
            "" => "(no route)".to_owned(),
            site => format!("{site}{}", name("route")),
        };
        let _ = writeln!(
            text,
            "{label:<32} {:>10} {:>8} {:>10} {:>9} {:>9} {:>9}",
            route["requests"].to_string(),
            route["errors"].to_string(),
            route["hits"].to_string(),
            bytes(route["body_bytes"].as_u64().unwrap_or_default()),
            latency(&route["p50_us"]),
            latency(&route["p99_us"])
        );
    }
}

/// What works on responses, route by route, in order.
fn adapters(text: &mut String, status: &Value) {
    let rows = status["adapters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "\n{:<32} {:<9} {:<16} {:<8} {:<22} by",
            "adapters", "at", "name", "streams", "costs"
        );
    }
    for row in rows {
        let said = |key: &str| row[key].as_str().unwrap_or_default();
        let key = row["key"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let key: Vec<&str> = key.collect();
        let _ = writeln!(
            text,
            "{:<32} {:<9} {:<16} {:<8} {:<22} {}",
            format!("{}{}", said("site"), said("route")),
            said("stage"),
            said("name"),
            if row["streams"] == true { "yes" } else { "no" },
            cost(&row["cost"]),
            if key.is_empty() { "-".to_owned() } else { key.join(", ") }
        );
    }
}

fn cost(cost: &Value) -> String {
    match cost["paid_by"].as_str().unwrap_or_default() {
        "helpers" => format!("{} ns a byte, helpers", cost["ns_per_byte"]),
        "worker" => match cost["mean_ns"].as_u64() {
            Some(ns) => format!("{} µs a request", ns as f64 / 1000.0),
            None => "not measured yet".to_owned(),
        },
        _ => format!("up to {} ms, service", cost["timeout_ms"]),
    }
}

fn upstreams(text: &mut String, status: &Value) {
    for group in status["upstreams"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "\nupstream {}", group["name"].as_str().unwrap_or_default());
        for server in group["servers"].as_array().into_iter().flatten() {
            let failures: u64 = server["failures"]
                .as_object()
                .map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
            let _ = writeln!(
                text,
                "  {:<30} {:<8} {} in flight, {} connections, {} requests, {failures} failures",
                server["server"].as_str().unwrap_or_default(),
                if server["healthy"] == true { "healthy" } else { "out" },
                server["in_flight"],
                server["connections"],
                server["requests"]
            );
        }
    }
}

pub(super) fn duration(s: u64) -> String {
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

fn latency(us: &Value) -> String {
    match us.as_u64() {
        None => "-".to_owned(),
        Some(us) if us < 1000 => format!("{us} µs"),
        Some(us) => format!("{} ms", us as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_readable() {
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(3_600), "1 h 0 min");
        assert_eq!(duration(200_000), "2 d 7 h");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(latency(&serde_json::json!(2500)), "2.5 ms");
        assert_eq!(latency(&Value::Null), "-");
    }
}
