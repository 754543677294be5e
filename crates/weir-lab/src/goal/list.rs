//! The goals themselves, by experiment.

use super::{Against, Bound, Goal, GroupGoal, GroupMetric, Measure, Series, adapted};

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
        "a1" => adapted::interface(),
        "a2" => adapted::lists(),
        "a3" => adapted::hits_unhurt(),
        "a4" => adapted::endless_demand(),
        "g1" => preferred(&["kernel", "kernel+class"]),
        "g2" => vec![exact_limit("flood", "others")],
        "g3" => classes(),
        "g4" => policed_classes(),
        "g5" => preferred(&["rule", "rule+class"]),
        "g6" => vec![
            top_p99("by page"),
            group(
                ("weir", "by page"),
                GroupGoal {
                    against: Against::Other(("weir", "by address")),
                    ..goodput(None, Bound::AtLeast(0.99))
                },
            ),
        ],
        "g7" => overload(),
        "g8" => path_rules(),
        "g9" => decisions(),
        "g10" => flood(),
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

pub(super) fn group(subject: Series, goal: GroupGoal) -> Goal {
    any(subject, Measure::Group(goal))
}

pub(super) fn goodput(group: Option<&'static str>, bound: Bound) -> GroupGoal {
    let (metric, against) = (GroupMetric::Goodput, Against::Nothing);
    GroupGoal { group, metric, against, bound, x_min: 0.0, limited: false }
}

/// What a preferred client gets beside others who are limited.
fn preferred(cases: &[&'static str]) -> Vec<Goal> {
    let against = Against::Other(("weir", "alone"));
    let goal = GroupGoal { against, ..goodput(Some("preferred"), Bound::AtLeast(0.95)) };
    cases.iter().map(|case| group(("weir", case), goal)).collect()
}

fn exact_limit(case: &'static str, whose: &'static str) -> Goal {
    let metric = GroupMetric::LimitError;
    group(
        ("weir", case),
        GroupGoal { metric, limited: true, ..goodput(Some(whose), Bound::AtMost(0.02)) },
    )
}

/// The top class beside the others, to the same clients alone.
fn top_p99(case: &'static str) -> Goal {
    let (metric, against) = (GroupMetric::P99, Against::Other(("weir", "alone")));
    let goal = goodput(Some("gold"), Bound::AtMost(1.5));
    group(("weir", case), GroupGoal { metric, against, ..goal })
}

fn classes() -> Vec<Goal> {
    // The original's shape: with twice as many clients of the top class as there are servers, only
    // they are served.
    let goal = goodput(Some("gold"), Bound::AtLeast(0.95));
    let only_top = GroupGoal { metric: GroupMetric::Share, x_min: 32.0, ..goal };
    vec![top_p99("classes"), group(("weir", "classes"), only_top)]
}

fn policed_classes() -> Vec<Goal> {
    // The original's last class got 1 % and 3 %. That the rate is exact is for G2 to show: clients
    // who pause for a second after a dropped SYN do not use up theirs.
    let goal = goodput(Some("bronze"), Bound::AtLeast(0.01));
    let last = GroupGoal { metric: GroupMetric::Share, limited: true, ..goal };
    vec![group(("weir", "classes, a share for bronze"), last)]
}

fn overload() -> Vec<Goal> {
    let of_peak = GroupGoal { against: Against::Peak, ..goodput(None, Bound::AtLeast(0.95)) };
    let at_most = GroupGoal { x_min: 10.0, ..of_peak };
    let p99 = GroupGoal {
        metric: GroupMetric::P99,
        against: Against::First,
        ..goodput(Some("preferred"), Bound::AtMost(1.5))
    };
    vec![
        group(("weir", "classes"), at_most),
        group(("weir", "no rules"), at_most),
        group(("weir", "classes"), p99),
    ]
}

fn path_rules() -> Vec<Goal> {
    let of = |subject, off| {
        [
            any(("weir", subject), Measure::ThroughputAtLeast(("weir", off), 0.99)),
            any(("weir", subject), Measure::CpuAtMost(("weir", off), 1.01)),
        ]
    };
    let pairs = [
        ("no match, 11", "off, 11"),
        ("match, 11", "off, 11"),
        ("no match, 80", "off, 80"),
        ("match, 80", "off, 80"),
        ("no match, 160", "off, 160"),
        ("match, 160", "off, 160"),
    ];
    pairs.into_iter().flat_map(|(subject, off)| of(subject, off)).collect()
}

fn decisions() -> Vec<Goal> {
    let of = |cases: &[&'static str], ns| -> Vec<Goal> {
        cases.iter().map(|case| any(("weir", case), Measure::TimeAtMost(ns))).collect()
    };
    let kernel = [
        "kernel: 1 rule, class",
        "kernel: 1 rule, bucket",
        "kernel: 1 rule, bucket, IPv6",
        "kernel: 3 rules by source, bucket",
        "kernel: 100,000 prefixes, bucket",
    ];
    let few = ["URL, 3 rules: no match", "URL, 3 rules: class", "URL, 3 rules: rate"];
    let many =
        ["URL, 10,000 rules: no match", "URL, 10,000 rules: class", "URL, 10,000 rules: rate"];
    [of(&kernel, 50.0), of(&few, 300.0), of(&many, 1e3)].concat()
}

fn flood() -> Vec<Goal> {
    let kernel = ("weir", "kernel");
    let goal = goodput(Some("preferred"), Bound::AtLeast(0.95));
    let kept = GroupGoal { against: Against::First, ..goal };
    let cheaper = |other| GroupGoal {
        metric: GroupMetric::CoreBusy,
        against: Against::Other(other),
        x_min: 5.0,
        ..goodput(Some("preferred"), Bound::AtMost(1.0))
    };
    let others =
        [("weir", "accept"), ("weir", "admit"), ("nginx", "limit_req"), ("haproxy", "stick table")];
    let cheaper = others.into_iter().map(|other| group(kernel, cheaper(other)));
    std::iter::once(group(kernel, kept)).chain(cheaper).collect()
}
