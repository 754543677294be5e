//! The guest's side: its buffers and its hooks. A hook is one call: the frame is laid out, the
//! guest runs, and the edits that it returns are read and applied.

use wasmtime::{Instance, Memory, Store, TypedFunc};

use super::apply;
use super::area::{Area, BufferFunction, Kind};
use super::changes::{self, Changes, Place};
use super::edits;
use super::frame::{Content, Parts, Slice, lay_out};
use super::hook::{HOOK_SLOTS, Hook, Side};
use crate::exchange::{Action, Exchange, Phase};
use crate::failure::{Failure, FailureKind};
use crate::host::Host;

/// What the guest is asked for at start. Most frames fit, and most pieces.
const FRAME_BUFFER_BYTES: usize = 16 << 10;
const BODY_BUFFER_BYTES: usize = 64 << 10;

/// A hook's function.
type HookFunction = TypedFunc<i32, i64>;

/// The hooks of an instance.
pub(crate) struct Guest {
    pub(super) memory: Memory,
    pub(super) buffer: BufferFunction,
    pub(super) frame: Area,
    pub(super) body: Area,
    hooks: [Option<HookFunction>; HOOK_SLOTS],
    pub(super) wants: [Parts; HOOK_SLOTS],
}

/// No request is in hand: while the plugin starts, and in its timer.
pub(crate) const NO_REQUEST: u32 = 0;

impl Guest {
    /// Initialises, starts and configures the plugin.
    ///
    /// # Errors
    /// If it fails or refuses.
    pub(crate) fn start(store: &mut Store<Host>, instance: &Instance) -> Result<Guest, Failure> {
        // Types of exports are checked when the module is: see `exports`.
        let missing = |name: &str| {
            Failure::new(FailureKind::Start, format!("{name} is not what the interface says"))
        };
        let memory = instance.get_memory(&mut *store, "memory").ok_or_else(|| missing("memory"))?;
        let buffer: BufferFunction = instance
            .get_typed_func(&mut *store, "weir_buffer")
            .map_err(|_| missing("weir_buffer"))?;
        store.data_mut().own.buffer = Some(buffer.clone());
        for name in ["_initialize", "_start"] {
            if let Ok(function) = instance.get_typed_func::<(), ()>(&mut *store, name) {
                function.call(&mut *store, ()).map_err(|error| Failure::of(&error))?;
                break;
            }
        }
        let frame = Area::ask(&mut *store, memory, &buffer, Kind::Frame, FRAME_BUFFER_BYTES)?;
        let body = Area::ask(&mut *store, memory, &buffer, Kind::Body, BODY_BUFFER_BYTES)?;
        let hooks = [const { None }; HOOK_SLOTS];
        let wants = [Parts::ALL; HOOK_SLOTS];
        let mut guest = Guest { memory, buffer, frame, body, hooks, wants };
        guest.configure(store, instance)?;
        guest.find_hooks(store, instance)?;
        Ok(guest)
    }

    fn configure(&mut self, store: &mut Store<Host>, instance: &Instance) -> Result<(), Failure> {
        let function = instance.get_typed_func::<(i32, i32), i32>(&mut *store, "weir_configure");
        let Ok(function) = function else { return Ok(()) };
        let config = store.data().environment.config.clone();
        self.ensure_body(store, config.len())?;
        self.body.of(self.memory.data_mut(&mut *store))[..config.len()].copy_from_slice(&config);
        let Slice { ptr, len } = self.body.slice(config.len());
        let arguments = (ptr.cast_signed(), len.cast_signed());
        match function.call(&mut *store, arguments).map_err(|error| Failure::of(&error))? {
            0 => Ok(()),
            refused => {
                let message = format!("weir_configure refused the configuration with {refused}");
                Err(Failure::new(FailureKind::Start, message))
            }
        }
    }

    fn find_hooks(&mut self, store: &mut Store<Host>, instance: &Instance) -> Result<(), Failure> {
        let wants = instance.get_typed_func::<i32, i32>(&mut *store, "weir_wants").ok();
        for hook in Hook::ALL {
            let slot = hook as usize;
            self.hooks[slot] = instance.get_typed_func(&mut *store, hook.export()).ok();
            if let (Some(wants), Some(_)) = (&wants, &self.hooks[slot]) {
                let bits =
                    wants.call(&mut *store, hook as i32).map_err(|error| Failure::of(&error))?;
                self.wants[slot] = Parts::new(bits.cast_unsigned());
            }
        }
        Ok(())
    }

    /// Whether the hook for requests is shown anything of the request.
    pub(crate) fn sees_request(&self) -> bool {
        self.wants[Hook::Request as usize].has_any(Parts::LINE, Parts::REQUEST)
    }

    /// Whether the module has a hook.
    #[inline]
    pub(super) fn has(&self, hook: Hook) -> bool {
        self.hooks[hook as usize].is_some()
    }

    /// Runs the hook of a phase.
    ///
    /// # Errors
    /// If the guest fails.
    #[inline]
    pub(crate) fn hook(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        phase: Phase,
        end: bool,
    ) -> Result<Action, Failure> {
        let Some(hook) = Hook::of(phase).filter(|hook| self.has(*hook)) else {
            return Ok(Action::Continue);
        };
        if let Some(action) = self.answers(store, id, hook)? {
            return Ok(action);
        }
        let piece = match hook.shows_body() {
            true => self.show_piece(store, id, hook)?,
            false => Slice::default(),
        };
        self.show(store, id, hook, end, piece)?;
        match self.call(store, id, hook)? {
            0 => Ok(Action::Continue),
            result => self.change(store, id, hook, end, result),
        }
    }

