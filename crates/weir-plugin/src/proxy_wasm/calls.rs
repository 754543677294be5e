//! HTTP calls to upstreams: the host function, and what its callback shows.

use std::time::Duration;

use http::Method;

use super::fields;
use super::maps;
use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::call::{self, Call};
use crate::exchange::RequestHead;
use crate::limits::{CALL_TIMEOUT_MAX, CALLS_MAX};

#[allow(clippy::too_many_arguments, reason = "the specification's parameters, each a number")]
pub(super) fn call(
    plugin: &mut Plugin<'_>,
    upstream_data: u32,
    upstream_size: u32,
    headers_data: u32,
    headers_size: u32,
    body_data: u32,
    body_size: u32,
    trailers_data: u32,
    trailers_size: u32,
    timeout_ms: u32,
    return_id: u32,
) -> Outcome {
    let upstream = plugin.name(upstream_data, upstream_size)?;
    let headers = plugin.owned(headers_data, headers_size)?;
    let body = plugin.owned(body_data, body_size)?;
    let trailers = plugin.owned(trailers_data, trailers_size)?;
    plugin.expect_room(return_id)?;
    let head = request_head(&headers)?;
    let trailers = maps::parse(&trailers).ok_or(Status::BadArgument)?;
    let trailers = fields::collect(trailers.into_iter(), |_, _| Ok(()))?;
    if !may_call(plugin, &upstream) {
        return Err(Status::BadArgument.into());
    }
    // As in Envoy, 0 is no limit of the plugin's own.
    let timeout = match timeout_ms {
        0 => CALL_TIMEOUT_MAX,
        ms => Duration::from_millis(u64::from(ms)),
    };
    let host = plugin.host();
    if host.proxy_wasm.calls.len() >= CALLS_MAX {
        plugin.warn("too many HTTP calls in flight");
        return Err(Status::InternalFailure.into());
    }
    let state = &mut host.proxy_wasm;
    state.last_call = next_id(state.last_call, 1, |id| state.calls.contains(&id));
    let id = state.last_call;
    let call = Call { upstream, head, body, trailers, timeout };
    if let Err(cause) = call::start(host, id, call) {
        plugin.warn(&format!("an HTTP call cannot be sent: {cause}"));
        return Err(Status::InternalFailure.into());
    }
    host.proxy_wasm.calls.insert(id);
    plugin.write_u32(return_id, id)
}

/// Whether there is such an upstream for this plugin. One that it may not call does not exist.
pub(super) fn may_call(plugin: &mut Plugin<'_>, upstream: &str) -> bool {
    let environment = plugin.environment();
    environment.policy.allow.upstreams.contains(upstream)
        && environment.services.has_upstream(upstream)
}

/// The next number, of those that are `step` apart, that is not taken.
pub(super) fn next_id(last: u32, step: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    let mut id = last;
    loop {
        id = id.wrapping_add(step);
        if id != 0 && !is_taken(id) {
            return id;
        }
    }
}

/// What is asked for, as a path or as a URL.
fn target_of_call(value: &[u8]) -> Option<String> {
    if value.is_empty() {
        return Some("/".to_owned());
    }
    fields::target(value).or_else(|| {
        let uri = http::Uri::try_from(value).ok().filter(|uri| uri.scheme().is_some())?;
        uri.path_and_query().map(|target| target.as_str().to_owned())
    })
}

fn request_head(map: &[u8]) -> Outcome<RequestHead> {
    let pairs = maps::parse(map).ok_or(Status::BadArgument)?;
    let (mut method, mut target, mut authority, mut secure) = (None, None, None, false);
    let headers = fields::collect(pairs.into_iter(), |name, value| {
        match name {
            b":method" => method = Method::from_bytes(value).ok(),
            b":path" => target = target_of_call(value),
            // The upstream has a name of its own to be called by.
            b":authority" if value.is_empty() => authority = Some(String::new()),
            b":authority" => authority = fields::authority(value),
            b":scheme" => secure = value == b"https",
            // Of a message that the plugin hands on.
            _ => {}
        }
        Ok(())
    })?;
    let (Some(method), Some(target), Some(authority)) = (method, target, authority) else {
        return Err(Status::BadArgument.into());
    };
    let version = http::Version::HTTP_11;
    Ok(RequestHead { method, secure, authority, target, version, headers })
}
