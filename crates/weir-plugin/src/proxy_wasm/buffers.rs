//! Host functions for buffers: bodies, data of connections, configurations, answers.

use std::ops::Range;

use bytes::Bytes;

use super::plugin::Plugin;
use super::status::{Outcome, Status};
use super::{Configuration, State};
use crate::body::BodyBuffer;
use crate::exchange::{Exchange, Phase};
use crate::host::{Environment, Host};
use crate::limits::HELD_BYTES_MAX;

/// proxy-wasm's `proxy_buffer_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffer {
    RequestBody,
    ResponseBody,
    DownstreamData,
    UpstreamData,
    CallBody,
    GrpcMessage,
    VmConfiguration,
    PluginConfiguration,
    ForeignArguments,
}

impl Buffer {
    fn new(number: u32) -> Result<Buffer, Status> {
        const ALL: [Buffer; 9] = [
            Buffer::RequestBody,
            Buffer::ResponseBody,
            Buffer::DownstreamData,
            Buffer::UpstreamData,
            Buffer::CallBody,
            Buffer::GrpcMessage,
            Buffer::VmConfiguration,
            Buffer::PluginConfiguration,
            Buffer::ForeignArguments,
        ];
        ALL.get(number as usize).copied().ok_or(Status::BadArgument)
    }
}

/// A buffer's content.
enum Content<'a> {
    Pieces(&'a BodyBuffer),
    Whole(&'a [u8]),
}

impl Content<'_> {
    fn len(&self) -> usize {
        match self {
            Content::Pieces(body) => body.len(),
            Content::Whole(bytes) => bytes.len(),
        }
    }

    fn copy(&self, range: Range<usize>, to: &mut [u8]) {
        match self {
            Content::Whole(bytes) => to.copy_from_slice(&bytes[range]),
            Content::Pieces(body) => {
                let mut rest = to;
                body.copy(range, |piece| {
                    let (place, after) = std::mem::take(&mut rest).split_at_mut(piece.len());
                    place.copy_from_slice(piece);
                    rest = after;
                });
            }
        }
    }
}

fn content(host: &Host, context: u32, buffer: Buffer) -> Option<Content<'_>> {
    let environment: &Environment = &host.environment;
    let state: &State = &host.proxy_wasm;
    let exchange: Option<&Exchange> = host.exchanges.get(&context);
    let allow = &environment.policy.allow;
    Some(match buffer {
        Buffer::RequestBody | Buffer::DownstreamData if allow.request_body => {
            Content::Pieces(&exchange?.request_body)
        }
        Buffer::ResponseBody | Buffer::UpstreamData if allow.response_body => {
            Content::Pieces(&exchange?.response_body)
        }
        Buffer::CallBody => Content::Whole(&state.answer.as_ref()?.body),
        Buffer::GrpcMessage => Content::Whole(state.grpc_message.as_ref()?),
        Buffer::VmConfiguration => Content::Whole(&environment.vm_config),
        Buffer::PluginConfiguration => Content::Whole(&environment.config),
        Buffer::ForeignArguments => Content::Whole(state.arguments.as_ref()?),
        _ => return None,
    })
}

pub(super) fn get(
    plugin: &mut Plugin<'_>,
    buffer: u32,
    start: u32,
    max_size: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    let buffer = Buffer::new(buffer)?;
    let context = plugin.context();
    let len = content(plugin.host(), context, buffer).ok_or(Status::NotFound)?.len();
    // Cut to what there is: SDKs ask for everything by the largest number there is.
    let start = (start as usize).min(len);
    let end = start.saturating_add(max_size as usize).min(len);
    plugin.give_with(end - start, return_data, return_size, |to, host| {
        match content(host, context, buffer) {
            Some(content) if content.len() == len => content.copy(start..end, to),
            // The allocator changed what is being read.
            _ => to.fill(0),
        }
    })
}

pub(super) fn status(
    plugin: &mut Plugin<'_>,
    buffer: u32,
    return_size: u32,
    return_unused: u32,
) -> Outcome {
    let buffer = Buffer::new(buffer)?;
    let context = plugin.context();
    let len = content(plugin.host(), context, buffer).ok_or(Status::NotFound)?.len();
    plugin.expect_room(return_unused)?;
    plugin.write_u32(return_size, u32::try_from(len).unwrap_or(u32::MAX))?;
    plugin.write_u32(return_unused, 0)
}

pub(super) fn set(
    plugin: &mut Plugin<'_>,
    buffer: u32,
    start: u32,
    size: u32,
    data: u32,
    data_size: u32,
) -> Outcome {
    let buffer = Buffer::new(buffer)?;
    let value: Bytes = plugin.owned(data, data_size)?;
    let allow = &plugin.environment().policy.allow;
    let (requests, responses) = (allow.request_body, allow.response_body);
    let exchange = plugin.exchange().ok_or(Status::NotFound)?;
    // In its own callback, or while that holds it back.
    let (phase, body) = match buffer {
        Buffer::RequestBody if requests => (Phase::RequestBody, &mut exchange.request_body),
        Buffer::ResponseBody if responses => (Phase::ResponseBody, &mut exchange.response_body),
        Buffer::DownstreamData if requests => (Phase::Downstream, &mut exchange.request_body),
        Buffer::UpstreamData if responses => (Phase::Upstream, &mut exchange.response_body),
        _ => return Err(Status::NotFound.into()),
    };
    if exchange.phase != phase {
        return Err(Status::NotFound.into());
    }
    if body.len() + value.len() > HELD_BYTES_MAX {
        plugin.warn("the body that the plugin makes is too large");
        return Err(Status::InvalidMemoryAccess.into());
    }
    body.splice(start as usize, size as usize, value);
    Ok(())
}

/// 0.1.0: the configuration that belongs to the running callback.
pub(super) fn configuration(
    plugin: &mut Plugin<'_>,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    let environment = plugin.environment();
    let config = match plugin.configuration() {
        Configuration::Vm => environment.vm_config.clone(),
        Configuration::Plugin => environment.config.clone(),
    };
    plugin.give(&config, return_data, return_size)
}
