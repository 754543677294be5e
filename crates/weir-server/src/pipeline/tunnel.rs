//! Upgraded connections (RFC 9110 §7.8): after a 101 both sides' bytes are passed on as they are,
//! until both have ended.

use std::sync::Arc;

use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use weir_origin::upstream::{ResponseBody, Tunnel};

use super::refuse::Refusal;
use super::{Ask, forward};
use crate::body::{Content, ReplyBody};
use crate::metrics::CacheResult;

/// Bytes buffered in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Passes a 101 on and joins the two connections.
pub(super) fn switch(mut ask: Ask, mut response: Response<ResponseBody>) -> Response<ReplyBody> {
    let Some(client) = ask.head.extensions.remove::<hyper::upgrade::OnUpgrade>() else {
        // The client did not ask for what the origin agreed to.
        let refusal = Refusal::Source(StatusCode::BAD_GATEWAY, "unexpected upgrade");
        return ask.refuse(refusal, CacheResult::None);
    };
    let in_flight = response.extensions_mut().remove::<Tunnel>();
    let Some(mut origin) = in_flight.as_ref().and_then(Tunnel::take) else {
        let refusal = Refusal::Source(StatusCode::BAD_GATEWAY, "unexpected upgrade");
        return ask.refuse(refusal, CacheResult::None);
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
        let mut client = TokioIo::new(client);
        let copying =
            copy_bidirectional_with_sizes(&mut client, &mut origin, BUFFER_BYTES, BUFFER_BYTES);
        // An end on one side is passed on; it is over with both.
        match copying.await {
            Ok((sent, received)) => {
                record.body_bytes = received;
                record.complete = true;
                tracing::debug!(sent, received, "tunnel ended");
            }
            Err(cause) => tracing::debug!(%cause, "tunnel broken"),
        }
        drop((record, in_flight, open));
    });
    switched.map(|()| ReplyBody::new(Content::Empty, None))
}
