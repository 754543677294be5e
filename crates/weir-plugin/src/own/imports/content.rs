//! Stored content.

use std::time::Duration;

use super::{Error, Outcome, Plugin, lines};
use crate::memory;
use crate::own::ops::TTL_MS_MAX;
use crate::own::{edits, messages};
use crate::services::{ContentError, Injection, StoredResponse};

/// Bytes that are read at once.
const READ_BYTES_MAX: usize = 1 << 20;

/// Bytes of what is told of a stored response.
const INFO_BYTES: u32 = 40;

fn stored(plugin: &Plugin<'_>, ptr: u32, len: u32) -> Outcome<StoredResponse> {
    let url = plugin.text(ptr, len)?;
    may(plugin)?;
    match plugin.environment().services.stored(url) {
        Ok(Some(stored)) => Ok(stored),
        Ok(None) => Err(Error::NotFound),
        Err(error) => Err(refusal(plugin, &error)),
    }
}

fn may(plugin: &Plugin<'_>) -> Outcome<()> {
    match plugin.environment().policy.allow.cache {
        true => Ok(()),
        false => Err(Error::NotAllowed),
    }
}

fn refusal(plugin: &Plugin<'_>, error: &ContentError) -> Error {
    plugin.warn(&error.to_string());
    match error {
        ContentError::Url { .. } => Error::BadArgument,
        ContentError::NotStored { .. } => Error::Limit,
    }
}

pub(super) fn query(plugin: Plugin<'_>, ptr: u32, len: u32, to: u32) -> Outcome<()> {
    plugin.bytes(to, INFO_BYTES)?;
    let stored = stored(&plugin, ptr, len)?;
    let length: usize = stored.body.iter().map(bytes::Bytes::len).sum();
    let words = [
        u64::from(stored.status.as_u16()),
        stored.ttl_ms.cast_unsigned(),
        stored.age_ms,
        stored.hits,
        length as u64,
    ];
    let info = memory::slice_mut(plugin.memory, to, INFO_BYTES)?;
    for (place, word) in info.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Ok(())
}

pub(super) fn fields(plugin: &Plugin<'_>, ptr: u32, len: u32) -> Outcome<Vec<u8>> {
    let stored = stored(plugin, ptr, len)?;
    let fields = stored.headers.iter();
    Ok(lines(fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))))
}

pub(super) fn read(
    plugin: &Plugin<'_>,
    ptr: u32,
    len: u32,
    offset: u64,
    max: u32,
) -> Outcome<Vec<u8>> {
    let stored = stored(plugin, ptr, len)?;
    let max = (max as usize).min(READ_BYTES_MAX);
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut content = Vec::new();
    for piece in &stored.body {
        let rest = &piece[skip.min(piece.len())..];
        skip = skip.saturating_sub(piece.len());
        content.extend_from_slice(&rest[..rest.len().min(max - content.len())]);
    }
    Ok(content)
}

pub(super) fn inject(
    plugin: &Plugin<'_>,
    (url, url_len): (u32, u32),
    (ptr, len): (u32, u32),
    ttl_ms: u64,
) -> Outcome<()> {
    let url = plugin.text(url, url_len)?;
    plugin.bytes(ptr, len)?;
    may(plugin)?;
    if ttl_ms > TTL_MS_MAX {
        return Err(Error::BadArgument);
    }
    let message = edits::decode(plugin.memory, ptr, len).and_then(messages::response);
    let messages::Response { status, headers, body } = match message {
        Ok(message) => message,
        Err(error) => {
            plugin.warn(&format!("cache_inject: {error}"));
            return Err(Error::BadArgument);
        }
    };
    let injection = Injection { status, headers, body, ttl: Duration::from_millis(ttl_ms) };
    plugin.environment().services.inject(url, injection).map_err(|error| refusal(plugin, &error))
}

pub(super) fn purge(plugin: &Plugin<'_>, ptr: u32, len: u32, soft: bool) -> Outcome<u32> {
    let url = plugin.text(ptr, len)?;
    may(plugin)?;
    let purged = plugin.environment().services.purge(url, soft);
    match purged {
        Ok(0) => Err(Error::NotFound),
        Ok(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
        Err(error) => Err(refusal(plugin, &error)),
    }
}
