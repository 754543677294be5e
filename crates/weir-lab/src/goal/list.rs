//! The goals themselves, by experiment.

use super::{Goal, Measure, Series};

const SMALL_MAX: usize = 8 << 10;
const LARGE_MIN: usize = 64 << 10;

/// Goals of the experiment `id`.
#[must_use]
pub fn goals(id: &str) -> Vec<Goal> {
    let weir = ("weir", "static");
    let cpu = |peer, bound| Measure::CpuAtMost((peer, "static"), bound);
    match id {
        "s1" | "s2" => vec![
            // +60 % per CPU is 1 / 1.6 of the CPU, +20 % is 1 / 1.2, +137 % is 1 / 2.37.
            Goal { size_max: SMALL_MAX, ..any(weir, cpu("nginx", 0.62)) },
            Goal { size_min: LARGE_MIN, ..any(weir, cpu("nginx", 0.83)) },
            any(weir, cpu("apache", 0.42)),
            any(weir, cpu("floor", 1.3)),
            any(weir, cpu("h2o", 1.0)),
            any(weir, cpu("lighttpd", 1.0)),
        ],
        "s3" => vec![
            any(("weir", "cached"), Measure::ThroughputAtLeast(weir, 0.87)),
            any(("weir", "uncached"), Measure::CpuAtMost(("nginx", "uncached"), 1.0)),
        ],
        "s5" => ["static", "cached", "uncached"]
            .map(|case| any(("weir", case), Measure::MemoryAtMost(16.0 * 1024.0)))
            .to_vec(),
        "idle" => vec![any(weir, Measure::MemoryAtMost(12.0 * 1024.0))],
        "p1" => empty_plugin(),
        "p2" => vec![
            any(("weir", "deploy to first request"), Measure::TimeAtMost(20e6)),
            any(("weir", "swap on a worker"), Measure::TimeAtMost(1e3)),
        ],
        "p3" => under_load(),
        "p4" => vec![Goal {
            size_min: 3 << 20,
            ..any(("weir", "isolated"), Measure::TimeRatioAtMost(("weir", "native"), 1.15))
        }],
        _ => Vec::new(),
    }
}

/// For documents of any size.
fn any(subject: Series, measure: Measure) -> Goal {
    Goal { subject, measure, size_min: 0, size_max: usize::MAX }
}

fn empty_plugin() -> Vec<Goal> {
    let mut goals = vec![
        any(("weir", "own: a call"), Measure::TimeAtMost(60.0)),
        any(("weir", "own: a call, 8 fields shown"), Measure::TimeAtMost(60.0)),
        any(("weir", "proxy-wasm: a request"), Measure::TimeAtMost(500.0)),
    ];
    for case in ["own", "proxy-wasm"] {
        for without in ["plain", "none"] {
            let (subject, without) = (("weir", case), ("weir", without));
            goals.push(any(subject, Measure::ThroughputAtLeast(without, 0.99)));
            // Where the generator is the limit, throughput would hide what CPU shows.
            goals.push(any(subject, Measure::CpuAtMost(without, 1.01)));
        }
    }
    let extra = Measure::ExtraCpuAtMost {
        plain: ("weir", "none"),
        peer: ("envoy", "proxy-wasm"),
        peer_plain: ("envoy", "plain"),
        bound: 0.1,
    };
    goals.push(any(("weir", "proxy-wasm"), extra));
    goals
}

fn under_load() -> Vec<Goal> {
    let plain = ("weir", "plain");
    let of = |case| {
        [
            // Within 5 %: what rounds of the same thing differ by on a quiet machine.
            any(("weir", case), Measure::LatencyAtMost(plain, 1.05)),
            any(("weir", case), Measure::PeakAtLeast(plain, 0.99)),
        ]
    };
    ["own", "proxy-wasm"].into_iter().flat_map(of).collect()
}
