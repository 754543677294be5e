//! Makes colour pictures grey on their way: 24-bit PPM to 8-bit PGM, piece by piece, whatever the
//! pieces' size.

pub mod gray;
#[cfg(any(target_family = "wasm", test))]
mod plugin;
#[cfg(any(target_family = "wasm", test))]
mod ppm;
