//! Records and samples for tests.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::result::{GroupSample, Record, Sample, Settings};

/// A record with nothing measured.
pub(crate) fn record(id: &str) -> Record {
    Record {
        id: id.to_owned(),
        title: "a test".to_owned(),
        command: "none".to_owned(),
        machine: Machine::describe(),
        settings: Settings { rounds: 1, window_s: 1.0, clients: 40, quick: true },
        contenders: vec![("weir".to_owned(), "0".to_owned())],
        skipped: Vec::new(),
        samples: Vec::new(),
        memory: Vec::new(),
        timings: Vec::new(),
        peaks: Vec::new(),
        groups: Vec::new(),
        axis: None,
        capacity_per_s: None,
    }
}

/// A round of 1,000 requests in a second, at `cpu_us` each.
pub(crate) fn sample(contender: &str, size: usize, round: usize, cpu_us: u64) -> Sample {
    Sample {
        contender: contender.to_owned(),
        case: "static".to_owned(),
        size,
        round,
        rate_per_s: None,
        requests: 1_000,
        body_bytes: 1_000 * size as u64,
        errors: 0,
        first_error: None,
        bodies_compared: 1,
        seconds: 1.0,
        server_cpu_ns: cpu_us * 1_000_000,
        load_cpu_ns: 0,
        latency_p50_us: 1.0,
        latency_p99_us: 1.0,
        steal: 0.0,
        foreign_cores: 0.0,
    }
}

/// A second of a group.
pub(crate) fn group_sample(
    (contender, case, group): (&str, &str, &str),
    x: f64,
    round: usize,
    requests: u64,
) -> GroupSample {
    GroupSample {
        contender: contender.to_owned(),
        case: case.to_owned(),
        group: group.to_owned(),
        x,
        round,
        seconds: 1.0,
        begun: requests,
        requests,
        marked: 0,
        body_bytes: requests * 8_192,
        refused: BTreeMap::new(),
        resets: 0,
        connect_timeouts: 0,
        timeouts: 0,
        unsent: 0,
        errors: 0,
        first_error: None,
        latency_p50_us: 20_000.0,
        latency_p99_us: 25_000.0,
        limit_per_s: None,
        server_cpu_ns: 1,
        server_core_busy: 0.1,
        load_core_busy: 0.1,
        steal: 0.0,
    }
}
