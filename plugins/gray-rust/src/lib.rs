//! Makes colour pictures grey on their way: 24-bit PPM to 8-bit PGM, piece by piece, whatever the
//! pieces' size.
//!
//! The module has neither the standard library nor `core::fmt`, so that it is compiled, and thereby
//! deployed, in milliseconds.

#![cfg_attr(target_family = "wasm", no_std)]

#[cfg(any(target_family = "wasm", test))]
extern crate alloc;

pub mod gray;
#[cfg(any(target_family = "wasm", test))]
mod plugin;
#[cfg(any(target_family = "wasm", test))]
mod ppm;
