//! Raising a limit on trial: as long as nothing is known of an upstream, nobody waits for more than
//! a second only because measuring takes its time.
//!
//! A measurement is two rounds of what is in flight. Of an upstream that takes ten seconds for an
//! answer, and has room for hundreds, too little would be known for minutes. So the limit doubles:
//! each second while there was no answer at all, and else on trial: if answers take nearly twice as
//! long with twice as many in flight, the upstream worked on no more at a time than before, and the
//! limit goes back.

/// How long somebody must have waited, and how long a second doubling waits.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How many answers it takes to say how long they take.
const ANSWERS_MIN: u32 = 20;

/// So much longer may they take after a doubling: by Little's law a quarter more is answered then
/// (2 / 1.6), which is beyond chance.
const LONGER: f64 = 1.6;

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
#[derive(Debug)]
pub(super) struct Trial {
    state: State,
    /// Mean latency of answers, in nanoseconds; 0 while there was none.
    latency_ns: u64,
    count: Count,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ready,
    /// Doubled at that time, without an answer that says more.
    Blind(u64),
    Raised {
        from: u32,
        /// How long answers took before.
        mean_ns: f64,
    },
    Resting {
        until_ns: u64,
    },
}

/// Answers to requests that were sent since a limit shows its effect.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    limit: u32,
    since_ns: u64,
    answers: u32,
    sum_ns: u64,
}

impl Count {
    /// How long they took, once it can be said.
    fn mean_ns(&self) -> Option<f64> {
        let is_enough = self.answers >= ANSWERS_MIN;
        is_enough.then(|| self.sum_ns as f64 / f64::from(self.answers))
    }
}

/// How the gate stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) limit: u32,
    /// How long the first of those who wait has waited, while all places are taken.
    pub(super) waited_ns: u64,
    /// The limit comes from a measurement.
    pub(super) is_known: bool,
    /// It is another one for a moment.
    pub(super) is_probing: bool,
}

impl Trial {
    /// None of a limit that is new.
    pub(super) fn new(limit: u32) -> Trial {
        Trial { state: State::Ready, latency_ns: 0, count: Count { limit, ..Count::default() } }
    }

    /// A request was answered that was sent at `started_ns`.
    pub(super) fn answered(&mut self, started_ns: u64, latency_ns: u64) {
        if started_ns >= self.count.since_ns {
            self.count.answers = self.count.answers.saturating_add(1);
            self.count.sum_ns = self.count.sum_ns.saturating_add(latency_ns);
        }
        let latency_ns = latency_ns.max(1);
        self.latency_ns = match self.latency_ns {
            0 => latency_ns,
            known_ns => known_ns - known_ns / LATENCY_SHARE + latency_ns / LATENCY_SHARE,
        };
    }

    /// Mean latency of answers, in nanoseconds; 0 while there was none.
    pub(super) fn latency_ns(&self) -> u64 {
        self.latency_ns
    }

    /// What is to be done now.
    pub(super) fn tick(&mut self, now_ns: u64, stand: &Stand) -> Option<Change> {
        if self.count.limit != stand.limit {
            self.count_anew(now_ns, stand.limit);
            if matches!(self.state, State::Raised { .. }) {
                // By somebody who knows more.
                self.state = State::Ready;
            }
        }
        if stand.is_probing {
            return None;
        }
        match self.state {
            State::Ready | State::Blind(_) => self.doubles(now_ns, stand).then(|| {
                self.count_anew(now_ns, stand.limit.saturating_mul(2));
                Change::Double
            }),
            State::Raised { from, mean_ns } => {
                if self.count.mean_ns()? <= LONGER * mean_ns {
                    self.state = State::Ready;
                    return None;
                }
                self.state = State::Resting { until_ns: now_ns.saturating_add(REST_NS) };
                self.count_anew(now_ns, from);
                Some(Change::Back(from))
            }
            State::Resting { until_ns } => {
                if now_ns >= until_ns {
                    self.state = State::Ready;
                }
                None
            }
        }
    }

    /// Whether it will be seen, or is, what comes of more. As long as that is so, nobody should
    /// look what comes of less: that would make those wait longer who have waited for too long.
    pub(super) fn is_on(&self, stand: &Stand) -> bool {
        let is_wanted = stand.waited_ns >= PATIENCE_NS && !stand.is_known;
        is_wanted && !matches!(self.state, State::Resting { .. })
    }

    /// Whether it is time for that.
    fn doubles(&mut self, now_ns: u64, stand: &Stand) -> bool {
        if stand.waited_ns < PATIENCE_NS || stand.is_known {
            return false;
        }
        if self.latency_ns == 0 {
            // Such requests are held, as in long polling, or take longer than anybody has waited.
            if let State::Blind(last_ns) = self.state
                && now_ns.saturating_sub(last_ns) < PATIENCE_NS
            {
                return false;
            }
            self.state = State::Blind(now_ns);
            return true;
        }
        let Some(mean_ns) = self.count.mean_ns() else { return false };
        self.state = State::Raised { from: stand.limit, mean_ns };
        true
    }

    /// Counts answers to what is sent once those before are answered.
    fn count_anew(&mut self, now_ns: u64, limit: u32) {
        let since_ns = now_ns.saturating_add(self.latency_ns);
        self.count = Count { limit, since_ns, ..Count::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An upstream that works on so many at a time, each for so long, and a crowd that always fills
    /// the limit. Returns the limit at the end of each second.
    fn limits(places: u32, takes_ms: u64, seconds: u64) -> Vec<u32> {
        let (mut trial, mut limit, mut seen) = (Trial::new(64), 64_u32, Vec::new());
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
                trial.answered(now_ns - latency_ms * MS, latency_ms * MS);
            }
            let stand = Stand { limit, waited_ns: now_ns, is_known: false, is_probing: false };
            match trial.tick(now_ns, &stand) {
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
        assert!(seen.iter().all(|limit| *limit <= 128), "{seen:?}");
        assert_eq!(seen[4..], [64; 16]);
    }

    #[test]
    fn slow_upstreams_with_room_are_given_more_within_seconds() {
        let seen = limits(1000, 10_000, 40);
        assert!(seen[4..].iter().all(|limit| *limit >= 1000), "{seen:?}");
        let seen = limits(1000, 1000, 20);
        assert!(seen[10..].iter().all(|limit| *limit >= 500), "{seen:?}");
    }

    #[test]
    fn nothing_is_tried_where_nobody_waits_or_the_limit_is_known() {
        let mut trial = Trial::new(4);
        for at_ms in 1..10_000 {
            let (waited_ns, is_known) =
                if at_ms % 2 == 0 { (2000 * MS, true) } else { (MS, false) };
            let stand = Stand { limit: 4, waited_ns, is_known, is_probing: false };
            assert_eq!(trial.tick(at_ms * MS, &stand), None);
        }
    }

    #[test]
    fn a_trial_ends_when_somebody_else_changes_the_limit() {
        let mut trial = Trial::new(8);
        let stand =
            |limit| Stand { limit, waited_ns: 2000 * MS, is_known: false, is_probing: false };
        for at_ms in 0..30 {
            trial.answered(at_ms * MS, MS);
        }
        assert_eq!(trial.tick(31 * MS, &stand(8)), Some(Change::Double));
        assert_eq!(trial.tick(32 * MS, &stand(16)), None);
        assert!(matches!(trial.state, State::Raised { from: 8, .. }));
        assert_eq!(trial.tick(33 * MS, &stand(12)), None);
        assert!(matches!(trial.state, State::Ready));
    }
}
