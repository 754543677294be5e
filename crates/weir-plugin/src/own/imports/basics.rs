//! The log, the clock, randomness, the timer, properties.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::{Error, Outcome, Plugin, lines};
use crate::limits::RANDOM_BYTES_MAX;
use crate::log::{self, Level};
use crate::memory;
use crate::properties::Value;
use crate::proxy_wasm;

/// Bytes of a property's path.
const PATH_BYTES_MAX: usize = 1024;

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

/// A path with zero bytes between its parts, which may be written with dots.
fn path(text: &str) -> Outcome<String> {
    match text.len() {
        1..=PATH_BYTES_MAX if text.contains('\0') => Ok(text.to_owned()),
        1..=PATH_BYTES_MAX => Ok(text.replace('.', "\0")),
        _ => Err(Error::BadArgument),
    }
}

pub(super) fn property(plugin: &Plugin<'_>, ptr: u32, len: u32) -> Outcome<Bytes> {
    let path = path(plugin.text(ptr, len)?)?;
    let value = proxy_wasm::property(plugin.host, plugin.host.own.current, path.as_bytes());
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
    plugin: &mut Plugin<'_>,
    (at, at_len): (u32, u32),
    (ptr, len): (u32, u32),
) -> Outcome<()> {
    let path = path(plugin.text(at, at_len)?)?;
    let value = Bytes::copy_from_slice(plugin.bytes(ptr, len)?);
    let current = plugin.host.own.current;
    if !plugin.host.exchanges.contains_key(&current) {
        return Err(Error::NotFound);
    }
    match proxy_wasm::set_property(plugin.host, current, path.as_bytes(), value) {
        true => Ok(()),
        false => Err(Error::Limit),
    }
}
