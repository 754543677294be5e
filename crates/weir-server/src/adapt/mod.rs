//! Adaptation as the server runs it: the pool of helpers, and what has turned out not to be worth
//! it. What a route offers is in [`offers`]; what a request gets, in `pipeline/adapt.rs`.

mod adapter;
mod ads;
mod ads_trial;
mod compress;
pub(crate) mod declared;
mod declined;
mod effort;
mod group;
mod html;
mod image;
mod kept;
mod offers;
mod streamed;
mod work;

use std::ffi::OsString;
use std::sync::{Arc, OnceLock};

use weir_adapt::stream::{Chain, Coder, Coders, StreamStats};
use weir_adapt::{Job, Limits, Made, Outcome, Pool, PoolSettings, Recipe, Stats};
use weir_arena::Arena;
use weir_cache::{Cache, KeyRef, Object};
use weir_config as config;

use self::declined::Declined;
use self::effort::Effort;
use self::group::Group;
use crate::error::StartError;
use crate::live::SiteInfo;
pub(crate) use adapter::{Accepts, Asked, Shape};
pub(crate) use ads::{AdsLists, Blocked, Blocking, Counts, Wish, field};
pub use ads_trial::{AdsAnswer, AdsRequest, judge as judge_ads};
pub use compress::step as compress_step;
pub(crate) use effort::is_draft;
pub(crate) use group::GroupStatus;
pub use html::rewriting as html_rewriting;
pub use image::step as image_step;
pub(crate) use image::{ImageQuery, Misasked, Pictures, Queried};
pub(crate) use kept::Gathered;
pub(crate) use offers::{Offers, Plan, Variant, tag_of};
pub(crate) use streamed::Streamed;

/// Reads the files of a configuration's adaptations, for nothing but their errors.
///
/// # Errors
/// The first that cannot be used.
pub(crate) fn check(config: &config::Config) -> Result<(), StartError> {
    ads::check(config)?;
    if let Some(path) = &config.adapt.cgroup {
        weir_adapt::cgroup::check(path)?;
    }
    let mut routes = config.sites.iter().flat_map(|site| &site.routes);
    routes.try_for_each(|route| ImageQuery::new(&route.adapt).map(drop))
}

/// The program itself, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";

/// What all workers share of adaptation.
pub(crate) struct Adaptation {
    settings: PoolSettings,
    arena: Arena,
    /// What helpers are put in.
    group: Option<Group>,
    /// Started when there is something to do, if that can be.
    pool: OnceLock<Option<Pool>>,
    /// What works on what is not stored.
    coders: Coders,
    limits: Limits,
    declined: Arc<Declined>,
    /// Of ads and pages.
    counts: Arc<Counts>,
    pictures: Arc<Pictures>,
}

/// A variant that is to be made.
pub(crate) struct Wanted<'a> {
    pub(crate) original: &'a Arc<Object>,
    pub(crate) variant: &'a Variant,
    /// Where the variant is stored.
    pub(crate) key: KeyRef<'a>,
    /// Whose it is.
    pub(crate) site: &'a Arc<SiteInfo>,
}

/// How it is to be made.
struct Order {
    recipe: Recipe,
    effort: Effort,
    /// The draft whose place it is to take; it must have fewer bytes.
    instead_of: Option<Arc<Object>>,
    /// Whether the request waits for it.
    is_awaited: bool,
}

impl Wanted<'_> {
    /// What all who want the same have in common.
    fn job_key(&self) -> u128 {
        u128::from(self.original.body().id()) << 64 | u128::from(self.variant.fingerprint)
    }

    /// The same of those who have its draft, and want what that stands for.
    fn whole_key(&self) -> u128 {
        !self.job_key()
    }

    fn recipe(&self) -> Recipe {
        self.variant.recipe(self.original.headers())
    }

    fn bytes(&self) -> u64 {
        self.original.body().len()
    }
}

impl Adaptation {
    pub(crate) fn new(
        settings: &config::Adapt,
        arena: &Arena,
        counts: &Arc<Counts>,
        pictures: &Arc<Pictures>,
    ) -> Adaptation {
        let helpers = settings.helpers.unwrap_or_else(cores);
        let group = Group::open(settings, helpers, arena.limit());
        Adaptation {
            settings: PoolSettings {
                helpers,
                queue: settings.queue,
                program: PROGRAM.into(),
                arguments: helper_arguments(settings),
                cgroup: group.as_ref().and_then(Group::cgroup),
            },
            group,
            arena: arena.clone(),
            pool: OnceLock::new(),
            coders: Coders::new(cores(), settings.streams),
            limits: Limits { output_bytes: settings.output, time: settings.time },
            declined: Arc::default(),
            counts: Arc::clone(counts),
            pictures: Arc::clone(pictures),
        }
    }

    fn pool(&self) -> Option<&Pool> {
        let start = || {
            let pool = Pool::start(self.settings.clone(), self.arena.clone());
            pool.inspect_err(|cause| tracing::error!(%cause, "nothing can be adapted")).ok()
        };
        self.pool.get_or_init(start).as_ref()
    }

