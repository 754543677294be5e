//! The fast path: a plain GET for a stored document, answered from its bytes to bytes. It runs the
//! stages of [`super::serve`] with the same functions and the same result; what it leaves out are
//! the tables of fields in between. Anything but a fresh hit is handed over to the full path.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_cache::{Annex, Object};
use weir_http::head::Head;
use weir_http::path;

use super::reply::{self, HitFields};
use super::{Seen, adapt, admit, look_up, plugins, route, shown};
use crate::connection::{Connection, Reply};
use crate::live::{Live, Route};
use crate::metrics::CacheResult;
use crate::outgoing::{HEAD_BYTES, write_date, write_field};
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

    // Admit.
    let asked = (path.as_str(), query);
    let decided = admit::decide_plain(connection, head, &request, route, asked, started);
    let decided = seen.decided.insert(decided);
    if !decided.is_admitted() {
        return None;
    }

    // Plugins.
    let chain = route.chain.load();
    let mut variant = 0;
    if !chain.is_empty() {
        let show = || shown::request(connection, &raw[..head.len], head.field_count());
        let shown = seen.begun.insert(plugins::begin(connection, route, &chain, started, &show));
        if !shown.passed(&chain) {
            return None;
        }
        variant = shown.variant();
    }

    // Cache.
    let now_ms = coarse_unix_ms();
    let asked = look_up::Asked { host: &request.host.name, path: path.as_str(), query, variant };
    let is_final = |object: &Object| is_final(route, object, live.generation);
    let object = look_up::plain_hit(connection, route, &asked, now_ms, is_final)?;
    route.variants.touch(variant, now_ms);

    // Reply.
    let last = head.closes || shared.is_draining();
    let response_head = write_head(&live, route, &object, now_ms, last)?;
    let mut record = Record::start(connection, started, head.is_head);
    record.set_plain_route(route, &request);
    record.set_decided(seen.decided.take()?);
    route.metrics.count_fast(connection.worker.index);
    if let Some(begun) = seen.begun.take() {
        let show = || shown::response(route, &object, now_ms);
        let (passage, onward) = begun.show_hit(&show);
        if let Some(passage) = &passage {
            record.set_passage(Arc::clone(passage));
        }
        if let Some((onward, passage)) = onward.zip(passage) {
            let reply = plugins::go_on(head, record, route, object, now_ms, passage, onward);
            return Some(Fast::Reply(reply));
        }
    }
    record.status = StatusCode::OK.as_u16();
    record.cache = CacheResult::Hit;
    Some(Fast::Hit(Hit { record, head: response_head, object, last, sent: 0 }))
}

/// Whether a stored response is sent as it is, whoever asks. Where a head is prepared, that has
/// been found out before.
fn is_final(route: &Route, object: &Object, generation: u64) -> bool {
    if route.offers.is_none() {
        return true;
    }
    let annex = object.annex().load();
    let kept = annex.as_ref().and_then(|annex| annex.downcast_ref::<Prepared>());
    kept.is_some_and(|kept| kept.generation == generation) || !adapt::concerns(route, object)
}

/// The part of a response's head that is the same for every hit of an object, as it is sent.
/// Prepared at the first hit and kept with the object.
struct Prepared {
    /// The configuration whose header edits went into it.
    generation: u64,
    text: Box<[u8]>,
    /// Content-Length, which comes after what differs from hit to hit.
    length: Box<[u8]>,
    /// It has the Date of the origin.
    dated: bool,
}

impl Prepared {
    /// `None` if the fields say how the message is framed, which is hyper's business.
    fn new(live: &Live, route: &Route, object: &Object, now_ms: u64) -> Option<Prepared> {
        let own = HitFields::of(route, object, now_ms);
        // What differs from hit to hit is left out, if it may be written later.
        let leaves_out = !own.is_constant() && route.response_edits.is_empty();
        let left_out = |name: &HeaderName| leaves_out && HitFields::replace(name);
        let mut headers = HeaderMap::new();
        reply::copy(object.headers(), &mut headers);
        if !leaves_out {
            own.set(&mut headers);
            reply::edit(&mut headers, &route.response_edits);
        }
        let framing = [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
        if framing.iter().any(|name| headers.contains_key(name)) {
            return None;
        }
        let mut text = Vec::with_capacity(HEAD_BYTES);
        text.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        for (name, value) in headers.iter().filter(|(name, _)| !left_out(name)) {
            write_field(&mut text, name, value);
        }
        let mut length = Vec::new();
        write_field(&mut length, &header::CONTENT_LENGTH, &HeaderValue::from(object.body().len()));
        let dated = headers.contains_key(header::DATE);
        let (text, length) = (text.into_boxed_slice(), length.into_boxed_slice());
        Some(Prepared { generation: live.generation, text, length, dated })
    }
}

/// A head as hyper writes it.
fn write_head(
    live: &Live,
    route: &Route,
    object: &Object,
    now_ms: u64,
    last: bool,
) -> Option<Vec<u8>> {
    let own = HitFields::of(route, object, now_ms);
    // Edits may read and change what differs from hit to hit.
    let keeps = own.is_constant() || route.response_edits.is_empty();
    let annex = object.annex().load();
    let kept = annex.as_ref().and_then(|annex| annex.downcast_ref::<Prepared>());
    let fresh;
    let prepared = match kept.filter(|kept| keeps && kept.generation == live.generation) {
        Some(kept) => kept,
        None => {
            fresh = Arc::new(Box::new(Prepared::new(live, route, object, now_ms)?) as Annex);
            if keeps {
                object.annex().store(Some(Arc::clone(&fresh)));
            }
            fresh.downcast_ref::<Prepared>()?
        }
    };
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(&prepared.text);
    if keeps && !own.is_constant() {
        own.each(|name, value| write_field(&mut head, name, value));
    }
    if last {
        head.extend_from_slice(b"connection: close\r\n");
    }
    head.extend_from_slice(&prepared.length);
    if !prepared.dated {
        write_date(&mut head, now_ms);
    }
    head.extend_from_slice(b"\r\n");
    Some(head)
}
