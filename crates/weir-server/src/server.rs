//! The server as a whole: bound, running, reloaded, stopped.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_arena::Arena;
use weir_cache::{Cache, Settings, eviction};
use weir_config::{Address, Config, KernelUse, Policy};
use weir_kernel::{Kernel, Refusal};
use weir_plugin::Plugins;

use crate::error::StartError;
use crate::guard::{self, Guard, Watch, Wish};
use crate::live::{Live, Surroundings, addresses};
use crate::metrics::Registry;
use crate::services::ServerServices;
use crate::shared::{ListenerNumbers, Shared};
use crate::sockets::Bound;
use crate::worker::{self, Command, Handle};

/// A server whose sockets are bound and whose files are open, before it serves. Between this and
/// [`Ready::start`] the process may give up its privileges.
pub struct Ready {
    shared: Arc<Shared>,
    workers: usize,
    bound: Vec<(Bound, Shape)>,
    refusal: Refusal,
}

/// A serving server.
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<Handle>,
    /// Addresses being listened on. Also the lock under which reloads run one at a time.
    listening: Mutex<BTreeMap<Address, Listening>>,
    /// Addresses that a reload gave up, and when.
    given_up: Mutex<Vec<(Address, Instant)>>,
    /// For listeners that are given up.
    refusal: Refusal,
}

/// An address that is listened on.
struct Listening {
    /// Of TCP, with the port that the kernel chose for port 0.
    local: Option<SocketAddr>,
    shape: Shape,
    /// The workers' sockets. Both end before the workers close theirs: they keep them open.
    sockets: Vec<Vec<OwnedFd>>,
    watch: Watch,
}

/// How an address is listened on, as far as overload control wishes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shape {
    /// The kernel judges its connections.
    is_watched: bool,
    /// Classes with queues of their own.
    queues: Vec<String>,
}

/// Workers have closed their sockets this long after an address was given up: they accept what has
/// begun for a tenth of it.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// Pause between two tries to bind an address whose sockets are being closed.
const CLOSING_PAUSE: Duration = Duration::from_millis(10);

impl Ready {
    /// Binds and opens everything. Must be called within a tokio runtime that lives as long as
    /// the server: health checks run there.
    ///
    /// # Errors
    /// The first thing that cannot be bound or opened.
    pub fn new(config: Config) -> Result<Ready, StartError> {
        weir_plugin::inspect(&config)?;
        weir_work::begin_threads_with(worker::forgo_privileges);
        let workers = config.server.workers.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        let registry = Arc::new(Registry::new(workers));
        let numbers = Arc::new(ListenerNumbers::default());
        let guard = Guard::new(&config, workers);
        guard.tell_kernel(&config);
        let bound = addresses(&config)
            .into_iter()
            .map(|address| {
                let shape = Shape::of(guard.kernel(), &config, address);
                let bound = Bound::bind(address, workers, &shape.wish(guard.kernel(), false))?;
                Ok((bound, shape))
            })
            .collect::<Result<Vec<_>, StartError>>()?;
        guard.look_at_kernel();
        let refusal = Refusal::load(config.guard.kernel);
        let arena = Arena::new(config.cache.memory)?;
        let settings = Settings {
            memory_bytes: config.cache.memory,
            object_bytes_max: config.cache.object_max,
            policy: match config.cache.policy {
                Policy::Gdsf => eviction::Policy::Gdsf,
                Policy::Lru => eviction::Policy::Lru,
            },
        };
        let cache = Cache::new(settings, arena.clone());
        let around = Surroundings {
            workers,
            registry: &registry,
            overloaded: &guard.overloaded_upstreams,
            classes: &Arc::new(guard.rules().classes().clone()),
            listener_number: &|address| numbers.of(address),
            cache: &cache,
        };
        let live = Live::build(Arc::new(config), &around, None)?;
        let services = ServerServices::new();
        let plugins = Plugins::new(&live.config.plugin_settings, services.clone());
        let shared = Shared::new(live, arena, cache, registry, plugins, guard, numbers);
        let shared = Arc::new(shared);
        services.serve(&shared);
        Ok(Ready { shared, workers, bound, refusal })
    }

