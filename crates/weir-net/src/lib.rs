//! weir-net

mod error;
pub mod proxy_protocol;
pub mod tls;

pub use self::error::NetError;
