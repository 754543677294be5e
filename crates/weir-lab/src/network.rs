//! Two network namespaces joined by a veth pair: contenders are in one, the generator opens its
//! sockets in the other, where every address of 10.77.0.0/16 is its own. Nothing of it touches the
//! machine's own network.
//!
//! They are called `weirlab-PID-…`, go with the lab, and what a lab that was killed left behind is
//! removed by the next one.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Doing, Error, Result};
use crate::machine::Cores;

/// Where contenders listen.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 1);
/// The generator's end of the wire.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);
/// All clients.
const CLIENTS: &str = "10.77.0.0/16";
/// Names of namespaces begin so, and go on with the process that made them.
const PREFIX: &str = "weirlab-";
/// Where `ip netns` keeps them.
const NAMESPACES: &str = "/run/netns";
/// Connections that may wait to be accepted, and to be open.
const BACKLOG: usize = 4_096;

/// The namespaces; removed when dropped, and when the lab is interrupted.
#[derive(Debug)]
pub struct Network {
    server: Namespace,
    clients: Namespace,
    /// The machine's own, to come back to.
    own: File,
}

#[derive(Debug)]
struct Namespace {
    name: String,
    file: File,
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where contenders run.
    Server,
    /// Where the generator opens sockets.
    Clients,
}

/// The address of client `index` in block `block`: 10.77.BLOCK.x and on.
#[must_use]
pub fn client_address(block: u8, index: usize) -> Ipv4Addr {
    // .0 and .255 are left out: some software takes them for something else.
    let (third, last) = (index / 254, index % 254 + 1);
    Ipv4Addr::new(10, 77, block.wrapping_add(third as u8), last as u8)
}

impl Network {
    /// Makes both. Packets are received on the core of their end, as if on two machines.
    ///
    /// # Errors
    /// Without root, without `ip`, or when the system refuses.
    pub fn make(cores: Cores) -> Result<Network> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable(
                "needs root, to make network namespaces for servers and clients".to_owned(),
            ));
        }
        remove_leftovers();
        remove_when_interrupted()?;
        let own = File::open("/proc/thread-self/ns/net")
            .doing(|| "opening this thread's network namespace".to_owned())?;
        let pid = std::process::id();
        let server = Namespace::make(format!("{PREFIX}{pid}-server"))?;
        let clients = Namespace::make(format!("{PREFIX}{pid}-clients"))?;
        let network = Network { server, clients, own };
        network.join()?;
        network.settings(cores)?;
        Ok(network)
    }

    fn join(&self) -> Result<()> {
        let (server, clients) = (self.server.name.as_str(), self.clients.name.as_str());
        ip(&[
            "-n", server, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns",
            clients,
        ])?;
        for (name, address) in [(server, SERVER), (clients, GATEWAY)] {
            ip(&["-n", name, "address", "add", &format!("{address}/30"), "dev", "wire"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "wire", "up"])?;
        }
        ip(&["-n", server, "route", "add", CLIENTS, "via", &GATEWAY.to_string()])?;
        // All of them are local there, without being set one by one.
        ip(&["-n", clients, "route", "add", "local", CLIENTS, "dev", "lo"])
    }

    fn settings(&self, cores: Cores) -> Result<()> {
        let set = |name: &str, core: usize| {
            let mask = 1_u64 << core;
            let text = format!(
                "echo {mask:x} > /sys/class/net/wire/queues/rx-0/rps_cpus && \
                 cd /proc/sys/net && echo {BACKLOG} > core/somaxconn && \
                 echo {BACKLOG} > ipv4/tcp_max_syn_backlog && \
                 echo 1024 65535 > ipv4/ip_local_port_range"
            );
            ip(&["netns", "exec", name, "sh", "-c", &text])
        };
        set(&self.server.name, cores.server)?;
        set(&self.clients.name, cores.load)
    }

    /// Does something with the calling thread in one of the ends: sockets that it opens and
    /// programs that it starts belong there.
    ///
    /// # Errors
    /// When the thread cannot be moved; and what `act` fails with.
    pub fn within<T>(&self, end: End, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let file = match end {
            End::Server => &self.server.file,
            End::Clients => &self.clients.file,
        };
        enter(file)?;
        let done = act();
        enter(&self.own)?;
        done
    }
}

