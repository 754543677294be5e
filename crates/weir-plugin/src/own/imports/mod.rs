//! The functions that plugins import from the module `weir`. They trust no number: what is wrong
//! comes back as an error, and changes nothing.

mod basics;
mod calls;
mod content;
mod shared;

use wasmtime::{Caller, Linker};

use super::area::{Area, Kind};
use crate::failure::FailureKind;
use crate::host::{Environment, Host};
use crate::log::{self, Level};
use crate::memory::{self, OutOfBounds};

/// What all functions are imported from.
const MODULE: &str = "weir";

/// Why a function did nothing, as its negative result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Error {
    NotFound = -1,
    BadArgument = -2,
    NotAllowed = -3,
    BadMemory = -4,
    Limit = -5,
    Failed = -6,
    Mismatch = -7,
    Empty = -8,
}

type Outcome<T> = Result<T, Error>;

impl From<OutOfBounds> for Error {
    fn from(_: OutOfBounds) -> Error {
        Error::BadMemory
    }
}

fn code(outcome: Outcome<u32>) -> i32 {
    match outcome {
        Ok(number) => i32::try_from(number).unwrap_or(i32::MAX),
        Err(error) => error as i32,
    }
}

fn done(outcome: Outcome<()>) -> i32 {
    code(outcome.map(|()| 0))
}

/// The guest's memory and the host, while a function runs.
struct Plugin<'a> {
    memory: &'a mut [u8],
    host: &'a mut Host,
}

impl<'a> Plugin<'a> {
    fn of(caller: &'a mut Caller<'_, Host>) -> Outcome<Plugin<'a>> {
        let memory = memory::of_caller(caller).ok_or(Error::BadMemory)?;
        let (memory, host) = memory::split(caller, memory);
        host.own.was_asked = true;
        Ok(Plugin { memory, host })
    }

    fn environment(&self) -> &Environment {
        &self.host.environment
    }

    fn bytes(&self, ptr: u32, len: u32) -> Outcome<&[u8]> {
        Ok(memory::slice(self.memory, ptr, len)?)
    }

    fn text(&self, ptr: u32, len: u32) -> Outcome<&str> {
        std::str::from_utf8(self.bytes(ptr, len)?).map_err(|_| Error::BadArgument)
    }

    /// Tells the operator what the plugin is not told: why.
    fn warn(&self, text: &str) {
        log::say(self.environment(), Level::Warn, text.as_bytes());
    }
}

/// Returns bytes in the guest's result buffer: address above, length below.
///
/// # Errors
/// If the guest fails when it is asked for a larger buffer.
fn give(
    caller: &mut Caller<'_, Host>,
    outcome: Outcome<impl AsRef<[u8]>>,
) -> wasmtime::Result<i64> {
    let value = match outcome {
        Ok(value) => value,
        Err(error) => return Ok(error as i64),
    };
    let value = value.as_ref();
    let Some(memory) = memory::of_caller(caller) else { return Ok(Error::BadMemory as i64) };
    if caller.data().own.results.len < value.len() {
        let Some(function) = caller.data().own.buffer.clone() else {
            return Ok(Error::Failed as i64);
        };
        match Area::ask(&mut *caller, memory, &function, Kind::Results, value.len()) {
            Ok(area) => caller.data_mut().own.results = area,
            Err(failure) if failure.kind == FailureKind::Memory => return Ok(Error::Limit as i64),
            Err(failure) => return Err(failure.into()),
        }
    }
    let (data, host) = memory::split(caller, memory);
    let area = host.own.results;
    area.of(data)[..value.len()].copy_from_slice(value);
    Ok(i64::from(area.ptr) << 32 | value.len() as i64)
}

/// Lines of names and values, as plugins read them: `{u32 name length, u32 value length, name,
/// value}`, one after the other.
fn lines<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (name, value) in lines {
        for len in [name.len(), value.len()] {
            encoded.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        }
        encoded.extend_from_slice(name);
        encoded.extend_from_slice(value);
    }
    encoded
}

/// The functions' names, for the specification.
#[cfg(test)]
pub(crate) const NAMES: &[&str] = &[
    "log",
    "now",
    "random",
    "tick",
    "property",
    "property_set",
    "call",
    "shared_get",
    "shared_set",
    "queue_open",
    "queue_push",
    "queue_pop",
    "metric",
    "metric_add",
    "metric_set",
    "metric_get",
    "cache_query",
    "cache_fields",
    "cache_read",
    "cache_inject",
    "cache_expire",
    "cache_purge",
];

/// Adds the functions.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    link_basics(linker)?;
    link_shared(linker)?;
    link_content(linker)
}

type C<'a> = Caller<'a, Host>;

