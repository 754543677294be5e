//! Heads as plugins see them on the fast path: made when a plugin first looks.

use std::sync::{Arc, OnceLock};

use http::header::{self, HeaderMap};
use http::{Method, Version};
use weir_cache::Object;
use weir_http::head::{self, Room};
use weir_plugin::{Lend, RequestHead, ResponseHead};

use super::reply::{self, HitFields};
use crate::connection::Connection;
use crate::live::Route;

/// A request as it was read.
struct RawRequest {
    bytes: Box<[u8]>,
    secure: bool,
    limits: (usize, usize),
    /// With its Host, which is an authority to plugins, and :method, :path and :scheme.
    field_count: usize,
    parsed: OnceLock<RequestHead>,
}

/// A request whose head is `raw`, which has been parsed once.
pub(super) fn request(
    connection: &Connection,
    raw: &[u8],
    lines: usize,
) -> Arc<dyn Lend<RequestHead>> {
    Arc::new(RawRequest {
        field_count: lines + 3,
        bytes: raw.into(),
        secure: connection.tls,
        limits: connection.worker.head_limits,
        parsed: OnceLock::new(),
    })
}

impl RawRequest {
    fn parse(&self) -> Option<RequestHead> {
        let mut room = Room::new();
        let (size_max, count_max) = self.limits;
        let parsed = head::parse(&self.bytes, &mut room, size_max, count_max)?;
        let mut parts = parsed.to_parts()?;
        let host = parts.headers.remove(header::HOST);
        let authority = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
        Some(RequestHead {
            method: parts.method,
            secure: self.secure,
            authority: authority.to_owned(),
            target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            version: parts.version,
            headers: parts.headers,
        })
    }
}

impl Lend<RequestHead> for RawRequest {
    fn lend(&self) -> &RequestHead {
        // It was parsed before, by the same parser: there is always something.
        let nothing = || RequestHead {
            method: Method::GET,
            secure: self.secure,
            authority: String::new(),
            target: "/".to_owned(),
            version: Version::HTTP_11,
            headers: HeaderMap::new(),
        };
        self.parsed.get_or_init(|| self.parse().unwrap_or_else(nothing))
    }

    fn field_count(&self) -> Option<usize> {
        Some(self.field_count)
    }
}

/// A stored response as it is delivered now.
struct StoredResponse {
    route: Arc<Route>,
    object: Arc<Object>,
    now_ms: u64,
    made: OnceLock<ResponseHead>,
}

/// The head of a stored response.
pub(super) fn response(
    route: &Arc<Route>,
    object: &Arc<Object>,
    now_ms: u64,
) -> Arc<dyn Lend<ResponseHead>> {
    let (route, object) = (Arc::clone(route), Arc::clone(object));
    Arc::new(StoredResponse { route, object, now_ms, made: OnceLock::new() })
}

impl Lend<ResponseHead> for StoredResponse {
    fn lend(&self) -> &ResponseHead {
        self.made.get_or_init(|| {
            let mut headers = HeaderMap::new();
            reply::copy(self.object.headers(), &mut headers);
            HitFields::of(&self.route, &self.object, self.now_ms).set(&mut headers);
            reply::edit(&mut headers, &self.route.response_edits);
            headers.insert(header::CONTENT_LENGTH, self.object.body().len().into());
            ResponseHead { status: self.object.status(), headers }
        })
    }

    fn field_count(&self) -> Option<usize> {
        if !self.route.response_edits.is_empty() {
            return None;
        }
        let stored = self.object.headers();
        let kept = stored.keys().filter(|name| !HitFields::replace(name)).count();
        let is_single = kept == stored.keys_len() && stored.len() == kept;
        let own = HitFields::count(&self.route);
        // :status and Content-Length, which stored heads do not have.
        is_single.then_some(kept + own + 2)
    }
}
