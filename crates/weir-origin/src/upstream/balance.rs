//! Which server a request goes to. Pure: load and eligibility are parameters.
//!
//! Consistent hashing is weighted rendezvous hashing: every server scores the key, the highest
//! score wins. When a server leaves, only its own keys move, spread over the others by weight.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use foldhash::quality::FixedState;
use http::header::COOKIE;
use http::request::Parts;
use parking_lot::Mutex;
use weir_config::{Balance, HashKey};

/// The same key must meet the same server in every worker, process and machine.
const SEED: u64 = 0x7765_6972;

/// A server as balancing sees it.
pub(super) trait Candidate {
    /// Relative share, 1 and up.
    fn weight(&self) -> u32;
    /// Requests in flight.
    fn load(&self) -> usize;
    /// Hash of the server's identity.
    fn identity(&self) -> u64;
}

/// A worker's memory of whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Vec<i64>>);

/// Chooses among those of `servers` for which `eligible` holds; `None` if there are none.
pub(super) fn pick<S: Candidate>(
    balance: &Balance,
    servers: &[S],
    turns: &Turns,
    key: u64,
    eligible: impl Fn(usize, &S) -> bool,
) -> Option<usize> {
    if let [only] = servers {
        return eligible(0, only).then_some(0);
    }
    match balance {
        Balance::RoundRobin => round_robin(servers, turns, eligible),
        Balance::LeastConnections => least_loaded(servers, eligible),
        Balance::TwoChoices => two_choices(servers, eligible),
        Balance::Hash(_) => rendezvous(servers, key, eligible),
    }
}

/// Smooth weighted round robin: every server gains its weight each turn, the richest is chosen
/// and pays the sum. Weights 5, 1, 1 give a a b a c a a, not a a a a a b c.
fn round_robin<S: Candidate>(
    servers: &[S],
    turns: &Turns,
    eligible: impl Fn(usize, &S) -> bool,
) -> Option<usize> {
    let mut credit = turns.0.lock();
    credit.resize(servers.len(), 0);
    let mut total = 0;
    let mut best: Option<usize> = None;
    for (index, server) in servers.iter().enumerate() {
        if !eligible(index, server) {
            continue;
        }
        let weight = i64::from(server.weight());
        total += weight;
        credit[index] += weight;
        if best.is_none_or(|best| credit[index] > credit[best]) {
            best = Some(index);
        }
    }
    credit[best?] -= total;
    best
}

/// Whether `a` has less load per weight than `b`.
fn is_lighter<S: Candidate>(a: &S, b: &S) -> bool {
    let (a_load, b_load) = (a.load() as u64 + 1, b.load() as u64 + 1);
    a_load * u64::from(b.weight()) < b_load * u64::from(a.weight())
}

fn least_loaded<S: Candidate>(
    servers: &[S],
    eligible: impl Fn(usize, &S) -> bool,
) -> Option<usize> {
    // Ties go to the first seen, so the start is drawn: an idle group shares its requests.
    let start = fastrand::usize(..servers.len());
    let mut best: Option<usize> = None;
    for index in (start..servers.len()).chain(0..start) {
        if eligible(index, &servers[index])
            && best.is_none_or(|best| is_lighter(&servers[index], &servers[best]))
        {
            best = Some(index);
        }
    }
    best
}

fn two_choices<S: Candidate>(servers: &[S], eligible: impl Fn(usize, &S) -> bool) -> Option<usize> {
    let one = draw(servers, &eligible)?;
    let Some(two) = draw(servers, |index, server| index != one && eligible(index, server)) else {
        return Some(one);
    };
    Some(if is_lighter(&servers[two], &servers[one]) { two } else { one })
}

/// One at random, by weight.
fn draw<S: Candidate>(servers: &[S], eligible: impl Fn(usize, &S) -> bool) -> Option<usize> {
    let total: u64 = servers
        .iter()
        .enumerate()
        .filter(|(index, server)| eligible(*index, server))
        .map(|(_, server)| u64::from(server.weight()))
        .sum();
    if total == 0 {
        return None;
    }
    let mut point = fastrand::u64(..total);
    let mut last = None;
    for (index, server) in servers.iter().enumerate() {
        if !eligible(index, server) {
            continue;
        }
        last = Some(index);
        let weight = u64::from(server.weight());
        if point < weight {
            break;
        }
        point -= weight;
    }
    last
}

fn rendezvous<S: Candidate>(
    servers: &[S],
    key: u64,
    eligible: impl Fn(usize, &S) -> bool,
) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (index, server) in servers.iter().enumerate() {
        if !eligible(index, server) {
            continue;
        }
        let score = score(key, server);
        if best.is_none_or(|(_, top)| score > top) {
            best = Some((index, score));
        }
    }
    best.map(|(index, _)| index)
}

/// Weight over an exponential draw: the highest of these is a weighted lottery.
fn score<S: Candidate>(key: u64, server: &S) -> f64 {
    let mixed = mix(key ^ mix(server.identity()));
    // 53 bits into (0, 1): neither end, so the logarithm is finite and not zero.
    let uniform = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    f64::from(server.weight()) / -uniform.ln()
}

/// The finaliser of SplitMix64: every input bit reaches every output bit.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A stable hash of `bytes`.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The hash of what `balance` hashes in this request. A request without that header or cookie is
/// placed by its client's address, and one whose client has none (a Unix socket) by its path.
pub(super) fn key(balance: &Balance, head: &Parts, client: Option<IpAddr>) -> u64 {
    let Balance::Hash(what) = balance else { return 0 };
    let own = match what {
        HashKey::Path => None,
        HashKey::Client => client.map(hash_address),
        HashKey::Header(name) => head.headers.get(name).map(|value| hash(value.as_bytes())),
        HashKey::Cookie(name) => cookie(head, name).map(hash),
    };
    let fallback = || match what {
        HashKey::Path => None,
        _ => client.map(hash_address),
    };
    own.or_else(fallback).unwrap_or_else(|| {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        hash(path.as_bytes())
    })
}

fn hash_address(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => hash(&address.octets()),
        IpAddr::V6(address) => hash(&address.octets()),
    }
}

fn cookie<'a>(head: &'a Parts, name: &str) -> Option<&'a [u8]> {
    let pairs = head
        .headers
        .get_all(COOKIE)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii));
    pairs
        .filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .find(|value| !value.is_empty())
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
