//! Routes whose answers come from elsewhere: an upstream that the configuration names, or whatever
//! origin the request does.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use weir_config::{self as config, HostHeader};
use weir_http::forward::Via;

use super::ForwardProxy;
use crate::error::StartError;
use crate::upstream::Upstream;

/// What a route with `proxy` or `forward` has.
pub(crate) struct ProxySource {
    pub(crate) toward: Toward,
    pub(crate) strip_prefix: bool,
    pub(crate) path_prefix: String,
    pub(crate) host: HostHeader,
    /// The route's name in requests to the origin, its own in the world.
    pub(crate) via: Via,
}

/// Where requests go.
pub(crate) enum Toward {
    /// To the configuration's upstream.
    Group(Arc<Upstream>),
    /// Wherever they name.
    Asked(Arc<ForwardProxy>),
}

impl ProxySource {
    /// The source of a route with `proxy`.
    ///
    /// # Errors
    /// If there is no such upstream.
    pub(super) fn build(
        proxy: &config::Proxy,
        groups: &HashMap<String, Arc<Upstream>>,
        scope: u64,
    ) -> Result<ProxySource, StartError> {
        let name = &proxy.upstream;
        let unknown = || StartError::UnknownUpstream { name: name.clone() };
        let upstream = groups.get(name).ok_or_else(unknown)?;
        Ok(ProxySource {
            toward: Toward::Group(Arc::clone(upstream)),
            strip_prefix: proxy.strip_prefix,
            path_prefix: proxy.path_prefix.clone(),
            host: proxy.host.clone(),
            via: via(scope),
        })
    }

    /// The source of a route with `forward`.
    pub(super) fn forward(proxy: ForwardProxy, scope: u64) -> ProxySource {
        ProxySource {
            toward: Toward::Asked(Arc::new(proxy)),
            strip_prefix: false,
            path_prefix: String::new(),
            host: HostHeader::Client,
            via: via(scope),
        }
    }

    /// The forward proxy, if it is one.
    pub(crate) fn forward_proxy(&self) -> Option<&Arc<ForwardProxy>> {
        match &self.toward {
            Toward::Group(_) => None,
            Toward::Asked(proxy) => Some(proxy),
        }
    }

    /// Whether requests that go there cannot but wait.
    pub(super) fn is_overloaded(&self) -> bool {
        match &self.toward {
            Toward::Group(upstream) => upstream.gate.is_overloaded(),
            // Each origin for itself.
            Toward::Asked(_) => false,
        }
    }
}

/// The name in Via of the route with this scope: another one in each process.
fn via(scope: u64) -> Via {
    static PROCESS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    // Half of the bits are enough: a name met by chance costs a request its place in a fill.
    Via::new(PROCESS.hash_one(scope) as u32)
}
