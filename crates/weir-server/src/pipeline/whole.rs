//! A whole response of any source, before the request's conditions and ranges are applied to it.

use std::sync::Arc;

use bytes::Bytes;
use weir_cache::{FillReader, Object};
use weir_origin::files::OpenFile;
use weir_origin::upstream::ResponseBody;

use super::coded::Coded;
use crate::body::{Content, FillPart};

/// A response body that has not been cut yet.
pub(super) enum Whole {
    /// Stored.
    Object(Arc<Object>),
    /// Being stored.
    Fill(FillReader),
    /// A file too large to store, or on a route without cache.
    File(Box<OpenFile>),
    /// At hand.
    Bytes(Bytes),
    /// Passed through: the origin has applied conditions and ranges itself.
    Upstream(Box<ResponseBody>),
    /// Adapted while it is sent.
    Coded(Box<Coded>),
}

impl Whole {
    /// The length, if it is known.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            Whole::Object(object) => Some(object.body().len()),
            Whole::Fill(reader) => reader.fill().declared_length(),
            Whole::File(file) => Some(file.len),
            Whole::Bytes(bytes) => Some(bytes.len() as u64),
            Whole::Upstream(body) => hyper::body::Body::size_hint(body).exact(),
            Whole::Coded(_) => None,
        }
    }

    /// Waits for its first bytes, which stay there.
    pub(super) async fn begin(&mut self) {
        match self {
            Whole::Fill(reader) => reader.begun().await,
            Whole::Upstream(body) => body.begin().await,
            Whole::Object(_) | Whole::File(_) | Whole::Bytes(_) | Whole::Coded(_) => {}
        }
    }

    /// Its first bytes, as far as they are there.
    pub(super) fn beginning(&self) -> Bytes {
        match self {
            Whole::Object(object) => object.body().chunks().first().cloned().unwrap_or_default(),
            Whole::Fill(reader) => reader.fill().beginning(),
            Whole::Upstream(body) => body.beginning(),
            Whole::Bytes(bytes) => bytes.clone(),
            Whole::File(_) | Whole::Coded(_) => Bytes::new(),
        }
    }

    /// Whether it is sent as it comes, and nothing of it is at hand.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Whole::Upstream(_) | Whole::Coded(_))
    }

    /// Whether a range can be cut out of it.
    pub(super) fn has_ranges(&self) -> bool {
        !self.is_passing() && self.len().is_some()
    }

    /// Everything.
    pub(super) fn content(self) -> Content {
        match self {
            Whole::Object(object) => Content::of_object(&object, 0, object.body().len()),
            Whole::Fill(reader) => {
                let left = reader.fill().declared_length();
                Content::Fill(Box::new(FillPart { reader, skip: 0, left }))
            }
            Whole::File(file) => Content::File(Box::new(file.stream(0..file.len))),
            Whole::Bytes(bytes) => Content::One(bytes),
            Whole::Upstream(body) => Content::Upstream(body),
            Whole::Coded(body) => Content::Coded(body),
        }
    }

    /// The bytes `start..end`, which lie within a known length.
    pub(super) fn part(self, start: u64, end: u64) -> Content {
        match self {
            Whole::Object(object) => Content::of_object(&object, start, end),
            Whole::Fill(reader) => {
                Content::Fill(Box::new(FillPart { reader, skip: start, left: Some(end - start) }))
            }
            Whole::File(file) => Content::File(Box::new(file.stream(start..end))),
            Whole::Bytes(bytes) => Content::One(bytes.slice(start as usize..end as usize)),
            // `has_ranges` is false: nobody cuts these.
            Whole::Upstream(body) => Content::Upstream(body),
            Whole::Coded(body) => Content::Coded(body),
        }
    }

    /// Several parts at once, if they are at hand; otherwise the whole comes back.
    pub(super) fn parts(self, spans: &[(u64, u64)]) -> Result<Vec<Vec<Bytes>>, Whole> {
        match &self {
            Whole::Object(object) => {
                let part = |&(start, end): &(u64, u64)| object.body().slices(start..end).collect();
                Ok(spans.iter().map(part).collect())
            }
            Whole::Bytes(bytes) => {
                let part =
                    |&(start, end): &(u64, u64)| vec![bytes.slice(start as usize..end as usize)];
                Ok(spans.iter().map(part).collect())
            }
            _ => Err(self),
        }
    }
}
