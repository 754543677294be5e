//! `weir adapt --ads`: what lists of ads hide on a page, and what they would do with a request.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_adapt::adapters::html::{Hide, Shared};
use weir_adapt::ads::{Ads, Kind, ListReport, Neutral, Page, Verdict};
use weir_server::{AdsAnswer, AdsRequest};

use super::Failure;
use crate::cli::Adapt;

/// Lists, and what is asked of them.
pub(super) struct Lists {
    ads: Ads,
    page: Page,
    /// What they would do with the request for a URL.
    request: Option<(String, AdsAnswer)>,
}

impl Lists {
    /// Reads the lists that are named; `None` if there are none.
    ///
    /// # Errors
    /// One of them cannot be read, or what is asked is no request.
    pub(super) fn load(command: &Adapt) -> Result<Option<Lists>, Failure> {
        if command.ads.is_empty() {
            return Ok(None);
        }
        let url = command.url.as_deref();
        let mut fields = command.headers.clone();
        let is_destination = |field: &String| {
            let name = field.split(':').next().unwrap_or_default();
            name.trim().eq_ignore_ascii_case("sec-fetch-dest")
        };
        if command.file.is_some() && !fields.iter().any(is_destination) {
            // What it is applied to is a page.
            fields.push("Sec-Fetch-Dest: document".to_owned());
        }
        let request = url.map(|url| Ok((url, AdsRequest::new(url, &fields)?)));
        let request = request.transpose().map_err(|error: String| Failure(error))?;
        let ads = Ads::load_with_rules(&command.ads);
        let ads = ads.map_err(|error| Failure(format!("`--ads`: {error}")))?;
        let host = request.as_ref().map(|(_, request)| request.host());
        let page = host.map_or_else(|| ads.any_page(), |host| ads.page(host));
        let judge =
            |(url, request): (&str, _)| (url.to_owned(), weir_server::judge_ads(&ads, &request));
        let request = request.map(judge);
        Ok(Some(Lists { ads, page, request }))
    }

    /// What they hide on the page.
    pub(super) fn hide(&self) -> Shared<Hide> {
        self.page.hide.clone()
    }

    /// What its elements are looked up in, if they are.
    pub(super) fn table(&self) -> Option<Bytes> {
        self.page.hide.table.map(|_| self.ads.table())
    }

    /// What was read and would be done, in words.
    pub(super) fn told(&self) -> String {
        let mut told = String::new();
        for report in self.ads.reports() {
            let ListReport { path, network, cosmetic, unknown, shown } = report;
            // Writing to a String cannot fail.
            let _ = writeln!(
                told,
                "{}: {network} rules on requests, {cosmetic} on elements, {unknown} unknown lines",
                path.display()
            );
            for line in shown {
                let _ = writeln!(told, "  unknown: {line}");
            }
        }
        if let Some((url, answer)) = &self.request {
            let kind = answer.kind.as_str();
            let _ = writeln!(told, "{url} ({kind}): {}", done(answer));
        }
        told
    }

    /// The same, by names.
    pub(super) fn to_json(&self) -> Vec<(&'static str, Value)> {
        let report = |report: &ListReport| {
            json!({
                "file": report.path, "network": report.network, "cosmetic": report.cosmetic,
                "unknown": report.unknown, "shown": report.shown,
            })
        };
        let lists: Vec<Value> = self.ads.reports().iter().map(report).collect();
        let mut named = vec![("lists", json!(lists))];
        if let Some((url, answer)) = &self.request {
            let AdsAnswer { kind, explained } = answer;
            named.push((
                "request",
                json!({
                    "url": url, "kind": kind.as_str(), "verdict": word(explained.verdict),
                    "instead": instead(explained.verdict, *kind).map(|neutral| neutral.name),
                    "rule": explained.rule, "exception": explained.exception,
                }),
            ));
        }
        named
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "passed",
        Verdict::Block => "blocked",
        Verdict::Redirect(_) => "redirected",
    }
}

/// What is sent to whoever asks; `None` for no content, and for what passes.
fn instead(verdict: Verdict, kind: Kind) -> Option<&'static Neutral> {
    if verdict == Verdict::Pass { None } else { verdict.answer(kind) }
}

/// What is done with a request, and why.
fn done(answer: &AdsAnswer) -> String {
    let AdsAnswer { kind, explained } = answer;
    let by = |rule: &Option<String>| rule.as_deref().map(|rule| format!(" by {rule}"));
    let rule = by(&explained.rule).unwrap_or_default();
    let sent = instead(explained.verdict, *kind).map_or("204", |neutral| neutral.name);
    match (explained.verdict, &explained.exception) {
        (Verdict::Block, _) => format!("blocked{rule}, answered by {sent}"),
        (Verdict::Redirect(_), _) => format!("redirected to {sent}{rule}"),
        (Verdict::Pass, Some(exception)) => {
            format!("passed by {exception}, an exception of what would be blocked{rule}")
        }
        (Verdict::Pass, None) => "passed: no rule is about it".to_owned(),
    }
}
