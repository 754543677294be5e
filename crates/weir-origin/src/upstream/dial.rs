//! From a server's name to a connected socket: resolution with a short cache, then all addresses
//! with staggered starts (RFC 8305), or a Unix-domain socket.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::net::{TcpStream, UnixStream};
use weir_config::Target;

use super::limits::{ADDRESS_STAGGER, ADDRESSES_MAX, DNS_FRESH, DNS_STALE};
use super::stream::Socket;
use super::way::Exit;
use crate::egress::{Denied, Egress};
use crate::error::{BoxError, ErrorKind, OriginError};
use crate::names::{Names, Unknown};

/// The last answer for one server's name.
#[derive(Debug, Default)]
pub(super) struct Resolved(Mutex<Option<(Instant, Arc<[SocketAddr]>)>>);

/// Connects to `target`, without a time limit of its own; by `exit`, where that leads.
pub(super) async fn dial(
    target: &Target,
    resolved: &Resolved,
    server: &str,
    exit: Option<&Exit>,
) -> Result<Socket, OriginError> {
    match target {
        Target::Unix(path) => unix(path).await.map_err(|error| connect_error(server, error)),
        Target::Host(host, port) => {
            let addresses: Arc<[SocketAddr]> = match literal(host) {
                Some(address) => [SocketAddr::new(address, *port)].into(),
                None => {
                    let names = exit.map(|exit| &exit.names);
                    resolved.lookup((host, *port), names, server).await?
                }
            };
            let tcp = match exit {
                Some(exit) => go_out(&exit.egress, (host, *port), &addresses, server).await?,
                None => race(&addresses, TcpStream::connect)
                    .await
                    .map_err(|error| connect_error(server, error))?,
            };
            // Requests are written whole; waiting to fill segments would only delay them.
            tcp.set_nodelay(true).map_err(|error| connect_error(server, error))?;
            Ok(Socket::Tcp(tcp))
        }
    }
}

/// Connects to one of a name's addresses that may be connected to.
async fn go_out(
    egress: &Egress,
    (host, port): (&str, u16),
    addresses: &[SocketAddr],
    server: &str,
) -> Result<TcpStream, OriginError> {
    let denied = |why: Denied| OriginError::new(ErrorKind::Denied, server, why);
    let chosen = egress.choose(host, port, addresses).map_err(denied)?;
    let connected = race(&chosen, TcpStream::connect).await;
    let tcp = connected.map_err(|error| connect_error(server, error))?;
    match (tcp.local_addr(), tcp.peer_addr()) {
        (Ok(local), Ok(peer)) if egress.is_back(local, peer) => Err(denied(Denied::Own)),
        _ => Ok(tcp),
    }
}

impl Resolved {
    /// Looks a server up, by `names` if it is clients who choose them.
    async fn lookup(
        &self,
        (host, port): (&str, u16),
        names: Option<&Arc<Names>>,
        server: &str,
    ) -> Result<Arc<[SocketAddr]>, OriginError> {
        if let Some(addresses) = self.younger_than(DNS_FRESH) {
            return Ok(addresses);
        }
        match addresses(host, port, names).await {
            Ok(addresses) => {
                *self.0.lock() = Some((Instant::now(), Arc::clone(&addresses)));
                Ok(addresses)
            }
            Err((kind, cause)) => {
                self.younger_than(DNS_STALE).ok_or_else(|| OriginError::new(kind, server, cause))
            }
        }
    }

    fn younger_than(&self, age: Duration) -> Option<Arc<[SocketAddr]>> {
        let cached = self.0.lock();
        let (at, addresses) = cached.as_ref()?;
        (at.elapsed() < age).then(|| Arc::clone(addresses))
    }
}

