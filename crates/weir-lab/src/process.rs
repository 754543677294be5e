//! Starting and stopping programs: pinned to a core, awaited until they answer, followed with all
//! their children, and ended by their own identifiers only.
//!
//! `setpriv --pdeathsig`, where there is one, makes the system end them if the lab itself is
//! killed.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid as RawPid, Signal, kill_process};
use tempfile::TempDir;

use crate::contender::policy::Policy;
use crate::contender::{Contender, Place, Role, this_program};
use crate::costly::Capacity;
use crate::documents::{self, SMALL};
use crate::error::{Doing, Error, Result};
use crate::load::blocking;
use crate::machine::{Cores, pin_to_core};
use crate::modules;
use crate::procfs::{self, Pid};

/// How long a contender may take to answer its first request.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long it may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks at it.
const POLL: Duration = Duration::from_millis(20);
/// How long a program may take that does one thing, and how often it is looked at.
const END_TIMEOUT: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(1);
/// Where contenders listen; Linux gives outgoing connections ports from 32768 up.
const PORTS: Range<u16> = 12_000..32_000;
/// Bytes of its output shown when it fails.
const OUTPUT_SHOWN: usize = 2_000;

/// The folder with the documents and, where there is one, the application.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
    app: Option<Program>,
    /// Where contenders listen.
    host: Ipv4Addr,
}

impl Site {
    /// Writes the documents of `sizes`, and starts the application if `with_app`, on the load core.
    ///
    /// # Errors
    /// When files cannot be written or the application does not start.
    pub fn prepare(sizes: &[usize], with_app: bool, cores: Cores) -> Result<Site> {
        let dir = public_dir()?;
        documents::write_all(&dir.path().join("root"), sizes)?;
        modules::write_all(&dir.path().join("plugins"))?;
        let mut site = Site { dir, app: None, host: Ipv4Addr::LOCALHOST };
        if with_app {
            site.start_app(&[], cores)?;
        }
        Ok(site)
    }

    /// Starts the application with expensive pages; contenders will listen on `host`.
    ///
    /// # Errors
    /// When the application does not start.
    pub fn prepare_costly(capacity: Capacity, host: Ipv4Addr, cores: Cores) -> Result<Site> {
        let mut site = Site { dir: public_dir()?, app: None, host };
        let work = milliseconds(capacity.work);
        let servers = capacity.servers.to_string();
        site.start_app(&["--servers", &servers, "--work", &work], cores)?;
        Ok(site)
    }

    /// Starts the application that thinks about pages for so long.
    ///
    /// # Errors
    /// When files cannot be written or the application does not start.
    pub fn prepare_origin(think: Duration, cores: Cores) -> Result<Site> {
        let mut site = Site::prepare(&[], false, cores)?;
        site.start_app(&["--think", &milliseconds(think)], cores)?;
        Ok(site)
    }

    /// The document root.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The folder of the empty plugins.
    #[must_use]
    pub fn plugins(&self) -> PathBuf {
        self.dir.path().join("plugins")
    }

    /// The application's Unix socket.
    #[must_use]
    pub fn app_socket(&self) -> PathBuf {
        self.dir.path().join("app.sock")
    }

    /// Processes of the application; none if it was not asked for.
    #[must_use]
    pub fn app_pids(&self) -> Vec<Pid> {
        self.app.as_ref().map_or_else(Vec::new, |app| procfs::descendants(app.pid()))
    }

    fn start_app(&mut self, options: &[&str], cores: Cores) -> Result<()> {
        let socket = self.app_socket();
        let program = this_program();
        let path = socket.display().to_string();
        let fixed = ["app", "--unix", &path];
        let arguments = fixed.iter().chain(options).map(|argument| (*argument).to_owned());
        let arguments: Vec<String> = arguments.collect();
        let log = self.dir.path().join("app.log");
        let mut app = Program::start(&program, &arguments, &log, cores.load, cores)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while !socket.exists() {
            if app.has_ended() || Instant::now() > deadline {
                return Err(Error::Start {
                    contender: "application",
                    reason: "its socket did not appear".to_owned(),
                    output: tail(&log),
                });
            }
            sleep(POLL);
        }
        // Servers that leave root must be able to connect.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))
            .doing(|| format!("opening {} to all", socket.display()))?;
        self.app = Some(app);
        Ok(())
    }
}

/// A contender that is running and has answered.
#[derive(Debug)]
pub struct Running {
    /// Which one.
    pub contender: &'static Contender,
    /// Its version.
    pub version: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where its admin API listens, if its role has one.
    pub admin: SocketAddr,
    /// All its processes, as of the first answer.
    pub pids: Vec<Pid>,
    program: Program,
    _dir: TempDir,
}

