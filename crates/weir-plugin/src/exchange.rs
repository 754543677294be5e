//! What the hooks of one request see and change: heads, bodies, trailers, and what the plugin wants
//! done. Both interfaces work on this; neither knows where the parts come from.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};

use crate::body::BodyBuffer;
use crate::own;
use crate::properties::{Bag, Properties};
use crate::signal::Signal;

/// A request's line and fields.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// GET, POST, …
    pub method: Method,
    /// The request came over TLS.
    pub secure: bool,
    /// Host and port as the client wrote them; empty in HTTP/1.0 without a Host.
    pub authority: String,
    /// Path and query.
    pub target: String,
    /// The client's protocol.
    pub version: Version,
    /// The header section, without Host where `authority` tells it.
    pub headers: HeaderMap,
}

/// A response's status and fields.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// Status code.
    pub status: StatusCode,
    /// The header section.
    pub headers: HeaderMap,
}

/// Something that somebody else owns, made when it is first looked at.
pub trait Lend<T>: Send + Sync {
    /// Looks at it.
    fn lend(&self) -> &T;

    /// How many fields it has, pseudo-header fields included (`:method`, `:status` …), if that is
    /// known without making it.
    fn field_count(&self) -> Option<usize> {
        None
    }
}

/// A head that is the exchange's own, or shared until it is changed. Plugins that look at nothing
/// cost nothing to show it to.
#[derive(Clone)]
pub enum Lent<T> {
    /// Changed, or never shared.
    Own(T),
    /// Not changed yet.
    Shared(Arc<dyn Lend<T>>),
}

impl<T: Clone> Lent<T> {
    /// Looks at it.
    pub fn get(&self) -> &T {
        match self {
            Lent::Own(own) => own,
            Lent::Shared(shared) => shared.lend(),
        }
    }

    /// As [`Lend::field_count`].
    pub(crate) fn field_count(&self) -> Option<usize> {
        match self {
            Lent::Own(_) => None,
            Lent::Shared(shared) => shared.field_count(),
        }
    }

    /// Changes it.
    pub fn to_mut(&mut self) -> &mut T {
        if let Lent::Shared(shared) = self {
            *self = Lent::Own(shared.lend().clone());
        }
        match self {
            Lent::Own(own) => own,
            // Made own just above.
            Lent::Shared(_) => unreachable!("a shared head was made own"),
        }
    }

    /// Whether it was changed, or never shared.
    pub fn is_own(&self) -> bool {
        matches!(self, Lent::Own(_))
    }
}

/// Who asks, and where: the same for all requests of a connection to a route.
pub struct About {
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// What the connection has to say.
    pub connection: Arc<dyn Properties>,
    /// What the route has to say.
    pub route: Arc<dyn Properties>,
    /// The response hooks see what the source answered, before it is stored.
    pub fills: bool,
}

/// What does not change during a request.
#[derive(Clone)]
pub struct Facts {
    /// Who asks, and where.
    pub about: Arc<About>,
    /// When the request's head was there.
    pub started: Instant,
    /// What the plugins of this request tell each other; made by the first that does, where no
    /// other one could read it.
    pub bag: Option<Arc<Bag>>,
}

impl Deref for Facts {
    type Target = About;

    fn deref(&self) -> &About {
        &self.about
    }
}

/// A response of a plugin's own.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// The header section.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailer section.
    pub trailers: HeaderMap,
    /// Why, for logs (`status_code_details` of proxy-wasm).
    pub details: String,
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on with what the exchange holds now.
    Continue,
    /// Wait until the plugin says how to go on.
    Pause,
}

/// Of which body the plugin wants what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// It passes by.
    #[default]
    Nothing,
    /// Piece by piece, as it comes.
    Pieces,
    /// At once, when it is complete.
    Whole,
}

/// What the plugin wishes about the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheWish {
    /// Becomes part of the key.
    pub key: Option<Vec<u8>>,
    /// Neither look up nor store.
    pub pass: bool,
    /// Treat a stored response as stale.
    pub validate: bool,
    /// Do not store this response.
    pub no_store: bool,
    /// Freshness lifetime of this response, in milliseconds.
    pub ttl_ms: Option<u64>,
}

/// What a plugin wants done besides the changes to heads and bodies.
#[derive(Default)]
pub struct Wishes {
    /// Send this instead.
    pub answer: Option<Answer>,
    /// End the request's connection or stream without an answer.
    pub close: bool,
    /// Which upstream to ask instead of the route's.
    pub upstream: Option<String>,
    /// What rules of overload control know the request by.
    pub verdict: Option<String>,
    /// Find the route anew, by the changed target.
    pub reroute: bool,
    /// What to do about the cache.
    pub cache: CacheWish,
    /// What of the request's body to show.
    pub request_body: Want,
    /// What of the response's body to show.
    pub response_body: Want,
    /// Call the hook again after this time at the latest (Weir's own interface).
    pub hold: Option<Duration>,
}

impl Wishes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.answer.is_none()
            && !self.close
            && self.upstream.is_none()
            && self.verdict.is_none()
            && !self.reroute
            && self.request_body == Want::Nothing
            && self.response_body == Want::Nothing
            && self.hold.is_none()
            && self.cache == CacheWish::default()
    }
}

