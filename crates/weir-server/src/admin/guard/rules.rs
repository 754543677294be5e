//! Rules that are set at run time, and hold until the next reload. They replace those in force all
//! at once; rules whose names stay keep their buckets and counters.
//!
//! A change runs without a pause on the thread of the admin API, as reloads do, so that none of
//! them overtakes another.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use weir_config::{Config, ConfigError, Errors, Guard, GuardRule, parse_rules, print_rules};

use crate::Server;
use crate::admin::handle::{Reply, TEXT, error, json, reply};
use crate::admin::wanted::decode;

/// What the text is called in errors where the client gives it no name.
const TEXT_NAME: &str = "rules";

/// Bytes of such a name.
const TEXT_NAME_MAX: usize = 256;

#[derive(Serialize)]
struct Set {
    /// Rules in force.
    rules: usize,
    set_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// As the other errors, with their places.
#[derive(Serialize)]
struct Wrong<'a> {
    error: String,
    errors: Vec<&'a ConfigError>,
}

/// `GET /guard/rules`: the rules in force, as they can be sent back.
pub(super) fn show(server: &Server) -> Reply {
    let in_force = server.shared().guard.in_force();
    reply(StatusCode::OK, TEXT, print_rules(&in_force.guard.rules))
}

/// `GET /guard/rules/NAME`.
pub(super) fn show_one(server: &Server, name: &str) -> Reply {
    let in_force = server.shared().guard.in_force();
    match in_force.guard.rules.iter().find(|rule| rule.name == name) {
        Some(rule) => reply(StatusCode::OK, TEXT, print_rules(std::slice::from_ref(rule))),
        None => unknown(name),
    }
}

/// `PUT /guard/rules`: these rules and no others. A text without any is more often a file that was
/// not written than a wish to have none, and so is refused unless it is said.
pub(super) fn set_all(server: &Server, query: &str, text: &Bytes) -> Reply {
    let before = in_force(server);
    match parse(&before, query, text) {
        Ok((rules, told)) if rules.is_empty() && !told.remove_all => {
            let why = format!(
                "{} has no `rule` block: to remove all rules that are in force ({}), say \
                 `?remove-all=true` (`weir guard apply --remove-all`)",
                told.name,
                before.guard.rules.len()
            );
            error(StatusCode::BAD_REQUEST, &why)
        }
        Ok((rules, told)) if !rules.is_empty() && told.remove_all => {
            let why = format!("remove-all: {} has rules, which would be set", told.name);
            error(StatusCode::BAD_REQUEST, &why)
        }
        Ok((rules, _)) => set(server, before, rules),
        Err(refused) => *refused,
    }
}

/// `PUT /guard/rules/NAME`: in the place of the rule of that name, or after all others.
pub(super) fn set_one(server: &Server, name: &str, query: &str, text: &Bytes) -> Reply {
    let before = in_force(server);
    let mut given = match parse(&before, query, text) {
        Ok((_, told)) if told.remove_all => {
            return error(StatusCode::BAD_REQUEST, "remove-all: a rule is removed by DELETE");
        }
        Ok((rules, _)) => rules,
        Err(refused) => return *refused,
    };
    let (Some(rule), true) = (given.pop(), given.is_empty()) else {
        let why = format!("expected one rule, which is called \"{name}\"");
        return error(StatusCode::BAD_REQUEST, &why);
    };
    if rule.name != name {
        let why = format!("the rule is called \"{}\", not \"{name}\"", rule.name);
        return error(StatusCode::BAD_REQUEST, &why);
    }
    let mut rules = before.guard.rules.clone();
    match rules.iter_mut().find(|known| known.name == name) {
        Some(known) => *known = rule,
        None => rules.push(rule),
    }
    // All limits on a configuration hold for the whole.
    match parse_rules(TEXT_NAME, &print_rules(&rules), &before) {
        Ok(rules) => set(server, before, rules),
        Err(errors) => wrong(&errors),
    }
}

/// `DELETE /guard/rules/NAME`.
pub(super) fn remove(server: &Server, name: &str) -> Reply {
    let before = in_force(server);
    let mut rules = before.guard.rules.clone();
    rules.retain(|rule| rule.name != name);
    match rules.len() == before.guard.rules.len() {
        true => unknown(name),
        false => set(server, before, rules),
    }
}

/// The configuration with the rules in force.
fn in_force(server: &Server) -> Config {
    let shared = server.shared();
    shared.guard.config(&shared.live.load().config)
}

/// What the parameters of the URL say.
struct Told {
    /// What errors call the text.
    name: String,
    /// That there are no rules is meant.
    remove_all: bool,
}

fn parse(config: &Config, query: &str, text: &Bytes) -> Result<(Vec<GuardRule>, Told), Box<Reply>> {
    let bad = |why: &str| Box::new(error(StatusCode::BAD_REQUEST, why));
    let told = told(query).map_err(|why| bad(&why))?;
    let text = std::str::from_utf8(text).map_err(|_| bad("the rules are no UTF-8 text"))?;
    let rules = parse_rules(&told.name, text, config).map_err(|errors| Box::new(wrong(&errors)))?;
    Ok((rules, told))
}

fn told(query: &str) -> Result<Told, String> {
    let mut told = Told { name: TEXT_NAME.to_owned(), remove_all: false };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("name", value)) => told.name = decode(value)?,
            Some(("remove-all", "true")) => told.remove_all = true,
            Some(("remove-all", "false")) => told.remove_all = false,
            Some(("remove-all", _)) => return Err("remove-all: expected true or false".to_owned()),
            _ => return Err(format!("{pair:?}: no such parameter; there is name, and remove-all")),
        }
    }
    let name = &told.name;
    match name.is_empty() || name.len() > TEXT_NAME_MAX || name.contains(char::is_control) {
        true => {
            Err(format!("name: expected 1 to {TEXT_NAME_MAX} bytes without control characters"))
        }
        false => Ok(told),
    }
}

fn set(server: &Server, before: Config, rules: Vec<GuardRule>) -> Reply {
    let guard = &server.shared().guard;
    let config = Config { guard: Guard { rules, ..before.guard.clone() }, ..before.clone() };
    let count = config.guard.rules.len();
    tracing::info!(rules = count, "rules set at run time; they hold until the next reload");
    let mut warning = None;
    if guard.set_rules(&before, &config) {
        // Listeners have what the kernel needs only if they are made with it.
        if let Err(cause) = server.reload(config.clone()) {
            tracing::error!(%cause, "the kernel does not enforce the rules set at run time");
            warning = Some(format!("not enforced in the kernel, but after accept: {cause}"));
        }
        guard.note_set(&config);
    }
    let set_at = guard.in_force().set_at;
    let since = set_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let set_unix_ms = since.as_millis() as u64;
    json(StatusCode::OK, &Set { rules: count, set_unix_ms, warning })
}

fn unknown(name: &str) -> Reply {
    error(StatusCode::NOT_FOUND, &format!("there is no rule \"{name}\""))
}

fn wrong(errors: &Errors) -> Reply {
    let answer = Wrong { error: errors.to_string(), errors: errors.iter().collect() };
    json(StatusCode::UNPROCESSABLE_ENTITY, &answer)
}
