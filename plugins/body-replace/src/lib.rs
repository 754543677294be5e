//! Replaces strings in response bodies. What is replaced, and in which responses, is in `replace`;
//! `plugin` connects it to proxy-wasm.

#[cfg(target_family = "wasm")]
mod plugin;
pub mod replace;
