//! A request's content, as the client sends it or as plugins have left it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use weir_net::Socket;
use weir_origin::upstream::RequestBody;
use weir_plugin::CallBody;

use super::client_body::{ClientBody, Verdict};
use crate::body::BodyError;
use crate::live::Route;

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

    /// The content to be sent, and what tells whether Weir ended it.
    pub(super) fn into_unsent(self, socket: &Arc<Socket>, route: &Route) -> (Unsent, Verdict) {
        match self {
            Content::Client(body) => {
                let (body, verdict) = ClientBody::new(body, socket, route);
                (Unsent::Client(body), verdict)
            }
            Content::Seen(body, verdict) => (Unsent::Seen(body.into_inner()), verdict),
        }
    }
}

/// Content that is to be sent to an origin, as it comes.
pub(super) enum Unsent {
    Client(ClientBody),
    Seen(CallBody),
}

impl Unsent {
    /// The same for an origin.
    pub(super) fn into_body(self) -> RequestBody {
        match self {
            Unsent::Client(body) => RequestBody::boxed(body),
            Unsent::Seen(body) => RequestBody::boxed(body),
        }
    }
}

impl Body for Unsent {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Unsent::Client(body) => Pin::new(body).poll_frame(cx),
            Unsent::Seen(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Unsent::Client(body) => body.is_end_stream(),
            Unsent::Seen(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Unsent::Client(body) => body.size_hint(),
            Unsent::Seen(body) => body.size_hint(),
        }
    }
}
