//! Listeners, TLS, and the sendfile-capable stream under HTTP. Knows sockets and their timeouts;
//! routes, caching and HTTP itself are left to others.

mod error;
mod linger;
mod listener;
mod preface;
pub mod proxy_protocol;
mod rest;
mod send;
mod socket;
mod stream;
mod table;
pub mod tls;

pub use self::error::NetError;
pub use self::linger::is_client_gone;
pub use self::listener::{
    Listener, bind_tcp, bind_unix, local_address, probe_tcp, remove_stale_unix,
};
pub use self::preface::{Protocol, detect, read_proxy_header};
pub use self::socket::{Phase, Socket};
pub use self::stream::Stream;
pub use self::table::{ConnectionTable, Reaped, TICK, Timeouts};
