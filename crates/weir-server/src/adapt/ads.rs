//! Ads and trackers as routes have them: their lists, and what is answered to a request that these
//! block, before anything else is asked.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_adapt::ads::{Ads, Kind, Neutral, Question, Verdict};
use weir_cache::Cache;
use weir_config::{self as config, Config};

use super::effort::Effort;
use crate::error::StartError;
use crate::pipeline::WEIR_ADAPT;

/// What is sent instead may be kept by the browser that it was sent to, and by nobody else: it
/// depends on the page that asks. So long, since lists change. And it is what it shall be.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, max-age=3600, no-transform");

const SEC_FETCH_DEST: &str = "sec-fetch-dest";
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The lists of a configuration, each set of them once.
#[derive(Default)]
pub(crate) struct AdsLists(HashMap<Vec<PathBuf>, Arc<Ads>>);

impl AdsLists {
    /// Reads them all, and puts what helpers need where they can read it.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub(crate) fn load(config: &Config, cache: &Cache) -> Result<AdsLists, StartError> {
        let mut lists = AdsLists::default();
        for ads in of_routes(config) {
            if lists.0.contains_key(&ads.lists) {
                continue;
            }
            let mut loaded = Ads::load(&ads.lists)?;
            tell(&loaded);
            if !loaded.place_table(|table| stored(table, cache)) {
                tracing::warn!("no room for what lists hide by class and id: it is not hidden");
            }
            lists.0.insert(ads.lists.clone(), Arc::new(loaded));
        }
        Ok(lists)
    }

    /// Those of a route.
    pub(crate) fn of(&self, settings: &config::RouteAdapt) -> Option<&Arc<Ads>> {
        self.0.get(&settings.ads.as_ref()?.lists)
    }
}

/// Reads the lists of a configuration, for nothing but their errors.
///
/// # Errors
/// The first that cannot be read.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    for ads in of_routes(config) {
        tell(&Ads::load(&ads.lists)?);
    }
    Ok(())
}

fn of_routes(config: &Config) -> impl Iterator<Item = &config::Ads> {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(|route| route.adapt.ads.as_ref())
}

fn tell(ads: &Ads) {
    for report in ads.reports() {
        let (path, network, cosmetic) = (report.path.display(), report.network, report.cosmetic);
        tracing::info!(%path, network, cosmetic, unknown = report.unknown, "a list of ads is read");
        if !report.shown.is_empty() {
            tracing::warn!(%path, first = ?report.shown, "lines that are no rules are left out");
        }
    }
}

fn stored(table: &[u8], cache: &Cache) -> Option<Bytes> {
    let mut destination = cache.destination(table.len() as u64).ok()?;
    destination.write(table).ok()?;
    match destination.freeze().chunks() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

/// What becomes of requests and pages since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests that were answered with nothing.
    pub(crate) blocked: AtomicU64,
    /// Requests that were answered with what a list says instead.
    pub(crate) redirected: AtomicU64,
    /// Pages that were changed.
    pub(crate) rewritten: AtomicU64,
    /// Pages whose end is as it was, since they took too much memory.
    pub(crate) partial: AtomicU64,
    /// Elements that were taken out of pages by lists.
    pub(crate) hidden: AtomicU64,
    /// Variants of which a draft was made first.
    pub(crate) drafts: AtomicU64,
    /// Variants that were made while they were sent.
    pub(crate) kept: AtomicU64,
}

impl Counts {
    /// Takes note of a variant that is made for the first time, by what its helper says of it.
    pub(super) fn note(&self, detail: &str, effort: Effort) {
        self.drafts.fetch_add(u64::from(effort == Effort::Draft), Relaxed);
        let Some(html) = detail.split(", ").find(|step| step.starts_with("html;")) else { return };
        self.rewritten.fetch_add(1, Relaxed);
        for parameter in html.split(';').skip(1) {
            match parameter.split_once('=') {
                Some(("hidden", count)) => {
                    self.hidden.fetch_add(count.parse().unwrap_or(0), Relaxed);
                }
                None if parameter == "partial" => _ = self.partial.fetch_add(1, Relaxed),
                _ => {}
            }
        }
    }
}