    /// Starts the plugins, then the workers.
    ///
    /// # Errors
    /// A plugin that cannot be started, or if the system gives no threads.
    pub fn start(self) -> Result<Arc<Server>, StartError> {
        let loops =
            (0..self.workers).map(|_| worker::event_loop()).collect::<Result<Vec<_>, _>>()?;
        let plugins = &self.shared.plugins;
        plugins.start(loops.iter().map(|runtime| runtime.handle().clone()).collect())?;
        let live = self.shared.live.load_full();
        plugins.prepare(&live.config)?.commit()?;
        live.link(plugins);
        let listener = Arc::downgrade(&self.shared);
        plugins.on_change(Box::new(move || {
            if let Some(shared) = listener.upgrade() {
                shared.live.load().link(&shared.plugins);
            }
        }));
        let workers = loops
            .into_iter()
            .enumerate()
            .map(|(index, runtime)| worker::start(index, &self.shared, runtime))
            .collect::<Result<Vec<_>, _>>()?;
        let server = Server {
            shared: self.shared,
            workers,
            listening: Mutex::new(BTreeMap::new()),
            given_up: Mutex::new(Vec::new()),
            refusal: self.refusal,
        };
        let mut listening = server.listening.lock();
        for (bound, shape) in self.bound {
            server.hand_out(bound, shape, &mut listening);
        }
        drop(listening);
        Ok(Arc::new(server))
    }
}

impl Server {
    /// Takes a new configuration: everything is opened first, then swapped at once. Requests in
    /// flight finish with the one they started with.
    ///
    /// # Errors
    /// What cannot be opened or changed; the configuration in force stays in force, whole.
    pub fn reload(&self, config: Config) -> Result<(), StartError> {
        let result = self.try_reload(config);
        let counter = match &result {
            Ok(()) => &self.shared.reloads,
            Err(_) => &self.shared.reload_failures,
        };
        counter.fetch_add(1, Relaxed);
        result
    }

    /// Counts a reload that failed before there was a configuration: its file could not be read or
    /// is wrong.
    pub fn count_unusable_configuration(&self) {
        self.shared.reload_failures.fetch_add(1, Relaxed);
    }

    fn try_reload(&self, config: Config) -> Result<(), StartError> {
        let mut listening = self.listening.lock();
        let previous = self.shared.live.load_full();
        check_unchangeable(&previous.config, &config)?;
        let classes = self.shared.guard.classes_of(&config);
        let around = Surroundings {
            workers: self.workers.len(),
            registry: &self.shared.metrics,
            overloaded: &self.shared.guard.overloaded_upstreams,
            classes: &classes,
            listener_number: &|address| self.shared.listener_number(address),
            cache: &self.shared.cache,
        };
        let plugins = self.shared.plugins.prepare(&config)?;
        let mut live = Live::build(Arc::new(config), &around, Some(&previous))?;
        // The kernel in use is told when nothing can fail any more.
        let new_kernel = self.shared.guard.kernel_for(&live.config);
        let kernel = new_kernel.as_ref().or_else(|| self.shared.guard.kernel());
        let added = self.bind_anew(&live.config, kernel, &listening)?;
        let wanted = addresses(&live.config);
        let removed: Vec<Address> =
            listening.keys().filter(|a| !wanted.contains(a)).cloned().collect();
        for address in &removed {
            // Connections accepted there go on with the sites they were accepted for.
            let number = self.shared.listener_number(address);
            live.keep_listener(number, &previous);
        }
        plugins.commit()?;
        live.link(&self.shared.plugins);
        if let Some(kernel) = new_kernel {
            self.shared.guard.use_kernel(kernel);
        }
        // Before any request is of these classes. Those that come meanwhile go by the upstreams of
        // the configuration before, whose gates may be the same; the new settings come last.
        for upstream in previous.groups.values().chain(live.groups.values()) {
            upstream.configure(&live.config.guard, &classes);
        }
        self.shared.guard.replace(&live.config);
        let config = Arc::clone(&live.config);
        self.shared.live.store(Arc::new(live));
        // What was deployed meanwhile was linked to the routes before.
        self.shared.live.load().link(&self.shared.plugins);
        for (bound, shape) in added {
            self.give_up(&bound.address, &mut listening);
            self.hand_out(bound, shape, &mut listening);
        }
        for address in removed {
            remove_socket_file(&address);
            self.give_up(&address, &mut listening);
            self.given_up.lock().push((address, Instant::now()));
        }
        self.watch_as_wished(&config, &mut listening);
        self.shared.guard.look_at_kernel();
        Ok(())
    }

