//! Plugins in the running server, by both interfaces: what they see and change on every kind of
//! route, over every protocol, and that the messages around them stay well-formed.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "plugins/bodies.rs"]
mod bodies;
#[path = "plugins/built.rs"]
mod built;
#[path = "plugins/cache.rs"]
mod cache;
#[path = "plugins/deploying.rs"]
mod deploying;
#[path = "plugins/ends.rs"]
mod ends;
#[path = "plugins/framing.rs"]
mod framing;
#[path = "plugins/heads.rs"]
mod heads;
#[path = "plugins/life.rs"]
mod life;
#[path = "plugins/lifetimes.rs"]
mod lifetimes;
#[path = "plugins/pauses.rs"]
mod pauses;
#[path = "plugins/properties.rs"]
mod properties;
#[path = "plugins/protocols.rs"]
mod protocols;
#[path = "plugins/reload.rs"]
mod reload;
#[path = "plugins/requests.rs"]
mod requests;
#[path = "plugins/site.rs"]
mod site;
#[path = "plugins/tags.rs"]
mod tags;
#[allow(dead_code, reason = "the tests of TLS use the rest of it")]
#[path = "tls/client.rs"]
mod tls_client;
#[path = "plugins/verdicts.rs"]
mod verdicts;
#[path = "plugins/wasm.rs"]
mod wasm;
