//! `weir plugin`: deploys plugins into a running server, and says what they do there.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::status::{bytes, duration};
use super::{Failure, plugin_new, print};
use crate::admin_client;
use crate::cli::{Admin, Deploy, Named, New, Plugin};

/// Runs one of the commands.
///
/// # Errors
/// What to tell the user.
pub(super) fn plugin(command: &Plugin) -> Result<(), Failure> {
    match command {
        Plugin::Deploy(wanted) => deploy(wanted),
        Plugin::List(admin) => list(admin),
        Plugin::Show(named) => show(named),
        Plugin::Rollback(named) => rollback(named),
        Plugin::Remove(named) => remove(named),
        Plugin::New(wanted) => new(wanted),
    }
}

fn deploy(wanted: &Deploy) -> Result<(), Failure> {
    let read = |path: &std::path::Path| {
        fs::read(path).map_err(|cause| Failure(format!("cannot read {}: {cause}", path.display())))
    };
    let mut form = Form::new();
    form.part("module", &read(&wanted.file)?);
    let config_file = wanted.config_file.as_deref().map(read).transpose()?;
    let config = wanted.config.as_ref().map(String::as_bytes).or(config_file.as_deref());
    if let Some(config) = config {
        form.part("config", config);
    }
    let repeated = [
        ("route", &wanted.routes),
        ("allow-upstream", &wanted.allow_upstreams),
        ("allow-shared", &wanted.allow_shared),
    ];
    for (name, values) in repeated {
        values.iter().for_each(|value| form.part(name, value.as_bytes()));
    }
    let choices = [
        ("vm-config", &wanted.vm_config),
        ("root-id", &wanted.root_id),
        ("at", &wanted.at),
        ("canary", &wanted.canary),
        ("for", &wanted.duration),
        ("cpu", &wanted.cpu),
        ("memory", &wanted.memory),
        ("tables", &wanted.tables),
        ("long", &wanted.long),
        ("log", &wanted.log),
        ("on-failure", &wanted.on_failure),
        ("allow-cache", &wanted.allow_cache),
        ("allow-request-body", &wanted.allow_request_body),
        ("allow-response-body", &wanted.allow_response_body),
    ];
    for (name, value) in choices {
        if let Some(value) = value {
            form.part(name, value.as_bytes());
        }
    }
    let (content_type, body) = form.finish();
    let path = format!("/plugins/{}", path_part(&wanted.name)?);
    let answer = admin_client::upload(&wanted.admin.admin, &path, &content_type, body)?;
    told(&answer, &wanted.admin)
}

fn rollback(named: &Named) -> Result<(), Failure> {
    let path = format!("/plugins/{}/rollback", path_part(&named.name)?);
    let answer = admin_client::post(&named.admin.admin, &path, "{}")?;
    told(&answer, &named.admin)
}

fn remove(named: &Named) -> Result<(), Failure> {
    let path = format!("/plugins/{}", path_part(&named.name)?);
    let answer = admin_client::delete(&named.admin.admin, &path)?;
    if named.admin.json {
        return print(&answer);
    }
    let answer: Value = admin_client::parse(&answer)?;
    print(&format!("removed {}\n{}", text(&answer["removed"]), warning(&answer)))
}

fn new(wanted: &New) -> Result<(), Failure> {
    let project = plugin_new::new(&wanted.name, wanted.lang, &wanted.directory)?;
    let folder = project.folder.display();
    print(&format!(
        "wrote {folder}\n\nbuild it:   cd {folder} && {}\ndeploy it:  weir plugin deploy {} \
         {folder}/{}\n",
        project.build, wanted.name, project.module
    ))
}

/// What became of a deployment.
fn told(answer: &str, admin: &Admin) -> Result<(), Failure> {
    if admin.json {
        return print(answer);
    }
    let answer: Value = admin_client::parse(answer)?;
    let (name, generation) = (text(&answer["name"]), &answer["generation"]);
    let mut told = match text(&answer["state"]) {
        "removed" => {
            return print(&format!("{name}: its first generation was given up; it is gone\n"));
        }
        "canary" => format!("{name}: generation {generation} is being tried out"),
        _ => format!("{name}: generation {generation} is active"),
    };
    let routes = join(&answer["routes"]);
    match routes.is_empty() {
        true => told.push_str(" on no route"),
        false => told.push_str(&format!(" on {routes}")),
    }
    let millis = |value: &Value| format!("{:.1} ms", value.as_f64().unwrap_or_default());
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        told,
        "\n{}, module {}, code {} in {}, started in {}",
        text(&answer["abi"]),
        short(&answer["digest"]),
        text(&answer["code"]),
        millis(&answer["compile_ms"]),
        millis(&answer["start_ms"])
    );
    told.push_str(&warning(&answer));
    if answer["state"] == "active" && answer["kept"] == false && answer["warning"].is_null() {
        told.push_str("It ends with the server: no `plugins { store … }` is configured.\n");
    }
    print(&told)
}

