//! A server's life in this process: bind, drop privileges, serve, react to signals and changed
//! files, drain, end.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_config::{Address, Config, ListenerTls};
use weir_server::admin::{Admin, Reload};
use weir_server::{Ready, Server, StartError, forgo_privileges};

use crate::privileges;

/// How often changed files are looked for: certificates, and the configuration where `watch` is on.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Where the configuration comes from.
#[derive(Clone)]
pub(crate) enum Origin {
    /// A file, read again by a reload.
    File(PathBuf),
    /// The command line; a reload opens what it names again.
    CommandLine(Box<Config>),
}

/// How to serve.
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) origin: Origin,
    /// Go on without an admin API if its address is taken.
    pub(crate) admin_is_optional: bool,
}

/// What is told when everything listens.
pub(crate) struct Listening {
    /// URLs of the sites' listeners.
    pub(crate) urls: Vec<String>,
    /// The admin API's address.
    pub(crate) admin: Option<String>,
}

/// Serves until a signal ends it. `announce` is called once everything listens.
///
/// # Errors
/// Why the server cannot start.
pub(crate) fn serve(
    settings: Settings,
    announce: impl FnOnce(&Listening),
) -> Result<(), StartError> {
    raise_descriptor_limit();
    do_without_huge_pages();
    let keep = kept_capabilities(&settings.config)?;
    let runtime = control_runtime()?;
    let _within = runtime.enter();
    let signals = Signals::listen()?;
    let admin = bind_admin(&settings)?;
    let drain_timeout = settings.config.server.drain_timeout;
    let (user, group) = (settings.config.server.user.clone(), settings.config.server.group.clone());
    warn_of_dangers(&settings.config);
    let known = stamps(&settings.origin, &settings.config).unwrap_or_default();
    let ready = Ready::new(settings.config)?;
    if user.is_some() || group.is_some() {
        privileges::drop_to(user.as_deref(), group.as_deref(), keep)?;
    }
    let server = ready.start()?;
    let reload = reloader(&server, settings.origin.clone());
    let admin_address = admin.as_ref().map(|(address, admin)| {
        admin.local_address().map_or_else(|| address.to_string(), |local| local.to_string())
    });
    let admin_file = admin.and_then(|(address, admin)| {
        runtime.spawn(admin.serve(Arc::clone(&server), Arc::clone(&reload)));
        if let Address::Unix(path) = address { Some(path) } else { None }
    });
    announce(&Listening { urls: urls(&server), admin: admin_address });
    let watching = watch_files(Arc::clone(&server), Arc::clone(&reload), settings.origin, known);
    runtime.spawn(watching);
    runtime.block_on(async {
        signals.obey_until_stopped(&server, &reload).await;
        tracing::info!("draining");
        let draining = Arc::clone(&server);
        // The admin API goes on meanwhile: /healthz tells load balancers of the drain.
        let stopped = tokio::task::spawn_blocking(move || draining.stop(drain_timeout)).await;
        if let Err(cause) = stopped {
            tracing::error!(%cause, "the drain was cut short");
        }
    });
    if let Some(path) = admin_file {
        // Without its user's right to do so it stays, and the next server replaces it.
        let _ = std::fs::remove_file(path);
    }
    tracing::info!("stopped");
    Ok(())
}

/// What is kept of root's privileges when it becomes somebody else.
fn kept_capabilities(config: &Config) -> Result<CapabilitySet, StartError> {
    match (&config.server.user, config.server.keep_bpf) {
        (Some(user), true) => {
            let wanted = weir_kernel::privilege::needed(config.guard.interface.is_some());
            let failed = |cause: std::io::Error| StartError::Privileges {
                user: user.clone(),
                cause: cause.to_string(),
            };
            privileges::prepare_to_keep(wanted).map_err(failed)
        }
        _ => Ok(CapabilitySet::empty()),
    }
}

/// Raises the soft limit of open files to the hard one: every connection and cached file takes one,
/// and the usual soft limit of 1,024 exists for programs that still use select(2).
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(cause) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%cause, "cannot raise the limit of open files");
    }
}

/// No transparent huge pages for this process and its helpers. The system clears one within the
/// page fault: a worker that first touches memory would stand still for that long, milliseconds in
/// a virtual machine (ARCHITECTURE.md, what was measured).
fn do_without_huge_pages() {
    if let Err(cause) = nix::sys::prctl::set_thp_disable(true) {
        tracing::warn!(%cause, "cannot do without transparent huge pages: responses may stall");
    }
}

/// The event loop of everything that is not serving: admin API, health checks, signals.
fn control_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Of its threads, those for what takes long; it itself runs on the caller's.
        .on_thread_start(forgo_privileges)
        .build()
        .map_err(|source| StartError::Thread { what: "the control thread", source })
}

