//! Functions beyond the specification: Weir's for stored content, and those of Envoy's that mean
//! something here. Arguments and results are described at each.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::fields;
use super::maps;
use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::services::{ContentError, Injection, StoredResponse};

pub(super) fn call(
    plugin: &mut Plugin<'_>,
    name_data: u32,
    name_size: u32,
    arguments_data: u32,
    arguments_size: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    let name = plugin.name(name_data, name_size)?;
    let arguments = plugin.owned(arguments_data, arguments_size)?;
    // A plugin that wants no results passes no places for them.
    let wants_results = return_data != 0 || return_size != 0;
    if wants_results {
        plugin.expect_room(return_data)?;
        plugin.expect_room(return_size)?;
    }
    let results = run(plugin, &name, &arguments)?;
    match wants_results {
        true => plugin.give(&results, return_data, return_size),
        false => Ok(()),
    }
}

fn run(plugin: &mut Plugin<'_>, name: &str, arguments: &Bytes) -> Outcome<Vec<u8>> {
    match name {
        "clear_route_cache" => {
            super::streams::clear_route_cache(plugin)?;
            return Ok(Vec::new());
        }
        // Envoy is told of a property's type before it is set. Here any bytes can be.
        "declare_property" => return Ok(Vec::new()),
        _ => {}
    }
    if !plugin.environment().policy.allow.cache {
        return Err(Status::NotFound.into());
    }
    match name {
        "weir.cache_query" => query(plugin, arguments),
        "weir.cache_read" => read(plugin, arguments),
        "weir.cache_inject" => inject(plugin, arguments),
        "weir.cache_expire" => remove(plugin, arguments, true),
        "weir.cache_purge" => remove(plugin, arguments, false),
        _ => Err(Status::NotFound.into()),
    }
}

/// What is stored for a URL, as JSON; nothing if nothing is.
fn query(plugin: &mut Plugin<'_>, arguments: &[u8]) -> Outcome<Vec<u8>> {
    let Some(stored) = stored(plugin, arguments)? else { return Ok(Vec::new()) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = stored.headers.iter();
    let headers: Vec<_> =
        headers.map(|(name, value)| [name.as_str().to_owned(), text(value.as_bytes())]).collect();
    let description = json!({
        "status": stored.status.as_u16(),
        "age_ms": stored.age_ms,
        "ttl_ms": stored.ttl_ms,
        "hits": stored.hits,
        "body_bytes": stored.body.iter().map(Bytes::len).sum::<usize>(),
        "headers": headers,
    });
    Ok(description.to_string().into_bytes())
}

/// u64 offset, u32 size, URL → so much of the stored body from there on.
fn read(plugin: &mut Plugin<'_>, arguments: &[u8]) -> Outcome<Vec<u8>> {
    let (offset, rest) = arguments.split_first_chunk().ok_or(Status::BadArgument)?;
    let (size, url) = rest.split_first_chunk().ok_or(Status::BadArgument)?;
    let mut skip = usize::try_from(u64::from_le_bytes(*offset)).unwrap_or(usize::MAX);
    let mut size = u32::from_le_bytes(*size) as usize;
    let Some(stored) = stored(plugin, url)? else { return Ok(Vec::new()) };
    let mut read = Vec::new();
    for piece in &stored.body {
        let start = skip.min(piece.len());
        let end = start.saturating_add(size).min(piece.len());
        read.extend_from_slice(&piece[start..end]);
        skip -= start;
        size -= end - start;
    }
    Ok(read)
}

/// u64 freshness lifetime in ms, u32 size of the URL, u32 size of the header map, then URL, header
/// map with `:status`, body.
fn inject(plugin: &mut Plugin<'_>, arguments: &Bytes) -> Outcome<Vec<u8>> {
    let bad = Status::BadArgument;
    let (ttl_ms, rest) = arguments.split_first_chunk().ok_or(bad)?;
    let (url_size, rest) = rest.split_first_chunk().ok_or(bad)?;
    let (map_size, rest) = rest.split_first_chunk().ok_or(bad)?;
    let (url, rest) = rest.split_at_checked(u32::from_le_bytes(*url_size) as usize).ok_or(bad)?;
    let (map, body) = rest.split_at_checked(u32::from_le_bytes(*map_size) as usize).ok_or(bad)?;
    let url = std::str::from_utf8(url).map_err(|_| bad)?;
    let mut status = http::StatusCode::OK;
    let headers = fields::collect(maps::parse(map).ok_or(bad)?.into_iter(), |name, value| {
        if name != b":status" {
            return Err(bad);
        }
        status = fields::status(value).ok_or(bad)?;
        Ok(())
    })?;
    let ttl = Duration::from_millis(u64::from_le_bytes(*ttl_ms));
    let injection = Injection { status, headers, body: arguments.slice_ref(body), ttl };
    match plugin.environment().services.inject(url, injection) {
        Ok(()) => Ok(Vec::new()),
        Err(error) => refuse(plugin, &error),
    }
}

/// URL → u32: how many responses were removed, or made stale.
fn remove(plugin: &mut Plugin<'_>, url: &[u8], soft: bool) -> Outcome<Vec<u8>> {
    let url = std::str::from_utf8(url).map_err(|_| Status::BadArgument)?;
    match plugin.environment().services.purge(url, soft) {
        Ok(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes().to_vec()),
        Err(error) => refuse(plugin, &error),
    }
}

fn stored(plugin: &mut Plugin<'_>, url: &[u8]) -> Outcome<Option<StoredResponse>> {
    let url = std::str::from_utf8(url).map_err(|_| Status::BadArgument)?;
    match plugin.environment().services.stored(url) {
        Ok(stored) => Ok(stored),
        Err(error) => refuse(plugin, &error),
    }
}

fn refuse<T>(plugin: &Plugin<'_>, error: &ContentError) -> Outcome<T> {
    plugin.warn(&error.to_string());
    match error {
        ContentError::Url { .. } => Err(Status::BadArgument.into()),
        ContentError::NotStored { .. } => Err(Status::InternalFailure.into()),
    }
}
