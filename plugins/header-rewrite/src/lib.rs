//! Renames, removes, sets and adds header fields of requests and responses, as its configuration
//! says. What is done to the fields is in `rules`; `plugin` connects it to proxy-wasm.

#[cfg(target_family = "wasm")]
mod plugin;
pub mod rules;
