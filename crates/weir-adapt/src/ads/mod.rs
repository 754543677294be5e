//! Ads and trackers: what lists in the usual syntax say of a request, and of a page. Reads files,
//! and knows no requests, no cache and no clock.

mod explain;
mod lists;
mod neutral;
mod question;
mod spared;
#[cfg(test)]
mod synthetic;
mod verdicts;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use adblock::blocker::BlockerResult;
use adblock::lists::{FilterSet, ParseOptions};
use adblock::request::Request;
use adblock::{Engine, lists::FilterFormat};
use arc_swap::ArcSwap;
use bytes::Bytes;

use self::lists::Gathered;
use self::spared::Spared;
use self::verdicts::Verdicts;
use crate::adapters::html::{Hidden, Hide, Shared, sheet};

pub use explain::Explained;
pub use lists::{LIST_BYTES_MAX, ListError, ListReport, RULES_MAX};
pub use neutral::{NEUTRAL, Neutral};
pub use question::Kind;

/// Bytes of a URL that is asked about: a longer one passes.
const URL_BYTES_MAX: usize = 8192;

/// Bytes of the style sheet of a page. Rules beyond it are left out.
const STYLE_BYTES_MAX: usize = 48 << 10;

/// Selectors of a page's host whose elements are taken out, rather than hidden: each is looked for
/// at every element.
const REMOVED_MAX: usize = 20;

/// Hosts whose pages' rules are kept.
const HOSTS_MAX: usize = 1024;

/// Lists, ready to be asked.
pub struct Ads {
    engine: Engine,
    verdicts: Verdicts,
    /// Lines of a [`Hidden`].
    table: Bytes,
    /// Of the table, for what depends on it.
    id: u64,
    /// Of all that the lists say.
    digest: u64,
    /// What is hidden on any page, by selectors that begin with neither class nor id.
    generic: HashSet<String>,
    /// What is not hidden on any page, whatever a rule says.
    unhidden: BTreeSet<String>,
    spared: Spared,
    /// What is hidden where no rule is about the host.
    plain: Page,
    pages: ArcSwap<HashMap<String, Page>>,
    reports: Vec<ListReport>,
}

/// What is hidden on pages of a host.
#[derive(Clone, Debug)]
pub struct Page {
    /// Tells it from what other hosts, or other lists, hide.
    pub id: u64,
    /// What is done to its pages.
    pub hide: Shared<Hide>,
}

/// What is asked about a request.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Question<'a> {
    /// By https.
    pub is_secure: bool,
    /// Who is asked.
    pub host: &'a str,
    /// For what: path and query.
    pub target: &'a str,
    /// What it is for.
    pub kind: Kind,
    /// The host of the page that asks; nothing if that is not known.
    pub page: &'a str,
}

/// What lists say of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Pass,
    /// Nobody is asked.
    Block,
    /// Nobody is asked, and this is sent instead.
    Redirect(&'static Neutral),
}

/// What is done with the text of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// It is forgotten, and rules that are alike become one.
    Used,
    /// It is kept, to be told.
    Kept,
}

/// A host that no rule is about.
const NOWHERE: &str = "weir.invalid";

const PASS: u8 = 1;
const BLOCK: u8 = 2;
/// The first of the neutral bodies.
const REDIRECT: u8 = 3;

impl Page {
    fn new(lists: u64, hide: Hide) -> Page {
        let mut hasher = DefaultHasher::new();
        (lists, &hide).hash(&mut hasher);
        Page { id: hasher.finish(), hide: hide.into() }
    }
}

impl Verdict {
    fn of_code(code: u8) -> Verdict {
        match code {
            BLOCK => Verdict::Block,
            PASS => Verdict::Pass,
            at => match NEUTRAL.get(usize::from(at.wrapping_sub(REDIRECT))) {
                Some(neutral) => Verdict::Redirect(neutral),
                None => Verdict::Pass,
            },
        }
    }

    /// What is sent to a request of a kind: a body of its type, or `None` for no content. Not asked
    /// of [`Verdict::Pass`].
    pub fn answer(self, kind: Kind) -> Option<&'static Neutral> {
        match self {
            Verdict::Redirect(neutral) => Some(neutral),
            Verdict::Pass | Verdict::Block => kind.empty().and_then(neutral::by_name),
        }
    }
}

impl Ads {
    /// Reads lists, and makes them ready: for 76,000 rules that takes a tenth of a second, twice
    /// that with what is counted on the way.
    ///
    /// # Errors
    /// [`ListError`]; what a list has that is not understood is none, and is counted.
    pub fn load(paths: &[PathBuf]) -> Result<Ads, ListError> {
        Ok(Ads::new(Gathered::read(paths)?, Rules::Used))
    }

    fn new(gathered: Gathered, rules: Rules) -> Ads {
        let Gathered { texts, reports, mut hidden, unhidden, spared, .. } = gathered;
        hidden.retain(|line| {
            let selector = line.split_once('\t').map_or(&**line, |(_, selector)| selector);
            !unhidden.contains(selector)
        });
        let mut hasher = DefaultHasher::new();
        texts.hash(&mut hasher);
        let digest = hasher.finish();
        let mut set = FilterSet::new(rules == Rules::Kept);
        let options = ParseOptions { format: FilterFormat::Standard, ..ParseOptions::default() };
        for text in texts {
            set.add_filter_list(text, options);
        }
        let mut engine = match rules {
            Rules::Used => Engine::new_with_filter_set(set),
            Rules::Kept => Engine::new_with_filter_set_no_optimize(set),
        };
        engine.use_resources(neutral::resources());
        let generic = engine.url_cosmetic_resources(&format!("https://{NOWHERE}/")).hide_selectors;
        let table = Bytes::copy_from_slice(Hidden::of(hidden).as_bytes());
        let mut hasher = DefaultHasher::new();
        table.hash(&mut hasher);
        let id = hasher.finish();
        let mut ads = Ads {
            engine,
            verdicts: Verdicts::new(),
            id,
            digest,
            table,
            generic,
            plain: Page::new(id, Hide::default()),
            pages: ArcSwap::default(),
            reports,
            unhidden,
            spared,
        };
        ads.plain = Page::new(id, ads.hide(NOWHERE));
        ads
    }

