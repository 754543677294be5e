//! The plugin that calls a host function: its memory, its allocator, and the context it acts for.

use bytes::Bytes;
use wasmtime::{AsContextMut, Caller, Memory};

use super::State;
use super::status::{Outcome, Status, Stop};
use crate::exchange::Exchange;
use crate::host::{Environment, Host};
use crate::memory;

/// The plugin's own context; those of requests come after it.
pub(crate) const ROOT: u32 = 1;

/// A calling plugin.
pub(crate) struct Plugin<'a> {
    caller: Caller<'a, Host>,
    memory: Memory,
}

impl<'a> Plugin<'a> {
    /// The one that calls.
    pub(crate) fn new(mut caller: Caller<'a, Host>) -> Outcome<Plugin<'a>> {
        let memory = memory::of_caller(&mut caller).ok_or(Status::InvalidMemoryAccess)?;
        Ok(Plugin { caller, memory })
    }

    pub(crate) fn host(&mut self) -> &mut Host {
        self.caller.data_mut()
    }

    pub(crate) fn state(&mut self) -> &mut State {
        &mut self.caller.data_mut().proxy_wasm
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.caller.data().environment
    }

    /// Which configuration belongs to the running callback.
    pub(crate) fn configuration(&self) -> super::Configuration {
        self.caller.data().proxy_wasm.configuration
    }

    /// The context that it acts for: the one that was called, or the one that it turned to since.
    pub(crate) fn context(&self) -> u32 {
        let host = self.caller.data();
        let state = &host.proxy_wasm;
        let is_there = |id: u32| id == ROOT || host.exchanges.contains_key(&id);
        match state.effective {
            0 => state.current,
            id if is_there(id) => id,
            // The request that it turned to is over.
            _ => state.current,
        }
    }

    /// The request that it acts for, if it is not the plugin's own context.
    pub(crate) fn exchange(&mut self) -> Option<&mut Exchange> {
        let id = self.context();
        self.caller.data_mut().exchanges.get_mut(&id)
    }

    /// What is in its memory.
    pub(crate) fn bytes(&self, data: u32, size: u32) -> Outcome<&[u8]> {
        Ok(memory::slice(self.memory.data(&self.caller), data, size)?)
    }

    /// A copy of it.
    pub(crate) fn owned(&self, data: u32, size: u32) -> Outcome<Bytes> {
        self.bytes(data, size).map(Bytes::copy_from_slice)
    }

    /// A name. One that is no UTF-8 is no name of anything.
    pub(crate) fn name(&self, data: u32, size: u32) -> Outcome<String> {
        Ok(String::from_utf8_lossy(self.bytes(data, size)?).into_owned())
    }

    /// Its memory and the host's state at once.
    pub(crate) fn split(&mut self) -> (&mut [u8], &mut Host) {
        self.memory.data_and_store_mut(self.caller.as_context_mut())
    }

    /// Makes sure that a 32-bit number can be written there, before something is done that cannot
    /// be undone.
    pub(crate) fn expect_room(&self, at: u32) -> Outcome {
        self.bytes(at, 4).map(drop)
    }

    pub(crate) fn write_u32(&mut self, at: u32, value: u32) -> Outcome {
        Ok(memory::write_u32(self.memory.data_mut(&mut self.caller), at, value)?)
    }

    pub(crate) fn write_u64(&mut self, at: u32, value: u64) -> Outcome {
        Ok(memory::write_u64(self.memory.data_mut(&mut self.caller), at, value)?)
    }

    /// Has the plugin's allocator make room for `size` bytes, and writes to where it is told. What
    /// is empty needs no room: its address is 0.
    pub(crate) fn give_with(
        &mut self,
        size: usize,
        return_data: u32,
        return_size: u32,
        fill: impl FnOnce(&mut [u8], &mut Host),
    ) -> Outcome {
        self.expect_room(return_data)?;
        self.expect_room(return_size)?;
        let size = u32::try_from(size).map_err(|_| Status::InvalidMemoryAccess)?;
        let mut data = 0;
        if size > 0 {
            data = self.allocate(size)?;
            let (memory, host) = self.split();
            fill(memory::slice_mut(memory, data, size)?, host);
        }
        self.write_u32(return_data, data)?;
        self.write_u32(return_size, size)
    }

    /// Gives it these bytes.
    pub(crate) fn give(&mut self, bytes: &[u8], return_data: u32, return_size: u32) -> Outcome {
        let copy = |to: &mut [u8], _: &mut Host| to.copy_from_slice(bytes);
        self.give_with(bytes.len(), return_data, return_size, copy)
    }

    fn allocate(&mut self, size: u32) -> Outcome<u32> {
        let allocator = self.state().allocator.clone().ok_or(Status::InvalidMemoryAccess)?;
        // The allocator is a callback like any other: it may call host functions, but not turn the
        // caller's context.
        let (current, effective) = (self.state().current, self.state().effective);
        let data = allocator.call(&mut self.caller, size).map_err(Stop::Trap)?;
        self.state().current = current;
        self.state().effective = effective;
        match data {
            0 => Err(Status::InvalidMemoryAccess.into()),
            data => Ok(data),
        }
    }

    /// Tells the log about something that no status can tell the plugin.
    pub(crate) fn warn(&self, text: &str) {
        crate::log::say(self.environment(), crate::log::Level::Warn, text.as_bytes());
    }
}
