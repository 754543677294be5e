//! The fast path: a plain GET for a stored document, answered from its bytes to bytes. It runs the
//! stages of [`super::serve`] with the same functions and the same result; what it leaves out are
//! the tables of fields in between. Anything but a fresh hit is handed over to the full path.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use weir_cache::Object;
use weir_http::head::{Head, PlainGet};
use weir_http::path;

use super::choices::{self, Fit};
use super::prepared::{self, HeadOf, Kept, Prepared};
use super::{Seen, adapt, admit, ads, icap, look_up, plugins, route, shown};
use crate::connection::{Connection, Reply};
use crate::guard::Decided;
use crate::live::{Live, Route};
use crate::metrics::CacheResult;
use crate::record::Record;
use crate::shared::coarse_unix_ms;

/// A response to a plain request.
pub(crate) struct Hit {
    pub(crate) record: Record,
    /// Status line and fields, as they are sent.
    pub(crate) head: Vec<u8>,
    /// Whose body follows.
    pub(crate) object: Arc<Object>,
    /// The connection ends with this response.
    pub(crate) last: bool,
    /// Bytes that the socket has taken.
    pub(crate) sent: usize,
}

/// What the fast path makes of a request.
pub(crate) enum Fast {
    /// The answer.
    Hit(Hit),
    /// A hit that plugins make something else of.
    Reply(Reply),
}

/// Answers a request, if it is plain and a hit. Otherwise it takes the full path, on from what was
/// `seen`. `raw` begins with the request.
pub(crate) fn answer(
    connection: &Arc<Connection>,
    head: &Head<'_, '_>,
    raw: &[u8],
    seen: &mut Seen,
) -> Option<Fast> {
    let request = head.plain()?;
    let shared = &connection.worker.shared;
    let live = shared.live.load();
    let started = Instant::now();

    // Route.
    let site = route::site(&live, connection, &request.host.name).ok()?;
    let (raw_path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.target, None),
    };
    let path = path::normalise(raw_path).ok()?;
    let route = site.routes.find(path.as_str())?;
    if is_for_full_path(route, query) {
        return None;
    }

    // What lists of ads block goes no further, and is answered by the full path.
    if ads::is_blocked(connection, route, head, &request, raw_path) {
        return None;
    }

    let plain = Plain {
        connection,
        head,
        request: &request,
        live: &live,
        route,
        path: path.as_str(),
        query,
        started,
        now_ms: coarse_unix_ms(),
    };

    // What no plugin sees is looked up before it is admitted: what rules make of its path is kept
    // with what is stored under it.
    let chain = route.chain.load();
    let found = if chain.is_empty() { plain.find(0, Plain::fit) } else { None };

    // Admit.
    let decided = seen.decided.insert(plain.admit(found.as_ref()));
    if !decided.is_admitted() {
        return None;
    }
    if chain.is_empty() {
        route.variants.touch(0, plain.now_ms);
        return plain.reply(found?, seen);
    }

    // Plugins.
    let show = || shown::request(connection, &raw[..head.len], head.field_count());
    let shown = seen.begun.insert(plugins::begin(connection, route, &chain, started, &show));
    if !shown.passed(&chain) {
        return None;
    }
    let variant = shown.variant();

    // Cache.
    let found = plain.find(variant, Plain::as_it_is)?;
    route.variants.touch(variant, plain.now_ms);
    plain.reply(found, seen)
}

/// Without an origin's name a forward proxy can but refuse; an ICAP service is asked on the full
/// path, and what a query asks of pictures is judged there.
fn is_for_full_path(route: &Route, query: Option<&str>) -> bool {
    route.source.forward_proxy().is_some()
        || icap::of_requests(route).is_some()
        || query.zip(route.image_query()).is_some_and(|(query, images)| images.concerns(query))
}

/// A plain request on its way.
pub(super) struct Plain<'a, 'h, 'r> {
    pub(super) connection: &'a Arc<Connection>,
    pub(super) head: &'a Head<'h, 'r>,
    pub(super) request: &'a PlainGet<'a>,
    pub(super) live: &'a Live,
    pub(super) route: &'a Arc<Route>,
    pub(super) path: &'a str,
    query: Option<&'a str>,
    started: Instant,
    pub(super) now_ms: u64,
}

