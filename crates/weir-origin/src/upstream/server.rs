//! One server of a group: its name, its health and what it is doing. Shared by all workers.
//!
//! | state     | becomes         | when                                                           |
//! |-----------|-----------------|----------------------------------------------------------------|
//! | available | ejected         | `passive failures` within `window`, unless it is the last one   |
//! | ejected   | available       | `eject` later; its failures are forgotten                       |
//! | available | down            | `unhealthy` probes failed in a row                             |
//! | down      | available       | `healthy` probes succeeded in a row                            |
//!
//! When no server is available all are tried all the same: a wrong answer about health must not
//! turn a limping group into a dead one.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use weir_config::{Passive, Target, UpstreamServer, UpstreamTls};

use super::balance::{self, Candidate};
use super::limits::{FAILURES_REMEMBERED_MAX, WARN_INTERVAL};
use crate::error::{ErrorKind, OriginError};

/// Alone on its cache lines: `in_flight` is written by every worker at every request.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Server {
    in_flight: AtomicUsize,
    /// Milliseconds after `epoch`; 0 while not ejected.
    ejected_until_ms: AtomicU64,
    down: AtomicBool,
    /// What logs and metrics call it.
    pub(super) name: Arc<str>,
    /// Host that it expects.
    pub(super) authority: HeaderValue,
    pub(super) target: Target,
    pub(super) tls: bool,
    /// Present if `tls`.
    pub(super) tls_name: Option<ServerName<'static>>,
    weight: u32,
    identity: u64,
    epoch: Instant,
    passive: Passive,
    failures: Mutex<VecDeque<Instant>>,
    probes: Mutex<Streak>,
    warned_ms: AtomicU64,
    unsaid: AtomicU32,
}

/// Probes in a row with the same outcome.
#[derive(Debug, Default)]
struct Streak {
    good: bool,
    count: u32,
}

impl Server {
    pub(super) fn new(
        config: &UpstreamServer,
        tls: &UpstreamTls,
        passive: &Passive,
        epoch: Instant,
    ) -> Result<Server, OriginError> {
        let name: Arc<str> = match &config.target {
            Target::Host(host, port) if host.contains(':') => format!("[{host}]:{port}").into(),
            Target::Host(host, port) => format!("{host}:{port}").into(),
            Target::Unix(path) => format!("unix:{}", path.display()).into(),
        };
        let authority = match &config.target {
            Target::Unix(_) if !is_host(&config.authority) => HeaderValue::from_static("localhost"),
            _ => HeaderValue::from_str(&config.authority)
                .map_err(|error| OriginError::new(ErrorKind::Config, &*name, error))?,
        };
        Ok(Server {
            in_flight: AtomicUsize::new(0),
            ejected_until_ms: AtomicU64::new(0),
            down: AtomicBool::new(false),
            tls_name: if config.tls { Some(tls_name(config, tls, &name)?) } else { None },
            identity: balance::hash(name.as_bytes()),
            name,
            authority,
            target: config.target.clone(),
            tls: config.tls,
            weight: config.weight.max(1),
            epoch,
            passive: passive.clone(),
            failures: Mutex::new(VecDeque::new()),
            probes: Mutex::new(Streak::default()),
            warned_ms: AtomicU64::new(0),
            unsaid: AtomicU32::new(0),
        })
    }

    /// Whether passive and active health let it serve.
    pub(super) fn is_available(&self) -> bool {
        if self.down.load(Relaxed) {
            return false;
        }
        // The clock is read only while the server is ejected.
        let until_ms = self.ejected_until_ms.load(Relaxed);
        until_ms == 0 || until_ms <= self.now_ms()
    }

