//! Upgraded connections (RFC 9110 §7.8): after a 101 both sides' bytes are passed on as they are,
//! until both have ended. Those of a forward proxy are tunnels like others: they have its limits.

use std::sync::Arc;

use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use weir_origin::upstream::{ResponseBody, Tunnel};

use super::refuse::{Barred, Refusal};
use super::relay::{self, Limits};
use super::{Ask, forward};
use crate::body::{Content, ReplyBody};
use crate::metrics::{CacheResult, Tunnel as Place};

/// Passes a 101 on and joins the two connections.
pub(super) fn switch(mut ask: Ask, mut response: Response<ResponseBody>) -> Response<ReplyBody> {
    let Some(client) = ask.head.extensions.remove::<hyper::upgrade::OnUpgrade>() else {
        // The client did not ask for what the origin agreed to.
        let refusal = Refusal::Source(StatusCode::BAD_GATEWAY, "unexpected upgrade");
        return ask.refuse(refusal, CacheResult::None);
    };
    let in_flight = response.extensions_mut().remove::<Tunnel>();
    let Some(origin) = in_flight.as_ref().and_then(Tunnel::take) else {
        let refusal = Refusal::Source(StatusCode::BAD_GATEWAY, "unexpected upgrade");
        return ask.refuse(refusal, CacheResult::None);
    };
    let (place, limits) = match limits(&ask) {
        Ok(limited) => limited,
        Err(refusal) => return ask.refuse(refusal, CacheResult::None),
    };
    let fields = forward::upgrade_fields(response.headers());
    forward::incoming(&mut response);
    let socket = Arc::clone(&ask.connection().socket);
    let open = ask.connection().stays_open();

    let mut switched = Response::new(());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = std::mem::take(response.headers_mut());
    for (name, value) in fields {
        switched.headers_mut().insert(name, value);
    }
    let mut record = ask.record;
    record.status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
    tokio::spawn(async move {
        let client = match client.await {
            Ok(client) => client,
            Err(cause) => {
                tracing::debug!(%cause, "upgrade failed");
                return;
            }
        };
        socket.set_tunnel();
        let (passed, end) = relay::relay(TokioIo::new(client), origin, limits).await;
        record.body_bytes = passed.to_client;
        record.complete = end == relay::End::Whole;
        drop((record, in_flight, open));
        if let Some(place) = place {
            place.end(end, passed.from_client, passed.to_client);
        }
    });
    switched.map(|()| ReplyBody::new(Content::Empty, None))
}

/// What an upgraded connection may do, and its place among those of its route.
///
/// # Errors
/// The refusal to answer with, if there is no place.
fn limits(ask: &Ask) -> Result<(Option<Place>, Limits), Refusal> {
    let Some(proxy) = ask.route.source.forward_proxy() else {
        return Ok((None, Limits { idle: None, bytes: None }));
    };
    let connect = &proxy.settings.connect;
    let limits = Limits { idle: Some(connect.idle), bytes: connect.bytes };
    if ask.connection().inspected.is_some() {
        // The tunnel that it is in has a place.
        return Ok((None, limits));
    }
    let place = Place::begin(ask.connection(), &ask.route);
    place.map(|place| (Some(place), limits)).ok_or(Refusal::Barred(Barred::Full))
}
