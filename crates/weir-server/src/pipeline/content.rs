//! A request's content, as the client sends it or as plugins have left it.

use http_body::Body;
use hyper::body::Incoming;
use parking_lot::Mutex;
use weir_plugin::CallBody;

use super::client_body::Verdict;

/// Content of a request.
pub(crate) enum Content {
    /// From the client, unread.
    Client(Incoming),
    /// Through plugins, its size watched. The lock is for the compiler: nobody shares it.
    Seen(Mutex<CallBody>, Verdict),
}

impl Content {
    /// Whether nothing more comes.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Content::Client(body) => hyper::body::Body::is_end_stream(body),
            Content::Seen(body, _) => body.lock().is_end_stream(),
        }
    }

    /// Whether it was found to be larger than the route allows.
    pub(crate) fn is_too_large(&self) -> bool {
        match self {
            Content::Client(_) => false,
            Content::Seen(_, verdict) => verdict.is_too_large(),
        }
    }

    /// The client's own, if nobody has it yet.
    pub(crate) fn client(&self) -> Option<&Incoming> {
        match self {
            Content::Client(body) => Some(body),
            Content::Seen(..) => None,
        }
    }

    /// The client's own, to be read for nothing.
    pub(crate) fn into_client(self) -> Option<Incoming> {
        match self {
            Content::Client(body) => Some(body),
            Content::Seen(..) => None,
        }
    }
}