impl Running {
    /// Starts `contender` on the server core and waits until it serves `target` correctly. `policy`
    /// is for the roles that have one.
    ///
    /// # Errors
    /// When it is missing, ends, or does not answer in time; with the end of its output.
    pub fn start(
        contender: &'static Contender,
        role: Role,
        policy: &Policy,
        site: &Site,
        weir: &Path,
        cores: Cores,
        target: &str,
    ) -> Result<Running> {
        let path = contender.program(weir)?;
        let dir = public_dir()?;
        let place = Place {
            dir: dir.path().to_owned(),
            root: site.root(),
            app: site.app_socket(),
            plugins: site.plugins(),
            host: site.host,
            port: free_port(site.host)?,
            admin_port: free_port(site.host)?,
            document: String::from_utf8_lossy(&documents::document(SMALL)).into_owned(),
            policy: policy.clone(),
        };
        let setup = contender.configure(role, &place)?;
        for (name, text) in &setup.files {
            let path = dir.path().join(name);
            fs::write(&path, text).doing(|| format!("writing {}", path.display()))?;
        }
        let log = dir.path().join("output.log");
        let mut program = Program::start(&path, &setup.arguments, &log, cores.server, cores)?;
        let address = SocketAddr::from((site.host, place.port));
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, place.admin_port));
        if let Err(reason) = program.await_answer(address, target) {
            let output = tail(&log) + &tail(&dir.path().join("error.log"));
            return Err(Error::Start { contender: contender.name, reason, output });
        }
        let pids = procfs::descendants(program.pid());
        let version = contender.version(&path);
        Ok(Running { contender, version, address, admin, pids, program, _dir: dir })
    }

    /// All its processes, now: some start others when there is something to do.
    #[must_use]
    pub fn family(&self) -> Vec<Pid> {
        procfs::descendants(self.program.pid())
    }

    /// True if it has died.
    pub fn has_ended(&mut self) -> bool {
        self.program.has_ended()
    }
}

/// A program that has done its work.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// By the clock.
    pub elapsed: Duration,
    /// Processor time, to a hundredth of a second.
    pub cpu: Duration,
    /// The most memory that was seen, looked at every millisecond.
    pub peak_bytes: u64,
}

/// Runs a program on the server core until it ends.
///
/// # Errors
/// When it cannot be started, fails, or takes longer than ten minutes; with the end of its output.
pub fn run_to_end(path: &Path, arguments: &[String], log: &Path, cores: Cores) -> Result<Ended> {
    let began = Instant::now();
    let mut program = Program::start(path, arguments, log, cores.server, cores)?;
    let mut ended = Ended { elapsed: Duration::ZERO, cpu: Duration::ZERO, peak_bytes: 0 };
    loop {
        let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap_or_default();
        let Some((cpu, is_over)) = procfs::used(&stat) else { break };
        ended = Ended {
            elapsed: began.elapsed(),
            cpu,
            peak_bytes: ended.peak_bytes.max(procfs::peak_bytes(program.pid())),
        };
        if is_over || ended.elapsed > END_TIMEOUT {
            break;
        }
        sleep(LOOK);
    }
    let reason = match program.child.try_wait() {
        Ok(Some(status)) if status.success() => return Ok(ended),
        Ok(Some(status)) => format!("it ended with {status}"),
        _ => format!("it runs after {END_TIMEOUT:?}"),
    };
    Err(Error::Start { contender: "a program", reason, output: tail(log) })
}

/// A child process; ended when dropped.
#[derive(Debug)]
struct Program {
    child: Child,
}

impl Program {
    fn start(
        path: &Path,
        arguments: &[String],
        log: &Path,
        core: usize,
        cores: Cores,
    ) -> Result<Program> {
        let output = File::create(log).doing(|| format!("creating {}", log.display()))?;
        let errors = output.try_clone().doing(|| format!("duplicating {}", log.display()))?;
        let mut command = if Path::new("/usr/bin/setpriv").exists() {
            let mut command = Command::new("/usr/bin/setpriv");
            command.args(["--pdeathsig", "TERM", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
        // A child starts on the core of the thread that starts it.
        pin_to_core(core)?;
        let child = command.spawn().doing(|| format!("starting {}", path.display()));
        pin_to_core(cores.load)?;
        Ok(Program { child: child? })
    }

    fn pid(&self) -> Pid {
        self.child.id()
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().map_or(true, |status| status.is_some())
    }

    /// Waits for a correct answer; otherwise the last reason why there was none.
    fn await_answer(&mut self, address: SocketAddr, target: &str) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let reason = match blocking::fetch(address, target) {
                Ok(_) => return Ok(()),
                Err(reason) => reason,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            if Instant::now() > deadline {
                return Err(reason);
            }
            sleep(POLL);
        }
    }

    fn wait_until(&mut self, deadline: Instant) -> bool {
        while !self.has_ended() {
            if Instant::now() > deadline {
                return false;
            }
            sleep(POLL);
        }
        true
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // Children first noted: once their parent is gone they are no longer its descendants.
        let family = procfs::descendants(self.pid());
        signal(self.pid(), Signal::TERM);
        if !self.wait_until(Instant::now() + STOP_TIMEOUT) {
            family.iter().for_each(|pid| signal(*pid, Signal::KILL));
            self.wait_until(Instant::now() + STOP_TIMEOUT);
        }
    }
}

/// A time as the lab's own arguments have it.
fn milliseconds(time: Duration) -> String {
    format!("{}ms", time.as_secs_f64() * 1e3)
}

/// Sends a signal to a process of our own; one that has gone needs none.
fn signal(pid: Pid, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(RawPid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A temporary folder that servers that leave root can read.
fn public_dir() -> Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("weir-lab-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .doing(|| "creating a temporary folder".to_owned())?;
    Ok(dir)
}

/// A port that was free a moment ago, below those that the system gives to outgoing connections:
/// a load that is running meanwhile could take one of these between here and the contender's bind.
fn free_port(host: Ipv4Addr) -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = PORTS.end - PORTS.start;
    // Labs that run at the same time, as in tests, start looking at different places.
    let first = std::process::id().wrapping_mul(97);
    for _ in 0..span {
        let step = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (step % u32::from(span)) as u16;
        if TcpListener::bind((host, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Usage(format!("no free port among {PORTS:?}")))
}

/// The end of a text file; empty if there is none.
fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let start = text.len().saturating_sub(OUTPUT_SHOWN);
    String::from_utf8_lossy(&text[start..]).into_owned()
}
