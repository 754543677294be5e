//! The gate's own time, which goes forward only and by bounded steps, whatever the clock does.

/// A step that is longer counts as this. Everything that waits or is measured is over by then, and
/// time cannot reach its end however often the clock jumps.
const STEP_NS_MAX: u64 = 3600 * 1_000_000_000;

/// Sums up what the clock goes forward; what it goes back is ignored. After a jump time goes on at
/// its normal pace.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    clock_ns: u64,
    ns: u64,
}

impl Timeline {
    pub(super) fn new(now_ns: u64) -> Timeline {
        Timeline { clock_ns: now_ns, ns: 0 }
    }

    /// The gate's time now.
    pub(super) fn advance(&mut self, now_ns: u64) -> u64 {
        let step_ns = now_ns.saturating_sub(self.clock_ns).min(STEP_NS_MAX);
        self.clock_ns = now_ns;
        self.ns = self.ns.saturating_add(step_ns);
        self.ns
    }

    /// What the clock shows at a time of the gate that is not over yet.
    pub(super) fn clock_at(&self, ns: u64) -> u64 {
        self.clock_ns.saturating_add(ns.saturating_sub(self.ns))
    }
}