fn link_basics(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "log", |mut c: C<'_>, level: u32, ptr: u32, len: u32| {
        done(Plugin::of(&mut c).and_then(|plugin| basics::log(&plugin, level, ptr, len)))
    })?;
    linker.func_wrap(MODULE, "now", basics::now)?;
    linker.func_wrap(MODULE, "random", |mut c: C<'_>, ptr: u32, len: u32| {
        done(Plugin::of(&mut c).and_then(|plugin| basics::random(plugin, ptr, len)))
    })?;
    linker.func_wrap(MODULE, "tick", |mut c: C<'_>, ms: u32| {
        done(Plugin::of(&mut c).and_then(|plugin| basics::tick(plugin, ms)))
    })?;
    linker.func_wrap(MODULE, "property", |mut c: C<'_>, ptr: u32, len: u32| {
        let value = Plugin::of(&mut c).and_then(|plugin| basics::property(&plugin, ptr, len));
        give(&mut c, value)
    })?;
    linker.func_wrap(
        MODULE,
        "property_set",
        |mut c: C<'_>, path: u32, path_len: u32, ptr: u32, len: u32| {
            let plugin = Plugin::of(&mut c);
            done(plugin.and_then(|mut plugin| {
                basics::set_property(&mut plugin, (path, path_len), (ptr, len))
            }))
        },
    )?;
    linker.func_wrap(MODULE, "call", |mut c: C<'_>, ptr: u32, len: u32, timeout_ms: u32| {
        code(Plugin::of(&mut c).and_then(|plugin| calls::call(plugin, ptr, len, timeout_ms)))
    })?;
    Ok(())
}

fn link_shared(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "shared_get", |mut c: C<'_>, ptr: u32, len: u32, cas: u32| {
        let value = Plugin::of(&mut c).and_then(|plugin| shared::data(plugin, ptr, len, cas));
        give(&mut c, value)
    })?;
    linker.func_wrap(
        MODULE,
        "shared_set",
        |mut c: C<'_>, key: u32, key_len: u32, ptr: u32, len: u32, cas: u32| {
            let plugin = Plugin::of(&mut c);
            done(
                plugin
                    .and_then(|plugin| shared::set_data(&plugin, (key, key_len), (ptr, len), cas)),
            )
        },
    )?;
    linker.func_wrap(MODULE, "queue_open", |mut c: C<'_>, ptr: u32, len: u32| {
        code(Plugin::of(&mut c).and_then(|plugin| shared::open_queue(&plugin, ptr, len)))
    })?;
    linker.func_wrap(MODULE, "queue_push", |mut c: C<'_>, id: u32, ptr: u32, len: u32| {
        done(Plugin::of(&mut c).and_then(|plugin| shared::push(&plugin, id, ptr, len)))
    })?;
    linker.func_wrap(MODULE, "queue_pop", |mut c: C<'_>, id: u32| {
        let value = Plugin::of(&mut c).and_then(|plugin| shared::pop(&plugin, id));
        give(&mut c, value)
    })?;
    linker.func_wrap(MODULE, "metric", |mut c: C<'_>, kind: u32, ptr: u32, len: u32| {
        code(Plugin::of(&mut c).and_then(|plugin| shared::metric(&plugin, kind, ptr, len)))
    })?;
    linker.func_wrap(MODULE, "metric_add", |mut c: C<'_>, id: u32, delta: i64| {
        done(Plugin::of(&mut c).and_then(|plugin| shared::add(&plugin, id, delta)))
    })?;
    linker.func_wrap(MODULE, "metric_set", |mut c: C<'_>, id: u32, value: u64| {
        done(Plugin::of(&mut c).and_then(|plugin| shared::record(&plugin, id, value)))
    })?;
    linker.func_wrap(MODULE, "metric_get", |mut c: C<'_>, id: u32, to: u32| {
        done(Plugin::of(&mut c).and_then(|plugin| shared::reading(plugin, id, to)))
    })?;
    Ok(())
}

fn link_content(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "cache_query", |mut c: C<'_>, ptr: u32, len: u32, to: u32| {
        done(Plugin::of(&mut c).and_then(|plugin| content::query(plugin, ptr, len, to)))
    })?;
    linker.func_wrap(MODULE, "cache_fields", |mut c: C<'_>, ptr: u32, len: u32| {
        let value = Plugin::of(&mut c).and_then(|plugin| content::fields(&plugin, ptr, len));
        give(&mut c, value)
    })?;
    linker.func_wrap(
        MODULE,
        "cache_read",
        |mut c: C<'_>, ptr: u32, len: u32, offset: u64, max: u32| {
            let value =
                Plugin::of(&mut c).and_then(|plugin| content::read(&plugin, ptr, len, offset, max));
            give(&mut c, value)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "cache_inject",
        |mut c: C<'_>, url: u32, url_len: u32, ptr: u32, len: u32, ttl_ms: u64| {
            let plugin = Plugin::of(&mut c);
            done(
                plugin.and_then(|plugin| {
                    content::inject(&plugin, (url, url_len), (ptr, len), ttl_ms)
                }),
            )
        },
    )?;
    linker.func_wrap(MODULE, "cache_expire", |mut c: C<'_>, ptr: u32, len: u32| {
        code(Plugin::of(&mut c).and_then(|plugin| content::purge(&plugin, ptr, len, true)))
    })?;
    linker.func_wrap(MODULE, "cache_purge", |mut c: C<'_>, ptr: u32, len: u32| {
        code(Plugin::of(&mut c).and_then(|plugin| content::purge(&plugin, ptr, len, false)))
    })?;
    Ok(())
}
