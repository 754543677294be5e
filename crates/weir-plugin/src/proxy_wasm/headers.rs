//! Host functions for header and trailer sections.

use http::HeaderName;

use super::fields::{self, Map, Others, Section};
use super::maps;
use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::module::ProxyWasmVersion;
use crate::own::may_be_trailer;

pub(super) fn size(plugin: &mut Plugin<'_>, map: u32, return_size: u32) -> Outcome {
    let map = Map::new(map)?;
    let context = plugin.context();
    let size = fields::view(plugin.host(), context, map).map_or(0, |view| maps::size(view.iter()));
    plugin.write_u32(return_size, u32::try_from(size).unwrap_or(u32::MAX))
}

pub(super) fn pairs(
    plugin: &mut Plugin<'_>,
    map: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    let map = Map::new(map)?;
    let context = plugin.context();
    let size = fields::view(plugin.host(), context, map).map_or(0, |view| maps::size(view.iter()));
    plugin.give_with(size, return_data, return_size, |to, host| {
        if let Some(view) = fields::view(host, context, map) {
            maps::write(to, || view.iter());
        }
    })
}

pub(super) fn set_pairs(plugin: &mut Plugin<'_>, map: u32, data: u32, size: u32) -> Outcome {
    let map = Map::new(map)?;
    let bytes = plugin.owned(data, size)?;
    let mut pairs = maps::parse(&bytes).ok_or(Status::BadArgument)?;
    pairs.retain(|(name, _)| may_stand(plugin, map, name));
    change(plugin, map, |section| section.replace(pairs.into_iter()))
}

/// Whether a field may stand in a map. One that may not be a trailer is left out, and the log says
/// so: SDKs know no status for it.
fn may_stand(plugin: &Plugin<'_>, map: Map, name: &[u8]) -> bool {
    let is_trailers = matches!(map, Map::RequestTrailers | Map::ResponseTrailers);
    let name = HeaderName::from_bytes(name).ok().filter(|_| is_trailers);
    let forbidden = name.filter(|name| !may_be_trailer(name));
    if let Some(name) = &forbidden {
        plugin.warn(&format!("{name} may not be a trailer; it is left out"));
    }
    forbidden.is_none()
}

pub(super) fn value(
    plugin: &mut Plugin<'_>,
    map: u32,
    name_data: u32,
    name_size: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    let map = Map::new(map)?;
    let context = plugin.context();
    // The value is copied once more, so that the allocator may do what it likes meanwhile.
    let mut scratch = std::mem::take(&mut plugin.state().scratch);
    scratch.clear();
    plugin.bytes(name_data, name_size)?;
    let (memory, host) = plugin.split();
    let name = crate::memory::slice(memory, name_data, name_size)?;
    let found = fields::view(host, context, map).and_then(|view| view.value(name));
    match found {
        Some(value) => scratch.extend_from_slice(value),
        // 0.1.0 does not tell a field that is not there from one that is empty.
        None if host.proxy_wasm.version == Some(ProxyWasmVersion::V0_1_0) => {}
        None => {
            plugin.state().scratch = scratch;
            return Err(Status::NotFound.into());
        }
    }
    let given = plugin.give(&scratch, return_data, return_size);
    plugin.state().scratch = scratch;
    given
}

pub(super) fn add(
    plugin: &mut Plugin<'_>,
    map: u32,
    name_data: u32,
    name_size: u32,
    value_data: u32,
    value_size: u32,
) -> Outcome {
    set(plugin, map, (name_data, name_size), (value_data, value_size), Others::Stay)
}

pub(super) fn replace(
    plugin: &mut Plugin<'_>,
    map: u32,
    name_data: u32,
    name_size: u32,
    value_data: u32,
    value_size: u32,
) -> Outcome {
    set(plugin, map, (name_data, name_size), (value_data, value_size), Others::Go)
}

fn set(
    plugin: &mut Plugin<'_>,
    map: u32,
    name: (u32, u32),
    value: (u32, u32),
    others: Others,
) -> Outcome {
    let map = Map::new(map)?;
    let context = plugin.context();
    if matches!(map, Map::RequestTrailers | Map::ResponseTrailers) {
        let name = plugin.owned(name.0, name.1)?;
        if !may_stand(plugin, map, &name) {
            return Ok(());
        }
    }
    let (memory, host) = plugin.split();
    let name = crate::memory::slice(memory, name.0, name.1)?;
    let value = crate::memory::slice(memory, value.0, value.1)?;
    let exchange = host.exchanges.get_mut(&context).ok_or(Status::BadArgument)?;
    let mut section = fields::section(exchange, map).ok_or(Status::BadArgument)?;
    Ok(section.set(name, value, others)?)
}

pub(super) fn remove(plugin: &mut Plugin<'_>, map: u32, name_data: u32, name_size: u32) -> Outcome {
    let map = Map::new(map)?;
    let name = plugin.owned(name_data, name_size)?;
    change(plugin, map, |section| section.remove(&name))
}

fn change(
    plugin: &mut Plugin<'_>,
    map: Map,
    change: impl FnOnce(&mut Section<'_>) -> Result<(), Status>,
) -> Outcome {
    let exchange = plugin.exchange().ok_or(Status::BadArgument)?;
    let mut section = fields::section(exchange, map).ok_or(Status::BadArgument)?;
    Ok(change(&mut section)?)
}