fn enter(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .doing(|| "moving into a network namespace".to_owned())
}

impl Namespace {
    fn make(name: String) -> Result<Namespace> {
        ip(&["netns", "add", &name])?;
        let path = format!("{NAMESPACES}/{name}");
        let opened = File::open(&path).doing(|| format!("opening {path}"));
        match opened {
            Ok(file) => Ok(Namespace { name, file }),
            Err(error) => {
                remove(&name);
                Err(error)
            }
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Removes a namespace by name. One that is not there need not be removed.
fn remove(name: &str) {
    let _ = ip(&["netns", "delete", name]);
}

/// Removes the namespaces of labs that are no more.
fn remove_leftovers() {
    let is_left = |name: &str| {
        pid_of(name).is_some_and(|pid| !fs::exists(format!("/proc/{pid}")).unwrap_or(true))
    };
    namespaces().iter().filter(|name| is_left(name)).for_each(|name| remove(name));
}

fn namespaces() -> Vec<String> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The process that made a namespace, if it was a lab.
fn pid_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Has the namespaces of this process removed when it is told to end; programs that it started are
/// told by the system (`process`).
fn remove_when_interrupted() -> Result<()> {
    static ALREADY: AtomicBool = AtomicBool::new(false);
    if ALREADY.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "making an event loop".to_owned())?;
    let streams = {
        let _context = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    let [mut interrupt, mut terminate, mut hangup] = streams.map(|stream| stream.ok());
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                Some(()) = next(&mut interrupt) => {}
                Some(()) = next(&mut terminate) => {}
                Some(()) = next(&mut hangup) => {}
                else => std::future::pending().await,
            }
        });
        let own = |name: &&String| pid_of(name) == Some(std::process::id());
        namespaces().iter().filter(own).for_each(|name| remove(name));
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

/// Exit code of an interrupted program, as shells have it.
const INTERRUPTED: i32 = 130;

async fn next(stream: &mut Option<tokio::signal::unix::Signal>) -> Option<()> {
    stream.as_mut()?.recv().await
}

/// Runs `ip` of iproute2.
fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.doing(|| "starting ip (`apt-get install iproute2`)".to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Answer(format!("ip {}: {reason}", arguments.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener};

    use crate::load::blocking::{self, Options};

    #[test]
    fn addresses_of_clients_differ() {
        assert_eq!(client_address(1, 0), Ipv4Addr::new(10, 77, 1, 1));
        assert_eq!(client_address(4, 253), Ipv4Addr::new(10, 77, 4, 254));
        assert_eq!(client_address(4, 254), Ipv4Addr::new(10, 77, 5, 1));
    }

    #[test]
    fn names_tell_their_process() {
        assert_eq!(pid_of("weirlab-17-server"), Some(17));
        assert_eq!(pid_of("weirlab-x"), None);
        assert_eq!(pid_of("other-17"), None);
    }

    #[test]
    fn clients_have_addresses_of_their_own_and_nothing_is_left() {
        let network = match Network::make(Cores { server: 0, load: 0 }) {
            Ok(network) => network,
            Err(error) if !rustix::process::geteuid().is_root() => {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let bind = || TcpListener::bind((SERVER, 0)).doing(|| "listening".to_owned());
        let listener = network.within(End::Server, bind).unwrap();
        let address = listener.local_addr().unwrap();
        for (block, index) in [(1, 0), (4, 300), (200, 7)] {
            let source = client_address(block, index);
            let options = Options { source: Some(source.into()), ..Options::default() };
            let connect = || blocking::open(address, options).map_err(Error::Answer);
            drop(network.within(End::Clients, connect).unwrap());
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip(), SocketAddr::from((source, 0)).ip());
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
        drop(network);
        let own = |name: &String| pid_of(name) == Some(std::process::id());
        assert!(!namespaces().iter().any(own), "{:?}", namespaces());
    }
}