    /// Has a variant made and stored, or its draft if there is one, unless that is under way.
    /// Returns why it is not there, a word for the response.
    pub(crate) fn want(&self, cache: &Cache, wanted: Wanted<'_>) -> &'static str {
        let key = wanted.job_key();
        if let Some(why) = self.declined.why(key).or_else(|| self.is_pending(key)) {
            return why;
        }
        let whole = wanted.recipe();
        let draft = whole.draft(wanted.bytes());
        let effort = if draft.is_some() { Effort::Draft } else { Effort::Whole };
        let recipe = draft.unwrap_or(whole);
        let is_awaited = !wanted.variant.wait.is_zero();
        self.order(cache, key, wanted, Order { recipe, effort, instead_of: None, is_awaited })
    }

    /// Has a variant made that a draft stands for, and stored in its place if it is smaller; else
    /// the draft is the variant.
    pub(crate) fn complete(&self, cache: &Cache, wanted: Wanted<'_>, draft: &Arc<Object>) {
        let key = wanted.whole_key();
        if self.is_pending(key).is_none() {
            let recipe = wanted.recipe();
            let (effort, instead_of) = (Effort::Whole, Some(Arc::clone(draft)));
            let order = Order { recipe, effort, instead_of, is_awaited: false };
            self.order(cache, key, wanted, order);
        }
    }

    fn is_pending(&self, key: u128) -> Option<&'static str> {
        let pool = self.pool.get()?.as_ref()?;
        pool.is_pending(key).then_some("pending")
    }

    fn order(
        &self,
        cache: &Cache,
        key: u128,
        wanted: Wanted<'_>,
        Order { recipe, effort, instead_of, is_awaited }: Order,
    ) -> &'static str {
        if self.settings.helpers == 0 {
            return "off";
        }
        let Some(pool) = self.pool() else { return "failed" };
        let Wanted { original, variant, key: stored_as, site } = wanted;
        let stored_as = stored_as.to_key();
        let job = Job {
            key,
            input: original.body().chunks().to_vec(),
            tables: variant.tables(),
            recipe,
            limits: self.limits,
        };
        let (original, variant) = (Arc::clone(original), variant.clone());
        let site = Arc::clone(site);
        let (cache, declined) = (cache.clone(), Arc::clone(&self.declined));
        let counts = Arc::clone(&self.counts);
        let (pictures, recipe) = (Arc::clone(&self.pictures), job.recipe.clone());
        let store = move |outcome: &Outcome| {
            pictures.note(&recipe, original.body().len(), outcome);
            if let Outcome::Failed(cause) | Outcome::Died(cause) = outcome {
                let path = stored_as.borrow().path_and_query;
                tracing::warn!(
                    site = site.name,
                    path,
                    variant = variant.name(),
                    cause,
                    "not adapted"
                );
            }
            let store = |made: &Made| {
                let result = (made.body.clone().into(), &*made.detail);
                variant.store(&cache, &stored_as, &original, result, effort);
            };
            let is_smaller =
                |made: &Made, draft: &Object| (made.body.len() as u64) < draft.body().len();
            match (outcome, instead_of) {
                (Outcome::Made(made), None) => {
                    counts.note(&made.detail, effort);
                    store(made);
                }
                (Outcome::Made(made), Some(draft)) if is_smaller(made, &draft) => {
                    store(made);
                }
                (_, Some(draft)) => effort::settle(&cache, &stored_as, &original, &draft),
                (Outcome::Original(why), None) => declined.add(key, why),
                (Outcome::Failed(_), None) => declined.add(key, "failed"),
                // That is for the pool to refuse, and not for ever: it may have been somebody
                // else's fault.
                (Outcome::Died(_), None) => {}
            }
        };
        let ordered = match is_awaited {
            true => pool.adapt_soon(job, store),
            false => pool.adapt_later(job, store),
        };
        match ordered {
            Ok(()) => "pending",
            Err(refused) => refused.as_str(),
        }
    }

    /// Waits until a variant that is being made is there, or it is known that it will not be.
    pub(crate) async fn join(&self, wanted: &Wanted<'_>) {
        if let Some(pool) = self.pool.get().and_then(Option::as_ref) {
            pool.join(wanted.job_key()).await;
        }
    }

    /// Whether responses may be adapted while they come.
    pub(crate) fn streams_are_on(&self) -> bool {
        self.coders.are_on()
    }

    /// A place for a response that is to be adapted while it comes, if there is one.
    pub(crate) fn stream(&self, chain: Chain) -> Option<Coder> {
        self.coders.begin(chain)
    }

    /// Takes note of what has become of a page while it came.
    pub(crate) fn note_page(&self, detail: &str) {
        self.counts.note(detail, Effort::Whole);
    }

    /// Of what is adapted while it comes.
    pub(crate) fn streams(&self) -> StreamStats {
        self.coders.stats()
    }

    /// What has become of the group that helpers are put in, if there is one.
    pub(crate) fn group(&self) -> Option<GroupStatus> {
        self.group.as_ref().map(Group::status)
    }

    /// What has become of jobs.
    pub(crate) fn stats(&self) -> Stats {
        self.pool.get().and_then(Option::as_ref).map(Pool::stats).unwrap_or_default()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What a helper is started with.
pub fn helper_arguments(settings: &config::Adapt) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["helper".into()];
    if settings.priority == config::AdaptPriority::Idle {
        arguments.push("--idle".into());
    }
    let numbers = [("--memory", settings.memory), ("--output", settings.output)];
    for (name, value) in numbers {
        arguments.extend([name.into(), value.to_string().into()]);
    }
    arguments
}
