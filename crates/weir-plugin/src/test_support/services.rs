//! A server that answers as a script says, and remembers what plugins ask of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;

use crate::properties::Value;
use crate::services::{CallBody, Calling, ContentError, Injection, Services, StoredResponse};

/// What an upstream answers.
pub(crate) enum Script {
    Answer(StatusCode, HeaderMap, Vec<Frame<Bytes>>),
    Error(&'static str),
    Never,
}

/// A request that came to an upstream.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) worker: usize,
    pub(crate) upstream: String,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A server that does what it is told and remembers it.
#[derive(Default)]
pub(crate) struct FakeServices {
    pub(crate) scripts: Mutex<VecDeque<Script>>,
    pub(crate) called: Arc<Mutex<Vec<Called>>>,
    pub(crate) stored: Mutex<HashMap<String, StoredResponse>>,
}

impl Services for FakeServices {
    fn has_upstream(&self, name: &str) -> bool {
        matches!(name, "up" | "forbidden")
    }

    fn call(&self, worker: usize, upstream: &str, request: Request<CallBody>) -> Calling {
        let script = self.scripts.lock().pop_front().unwrap_or(Script::Never);
        let (called, upstream) = (Arc::clone(&self.called), upstream.to_owned());
        let (head, body) = request.into_parts();
        // The request's body is read while the answer is already under way.
        tokio::spawn(async move {
            let collected = body.collect().await.unwrap();
            let trailers = collected.trailers().cloned().unwrap_or_default();
            called.lock().push(Called {
                worker,
                upstream,
                method: head.method,
                target: head.uri.to_string(),
                headers: head.headers,
                body: collected.to_bytes(),
                trailers,
            });
        });
        Box::pin(async move {
            match script {
                Script::Answer(status, headers, frames) => {
                    let frames = frames.into_iter().map(Ok);
                    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
                    let mut response = Response::new(body);
                    *response.status_mut() = status;
                    *response.headers_mut() = headers;
                    Ok(response)
                }
                Script::Error(cause) => Err(cause.to_owned()),
                Script::Never => std::future::pending().await,
            }
        })
    }

    fn stored(&self, url: &str) -> Result<Option<StoredResponse>, ContentError> {
        check(url)?;
        Ok(self.stored.lock().get(url).cloned())
    }

    fn inject(&self, url: &str, response: Injection) -> Result<(), ContentError> {
        check(url)?;
        if response.ttl.is_zero() {
            return Err(ContentError::NotStored { why: "it is stale at once".to_owned() });
        }
        let ttl_ms = i64::try_from(response.ttl.as_millis()).unwrap();
        let Injection { status, headers, body, .. } = response;
        let body = vec![body.slice(..body.len() / 2), body.slice(body.len() / 2..)];
        let stored = StoredResponse { status, headers, age_ms: 0, ttl_ms, hits: 3, body };
        self.stored.lock().insert(url.to_owned(), stored);
        Ok(())
    }

    fn purge(&self, url: &str, soft: bool) -> Result<usize, ContentError> {
        check(url)?;
        let mut stored = self.stored.lock();
        match soft {
            true => Ok(stored.get_mut(url).map(|stored| stored.ttl_ms = 0).into_iter().count()),
            false => Ok(stored.remove(url).into_iter().count()),
        }
    }

    fn property(&self, path: &[&str]) -> Option<Value> {
        (path == ["node", "id"]).then(|| "node-1".into())
    }
}

fn check(url: &str) -> Result<(), ContentError> {
    if url.starts_with("http://") {
        return Ok(());
    }
    Err(ContentError::Url { url: url.to_owned(), why: "no scheme".to_owned() })
}
