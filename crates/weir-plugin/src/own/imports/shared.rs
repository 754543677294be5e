//! Shared data, shared queues, metrics.

use bytes::Bytes;

use super::{Error, Outcome, Plugin};
use crate::host::Environment;
use crate::memory;
use crate::shared::{CAS_ABSENT, DataError, Expect, MetricError, MetricKind, QueueError};

/// Where a name belongs: it is the plugin's own, unless it begins with the name of somebody else's
/// space, which the plugin may use, and a slash.
fn place<'a>(environment: &'a Environment, name: &'a str) -> (&'a str, &'a str) {
    match name.split_once('/') {
        Some((space, rest)) if environment.policy.allow.shared.contains(space) => (space, rest),
        _ => (&environment.name, name),
    }
}

fn may_share(environment: &Environment, space: &str) -> bool {
    *space == environment.name || environment.policy.allow.shared.contains(space)
}

/// Where there is to be no number for compare-and-swap.
const NOWHERE: u32 = 0;

pub(super) fn data(plugin: Plugin<'_>, ptr: u32, len: u32, cas_to: u32) -> Outcome<Bytes> {
    let environment = plugin.environment();
    let (space, key) = place(environment, plugin.text(ptr, len)?);
    if cas_to != NOWHERE {
        plugin.bytes(cas_to, 4)?;
    }
    let held = environment.commons.data(space, key);
    if cas_to != NOWHERE {
        let cas = held.as_ref().map_or(CAS_ABSENT, |(_, cas)| *cas);
        memory::write_u32(plugin.memory, cas_to, cas)?;
    }
    held.map(|(value, _)| value).ok_or(Error::NotFound)
}

pub(super) fn set_data(
    plugin: &Plugin<'_>,
    (key, key_len): (u32, u32),
    (ptr, len): (u32, u32),
    cas: u32,
) -> Outcome<()> {
    let environment = plugin.environment();
    let (space, key) = place(environment, plugin.text(key, key_len)?);
    let value = Bytes::copy_from_slice(plugin.bytes(ptr, len)?);
    let expect = if cas == CAS_ABSENT { Expect::Absent } else { Expect::from_cas(cas) };
    match environment.commons.set_data(space, key, value, expect) {
        Ok(_) => Ok(()),
        Err(DataError::Mismatch) => Err(Error::Mismatch),
        Err(_) => Err(Error::Limit),
    }
}

pub(super) fn open_queue(plugin: &Plugin<'_>, ptr: u32, len: u32) -> Outcome<u32> {
    let host = &plugin.host;
    let environment = &host.environment;
    let (space, name) = place(environment, plugin.text(ptr, len)?);
    if name.is_empty() {
        return Err(Error::BadArgument);
    }
    match *space == environment.name {
        true => {
            environment.commons.register_queue(space, name, &host.home).map_err(|_| Error::Limit)
        }
        false => environment.commons.queue(space, name).ok_or(Error::NotFound),
    }
}

pub(super) fn push(plugin: &Plugin<'_>, id: u32, ptr: u32, len: u32) -> Outcome<()> {
    let item = Bytes::copy_from_slice(plugin.bytes(ptr, len)?);
    let environment = plugin.environment();
    environment.commons.enqueue(id, item, |space| may_share(environment, space)).map_err(|error| {
        match error {
            QueueError::Unknown => Error::NotFound,
            _ => Error::Limit,
        }
    })
}

pub(super) fn pop(plugin: &Plugin<'_>, id: u32) -> Outcome<Bytes> {
    let environment = plugin.environment();
    match environment.commons.dequeue(id, |space| may_share(environment, space)) {
        Ok(Some(item)) => Ok(item),
        Ok(None) => Err(Error::Empty),
        Err(_) => Err(Error::NotFound),
    }
}

pub(super) fn metric(plugin: &Plugin<'_>, kind: u32, ptr: u32, len: u32) -> Outcome<u32> {
    let kind = MetricKind::new(kind).ok_or(Error::BadArgument)?;
    let name = plugin.text(ptr, len)?;
    plugin.environment().metrics.define(kind, name).map_err(refusal)
}

pub(super) fn add(plugin: &Plugin<'_>, id: u32, delta: i64) -> Outcome<()> {
    plugin.environment().metrics.add(id, delta).map_err(refusal)
}

pub(super) fn record(plugin: &Plugin<'_>, id: u32, value: u64) -> Outcome<()> {
    plugin.environment().metrics.record(id, value).map_err(refusal)
}

pub(super) fn reading(plugin: Plugin<'_>, id: u32, to: u32) -> Outcome<()> {
    plugin.bytes(to, 8)?;
    let value = plugin.environment().metrics.value(id).map_err(refusal)?;
    Ok(memory::write_u64(plugin.memory, to, value)?)
}

fn refusal(error: MetricError) -> Error {
    match error {
        MetricError::Unknown => Error::NotFound,
        MetricError::Beyond { .. } => Error::Limit,
        _ => Error::BadArgument,
    }
}