    /// Runs the hook for a request's head over an exchange that has just begun. Gives back whether
    /// the plugin may have left a trace in it, too.
    ///
    /// # Errors
    /// If the guest fails.
    #[inline]
    pub(crate) fn glance(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
    ) -> Result<(Action, bool), Failure> {
        let hook = Hook::Request;
        store.data_mut().own.was_asked = false;
        self.show(store, id, hook, true, Slice::default())?;
        match self.call(store, id, hook)? {
            0 => Ok((Action::Continue, store.data().own.was_asked)),
            result => Ok((self.change(store, id, hook, true, result)?, true)),
        }
    }

    /// weir_on_log; removes the exchange.
    ///
    /// # Errors
    /// If the guest fails.
    pub(crate) fn close(&mut self, store: &mut Store<Host>, id: u32) -> Result<(), Failure> {
        let logged = match self.has(Hook::Log) {
            true => self.show(store, id, Hook::Log, true, Slice::default()).and_then(|()| {
                let result = self.call(store, id, Hook::Log)?;
                no_edits(Hook::Log, result)
            }),
            false => Ok(()),
        };
        store.data_mut().exchanges.remove(&id);
        logged
    }

    /// weir_on_tick.
    ///
    /// # Errors
    /// If the guest fails.
    pub(crate) fn tick(&mut self, store: &mut Store<Host>) -> Result<(), Failure> {
        if !self.has(Hook::Tick) {
            return Ok(());
        }
        let content = Content { hook: Hook::Tick as u32, ..Content::default() };
        // A frame without content fits in any buffer.
        let _ = lay_out(self.frame.of(self.memory.data_mut(&mut *store)), self.frame.ptr, &content);
        no_edits(Hook::Tick, self.call(store, NO_REQUEST, Hook::Tick)?)
    }

    /// Calls a hook that is there; `id` is what host functions take for the request in hand.
    #[inline]
    pub(super) fn call(
        &self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
    ) -> Result<i64, Failure> {
        let Some(function) = &self.hooks[hook as usize] else { return Ok(0) };
        store.data_mut().own.current = id;
        let result = function
            .call(&mut *store, self.frame.ptr.cast_signed())
            .map_err(|error| Failure::of(&error))?;
        match result < 0 {
            true => Err(Failure::new(
                FailureKind::Reported,
                format!("{} returned {result}", hook.export()),
            )),
            false => Ok(result),
        }
    }

    /// Does what a hook's edits say.
    fn change(
        &self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
        end: bool,
        result: i64,
    ) -> Result<Action, Failure> {
        let changes = self.read(store, id, hook, Source { from: hook, end }, result)?;
        let Some(exchange) = store.data_mut().exchanges.get_mut(&id) else {
            return Ok(Action::Continue);
        };
        let hold = changes.hold;
        apply::apply(exchange, hook, changes);
        Ok(match hold {
            Some(_) => {
                exchange.wishes.hold = hold;
                exchange.own.hold();
                Action::Pause
            }
            None => Action::Continue,
        })
    }

    /// Reads a list of edits by the rules of `hook`.
    pub(super) fn read(
        &self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
        source: Source,
        result: i64,
    ) -> Result<Changes, Failure> {
        let (data, host) = self.memory.data_and_store_mut(&mut *store);
        let Some(exchange) = host.exchanges.get(&id) else { return Ok(Changes::default()) };
        let place = Place {
            hook,
            in_call: source.from == Hook::Call,
            piece_len: piece_len(exchange, hook),
            end: source.end,
            lines: &|| lines(exchange, hook),
            policy: &host.environment.policy,
            services: &*host.environment.services,
        };
        // The result is not negative: address above, length below.
        let (ptr, len) = ((result >> 32) as u32, result as u32);
        edits::decode(data, ptr, len).and_then(|edits| changes::read(edits, &place)).map_err(
            |error| {
                let message = format!("{}: {error}", source.from.export());
                Failure::new(FailureKind::Protocol, message)
            },
        )
    }
}

/// Where a list comes from.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// The hook that returned it.
    pub(super) from: Hook,
    /// The hook was shown the last piece.
    pub(super) end: bool,
}

/// The result of a hook that takes no edits.
pub(super) fn no_edits(hook: Hook, result: i64) -> Result<(), Failure> {
    match result {
        0 => Ok(()),
        _ => Err(Failure::new(
            FailureKind::Protocol,
            format!("{} returned {result:#x}, expected 0: it takes no edits here", hook.export()),
        )),
    }
}

/// Bytes of the piece that a body hook was shown.
fn piece_len(exchange: &Exchange, hook: Hook) -> usize {
    match hook {
        Hook::RequestBody => exchange.request_body.len(),
        Hook::ResponseBody => exchange.response_body.len(),
        _ => 0,
    }
}

/// Lines of the section that a hook's field edits change.
fn lines(exchange: &Exchange, hook: Hook) -> usize {
    match (hook.shows_trailers() || hook.shows_body(), hook.side()) {
        (true, Side::Request) => exchange.request_trailers.len(),
        (true, Side::Response) => exchange.response_trailers.len(),
        (false, Side::Request) => exchange.request.as_ref().map_or(0, |it| it.get().headers.len()),
        (false, Side::Response) => {
            exchange.response.as_ref().map_or(0, |it| it.get().headers.len())
        }
    }
}
