//! Bytes from and to a service, and when they take too long.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

use crate::error::IcapError;

/// Bytes that are asked for at a time.
const READ_BYTES: usize = 16 << 10;

/// One direction of a connection, with what has come and was not taken.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: OwnedReadHalf,
    pub(crate) buffer: BytesMut,
}

impl Incoming {
    /// Waits for more bytes. Dropped before it is ready, it has taken none.
    pub(crate) async fn more(&mut self) -> Result<(), IcapError> {
        self.buffer.reserve(READ_BYTES);
        match self.from.read_buf(&mut self.buffer).await {
            Ok(0) => Err(IcapError::Closed),
            Ok(_) => Ok(()),
            Err(cause) => Err(IcapError::Broken(cause)),
        }
    }
}

/// Waits no longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    what: impl Future<Output = Result<T, IcapError>>,
) -> Result<T, IcapError> {
    timeout(limit, what).await.unwrap_or(Err(IcapError::Timeout(limit)))
}

/// Writes all, and waits no longer than `limit` for it.
pub(crate) async fn write_all(
    to: &mut (impl AsyncWrite + Unpin),
    mut text: impl Buf,
    limit: Duration,
) -> Result<(), IcapError> {
    within(limit, async { to.write_all_buf(&mut text).await.map_err(IcapError::Broken) }).await
}
