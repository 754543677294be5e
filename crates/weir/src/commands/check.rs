//! `weir check`: says what is wrong with a configuration file, or that nothing is.

use serde_json::{Value, json};
use weir_config::{Config, Route, Source};
use weir_server::StartError;

use super::{Failure, print};
use crate::cli::Check;
use crate::logging;
use crate::privileges;

/// Checks a file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(check: &Check) -> Result<(), Failure> {
    let result = weir_config::load(&check.file);
    if check.json {
        let errors = match &result {
            Ok(config) => match would_start(config) {
                Ok(()) => json!([]),
                Err(error) => json!([of_the_whole(check, &error)]),
            },
            Err(errors) => serde_json::to_value(errors).unwrap_or_default(),
        };
        print(&format!("{errors:#}\n"))?;
        return match errors.as_array().map_or(0, Vec::len) {
            0 => Ok(()),
            count => Err(Failure(format!("{count} error(s)"))),
        };
    }
    let config = result?;
    would_start(&config).map_err(|error| Failure(format!("{}: {error}", check.file.display())))?;
    for doubt in config.doubts() {
        print(&format!("{}: warning: {doubt}\n", check.file.display()))?;
    }
    let routes: usize = config.sites.iter().map(|site| site.routes.len()).sum();
    let (sites, upstreams) = (config.sites.len(), config.upstreams.len());
    print(&format!(
        "{}: ok ({}, {}, {})\n",
        check.file.display(),
        count(sites, "site"),
        count(routes, "route"),
        count(upstreams, "upstream")
    ))
}

/// What only a start would notice otherwise: certificates that fit no key, plugins that do not
/// start, accounts that are not.
fn would_start(config: &Config) -> Result<(), StartError> {
    let mut routes = config.sites.iter().flat_map(|site| &site.routes);
    let inspects =
        |route: &Route| matches!(&route.source, Source::Forward(f) if f.inspect.is_some());
    if !config.plugins.is_empty() || routes.any(inspects) {
        // Plugins say there why they refuse their configuration, authorities that they end soon.
        logging::start();
    }
    weir_server::check(config)?;
    privileges::check(config.server.user.as_deref(), config.server.group.as_deref())
}

/// An error in the form of those that have a place.
fn of_the_whole(check: &Check, error: &StartError) -> Value {
    json!({
        "file": check.file.display().to_string(),
        "line": 0,
        "column": 0,
        "message": error.to_string(),
        "suggestion": null,
        "expected": [],
    })
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
