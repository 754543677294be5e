//! What the kernel does of overload control: listeners are attached to [`Kernel`], which drops what
//! rules refuse before there is a connection, and puts the others into their class's queue.

use std::os::fd::{AsFd, OwnedFd};

use weir_config::{Address, AddressSet, Config, GuardRule, Prefix};
use weir_kernel::{Attachment, Kernel, Policy};

use super::Guard;
use crate::live::addresses;

/// What is wished of the kernel for an address.
pub(crate) struct Wish<'a> {
    /// `None` where rules have nothing for it to do.
    pub(crate) kernel: Option<&'a Kernel>,
    /// Classes with queues of their own, the one that goes first in front. Empty if one is enough.
    pub(crate) classes: &'a [String],
    /// The server listens there already.
    pub(crate) is_ours: bool,
}

/// What the kernel does for an address, for as long as this is kept.
#[derive(Default)]
pub(crate) struct Watch {
    attached: Vec<Attachment>,
    /// Connections come into the queue of their class.
    pub(crate) is_steered: bool,
}

impl Watch {
    /// Attaches the sockets of all workers. What cannot be attached is left to user space.
    pub(crate) fn begin(
        kernel: Option<&Kernel>,
        descriptors: &[Vec<OwnedFd>],
        classes: &[String],
    ) -> Watch {
        let Some(kernel) = kernel else { return Watch::default() };
        let mut attached = Vec::new();
        let default = [weir_config::DEFAULT_CLASS.to_owned()];
        let queues = descriptors.first().map_or(0, Vec::len);
        let classes = if classes.len() == queues { classes } else { &default[..] };
        // The order in which they were bound.
        for (class, name) in classes.iter().enumerate() {
            for (worker, of_worker) in descriptors.iter().enumerate() {
                match kernel.attach(of_worker[class].as_fd(), name, worker) {
                    Ok(attachment) => attached.push(attachment),
                    Err(cause) => {
                        tracing::warn!(%cause, "the kernel takes no rules for a listener");
                        return Watch::default();
                    }
                }
            }
        }
        Watch { attached, is_steered: kernel.steers() }
    }

    /// Whether the kernel judges the address's connections.
    pub(crate) fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }
}

impl Guard {
    /// The kernel's part for a configuration with the first rules that it has something to do for,
    /// so that listeners can be attached. It enforces nothing before it is in use and told.
    pub(crate) fn kernel_for(&self, config: &Config) -> Option<Kernel> {
        let policy = policy(config, self.loads.len()).filter(|_| self.kernel().is_none())?;
        Some(Kernel::start(&policy.at_rest()))
    }

    /// Makes use of what [`Guard::kernel_for`] began.
    pub(crate) fn use_kernel(&self, kernel: Kernel) {
        self.kernel.get_or_init(|| kernel);
    }
}

/// What the kernel is told of a configuration. `None` if there is nothing for it to do.
pub(crate) fn policy(config: &Config, workers: usize) -> Option<Policy> {
    let guard = &config.guard;
    let has_work = guard.rules.iter().any(|rule| does_something(rule) || rule.penalty.is_some());
    if !has_work {
        return None;
    }
    let policy = Policy::new(guard, workers).listening_on(ports(config));
    let proxies = config.server.trusted_proxies.iter().map(Prefix::range).collect();
    Some(policy.exempt(AddressSet::new(proxies)))
}

/// Ports where every first packet of a connection is its client's own: behind a balancer that names
/// clients by the PROXY protocol, they are all the balancer's.
fn ports(config: &Config) -> Vec<u16> {
    let port = |address: &Address| match address {
        Address::Tcp(tcp) => Some(tcp.port()),
        Address::Unix(_) => None,
    };
    let (shown, hidden): (Vec<_>, Vec<_>) =
        addresses(config).into_iter().partition(|address| shows_clients(config, address));
    let hidden: Vec<u16> = hidden.into_iter().filter_map(port).collect();
    shown.into_iter().filter_map(port).filter(|port| !hidden.contains(port)).collect()
}

fn does_something(rule: &GuardRule) -> bool {
    rule.is_of_connections() && (rule.class.is_some() || rule.rate.is_some() || rule.refuse)
}

/// Whether the connections of an address show who their clients are.
pub(crate) fn shows_clients(config: &Config, address: &Address) -> bool {
    let mut listeners = config.sites.iter().flat_map(|site| &site.listeners);
    listeners.all(|listener| listener.address != *address || !listener.proxy_protocol)
}

/// Classes that need queues of their own, the one that goes first in front: all of them, if rules
/// for connections tell them apart.
pub(crate) fn queues(config: &Config) -> Vec<String> {
    let guard = &config.guard;
    let tells_apart = |rule: &GuardRule| rule.is_of_connections() && rule.class.is_some();
    match guard.rules.iter().any(tells_apart) {
        true => guard.classes.iter().map(|class| class.name.clone()).collect(),
        false => Vec::new(),
    }
}
