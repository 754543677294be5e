//! WASI preview 1, as far as toolchains of plugins import it: clocks, randomness, environment, and
//! output to the log. There are no files, directories or sockets; what asks for one gets the error
//! that a system without them would give.

mod output;
mod poll;
mod refused;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::{Caller, Linker, Memory};

pub(crate) use output::{State, flush};

use crate::failure::{Failure, FailureKind};
use crate::host::Host;
use crate::limits::RANDOM_BYTES_MAX;
use crate::memory::{self, OutOfBounds};

/// The modules that the functions are imported from; the second is preview 0, whose functions of
/// the same name differ only where [`poll`] says.
const MODULES: [&str; 2] = ["wasi_snapshot_preview1", "wasi_unstable"];

/// WASI's `errno`, those that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errno {
    BadFd = 8,
    Fault = 21,
    Invalid = 28,
    NotSupported = 58,
    IllegalSeek = 70,
}

impl From<OutOfBounds> for Errno {
    fn from(_: OutOfBounds) -> Errno {
        Errno::Fault
    }
}

type Outcome<T = ()> = Result<T, Errno>;

fn errno(outcome: Outcome) -> u32 {
    outcome.map_or_else(|errno| errno as u32, |()| 0)
}

/// Adds the functions.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    for module in MODULES {
        link_real(linker, module)?;
        output::link(linker, module)?;
        poll::link(linker, module)?;
        refused::link(linker, module)?;
    }
    Ok(())
}

/// Adds functions whose parameters are named, each with its type.
macro_rules! functions {
    ($linker:ident $module:ident: $($name:literal = $function:path, $($arg:ident: $ty:ty),*;)*) => {
        $($linker.func_wrap($module, $name, |mut caller: Caller<'_, Host>, $($arg: $ty),*| {
            $crate::wasi::errno($crate::wasi::parts(&mut caller).and_then(|(memory, host)| {
                $function(memory, host, $($arg),*)
            }))
        })?;)*
    };
}
use functions;

/// The caller's memory and the host.
fn parts<'a>(caller: &'a mut Caller<'_, Host>) -> Outcome<(&'a mut [u8], &'a mut Host)> {
    let memory: Memory = memory::of_caller(caller).ok_or(Errno::Fault)?;
    Ok(memory::split(caller, memory))
}

fn link_real(linker: &mut Linker<Host>, module: &str) -> wasmtime::Result<()> {
    functions! { linker module:
        "args_get" = args_get, argv: u32, buffer: u32;
        "args_sizes_get" = args_sizes_get, count: u32, size: u32;
        "environ_get" = environ_get, array: u32, buffer: u32;
        "environ_sizes_get" = environ_sizes_get, count: u32, size: u32;
        "clock_res_get" = clock_res_get, clock: u32, resolution: u32;
        "clock_time_get" = clock_time_get, clock: u32, precision: u64, time: u32;
        "random_get" = random_get, buffer: u32, size: u32;
    }
    linker.func_wrap(module, "sched_yield", || 0_u32)?;
    linker.func_wrap(module, "proc_exit", |mut caller: Caller<'_, Host>, code: u32| {
        caller.data_mut().wasi.exit(code);
        let failure = Failure::new(FailureKind::Exit, format!("the plugin called exit({code})"));
        Err::<(), _>(wasmtime::Error::new(failure))
    })?;
    linker.func_wrap(module, "proc_raise", |signal: u32| {
        let failure = Failure::new(FailureKind::Exit, format!("the plugin raised signal {signal}"));
        Err::<u32, _>(wasmtime::Error::new(failure))
    })?;
    Ok(())
}

fn args_get(_: &mut [u8], _: &mut Host, _argv: u32, _buffer: u32) -> Outcome {
    Ok(())
}

fn args_sizes_get(memory: &mut [u8], _: &mut Host, count: u32, size: u32) -> Outcome {
    memory::write_u32(memory, count, 0)?;
    Ok(memory::write_u32(memory, size, 0)?)
}

/// `NAME=value` of each variable, without the zero byte that ends it.
fn environment(host: &Host) -> impl Iterator<Item = String> {
    host.environment.policy.allow.environment.iter().map(|(name, value)| format!("{name}={value}"))
}

fn environ_get(memory: &mut [u8], host: &mut Host, array: u32, buffer: u32) -> Outcome {
    let (mut place, mut at) = (array, buffer);
    for variable in environment(host) {
        // Configuration files are shorter than 4 GiB.
        let len = u32::try_from(variable.len()).map_err(|_| Errno::Fault)?;
        memory::write_u32(memory, place, at)?;
        memory::slice_mut(memory, at, len)?.copy_from_slice(variable.as_bytes());
        let end = at.checked_add(len).ok_or(Errno::Fault)?;
        memory::slice_mut(memory, end, 1)?[0] = 0;
        place = place.checked_add(4).ok_or(Errno::Fault)?;
        at = end.checked_add(1).ok_or(Errno::Fault)?;
    }
    Ok(())
}

fn environ_sizes_get(memory: &mut [u8], host: &mut Host, count: u32, size: u32) -> Outcome {
    let (mut variables, mut bytes) = (0_u32, 0_usize);
    for variable in environment(host) {
        variables += 1;
        bytes += variable.len() + 1;
    }
    memory::write_u32(memory, count, variables)?;
    Ok(memory::write_u32(memory, size, u32::try_from(bytes).map_err(|_| Errno::Fault)?)?)
}

fn clock_res_get(memory: &mut [u8], _: &mut Host, clock: u32, resolution: u32) -> Outcome {
    if clock > 1 {
        return Err(Errno::NotSupported);
    }
    Ok(memory::write_u64(memory, resolution, 1)?)
}

fn clock_time_get(
    memory: &mut [u8],
    _: &mut Host,
    clock: u32,
    _precision: u64,
    time: u32,
) -> Outcome {
    let now = match clock {
        0 => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
        1 => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            // Since the machine started: never negative.
            now.tv_sec.unsigned_abs() as u128 * 1_000_000_000 + now.tv_nsec.unsigned_abs() as u128
        }
        _ => return Err(Errno::NotSupported),
    };
    Ok(memory::write_u64(memory, time, u64::try_from(now).unwrap_or(u64::MAX))?)
}

fn random_get(memory: &mut [u8], _: &mut Host, buffer: u32, size: u32) -> Outcome {
    if size as usize > RANDOM_BYTES_MAX {
        return Err(Errno::Invalid);
    }
    let buffer = memory::slice_mut(memory, buffer, size)?;
    aws_lc_rs::rand::fill(buffer).map_err(|_| Errno::NotSupported)
}
