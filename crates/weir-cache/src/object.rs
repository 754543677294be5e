//! A stored response, immutable but for its use counters and the moment it becomes stale (which a
//! soft purge moves to now).

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::body::Body;
use crate::eviction::Usage;
use crate::key::Key;
use crate::limits::{FIELD_OVERHEAD_BYTES, OBJECT_OVERHEAD_BYTES};
use crate::policy::{Freshness, RequestDirectives, Reuse};
use crate::selectors::Selectors;

/// Says whether what an object was made from is still as it was, e.g. a file by its status. The
/// cache stores it; whoever serves the object asks it.
pub trait SourceStamp {
    /// Whether the source is unchanged.
    fn is_current(&self) -> bool;
}

/// A stamp as objects hold it.
pub type Stamp = Arc<dyn SourceStamp + Send + Sync>;

/// All of a response but its content, ready to be stored: what [`crate::policy::admit`] makes.
///
/// `repr(C)` here and in [`Object`] keeps what a lookup reads together, next to the reference
/// count: on a large index a hit costs what its cache misses cost.
#[derive(Clone)]
#[repr(C)]
pub struct Head {
    /// Which requests select it.
    pub selectors: Selectors,
    /// When the response may be used.
    pub freshness: Freshness,
    /// Status code.
    pub status: StatusCode,
    /// The fields that may be stored (RFC 9111 §3.1). Age is not among them: it is computed.
    pub headers: HeaderMap,
    /// The source's own word on whether the response is current.
    pub stamp: Option<Stamp>,
    /// What losing the response costs, see [`Usage::new`]; usually 1.
    pub cost: u32,
    /// What it was made from, if from another stored response: the [`Body::id`] of that.
    pub derived_from: Option<NonZeroU64>,
}

impl Head {
    /// A head that every request selects, for sources that know their own freshness.
    pub fn new(status: StatusCode, headers: HeaderMap, freshness: Freshness) -> Head {
        let selectors = Selectors::default();
        Head { status, headers, freshness, selectors, stamp: None, cost: 1, derived_from: None }
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("freshness", &self.freshness)
            .field("selectors", &self.selectors)
            .finish_non_exhaustive()
    }
}

/// A stored response.
#[derive(Debug)]
#[repr(C)]
pub struct Object {
    fresh_until_ms: AtomicU64,
    pub(crate) usage: Usage,
    head: Head,
    pub(crate) hash: u64,
    pub(crate) key: Key,
    body: Body,
    trailers: Option<HeaderMap>,
    annex: ArcSwapOption<Annex>,
}

/// Whatever a server derives from an object to spare itself the work at the next hit.
pub type Annex = Box<dyn Any + Send + Sync>;

impl Object {
    pub(crate) fn new(
        key: Key,
        hash: u64,
        mut head: Head,
        body: Body,
        mut trailers: Option<HeaderMap>,
    ) -> Object {
        compact(&mut head.headers);
        if let Some(trailers) = &mut trailers {
            compact(trailers);
        }
        let size = OBJECT_OVERHEAD_BYTES
            + key.text_bytes() as u64
            + fields_charge(&head.headers)
            + trailers.as_ref().map_or(0, fields_charge)
            + head.selectors.charge()
            + body.charge();
        Object {
            fresh_until_ms: AtomicU64::new(head.freshness.fresh_until_ms),
            usage: Usage::new(size, head.cost),
            hash,
            key,
            head,
            body,
            trailers,
            annex: ArcSwapOption::empty(),
        }
    }

    /// The key under which the object is stored.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Status code.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Stored fields; without Age, see [`Object::age_secs`].
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Trailer fields, if any.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Which requests select the object.
    pub fn selectors(&self) -> &Selectors {
        &self.head.selectors
    }

    /// The source's stamp, if it gave one.
    pub fn stamp(&self) -> Option<&Stamp> {
        self.head.stamp.as_ref()
    }

    /// What it was made from: the [`Body::id`] of another stored response.
    pub fn derived_from(&self) -> Option<NonZeroU64> {
        self.head.derived_from
    }

    /// Room for what a server derives from the object. The cache does not look into it; every
    /// object is charged for something of a head's size.
    pub fn annex(&self) -> &ArcSwapOption<Annex> {
        &self.annex
    }

    /// When the object may be used, soft purges taken into account.
    pub fn freshness(&self) -> Freshness {
        let fresh_until_ms = self.fresh_until_ms.load(Relaxed);
        Freshness { fresh_until_ms, ..self.head.freshness }
    }

    /// The value of the Age field, in seconds (RFC 9111 §4.2.3).
    pub fn age_secs(&self, now_ms: u64) -> u64 {
        self.head.freshness.age_ms(now_ms) / 1000
    }

    /// Bytes the object is charged against the cache's memory.
    pub fn size(&self) -> u64 {
        self.usage.size()
    }

    /// Uses so far, the one that stored it included; approximate.
    pub fn uses(&self) -> u32 {
        self.usage.frequency()
    }

    /// The head to start from when the object is validated.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Whether the object may answer a request with these directives now.
    #[inline]
    pub(crate) fn reuse(&self, now_ms: u64, directives: &RequestDirectives) -> Reuse {
        let plain =
            !directives.no_cache && directives.max_age.is_none() && directives.min_fresh.is_none();
        // `fresh_until_ms` is 0 for what must always be validated.
        if plain && now_ms < self.fresh_until_ms.load(Relaxed) {
            return Reuse::Fresh;
        }
        self.freshness().reuse(now_ms, directives)
    }

    /// Makes the object stale as of now, if it is not already.
    pub(crate) fn expire(&self, now_ms: u64) {
        self.fresh_until_ms.fetch_min(now_ms, Relaxed);
    }
}

/// Copies the values into one piece of memory of their own: as they come from a connection, they
/// are slices of its read buffer, and one of them would keep all of that alive.
fn compact(fields: &mut HeaderMap) {
    let mut text = BytesMut::with_capacity(fields.values().map(HeaderValue::len).sum());
    for value in fields.values_mut() {
        text.extend_from_slice(value.as_bytes());
        // What was a value is one.
        if let Ok(mut copy) = HeaderValue::from_maybe_shared(text.split().freeze()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
}

fn fields_charge(fields: &HeaderMap) -> u64 {
    let bytes = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().len() + value.len()) as u64 + FIELD_OVERHEAD_BYTES
    };
    fields.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn stored_fields_do_not_hold_the_buffer_they_came_in() {
        let mut buffer = BytesMut::with_capacity(4096);
        buffer.extend_from_slice(b"onetwo\xfe");
        let buffer: Bytes = buffer.freeze();
        let mut fields = HeaderMap::new();
        for (name, range) in [("a", 0..3), ("b", 3..7), ("a", 0..6)] {
            let mut value = HeaderValue::from_maybe_shared(buffer.slice(range)).unwrap();
            value.set_sensitive(name == "b");
            fields.append(name, value);
        }
        let expect = fields.clone();
        compact(&mut fields);
        assert_eq!(fields, expect);
        assert!(fields["b"].is_sensitive() && !fields["a"].is_sensitive());
        drop(expect);
        assert!(buffer.is_unique());
    }
}