/// A line of its own, if there is one.
fn warning(answer: &Value) -> String {
    answer["warning"].as_str().map(|warning| format!("WARNING: {warning}\n")).unwrap_or_default()
}

fn list(admin: &Admin) -> Result<(), Failure> {
    let answer = admin_client::get(&admin.admin, "/plugins")?;
    if admin.json {
        return print(&answer);
    }
    let answer: Value = admin_client::parse(&answer)?;
    print(&render_list(&answer))
}

/// Writing to a `String` cannot fail; the results are dropped throughout.
fn render_list(answer: &Value) -> String {
    let plugins = answer["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    if plugins.is_empty() {
        return "no plugins; `weir plugin deploy NAME FILE` deploys one\n".to_owned();
    }
    let mut table = String::new();
    let _ = writeln!(
        table,
        "{:<20} {:<8} {:>5} {:<16} {:>12} {:>9} {:>9} {:>9} {:>10}  routes",
        "plugin", "state", "gen", "interface", "requests", "failures", "p50", "p99", "memory"
    );
    for plugin in plugins {
        let _ = writeln!(
            table,
            "{:<20} {:<8} {:>5} {:<16} {:>12} {:>9} {:>9} {:>9} {:>10}  {}",
            text(&plugin["name"]),
            text(&plugin["state"]),
            plugin["generation"].as_u64().map_or("-".to_owned(), |number| number.to_string()),
            text(&plugin["abi"]),
            number(&plugin["streams"]),
            failures(plugin),
            time(&plugin["p50_ns"]),
            time(&plugin["p99_ns"]),
            bytes(number(&plugin["memory_bytes"])),
            join(&plugin["routes"])
        );
    }
    table
}

fn show(named: &Named) -> Result<(), Failure> {
    let path = format!("/plugins/{}", path_part(&named.name)?);
    let answer = admin_client::get(&named.admin.admin, &path)?;
    if named.admin.json {
        return print(&answer);
    }
    let answer: Value = admin_client::parse(&answer)?;
    print(&render(&answer, SystemTime::now()))
}

/// As above.
fn render(plugin: &Value, now: SystemTime) -> String {
    let mut shown = format!("{}: {}", text(&plugin["name"]), text(&plugin["state"]));
    let _ = match plugin["generation"].as_u64() {
        Some(generation) => writeln!(
            shown,
            ", generation {generation}, deployed {}",
            ago(&plugin["deployed_unix_ms"], now)
        ),
        None => writeln!(shown, ", nothing in force yet"),
    };
    if let Some(why) = plugin["broken"].as_str() {
        let _ = writeln!(
            shown,
            "broken    {why}; deploy it, roll it back or remove it; until then every request is \
             treated by its policy"
        );
    }
    if !plugin["digest"].is_null() {
        let _ = writeln!(
            shown,
            "module    {} ({}, {})",
            text(&plugin["digest"]),
            text(&plugin["abi"]),
            bytes(number(&plugin["module_bytes"]))
        );
    }
    let routes = join(&plugin["routes"]);
    let _ = writeln!(shown, "routes    {}", if routes.is_empty() { "none" } else { &routes });
    let from = match (plugin["configured"] == true, plugin["deployed"] == true) {
        (true, false) => "the configuration",
        (true, true) => "a deployment over what the configuration has",
        (false, _) => "a deployment",
    };
    let kept = if plugin["kept"] == true { "kept across restarts" } else { "ends with the server" };
    let _ = writeln!(shown, "from      {from}; {kept}");
    let _ = writeln!(shown, "memory    {}", bytes(number(&plugin["memory_bytes"])));
    counted(&mut shown, plugin);
    if !text(&plugin["config"]).is_empty() {
        let _ = writeln!(shown, "config    {}", text(&plugin["config"]));
    }
    let _ = writeln!(shown, "policy    {}", plugin["policy"]);
    if number(&plugin["draining"]) > 0 {
        let _ = writeln!(shown, "draining  {} earlier generations", plugin["draining"]);
    }
    trial(&mut shown, plugin);
    history(&mut shown, plugin, now);
    shown
}

fn trial(shown: &mut String, plugin: &Value) {
    let canary = &plugin["canary"];
    if !canary.is_null() {
        let _ = writeln!(
            shown,
            "\non trial: generation {}, {}% of the requests, {} left",
            canary["generation"],
            canary["share_percent"],
            duration(number(&canary["remaining_ms"]).div_ceil(1000))
        );
        counted(shown, canary);
    }
    if let Some(how) = plugin["last_canary"].as_str() {
        let _ = writeln!(shown, "last trial: {how}");
    }
}

fn history(shown: &mut String, plugin: &Value, now: SystemTime) {
    let history = plugin["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !history.is_empty() {
        shown.push_str("\n`weir plugin rollback` goes back to\n");
    }
    for entry in history {
        let _ = writeln!(
            shown,
            "  generation {}, module {}, {}, deployed {}",
            entry["generation"],
            short(&entry["digest"]),
            text(&entry["abi"]),
            ago(&entry["deployed_unix_ms"], now)
        );
    }
}

