//! An instance in its slot, with an event loop whose time tests let pass: started from a guest,
//! given requests, and asked to call host functions.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime::{Store, Val};
use weir_config::{Names, PluginPolicy};

use super::exchange::{facts, request_head, response_head};
use super::guest::{CALLBACKS, CURSOR, INPUT, NOTES, OUT, RESULTS, guest};
use super::services::{FakeServices, Script};
use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::host::{Environment, Host};
use crate::instance::Instance;
use crate::log::LogBudget;
use crate::module::Compiled;
use crate::place::{Home, Slot};
use crate::proxy_wasm::Guest;
use crate::services::Services;
use crate::shared::{Commons, PluginMetrics};

/// How a bench differs from the usual one.
pub(crate) struct Options {
    pub(crate) policy: PluginPolicy,
    pub(crate) name: &'static str,
    pub(crate) config: &'static str,
    /// What upstreams answer while it starts.
    pub(crate) script: Option<Script>,
    pub(crate) commons: Arc<Commons>,
}

impl Default for Options {
    fn default() -> Options {
        let mut policy = PluginPolicy::default();
        policy.allow.upstreams = Names::These(vec!["up".to_owned()]);
        policy.allow.shared = Names::These(vec!["common".to_owned()]);
        policy.allow.cache = true;
        policy.log_per_s = 1_000_000;
        let (config, script) = ("{\"depth\": 8}", None);
        Options { policy, name: "gray", config, script, commons: Commons::new() }
    }
}

/// One instance, where it lives, and its event loop.
pub(crate) struct Bench {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) slot: Arc<Slot>,
    pub(crate) services: Arc<FakeServices>,
    pub(crate) metrics: Arc<PluginMetrics>,
    pub(crate) failures: Arc<Mutex<Vec<Failure>>>,
    signatures: HashMap<String, String>,
    input: usize,
}

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    // Each instance of a test is a place of its own; they only share the watch.
    ENGINE.get_or_init(|| Engine::new().unwrap())
}

/// Compiles a module.
pub(crate) fn compile(wat: &str) -> Result<Compiled, crate::module::ModuleError> {
    Compiled::new(engine(), wat.as_bytes())
}

impl Bench {
    /// Starts a guest of the given functions.
    pub(crate) fn new(functions: &[(&str, &str, &str)], more: &str) -> Bench {
        Bench::with(functions, more, Options::default()).unwrap()
    }

    pub(crate) fn with(
        functions: &[(&str, &str, &str)],
        more: &str,
        options: Options,
    ) -> Result<Bench, Failure> {
        let mut bench = Bench::of(guest(functions, more), options)?;
        let signature =
            |(_, name, params): &(&str, &str, &str)| ((*name).to_owned(), (*params).to_owned());
        bench.signatures = functions.iter().map(signature).collect();
        Ok(bench)
    }

    /// Starts any module.
    pub(crate) fn of(module: impl AsRef<[u8]>, options: Options) -> Result<Bench, Failure> {
        let module = module.as_ref();
        let compiled = Compiled::new(engine(), module).unwrap_or_else(|error| {
            panic!("{error}\n{}", String::from_utf8_lossy(&module[..module.len().min(20_000)]))
        });
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let failures: Arc<Mutex<Vec<Failure>>> = Arc::default();
        let failed = Arc::clone(&failures);
        let slot = Slot::new(
            0,
            Box::new(move |_, failure| failed.lock().push(failure.clone())),
            Duration::MAX,
        );
        let (services, metrics) = (Arc::new(FakeServices::default()), Arc::default());
        let services: Arc<FakeServices> = services;
        services.scripts.lock().extend(options.script);
        let environment = Environment {
            name: options.name.to_owned(),
            generation: 1,
            log: LogBudget::new(options.policy.log_per_s),
            policy: options.policy,
            config: Bytes::from_static(options.config.as_bytes()),
            vm_config: Bytes::from_static(b"vm"),
            root_id: "root".to_owned(),
            services: Arc::clone(&services) as Arc<dyn Services>,
            commons: options.commons,
            metrics: Arc::clone(&metrics),
        };
        let home = home(&runtime, Arc::downgrade(&slot));
        let (engine, environment) = (engine(), Arc::new(environment));
        let instance = Instance::start(engine, &compiled, environment, home)?;
        // What it asked for while it started is answered before it is in its slot.
        run_until_idle(&runtime);
        slot.fill(Box::new(instance));
        let signatures = HashMap::new();
        Ok(Bench { runtime, slot, services, metrics, failures, signatures, input: INPUT })
    }

    /// Works on the instance.
    pub(crate) fn instance<R>(&self, work: impl FnOnce(&mut Instance) -> R) -> R {
        self.slot.call_now(|instance| Ok(work(instance))).unwrap().unwrap()
    }

    /// Works on its store.
    pub(crate) fn store<R>(&self, work: impl FnOnce(&mut Guest, &mut Store<Host>) -> R) -> R {
        let mut result = None;
        self.instance(|instance| {
            instance.proxy_wasm(|guest, store| {
                result = Some(work(guest, store));
                Ok(())
            })
        })
        .unwrap();
        result.unwrap()
    }

