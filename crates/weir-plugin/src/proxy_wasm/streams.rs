//! Host functions that steer contexts, streams, and the route.

use super::plugin::{Plugin, ROOT};
use super::status::{Outcome, Status};
use crate::exchange::{Exchange, Phase};

/// proxy-wasm's `proxy_stream_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamType {
    Request,
    Response,
    Downstream,
    Upstream,
}

impl StreamType {
    fn new(number: u32) -> Result<StreamType, Status> {
        const ALL: [StreamType; 4] = [
            StreamType::Request,
            StreamType::Response,
            StreamType::Downstream,
            StreamType::Upstream,
        ];
        ALL.get(number as usize).copied().ok_or(Status::BadArgument)
    }

    /// Whether it can be what a hook of this phase has paused.
    fn is_paused_in(self, phase: Phase) -> bool {
        match (self, phase) {
            // The specification has paused response trailers resumed by either.
            (_, Phase::ResponseTrailers) => true,
            (StreamType::Request | StreamType::Downstream, phase) => phase < Phase::ResponseHead,
            (StreamType::Response | StreamType::Upstream, phase) => phase >= Phase::ResponseHead,
        }
    }
}

/// Lets a paused request go on: at once if it is paused, else when the running hook ends.
fn resume(exchange: &mut Exchange) {
    exchange.is_resumed = true;
    if exchange.is_paused {
        exchange.is_paused = false;
        exchange.signal.tell();
    }
}

pub(super) fn resume_stream(plugin: &mut Plugin<'_>, stream: u32) -> Outcome {
    let stream = StreamType::new(stream)?;
    if let Some(exchange) = plugin.exchange()
        && let StreamType::Downstream | StreamType::Upstream = stream
    {
        exchange.is_released[usize::from(stream == StreamType::Upstream)] = true;
        exchange.signal.tell();
    }
    if let Some(exchange) = plugin.exchange()
        && stream.is_paused_in(exchange.phase)
    {
        resume(exchange);
    }
    Ok(())
}

/// 0.1.0's `proxy_continue_request`.
pub(super) fn resume_request(plugin: &mut Plugin<'_>) -> Outcome {
    resume_stream(plugin, StreamType::Request as u32)
}

/// 0.1.0's `proxy_continue_response`.
pub(super) fn resume_response(plugin: &mut Plugin<'_>) -> Outcome {
    resume_stream(plugin, StreamType::Response as u32)
}

pub(super) fn close_stream(plugin: &mut Plugin<'_>, stream: u32) -> Outcome {
    StreamType::new(stream)?;
    if let Some(exchange) = plugin.exchange() {
        exchange.wishes.close = true;
        resume(exchange);
    }
    Ok(())
}

/// 0.1.0's `proxy_clear_route_cache`; later versions call a foreign function.
pub(super) fn clear_route_cache(plugin: &mut Plugin<'_>) -> Outcome {
    if let Some(exchange) = plugin.exchange() {
        exchange.wishes.reroute = true;
    }
    Ok(())
}

pub(super) fn set_effective_context(plugin: &mut Plugin<'_>, context: u32) -> Outcome {
    if context != ROOT && !plugin.host().exchanges.contains_key(&context) {
        return Err(Status::BadArgument.into());
    }
    plugin.state().effective = context;
    Ok(())
}

pub(super) fn done(plugin: &mut Plugin<'_>) -> Outcome {
    let context = plugin.context();
    let state = plugin.state();
    let pending = state.pending_done.iter().position(|&pending| pending == context);
    let pending = pending.ok_or(Status::NotFound)?;
    state.pending_done.remove(pending);
    // The guest calls what follows when the running callback has returned.
    state.finished.push(context);
    Ok(())
}

pub(super) fn status(
    plugin: &mut Plugin<'_>,
    return_code: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    plugin.expect_room(return_code)?;
    let (code, message) = plugin.state().status.clone();
    plugin.give(message.as_bytes(), return_data, return_size)?;
    plugin.write_u32(return_code, code)
}
