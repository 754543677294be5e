//! A reader of a fill: hands out slices of what is stored, as soon as it is written.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::shared::Fill;
use crate::error::CacheError;
use crate::object::Object;

/// Reads a body that is being written. Dropping it does not stop the fill, unless the body is not
/// being stored and nobody else reads it.
#[derive(Debug)]
pub struct FillReader {
    fill: Arc<Fill>,
    slot: usize,
}

impl FillReader {
    pub(super) fn new(fill: Arc<Fill>, slot: usize) -> FillReader {
        FillReader { fill, slot }
    }

    /// The fill being read.
    pub fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// The next bytes, without a copy; `None` after the last. An error means that the body is torn:
    /// the response must be torn down too, not ended.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CacheError>>> {
        self.fill.poll_read(self.slot, cx)
    }

    /// [`FillReader::poll_chunk`] as a future; cancel safe.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, CacheError>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Waits for the first bytes. Nothing is read meanwhile. Cancel safe.
    pub async fn begun(&mut self) {
        poll_fn(|cx| self.fill.poll_begun(self.slot, cx)).await;
    }

    /// Waits until it is known whether the body is stored, and as what; `None` if it [is
    /// not](crate::NotStored). Nothing is read meanwhile. Cancel safe.
    ///
    /// # Errors
    /// The body is torn.
    pub async fn stored(&mut self) -> Result<Option<Arc<Object>>, CacheError> {
        poll_fn(|cx| self.fill.poll_stored(self.slot, cx)).await
    }

    /// The trailer fields, once the body has ended well.
    pub fn trailers(&self) -> Option<HeaderMap> {
        self.fill.trailers()
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        self.fill.leave(self.slot);
    }
}