fn counted(shown: &mut String, of: &Value) {
    let _ = writeln!(
        shown,
        "requests  {}, {} calls, mean {}, p50 {}, p99 {}",
        number(&of["streams"]),
        number(&of["calls"]),
        time(&of["mean_ns"]),
        time(&of["p50_ns"]),
        time(&of["p99_ns"])
    );
    let kinds: Vec<String> = of["failures"]
        .as_object()
        .map(|kinds| kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect())
        .unwrap_or_default();
    if !kinds.is_empty() {
        let _ = writeln!(shown, "failures  {}", kinds.join(", "));
    }
}

fn failures(plugin: &Value) -> u64 {
    let kinds = plugin["failures"].as_object();
    kinds.map_or(0, |kinds| kinds.values().map(number).sum())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn short(digest: &Value) -> &str {
    let digest = text(digest);
    digest.get(..12).unwrap_or(digest)
}

fn join(names: &Value) -> String {
    let names: Vec<&str> = names.as_array().into_iter().flatten().map(text).collect();
    names.join(", ")
}

fn time(ns: &Value) -> String {
    match ns.as_u64() {
        None => "-".to_owned(),
        Some(ns) if ns < 1000 => format!("{ns} ns"),
        Some(ns) if ns < 1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        Some(ns) => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn ago(unix_ms: &Value, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = Duration::from_millis(number(unix_ms));
    format!("{} ago", duration(now.saturating_sub(then).as_secs()))
}

/// A name that can stand in a path as it is; the server says what is wrong with others, if the path
/// reaches it.
fn path_part(name: &str) -> Result<&str, Failure> {
    match weir_config::is_plugin_name(name) {
        true => Ok(name),
        false => Err(Failure(format!(
            "{name:?} is no name of a plugin: expected 1 to 64 letters, digits, \"-\", \"_\" and \
             \".\", the first of them a letter or a digit"
        ))),
    }
}

/// A form with files (RFC 7578).
struct Form {
    boundary: String,
    body: Vec<u8>,
}

impl Form {
    fn new() -> Form {
        // No module has these by chance.
        let boundary = format!("weir-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        Form { boundary, body: Vec::new() }
    }

    fn part(&mut self, name: &str, content: &[u8]) {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n",
            self.boundary
        );
        self.body.extend_from_slice(head.as_bytes());
        self.body.extend_from_slice(content);
        self.body.extend_from_slice(b"\r\n");
    }

    fn finish(mut self) -> (String, Vec<u8>) {
        self.body.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        (format!("multipart/form-data; boundary={}", self.boundary), self.body)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_is_shown_for_people() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let plugin = json!({
            "name": "gray", "state": "canary", "generation": 2, "digest": "0123456789abcdef",
            "abi": "weir 1", "module_bytes": 2048, "memory_bytes": 65536, "routes": ["every route"],
            "configured": false, "deployed": true, "kept": false, "deployed_unix_ms": 940_000,
            "calls": 7, "streams": 5, "failures": {"trap": 2}, "mean_ns": 1500, "p50_ns": 64,
            "p99_ns": 2_000_000, "config": "{}", "policy": {"cpu_ms": 50}, "draining": 0,
            "canary": {"generation": 3, "share_percent": 5.0, "remaining_ms": 59_001, "calls": 0,
                       "streams": 0, "failures": {}},
            "last_canary": null,
            "history": [{"generation": 1, "digest": "fedcba9876543210", "abi": "weir 1",
                         "deployed_unix_ms": 0}],
        });
        let shown = render(&plugin, now);
        assert_eq!(
            shown,
            "gray: canary, generation 2, deployed 1 min 0 s ago\n\
             module    0123456789abcdef (weir 1, 2.0 KiB)\n\
             routes    every route\n\
             from      a deployment; ends with the server\n\
             memory    64.0 KiB\n\
             requests  5, 7 calls, mean 1.5 µs, p50 64 ns, p99 2.0 ms\n\
             failures  2 trap\n\
             config    {}\n\
             policy    {\"cpu_ms\":50}\n\
             \n\
             on trial: generation 3, 5.0% of the requests, 1 min 0 s left\n\
             requests  0, 0 calls, mean -, p50 -, p99 -\n\
             \n\
             `weir plugin rollback` goes back to\n\
             \x20 generation 1, module fedcba987654, weir 1, deployed 16 min 40 s ago\n"
        );
        let table = render_list(&json!({ "plugins": [plugin] }));
        assert_eq!(table.lines().count(), 2);
        assert!(table.contains("gray") && table.ends_with("  every route\n"), "{table}");
        assert!(render_list(&json!({ "plugins": [] })).contains("weir plugin deploy"));
    }

    #[test]
    fn a_form_ends_with_its_boundary() {
        let mut form = Form::new();
        form.part("module", b"\0asm");
        let (content_type, body) = form.finish();
        let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"module\"\r\n\r\n\0asm\r\n\
             --{boundary}--\r\n"
        );
        assert_eq!(body, expected.as_bytes());
    }
}
