//! For tests: an instance in its slot, a server that records what plugins ask of it, and a guest
//! that exports every host function, so that a test is a list of calls.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use wasmtime::{Store, Val};
use weir_config::{Names, PluginPolicy};

use crate::engine::Engine;
use crate::exchange::{About, Exchange, Facts, Lent, RequestHead, ResponseHead};
use crate::failure::Failure;
use crate::host::{Environment, Host};
use crate::instance::Instance;
use crate::log::LogBudget;
use crate::module::Compiled;
use crate::place::{Home, Slot};
use crate::properties::{Properties, Value};
use crate::proxy_wasm::Guest;
use crate::services::{CallBody, Calling, ContentError, Injection, Services, StoredResponse};
use crate::shared::{Commons, PluginMetrics};

/// Where the guest below has its things. Callbacks write what they were given to `NOTES`, return
/// what is in `RESULTS`; what a test passes to host functions lies from `INPUT` on.
pub(crate) const RESULTS: usize = 1024;
pub(crate) const OUT: u32 = 512;
const CURSOR: usize = 2044;
const NOTES: usize = 2048;
const INPUT: usize = 16 << 10;
/// Bytes of the guest's memory, two pages, of which the allocator gives the second.
pub(crate) const MEMORY: u32 = 128 << 10;

/// proxy-wasm's callbacks: parameters, and whether there is a result.
pub(crate) const CALLBACKS: [(&str, usize, bool); 24] = [
    ("proxy_on_context_create", 2, false),
    ("proxy_on_vm_start", 2, true),
    ("proxy_on_configure", 2, true),
    ("proxy_on_request_headers", 3, true),
    ("proxy_on_request_body", 3, true),
    ("proxy_on_request_trailers", 2, true),
    ("proxy_on_response_headers", 3, true),
    ("proxy_on_response_body", 3, true),
    ("proxy_on_response_trailers", 2, true),
    ("proxy_on_done", 1, true),
    ("proxy_on_log", 1, false),
    ("proxy_on_delete", 1, false),
    ("proxy_on_tick", 1, false),
    ("proxy_on_queue_ready", 2, false),
    ("proxy_on_http_call_response", 5, false),
    ("proxy_on_grpc_receive_initial_metadata", 3, false),
    ("proxy_on_grpc_receive", 3, false),
    ("proxy_on_grpc_receive_trailing_metadata", 3, false),
    ("proxy_on_grpc_close", 3, false),
    ("proxy_on_new_connection", 1, true),
    ("proxy_on_downstream_data", 3, true),
    ("proxy_on_downstream_connection_close", 2, false),
    ("proxy_on_upstream_data", 3, true),
    ("proxy_on_upstream_connection_close", 2, false),
];

