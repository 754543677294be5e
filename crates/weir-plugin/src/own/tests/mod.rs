//! The interface with real modules: a puppet whose hooks do what the test says.

mod documents;
mod gray;
mod held;
mod hooks;
mod imports;

use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use wasmtime::Store;
use weir_config::{Names, PluginPolicy};

use super::guest::Guest;
use super::ops::Op;
use crate::call::{CallAnswer, CallResult};
use crate::engine::Engine;
use crate::exchange::{About, Action, Exchange, Facts, Lent, Phase, RequestHead, ResponseHead};
use crate::failure::{Failure, FailureKind};
use crate::host::{Environment, Host};
use crate::log::LogBudget;
use crate::module::{Compiled, ModuleError};
use crate::place::Home;
use crate::properties::{NoProperties, Value};
use crate::services::{CallBody, Calling, ContentError, Injection, Services, StoredResponse};
use crate::shared::{Commons, PluginMetrics};

/// The request that the tests are about.
const ID: u32 = 7;

/// A server that has two upstreams and stores one response.
#[derive(Default)]
struct Stage {
    calls: Mutex<Vec<(String, Request<()>)>>,
    injected: Mutex<Vec<(String, Injection)>>,
    purged: Mutex<Vec<(String, bool)>>,
}

impl Services for Stage {
    fn has_upstream(&self, name: &str) -> bool {
        ["app", "auth"].contains(&name)
    }

    fn call(&self, _worker: usize, upstream: &str, request: Request<CallBody>) -> Calling {
        let (parts, _) = request.into_parts();
        self.calls.lock().push((upstream.to_owned(), Request::from_parts(parts, ())));
        Box::pin(std::future::pending())
    }

    fn stored(&self, url: &str) -> Result<Option<StoredResponse>, ContentError> {
        match url {
            "http://a/stored" => Ok(Some(StoredResponse {
                status: StatusCode::OK,
                headers: headers(&[("etag", "\"1\"")]),
                age_ms: 1000,
                ttl_ms: -5,
                hits: 3,
                body: vec![Bytes::from("stored "), Bytes::from("content")],
            })),
            "http://a/unknown" => Ok(None),
            url => Err(ContentError::Url { url: url.to_owned(), why: "no site".to_owned() }),
        }
    }

    fn inject(&self, url: &str, response: Injection) -> Result<(), ContentError> {
        self.injected.lock().push((url.to_owned(), response));
        Ok(())
    }

    fn purge(&self, url: &str, soft: bool) -> Result<usize, ContentError> {
        self.purged.lock().push((url.to_owned(), soft));
        Ok(usize::from(url == "http://a/stored"))
    }

    fn property(&self, path: &[&str]) -> Option<Value> {
        (path == ["node", "id"]).then(|| Value::from("weir-1"))
    }
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |&(name, value): &(&str, &str)| {
        (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
    };
    lines.iter().map(line).collect()
}

fn request() -> RequestHead {
    RequestHead {
        method: Method::GET,
        secure: true,
        authority: "example.org:8443".to_owned(),
        target: "/path?query=1".to_owned(),
        version: Version::HTTP_2,
        headers: headers(&[("accept", "*/*"), ("x-two", "one"), ("x-two", "two")]),
    }
}

fn response() -> ResponseHead {
    ResponseHead { status: StatusCode::CREATED, headers: headers(&[("server", "weir")]) }
}

fn facts() -> Facts {
    let about = About {
        client: Some("192.0.2.1:4711".parse().unwrap()),
        connection: Arc::new(NoProperties),
        route: Arc::new(NoProperties),
        fills: false,
    };
    Facts { about: Arc::new(about), started: Instant::now(), bag: None }
}

/// A policy that allows everything.
fn lenient() -> PluginPolicy {
    let mut policy = PluginPolicy::default();
    policy.allow.upstreams = Names::All;
    policy.allow.shared = Names::These(vec!["common".to_owned()]);
    policy.allow.cache = true;
    policy
}

/// A plugin that runs.
struct Puppet {
    store: Store<Host>,
    guest: Guest,
    stage: Arc<Stage>,
    _runtime: Option<Runtime>,
}

impl Puppet {
    fn new(wat: &str) -> Puppet {
        Puppet::start(wat, lenient(), "").unwrap()
    }

    /// # Errors
    /// If the plugin does not start.
    fn start(
        module: impl AsRef<[u8]>,
        policy: PluginPolicy,
        config: &str,
    ) -> Result<Puppet, Failure> {
        let engine = Engine::new().unwrap();
        let compiled = Compiled::new(&engine, module.as_ref()).unwrap();
        let stage = Arc::new(Stage::default());
        let environment = Arc::new(Environment {
            name: "puppet".to_owned(),
            generation: 1,
            log: LogBudget::new(policy.log_per_s),
            policy,
            config: Bytes::copy_from_slice(config.as_bytes()),
            vm_config: Bytes::new(),
            root_id: "puppet".to_owned(),
            services: Arc::clone(&stage) as Arc<dyn Services>,
            commons: Commons::new(),
            metrics: Arc::new(PluginMetrics::default()),
        });
        let mut runtime = None;
        let handle = Handle::try_current().unwrap_or_else(|_| {
            let made = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.insert(made).handle().clone()
        });
        let home = Home {
            place: 0,
            worker: 0,
            worker_loop: handle.clone(),
            own_loop: handle,
            long_loop: None,
            slot: Weak::new(),
            serial: 1,
        };
        let mut store = Store::new(engine.wasm(), Host::new(environment, home));
        store.limiter(|host| &mut host.bounds);
        store.set_epoch_deadline(1 << 30);
        let instance = compiled.pre().instantiate(&mut store).unwrap();
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        let guest = Guest::start(&mut store, &instance)?;
        let mut puppet = Puppet { store, guest, stage, _runtime: runtime };
        puppet.open();
        Ok(puppet)
    }