    /// Opens a request with both heads, and makes it the one that host functions act for.
    pub(crate) fn open(&self) -> u32 {
        let id = self.instance(|instance| instance.open(facts()).unwrap());
        self.exchange(id, |exchange| {
            exchange.request = Some(request_head());
            exchange.response = Some(response_head());
        });
        id
    }

    pub(crate) fn exchange<R>(&self, id: u32, work: impl FnOnce(&mut Exchange) -> R) -> R {
        self.instance(|instance| work(instance.exchange(id).expect("an open exchange")))
    }

    /// Puts bytes into the guest's memory.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u32 {
        if self.input + bytes.len() > 64 << 10 {
            self.input = INPUT;
        }
        let at = self.input;
        self.input += bytes.len();
        self.memory(|memory| memory[at..at + bytes.len()].copy_from_slice(bytes));
        u32::try_from(at).unwrap()
    }

    pub(crate) fn memory<R>(&self, work: impl FnOnce(&mut [u8]) -> R) -> R {
        self.store(|_, store| {
            let memory = store.data().memory.unwrap();
            work(memory.data_mut(store))
        })
    }

    /// The number in memory at an address.
    pub(crate) fn number(&self, at: u32) -> u32 {
        self.memory(|memory| crate::memory::read_u32(memory, at).unwrap())
    }

    /// What a host function gave: the bytes whose address and size are at `OUT`.
    pub(crate) fn given(&self) -> Vec<u8> {
        let (data, size) = (self.number(OUT), self.number(OUT + 4));
        self.memory(|memory| crate::memory::slice(memory, data, size).unwrap().to_vec())
    }

    /// Calls an exported host function, as a callback of the context would that was entered last.
    pub(crate) fn raw(&self, name: &str, args: &[u64]) -> Result<u32, Failure> {
        let signature = self.signatures[name].clone();
        assert_eq!(signature.len(), args.len(), "{name}");
        let value = |(kind, arg): (char, &u64)| match kind {
            'I' => Val::I64(arg.cast_signed()),
            _ => Val::I32((*arg as u32).cast_signed()),
        };
        let args: Vec<Val> = signature.chars().zip(args).map(value).collect();
        let mut result = Ok(0);
        self.slot.call_now(|instance| {
            instance.proxy_wasm(|guest, store| {
                let function = guest.instance.unwrap().get_func(&mut *store, name).unwrap();
                let mut results = [Val::I32(0)];
                let returned = function.call(store, &args, &mut results);
                result = returned
                    .map(|()| results[0].unwrap_i32().cast_unsigned())
                    .map_err(|error| Failure::of(&error));
                Ok(())
            })
        });
        result
    }

    /// The same, with bytes put into memory first.
    pub(crate) fn call(&mut self, name: &str, args: &[Arg<'_>]) -> u32 {
        let args: Vec<u64> = args.iter().flat_map(|arg| self.placed(arg)).collect();
        self.raw(name, &args).unwrap()
    }

    fn placed(&mut self, arg: &Arg<'_>) -> Vec<u64> {
        match *arg {
            Arg::Num(number) => vec![number],
            Arg::Out(nth) => vec![u64::from(OUT + 4 * nth)],
            Arg::Bytes(bytes) => vec![u64::from(self.put(bytes)), bytes.len() as u64],
        }
    }

    /// The callbacks since this was last asked, with their parameters.
    pub(crate) fn notes(&self) -> Vec<(&'static str, Vec<u32>)> {
        let words = self.memory(|memory| {
            let end = crate::memory::read_u32(memory, CURSOR as u32).unwrap() as usize;
            let words = memory[NOTES..end].as_chunks::<4>().0;
            let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            memory[CURSOR..NOTES].copy_from_slice(&(NOTES as u32).to_le_bytes());
            words
        });
        let (mut notes, mut rest) = (Vec::new(), &words[..]);
        while let Some((&index, after)) = rest.split_first() {
            let (name, params, _) = CALLBACKS[index as usize];
            let (params, after) = after.split_at(params);
            notes.push((name, params.to_vec()));
            rest = after;
        }
        notes
    }

    /// Has a callback return this from now on.
    pub(crate) fn returns(&self, callback: &str, result: u32) {
        let index = CALLBACKS.iter().position(|(name, ..)| *name == callback).unwrap();
        let at = RESULTS + 4 * index;
        self.memory(|memory| memory[at..at + 4].copy_from_slice(&result.to_le_bytes()));
    }

    /// Lets the event loop work off what is there.
    pub(crate) fn settle(&self) {
        run_until_idle(&self.runtime);
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
        self.settle();
    }
}

fn run_until_idle(runtime: &tokio::runtime::Runtime) {
    runtime.block_on(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
}

fn home(runtime: &tokio::runtime::Runtime, slot: Weak<Slot>) -> Home {
    let handle = runtime.handle();
    let (worker_loop, own_loop) = (handle.clone(), handle.clone());
    Home { place: 0, worker: 0, worker_loop, own_loop, long_loop: None, slot, serial: 1 }
}

/// An argument of a host function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Num(u64),
    /// An address and a size.
    Bytes(&'a [u8]),
    /// The address of the nth place for what is returned.
    Out(u32),
}