/// An allocator that gives the second page, once round.
pub(crate) const ALLOCATOR: &str = "(global $next (mut i32) (i32.const 65536))
  (func (export \"proxy_on_memory_allocate\") (param i32) (result i32)
    (if (i32.gt_u (i32.add (global.get $next) (local.get 0)) (i32.const 131072))
      (then (global.set $next (i32.const 65536))))
    (global.get $next)
    (global.set $next (i32.add (global.get $next) (local.get 0))))";

/// A guest that exports the given host functions, by `(module, name, parameters)` with `i` for a
/// 32-bit and `I` for a 64-bit number, and has every callback.
pub(crate) fn guest(functions: &[(&str, &str, &str)], more: &str) -> String {
    let mut wat = "(module\n".to_owned();
    let types = |params: &str| {
        params.chars().map(|c| if c == 'I' { " i64" } else { " i32" }).collect::<String>()
    };
    for (module, name, params) in functions {
        let params = types(params);
        writeln!(
            wat,
            "(import \"{module}\" \"{name}\" (func ${name} (param{params}) (result i32)))"
        )
        .unwrap();
    }
    for (_, name, params) in functions {
        let gets = (0..params.len()).map(|n| format!("(local.get {n}) ")).collect::<String>();
        let params = types(params);
        writeln!(
            wat,
            "(func (export \"{name}\") (param{params}) (result i32) (call ${name} {gets}))"
        )
        .unwrap();
    }
    writeln!(wat, "(func (export \"proxy_abi_version_0_2_1\"))").unwrap();
    writeln!(wat, "(memory (export \"memory\") 2 2)").unwrap();
    writeln!(wat, "(data (i32.const {CURSOR}) \"\\00\\08\\00\\00\")").unwrap();
    writeln!(
        wat,
        "(func $note (param i32) (i32.store (i32.load (i32.const {CURSOR})) (local.get 0))
           (i32.store (i32.const {CURSOR})
             (i32.add (i32.load (i32.const {CURSOR})) (i32.const 4))))"
    )
    .unwrap();
    for (index, (name, params, has_result)) in CALLBACKS.iter().enumerate() {
        if more.contains(&format!("\"{name}\"")) {
            continue;
        }
        let result = if *has_result { "(result i32)" } else { "" };
        write!(wat, "(func (export \"{name}\") (param{}) {result}", " i32".repeat(*params))
            .unwrap();
        write!(wat, " (call $note (i32.const {index}))").unwrap();
        for param in 0..*params {
            write!(wat, " (call $note (local.get {param}))").unwrap();
        }
        if *has_result {
            write!(wat, " (i32.load (i32.const {}))", RESULTS + 4 * index).unwrap();
        }
        writeln!(wat, ")").unwrap();
    }
    // Starting must succeed, and ending.
    for (index, (name, ..)) in CALLBACKS.iter().enumerate() {
        if matches!(*name, "proxy_on_vm_start" | "proxy_on_configure" | "proxy_on_done") {
            writeln!(wat, "(data (i32.const {}) \"\\01\")", RESULTS + 4 * index).unwrap();
        }
    }
    wat + more + ")"
}

/// What an upstream answers.
pub(crate) enum Script {
    Answer(StatusCode, HeaderMap, Vec<Frame<Bytes>>),
    Error(&'static str),
    Never,
}

/// A request that came to an upstream.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) worker: usize,
    pub(crate) upstream: String,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A server that does what it is told and remembers it.
#[derive(Default)]
pub(crate) struct FakeServices {
    pub(crate) scripts: Mutex<VecDeque<Script>>,
    pub(crate) called: Arc<Mutex<Vec<Called>>>,
    pub(crate) stored: Mutex<HashMap<String, StoredResponse>>,
}

impl Services for FakeServices {
    fn has_upstream(&self, name: &str) -> bool {
        matches!(name, "up" | "forbidden")
    }

    fn call(&self, worker: usize, upstream: &str, request: Request<CallBody>) -> Calling {
        let script = self.scripts.lock().pop_front().unwrap_or(Script::Never);
        let (called, upstream) = (Arc::clone(&self.called), upstream.to_owned());
        let (head, body) = request.into_parts();
        // The request's body is read while the answer is already under way.
        tokio::spawn(async move {
            let collected = body.collect().await.unwrap();
            let trailers = collected.trailers().cloned().unwrap_or_default();
            called.lock().push(Called {
                worker,
                upstream,
                method: head.method,
                target: head.uri.to_string(),
                headers: head.headers,
                body: collected.to_bytes(),
                trailers,
            });
        });
        Box::pin(async move {
            match script {
                Script::Answer(status, headers, frames) => {
                    let frames = frames.into_iter().map(Ok);
                    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
                    let mut response = Response::new(body);
                    *response.status_mut() = status;
                    *response.headers_mut() = headers;
                    Ok(response)
                }
                Script::Error(cause) => Err(cause.to_owned()),
                Script::Never => std::future::pending().await,
            }
        })
    }

    fn stored(&self, url: &str) -> Result<Option<StoredResponse>, ContentError> {
        check(url)?;
        Ok(self.stored.lock().get(url).cloned())
    }

    fn inject(&self, url: &str, response: Injection) -> Result<(), ContentError> {
        check(url)?;
        if response.ttl.is_zero() {
            return Err(ContentError::NotStored { why: "it is stale at once".to_owned() });
        }
        let ttl_ms = i64::try_from(response.ttl.as_millis()).unwrap();
        let Injection { status, headers, body, .. } = response;
        let body = vec![body.slice(..body.len() / 2), body.slice(body.len() / 2..)];
        let stored = StoredResponse { status, headers, age_ms: 0, ttl_ms, hits: 3, body };
        self.stored.lock().insert(url.to_owned(), stored);
        Ok(())
    }

