//! Jobs that helpers died of. Two deaths, and a job is refused for a while: what makes a codec
//! crash would do so again, and each time costs a process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Deaths after which a job is refused.
const DEATHS_MAX: u32 = 2;
/// How long, after the last of them.
const REFUSED: Duration = Duration::from_secs(600);
/// Jobs that are remembered; then the oldest are forgotten.
const REMEMBERED_MAX: usize = 4096;

/// Deaths by job.
#[derive(Default)]
pub(super) struct Strikes {
    jobs: HashMap<u128, (u32, Instant)>,
}

impl Strikes {
    /// A helper has died of a job, or could not be started for it. Whether it may be tried again.
    pub(super) fn died(&mut self, key: u128, now: Instant) -> bool {
        if self.jobs.len() >= REMEMBERED_MAX {
            self.jobs.retain(|_, (_, at)| now.duration_since(*at) < REFUSED);
        }
        if self.jobs.len() >= REMEMBERED_MAX
            && let Some(oldest) =
                self.jobs.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| *key)
        {
            self.jobs.remove(&oldest);
        }
        let (deaths, at) = self.jobs.entry(key).or_insert((0, now));
        if now.duration_since(*at) >= REFUSED {
            *deaths = 0;
        }
        (*deaths, *at) = (*deaths + 1, now);
        *deaths < DEATHS_MAX
    }

    /// Whether a job is refused.
    pub(super) fn is_deadly(&self, key: u128, now: Instant) -> bool {
        self.jobs
            .get(&key)
            .is_some_and(|(deaths, at)| *deaths >= DEATHS_MAX && now.duration_since(*at) < REFUSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_deaths_and_a_job_is_refused_for_a_while() {
        let (mut strikes, start) = (Strikes::default(), Instant::now());
        assert!(!strikes.is_deadly(1, start));
        assert!(strikes.died(1, start));
        assert!(!strikes.is_deadly(1, start));
        assert!(!strikes.died(1, start));
        assert!(strikes.is_deadly(1, start) && !strikes.is_deadly(2, start));
        assert!(!strikes.is_deadly(1, start + REFUSED));
        assert!(strikes.died(1, start + REFUSED), "counted anew");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let (mut strikes, start) = (Strikes::default(), Instant::now());
        for key in 0..=REMEMBERED_MAX as u128 {
            strikes.died(key, start + Duration::from_nanos(key as u64));
        }
        assert_eq!(strikes.jobs.len(), REMEMBERED_MAX);
        assert!(!strikes.jobs.contains_key(&0));
    }
}