/// A stored response that answers it.
struct Found {
    object: Arc<Object>,
    kept: Kept,
    fit: Fit,
}

impl Plain<'_, '_, '_> {
    /// Finds what is stored, if `fit` tells what of it is to be sent.
    fn find(
        &self,
        variant: u64,
        fit: impl FnOnce(&Self, &Object, &Kept) -> Option<Fit>,
    ) -> Option<Found> {
        let (host, path, query) = (&self.request.host.name, self.path, self.query);
        let asked = look_up::Asked { host, path, query, variant };
        let mut found = None;
        let is_final = |object: &Object| {
            let kept = object.annex().load();
            found = fit(self, object, &kept).map(|fit| (fit, kept));
            found.is_some()
        };
        let object =
            look_up::plain_hit(self.connection, self.route, &asked, self.now_ms, is_final)?;
        let (fit, kept) = found?;
        Some(Found { object, kept, fit })
    }

    /// What of a stored response no plugin has to see is sent.
    fn fit(&self, object: &Object, kept: &Kept) -> Option<Fit> {
        let are_known =
            self.route.offers.is_some() && choices::are_kept(kept, self.live.generation);
        let as_it_is = if are_known { None } else { self.as_it_is(object, kept) };
        as_it_is.or_else(|| choices::fit(self, object, kept))
    }

    /// Where plugins work on what is sent, that is what is stored, or the full path's business.
    fn as_it_is(&self, object: &Object, kept: &Kept) -> Option<Fit> {
        is_final(self.route, object, kept, self.live.generation).then_some(Fit::AsItIs)
    }

    fn admit(&self, found: Option<&Found>) -> Decided {
        let guard = &self.connection.worker.shared.guard;
        let kept = found.and_then(|found| choices::settled(&found.kept));
        let settled = kept.and_then(|kept| guard.decide_settled(self.connection, kept));
        settled.unwrap_or_else(|| {
            let (route, asked) = (self.route, (self.path, self.query));
            let (connection, head, request) = (self.connection, self.head, self.request);
            admit::decide_plain(connection, head, request, route, asked, self.started)
        })
    }

    fn reply(&self, found: Found, seen: &mut Seen) -> Option<Fast> {
        let Plain { connection, live, route, path, now_ms, .. } = *self;
        let Found { object, kept, fit } = found;
        let last = self.head.closes || connection.worker.shared.is_draining();
        let of = HeadOf { live, route, object: &object, kept: &kept, path, now_ms, last };
        let (head, sent) = match fit {
            Fit::AsItIs => (prepared::write_head(connection, &of)?, None),
            fit => choices::write_head(connection, &of, &object, fit)?,
        };
        let mut record = Record::start(connection, self.started, self.head.is_head);
        record.set_plain_route(route, self.request);
        record.set_decided(seen.decided.take()?);
        route.metrics.count_fast(connection.worker.index);
        if let Some(begun) = seen.begun.take() {
            let show = || shown::response(route, &object, now_ms);
            let (passage, onward) = begun.show_hit(&show);
            if let Some(passage) = &passage {
                record.set_passage(Arc::clone(passage));
            }
            if let Some((onward, passage)) = onward.zip(passage) {
                let reply =
                    plugins::go_on(self.head, record, route, object, now_ms, passage, onward);
                return Some(Fast::Reply(reply));
            }
        }
        record.status = StatusCode::OK.as_u16();
        record.cache = CacheResult::Hit;
        let object = sent.unwrap_or(object);
        Some(Fast::Hit(Hit { record, head, object, last, sent: 0 }))
    }
}

/// Whether a stored response is sent as it is, whoever asks. Where a head is prepared, that has
/// been found out before.
fn is_final(route: &Route, object: &Object, kept: &Kept, generation: u64) -> bool {
    if route.offers.is_none() {
        return true;
    }
    Prepared::of(kept).is_some_and(|kept| kept.is_of(generation)) || !adapt::concerns(route, object)
}
