//! A host of plugins without a server: one worker, a configuration, modules as text.

#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use tokio::runtime::Handle;
use weir_plugin::{
    About, CallBody, Calling, Content, ContentError, Deployed, Deployment, Facts, Failure,
    Generation, Injection, Lend, NoProperties, Passed, PluginError, Plugins, RequestHead, Services,
    StoredResponse, Stream, Value, enter_place,
};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that has nothing.
struct Nothing;

impl Services for Nothing {
    fn has_upstream(&self, _name: &str) -> bool {
        false
    }

    fn call(&self, _worker: usize, _upstream: &str, _request: http::Request<CallBody>) -> Calling {
        Box::pin(async { Err("there is no upstream".to_owned()) })
    }

    fn stored(&self, _url: &str) -> Result<Option<StoredResponse>, ContentError> {
        Ok(None)
    }

    fn inject(&self, _url: &str, _response: Injection) -> Result<(), ContentError> {
        Ok(())
    }

    fn purge(&self, _url: &str, _soft: bool) -> Result<usize, ContentError> {
        Ok(0)
    }

    fn property(&self, _path: &[&str]) -> Option<Value> {
        None
    }
}

/// Plugins with one worker.
pub(crate) struct Host {
    pub(crate) plugins: Plugins,
    worker: Handle,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Host {
    /// Without a store, and configured with two routes.
    pub(crate) fn new() -> Host {
        Host::with("", "").unwrap()
    }

    /// Over a store.
    pub(crate) fn at(store: &Path) -> Result<Host, PluginError> {
        Host::with(&store_block(store), "")
    }

    /// With blocks at the top of the configuration, and lines in its first route.
    pub(crate) fn with(blocks: &str, lines: &str) -> Result<Host, PluginError> {
        let config = config(blocks, lines);
        let plugins = Plugins::new(&config.plugin_settings, Arc::new(Nothing));
        let (end, ended) = tokio::sync::oneshot::channel();
        let (sender, handle) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            sender.send(runtime.handle().clone()).unwrap();
            enter_place(0);
            let _ = runtime.block_on(ended);
        });
        let worker: Handle = handle.recv().unwrap();
        plugins.start(vec![worker.clone()])?;
        plugins.configure(&config)?;
        Ok(Host { plugins, worker, _end: end })
    }

    pub(crate) fn reload(&self, blocks: &str, lines: &str) -> Result<(), PluginError> {
        self.plugins.configure(&config(blocks, lines))
    }

    pub(crate) fn deploy(&self, name: &str, module: &str) -> Result<Deployed, PluginError> {
        self.plugins.deploy(Deployment::new(name, module.to_owned()))
    }

    pub(crate) fn active(&self, name: &str) -> Arc<Generation> {
        self.plugins.plugin(name).unwrap().active().unwrap()
    }

    /// A request begins on a plugin.
    pub(crate) fn open(&self, name: &str) -> Result<Stream, Failure> {
        let generation = self.plugins.plugin(name).unwrap().pick().unwrap();
        self.run(async move { Stream::open(&generation, 0, facts()).await })
    }

    /// A request passes a plugin.
    pub(crate) fn pass(&self, name: &str) -> Passed<RequestHead> {
        let stream = self.open(name).unwrap();
        self.show(&stream)
    }

    /// A request that is open is shown.
    pub(crate) fn show(&self, stream: &Stream) -> Passed<RequestHead> {
        let stream = stream.clone();
        self.run(async move { stream.request(Arc::new(Head::new()), Content::None).await })
    }

    /// Runs something on the worker.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        task: impl Future<Output = R> + Send + 'static,
    ) -> R {
        let (sender, receiver) = mpsc::channel();
        self.worker.spawn(async move {
            let _ = sender.send(task.await);
        });
        receiver.recv_timeout(PATIENCE).unwrap()
    }
}

pub(crate) struct Head(RequestHead);

impl Head {
    pub(crate) fn new() -> Head {
        Head(RequestHead {
            method: Method::GET,
            secure: false,
            version: http::Version::HTTP_11,
            authority: "a.example".to_owned(),
            target: "/".to_owned(),
            headers: HeaderMap::new(),
        })
    }
}

impl Lend<RequestHead> for Head {
    fn lend(&self) -> &RequestHead {
        &self.0
    }
}

fn facts() -> Facts {
    let about = About {
        client: None,
        connection: Arc::new(NoProperties),
        route: Arc::new(NoProperties),
        fills: false,
    };
    Facts { about: Arc::new(about), started: Instant::now(), bag: None }
}

pub(crate) fn store_block(store: &Path) -> String {
    format!("plugins {{ store {:?}; }}\n", store.display().to_string())
}

pub(crate) fn config(blocks: &str, lines: &str) -> weir_config::Config {
    let text = format!(
        "{blocks}\nsite \"a.example\" {{\n listen \"127.0.0.1:0\"\n\
         route \"/*\" {{\n respond \"\"\n {lines}\n }}\n\
         route \"/b/*\" {{\n respond \"\"\n }}\n}}\n"
    );
    weir_config::parse("test.kdl", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A module for Weir's own interface: its hook for requests does this, its hook for the
/// configuration that. `mark` makes modules that differ.
pub(crate) fn module(mark: u32, on_request: &str, configure: &str) -> String {
    format!(
        "(module
           (memory (export \"memory\") 4)
           (global i32 (i32.const {mark}))
           (func (export \"weir_abi_1\"))
           (func (export \"weir_buffer\") (param $kind i32) (param $size i32) (result i32)
             (i32.add (i32.const 1024) (i32.mul (local.get $kind) (i32.const 70000))))
           (func (export \"weir_configure\") (param $at i32) (param $length i32) (result i32)
             {configure})
           (func (export \"weir_on_request\") (param i32) (result i64)
             {on_request}))"
    )
}

/// One that does nothing.
pub(crate) fn idle(mark: u32) -> String {
    module(mark, "(i64.const 0)", "(i32.const 0)")
}

/// One that fails on every request.
pub(crate) fn trapping(mark: u32) -> String {
    module(mark, "unreachable", "(i32.const 0)")
}

/// Waits until something is so.
pub(crate) fn wait_for(mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
