//! The keys themselves, a table for each part of the file. See [`crate::table`] for the types.

mod adapt;
mod forward;
mod guard;
mod html;
mod icap;
mod image;
mod plugin;
mod route;
mod rule;
mod server;
mod site;
mod top;
mod upstream;

pub(crate) use adapt::ADAPT;
pub(crate) use forward::FORWARD;
pub(crate) use guard::GUARD;
pub(crate) use html::HTML;
pub(crate) use icap::ICAP;
pub(crate) use image::IMAGE;
pub(crate) use plugin::PLUGIN;
pub(crate) use route::ROUTE;
pub(crate) use rule::RULE;
pub(crate) use server::SERVER;
pub(crate) use site::SITE;
pub(crate) use top::TOP;
pub(crate) use upstream::UPSTREAM;

/// The index file where `index` is left out.
pub(crate) const INDEX_DEFAULT: &str = "index.html";

/// Milliseconds in a second, minute, hour and day, for ranges of times.
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Bytes, for ranges of sizes.
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