    fn purge(&self, url: &str, soft: bool) -> Result<usize, ContentError> {
        check(url)?;
        let mut stored = self.stored.lock();
        match soft {
            true => Ok(stored.get_mut(url).map(|stored| stored.ttl_ms = 0).into_iter().count()),
            false => Ok(stored.remove(url).into_iter().count()),
        }
    }

    fn property(&self, path: &[&str]) -> Option<Value> {
        (path == ["node", "id"]).then(|| "node-1".into())
    }
}

fn check(url: &str) -> Result<(), ContentError> {
    if url.starts_with("http://") {
        return Ok(());
    }
    Err(ContentError::Url { url: url.to_owned(), why: "no scheme".to_owned() })
}

/// What a connection and a route know.
struct Known(&'static [(&'static str, &'static str)]);

impl Properties for Known {
    fn property(&self, path: &[&str]) -> Option<Value> {
        let path = path.join(".");
        self.0.iter().find(|(known, _)| *known == path).map(|(_, value)| (*value).into())
    }
}

/// The facts of every request of these tests.
pub(crate) fn facts() -> Facts {
    let about = About {
        client: Some("192.0.2.7:4711".parse().unwrap()),
        connection: Arc::new(Known(&[
            ("destination.address", "192.0.2.1:443"),
            ("connection.tls_version", "TLSv1.3"),
        ])),
        route: Arc::new(Known(&[("route_name", "shop /cart"), ("cluster_name", "up")])),
        fills: false,
    };
    Facts { about: Arc::new(about), started: Instant::now(), bag: None }
}

/// Fields by name and value.
pub(crate) fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (name.parse().unwrap(), http::HeaderValue::from_static(value))
    };
    let mut map = HeaderMap::new();
    pairs.iter().map(pair).for_each(|(name, value): (http::HeaderName, _)| {
        map.append(name, value);
    });
    map
}

/// `GET https://shop.example/cart?id=7` with three fields.
pub(crate) fn request_head() -> Lent<RequestHead> {
    Lent::Own(RequestHead {
        method: Method::GET,
        secure: true,
        authority: "shop.example".to_owned(),
        target: "/cart?id=7".to_owned(),
        version: Version::HTTP_11,
        headers: fields(&[("accept", "text/html"), ("x-a", "1"), ("x-a", "2")]),
    })
}

/// `200` with two fields.
pub(crate) fn response_head() -> Lent<ResponseHead> {
    let headers = fields(&[("content-type", "text/html"), ("x-b", "3")]);
    Lent::Own(ResponseHead { status: StatusCode::OK, headers })
}

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
    ENGINE.get_or_init(|| Engine::new(1).unwrap())
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
        let slot = Slot::new(0, Box::new(move |_, failure| failed.lock().push(failure.clone())));
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
            services: Arc::clone(&services) as Arc<dyn Services>,
            commons: options.commons,
            metrics: Arc::clone(&metrics),
        };
        let home = home(&runtime, Arc::downgrade(&slot));
        let (engine, environment) = (engine(), Arc::new(environment));
        let instance = Instance::start(engine, &compiled, environment, home, engine.mark(0))?;
        // What it asked for while it started is answered before it is in its slot.
        run_until_idle(&runtime);
        slot.fill(Box::new(instance));
        let signatures = HashMap::new();
        Ok(Bench { runtime, slot, services, metrics, failures, signatures, input: INPUT })
    }

    /// Works on the instance.
    pub(crate) fn instance<R>(&self, work: impl FnOnce(&mut Instance) -> R) -> R {
        self.slot.with_any(|instance| Ok(work(instance))).unwrap().unwrap()
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
        self.slot.with_any(|instance| {
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
    Home { place: 0, worker: 0, worker_loop, own_loop, slot, serial: 1 }
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

/// Lines of the log that are written while `work` runs.
pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorder = Recorder(Arc::clone(&lines));
    tracing::subscriber::with_default(recorder, work);
    std::mem::take(&mut lines.lock())
}

struct Recorder(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Recorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        if event.metadata().target().starts_with("weir_plugin") {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().push(format!("{} {}", event.metadata().level(), message.0));
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