    /// Binds the addresses that are new, and those that are to have other queues.
    fn bind_anew(
        &self,
        config: &Config,
        kernel: Option<&Kernel>,
        listening: &BTreeMap<Address, Listening>,
    ) -> Result<Vec<(Bound, Shape)>, StartError> {
        let mut bound = Vec::new();
        for address in addresses(config) {
            let shape = Shape::of(kernel, config, address);
            let known = listening.get(address);
            if known.is_some_and(|known| known.shape.queues == shape.queues) {
                continue;
            }
            // The port that the kernel chose stays.
            let local = known.and_then(|known| known.local);
            let to = local.map_or_else(|| address.clone(), Address::Tcp);
            match self.bind(&to, &shape.wish(kernel, known.is_some())) {
                Ok(one) => bound.push((Bound { address: address.clone(), ..one }, shape)),
                // Whoever was root when it bound this is not any more.
                Err(StartError::Bind { source, .. }) if known.is_some() && is_others(&source) => {
                    tracing::warn!(
                        %address, cause = %source,
                        "connections keep the accept queues they have until a restart: the address \
                         cannot be bound again"
                    );
                }
                Err(e) => return Err(e),
            }
        }
        Ok(bound)
    }

    /// Has the kernel judge connections to sockets that stay, or judge them no more.
    fn watch_as_wished(&self, config: &Config, listening: &mut BTreeMap<Address, Listening>) {
        let guard = &self.shared.guard;
        for (address, known) in listening {
            let is_watched = Shape::of(guard.kernel(), config, address).is_watched;
            if known.shape.is_watched == is_watched {
                continue;
            }
            known.shape.is_watched = is_watched;
            let kernel = guard.kernel().filter(|_| is_watched);
            known.watch = Watch::begin(kernel, &known.sockets, &known.shape.queues);
            let number = self.shared.listener_number(address);
            guard.set_watched(number, known.watch.is_attached());
        }
    }

    /// Has the workers let nobody in who comes to an address from now on.
    fn give_up(&self, address: &Address, listening: &mut BTreeMap<Address, Listening>) {
        let Some(mut known) = listening.remove(address) else { return };
        self.refuse(&mut known);
        let number = self.shared.listener_number(address);
        self.tell_all(|| Command::Unlisten { number });
    }

    /// Whoever has begun to connect is still served; whoever comes later is not let in.
    fn refuse(&self, known: &mut Listening) {
        // It takes its own program off.
        known.watch = Watch::default();
        let sockets = std::mem::take(&mut known.sockets).into_iter().flatten();
        // What hinders one hinders all, and is said once.
        let causes = sockets.filter_map(|socket| self.refusal.hold(socket.as_fd()).err());
        if let Some(cause) = causes.reduce(|first, _| first) {
            tracing::info!(%cause, "connections that are being made may be reset");
        }
    }

    /// Binds an address. One that was given up a moment ago may still be in use by the workers'
    /// own sockets, which are waited for.
    fn bind(&self, address: &Address, wish: &Wish<'_>) -> Result<Bound, StartError> {
        let closed_at = {
            let mut given_up = self.given_up.lock();
            given_up.retain(|(_, at)| at.elapsed() < CLOSED_WITHIN);
            given_up.iter().filter(|(a, _)| a == address).map(|(_, at)| *at + CLOSED_WITHIN).max()
        };
        loop {
            let bound = Bound::bind(address, self.workers.len(), wish);
            let in_use = matches!(&bound, Err(StartError::Bind { source, .. })
                if source.kind() == io::ErrorKind::AddrInUse);
            if !in_use || closed_at.is_none_or(|at| Instant::now() > at) {
                return bound;
            }
            std::thread::sleep(CLOSING_PAUSE);
        }
    }