    /// A new request comes.
    fn open(&mut self) {
        let mut exchange = Box::new(Exchange::new(facts()));
        exchange.request = Some(Lent::Own(request()));
        exchange.response = Some(Lent::Own(response()));
        self.store.data_mut().exchanges.insert(ID, exchange);
    }

    fn exchange(&mut self) -> &mut Exchange {
        self.store.data_mut().exchanges.get_mut(&ID).unwrap()
    }

    fn hook(&mut self, phase: Phase) -> Result<Action, Failure> {
        self.run(phase, false)
    }

    fn run(&mut self, phase: Phase, end: bool) -> Result<Action, Failure> {
        self.exchange().phase = phase;
        self.guest.hook(&mut self.store, ID, phase, end)
    }

    /// Shows a piece of the response's body and returns what becomes of it.
    fn piece(&mut self, piece: &[u8], end: bool) -> Result<Vec<u8>, Failure> {
        self.exchange().response_body.push(Bytes::copy_from_slice(piece));
        self.run(Phase::ResponseBody, end)?;
        let exchange = self.exchange();
        exchange.response_body_offset += piece.len() as u64;
        Ok(exchange.response_body.take().concat())
    }

    /// Something of the guest's memory.
    fn memory(&self, at: usize, len: usize) -> &[u8] {
        &self.store.data().memory.unwrap().data(&self.store)[at..at + len]
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.memory(at, 8).try_into().unwrap())
    }

    fn half(&self, at: usize) -> usize {
        u32::from_le_bytes(self.memory(at, 4).try_into().unwrap()) as usize
    }

    /// What a slice at an address refers to.
    fn text(&self, at: usize) -> String {
        String::from_utf8(self.memory(self.half(at), self.half(at + 4)).to_vec()).unwrap()
    }

    /// A table of fields, given where its count stands.
    fn fields(&self, at: usize) -> Vec<(String, String)> {
        let (count, table) = (self.half(at), self.half(at + 4));
        (0..count).map(|i| (self.text(table + 16 * i), self.text(table + 16 * i + 8))).collect()
    }
}

/// Where the puppet has its buffers: frame, body, results.
const FRAME_AT: usize = 0x1_0000;
const BODY_AT: usize = 0x2_0000;
const RESULTS_AT: usize = 0x3_0000;

/// A module with these functions. Its buffers are at fixed addresses of 64 KiB each.
fn module(functions: &str) -> String {
    format!(
        r#"(module
            {functions}
            (memory (export "memory") 8)
            (func (export "weir_abi_1"))
            (func (export "weir_buffer") (param $kind i32) (param $size i32) (result i32)
                (if (i32.gt_u (local.get $size) (i32.const 0x10000)) (then (return (i32.const 0))))
                (i32.mul (i32.const 0x10000) (i32.add (local.get $kind) (i32.const 1)))))"#
    )
}

/// A hook that returns a list of edits which lies at an address.
fn hook(export: &str, at: usize, list: &List) -> String {
    let data: String = list.0.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\{byte:02x}");
        text
    });
    let result = (at as u64) << 32 | list.0.len() as u64;
    let result = if list.0.is_empty() { 0 } else { result };
    format!(
        r#"(func (export "{export}") (param i32) (result i64) (i64.const {result}))
           (data (i32.const {at}) "{data}")"#
    )
}

/// A module with one hook that returns these edits.
fn with_hook(export: &str, list: &List) -> String {
    module(&hook(export, 1024, list))
}

/// A list of edits.
#[derive(Clone, Default)]
struct List(Vec<u8>);

impl List {
    fn new() -> List {
        List::default()
    }

    fn raw(self, number: u8, name: &[u8], value: &[u8]) -> List {
        self.flagged(number, 0, name, value)
    }

    fn flagged(mut self, number: u8, flags: u8, name: &[u8], value: &[u8]) -> List {
        self.0.extend([number, flags]);
        self.0.extend((name.len() as u16).to_le_bytes());
        self.0.extend((value.len() as u32).to_le_bytes());
        self.0.extend(name);
        self.0.extend(value);
        self
    }

    fn line(self, op: Op, name: &str, value: &str) -> List {
        self.raw(op as u8, name.as_bytes(), value.as_bytes())
    }

    fn text(self, op: Op, value: &str) -> List {
        self.raw(op as u8, b"", value.as_bytes())
    }

    fn number(self, op: Op, value: u32) -> List {
        self.raw(op as u8, b"", &value.to_le_bytes())
    }

    fn long(self, op: Op, value: u64) -> List {
        self.raw(op as u8, b"", &value.to_le_bytes())
    }

    fn bare(self, op: Op) -> List {
        self.raw(op as u8, b"", b"")
    }

    fn elsewhere(self, op: Op, at: u32, len: u32) -> List {
        let span = [at.to_le_bytes(), len.to_le_bytes()].concat();
        self.flagged(op as u8, 1, b"", &span)
    }
}

fn refused(module: &str) -> ModuleError {
    Compiled::new(&Engine::new().unwrap(), module.as_bytes()).err().unwrap()
}

fn answered(id: u32, body: &str) -> CallResult {
    let answer = CallAnswer {
        head: ResponseHead {
            status: StatusCode::ACCEPTED,
            headers: headers(&[("x-from", "auth")]),
        },
        body: Bytes::copy_from_slice(body.as_bytes()),
        trailers: headers(&[("x-end", "1")]),
    };
    CallResult { id, answer: Ok(answer) }
}

const NEVER: Duration = Duration::from_millis(60_000);
