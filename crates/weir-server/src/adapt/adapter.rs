//! What every kind of adaptation says of itself: which responses it takes, which of a request's
//! fields it looks at, and what it would do for a request. A route's adapters work one after the
//! other: each sees what those before it leave.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, StatusCode, Uri};
use weir_http::cache_control;

use super::declared::Declares;
use super::image::Queried;
use super::work::{Chosen, Work};

/// A kind of adaptation as a route has it.
pub(crate) trait Adapter: Declares + Send + Sync {
    /// Whether it might make something else of a response.
    fn takes(&self, shape: &Shape<'_>) -> bool;

    /// Fields of requests that decide what it makes, for Vary.
    fn looks_at(&self) -> &[HeaderName];

    /// Whether the host that is asked decides, too, so that what is stored for several of them is
    /// made into several things.
    fn looks_at_host(&self) -> bool {
        false
    }

    /// What it would make for a request of a response that it takes. But for what the query asks of
    /// pictures, that depends on what it looks at, and on the request's Cache-Control.
    ///
    /// # Errors
    /// Why it leaves it as it is: a word for the response.
    fn choose(&self, asked: &Asked<'_>, shape: &Shape<'_>) -> Result<Chosen, &'static str>;

    /// How long a request may wait for what it makes.
    fn wait(&self) -> Duration;

    /// The tag of the original of what has this one, if it is one that this makes.
    fn named<'t>(&self, tag: &'t [u8]) -> Option<&'t [u8]>;

    /// Whether it undoes content codings, so that those behind it see none, and no length.
    fn decodes(&self) -> bool {
        false
    }

    /// Whether it might work on what is not stored, while that comes.
    fn streams(&self) -> bool {
        false
    }

    /// What it would make, for a request, of a response that it takes and that is not stored, while
    /// that comes; `None` if it works on what is stored only.
    ///
    /// # Errors
    /// Why it leaves it as it is: a word for the response.
    fn stream(
        &self,
        _asked: &Asked<'_>,
        _shape: &Shape<'_>,
    ) -> Option<Result<Chosen, &'static str>> {
        None
    }
}

/// How many times larger a page is than what it is coded as, about.
const DECODED_RATIO: u64 = 4;

/// A request, as far as adapters ask about it.
pub(crate) struct Asked<'a> {
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// What its query asks of pictures, as far as that has been read.
    pub(crate) queried: Queried,
    /// Accept-Encoding as the client sent it, if plugins have taken it off.
    pub(crate) accepts: Option<&'a Accepts>,
}

/// Accept-Encoding as a client sent it, kept with a request that a plugin has taken it off: that
/// is so that its origin codes nothing, and says nothing of what the client takes.
#[derive(Clone)]
pub(crate) struct Accepts(HeaderMap);

impl Accepts {
    /// Keeps what is not in the fields that a plugin has `left`.
    pub(crate) fn keep(head: &mut Parts, left: &HeaderMap) {
        let name = &header::ACCEPT_ENCODING;
        if left.contains_key(name) || !head.headers.contains_key(name) {
            return;
        }
        let values = head.headers.get_all(name).into_iter();
        let kept = values.map(|value| (name.clone(), value.clone())).collect();
        head.extensions.insert(Accepts(kept));
    }
}

impl<'a> Asked<'a> {
    /// A request whose query nobody has read.
    pub(crate) fn new(uri: &'a Uri, headers: &'a HeaderMap) -> Asked<'a> {
        Asked { uri, headers, queried: Queried::Unread, accepts: None }
    }

    /// One that may have passed plugins.
    pub(crate) fn of(head: &'a Parts) -> Asked<'a> {
        let accepts = head.extensions.get::<Accepts>();
        Asked { accepts, ..Asked::new(&head.uri, &head.headers) }
    }

    /// The fields that say which codings the client takes.
    pub(super) fn encodings(&self) -> &'a HeaderMap {
        let kept = self.accepts.filter(|_| !self.headers.contains_key(header::ACCEPT_ENCODING));
        kept.map_or(self.headers, |kept| &kept.0)
    }

    /// Whether the client asks for what is stored as it is (RFC 9111 §5.2.1.6). That is about how
    /// it is coded and what becomes of pictures; what pages are is for their route to say.
    pub(super) fn forbids_transformation(&self) -> bool {
        cache_control::forbids_transformation(self.headers)
    }

    /// The host that is asked, in lower case and without its port.
    pub(crate) fn host(&self) -> String {
        let named = self.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = self.uri.authority().map(|authority| authority.as_str()).or(named);
        let host = host.and_then(|host| weir_http::host::parse(host.as_bytes()).ok());
        host.map(|host| host.name.into_owned()).unwrap_or_default()
    }
}

/// A response, as far as adapters ask about it.
#[derive(Clone)]
pub(crate) struct Shape<'a> {
    pub(crate) status: StatusCode,
    /// As the origin has sent them.
    pub(crate) headers: &'a HeaderMap,
    /// Bytes of its content, as far as that is known; after an adapter, about so many.
    pub(crate) len: Option<u64>,
    /// The same as it came.
    pub(crate) sent_len: Option<u64>,
    /// Content-Type, after the adapters before.
    pub(crate) content_type: Cow<'a, [u8]>,
    /// It has a content coding.
    pub(crate) is_coded: bool,
}

/// What stands before a name in a tag, and the dash between them.
pub(super) fn without<'t>(tag: &'t [u8], name: &str) -> Option<&'t [u8]> {
    tag.strip_suffix(name.as_bytes())?.strip_suffix(b"-")
}

impl<'a> Shape<'a> {
    pub(crate) fn new(status: StatusCode, headers: &'a HeaderMap, len: Option<u64>) -> Shape<'a> {
        let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        Shape {
            status,
            headers,
            len,
            sent_len: len,
            content_type: Cow::Borrowed(content_type.unwrap_or_default()),
            is_coded: headers.contains_key(header::CONTENT_ENCODING),
        }
    }

    /// What an adapter leaves to the next.
    pub(super) fn after(mut self, chosen: &Chosen) -> Shape<'a> {
        if let Work::Image(_) = chosen.work {
            // Which it is nobody knows yet; those that there are, are compressed in themselves.
            self.content_type = Cow::Borrowed(b"image/avif");
        }
        if chosen.changes_pages() {
            self.decode();
        } else {
            self.len = None;
        }
        self.is_coded = chosen.coding().is_some();
        self
    }

    /// Takes its content codings off: how long it is then nobody knows before that is done.
    pub(super) fn decode(&mut self) {
        if std::mem::take(&mut self.is_coded) {
            self.len = None;
        }
    }

    /// Bytes of its content, as far as can be told.
    pub(super) fn len_estimate(&self) -> u64 {
        self.len.or(self.sent_len.map(|len| len.saturating_mul(DECODED_RATIO))).unwrap_or(0)
    }
}
