//! What the server does for plugins. The host calls it, and knows nothing of who answers.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;

use crate::properties::Value;

/// The body of a call to an upstream, either way.
pub type CallBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A call's answer, when it comes.
pub type Calling = Pin<Box<dyn Future<Output = Result<Response<CallBody>, String>> + Send>>;

/// A stored response.
#[derive(Clone, Debug)]
pub struct StoredResponse {
    /// Status code.
    pub status: StatusCode,
    /// The stored header section.
    pub headers: HeaderMap,
    /// Age, in milliseconds.
    pub age_ms: u64,
    /// Freshness lifetime left, in milliseconds; negative if stale.
    pub ttl_ms: i64,
    /// Times it was used.
    pub hits: u64,
    /// The body's pieces, shared with the cache.
    pub body: Vec<Bytes>,
}

/// A response to store.
#[derive(Clone, Debug)]
pub struct Injection {
    /// Status code.
    pub status: StatusCode,
    /// Header section to store.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// Freshness lifetime.
    pub ttl: Duration,
}

/// Why stored content could not be managed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// The URL cannot be read, or no site has its name.
    #[error("no stored content can have the URL {url:?}: {why}")]
    Url {
        /// As the plugin wrote it.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// It does not fit.
    #[error("{why}")]
    NotStored {
        /// Too large, or not storable.
        why: String,
    },
}

/// The server, as plugins may use it. The calls run on the worker that they are made from and must
/// not wait.
pub trait Services: Send + Sync + 'static {
    /// Whether an upstream has this name.
    fn has_upstream(&self, name: &str) -> bool;

    /// Sends a request to an upstream. `worker` is whose connections to use. The request's URI is
    /// path and query, its Host the authority; timeouts are the caller's.
    fn call(&self, worker: usize, upstream: &str, request: Request<CallBody>) -> Calling;

    /// The response stored for GET of a URL.
    ///
    /// # Errors
    /// [`ContentError::Url`].
    fn stored(&self, url: &str) -> Result<Option<StoredResponse>, ContentError>;

    /// Stores a response for GET of a URL.
    ///
    /// # Errors
    /// As named in [`ContentError`].
    fn inject(&self, url: &str, response: Injection) -> Result<(), ContentError>;

    /// Removes what is stored for a URL, or (`soft`) makes it stale. Returns how many responses.
    ///
    /// # Errors
    /// [`ContentError::Url`].
    fn purge(&self, url: &str, soft: bool) -> Result<usize, ContentError>;

    /// A property of the server: of `node`, for example.
    fn property(&self, path: &[&str]) -> Option<Value>;
}
