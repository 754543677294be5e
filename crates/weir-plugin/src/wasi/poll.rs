//! Waiting, which plugins cannot do: a worker has other requests. What they would wait for has
//! happened already, or never will.

use wasmtime::{Caller, Linker};

use super::{Errno, Outcome, functions};
use crate::host::Host;
use crate::memory;

/// Subscriptions of one call.
const SUBSCRIPTIONS_MAX: u32 = 1024;

/// Bytes of an event: u64 user data, u16 error at 8, u8 type at 10, u64 bytes at 16.
const EVENT_BYTES: u32 = 32;

/// Kinds of subscriptions.
const CLOCK: u8 = 0;
const FD_WRITE: u8 = 2;

pub(super) fn link(linker: &mut Linker<Host>, module: &str) -> wasmtime::Result<()> {
    if module == super::MODULES[0] {
        functions! { linker module:
            "poll_oneoff" = poll, from: u32, to: u32, count: u32, happened: u32;
        }
    } else {
        functions! { linker module:
            "poll_oneoff" = poll_preview_0, from: u32, to: u32, count: u32, happened: u32;
        }
    }
    Ok(())
}

fn poll(memory: &mut [u8], _: &mut Host, from: u32, to: u32, count: u32, happened: u32) -> Outcome {
    answer(memory, from, 48, to, count, happened)
}

/// Its subscriptions have an identifier of the clock more.
fn poll_preview_0(
    memory: &mut [u8],
    _: &mut Host,
    from: u32,
    to: u32,
    count: u32,
    happened: u32,
) -> Outcome {
    answer(memory, from, 56, to, count, happened)
}

fn answer(
    memory: &mut [u8],
    from: u32,
    subscription_bytes: u32,
    to: u32,
    count: u32,
    happened: u32,
) -> Outcome {
    if count == 0 || count > SUBSCRIPTIONS_MAX {
        return Err(Errno::Invalid);
    }
    let wanted = memory::slice(memory, from, subscription_bytes * count)?.to_vec();
    let events = memory::slice_mut(memory, to, EVENT_BYTES * count)?;
    let (events, _) = events.as_chunks_mut::<{ EVENT_BYTES as usize }>();
    for (event, wanted) in events.iter_mut().zip(wanted.chunks(subscription_bytes as usize)) {
        event.fill(0);
        event[..8].copy_from_slice(&wanted[..8]);
        let kind = wanted[8];
        let is_output = kind == FD_WRITE && matches!(wanted[16..20], [1 | 2, 0, 0, 0]);
        if kind != CLOCK && !is_output {
            event[8] = Errno::BadFd as u8;
        }
        event[10] = kind;
    }
    Ok(memory::write_u32(memory, happened, count)?)
}
