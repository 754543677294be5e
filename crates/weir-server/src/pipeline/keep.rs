//! What is adapted while it is sent, on its way to being kept.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use weir_cache::{Fill, Object};

use super::adapt;
use super::whole::Whole;
use crate::adapt::{Asked, Gathered, Streamed};
use crate::connection::Connection;
use crate::live::Route;
use crate::record::Record;

/// A response that is adapted while it is sent, and what has been sent of it.
pub(super) struct Keep {
    connection: Arc<Connection>,
    route: Arc<Route>,
    /// As far as adapters ask about it.
    request: Parts,
    /// Of the route's cache, where the original lies.
    part: u64,
    original: Original,
    streamed: Streamed,
    gathered: Gathered,
}

/// What it is made of.
enum Original {
    Stored(Arc<Object>),
    /// Stored when it is all there, perhaps.
    Coming(Arc<Fill>),
}

impl Keep {
    /// What is made of a response may be kept if that is.
    pub(super) fn new(
        record: &Record,
        request: &Parts,
        part: u64,
        whole: &Whole,
        streamed: Streamed,
    ) -> Option<Keep> {
        let original = match whole {
            Whole::Object(object) => Original::Stored(Arc::clone(object)),
            Whole::Fill(reader) => Original::Coming(Arc::clone(reader.fill())),
            Whole::File(_) | Whole::Bytes(_) | Whole::Upstream(_) | Whole::Coded(_) => return None,
        };
        Some(Keep {
            connection: Arc::clone(record.connection()),
            route: Arc::clone(record.route()?),
            request: request.clone(),
            part,
            original,
            streamed,
            gathered: Gathered::default(),
        })
    }

    /// The client is sent a piece.
    pub(super) fn take(&mut self, piece: &Bytes) {
        self.gathered.take(piece);
    }

    /// It has been sent all. `page` is what has become of a page.
    pub(super) fn end(self, page: Option<&str>) {
        let original = match self.original {
            Original::Stored(object) => Some(object),
            Original::Coming(fill) => fill.stored(),
        };
        let Some(original) = original else { return };
        let asked = Asked::of(&self.request);
        let made = (&self.streamed, &self.gathered, page);
        adapt::keep(&self.connection, &self.route, &asked, (&original, self.part), made);
    }
}
