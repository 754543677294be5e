//! Host functions for shared data, shared queues and metrics.

use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::host::Environment;
use crate::shared::{DataError, Expect, MetricError, MetricKind, QueueError};

/// Under which name a key is kept, and as what. A key is the plugin's own, unless it begins with
/// the name of somebody else's data, which the plugin may use, and a slash.
fn place<'a>(environment: &'a Environment, key: &'a str) -> (&'a str, &'a str) {
    match key.split_once('/') {
        Some((space, rest)) if environment.policy.allow.shared.contains(space) => (space, rest),
        _ => (&environment.name, key),
    }
}

pub(super) fn data(
    plugin: &mut Plugin<'_>,
    key_data: u32,
    key_size: u32,
    return_data: u32,
    return_size: u32,
    return_cas: u32,
) -> Outcome {
    let key = plugin.name(key_data, key_size)?;
    plugin.expect_room(return_cas)?;
    let environment = plugin.environment();
    let (space, key) = place(environment, &key);
    let (value, cas) = environment.commons.data(space, key).ok_or(Status::NotFound)?;
    plugin.give(&value, return_data, return_size)?;
    plugin.write_u32(return_cas, cas)
}

pub(super) fn set_data(
    plugin: &mut Plugin<'_>,
    key_data: u32,
    key_size: u32,
    value_data: u32,
    value_size: u32,
    cas: u32,
) -> Outcome {
    let key = plugin.name(key_data, key_size)?;
    let value = plugin.owned(value_data, value_size)?;
    let environment = plugin.environment();
    let (space, key) = place(environment, &key);
    match environment.commons.set_data(space, key, value, Expect::from_cas(cas)) {
        Ok(_) => Ok(()),
        Err(DataError::Mismatch) => Err(Status::CasMismatch.into()),
        // Of the statuses that the specification has for this call, the one that plugins are
        // prepared for and that says that nothing was stored.
        Err(error @ DataError::Beyond { .. }) => {
            plugin.warn(&format!("shared data was not set: {error}"));
            Err(Status::CasMismatch.into())
        }
    }
}

pub(super) fn register_queue(
    plugin: &mut Plugin<'_>,
    name_data: u32,
    name_size: u32,
    return_id: u32,
) -> Outcome {
    let name = plugin.name(name_data, name_size)?;
    plugin.expect_room(return_id)?;
    let host = plugin.host();
    let environment = &host.environment;
    match environment.commons.register_queue(&environment.name, &name, &host.home) {
        Ok(id) => plugin.write_u32(return_id, id),
        Err(error) => {
            plugin.warn(&format!("a shared queue was not registered: {error}"));
            Err(Status::InvalidMemoryAccess.into())
        }
    }
}

pub(super) fn resolve_queue(
    plugin: &mut Plugin<'_>,
    vm_data: u32,
    vm_size: u32,
    name_data: u32,
    name_size: u32,
    return_id: u32,
) -> Outcome {
    let space = plugin.name(vm_data, vm_size)?;
    let name = plugin.name(name_data, name_size)?;
    plugin.expect_room(return_id)?;
    let environment = plugin.environment();
    // Plugins that were never given a virtual machine's id call theirs the empty one.
    let space = if space.is_empty() { &environment.name } else { &space };
    if !may_share(environment, space) {
        return Err(Status::NotFound.into());
    }
    let id = environment.commons.queue(space, &name).ok_or(Status::NotFound)?;
    plugin.write_u32(return_id, id)
}

fn may_share(environment: &Environment, space: &str) -> bool {
    *space == environment.name || environment.policy.allow.shared.contains(space)
}

pub(super) fn enqueue(plugin: &mut Plugin<'_>, id: u32, data: u32, size: u32) -> Outcome {
    let value = plugin.owned(data, size)?;
    let environment = plugin.environment();
    match environment.commons.enqueue(id, value, |space| may_share(environment, space)) {
        Ok(()) => Ok(()),
        Err(QueueError::Unknown) => Err(Status::NotFound.into()),
        Err(error) => {
            plugin.warn(&format!("nothing was put into a shared queue: {error}"));
            Err(Status::NotFound.into())
        }
    }
}

pub(super) fn dequeue(
    plugin: &mut Plugin<'_>,
    id: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    // What is taken out cannot be put back to the front.
    plugin.expect_room(return_data)?;
    plugin.expect_room(return_size)?;
    let environment = plugin.environment();
    match environment.commons.dequeue(id, |space| may_share(environment, space)) {
        Ok(Some(value)) => plugin.give(&value, return_data, return_size),
        Ok(None) => Err(Status::Empty.into()),
        Err(_) => Err(Status::NotFound.into()),
    }
}

pub(super) fn define_metric(
    plugin: &mut Plugin<'_>,
    kind: u32,
    name_data: u32,
    name_size: u32,
    return_id: u32,
) -> Outcome {
    let kind = MetricKind::new(kind).ok_or(Status::BadArgument)?;
    let name = plugin.name(name_data, name_size)?;
    plugin.expect_room(return_id)?;
    match plugin.environment().metrics.define(kind, &name) {
        Ok(id) => plugin.write_u32(return_id, id),
        Err(error) => {
            plugin.warn(&format!("the metric {name:?} was not defined: {error}"));
            Err(Status::BadArgument.into())
        }
    }
}

pub(super) fn record_metric(plugin: &mut Plugin<'_>, id: u32, value: u64) -> Outcome {
    plugin.environment().metrics.record(id, value).map_err(|_| Status::NotFound.into())
}

pub(super) fn increment_metric(plugin: &mut Plugin<'_>, id: u32, delta: u64) -> Outcome {
    match plugin.environment().metrics.add(id, delta.cast_signed()) {
        Ok(()) => Ok(()),
        Err(MetricError::Unknown) => Err(Status::NotFound.into()),
        Err(_) => Err(Status::BadArgument.into()),
    }
}

pub(super) fn metric(plugin: &mut Plugin<'_>, id: u32, return_value: u32) -> Outcome {
    let value = plugin.environment().metrics.value(id).map_err(|_| Status::NotFound)?;
    plugin.write_u64(return_value, value)
}