/// What is known of a stored response in the hit and store hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredFacts {
    /// Freshness lifetime left, in milliseconds; negative if stale.
    pub ttl_ms: i64,
    /// Age, in milliseconds.
    pub age_ms: u64,
}

/// One request on its way through one plugin. It lives in the instance as long as the request does,
/// since a plugin may turn to it from any of its callbacks; heads and pieces of bodies are lent to
/// it while a hook runs.
pub(crate) struct Exchange {
    pub(crate) facts: Facts,
    pub(crate) request: Option<Lent<RequestHead>>,
    pub(crate) request_body: BodyBuffer,
    pub(crate) request_trailers: HeaderMap,
    pub(crate) response: Option<Lent<ResponseHead>>,
    pub(crate) response_body: BodyBuffer,
    pub(crate) response_trailers: HeaderMap,
    /// Bytes of each body that went by before what the buffers hold.
    pub(crate) request_body_offset: u64,
    pub(crate) response_body_offset: u64,
    pub(crate) stored: StoredFacts,
    pub(crate) wishes: Wishes,
    /// The plugin's own word on the request (Weir's own interface).
    pub(crate) note: u64,
    pub(crate) phase: Phase,
    /// The hook is called again, after a hold (Weir's own interface).
    pub(crate) again: bool,
    /// What else Weir's own interface remembers.
    pub(crate) own: own::Trail,
    /// Wakes whoever waits for a paused request.
    pub(crate) signal: Arc<Signal>,
    /// The last hook ended in a pause that nothing has ended yet (proxy-wasm).
    pub(crate) is_paused: bool,
    /// The running hook said that the request goes on (proxy-wasm).
    pub(crate) is_resumed: bool,
    /// A head that was held back has been let go, though not taken yet (proxy-wasm).
    pub(crate) is_head_resumed: bool,
    /// The plugin said that the bytes of a connection go on: those from the client, those for it.
    pub(crate) is_released: [bool; 2],
}

/// Which hook is running, or was paused in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Connection,
    /// Bytes from the client of a connection.
    Downstream,
    DownstreamClosed,
    RequestHead,
    RequestBody,
    RequestTrailers,
    Lookup,
    Hit,
    Miss,
    Store,
    ResponseHead,
    ResponseBody,
    ResponseTrailers,
    /// Bytes for the client of a connection.
    Upstream,
    UpstreamClosed,
    Log,
}

impl Exchange {
    /// Whether the plugin has seen the request's head and left no trace.
    pub(crate) fn is_untouched(&self) -> bool {
        self.note == 0
            && self.facts.bag.is_none()
            && self.wishes.is_empty()
            && self.own.is_fresh()
            && self.request.as_ref().is_none_or(|head| !head.is_own())
            && Arc::strong_count(&self.signal) == 1
    }

    /// Whether a hook for a head has changed nothing and wishes nothing.
    pub(crate) fn is_plain(&self) -> bool {
        self.wishes.is_empty()
            && self.request.as_ref().is_none_or(|head| !head.is_own())
            && self.response.as_ref().is_none_or(|head| !head.is_own())
            && self.request_body.is_empty()
            && self.response_body.is_empty()
            && self.request_trailers.is_empty()
            && self.response_trailers.is_empty()
    }

    /// Lets go of everything that belongs to its request.
    pub(crate) fn end(&mut self) {
        self.request = None;
        self.request_body.take();
        self.request_trailers.clear();
        self.response = None;
        self.response_body.take();
        self.response_trailers.clear();
        self.wishes = Wishes::default();
        self.own = own::Trail::default();
        self.facts.bag = None;
    }

    /// Another request begins where one has ended.
    #[inline]
    pub(crate) fn begin(&mut self, facts: &Facts) {
        // Most often of the same connection, whose count need not be touched.
        if !Arc::ptr_eq(&self.facts.about, &facts.about) {
            self.facts.about = Arc::clone(&facts.about);
        }
        self.facts.started = facts.started;
        self.facts.bag.clone_from(&facts.bag);
        self.request_body_offset = 0;
        self.response_body_offset = 0;
        self.stored = StoredFacts::default();
        self.note = 0;
        self.phase = Phase::Connection;
        self.again = false;
        self.is_paused = false;
        self.is_resumed = false;
        self.is_head_resumed = false;
        // Somebody may still listen for the request before, or it was sent on.
        if Arc::strong_count(&self.signal) > 1 || self.signal.source().is_some() {
            self.signal = Arc::default();
        }
    }

    pub(crate) fn new(facts: Facts) -> Exchange {
        Exchange {
            facts,
            request: None,
            request_body: BodyBuffer::default(),
            request_trailers: HeaderMap::new(),
            response: None,
            response_body: BodyBuffer::default(),
            response_trailers: HeaderMap::new(),
            request_body_offset: 0,
            response_body_offset: 0,
            stored: StoredFacts::default(),
            wishes: Wishes::default(),
            note: 0,
            phase: Phase::Connection,
            again: false,
            own: own::Trail::default(),
            signal: Arc::default(),
            is_paused: false,
            is_resumed: false,
            is_head_resumed: false,
            is_released: [false; 2],
        }
    }
}