/// The lists of a route that blocks.
pub(crate) struct Blocking(Arc<Ads>);

/// A request that is not let through.
pub(crate) struct Blocked {
    verdict: Verdict,
    kind: Kind,
}

/// A request, as far as lists ask about it.
pub(crate) struct Wish<'a> {
    pub(crate) is_secure: bool,
    /// In its one form.
    pub(crate) host: &'a str,
    /// Path and query.
    pub(crate) target: &'a str,
    /// The path alone.
    pub(crate) path: &'a str,
}

impl Blocking {
    pub(crate) fn new(settings: &config::RouteAdapt, lists: &AdsLists) -> Option<Blocking> {
        settings.ads.as_ref().filter(|ads| ads.block)?;
        lists.of(settings).cloned().map(Blocking)
    }

    /// Whether lists block a request. `field` gives the value of one of its fields, by a name in
    /// lower case.
    pub(crate) fn judge<'a>(
        &self,
        wish: &Wish<'a>,
        field: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Blocked> {
        let question = question(wish, field);
        let (verdict, kind) = (self.0.verdict(&question), question.kind);
        (verdict != Verdict::Pass).then_some(Blocked { verdict, kind })
    }
}

/// What lists are asked about a request.
pub(super) fn question<'a>(
    wish: &Wish<'a>,
    field: impl Fn(&str) -> Option<&'a str>,
) -> Question<'a> {
    let kind = Kind::of(field(SEC_FETCH_DEST), field("accept"), wish.path);
    let page = field("referer").or_else(|| field("origin")).and_then(host_of);
    let page = page.unwrap_or_else(|| match field(SEC_FETCH_SITE) {
        // Whoever it is does not say so.
        Some("cross-site") => "",
        _ => wish.host,
    });
    let Wish { is_secure, host, target, .. } = *wish;
    Question { is_secure, host, target, kind, page }
}

impl Blocked {
    /// What is answered: status, fields and content.
    pub(crate) fn answer(&self, counts: &Counts) -> (StatusCode, HeaderMap, Bytes) {
        let neutral = self.verdict.answer(self.kind);
        let mut headers = HeaderMap::new();
        let word = match self.verdict {
            Verdict::Redirect(Neutral { name, .. }) => {
                counts.redirected.fetch_add(1, Relaxed);
                HeaderValue::try_from(format!("ads;redirect={name}"))
            }
            Verdict::Block | Verdict::Pass => {
                counts.blocked.fetch_add(1, Relaxed);
                Ok(HeaderValue::from_static("ads;blocked"))
            }
        };
        headers.insert(WEIR_ADAPT, word.unwrap_or(HeaderValue::from_static("ads")));
        headers.insert(header::CACHE_CONTROL, CACHE_CONTROL);
        headers.insert(header::VARY, HeaderValue::from_static("Sec-Fetch-Dest"));
        // There is nothing in it that a page might not see.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        match neutral {
            None => (StatusCode::NO_CONTENT, headers, Bytes::new()),
            Some(Neutral { media_type, body, .. }) => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
                (StatusCode::OK, headers, Bytes::from_static(body))
            }
        }
    }
}

/// The value of a field as text.
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    headers.get(name)?.to_str().ok()
}

/// The host of an absolute URL, without user and port.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.find(']') {
        Some(end) => &host[..=end],
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_urls() {
        for (url, expected) in [
            ("https://shop.example/a", Some("shop.example")),
            ("http://user:secret@shop.example:8080?x", Some("shop.example")),
            ("http://[::1]:80/", Some("[::1]")),
            ("https://", None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(host_of(url), expected, "{url}");
        }
    }

    #[test]
    fn what_helpers_say_is_counted() {
        let counts = Counts::default();
        for detail in ["html;changed=3;hidden=2;partial, br;q=5", "br;q=5", "html;changed=1"] {
            counts.note(detail, Effort::Draft);
        }
        let of = |count: &AtomicU64| count.load(Relaxed);
        counts.note("br;q=5", Effort::Whole);
        let seen = (of(&counts.rewritten), of(&counts.partial), of(&counts.hidden));
        assert_eq!((seen, of(&counts.drafts)), ((2, 1, 2), 3));
    }
}
