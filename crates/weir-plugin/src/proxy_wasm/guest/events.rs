//! Callbacks for what happens beside requests: timers, queues, answers to calls.

use http::HeaderMap;
use wasmtime::Store;

use super::super::grpc;
use super::super::plugin::ROOT;
use super::{Guest, call, size};
use crate::call::CallResult;
use crate::failure::Failure;
use crate::host::Host;

impl Guest {
    pub(crate) fn tick(&mut self, store: &mut Store<Host>) -> Result<(), Failure> {
        self.enter(store, ROOT);
        call(store, &self.tick, ROOT)?;
        self.leave(store)
    }

    pub(crate) fn queue_ready(
        &mut self,
        store: &mut Store<Host>,
        queue: u32,
    ) -> Result<(), Failure> {
        self.enter(store, ROOT);
        call(store, &self.queue_ready, (ROOT, queue))?;
        self.leave(store)
    }

    /// An HTTP call was answered, or failed: then there are no fields.
    pub(crate) fn called(
        &mut self,
        store: &mut Store<Host>,
        result: CallResult,
    ) -> Result<(), Failure> {
        let state = &mut store.data_mut().proxy_wasm;
        if !state.calls.remove(&result.id) {
            return Ok(());
        }
        let (mut fields, mut body, mut trailers) = (0, 0, 0);
        match result.answer {
            Ok(answer) => {
                // With the status.
                fields = size(answer.head.headers.len() + 1);
                body = size(answer.body.len());
                trailers = size(answer.trailers.len());
                let status = answer.head.status;
                let reason = status.canonical_reason().unwrap_or_default();
                state.status = (u32::from(status.as_u16()), reason.to_owned());
                state.answer = Some(answer);
            }
            Err(cause) => state.status = (0, cause),
        }
        self.enter(store, ROOT);
        call(store, &self.http_response, (ROOT, result.id, fields, body, trailers))?;
        store.data_mut().proxy_wasm.answer = None;
        self.leave(store)
    }

    /// Something happened to a gRPC call or stream.
    pub(crate) fn grpc(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        event: grpc::Event,
    ) -> Result<(), Failure> {
        let state = &mut store.data_mut().proxy_wasm;
        if !state.grpc.is_open(id) {
            return Ok(());
        }
        let (callback, number) = match event {
            grpc::Event::Initial(metadata) => {
                let metadata: &HeaderMap = state.grpc_initial.insert(metadata);
                (&self.grpc_initial, metadata.len())
            }
            grpc::Event::Message(message, last) => {
                if last {
                    state.grpc.forget(id);
                }
                state.status = (0, String::new());
                (&self.grpc_receive, state.grpc_message.insert(message).len())
            }
            grpc::Event::Trailing(metadata) => {
                let metadata: &HeaderMap = state.grpc_trailing.insert(metadata);
                (&self.grpc_trailing, metadata.len())
            }
            grpc::Event::Close(code, message) => {
                state.grpc.forget(id);
                state.status = (code, message);
                (&self.grpc_close, code as usize)
            }
        };
        self.enter(store, ROOT);
        call(store, callback, (ROOT, id, size(number)))?;
        let state = &mut store.data_mut().proxy_wasm;
        (state.grpc_initial, state.grpc_message, state.grpc_trailing) = (None, None, None);
        self.leave(store)
    }
}
