//! ICAP services as routes have them: who is shown requests and responses, and how often they were
//! of use. What becomes of a message is in `pipeline/icap.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use weir_config::{self as config, Config};
use weir_icap::{Address, Service, Settings};

use crate::adapt::declared::{Cost, Declaration, Declares, Stage};
use crate::live::Live;

/// An `icap` block, ready to be asked.
pub(crate) struct Icap {
    pub(crate) config: config::Icap,
    pub(crate) requests: Option<Watched>,
    pub(crate) responses: Option<Watched>,
}

/// A service, and what has become of the messages that it was shown.
pub(crate) struct Watched {
    pub(crate) service: Service,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    waited_us: AtomicU64,
}

/// What has become of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Unchanged,
    Changed,
    /// A request was answered by the service.
    Answered,
    /// The service failed, and the message with it.
    Failed,
    /// The service failed, and the message went on.
    Passed,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 5] =
        [Outcome::Unchanged, Outcome::Changed, Outcome::Answered, Outcome::Failed, Outcome::Passed];

    /// As metrics call it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Outcome::Unchanged => "unchanged",
            Outcome::Changed => "changed",
            Outcome::Answered => "answered",
            Outcome::Failed => "failed",
            Outcome::Passed => "passed",
        }
    }
}

impl Icap {
    fn new(config: &config::Icap, workers: usize) -> Icap {
        let watched = |url: &config::IcapUrl| Watched {
            service: Service::new(settings(config, url), workers),
            outcomes: Default::default(),
            waited_us: AtomicU64::new(0),
        };
        Icap {
            requests: config.reqmod.as_ref().map(watched),
            responses: config.respmod.as_ref().map(watched),
            config: config.clone(),
        }
    }

    /// Its services, by the name of the method that shows them something.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (&'static str, &Watched)> {
        let both = [("reqmod", &self.requests), ("respmod", &self.responses)];
        both.into_iter().filter_map(|(method, watched)| Some((method, watched.as_ref()?)))
    }
}

impl Declares for Icap {
    fn declaration(&self) -> Option<Declaration> {
        self.responses.as_ref()?;
        Some(Declaration {
            name: self.config.name.clone().into(),
            stage: Stage::Fill,
            takes: Vec::new(),
            key: Vec::new(),
            cost: Cost::service(self.config.timeout),
            streams: true,
        })
    }
}

impl Watched {
    pub(crate) fn count(&self, outcome: Outcome, waited: Duration) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waited_us.fetch_add(waited_us, Relaxed);
    }

    pub(crate) fn counted(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }

    /// Seconds that messages have waited for an answer to begin.
    pub(crate) fn waited_s(&self) -> f64 {
        self.waited_us.load(Relaxed) as f64 / 1e6
    }
}

fn settings(config: &config::Icap, url: &config::IcapUrl) -> Settings {
    Settings {
        address: Address { host: url.host.clone(), port: url.port },
        path: url.path.clone(),
        connections: config.connections,
        timeout: config.timeout,
    }
}

/// The services of a configuration, by name. Those that it does not change are kept, with their
/// connections.
pub(crate) fn build(
    config: &Config,
    workers: usize,
    previous: Option<&Live>,
) -> HashMap<String, Arc<Icap>> {
    let services = config.icap.iter().map(|icap| {
        let known = previous.and_then(|live| live.icap.get(&icap.name));
        let known = known.filter(|known| known.config == *icap).cloned();
        let built = known.unwrap_or_else(|| Arc::new(Icap::new(icap, workers)));
        (icap.name.clone(), built)
    });
    services.collect()
}