fn bind_admin(settings: &Settings) -> Result<Option<(Address, Admin)>, StartError> {
    let Some(address) = &settings.config.server.admin else { return Ok(None) };
    match Admin::bind(address) {
        Ok(admin) => Ok(Some((address.clone(), admin))),
        Err(cause) if settings.admin_is_optional => {
            tracing::warn!(%cause, "no admin API; --admin ADDR chooses another address");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn warn_of_dangers(config: &Config) {
    for upstream in config.upstreams.iter().filter(|upstream| upstream.tls.insecure) {
        tracing::warn!(upstream = upstream.name, "certificates of this upstream are not verified");
    }
    let listeners = config.sites.iter().flat_map(|site| &site.listeners);
    for listener in listeners.filter(|l| l.tls == Some(ListenerTls::SelfSigned)) {
        tracing::warn!(address = %listener.address, "self-signed certificate: for development only");
    }
    warn_of_doubts(&config.doubts());
}

fn warn_of_doubts(doubts: &[String]) {
    doubts.iter().for_each(|doubt| tracing::warn!("{doubt}"));
}

fn reloader(server: &Arc<Server>, origin: Origin) -> Reload {
    let server = Arc::clone(server);
    Arc::new(move || {
        let config = match &origin {
            Origin::File(path) => weir_config::load(path).map_err(|errors| errors.to_string()),
            Origin::CommandLine(config) => Ok(config.as_ref().clone()),
        };
        if config.is_err() {
            server.count_unusable_configuration();
        }
        let result = config.and_then(|config| {
            let doubts = config.doubts();
            server.reload(config).map_err(|error| error.to_string())?;
            warn_of_doubts(&doubts);
            Ok(())
        });
        match &result {
            Ok(()) => tracing::info!("configuration reloaded"),
            Err(cause) => {
                tracing::error!("configuration not reloaded, the old one stays in force: {cause}");
            }
        }
        server.reload_certificates();
        result
    })
}

/// What tells a file from what it was before.
type Stamp = (SystemTime, u64, u64);

/// The configuration's file, and the lists of addresses that it names, as they are now. `None` if
/// there is no file, or one is gone for a moment, as when it is being replaced.
fn stamps(origin: &Origin, config: &Config) -> Option<HashMap<PathBuf, Stamp>> {
    let Origin::File(path) = origin else { return None };
    let lists = config.guard.lists.iter().map(|list| &list.path);
    let stamp = |path: &PathBuf| -> Option<(PathBuf, Stamp)> {
        let metadata = std::fs::metadata(path).ok()?;
        Some((path.clone(), (metadata.modified().ok()?, metadata.len(), metadata.ino())))
    };
    std::iter::once(path).chain(lists).map(stamp).collect()
}

/// `known` is how files were before anybody could connect: whoever has been answered may change
/// them.
async fn watch_files(
    server: Arc<Server>,
    reload: Reload,
    origin: Origin,
    mut known: HashMap<PathBuf, Stamp>,
) {
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        server.reload_certificates();
        let Some(now) = stamps(&origin, &server.config()) else { continue };
        let is_other = |(path, now): (&PathBuf, _)| known.get(path).is_some_and(|was| was != now);
        let has_changed = now.iter().any(is_other);
        known = now;
        if has_changed {
            // A reload may have switched `watch` on or off.
            if server.config().server.watch {
                // The outcome is in the log.
                let _ = reload();
            }
        }
    }
}

/// The signals that a server reacts to. Listened to before anybody can connect: until then the
/// system ends a process that is told to reload.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    reopen: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, StartError> {
        let failed = |source| StartError::Thread { what: "the handling of signals", source };
        let listen = |kind| signal(kind).map_err(failed);
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            reopen: listen(SignalKind::user_defined1())?,
        })
    }

    /// Returns when a signal asks for the end.
    async fn obey_until_stopped(mut self, server: &Server, reload: &Reload) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    server.reopen_logs();
                    // The outcome is in the log.
                    let _ = reload();
                }
                _ = self.reopen.recv() => server.reopen_logs(),
            }
        }
    }
}

fn urls(server: &Server) -> Vec<String> {
    let config = server.config();
    let is_tls = |address: &Address| {
        let mut listeners = config.sites.iter().flat_map(|site| &site.listeners);
        listeners.any(|listener| listener.address == *address && listener.tls.is_some())
    };
    let url = |(address, local): (Address, Option<std::net::SocketAddr>)| match local {
        Some(local) if is_tls(&address) => format!("https://{local}/"),
        Some(local) => format!("http://{local}/"),
        None => address.to_string(),
    };
    server.listening().into_iter().map(url).collect()
}
