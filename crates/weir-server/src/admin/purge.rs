//! Purging: by URL, by site, or everything.

use http::Uri;
use serde::{Deserialize, Serialize};
use weir_cache::{KeyRef, PurgeMode};
use weir_http::host::Host;
use weir_http::{host, path};

use crate::Server;
use crate::live::{Live, Route, Site, Source};
use crate::pipeline::{key_authority, key_hosts, scopes};
use crate::shared::coarse_unix_ms;
use std::sync::Arc;

/// What to purge.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Body")]
pub(super) struct Purge {
    what: What,
    /// Make stale instead of removing: a response may then still be served where stale ones may.
    soft: bool,
}

#[derive(Debug)]
enum What {
    /// All variants of one URL, both schemes.
    Url(String),
    /// Everything of a site, by one of its names.
    Site(String),
    /// Everything.
    All(bool),
}

/// A purge as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    url: Option<String>,
    site: Option<String>,
    all: Option<bool>,
    #[serde(default)]
    soft: bool,
}

impl TryFrom<Body> for Purge {
    type Error = &'static str;

    fn try_from(body: Body) -> Result<Purge, &'static str> {
        let what = match (body.url, body.site, body.all) {
            (Some(url), None, None) => What::Url(url),
            (None, Some(site), None) => What::Site(site),
            (None, None, Some(all)) => What::All(all),
            _ => {
                return Err("expected one of \"url\", \"site\" and \"all\", \
                            as in {\"url\": \"http://shop.example/a.png\"}");
            }
        };
        Ok(Purge { what, soft: body.soft })
    }
}

/// What was purged.
#[derive(Debug, Serialize)]
pub(super) struct Purged {
    purged: usize,
}

/// Purges.
///
/// # Errors
/// Why there is nothing by that name, for people.
pub(super) fn purge(server: &Server, wanted: &Purge) -> Result<Purged, String> {
    let shared = server.shared();
    let live = shared.live.load();
    let mode = match wanted.soft {
        true => PurgeMode::Expire { now_ms: coarse_unix_ms() },
        false => PurgeMode::Remove,
    };
    let purged = match &wanted.what {
        What::All(true) => shared.cache.purge_all(mode),
        What::All(false) => return Err("\"all\" is true or absent".to_owned()),
        What::Url(url) => purge_url(server, &live, url, mode)?,
        What::Site(name) => {
            let site = live
                .sites
                .iter()
                .find(|site| site.info.names.contains(name))
                .ok_or_else(|| unknown_site(&live, name))?;
            let scopes = site.routes.iter().flat_map(|route| scopes(route).collect::<Vec<_>>());
            shared.cache.purge_scopes(&scopes.collect(), mode)
        }
    };
    Ok(Purged { purged })
}

fn purge_url(server: &Server, live: &Live, url: &str, mode: PurgeMode) -> Result<usize, String> {
    let uri: Uri = url.parse().map_err(|cause| format!("{url:?} is no URL: {cause}"))?;
    let authority = uri.authority().ok_or_else(|| {
        format!("{url:?} names no host; expected a whole URL such as http://shop.example/a.png")
    })?;
    let host = host::parse(authority.as_str().as_bytes()).map_err(|cause| cause.to_string())?;
    let path = path::normalise(uri.path()).map_err(|cause| cause.to_string())?;
    let mut known = false;
    let mut purged = 0;
    let mut seen: Vec<*const Site> = Vec::new();
    for listener in live.listeners.iter().flatten() {
        let Some(site) = listener.hosts.find(&host.name) else { continue };
        known = true;
        // One site may listen at several addresses.
        if seen.contains(&Arc::as_ptr(site)) {
            continue;
        }
        seen.push(Arc::as_ptr(site));
        if let Some(route) = site.routes.find(path.as_str()) {
            purged += purge_in(server, route, &host, path.as_str(), uri.query(), mode);
        }
    }
    if known { Ok(purged) } else { Err(unknown_site(live, &host.name)) }
}

fn purge_in(
    server: &Server,
    route: &Route,
    host: &Host<'_>,
    path: &str,
    query: Option<&str>,
    mode: PurgeMode,
) -> usize {
    let query = query.filter(|_| !matches!(route.source, Source::Files(_)));
    let query = query.and_then(|query| route.own_query(query));
    let path = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let purge = |host: &str, scope| {
        let authority = key_authority(route, host);
        let key = KeyRef { scope, authority, path_and_query: &path };
        server.shared().cache.purge(&key, mode)
    };
    let hosts = key_hosts(route, host);
    hosts.iter().map(|host| scopes(route).map(|scope| purge(host, scope)).sum::<usize>()).sum()
}

fn unknown_site(live: &Live, name: &str) -> String {
    let names: Vec<&str> = live.sites.iter().map(|site| site.info.name.as_str()).collect();
    format!("no site is called {name:?}; there are: {}", names.join(", "))
}