    /// Whether active checks have taken it out.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Relaxed)
    }

    /// How long passive health keeps it out from now on.
    pub(super) fn ejected_for(&self) -> Option<Duration> {
        let left_ms = self.ejected_until_ms.load(Relaxed).saturating_sub(self.now_ms());
        (left_ms > 0).then(|| Duration::from_millis(left_ms))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Counts a request in, unless `max` (0: no limit) are in flight. `leave` counts it out.
    pub(super) fn enter(&self, max: usize) -> bool {
        let before = self.in_flight.fetch_add(1, Relaxed);
        if max != 0 && before >= max {
            self.leave();
            return false;
        }
        true
    }

    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Counts a failure; `true` when there have been enough to eject it.
    pub(super) fn is_worn_out_by_failure(&self) -> bool {
        let limit = (self.passive.failures as usize).min(FAILURES_REMEMBERED_MAX);
        if limit == 0 {
            return false;
        }
        let now = Instant::now();
        let mut failures = self.failures.lock();
        while failures.front().is_some_and(|at| now.duration_since(*at) > self.passive.window) {
            failures.pop_front();
        }
        failures.push_back(now);
        if failures.len() > limit {
            failures.pop_front();
        }
        failures.len() >= limit
    }

    /// Takes it out for the configured time.
    pub(super) fn eject(&self) {
        let rest_ms = self.passive.eject.as_millis() as u64;
        self.ejected_until_ms.store(self.now_ms() + rest_ms.max(1), Relaxed);
        self.failures.lock().clear();
    }

    /// Takes note of a probe; `Some(available)` when it changed the server's state.
    pub(super) fn probed(&self, good: bool, healthy: u32, unhealthy: u32) -> Option<bool> {
        let mut streak = self.probes.lock();
        if streak.good != good {
            *streak = Streak { good, count: 0 };
        }
        streak.count = streak.count.saturating_add(1);
        let needed = if good { healthy } else { unhealthy };
        if streak.count < needed {
            return None;
        }
        let was_down = self.down.swap(!good, Relaxed);
        (was_down == good).then_some(good)
    }

    /// `Some(n)` if a warning may be written now, n having been swallowed since the last: a field
    /// that is not written if there were none.
    pub(super) fn may_warn(&self) -> Option<Option<NonZeroU32>> {
        // 0 means never; so the first millisecond counts as 1.
        let now_ms = self.now_ms() + 1;
        let last_ms = self.warned_ms.load(Relaxed);
        let due = last_ms == 0 || now_ms - last_ms.min(now_ms) >= WARN_INTERVAL.as_millis() as u64;
        if due && self.warned_ms.compare_exchange(last_ms, now_ms, Relaxed, Relaxed).is_ok() {
            return Some(NonZeroU32::new(self.unsaid.swap(0, Relaxed)));
        }
        self.unsaid.fetch_add(1, Relaxed);
        None
    }

    fn now_ms(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }
}

impl Candidate for Server {
    fn weight(&self) -> u32 {
        self.weight
    }

    fn load(&self) -> usize {
        self.in_flight()
    }

    fn identity(&self) -> u64 {
        self.identity
    }
}

fn is_host(text: &str) -> bool {
    !text.contains('/') && text.parse::<http::uri::Authority>().is_ok()
}

/// The name that the certificate must prove, also sent as SNI unless it is an address.
fn tls_name(
    config: &UpstreamServer,
    tls: &UpstreamTls,
    server: &str,
) -> Result<ServerName<'static>, OriginError> {
    let name = match (&tls.server_name, &config.target) {
        (Some(name), _) => name.clone(),
        (None, Target::Host(host, _)) => host.trim_matches(['[', ']']).to_owned(),
        (None, Target::Unix(_)) => config.authority.clone(),
    };
    ServerName::try_from(name.clone()).map_err(|_| {
        let cause = format!("\"{name}\" is not a name or address that a certificate can hold");
        OriginError::new(ErrorKind::Config, server, cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(passive: Passive) -> Server {
        let config = UpstreamServer {
            tls: false,
            target: Target::Host("::1".into(), 80),
            authority: "[::1]:80".into(),
            weight: 1,
        };
        Server::new(&config, &UpstreamTls::default(), &passive, Instant::now()).unwrap()
    }

    #[test]
    fn probes_turn_a_server_only_after_enough_in_a_row() {
        let server = server(Passive::default());
        assert_eq!(&*server.name, "[::1]:80");
        let outcomes = [
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(false)),
            (false, None),
            (true, None),
            (true, Some(true)),
            (true, None),
        ];
        for (step, (good, expect)) in outcomes.into_iter().enumerate() {
            assert_eq!(server.probed(good, 2, 3), expect, "step {step}");
        }
        assert!(server.is_available());
    }

    #[test]
    fn failures_wear_out_only_within_the_window() {
        let window = Duration::from_secs(3600);
        let busy = server(Passive { failures: 3, window, eject: window });
        assert!(!busy.is_worn_out_by_failure());
        assert!(!busy.is_worn_out_by_failure());
        assert!(busy.is_worn_out_by_failure());
        busy.eject();
        assert!(!busy.is_available());
        assert!(busy.ejected_for().is_some());
        assert!(!busy.is_worn_out_by_failure(), "ejection forgets the failures before it");

        let slow = server(Passive { failures: 2, window: Duration::ZERO, eject: window });
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(!slow.is_worn_out_by_failure());
        }
        let off = server(Passive { failures: 0, window, eject: window });
        assert!((0..10).all(|_| !off.is_worn_out_by_failure()));
    }

    #[test]
    fn warnings_are_counted_when_not_written() {
        let server = server(Passive::default());
        assert_eq!(server.may_warn(), Some(None));
        assert_eq!(server.may_warn(), None);
        assert_eq!(server.may_warn(), None);
        assert_eq!(server.unsaid.load(Relaxed), 2);
    }

    #[test]
    fn the_limit_of_requests_is_exact() {
        let server = server(Passive::default());
        assert!(server.enter(2) && server.enter(2) && !server.enter(2));
        server.leave();
        assert!(server.enter(2));
        assert!(server.enter(0), "0 is no limit");
        assert_eq!(server.in_flight(), 3);
    }
}
