//! One plugin in its sandbox on one thread: a store, and the guest in it, whichever interface it
//! speaks.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::Store;

use crate::call::CallResult;
use crate::engine::Engine;
use crate::exchange::{Action, Exchange, Facts, Lend, Lent, Phase, RequestHead};
use crate::failure::{Failure, FailureKind};
use crate::hooks::Hooks;
use crate::host::{Environment, Host};
use crate::limits::EXCHANGES_MAX;
use crate::module::{Abi, Compiled};
use crate::place::Home;
use crate::{own, proxy_wasm, running, wasi};

/// A running plugin.
pub(crate) struct Instance {
    store: Store<Host>,
    guest: Guest,
    /// Other hooks may look at the request after the first.
    sees_more: bool,
    /// Numbers the requests.
    last_id: u32,
}

/// The two interfaces.
#[allow(clippy::large_enum_variant, reason = "one for an instance, which is megabytes large")]
enum Guest {
    ProxyWasm(proxy_wasm::Guest),
    Own(own::Guest),
}

impl Instance {
    /// Instantiates, starts and configures. May take long: not for a worker's thread.
    ///
    /// # Errors
    /// If it fails, or refuses its configuration.
    pub(crate) fn start(
        engine: &Engine,
        compiled: &Compiled,
        environment: Arc<Environment>,
        home: Home,
    ) -> Result<Instance, Failure> {
        let mut store = Store::new(engine.wasm(), Host::new(environment, home));
        store.limiter(|host| &mut host.bounds);
        store.epoch_deadline_callback(|mut store| {
            Ok(match store.data_mut().cpu.is_over() {
                true => wasmtime::UpdateDeadline::Interrupt,
                false => wasmtime::UpdateDeadline::Continue(1),
            })
        });
        let guest = run(&mut store, |store| {
            let instance =
                compiled.pre().instantiate(&mut *store).map_err(|error| Failure::of(&error))?;
            store.data_mut().memory = instance.get_memory(&mut *store, "memory");
            Ok(match compiled.abi() {
                Abi::ProxyWasm(_) => Guest::ProxyWasm(proxy_wasm::Guest::start(store, &instance)?),
                Abi::Weir(_) => Guest::Own(own::Guest::start(store, &instance)?),
            })
        })?;
        let sees_more = compiled.hooks().of_requests() != Hooks::only(Phase::RequestHead);
        let host = store.data_mut();
        host.cpu.limit = host.environment.policy.cpu;
        Ok(Instance { store, guest, sees_more, last_id: FIRST_ID })
    }

    pub(crate) fn serial(&self) -> u64 {
        self.store.data().home.serial
    }