    /// What tells these lists from others, and from themselves before they changed.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// What was found in the lists.
    pub fn reports(&self) -> &[ListReport] {
        &self.reports
    }

    /// What is hidden by class and id on any page: the table of jobs about pages.
    pub fn table(&self) -> Bytes {
        self.table.clone()
    }

    /// Puts the table where helpers read it, by `place`. If that fails there is none.
    pub fn place_table(&mut self, place: impl FnOnce(&[u8]) -> Option<Bytes>) -> bool {
        if self.table.is_empty() {
            return true;
        }
        let placed = place(&self.table);
        let is_placed = placed.is_some();
        self.table = placed.unwrap_or_default();
        is_placed
    }

    /// What the lists say of a request.
    pub fn verdict(&self, question: &Question<'_>) -> Verdict {
        if question.host.len() + question.target.len() > URL_BYTES_MAX {
            return Verdict::Pass;
        }
        let key = self.verdicts.key(question);
        let code = self.verdicts.find(key).unwrap_or_else(|| {
            let code = self.ask(question);
            self.verdicts.keep(key, code);
            code
        });
        Verdict::of_code(code)
    }

    fn ask(&self, question: &Question<'_>) -> u8 {
        match self.is_spared(question) {
            true => PASS,
            false => self.found(question).map_or(PASS, |result| code(&result)),
        }
    }

    /// Whether the page that asks, or is asked for, is let alone.
    fn is_spared(&self, question: &Question<'_>) -> bool {
        let is_page = question.kind == Kind::Document;
        self.spared.of(if is_page { question.host } else { question.page }).all
    }

    /// What the engine says; nothing of what is no URL.
    fn found(&self, question: &Question<'_>) -> Option<BlockerResult> {
        let Question { is_secure, host, target, kind, page } = *question;
        let scheme = if is_secure { "https" } else { "http" };
        let url = format!("{scheme}://{host}{target}");
        let page = if page.is_empty() { String::new() } else { format!("https://{page}/") };
        let request = Request::new(&url, &page, kind.as_str(), "get").ok()?;
        Some(self.engine.check_network_request(&request))
    }

    /// What is hidden on pages of hosts that no rule is about.
    pub fn any_page(&self) -> Page {
        self.plain.clone()
    }

    /// What is hidden on pages of a host. Its table is that of [`Ads::table`].
    pub fn page(&self, host: &str) -> Page {
        if let Some(known) = self.pages.load().get(host) {
            return known.clone();
        }
        let spares = self.spared.of(host);
        let hide = match (spares.hiding, spares.own) {
            (true, _) => Hide::default(),
            (false, true) => Hide::clone(&self.plain.hide),
            (false, false) => self.hide(host),
        };
        // Most hosts have no rules of their own.
        let page =
            if hide == *self.plain.hide { self.plain.clone() } else { Page::new(self.id, hide) };
        self.pages.rcu(|known| {
            // When it is full it begins anew.
            let kept = Some(&**known).filter(|known| known.len() < HOSTS_MAX);
            let mut pages = kept.cloned().unwrap_or_default();
            pages.insert(host.to_owned(), page.clone());
            pages
        });
        page
    }

    fn hide(&self, host: &str) -> Hide {
        let found = self.engine.url_cosmetic_resources(&format!("https://{host}/"));
        let is_own = |selector: &&String| {
            !self.generic.contains(*selector) && !self.unhidden.contains(*selector)
        };
        let can_be_followed = |selector: &&String| selector.parse::<lol_html::Selector>().is_ok();
        let own: BTreeSet<&String> = found.hide_selectors.iter().filter(is_own).collect();
        let remove: BTreeSet<String> =
            own.iter().copied().filter(can_be_followed).take(REMOVED_MAX).cloned().collect();
        let left: BTreeSet<&str> = found
            .hide_selectors
            .iter()
            .map(String::as_str)
            .filter(|selector| !remove.contains(*selector) && !self.unhidden.contains(*selector))
            .collect();
        let mut style = String::new();
        let own_first = left.iter().filter(|one| !self.generic.contains(**one));
        let others = left.iter().filter(|one| self.generic.contains(**one));
        for selector in own_first.chain(others) {
            let rule = sheet([*selector]);
            if style.len() + rule.len() > STYLE_BYTES_MAX {
                break;
            }
            style.push_str(&rule);
        }
        let has_table = !found.generichide && !self.table.is_empty();
        Hide {
            style,
            remove: remove.into_iter().collect(),
            table: has_table.then_some(0),
            exceptions: found.exceptions.into_iter().collect(),
        }
    }
}

fn code(result: &BlockerResult) -> u8 {
    if !result.should_block() {
        return PASS;
    }
    let redirect = result.redirect.as_deref().and_then(neutral::of_url);
    redirect.and_then(|at| u8::try_from(at).ok()).map_or(BLOCK, |at| REDIRECT + at)
}

impl std::fmt::Debug for Ads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ads").field("reports", &self.reports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
