//! gRPC calls and streams to upstreams: the host functions, and the tasks that run them on the
//! worker's event loop. How messages lie in bodies is in [`frames`].

mod frames;
mod task;

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, TE};
use http::{HeaderMap, HeaderValue, Method, Version};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use self::task::Task;
use super::calls::{may_call, next_id};
use super::fields;
use super::maps;
use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::exchange::RequestHead;
use crate::limits::{CALL_TIMEOUT_MAX, GRPC_MAX, GRPC_MESSAGE_BYTES_MAX, GRPC_WAITING_MAX};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// What happens to a call or stream.
#[derive(Debug)]
pub(crate) enum Event {
    /// The answer's head.
    Initial(HeaderMap),
    /// A message; a call is over with it.
    Message(Bytes, bool),
    /// The answer's trailers.
    Trailing(HeaderMap),
    /// It is over, with this status.
    Close(u32, String),
}

/// An instance's calls and streams. As in Envoy, the numbers of calls are odd and those of streams
/// are even, and none of them is one of an HTTP call for long.
pub(crate) struct Calls {
    open: HashMap<u32, Open>,
    last_call: u32,
    last_stream: u32,
}

/// Where numbers begin: those of HTTP calls begin with 1.
const FIRST_ID: u32 = 1 << 30;

impl Default for Calls {
    fn default() -> Calls {
        Calls { open: HashMap::new(), last_call: FIRST_ID - 1, last_stream: FIRST_ID }
    }
}

