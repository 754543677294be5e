//! Changes of HTML as a kind of adaptation: the rules of a route, and what its lists of ads hide,
//! whatever its clients ask for.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_adapt::Step;
use weir_adapt::adapters::compress::{Coding, Compress};
use weir_adapt::adapters::decode::CODINGS_MAX;
use weir_adapt::adapters::html::{
    self as codec, Action, Host, Images, Rewriting, Rule, Shared, Srcset, Strip,
};
use weir_adapt::ads::Ads;
use weir_config as config;

use super::adapter::{Adapter, Asked, Shape, without};
use super::declared::{Cost, Declaration, Declares, Stage};
use super::work::{Chosen, Work};

/// How what is coded anew in the coding that it came in is coded.
#[derive(Clone, Copy)]
enum Recoding {
    /// About as well as most servers do.
    Usual,
    /// A client waits for it.
    Quick,
}

/// `html` and `ads` of a route.
pub(super) struct Html {
    html: Shared<codec::Html>,
    ads: Option<Arc<Ads>>,
    /// What pages depend on but for what is different for each.
    key: u64,
    /// With what tells these rules and lists from others: they make other pages.
    name: Arc<str>,
    wants_nonce: bool,
    wait: Duration,
    recodes: Recodes,
    streams: bool,
}

/// What it codes anew after it has decoded it, since no other adapter does.
#[derive(Clone, Copy)]
pub(super) struct Recodes {
    pub(super) stored: bool,
    pub(super) streams: bool,
}

impl Html {
    /// `ads` if lists hide something, with what the route says of them.
    pub(super) fn new(
        settings: Option<&config::Html>,
        ads: Option<(Arc<Ads>, &config::Ads)>,
        recodes: Recodes,
    ) -> Html {
        let html = settings.map(rules).unwrap_or_default();
        let wait = settings.map_or(Duration::ZERO, |settings| settings.wait);
        let wait = ads.as_ref().map_or(wait, |(_, longer)| wait.max(longer.wait));
        let streams = settings.is_none_or(|settings| settings.stream)
            && ads.as_ref().is_none_or(|(_, ads)| ads.stream);
        let mut hasher = DefaultHasher::new();
        ("html", &html, recodes.stored).hash(&mut hasher);
        let key = hasher.finish();
        let lists = ads.as_ref().map(|(ads, _)| ads.digest());
        lists.hash(&mut hasher);
        let word = if ads.is_some() { "html-ads" } else { "html" };
        Html {
            name: format!("{word}{:08x}", hasher.finish() as u32).into(),
            wants_nonce: html.wants_nonce() || ads.is_some(),
            html: html.into(),
            ads: ads.map(|(ads, _)| ads),
            key,
            wait,
            recodes,
            streams,
        }
    }

    /// What is to become of a page, and what tells that from whatever else might.
    fn page(&self, asked: &Asked<'_>, shape: &Shape<'_>, recodes: Option<Recoding>) -> (u64, Page) {
        let hidden = self.ads.as_ref().map(|ads| (ads, ads.page(&asked.host())));
        let mut hasher = DefaultHasher::new();
        // Not what is the page's own, its nonce and its charset: of a page there is one variant.
        self.key.hash(&mut hasher);
        hidden.as_ref().map(|(_, page)| page.id).hash(&mut hasher);
        let coded = shape.is_coded.then(|| codings(shape.headers)).flatten().unwrap_or_default();
        let again = coded.last().copied().zip(recodes);
        let again = again.map(|(coding, how)| Compress { coding, level: how.level(coding) });
        let page = Page {
            name: Arc::clone(&self.name),
            html: self.html.clone(),
            hidden: hidden.map(|(ads, page)| (Arc::clone(ads), page.hide)),
            wants_nonce: self.wants_nonce,
            coded,
            again,
        };
        (hasher.finish(), page)
    }
}

/// What is to become of a page, whatever it is coded in.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// That of its adapter.
    pub(super) name: Arc<str>,
    html: Shared<codec::Html>,
    /// What lists hide on its host.
    hidden: Option<(Arc<Ads>, Shared<codec::Hide>)>,
    wants_nonce: bool,
    /// In the order in which that was done.
    coded: Vec<Coding>,
    /// How it is coded anew, if that is done here.
    pub(super) again: Option<Compress>,
}

impl Page {
    /// What its steps look things up in.
    pub(super) fn table(&self) -> Option<Bytes> {
        let (ads, hide) = self.hidden.as_ref()?;
        hide.table.map(|_| ads.table())
    }

    /// What is done to it, one step after the other. `headers` are those it came with.
    pub(super) fn steps(&self, headers: &HeaderMap) -> impl Iterator<Item = Step> {
        let decode = (!self.coded.is_empty()).then(|| Step::Decode(self.coded.clone()));
        let again = self.again.map(Step::Compress);
        decode.into_iter().chain([Step::Html(self.rewriting(headers))]).chain(again)
    }