    /// Bytes of its memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.store.data().bounds.memory_bytes
    }

    /// CPU time that the last call took since the watch met it, if that was so: it took a few
    /// milliseconds then.
    pub(crate) fn since_noticed(&self) -> Option<Duration> {
        self.store.data().cpu.since_noticed()
    }

    /// A request begins its way through the plugin. Returns its number.
    ///
    /// # Errors
    /// If the plugin fails, or has too many open.
    pub(crate) fn open(&mut self, facts: Facts) -> Result<u32, Failure> {
        let id = self.insert(&facts, |_| {})?;
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => guest.open(store, id),
            Guest::Own(_) => Ok(()),
        })?;
        Ok(id)
    }

    /// A request without content begins its way through a plugin on proxy-wasm, with the callback
    /// for its head. Returns its number.
    ///
    /// # Errors
    /// As [`Instance::open`] and [`Instance::hook`].
    pub(crate) fn begin(
        &mut self,
        facts: &Facts,
        head: Arc<dyn Lend<RequestHead>>,
    ) -> Result<(u32, Action), Failure> {
        let id = self.insert(facts, |exchange| {
            exchange.request = Some(Lent::Shared(head));
            exchange.phase = Phase::RequestHead;
        })?;
        let action = self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => {
                guest.open(store, id)?;
                guest.hook(store, id, Phase::RequestHead, true)
            }
            Guest::Own(_) => Ok(Action::Continue),
        })?;
        Ok((id, action))
    }

    /// An exchange for a request that begins. Returns its number.
    fn insert(&mut self, facts: &Facts, fill: impl FnOnce(&mut Exchange)) -> Result<u32, Failure> {
        if self.store.data().exchanges.len() >= EXCHANGES_MAX {
            let message = format!("{EXCHANGES_MAX} requests are open in one instance");
            return Err(Failure::new(FailureKind::Overflow, message));
        }
        let id = self.new_id();
        let exchanges = &mut self.store.data_mut().exchanges;
        let mut exchange = exchanges.fresh(facts);
        fill(&mut exchange);
        exchanges.insert(id, exchange);
        Ok(id)
    }

    fn new_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(FIRST_ID);
            if !self.store.data().exchanges.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Shows the head of a request without content to a plugin on Weir's own interface, in an
    /// exchange that is kept for the purpose. It comes back if anything must follow.
    ///
    /// # Errors
    /// As [`Instance::hook`].
    #[inline]
    pub(crate) fn glance(
        &mut self,
        facts: &Facts,
        head: impl FnOnce() -> Arc<dyn Lend<RequestHead>>,
    ) -> Result<Option<(Box<Exchange>, Action)>, Failure> {
        let mut exchange = self.store.data_mut().exchanges.fresh(facts);
        exchange.phase = Phase::RequestHead;
        if let Guest::Own(guest) = &self.guest
            && (guest.sees_request() || self.sees_more)
        {
            exchange.request = Some(Lent::Shared(head()));
        }
        let id = self.new_id();
        self.store.data_mut().exchanges.insert(id, exchange);
        let result = self.call(|guest, store| match guest {
            Guest::Own(guest) => guest.glance(store, id),
            Guest::ProxyWasm(_) => Ok((Action::Continue, false)),
        });
        let Some(mut exchange) = self.store.data_mut().exchanges.remove(&id) else {
            return result.map(|_| None);
        };
        let (action, may_be_touched) = result?;
        if may_be_touched && !(action == Action::Continue && exchange.is_untouched()) {
            return Ok(Some((exchange, action)));
        }
        exchange.request = None;
        exchange.own.number = 0;
        self.store.data_mut().exchanges.keep(exchange);
        Ok(None)
    }

    /// Runs a hook over an exchange that is only here for this one call (Weir's own interface).
    ///
    /// # Errors
    /// As [`Instance::hook`]; the exchange is back in any case.
    pub(crate) fn visit(
        &mut self,
        exchange: &mut Option<Box<Exchange>>,
        phase: Phase,
        end: bool,
    ) -> Result<Action, Failure> {
        let Some(visitor) = exchange.take() else { return Ok(Action::Continue) };
        let id = self.new_id();
        self.store.data_mut().exchanges.insert(id, visitor);
        let result = match phase {
            Phase::Log => self.close_guest(id).map(|()| Action::Continue),
            _ => self.hook(id, phase, end),
        };
        *exchange = self.store.data_mut().exchanges.remove(&id);
        result
    }

    /// The request, while it is open.
    pub(crate) fn exchange(&mut self, id: u32) -> Option<&mut Exchange> {
        self.store.data_mut().exchanges.get_mut(&id)
    }

    /// Runs a hook over what the exchange holds. `end` tells that no content follows.
    ///
    /// # Errors
    /// If the plugin fails; the instance must not be used after that.
    pub(crate) fn hook(&mut self, id: u32, phase: Phase, end: bool) -> Result<Action, Failure> {
        match self.exchange(id) {
            Some(exchange) => exchange.phase = phase,
            None => return Ok(Action::Continue),
        }
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => guest.hook(store, id, phase, end),
            Guest::Own(guest) => guest.hook(store, id, phase, end),
        })
    }

    /// The request is over: logs and forgets it. What it holds must be complete by then.
    ///
    /// # Errors
    /// As [`Instance::hook`].
    pub(crate) fn close(&mut self, id: u32) -> Result<(), Failure> {
        if self.exchange(id).is_none() {
            return Ok(());
        }
        // A proxy-wasm plugin may put the end off; it forgets the exchange itself.
        self.close_guest(id)
    }

    fn close_guest(&mut self, id: u32) -> Result<(), Failure> {
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => guest.close(store, id),
            Guest::Own(guest) => guest.close(store, id),
        })
    }

    /// The plugin's timer has run out.
    ///
    /// # Errors
    /// As [`Instance::hook`].
    pub(crate) fn tick(&mut self) -> Result<(), Failure> {
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => guest.tick(store),
            Guest::Own(guest) => guest.tick(store),
        })
    }

    /// A call to an upstream was answered, or failed.
    ///
    /// # Errors
    /// As [`Instance::hook`].
    pub(crate) fn called(&mut self, result: CallResult) -> Result<(), Failure> {
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => guest.called(store, result),
            Guest::Own(guest) => guest.called(store, result),
        })
    }

    /// A queue that the plugin registered has something.
    ///
    /// # Errors
    /// As [`Instance::hook`].
    pub(crate) fn queue_ready(&mut self, queue: u32) -> Result<(), Failure> {
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => guest.queue_ready(store, queue),
            Guest::Own(_) => Ok(()),
        })
    }

    /// Something of proxy-wasm that the other interface does not know.
    ///
    /// # Errors
    /// As [`Instance::hook`].
    pub(crate) fn proxy_wasm(
        &mut self,
        call: impl FnOnce(&mut proxy_wasm::Guest, &mut Store<Host>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.call(|guest, store| match guest {
            Guest::ProxyWasm(guest) => call(guest, store),
            Guest::Own(_) => Ok(()),
        })
    }

    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut Guest, &mut Store<Host>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let guest = &mut self.guest;
        run(&mut self.store, |store| call(guest, store))
    }
}

/// proxy-wasm's plugin context is 1.
const FIRST_ID: u32 = 1;

/// Runs guest code under its limits.
#[inline]
fn run<R>(
    store: &mut Store<Host>,
    call: impl FnOnce(&mut Store<Host>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    store.set_epoch_deadline(1);
    let host = store.data_mut();
    host.cpu.begin();
    host.bounds.refused = false;
    let result = running::seen(|| call(store));
    wasi::flush(store.data_mut());
    result.map_err(|failure| match failure.kind {
        FailureKind::Trap if store.data().bounds.refused => {
            Failure { kind: FailureKind::Memory, ..failure }
        }
        _ => failure,
    })
}

impl Drop for Instance {
    /// Whoever waits for it learns that it is gone.
    fn drop(&mut self) {
        for exchange in self.store.data().exchanges.values() {
            exchange.signal.tell();
        }
    }
}
