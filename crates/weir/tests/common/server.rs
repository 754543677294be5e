//! The binary as a user runs it, in a directory of its own, and gone when the test is over.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{PATIENCE, free_address, wait_for};

/// A running server.
pub struct Weir {
    child: Child,
    directory: TempDir,
}

impl Weir {
    /// Runs `weir run` on `config` and waits until every one of `addresses` accepts connections.
    /// Relative paths in `config` are relative to [`Weir::directory`].
    pub fn run(config: &str, addresses: &[SocketAddr]) -> Weir {
        Weir::run_in(TempDir::new().unwrap(), config, addresses)
    }

    /// The same in a directory that was prepared.
    pub fn run_in(directory: TempDir, config: &str, addresses: &[SocketAddr]) -> Weir {
        std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
        Weir::start(directory, &["run", "weir.kdl"], addresses)
    }

    /// The same where names have the addresses that the file `hosts` of the directory gives them,
    /// and others are asked of whom its `resolv.conf` says, if it has one. `None`, and a line that
    /// says why, without the privilege for a view of files of one's own.
    pub fn run_with_hosts(
        directory: TempDir,
        config: &str,
        addresses: &[SocketAddr],
    ) -> Option<Weir> {
        const MOUNT: &str = "mount --bind hosts /etc/hosts && \
            if [ -e resolv.conf ]; then mount --bind resolv.conf /etc/resolv.conf; fi";
        let own_view = |script: &str| {
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "sh", "-c", script]).current_dir(directory.path());
            unshare
        };
        let tried = own_view(MOUNT).output();
        if !tried.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no mount namespaces here: {tried:?}");
            return None;
        }
        std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
        let mut weir = own_view(&format!("{MOUNT} && exec \"$0\" \"$@\""));
        weir.args([env!("CARGO_BIN_EXE_weir"), "run", "weir.kdl"]);
        Some(Weir::spawn(weir, directory, addresses))
    }

    /// Runs any command that serves.
    pub fn start(directory: TempDir, arguments: &[&str], addresses: &[SocketAddr]) -> Weir {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(arguments).current_dir(directory.path());
        Weir::spawn(weir, directory, addresses)
    }

    fn spawn(mut command: Command, directory: TempDir, addresses: &[SocketAddr]) -> Weir {
        let log = File::create(log_path(directory.path())).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut weir = Weir { child, directory };
        for address in addresses {
            weir.wait_until_listening(*address);
        }
        weir
    }

    /// A server in front of something: one site for any host with these lines in it, and `rest`
    /// around it. Without a `server` block in `rest` it has two workers and no admin API.
    pub fn front(rest: &str, site: &str) -> (Weir, SocketAddr) {
        let address = free_address();
        let config = front_config(address, rest, site);
        (Weir::run(&config, &[address]), address)
    }

    /// Where the server runs, with its configuration in `weir.kdl`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Process identifier.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its helper processes.
    pub fn helpers(&self) -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().flatten();
        let children =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all: String = children.collect();
        all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// All that the server wrote to standard output and standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(log_path(self.directory.path())).unwrap_or_default()
    }

    /// Waits until the server has written `text`.
    pub fn wait_for_log(&self, text: &str) {
        let found = wait_for(PATIENCE, || self.log().contains(text).then_some(()));
        assert!(found.is_some(), "{text:?} is not in the log:\n{}", self.log());
    }

    /// Memory of its own that the server has in use, in bytes: not what it shares, as the cache.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Asks the server to stop and waits for its end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(PATIENCE).expect("the server does not stop")
    }

    /// Waits for the server's end; `None` if it still runs after `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait_for(patience, || self.child.try_wait().unwrap())
    }

    fn wait_until_listening(&mut self, address: SocketAddr) {
        let listening = wait_for(PATIENCE, || match TcpStream::connect(address) {
            Ok(_) => Some(true),
            Err(_) => (!self.is_running()).then_some(false),
        });
        match listening {
            Some(true) => {}
            Some(false) => panic!("the server ended before it listened:\n{}", self.log()),
            None => panic!("nothing listens on {address}:\n{}", self.log()),
        }
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            eprintln!("--- the server's last words\n{last}\n---");
        }
    }
}

/// The configuration of [`Weir::front`].
pub fn front_config(address: SocketAddr, rest: &str, site: &str) -> String {
    let server = match rest.contains("server {") {
        true => "",
        false => "server { workers 2; admin \"off\"; }",
    };
    format!("{server}\n{rest}\nsite \"*\" {{\nlisten \"{address}\"\n{site}\n}}\n")
}

/// Runs a command that ends by itself; one that does not within the patience is ended.
pub fn command(directory: &Path, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What these commands print fits into a pipe, so that they need no reader to end.
    if wait_for(PATIENCE, || child.try_wait().unwrap()).is_none() {
        child.kill().unwrap();
        panic!("weir {arguments:?} does not end: {:?}", child.wait_with_output());
    }
    child.wait_with_output().unwrap()
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("weir.out")
}