    fn rewriting(&self, headers: &HeaderMap) -> Rewriting {
        let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let nonce = self.wants_nonce.then(|| nonce(headers)).flatten();
        Rewriting {
            html: self.html.clone(),
            hide: self.hidden.as_ref().map(|(_, hide)| hide.clone()),
            nonce: nonce.map(str::to_owned),
            charset: charset(content_type.unwrap_or_default()).map(str::to_owned),
        }
    }
}

impl Declares for Html {
    fn declaration(&self) -> Option<Declaration> {
        let rewriting = Rewriting { html: self.html.clone(), ..Rewriting::default() };
        Some(Declaration {
            name: if self.ads.is_some() { "html-ads" } else { "html" }.into(),
            stage: Stage::Variant,
            takes: vec!["text/html".to_owned()],
            // Lists hide what they hide on a host.
            key: self.ads.iter().map(|_| "host".to_owned()).collect(),
            cost: Cost::helpers(Step::Html(rewriting).ns_per_byte(), self.wait),
            streams: self.streams(),
        })
    }
}

impl Adapter for Html {
    fn takes(&self, shape: &Shape<'_>) -> bool {
        is_html(&shape.content_type) && (!shape.is_coded || codings(shape.headers).is_some())
    }

    fn looks_at(&self) -> &[HeaderName] {
        &[]
    }

    fn looks_at_host(&self) -> bool {
        self.ads.is_some()
    }

    fn choose(&self, asked: &Asked<'_>, shape: &Shape<'_>) -> Result<Chosen, &'static str> {
        let recodes = self.recodes.stored.then_some(Recoding::Usual);
        let (key, page) = self.page(asked, shape, recodes);
        Ok(Chosen { key, work: Work::Page(page) })
    }

    fn named<'t>(&self, tag: &'t [u8]) -> Option<&'t [u8]> {
        without(tag, &self.name)
    }

    fn decodes(&self) -> bool {
        true
    }

    fn streams(&self) -> bool {
        self.streams
    }

    fn stream(&self, asked: &Asked<'_>, shape: &Shape<'_>) -> Option<Result<Chosen, &'static str>> {
        self.streams.then(|| {
            let recodes = self.recodes.streams.then_some(Recoding::Quick);
            let (key, page) = self.page(asked, shape, recodes);
            match codec::is_suited(&page.rewriting(shape.headers)) {
                true => Ok(Chosen { key, work: Work::Page(page) }),
                false => Err("charset"),
            }
        })
    }

    fn wait(&self) -> Duration {
        self.wait
    }
}

impl Recoding {
    fn level(self, coding: Coding) -> u32 {
        match (self, coding) {
            (Recoding::Usual, Coding::Gzip) => 6,
            (Recoding::Usual, Coding::Brotli) => 5,
            (Recoding::Usual, Coding::Zstd) => 6,
            // As `strength "quick"` of `compress`.
            (Recoding::Quick, Coding::Gzip | Coding::Brotli) => 4,
            (Recoding::Quick, Coding::Zstd) => 3,
        }
    }
}

/// XHTML is XML, which is read otherwise.
fn is_html(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    content_type[..end].trim_ascii().eq_ignore_ascii_case(b"text/html")
}

/// `charset` of a Content-Type.
fn charset(content_type: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(content_type).ok()?;
    let mut parameters = text.split(';').skip(1).filter_map(|one| one.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(value.trim().trim_matches('"')).filter(|value| !value.is_empty())
}

/// What a response is coded in, in the order in which that was done; `None` if it cannot be undone.
fn codings(headers: &HeaderMap) -> Option<Vec<Coding>> {
    let values = headers.get_all(header::CONTENT_ENCODING).into_iter();
    let tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let tokens = tokens.map(|token| token.trim_ascii().to_ascii_lowercase());
    let codings = tokens.filter(|token| token != b"identity").map(|token| match &*token {
        b"gzip" | b"x-gzip" => Some(Coding::Gzip),
        b"br" => Some(Coding::Brotli),
        b"zstd" => Some(Coding::Zstd),
        _ => None,
    });
    codings.collect::<Option<Vec<_>>>().filter(|codings| codings.len() <= CODINGS_MAX)
}

/// The nonce of a Content-Security-Policy (CSP Level 3, section 2.3.1). A stored page has the one
/// that it came with, in its head and in its text.
fn nonce(headers: &HeaderMap) -> Option<&str> {
    let policies = headers.get_all(header::CONTENT_SECURITY_POLICY).into_iter();
    let policies = policies.filter_map(|policy| policy.to_str().ok());
    // The name first, then what is allowed (CSP Level 3, section 2.2).
    let directives = policies.flat_map(|policy| policy.split([';', ','])).filter_map(|directive| {
        let mut words = directive.split_ascii_whitespace();
        Some((words.next()?, words))
    });
    let directives: Vec<_> = directives.collect();
    NONCE_OF.iter().find_map(|name| {
        let named = directives.iter().filter(|(one, _)| one.eq_ignore_ascii_case(name));
        named.flat_map(|(_, sources)| sources.clone()).find_map(|source| {
            let nonce = source.strip_prefix("'nonce-")?.strip_suffix('\'')?;
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte);
            (!nonce.is_empty() && nonce.bytes().all(known)).then_some(nonce)
        })
    })
}