    /// What the server listens on: addresses as configured, and for TCP as bound.
    pub fn listening(&self) -> Vec<(Address, Option<SocketAddr>)> {
        self.listening.lock().iter().map(|(a, it)| (a.clone(), it.local)).collect()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.shared.live.load().config)
    }

    /// Opens access logs anew, after a rotation.
    pub fn reopen_logs(&self) {
        for log in &self.shared.live.load().logs {
            log.reopen();
        }
    }

    /// Loads certificates that changed on disk. What cannot be loaded is said in the log and stays
    /// as it was.
    pub fn reload_certificates(&self) {
        for store in self.shared.live.load().certificate_stores() {
            if let Err(cause) = store.reload_if_changed() {
                tracing::error!(%cause, "cannot reload a certificate; the old one stays in use");
            }
        }
    }

    /// Stops gracefully: no new connections, requests in flight are finished, at most for
    /// `timeout`. Blocks until the workers have ended.
    pub fn stop(&self, timeout: Duration) {
        self.shared.draining.store(true, Relaxed);
        let deadline = Instant::now() + timeout;
        for (address, known) in self.listening.lock().iter_mut() {
            remove_socket_file(address);
            self.refuse(known);
        }
        self.tell_all(|| Command::Drain { deadline });
        for worker in &self.workers {
            if let Some(thread) = worker.thread.lock().take() {
                // A worker that panicked has said so on standard error.
                let _ = thread.join();
            }
        }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn hand_out(&self, bound: Bound, shape: Shape, listening: &mut BTreeMap<Address, Listening>) {
        let Bound { address, local, descriptors, copies, watch } = bound;
        let number = self.shared.listener_number(&address);
        self.shared.guard.set_watched(number, watch.is_attached());
        for (worker, descriptors) in self.workers.iter().zip(descriptors) {
            // A worker that is gone has panicked; the others go on.
            let _ = worker.commands.send(Command::Listen { descriptors, number, local });
        }
        listening.insert(address, Listening { local, shape, sockets: copies, watch });
    }

    fn tell_all(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            // As above.
            let _ = worker.commands.send(command());
        }
    }
}

impl Shape {
    fn of(kernel: Option<&Kernel>, config: &Config, address: &Address) -> Shape {
        let is_tcp = matches!(address, Address::Tcp(_));
        let is_watched = kernel.is_some() && is_tcp && guard::shows_clients(config, address);
        let has_queues = is_watched && config.guard.kernel == KernelUse::Auto;
        let queues = if has_queues { guard::queues(config) } else { Vec::new() };
        Shape { is_watched, queues }
    }

    fn wish<'a>(&'a self, kernel: Option<&'a Kernel>, is_ours: bool) -> Wish<'a> {
        let kernel = kernel.filter(|_| self.is_watched);
        Wish { kernel, classes: &self.queues, is_ours }
    }
}

/// Whether an address cannot be bound for who the process is: its port is privileged, or was bound
/// by somebody else, whose sockets share it with their own only.
fn is_others(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::AddrInUse)
}

/// Takes a Unix-domain socket's file away, while it is certainly the server's own: once nobody
/// listens on it, the next server may put its own there.
fn remove_socket_file(address: &Address) {
    if let Address::Unix(path) = address {
        // Somebody may have removed it already.
        let _ = std::fs::remove_file(path);
    }
}

/// What was decided at start and cannot be decided again.
fn check_unchangeable(old: &Config, new: &Config) -> Result<(), StartError> {
    let (a, b) = (&old.server, &new.server);
    let checks = [
        ("server workers", a.workers == b.workers),
        ("server admin", a.admin == b.admin),
        ("server user", (&a.user, &a.group, a.keep_bpf) == (&b.user, &b.group, b.keep_bpf)),
        ("limits header-size", a.limits.header_size == b.limits.header_size),
        ("limits header-count", a.limits.header_count == b.limits.header_count),
        ("limits http2-streams", a.limits.http2_streams == b.limits.http2_streams),
        ("cache", old.cache == new.cache),
        ("adapt (but its image)", old.adapt.processes() == new.adapt.processes()),
        ("plugins", old.plugin_settings == new.plugin_settings),
    ];
    match checks.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(StartError::NeedsRestart { what }),
        None => Ok(()),
    }
}
