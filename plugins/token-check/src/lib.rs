//! Lets only requests with a valid token pass. What a valid token is: `tokens` (known by digest),
//! `jwt` (signed, expiring), or what another server says, which only `plugin` can ask.

pub mod config;
pub mod credentials;
pub mod jwt;
#[cfg(target_family = "wasm")]
mod plugin;
pub mod verdict;