/// Asks for the addresses of a name, at least one.
async fn addresses(
    host: &str,
    port: u16,
    names: Option<&Arc<Names>>,
) -> Result<Arc<[SocketAddr]>, (ErrorKind, BoxError)> {
    let found: Arc<[SocketAddr]> = match names {
        Some(names) => match names.look_up(host).await {
            Ok(found) => {
                let found = found.iter().take(ADDRESSES_MAX);
                found.map(|ip| SocketAddr::new(*ip, port)).collect()
            }
            Err(full @ Unknown::TooMany) => return Err((ErrorKind::Overloaded, full.into())),
            Err(unknown) => return Err((ErrorKind::Resolve, unknown.into())),
        },
        None => match tokio::net::lookup_host((host, port)).await {
            Ok(found) => found.take(ADDRESSES_MAX).collect(),
            Err(error) => return Err((ErrorKind::Resolve, error.into())),
        },
    };
    match found.is_empty() {
        true => Err((ErrorKind::Resolve, "the name has no address".into())),
        false => Ok(found),
    }
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

async fn unix(path: &Path) -> io::Result<Socket> {
    UnixStream::connect(path).await.map(Socket::Unix)
}

fn connect_error(server: &str, error: io::Error) -> OriginError {
    OriginError::new(ErrorKind::Connect, server, error)
}

/// Tries `addresses` in order, the next when one has failed or had its head start, and takes the
/// first that connects. The error is the last one's.
async fn race<C, F, T>(addresses: &[SocketAddr], connect: C) -> io::Result<T>
where
    C: Fn(SocketAddr) -> F,
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = addresses.iter();
    let mut running = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "no address to connect to");
    loop {
        match waiting.next() {
            Some(address) => running.push(connect(*address)),
            None if running.is_empty() => return Err(failure),
            None => {}
        }
        let next = running.next();
        let outcome = if waiting.len() == 0 {
            next.await
        } else {
            tokio::time::timeout(ADDRESS_STAGGER, next).await.unwrap_or(None)
        };
        match outcome {
            Some(Ok(connected)) => return Ok(connected),
            Some(Err(error)) => failure = error,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_starts_when_one_fails_or_is_slow() {
        // (what each address does: milliseconds and success, expected winner, expected time)
        type Case<'a> = (&'a [(u64, bool)], Option<u16>, u64);
        let cases: [Case<'_>; 6] = [
            (&[(5, true)], Some(1), 5),
            (&[(5, false), (7, true)], Some(2), 12),
            (&[(10_000, true), (7, true)], Some(2), 257),
            (&[(300, true), (10_000, true)], Some(1), 300),
            (&[(10, false), (20, false), (30, false)], None, 60),
            (&[(600, true), (600, false), (5, true)], Some(3), 505),
        ];
        for (plan, winner, expect_ms) in cases {
            let start = tokio::time::Instant::now();
            let outcome = race(&addresses(plan.len() as u16), |address| async move {
                let (delay_ms, success) = plan[usize::from(address.port()) - 1];
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
                if success { Ok(address.port()) } else { Err(io::Error::other("no")) }
            })
            .await;
            assert_eq!(outcome.ok(), winner, "{plan:?}");
            let took_ms = start.elapsed().as_millis() as u64;
            assert!((expect_ms..expect_ms + 5).contains(&took_ms), "{plan:?}: {took_ms} ms");
        }
    }

    /// Where a forward proxy may go, on a machine without a way out.
    fn exit(port: u16, private: &str) -> Exit {
        let text = format!(
            "site \"*\" {{ listen \"127.0.0.1:3128\"; route \"/*\" {{ \
             forward {{ ports {port}; private \"{private}\"; }}; }}; }}"
        );
        let config = weir_config::parse("weir.kdl", &text).unwrap();
        match &config.sites[0].routes[0].source {
            weir_config::Source::Forward(forward) => {
                Exit { egress: Arc::new(Egress::new(forward, Vec::new())), names: Arc::default() }
            }
            other => panic!("{other:?}"),
        }
    }

    /// A name that is public at first and private at the next question, and one that is both.
    #[tokio::test]
    async fn a_name_that_changes_its_address_gains_nothing() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Target::Host("rebinding.example".to_owned(), port);
        let answers = |ips: &[[u8; 4]]| {
            let addresses = ips.iter().map(|ip| SocketAddr::from((*ip, port))).collect();
            Resolved(Mutex::new(Some((Instant::now(), addresses))))
        };
        let go = async |resolved: &Resolved, private: &str| {
            dial(&target, resolved, "test", Some(&exit(port, private))).await
        };
        let kind = |outcome: Result<Socket, OriginError>| outcome.err().map(|error| error.kind());
        // What is asked first opens nothing for what is answered next.
        let first = answers(&[[127, 0, 0, 1]]);
        assert_eq!(kind(go(&first, "127.0.0.1").await), None);
        *first.0.lock() = answers(&[[127, 0, 0, 2]]).0.into_inner();
        assert_eq!(kind(go(&first, "127.0.0.1").await), Some(ErrorKind::Denied));
        // Among several, those that are not allowed are left out: nothing listens at the other.
        let both = answers(&[[127, 0, 0, 1], [127, 0, 0, 2]]);
        assert_eq!(kind(go(&both, "127.0.0.2").await), Some(ErrorKind::Connect));
        assert_eq!(kind(go(&both, "10.0.0.0/8").await), Some(ErrorKind::Denied));
    }

    #[tokio::test]
    async fn a_name_is_resolved_once_while_fresh() {
        let resolved = Resolved::default();
        let first = resolved.lookup(("localhost", 80), None, "test").await.unwrap();
        let second = resolved.lookup(("localhost", 80), None, "test").await.unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[tokio::test]
    async fn the_last_answer_outlives_a_failing_resolver_for_a_while() {
        // RFC 6761, section 6.4: never resolves.
        let name = "nowhere.invalid";
        let check = async |age: Duration, expect: bool| {
            let Some(at) = Instant::now().checked_sub(age) else { return };
            let resolved = Resolved(Mutex::new(Some((at, addresses(1).into()))));
            let answer = resolved.lookup((name, 80), None, "test").await;
            assert_eq!(answer.is_ok(), expect, "{age:?}");
        };
        check(DNS_FRESH / 2, true).await;
        check(DNS_FRESH * 2, true).await;
        check(DNS_STALE * 2, false).await;
    }
}
