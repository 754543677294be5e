//! When requests are due in an open loop.

use std::time::{Duration, Instant};

use super::Arrivals;

/// Start of the pseudo-random numbers: the same arrivals in every run, for every contender.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// The clock of a group's arrivals.
pub(super) struct Clock {
    next: Instant,
    mean: Duration,
    /// State of the pseudo-random numbers; none for equal distances.
    random: Option<u64>,
}

impl Clock {
    /// None for a closed loop. Groups, by number, come independently of each other.
    pub(super) fn new(start: Instant, arrivals: Arrivals, group: usize) -> Option<Clock> {
        let (rate_per_s, random) = match arrivals {
            Arrivals::Closed => return None,
            Arrivals::Even(rate) => (rate, None),
            Arrivals::Poisson(rate) => (rate, Some(SEED.wrapping_mul(2 * group as u64 + 1))),
        };
        Some(Clock { next: start, mean: Duration::from_secs_f64(1.0 / rate_per_s), random })
    }

    /// When the next request is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The due time of the next request, if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        (self.next <= now).then(|| {
            let due = self.next;
            let distance = self.distance();
            self.next += distance;
            due
        })
    }

    fn distance(&mut self) -> Duration {
        let Some(state) = &mut self.random else { return self.mean };
        // xorshift64*; its upper 53 bits as a number in (0, 1].
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let bits = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        let uniform = (bits + 1) as f64 / (1_u64 << 53) as f64;
        self.mean.mul_f64(-uniform.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_when_served_late() {
        let start = Instant::now();
        let mut clock = Clock::new(start, Arrivals::Even(1_000.0), 0).unwrap();
        let late = start + Duration::from_millis(3);
        let due: Vec<_> = std::iter::from_fn(|| clock.take_due(late)).collect();
        assert_eq!(due.len(), 4, "0, 1, 2 and 3 ms");
        assert_eq!(due[1] - due[0], Duration::from_millis(1));
        assert_eq!(clock.take_due(start + Duration::from_micros(3_999)), None);
    }

    #[test]
    fn independent_arrivals_have_their_rate_and_spread() {
        let start = Instant::now();
        let mut clock = Clock::new(start, Arrivals::Poisson(1_000.0), 1).unwrap();
        let end = start + Duration::from_secs(100);
        let mut due: Vec<f64> = Vec::new();
        while let Some(at) = clock.take_due(end) {
            due.push((at - start).as_secs_f64());
        }
        assert!((97_000..103_000).contains(&due.len()), "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let long = gaps.iter().filter(|gap| **gap > 1e-3).count() as f64 / gaps.len() as f64;
        assert!((long - (-1.0_f64).exp()).abs() < 0.01, "{long} of gaps are above the mean");
    }

    #[test]
    fn a_closed_loop_has_no_clock() {
        assert!(Clock::new(Instant::now(), Arrivals::Closed, 0).is_none());
    }
}