/// One that is not over. It ends with this.
struct Open {
    /// Where a stream's messages go, until the plugin ends its side.
    messages: Option<mpsc::Sender<Bytes>>,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Calls {
    pub(super) fn is_open(&self, id: u32) -> bool {
        self.open.contains_key(&id)
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.open.remove(&id);
    }

    fn new_id(&mut self, is_stream: bool) -> u32 {
        let Calls { open, last_call, last_stream } = self;
        match is_stream {
            true => {
                *last_stream = next_id(*last_stream, 2, |id| open.contains_key(&id));
                *last_stream
            }
            false => {
                *last_call = next_id(*last_call, 2, |id| open.contains_key(&id));
                *last_call
            }
        }
    }
}

fn is_call(id: u32) -> bool {
    id % 2 == 1
}

/// The parameters that calls and streams have in common.
struct Start {
    upstream: (u32, u32),
    service: (u32, u32),
    method: (u32, u32),
    metadata: (u32, u32),
    return_id: u32,
}

#[allow(clippy::too_many_arguments, reason = "the specification's parameters, each a number")]
pub(super) fn call(
    plugin: &mut Plugin<'_>,
    upstream_data: u32,
    upstream_size: u32,
    service_data: u32,
    service_size: u32,
    method_data: u32,
    method_size: u32,
    metadata_data: u32,
    metadata_size: u32,
    message_data: u32,
    message_size: u32,
    timeout_ms: u32,
    return_id: u32,
) -> Outcome {
    let start = Start {
        upstream: (upstream_data, upstream_size),
        service: (service_data, service_size),
        method: (method_data, method_size),
        metadata: (metadata_data, metadata_size),
        return_id,
    };
    let message = frames::framed(plugin.bytes(message_data, message_size)?);
    let timeout = match timeout_ms {
        0 => CALL_TIMEOUT_MAX,
        ms => Duration::from_millis(u64::from(ms)).min(CALL_TIMEOUT_MAX),
    };
    begin(plugin, &start, Some((message, timeout)))
}

#[allow(clippy::too_many_arguments, reason = "the specification's parameters, each a number")]
pub(super) fn stream(
    plugin: &mut Plugin<'_>,
    upstream_data: u32,
    upstream_size: u32,
    service_data: u32,
    service_size: u32,
    method_data: u32,
    method_size: u32,
    metadata_data: u32,
    metadata_size: u32,
    return_id: u32,
) -> Outcome {
    let start = Start {
        upstream: (upstream_data, upstream_size),
        service: (service_data, service_size),
        method: (method_data, method_size),
        metadata: (metadata_data, metadata_size),
        return_id,
    };
    begin(plugin, &start, None)
}

/// Starts a call, which has its message and time-out, or a stream.
fn begin(plugin: &mut Plugin<'_>, start: &Start, unary: Option<(Bytes, Duration)>) -> Outcome {
    let upstream = frames::upstream(plugin.bytes(start.upstream.0, start.upstream.1)?);
    let service = plugin.name(start.service.0, start.service.1)?;
    let method = plugin.name(start.method.0, start.method.1)?;
    let metadata = plugin.owned(start.metadata.0, start.metadata.1)?;
    plugin.expect_room(start.return_id)?;
    let mut head = request_head(&upstream, &service, &method, &metadata)?;
    if !may_call(plugin, &upstream) {
        return Err(Status::ParseFailure.into());
    }
    let host = plugin.host();
    let calls = &mut host.proxy_wasm.grpc;
    if calls.open.len() >= GRPC_MAX {
        plugin.warn("too many gRPC calls and streams in flight");
        return Err(Status::InternalFailure.into());
    }
    let is_stream = unary.is_none();
    let id = calls.new_id(is_stream);
    let (messages, body, timeout) = match unary {
        Some((message, timeout)) => {
            let value = HeaderValue::from_str(&format!("{}m", timeout.as_millis()));
            // Digits and a letter.
            head.headers.extend(value.map(|value| (GRPC_TIMEOUT, value)));
            (None, task::whole(message), Some(timeout))
        }
        None => {
            let (messages, receiver) = mpsc::channel(GRPC_WAITING_MAX);
            (Some(messages), task::streamed(receiver), None)
        }
    };
    let Ok(request) = crate::call::request(head, body) else {
        return Err(Status::InternalFailure.into());
    };
    let task = Task { home: host.home.clone(), id, is_stream };
    let services = host.environment.services.clone();
    let running = task.run(services, upstream, request, timeout);
    let task = host.home.worker_loop.spawn(running).abort_handle();
    calls.open.insert(id, Open { messages, task });
    plugin.write_u32(start.return_id, id)
}

fn request_head(
    upstream: &str,
    service: &str,
    method: &str,
    metadata: &[u8],
) -> Outcome<RequestHead> {
    let pairs = maps::parse(metadata).ok_or(Status::ParseFailure)?;
    let mut authority = upstream.to_owned();
    let headers = fields::collect(pairs.into_iter(), |name, value| {
        if name == b":authority" {
            authority = fields::authority(value).ok_or(Status::BadArgument)?;
        }
        // The other pseudo-fields follow from the call.
        Ok(())
    });
    let mut headers = headers.map_err(|_| Status::ParseFailure)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    let target = fields::target(format!("/{service}/{method}").as_bytes());
    let target = target.ok_or(Status::InternalFailure)?;
    let version = Version::HTTP_2;
    Ok(RequestHead { method: Method::POST, secure: false, authority, target, version, headers })
}

pub(super) fn send(plugin: &mut Plugin<'_>, id: u32, data: u32, size: u32, end: u32) -> Outcome {
    let message = plugin.bytes(data, size)?;
    if message.len() > GRPC_MESSAGE_BYTES_MAX {
        return Err(Status::BadArgument.into());
    }
    let message = frames::framed(message);
    if is_call(id) {
        return Err(Status::BadArgument.into());
    }
    let open = plugin.state().grpc.open.get_mut(&id).ok_or(Status::NotFound)?;
    // After its end, or faster than the upstream takes it.
    let messages = open.messages.as_ref().ok_or(Status::BadArgument)?;
    messages.try_send(message).map_err(|_| Status::BadArgument)?;
    if end != 0 {
        open.messages = None;
    }
    Ok(())
}

pub(super) fn cancel(plugin: &mut Plugin<'_>, id: u32) -> Outcome {
    let cancelled = plugin.state().grpc.open.remove(&id);
    Ok(cancelled.map(drop).ok_or(Status::NotFound)?)
}

/// Ends the plugin's side of a stream, as in Envoy; a call has no other side.
pub(super) fn close(plugin: &mut Plugin<'_>, id: u32) -> Outcome {
    if is_call(id) {
        return cancel(plugin, id);
    }
    let open = plugin.state().grpc.open.get_mut(&id).ok_or(Status::NotFound)?;
    open.messages = None;
    Ok(())
}
