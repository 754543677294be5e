//! Every limit and constant of the upstream side, in one place.

use std::time::Duration;

/// Addresses of one name that are tried; more would only spend the connect timeout.
pub(super) const ADDRESSES_MAX: usize = 8;
/// Head start of one address before the next is tried beside it (RFC 8305, section 5).
pub(super) const ADDRESS_STAGGER: Duration = Duration::from_millis(250);
/// How long a resolved name is used again. Short: a changed record is seen within seconds, and
/// keep-alive makes look-ups rare anyway.
pub(super) const DNS_FRESH: Duration = Duration::from_secs(5);
/// How long the last answer outlives a resolver that fails.
pub(super) const DNS_STALE: Duration = Duration::from_secs(300);

/// Bytes of a response head, and of trailers.
pub(super) const HEAD_SIZE_MAX: usize = 64 << 10;
/// Fields of a response head, and of trailers.
pub(super) const FIELDS_MAX: usize = 100;
/// Bytes of a chunk's size with its extensions.
pub(super) const CHUNK_LINE_SIZE_MAX: usize = 16 << 10;
/// Bytes read at once where a response head is expected; what follows it comes along.
pub(super) const HEAD_READ_SIZE: usize = 8 << 10;
/// Bytes of a body that are read at once. Nothing is read before the last piece is taken, so this
/// is the most that a client which does not read makes us hold; over HTTP/1.1 in cleartext a piece
/// is asked for only when the client's send buffer is nearly empty, and nothing is held.
pub(super) const READ_SIZE_MAX: usize = 16 << 10;
/// The same where it is all that is left of the body.
pub(super) const LAST_READ_SIZE_MAX: usize = 64 << 10;

/// Connections to one server from one worker, idle ones and tunnels included.
pub(super) const CONNECTIONS_MAX: usize = 4096;
/// HTTP/2 connections to one server from one worker. A second one is opened only when the first
/// has as many streams as the server allows.
pub(super) const HTTP2_CONNECTIONS_MAX: usize = 8;
/// Requests that may wait for a shared connection to one server being established.
pub(super) const WAITING_MAX: usize = 1024;
/// HTTP/2 flow-control window of a stream: what a slow client can make us hold.
pub(super) const HTTP2_STREAM_WINDOW: u32 = 256 << 10;
/// HTTP/2 window of a connection: wide enough that slow streams do not starve the others.
pub(super) const HTTP2_CONNECTION_WINDOW: u32 = 32 << 20;
/// HTTP/2 ping interval while streams are open: finds a peer that died without a word.
pub(super) const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long an HTTP/2 ping may stay unanswered.
pub(super) const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Retry tokens earned by a request, in hundredths: retries add at most a fifth to the load.
pub(super) const RETRY_EARN_CENTS: u32 = 20;
/// Retry tokens a group can save, in hundredths: enough for a server that dies under a few
/// hundred requests a second, too few to double the load of an outage.
pub(super) const RETRY_SAVED_MAX_CENTS: u32 = 5_000;

/// Failure times remembered per server; `passive failures` above it count as this.
pub(super) const FAILURES_REMEMBERED_MAX: usize = 1024;
/// At most one warning per server in this time; others are counted and told with the next one.
pub(super) const WARN_INTERVAL: Duration = Duration::from_secs(1);
