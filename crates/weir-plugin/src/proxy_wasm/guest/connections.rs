//! Callbacks for connections that are not HTTP, for foreign functions of the server, and for the
//! end of the plugin.
#![allow(dead_code, reason = "Weir passes no such connections yet; the tests do")]

use wasmtime::Store;

use super::super::plugin::ROOT;
use super::{Guest, call, exchange, size};
use crate::exchange::{Action, Phase};
use crate::failure::Failure;
use crate::host::Host;

/// Who closed a connection: proxy-wasm's `proxy_peer_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Unknown,
    Local,
    Remote,
}

impl Guest {
    /// Data came from the client of a connection that is not HTTP: `request_body` holds it.
    pub(crate) fn downstream_data(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        end: bool,
    ) -> Result<Action, Failure> {
        self.data(store, id, Phase::Downstream, end)
    }

    /// Data came from the upstream of a connection that is not HTTP: `response_body` holds it.
    pub(crate) fn upstream_data(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        end: bool,
    ) -> Result<Action, Failure> {
        self.data(store, id, Phase::Upstream, end)
    }

    fn data(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        phase: Phase,
        end: bool,
    ) -> Result<Action, Failure> {
        let Some(exchange) = exchange(store, id) else { return Ok(Action::Continue) };
        exchange.phase = phase;
        exchange.is_paused = false;
        exchange.is_resumed = false;
        let (callback, len) = match phase {
            Phase::Downstream => (&self.downstream_data, exchange.request_body.len()),
            _ => (&self.upstream_data, exchange.response_body.len()),
        };
        self.enter(store, id);
        let action = call(store, callback, (id, size(len), u32::from(end)))?;
        self.end(store, id, action)
    }

    /// The client's connection is closed.
    pub(crate) fn downstream_closed(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        peer: Peer,
    ) -> Result<(), Failure> {
        self.enter(store, id);
        call(store, &self.downstream_close, (id, peer as u32))?;
        self.leave(store)
    }

    /// The upstream's connection is closed.
    pub(crate) fn upstream_closed(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        peer: Peer,
    ) -> Result<(), Failure> {
        self.enter(store, id);
        call(store, &self.upstream_close, (id, peer as u32))?;
        self.leave(store)
    }

    /// The generation is over: the plugin's own context ends.
    pub(crate) fn stop(&mut self, store: &mut Store<Host>) -> Result<(), Failure> {
        self.enter(store, ROOT);
        // Nobody is there to wait for a plugin that puts this off.
        call(store, &self.done, ROOT)?;
        self.finish(store, ROOT)
    }

    /// The server calls a function that the plugin knows by number.
    pub(crate) fn foreign(
        &mut self,
        store: &mut Store<Host>,
        function: u32,
        arguments: bytes::Bytes,
    ) -> Result<(), Failure> {
        let arguments_size = size(arguments.len());
        self.enter(store, ROOT);
        store.data_mut().proxy_wasm.arguments = Some(arguments);
        call(store, &self.foreign, (ROOT, function, arguments_size))?;
        store.data_mut().proxy_wasm.arguments = None;
        self.leave(store)
    }
}
