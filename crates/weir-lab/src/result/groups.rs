//! Rounds in which several groups of clients ask at the same time, and some are refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Record;

/// What was varied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// In words, with its unit.
    pub label: String,
    /// Its values, ascending, and what tables call them.
    pub ticks: Vec<(f64, String)>,
}

/// One group of clients at one contender, in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupSample {
    /// Name of the contender.
    pub contender: String,
    /// How it was set up.
    pub case: String,
    /// Name of the group.
    pub group: String,
    /// Value of what was varied.
    pub x: f64,
    /// Number of the round, from 0.
    pub round: usize,
    /// The window's length.
    pub seconds: f64,
    /// Requests begun within the window.
    pub begun: u64,
    /// Correct responses within the window.
    pub requests: u64,
    /// Those of them that were what they were asked to be: out of the cache, or adapted.
    #[serde(default)]
    pub marked: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Refusals by status.
    pub refused: BTreeMap<u16, u64>,
    /// Connections reset, refused or closed without an answer.
    pub resets: u64,
    /// Connections given up before they were open.
    pub connect_timeouts: u64,
    /// Requests given up later.
    pub timeouts: u64,
    /// Requests not sent, because as many as may be were outstanding.
    pub unsent: u64,
    /// Wrong answers and other failures.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Latency of correct responses.
    pub latency_p50_us: f64,
    /// The same, 99th percentile.
    pub latency_p99_us: f64,
    /// What the contender was told to let in per second, of this group.
    pub limit_per_s: Option<f64>,
    /// CPU time of all processes of the contender, for all groups.
    pub server_cpu_ns: u64,
    /// Share of time that the contender's core was busy, with anything: packets that the kernel
    /// receives and drops are nobody's.
    pub server_core_busy: f64,
    /// Share of time that the core of generator and application was busy.
    pub load_core_busy: f64,
    /// Share of the machine's time that the hypervisor gave to others.
    pub steal: f64,
}

impl GroupSample {
    /// Correct responses per second.
    #[must_use]
    pub fn goodput_per_s(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Those of them that were what they were asked to be.
    #[must_use]
    pub fn marked_per_s(&self) -> f64 {
        self.marked as f64 / self.seconds
    }

    /// CPU time of the contender's processes, as a share of a core.
    #[must_use]
    pub fn cpu_share(&self) -> f64 {
        self.server_cpu_ns as f64 / 1e9 / self.seconds
    }

    /// Kilobytes of bodies per second, the original's unit.
    #[must_use]
    pub fn kilobytes_per_s(&self) -> f64 {
        self.body_bytes as f64 / 1024.0 / self.seconds
    }

    /// Requests per second that were refused, reset or given up.
    #[must_use]
    pub fn turned_away_per_s(&self) -> f64 {
        let answered: u64 = self.refused.values().sum();
        (answered + self.resets + self.connect_timeouts + self.timeouts) as f64 / self.seconds
    }

    /// How much more or less was let in than was to be, as a share of that.
    #[must_use]
    pub fn limit_error(&self) -> f64 {
        self.limit_per_s.map_or(f64::NAN, |limit| (self.goodput_per_s() / limit - 1.0).abs())
    }
}

impl Record {
    /// `metric` of each round of a group (all groups if `None`, added up), in the order of the
    /// rounds.
    #[must_use]
    pub fn group_rounds(
        &self,
        (contender, case): (&str, &str),
        group: Option<&str>,
        x: f64,
        metric: impl Fn(&GroupSample) -> f64,
    ) -> Vec<f64> {
        let mut rounds: BTreeMap<usize, f64> = BTreeMap::new();
        let of = |sample: &&GroupSample| {
            sample.contender == contender && sample.case == case && sample.x == x
        };
        let samples = self.groups.iter().filter(of);
        for sample in samples.filter(|s| group.is_none_or(|group| s.group == group)) {
            *rounds.entry(sample.round).or_default() += metric(sample);
        }
        rounds.into_values().collect()
    }

    /// Contender and case of all that was measured with groups, in order.
    #[must_use]
    pub fn group_series(&self) -> Vec<(String, String)> {
        distinct(self.groups.iter().map(|s| (s.contender.clone(), s.case.clone())))
    }

    /// Names of groups, in order.
    #[must_use]
    pub fn group_names(&self) -> Vec<String> {
        distinct(self.groups.iter().map(|sample| sample.group.clone()))
    }

    /// All values of what was varied, ascending.
    #[must_use]
    pub fn group_xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> = self.groups.iter().map(|sample| sample.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }
}

/// Each once, in the order of first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
