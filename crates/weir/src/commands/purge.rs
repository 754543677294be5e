//! `weir purge`: removes stored responses from a running server.

use super::{Failure, print};
use crate::admin_client;
use crate::cli::Purge;

/// Purges, and says how much.
///
/// # Errors
/// If the server cannot be reached or knows no such site.
pub(super) fn purge(purge: &Purge) -> Result<(), Failure> {
    let mut wanted = match (&purge.url, &purge.site) {
        (Some(url), _) => serde_json::json!({ "url": url }),
        (None, Some(site)) => serde_json::json!({ "site": site }),
        (None, None) => serde_json::json!({ "all": true }),
    };
    wanted["soft"] = purge.soft.into();
    let answer = admin_client::post(&purge.admin.admin, "/purge", &wanted.to_string())?;
    if purge.admin.json {
        return print(&answer);
    }
    let answer: serde_json::Value = admin_client::parse(&answer)?;
    let purged = answer["purged"].as_u64().unwrap_or_default();
    print(&format!("purged {purged} stored response{}\n", if purged == 1 { "" } else { "s" }))
}
