//! One vectored write: heap slices by sendmsg, slices of an arena by sendfile, in order, and the
//! head of a response in the same packet as the first byte of its body.

use std::cell::RefCell;
use std::io::{self, IoSlice};

use rustix::net::{SendAncillaryBuffer, SendFlags};
use weir_arena::locate;

use crate::socket::Socket;

/// Slices below this size are copied even if they lie in an arena. Measured on loopback: under
/// about 8 KiB a copy costs no more than a second system call.
const SENDFILE_MIN_BYTES: usize = 8 << 10;

/// Slices of up to this size together are gathered: copying costs less than making the kernel read
/// a list of slices. Measured to make no difference from there on.
const GATHER_BYTES_MAX: usize = 2048;

thread_local! {
    static GATHERED: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(GATHER_BYTES_MAX));
}

/// Slices looked at in one call; hyper passes at most 64.
const SLICES_MAX: usize = 64;

/// Writes as much as the socket takes. Returns the bytes written, at least one, or `WouldBlock`.
pub(crate) fn send_vectored(socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut written = 0;
    let mut rest = &slices[..slices.len().min(SLICES_MAX)];
    while !rest.is_empty() {
        let heap = rest.iter().take_while(|slice| !goes_by_sendfile(slice)).count();
        let (now, then) = if heap > 0 { rest.split_at(heap) } else { rest.split_at(1) };
        let wanted: usize = now.iter().map(|slice| slice.len()).sum();
        let result = if heap > 0 {
            send_copied(socket, now, !then.is_empty() || socket.is_last())
        } else {
            if socket.is_last() {
                // Where it fails the last bytes leave a packet earlier than they could.
                let _ = rustix::net::sockopt::set_tcp_cork(socket, true);
            }
            send_located(socket, &now[0])
        };
        match result {
            Ok(n) => {
                written += n;
                if n < wanted {
                    break;
                }
            }
            // What was written before must be told; the reason comes back with the next call.
            Err(_) if written > 0 => break,
            Err(e) => return Err(e),
        }
        rest = then;
    }
    Ok(written)
}

fn goes_by_sendfile(slice: &[u8]) -> bool {
    slice.len() >= SENDFILE_MIN_BYTES && locate(slice).is_some()
}

fn send_copied(socket: &Socket, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL;
    if more {
        flags |= SendFlags::MORE;
    }
    if let [slice] = slices {
        return Ok(rustix::net::send(socket, slice, flags)?);
    }
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    if total <= GATHER_BYTES_MAX {
        return GATHERED.with_borrow_mut(|gathered| {
            gathered.clear();
            for slice in slices {
                gathered.extend_from_slice(slice);
            }
            Ok(rustix::net::send(socket, gathered, flags)?)
        });
    }
    let mut control = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(socket, slices, &mut control, flags)?)
}

fn send_located(socket: &Socket, slice: &[u8]) -> io::Result<usize> {
    let Some(location) = locate(slice) else {
        return Ok(rustix::net::send(socket, slice, SendFlags::NOSIGNAL)?);
    };
    let mut offset = location.offset;
    let mut sent = 0;
    while sent < slice.len() {
        let left = slice.len() - sent;
        match rustix::fs::sendfile(socket, location.fd, Some(&mut offset), left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) if sent > 0 => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(sent)
}
