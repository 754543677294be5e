//! The log, the clock, randomness, the timer, properties.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::{Error, Outcome, Plugin, lines};
use crate::limits::RANDOM_BYTES_MAX;
use crate::log::{self, Level};
use crate::memory;
use crate::properties::Value;

/// Bytes of a property's path, and its parts.
const PATH_BYTES_MAX: usize = 1024;
const PATH_PARTS_MAX: usize = 32;

pub(super) fn log(plugin: &Plugin<'_>, level: u32, ptr: u32, len: u32) -> Outcome<()> {
    let level = Level::new(level).ok_or(Error::BadArgument)?;
    let text = plugin.bytes(ptr, len)?;
    if !plugin.environment().policy.allow.log {
        return Err(Error::NotAllowed);
    }
    log::say(plugin.environment(), level, text);
    Ok(())
}

/// Nanoseconds since 1970.
pub(super) fn now() -> i64 {
    nanos(SystemTime::now())
}

fn nanos(moment: SystemTime) -> i64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn random(plugin: Plugin<'_>, ptr: u32, len: u32) -> Outcome<()> {
    if len as usize > RANDOM_BYTES_MAX {
        return Err(Error::Limit);
    }
    let to = memory::slice_mut(plugin.memory, ptr, len)?;
    aws_lc_rs::rand::fill(to).map_err(|_| Error::Failed)
}

pub(super) fn tick(plugin: Plugin<'_>, ms: u32) -> Outcome<()> {
    let host = plugin.host;
    host.own.timer.set(&host.home, Duration::from_millis(u64::from(ms)));
    Ok(())
}

/// A path's parts: between zero bytes if it has any, else between dots.
fn parts(path: &str) -> Outcome<Vec<&str>> {
    let separator = if path.contains('\0') { '\0' } else { '.' };
    if path.is_empty() || path.len() > PATH_BYTES_MAX {
        return Err(Error::BadArgument);
    }
    let parts: Vec<&str> = path.split(separator).take(PATH_PARTS_MAX + 1).collect();
    match parts.len() > PATH_PARTS_MAX {
        true => Err(Error::BadArgument),
        false => Ok(parts),
    }
}

pub(super) fn property(plugin: &Plugin<'_>, ptr: u32, len: u32) -> Outcome<Bytes> {
    let path = parts(plugin.text(ptr, len)?)?;
    let environment = plugin.environment();
    let exchange = plugin.host.exchanges.get(&plugin.host.own.current);
    if let Some(exchange) = exchange {
        let facts = &exchange.facts;
        if let Some(value) = facts.bag.value(path.join("\0").as_bytes()) {
            return Ok(value);
        }
        let known = facts.connection.property(&path).or_else(|| facts.route.property(&path));
        if let Some(value) = known {
            return Ok(encoded(&value));
        }
    }
    let value = match path[..] {
        ["plugin_name"] => Some(Value::from(environment.name.as_str())),
        _ => environment.services.property(&path),
    };
    value.map(|value| encoded(&value)).ok_or(Error::NotFound)
}

/// A property as plugins read it: text as it is, numbers and times in 8 bytes, a truth in one.
fn encoded(value: &Value) -> Bytes {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Int(number) => number.to_le_bytes().to_vec().into(),
        Value::Uint(number) => number.to_le_bytes().to_vec().into(),
        Value::Bool(truth) => vec![u8::from(*truth)].into(),
        Value::Time(moment) => nanos(*moment).to_le_bytes().to_vec().into(),
        Value::Duration(span) => {
            let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
            nanos.to_le_bytes().to_vec().into()
        }
        Value::Map(map) => {
            lines(map.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))).into()
        }
    }
}

pub(super) fn set_property(
    plugin: &Plugin<'_>,
    (path, path_len): (u32, u32),
    (ptr, len): (u32, u32),
) -> Outcome<()> {
    let path = parts(plugin.text(path, path_len)?)?.join("\0");
    let value = plugin.bytes(ptr, len)?;
    let exchange = plugin.host.exchanges.get(&plugin.host.own.current).ok_or(Error::NotFound)?;
    match exchange.facts.bag.set(path.as_bytes(), Bytes::copy_from_slice(value)) {
        true => Ok(()),
        false => Err(Error::Limit),
    }
}
