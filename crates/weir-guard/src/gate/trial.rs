//! Raising a limit on trial: as long as nothing is known of an upstream, nobody waits for more than
//! a second only because measuring takes its time.
//!
//! A measurement is two rounds of what is in flight. Of an upstream that takes ten seconds for an
//! answer, and has room for hundreds, too little would be known for minutes. So the limit doubles
//! each second, until its effect can be seen, two answers' time later. If more is answered then,
//! the limit stays; if not, the upstream worked on no more at a time than before, and it goes back.

/// How long somebody must have waited, and how long a second doubling waits.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How long answers are counted.
const COUNT_NS: u64 = 1_000_000_000;

/// So much more must be answered, as a fraction: twice the places can give twice as much, and a
/// quarter is beyond chance.
const GAIN: (u32, u32) = (5, 4);

/// How long it is not tried again after it was in vain.
const REST_NS: u64 = 60_000_000_000;

/// Weight of a new latency in the mean.
const LATENCY_SHARE: u64 = 8;

/// What is to be done with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Double,
    Back(u32),
}

/// A limit's trials.
#[derive(Debug, Default)]
pub(super) struct Trial {
    state: State,
    /// Mean latency of answers, in nanoseconds; 0 while there was none.
    latency_ns: u64,
    /// Answers in the running count, and in the one before.
    ends: u32,
    ends_before: u32,
    count_began_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Ready,
    Raised {
        from: u32,
        ends_before: u32,
        began_ns: u64,
        last_ns: u64,
        /// When the effect can be seen: known once something was answered.
        shows_ns: Option<u64>,
    },
    Judging {
        from: u32,
        ends_before: u32,
        began_ns: u64,
        ends: u32,
    },
    Resting {
        until_ns: u64,
    },
}

/// How the gate stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) limit: u32,
    /// How long the first of those who wait has waited, while all places are taken.
    pub(super) waited_ns: u64,
}

impl Trial {
    /// A request was answered.
    pub(super) fn answered(&mut self, now_ns: u64, latency_ns: u64) {
        self.count(now_ns);
        self.ends = self.ends.saturating_add(1);
        if let State::Judging { ends, .. } = &mut self.state {
            *ends = ends.saturating_add(1);
        }
        let latency_ns = latency_ns.max(1);
        self.latency_ns = match self.latency_ns {
            0 => latency_ns,
            known_ns => known_ns - known_ns / LATENCY_SHARE + latency_ns / LATENCY_SHARE,
        };
    }

    /// What is to be done now. `is_known` tells whether a measurement has come to a result, and is
    /// asked only if somebody has waited for long.
    pub(super) fn tick(
        &mut self,
        now_ns: u64,
        stand: &Stand,
        is_known: impl FnOnce() -> bool,
    ) -> Option<Change> {
        self.count(now_ns);
        let passed = |since_ns: u64| now_ns.saturating_sub(since_ns);
        let has_waited = stand.waited_ns >= PATIENCE_NS;
        match self.state {
            State::Ready if has_waited && !is_known() => {
                self.state = State::Raised {
                    from: stand.limit,
                    ends_before: self.ends_before,
                    began_ns: now_ns,
                    last_ns: now_ns,
                    shows_ns: self.shows_ns(now_ns),
                };
                Some(Change::Double)
            }
            State::Raised { from, ends_before, shows_ns: Some(shows_ns), .. }
                if now_ns >= shows_ns =>
            {
                self.state = State::Judging { from, ends_before, began_ns: now_ns, ends: 0 };
                None
            }
            State::Raised { from, ends_before, began_ns, last_ns, shows_ns } => {
                let shows_ns = shows_ns.or_else(|| self.shows_ns(began_ns));
                let doubles = has_waited && passed(last_ns) >= PATIENCE_NS;
                let last_ns = if doubles { now_ns } else { last_ns };
                self.state = State::Raised { from, ends_before, began_ns, last_ns, shows_ns };
                doubles.then_some(Change::Double)
            }
            State::Judging { from, ends_before, began_ns, ends }
                if passed(began_ns) >= COUNT_NS =>
            {
                let has_gained = u64::from(ends) * u64::from(GAIN.1)
                    >= u64::from(ends_before) * u64::from(GAIN.0);
                self.state = match has_gained {
                    true => State::Ready,
                    false => State::Resting { until_ns: now_ns.saturating_add(REST_NS) },
                };
                (!has_gained).then_some(Change::Back(from))
            }
            State::Resting { until_ns } if now_ns >= until_ns => {
                self.state = State::Ready;
                None
            }
            _ => None,
        }
    }

    /// When what is let in after a doubling has been answered. Nothing while there was no answer:
    /// such requests are held, as in long polling.
    fn shows_ns(&self, began_ns: u64) -> Option<u64> {
        let takes_ns = COUNT_NS.max(self.latency_ns.saturating_mul(2));
        (self.latency_ns > 0).then(|| began_ns.saturating_add(takes_ns))
    }

    fn count(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.count_began_ns);
        if passed_ns >= COUNT_NS {
            self.ends_before = if passed_ns < 2 * COUNT_NS { self.ends } else { 0 };
            self.ends = 0;
            self.count_began_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An upstream that works on so many at a time, each for so long, and a crowd that always fills
    /// the limit. Returns the limit at the end of each second.
    fn limits(places: u32, takes_ms: u64, seconds: u64) -> Vec<u32> {
        let (mut trial, mut limit, mut seen) = (Trial::default(), 64_u32, Vec::new());
        let mut owed = 0.0;
        for at_ms in 1..=seconds * 1000 {
            let now_ns = at_ms * MS;
            let busy = f64::from(places.min(limit));
            // What is in flight beyond the places waits there.
            let latency_ms = (takes_ms as f64 * f64::from(limit) / busy) as u64;
            if at_ms > latency_ms {
                owed += busy / takes_ms as f64;
            }
            while owed >= 1.0 {
                owed -= 1.0;
                trial.answered(now_ns, latency_ms * MS);
            }
            let stand = Stand { limit, waited_ns: now_ns };
            match trial.tick(now_ns, &stand, || false) {
                Some(Change::Double) => limit = (limit * 2).min(2000),
                Some(Change::Back(from)) => limit = from,
                None => {}
            }
            if at_ms % 1000 == 0 {
                seen.push(limit);
            }
        }
        seen
    }

    #[test]
    fn where_more_is_not_answered_the_limit_goes_back() {
        let seen = limits(8, 50, 20);
        // In the first second there is not a whole one to compare with.
        assert_eq!(seen[..3], [128; 3]);
        assert!(seen[5..].iter().all(|limit| *limit == 128), "{seen:?}");
    }

    #[test]
    fn slow_upstreams_with_room_are_given_more_within_seconds() {
        let seen = limits(1000, 10_000, 40);
        assert!(seen[4] >= 1000, "{seen:?}");
        assert!(seen[4..].iter().all(|limit| *limit >= 1000), "{seen:?}");
    }

    #[test]
    fn nothing_is_tried_where_nobody_waits_or_the_limit_is_known() {
        let mut trial = Trial::default();
        for at_ms in 1..10_000 {
            let (waited_ns, is_known) =
                if at_ms % 2 == 0 { (2000 * MS, true) } else { (MS, false) };
            let stand = Stand { limit: 4, waited_ns };
            assert_eq!(trial.tick(at_ms * MS, &stand, || is_known), None);
        }
    }
}
