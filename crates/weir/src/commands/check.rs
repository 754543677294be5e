//! `weir check`: says what is wrong with a configuration file, or that nothing is.

use super::{Failure, print};
use crate::cli::Check;

/// Checks a file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(check: &Check) -> Result<(), Failure> {
    let result = weir_config::load(&check.file);
    if check.json {
        let errors = match &result {
            Ok(_) => serde_json::json!([]),
            Err(errors) => serde_json::to_value(errors).unwrap_or_default(),
        };
        print(&format!("{errors:#}\n"))?;
        return match result {
            Ok(_) => Ok(()),
            Err(errors) => Err(Failure(format!("{} error(s)", errors.len()))),
        };
    }
    let config = result?;
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

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