/// Whose nonce is taken: what speaks of scripts first, the closest (CSP Level 3, section 6.8.3).
const NONCE_OF: [&str; 5] =
    ["script-src-elem", "script-src", "default-src", "style-src-elem", "style-src"];

/// What a configuration says, as the rewriter has it.
pub fn rewriting(settings: &config::Html) -> Rewriting {
    Rewriting { html: rules(settings).into(), ..Rewriting::default() }
}

fn rules(settings: &config::Html) -> codec::Html {
    let rule = |rule: &config::HtmlRule| Rule {
        selector: rule.selector.clone(),
        action: action(&rule.action),
    };
    let host = |host: &config::HtmlHost| Host { from: host.from.clone(), to: host.to.clone() };
    let srcset = settings.srcset.as_ref().map(|srcset| Srcset {
        parameter: srcset.parameter.clone(),
        widths: srcset.widths.clone(),
        sizes: srcset.sizes.clone(),
    });
    codec::Html {
        rules: settings.rules.iter().map(rule).collect(),
        hosts: settings.hosts.iter().map(host).collect(),
        images: Images { lazy_after: settings.lazy_after, srcset },
        strip: Strip { comments: settings.strip_comments, space: settings.strip_space },
    }
}

fn action(action: &config::HtmlAction) -> Action {
    use config::HtmlAction as Configured;
    match action {
        Configured::Before(text) => Action::Before(text.clone()),
        Configured::After(text) => Action::After(text.clone()),
        Configured::Prepend(text) => Action::Prepend(text.clone()),
        Configured::Append(text) => Action::Append(text.clone()),
        Configured::Replace(text) => Action::Replace(text.clone()),
        Configured::Content(text) => Action::Content(text.clone()),
        Configured::Remove => Action::Remove,
        Configured::Unwrap => Action::Unwrap,
        Configured::Set(name, value) => Action::Set(name.clone(), value.clone()),
        Configured::Unset(name) => Action::Unset(name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, values: &[&'static str]) -> HeaderMap {
        let values = values.iter().map(|value| (name.clone(), HeaderValue::from_static(value)));
        values.collect()
    }

    #[test]
    fn nonces_are_found_in_policies() {
        for (policies, expected) in [
            (&["script-src 'self' 'nonce-aB3+/=='; img-src *"][..], Some("aB3+/==")),
            (&["default-src 'self'", "script-src 'nonce-x'"], Some("x")),
            (&["style-src 'nonce-st'; Script-Src 'nonce-sc'"], Some("sc")),
            (&["default-src 'nonce-d'; script-src 'nonce-s', img-src 'nonce-i'"], Some("s")),
            (&["script-src 'nonce-s'", "script-src-elem 'self' 'nonce-e'"], Some("e")),
            (&["default-src 'nonce-d'; style-src 'nonce-s'"], Some("d")),
            (&["style-src 'nonce-s'"], Some("s")),
            (&["img-src 'nonce-i'; ;"], None),
            (&["script-src 'nonce-a\"><script>'"], None),
            (&["script-src 'nonce-'"], None),
            (&["script-src 'self'"], None),
            (&[], None),
        ] {
            let headers = headers(header::CONTENT_SECURITY_POLICY, policies);
            assert_eq!(nonce(&headers), expected, "{policies:?}");
        }
    }

    #[test]
    fn codings_are_read_in_order() {
        use Coding::{Brotli, Gzip, Zstd};
        for (values, expected) in [
            (&["gzip"][..], Some(vec![Gzip])),
            (&["br, X-GZIP"], Some(vec![Brotli, Gzip])),
            (&["zstd", "br"], Some(vec![Zstd, Brotli])),
            (&["identity"], Some(vec![])),
            (&["gzip, gzip, gzip"], None),
            (&["deflate"], None),
            (&["dcb"], None),
        ] {
            let headers = headers(header::CONTENT_ENCODING, values);
            assert_eq!(codings(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn types_and_charsets_are_read() {
        for (value, expected) in [
            ("text/html", (true, None)),
            ("Text/HTML ; Charset=\"ISO-8859-1\"", (true, Some("ISO-8859-1"))),
            ("text/html; x=y; charset=utf-16le", (true, Some("utf-16le"))),
            ("text/html;charset=", (true, None)),
            ("application/xhtml+xml", (false, None)),
            ("text/htmlx", (false, None)),
        ] {
            assert_eq!((is_html(value.as_bytes()), charset(value.as_bytes())), expected, "{value}");
        }
    }
}
