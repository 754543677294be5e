//! Splits traffic between variants of a site, each visitor always to the same one. Who gets which
//! variant is decided in `split`; `plugin` connects it to proxy-wasm.

#[cfg(target_family = "wasm")]
mod plugin;
pub mod split;
