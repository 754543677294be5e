//! What is worked out of the rounds of the A experiments.

use super::Record;

/// Stands for endless demand where demand is varied: beyond what anybody can do.
pub const ENDLESS: f64 = 1e5;

/// Groups of the A experiments: those of the background load …
pub const HIT: &str = "hit";
/// … which are fetched, and …
pub const MISS: &str = "miss";
/// … the client whose texts are adapted.
pub const ADAPTED: &str = "adapted";

impl Record {
    /// CPU of the contender's processes per request of any group, in microseconds, round by round.
    #[must_use]
    pub fn cpu_per_request_us(&self, series: (&str, &str), x: f64) -> Vec<f64> {
        let requests = self.group_rounds(series, None, x, |sample| sample.requests as f64);
        // It is the same for all groups.
        let groups = self.group_names().into_iter();
        let mut cpu = groups.map(|group| {
            self.group_rounds(series, Some(&group), x, |sample| sample.server_cpu_ns as f64 / 1e3)
        });
        let cpu = cpu.find(|rounds| !rounds.is_empty()).unwrap_or_default();
        cpu.iter().zip(&requests).map(|(cpu, requests)| cpu / requests).collect()
    }

    /// Adaptations per second as a share of what the CPU that the background leaves allows, round
    /// by round: of the rate of `alone`, which had the core to itself, so much as the core is idle
    /// without any demand. Where `alone` itself left some of it idle, with that it could have done
    /// more.
    #[must_use]
    pub fn of_idle(&self, series: (&str, &str), alone: (&str, &str), x: f64) -> Vec<f64> {
        let adapted = |series| self.group_rounds(series, Some(ADAPTED), x, |s| s.marked_per_s());
        let alone_cpu = self.group_rounds(alone, Some(ADAPTED), x, |s| s.cpu_share());
        let background = self.group_rounds(series, Some(HIT), 0.0, |s| s.cpu_share());
        let (with, without) = (adapted(series), adapted(alone));
        let rounds = with.iter().zip(&without).zip(alone_cpu.iter().zip(&background));
        rounds
            .map(|((with, alone), (alone_cpu, background))| {
                with / (alone / alone_cpu * (1.0 - background))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{group_sample, record};
    use crate::result::GroupSample;

    const IDLE: (&str, &str) = ("weir", "idle");
    const ALONE: (&str, &str) = ("weir", "idle, alone");

    fn add(record: &mut Record, (case, group): (&str, &str), x: f64, count: u64, cpu_share: f64) {
        record.groups.push(GroupSample {
            marked: count,
            server_cpu_ns: (cpu_share * 1e9) as u64,
            ..group_sample(("weir", case, group), x, 0, count)
        });
    }

    #[test]
    fn what_idle_cpu_allows_is_a_share_of_what_was_done_alone() {
        let mut record = record("a4");
        add(&mut record, ("idle", HIT), 0.0, 1_000, 0.2);
        add(&mut record, ("idle", MISS), 0.0, 500, 0.2);
        add(&mut record, ("idle", ADAPTED), ENDLESS, 3_800, 0.9);
        add(&mut record, ("idle, alone", ADAPTED), ENDLESS, 5_000, 1.0);
        assert_eq!(record.of_idle(IDLE, ALONE, ENDLESS), [0.95]);
        assert!(record.of_idle(IDLE, ALONE, 75.0).is_empty(), "nothing was measured there");
    }

    #[test]
    fn cpu_is_shared_by_all_requests_and_counted_once() {
        let mut record = record("a1");
        add(&mut record, ("on", HIT), 1.0, 600, 0.05);
        add(&mut record, ("on", MISS), 1.0, 400, 0.05);
        assert_eq!(record.cpu_per_request_us(("weir", "on"), 1.0), [50.0]);
    }
}
