//! The two directions of an exchange, and what is taken out of it when the plugin lets go.

use bytes::Bytes;
use http::HeaderMap;

use crate::body::BodyBuffer;
use crate::exchange::{Exchange, Phase, RequestHead, ResponseHead, Want, Wishes};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

impl Side {
    pub(crate) fn phases(self) -> [Phase; 3] {
        match self {
            Side::Request => [Phase::RequestHead, Phase::RequestBody, Phase::RequestTrailers],
            Side::Response => [Phase::ResponseHead, Phase::ResponseBody, Phase::ResponseTrailers],
        }
    }

    pub(crate) fn head(self) -> Phase {
        self.phases()[0]
    }

    pub(crate) fn body(self) -> Phase {
        self.phases()[1]
    }

    pub(crate) fn trailers(self) -> Phase {
        self.phases()[2]
    }

    pub(crate) fn buffer(self, exchange: &mut Exchange) -> &mut BodyBuffer {
        match self {
            Side::Request => &mut exchange.request_body,
            Side::Response => &mut exchange.response_body,
        }
    }

    pub(crate) fn trailer_section(self, exchange: &mut Exchange) -> &mut HeaderMap {
        match self {
            Side::Request => &mut exchange.request_trailers,
            Side::Response => &mut exchange.response_trailers,
        }
    }

    pub(crate) fn offset(self, exchange: &mut Exchange) -> &mut u64 {
        match self {
            Side::Request => &mut exchange.request_body_offset,
            Side::Response => &mut exchange.response_body_offset,
        }
    }

    pub(crate) fn want(self, wishes: &Wishes) -> Want {
        match self {
            Side::Request => wishes.request_body,
            Side::Response => wishes.response_body,
        }
    }
}

/// What is taken out of the exchange when the plugin lets go.
#[derive(Default)]
pub(crate) struct Released {
    pub(crate) request: Option<RequestHead>,
    pub(crate) response: Option<ResponseHead>,
    pub(crate) wishes: Wishes,
    /// The body's part that the plugin has seen.
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) trailers: HeaderMap,
    /// What follows of the body need not be shown.
    pub(crate) passes_rest: bool,
    /// The hook has ended in a pause, and nothing of the above was taken.
    pub(crate) is_held: bool,
    /// Only the head was taken: the body is held back by itself.
    pub(crate) keeps_body: bool,
}

pub(crate) fn release(side: Side, exchange: &mut Exchange) -> Released {
    Released {
        pieces: side.buffer(exchange).take(),
        trailers: std::mem::take(side.trailer_section(exchange)),
        passes_rest: std::mem::take(&mut exchange.own.passes_rest),
        ..release_head(side, exchange)
    }
}

fn release_head(side: Side, exchange: &mut Exchange) -> Released {
    // The head stays to be looked at by the hooks that follow, changed as it is.
    let request = exchange.request.as_ref().filter(|_| side == Side::Request);
    let request = request.filter(|head| head.is_own()).map(|head| head.get().clone());
    let response = exchange.response.as_ref().filter(|_| side == Side::Response);
    let response = response.filter(|head| head.is_own()).map(|head| head.get().clone());
    exchange.again = false;
    let wishes = std::mem::take(&mut exchange.wishes);
    Released { request, response, wishes, ..Released::default() }
}

/// A head that was held back goes on, and what has come of the body does not yet.
pub(crate) fn release_head_alone(side: Side, exchange: &mut Exchange) -> Released {
    exchange.is_paused = true;
    Released { keeps_body: true, ..release_head(side, exchange) }
}

/// What a paused plugin wants, if it is paused still.
pub(crate) fn look_at_paused(side: Side, exchange: &mut Exchange, is_paused: bool) -> Released {
    let ends = exchange.wishes.answer.is_some() || exchange.wishes.close;
    if !is_paused || ends {
        return release(side, exchange);
    }
    let hold = exchange.wishes.hold.take();
    Released { is_held: true, wishes: Wishes { hold, ..Wishes::default() }, ..Released::default() }
}
