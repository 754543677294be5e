//! What server and helper say to each other: one message a packet over a pair of sockets
//! (SOCK_SEQPACKET), with a small result behind it and descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_image::Kept;

use crate::job::{Limits, Piece, Recipe};

/// The longest message. A packet has to fit the socket's buffer, 208 KiB unless told otherwise.
pub(crate) const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// The longest result that comes behind its report. It is copied by then; beyond that a file that
/// nobody copies is cheaper, which takes a dozen system calls, a descriptor and a mapping.
pub(crate) const BEHIND_BYTES_MAX: usize = 64 << 10;

/// Descriptors beside a message, at most.
const FDS_MAX: usize = 1;

/// To a helper.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// With the arena's reading end, once, before the first job.
    Begin,
    /// Jobs, to be done in order. With an empty memfd for a large result, if the last one has been
    /// used or there was none; behind it, pieces that are not stored.
    Work(Vec<Work>),
}

/// A job, as a helper is told it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) input: Vec<Piece>,
    pub(crate) tables: Vec<Piece>,
    pub(crate) recipe: Recipe,
    pub(crate) limits: Limits,
}

/// From a helper.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It has given up all it may not have, and waits for work; the words say what could not be
    /// given up, as the kernel does not know it.
    Ready { lacks: Vec<String> },
    /// The ends of so many jobs, in the order in which they were told; behind it, small results.
    Done(Vec<End>),
}

/// The end of a job.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum End {
    /// There is a result.
    Made { place: Place, detail: String },
    /// The original is as good.
    Original { why: Why },
    /// It could not be done.
    Failed { what: String },
    /// The result is large, and another job has used the memfd.
    NoFile,
}

/// Where a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// Behind the report, after those of the jobs before.
    Behind {
        /// Bytes.
        len: u64,
    },
    /// In the memfd, which is sealed.
    File {
        /// Bytes.
        len: u64,
    },
}

/// Why the original is as good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The variant would not be smaller.
    NotSmaller,
    /// There was nothing to change.
    Unchanged,
    /// Its character encoding is one that cannot be worked on.
    Charset,
    /// A picture is left as it is.
    Image(Kept),
}

impl Why {
    /// A word for header field and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::NotSmaller => "not-smaller",
            Why::Unchanged => "unchanged",
            Why::Charset => "charset",
            Why::Image(kept) => kept.as_str(),
        }
    }
}

/// A message that has come.
pub(crate) struct Heard<'a, T> {
    pub(crate) message: T,
    /// What is behind it in its packet.
    pub(crate) rest: &'a [u8],
    pub(crate) fd: Option<OwnedFd>,
}

/// Sends a message with `rest` behind it.
///
/// # Errors
/// What the system says; `InvalidInput` if it is too long.
pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    rest: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let len = bytes.len() + rest.len();
    if len > MESSAGE_BYTES_MAX {
        let what = format!("a message of {len} bytes, of {MESSAGE_BYTES_MAX} at most");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let slices = [IoSlice::new(&bytes), IoSlice::new(rest)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &slices, &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Waits for a message. `None` when the other side is gone.
///
/// # Errors
/// What the system says; `InvalidData` for what is no message.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<Heard<'_, T>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(buffer)];
        rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Ok(None);
    }
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(invalid(format!("a message longer than {} bytes", buffer.len())));
    }
    let (message, rest) = parse(&buffer[..received.bytes])?;
    Ok(Some(Heard { message, rest, fd }))
}

/// What a packet says, and what is behind it.
///
/// # Errors
/// `InvalidData` for what is no message.
pub(crate) fn parse<T: DeserializeOwned>(packet: &[u8]) -> io::Result<(T, &[u8])> {
    postcard::take_from_bytes(packet).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not a message: {error}"))
    })
}
