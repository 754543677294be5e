//! What is worked out at the first hit of a stored response and kept with it: what rules make of
//! its path, and the part of a head that is the same for every hit, as it is sent.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_cache::{Annex, Object};
use weir_guard::Settled;

use super::reply::{self, HitFields};
use crate::connection::Connection;
use crate::live::{Live, Route};
use crate::outgoing::{HEAD_BYTES, write_date, write_field};

/// What was kept with an object when it was found.
pub(super) type Kept = arc_swap::Guard<Option<Arc<Annex>>>;

/// See above.
pub(super) struct Prepared {
    /// What rules made of the path.
    pub(super) settled: Settled,
    lines: Lines,
}

/// The part of a head that is the same for every hit.
pub(super) struct Lines {
    /// The configuration whose header edits went into it.
    generation: u64,
    text: Box<[u8]>,
    /// Content-Length, which comes after what differs from hit to hit.
    length: Box<[u8]>,
    /// It has the Date of the origin.
    dated: bool,
}

/// A hit, as far as its head goes.
pub(super) struct HeadOf<'a> {
    pub(super) live: &'a Live,
    pub(super) route: &'a Route,
    /// What was found: it tells status, age and most fields.
    pub(super) object: &'a Object,
    pub(super) kept: &'a Kept,
    /// Which was asked for.
    pub(super) path: &'a str,
    pub(super) now_ms: u64,
    /// The connection ends with it.
    pub(super) last: bool,
}

impl Prepared {
    /// What was kept, if that is one of these.
    #[inline]
    pub(super) fn of(kept: &Kept) -> Option<&Prepared> {
        kept.as_ref()?.downcast_ref()
    }

    /// Whether it was made under a configuration.
    #[inline]
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.lines.is_of(generation)
    }

    fn new(settled: Settled, hit: &HeadOf<'_>) -> Option<Prepared> {
        let mut headers = HeaderMap::new();
        reply::copy(hit.object.headers(), &mut headers);
        let lines = Lines::new(hit, headers, hit.object.body().len())?;
        Some(Prepared { settled, lines })
    }
}

impl Lines {
    /// The lines of a response with these `headers`, before what differs from hit to hit is set
    /// and edits are made, and so many bytes of content. `None` if the fields say how the message
    /// is framed, which is hyper's business.
    pub(super) fn new(hit: &HeadOf<'_>, mut headers: HeaderMap, len: u64) -> Option<Lines> {
        let route = hit.route;
        let own = HitFields::of(route, hit.object, hit.now_ms);
        // What differs from hit to hit is left out, if it may be written later.
        let leaves_out = !own.is_constant() && !HitFields::are_edited(route);
        let left_out = |name: &HeaderName| leaves_out && HitFields::replace(name);
        if !leaves_out {
            own.set(&mut headers);
        }
        reply::edit(&mut headers, &route.response_edits);
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
        write_field(&mut length, &header::CONTENT_LENGTH, &HeaderValue::from(len));
        let dated = headers.contains_key(header::DATE);
        let (text, length) = (text.into_boxed_slice(), length.into_boxed_slice());
        Some(Lines { generation: hit.live.generation, text, length, dated })
    }

    /// As of [`Prepared`].
    #[inline]
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// The head, with what differs from hit to hit unless that is in it.
    pub(super) fn write(&self, hit: &HeadOf<'_>, own: Option<&HitFields>) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&self.text);
        if let Some(own) = own.filter(|own| !own.is_constant()) {
            own.each(|name, value| write_field(&mut head, name, value));
        }
        if hit.last {
            head.extend_from_slice(b"connection: close\r\n");
        }
        head.extend_from_slice(&self.length);
        if !self.dated {
            write_date(&mut head, hit.now_ms);
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Whether what differs from hit to hit may be written after what was prepared: edits may change
/// it.
pub(super) fn keeps(route: &Route, own: &HitFields) -> bool {
    own.is_constant() || !HitFields::are_edited(route)
}

/// A head as hyper writes it.
pub(super) fn write_head(connection: &Connection, hit: &HeadOf<'_>) -> Option<Vec<u8>> {
    let own = HitFields::of(hit.route, hit.object, hit.now_ms);
    let keeps = keeps(hit.route, &own);
    let guard = &connection.worker.shared.guard;
    let is_current = |kept: &&Prepared| {
        keeps && kept.is_of(hit.live.generation) && guard.is_current(&kept.settled)
    };
    let fresh;
    let prepared = match Prepared::of(hit.kept).filter(is_current) {
        Some(kept) => kept,
        None => {
            let prepared = Prepared::new(guard.settle(hit.path), hit)?;
            fresh = Arc::new(Box::new(prepared) as Annex);
            if keeps {
                hit.object.annex().store(Some(Arc::clone(&fresh)));
            }
            fresh.downcast_ref::<Prepared>()?
        }
    };
    Some(prepared.lines.write(hit, keeps.then_some(&own)))
}
