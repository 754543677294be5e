//! Plugins for Weir, in Rust: safe types over Weir's own plugin interface, version 1, which
//! `docs/manual/plugin-interface.md` specifies.
//!
//! A plugin is a type that implements [`Plugin`] and is named, with the hooks that it has, in
//! [`weir_plugin!`]. A hook gets a [`Frame`], in which everything is laid out already, and writes
//! what it wants changed into [`Edits`]; neither costs a call to the host.
//!
//! ```
//! use weir_plugin_sdk::{Edits, Frame, Plugin, weir_plugin};
//!
//! /// Lets only those in who know the word.
//! struct Door {
//!     word: String,
//! }
//!
//! impl Plugin for Door {
//!     fn configure(config: &[u8]) -> Result<Door, String> {
//!         let word = String::from_utf8(config.to_vec()).map_err(|_| "the word is no UTF-8")?;
//!         Ok(Door { word })
//!     }
//!
//!     fn on_request(&mut self, frame: &Frame<'_>, edits: &mut Edits) {
//!         if frame.request().text("x-word") != Some(&self.word) {
//!             edits
//!                 .answer(403)
//!                 .field("content-type", "text/plain")
//!                 .body(b"not without the word\n");
//!         }
//!     }
//! }
//!
//! weir_plugin!(Door: on_request);
//! # use weir_plugin_sdk::testing::Sample;
//! # let mut door = Door::configure(b"sesame").unwrap();
//! # let mut edits = Edits::new();
//! # let sample = Sample::new().request("GET", "a", "/").request_field("x-word", "sesame");
//! # sample.show(|frame| door.on_request(frame, &mut edits));
//! # assert!(edits.is_empty());
//! # Sample::new().show(|frame| door.on_request(frame, &mut edits));
//! # assert_eq!(edits.to_string(), "ANSWER 403; ADD content-type: text/plain; BODY 21 bytes");
//! ```
//!
//! Built for `wasm32-unknown-unknown` as a `cdylib`, this is a module to deploy. Built for anything
//! else it is a library whose hooks can be tested: [`testing`] makes frames.
//!
//! # Small modules
//!
//! A module is compiled when it is deployed, at about 2.5 milliseconds per KiB of its size on one
//! core. What makes one small, most effective first: `opt-level = "s"`; [`allocator!`] in place of
//! the standard library's; no standard library at all, with [`panic_handler!`]; and then no
//! `format!` and no `{}`, for numbers [`Decimal`]. A plugin does with any of these or with none.
//!
//! ```ignore
//! #![cfg_attr(target_family = "wasm", no_std)]
//! extern crate alloc;
//!
//! weir_plugin_sdk::allocator!();
//! weir_plugin_sdk::panic_handler!();
//! ```

#![no_std]

extern crate alloc;

mod edits;
mod frame;
mod hook;
pub mod host;
mod plugin;
#[allow(
    unsafe_code,
    reason = "addresses, and what the host and the plugin share, are handled here"
)]
#[doc(hidden)]
pub mod raw;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use edits::{Answer, CacheMode, Decimal, Edits, Want};
pub use frame::{Fields, Frame, Request, Response, Stored};
pub use hook::{Hook, Parts};
pub use host::HostError;
pub use plugin::Plugin;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub use plugin::panic::panicked;

/// The Rust in the specification.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/manual/plugin-interface.md")]
struct Specification;
