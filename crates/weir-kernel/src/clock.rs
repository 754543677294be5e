//! What programs tell the time by. The process compares with its own CLOCK_MONOTONIC, which both
//! clocks here are readings of.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use crate::asm::Assembler;
use crate::error::KernelError;
use crate::limits::TIME_NS_MAX;
use crate::sys::{LoadedProgram, ProgramKind};

const KTIME_GET_NS: i32 = 5;
const KTIME_GET_COARSE_NS: i32 = 160;

/// What programs tell the time by, in nanoseconds since the machine started either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// As it was at the last tick, so long ago at most (CLOCK_MONOTONIC_COARSE). It takes 5 ns to
    /// ask where the exact one takes 17, a third of a decision.
    Coarse { tick_ns: u64 },
    /// CLOCK_MONOTONIC, before Linux 5.11.
    Exact,
}

impl Clock {
    /// The cheapest that the kernel has.
    pub(crate) fn known() -> Clock {
        let coarse = Clock::Coarse { tick_ns: ns(clock_getres(ClockId::MonotonicCoarse)) };
        let mut asm = Assembler::new();
        asm.call(coarse.function());
        asm.exit_with(0);
        let load = |program| LoadedProgram::load(ProgramKind::SocketFilter, &program);
        match asm.finish(usize::MAX).map_err(KernelError::from).and_then(load) {
            Ok(_) => coarse,
            Err(_) => Clock::Exact,
        }
    }

    /// The function of the kernel that tells it, `enum bpf_func_id`.
    pub(crate) fn function(self) -> i32 {
        match self {
            Clock::Coarse { .. } => KTIME_GET_COARSE_NS,
            Clock::Exact => KTIME_GET_NS,
        }
    }

    /// What it says now.
    pub(crate) fn now_ns(self) -> u64 {
        let id = match self {
            Clock::Coarse { .. } => ClockId::MonotonicCoarse,
            Clock::Exact => ClockId::Monotonic,
        };
        ns(clock_gettime(id))
    }

    /// The count of ticks that belongs to it.
    pub(crate) fn jiffies(self) -> Option<Jiffies> {
        match self {
            Clock::Coarse { tick_ns } if tick_ns > 0 => Some(Jiffies { tick_ns }),
            _ => None,
        }
    }

    /// How much time may pass unseen. A bucket has room for what comes in that, or it would lose
    /// of its rate: as if a few milliseconds' worth were the least burst.
    pub(crate) fn tick_ns(self) -> u64 {
        match self {
            Clock::Coarse { tick_ns } => tick_ns,
            Clock::Exact => 0,
        }
    }
}

/// A time, or a span of it. No clock here is before its beginning.
fn ns(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Time as the kernel's count of ticks, in parts of one: reading it is a load from memory (Linux
/// 5.6 and newer make it that), but nobody else measures so, and it is not the time of any clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jiffies {
    tick_ns: u64,
}

impl Jiffies {
    pub(crate) const FUNCTION: i32 = 118;

    /// Bits of a tick's parts: 4 ns at 250 ticks a second, and room for 500 years of them.
    pub(crate) const PART_BITS: i32 = 20;

    /// A span of time in parts, 1 at least.
    pub(crate) fn of_ns(self, ns: u64) -> u64 {
        let parts = (u128::from(ns) << Self::PART_BITS) / u128::from(self.tick_ns);
        u64::try_from(parts).unwrap_or(u64::MAX).clamp(1, TIME_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use weir_config::Rate;

    use super::*;
    use crate::policy::Policy;
    use crate::testing::*;

    /// What a rate lets through while packets come as fast as they can, as a share of what it
    /// should.
    fn share(count: u32, burst: u32, clock: Option<Clock>) -> Option<f64> {
        let rate = Some(Rate { count, period: Duration::from_secs(1), burst });
        let policy = Policy::new(&guard(&[], vec![rule("fast", |rule| rule.rate = rate)]), 1);
        let bench = Bench::with_clock(policy, clock)?;
        let frame = crate::packet::Frame::syn(
            "10.0.0.2:1".parse().unwrap(),
            "10.0.0.1:80".parse().unwrap(),
        );
        let bytes = frame.bytes();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            // Runs of 20 microseconds.
            bench.police.test(&bytes, 300).unwrap();
        }
        let expected = began.elapsed().as_secs_f64() * f64::from(count) + f64::from(burst);
        let (offered, dropped) = bench.counts(0);
        Some((offered - dropped) as f64 / expected)
    }

    #[test]
    fn rates_hold_by_either_clock() {
        for (count, burst) in [(200, 20), (10_000, 1000), (200_000, 20_000)] {
            for clock in [None, Some(Clock::Exact)] {
                let Some(share) = share(count, burst, clock) else { return };
                // Who is not let run for a while by the machine offers nothing meanwhile.
                assert!((0.7..1.02).contains(&share), "{count} {burst} {clock:?}: {share}");
            }
        }
    }

    /// One at a time, in a tick in which forty may come: without room for those it were a fortieth.
    #[test]
    fn the_clock_loses_nothing_of_a_rate_with_a_small_burst() {
        let Some(share) = share(10_000, 1, None) else { return };
        assert!((0.1..1.05).contains(&share), "{share}");
    }
}
