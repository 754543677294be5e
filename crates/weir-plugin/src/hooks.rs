//! Which hooks a plugin has: what it does not export is not called, and costs nothing.

use crate::exchange::Phase;

/// A set of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks(u32);

impl Hooks {
    /// One hook.
    pub(crate) fn only(phase: Phase) -> Hooks {
        Hooks(1 << phase as u32)
    }

    pub(crate) fn add(&mut self, phase: Phase) {
        self.0 |= 1 << phase as u32;
    }

    pub(crate) fn remove(&mut self, phases: &[Phase]) {
        phases.iter().for_each(|phase| self.0 &= !(1 << *phase as u32));
    }

    #[inline]
    pub(crate) fn has(self, phase: Phase) -> bool {
        self.0 & 1 << phase as u32 != 0
    }

    /// The hooks that concern requests.
    pub(crate) fn of_requests(mut self) -> Hooks {
        self.remove(&[
            Phase::Connection,
            Phase::Downstream,
            Phase::DownstreamClosed,
            Phase::Upstream,
            Phase::UpstreamClosed,
        ]);
        self
    }

    /// Whether a hook looks at the bodies of requests.
    pub fn sees_request_bodies(self) -> bool {
        self.has(Phase::RequestBody) || self.has(Phase::RequestTrailers)
    }

    /// Whether a hook looks at the bodies of responses.
    pub fn sees_response_bodies(self) -> bool {
        self.has(Phase::ResponseBody) || self.has(Phase::ResponseTrailers)
    }

    /// Whether its interface leaves the length of a body that the plugin sees as it is, unless the
    /// plugin itself takes it away (proxy-wasm; toolkits export hooks for bodies in any case).
    pub fn keeps_lengths(self) -> bool {
        self.0 & KEEPS_LENGTHS != 0
    }

    pub(crate) fn keep_lengths(&mut self) {
        self.0 |= KEEPS_LENGTHS;
    }

    /// Whether a hook runs before the cache is asked.
    pub fn looks_up(self) -> bool {
        self.has(Phase::Lookup)
    }

    /// Whether a hook runs when the cache has an answer.
    pub fn sees_hits(self) -> bool {
        self.has(Phase::Hit)
    }

    /// Whether a hook runs when it has none.
    pub fn sees_misses(self) -> bool {
        self.has(Phase::Miss)
    }

    /// Whether a hook runs before a response is stored.
    pub fn sees_stores(self) -> bool {
        self.has(Phase::Store)
    }

    /// Whether a hook runs at a request's end, which knows the response too.
    pub fn sees_ends(self) -> bool {
        self.has(Phase::Log)
    }

    /// Whether any hook looks at responses or what comes after them.
    pub fn sees_responses(self) -> bool {
        let phases = [Phase::ResponseHead, Phase::ResponseBody, Phase::ResponseTrailers];
        phases.into_iter().any(|phase| self.has(phase))
    }
}

/// Beside the bits of the phases.
const KEEPS_LENGTHS: u32 = 1 << 31;

/// proxy-wasm's callbacks by the phase that they serve.
pub(crate) const PROXY_WASM: &[(&str, Phase)] = &[
    ("proxy_on_new_connection", Phase::Connection),
    ("proxy_on_downstream_data", Phase::Downstream),
    ("proxy_on_downstream_connection_close", Phase::DownstreamClosed),
    ("proxy_on_upstream_data", Phase::Upstream),
    ("proxy_on_upstream_connection_close", Phase::UpstreamClosed),
    ("proxy_on_request_headers", Phase::RequestHead),
    ("proxy_on_request_body", Phase::RequestBody),
    ("proxy_on_request_trailers", Phase::RequestTrailers),
    ("proxy_on_response_headers", Phase::ResponseHead),
    ("proxy_on_response_body", Phase::ResponseBody),
    ("proxy_on_response_trailers", Phase::ResponseTrailers),
    ("proxy_on_log", Phase::Log),
    ("proxy_on_done", Phase::Log),
    ("proxy_on_delete", Phase::Log),
];

/// The hooks of Weir's own interface.
pub(crate) const OWN: &[(&str, Phase)] = &[
    ("weir_on_connection", Phase::Connection),
    ("weir_on_request", Phase::RequestHead),
    ("weir_on_request_body", Phase::RequestBody),
    ("weir_on_request_trailers", Phase::RequestTrailers),
    ("weir_on_lookup", Phase::Lookup),
    ("weir_on_hit", Phase::Hit),
    ("weir_on_miss", Phase::Miss),
    ("weir_on_store", Phase::Store),
    ("weir_on_response", Phase::ResponseHead),
    ("weir_on_response_body", Phase::ResponseBody),
    ("weir_on_response_trailers", Phase::ResponseTrailers),
    ("weir_on_log", Phase::Log),
];
