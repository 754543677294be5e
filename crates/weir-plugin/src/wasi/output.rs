//! Standard streams: what is written becomes lines of the log, what is read is at its end.

use wasmtime::{Caller, Linker};

use super::{Errno, Outcome, functions};
use crate::host::Host;
use crate::limits::OUTPUT_LINE_BYTES_MAX;
use crate::log::{self, Level};
use crate::memory;

const STDIN: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

/// Parts of one write. POSIX systems take 1024.
const PARTS_MAX: u32 = 1024;

/// WASI's file type of a terminal, which keeps runtimes from holding lines back.
const CHARACTER_DEVICE: u8 = 2;

/// What an instance has written and not ended with a new line yet, and how it exited.
#[derive(Default)]
pub(crate) struct State {
    output: Vec<u8>,
    errors: Vec<u8>,
    exit_code: Option<u32>,
}

impl State {
    pub(super) fn exit(&mut self, code: u32) {
        self.exit_code = Some(code);
    }

    /// What the plugin exited with, if it did.
    pub(crate) fn exit_code(&self) -> Option<u32> {
        self.exit_code
    }
}

/// Logs what is held of lines that were not ended; called when a call into the plugin is over.
#[inline]
pub(crate) fn flush(host: &mut Host) {
    let Host { wasi, environment, .. } = host;
    for (level, held) in [(Level::Info, &mut wasi.output), (Level::Error, &mut wasi.errors)] {
        if !held.is_empty() {
            log::say(environment, level, held);
            held.clear();
        }
    }
}

pub(super) fn link(linker: &mut Linker<Host>, module: &str) -> wasmtime::Result<()> {
    functions! { linker module:
        "fd_write" = write, fd: u32, parts: u32, count: u32, written: u32;
        "fd_read" = read, fd: u32, parts: u32, count: u32, bytes: u32;
        "fd_close" = close, fd: u32;
        "fd_seek" = seek, fd: u32, offset: u64, whence: u32, position: u32;
        "fd_tell" = tell, fd: u32, position: u32;
        "fd_fdstat_get" = fdstat, fd: u32, stat: u32;
        "fd_fdstat_set_flags" = set_flags, fd: u32, flags: u32;
        "fd_filestat_get" = filestat, fd: u32, stat: u32;
    }
    Ok(())
}

fn is_standard(fd: u32) -> Outcome {
    if fd <= STDERR { Ok(()) } else { Err(Errno::BadFd) }
}

fn write(
    memory: &mut [u8],
    host: &mut Host,
    fd: u32,
    parts: u32,
    count: u32,
    written: u32,
) -> Outcome {
    let (level, mut held) = match fd {
        STDOUT => (Level::Info, std::mem::take(&mut host.wasi.output)),
        STDERR => (Level::Error, std::mem::take(&mut host.wasi.errors)),
        _ => return Err(Errno::BadFd),
    };
    let result = gather(memory, parts, count, &mut |part| {
        held.extend_from_slice(part);
        while let Some(end) = held.iter().position(|&byte| byte == b'\n') {
            log::say(&host.environment, level, &held[..end]);
            held.drain(..=end);
        }
        if held.len() >= OUTPUT_LINE_BYTES_MAX {
            log::say(&host.environment, level, &held);
            held.clear();
        }
    });
    match fd {
        STDOUT => host.wasi.output = held,
        _ => host.wasi.errors = held,
    }
    Ok(memory::write_u32(memory, written, result?)?)
}

/// Calls `take` with each part. Returns their bytes.
fn gather(memory: &[u8], parts: u32, count: u32, take: &mut dyn FnMut(&[u8])) -> Outcome<u32> {
    if count > PARTS_MAX {
        return Err(Errno::Invalid);
    }
    let list = memory::slice(memory, parts, count * 8)?;
    let mut bytes = 0_u32;
    for part in list.as_chunks::<8>().0 {
        let [a, b, c, d, e, f, g, h] = *part;
        let (data, size) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        take(memory::slice(memory, data, size)?);
        bytes = bytes.checked_add(size).ok_or(Errno::Invalid)?;
    }
    Ok(bytes)
}

fn read(memory: &mut [u8], _: &mut Host, fd: u32, parts: u32, count: u32, bytes: u32) -> Outcome {
    if fd != STDIN {
        return Err(Errno::BadFd);
    }
    gather(memory, parts, count, &mut |_| {})?;
    Ok(memory::write_u32(memory, bytes, 0)?)
}

fn close(_: &mut [u8], _: &mut Host, fd: u32) -> Outcome {
    is_standard(fd)
}

fn seek(_: &mut [u8], _: &mut Host, fd: u32, _offset: u64, _whence: u32, _at: u32) -> Outcome {
    is_standard(fd)?;
    Err(Errno::IllegalSeek)
}

fn tell(_: &mut [u8], _: &mut Host, fd: u32, _position: u32) -> Outcome {
    is_standard(fd)?;
    Err(Errno::IllegalSeek)
}

fn fdstat(memory: &mut [u8], _: &mut Host, fd: u32, stat: u32) -> Outcome {
    is_standard(fd)?;
    // u8 type, u16 flags at 2, u64 rights at 8, u64 rights of what is opened from it at 16.
    let stat = memory::slice_mut(memory, stat, 24)?;
    stat.fill(0);
    stat[0] = CHARACTER_DEVICE;
    // fd_read is the second right, fd_write the seventh.
    stat[8] = if fd == STDIN { 1 << 1 } else { 1 << 6 };
    Ok(())
}

fn set_flags(_: &mut [u8], _: &mut Host, fd: u32, _flags: u32) -> Outcome {
    is_standard(fd)
}

fn filestat(memory: &mut [u8], _: &mut Host, fd: u32, stat: u32) -> Outcome {
    is_standard(fd)?;
    // The type is at 16; device, size and times are nothing.
    let stat = memory::slice_mut(memory, stat, 64)?;
    stat.fill(0);
    stat[16] = CHARACTER_DEVICE;
    Ok(())
}
