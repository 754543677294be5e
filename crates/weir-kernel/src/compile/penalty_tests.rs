//! Sources that are policed for a while, by what a rule calls a source.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use crate::packet::Frame;
use crate::policy::Policy;
use crate::state::PENALISED;
use crate::testing::*;

fn syn(from: &str, to: &str) -> Frame {
    Frame::syn(from.parse().unwrap(), to.parse().unwrap())
}

#[test]
fn sources_are_policed_for_their_time() {
    let exempt = set(&[("10.0.0.9", "10.0.0.9")]);
    let all = rule("all", |rule| rule.penalty = penalty(32, 64));
    let by = all.penalty.unwrap().by;
    let policy = Policy::new(&guard(&[], vec![all]), 1).exempt(exempt);
    let Some(bench) = Bench::new(policy) else { return };
    let sources = ["10.0.0.2", "fd00::2", "10.0.0.9"].map(|text| text.parse().unwrap());
    let frame = |source| {
        Frame::syn(
            SocketAddr::new(source, 1),
            match source {
                std::net::IpAddr::V4(_) => "10.0.0.1:80".parse().unwrap(),
                std::net::IpAddr::V6(_) => "[fd00::1]:80".parse().unwrap(),
            },
        )
    };
    let passes = || sources.map(|source| bench.passes(&frame(source)));
    assert_eq!(passes(), [true; 3]);
    let until = |ns: u64| sources.iter().for_each(|source| bench.state.penalise(*source, by, ns));
    until(1);
    assert_eq!(passes(), [true; 3]);
    until(u64::MAX >> 1);
    assert_eq!(passes(), [false, false, true]);
    assert!(bench.passes(&syn("10.0.0.3:1", "10.0.0.1:80")));
    assert_eq!(bench.state.word(PENALISED).load(Ordering::Relaxed), 2);
    // A source that is known keeps the later of two times.
    until(1);
    assert_eq!(passes(), [false, false, true]);
}

/// Whom a rule lets pass by its address is not dropped for what its neighbours do, unless the rule
/// with the penalty comes first.
#[test]
fn whoever_passes_is_spared() {
    let office = rule("office", |rule| {
        rule.on.from = set(&[("10.0.0.7", "10.0.0.8"), ("fd00::7", "fd00::7")]);
        rule.pass = true;
    });
    let on_port = rule("port", |rule| {
        (rule.on.from, rule.on.ports) = (set(&[("10.0.0.9", "10.0.0.9")]), vec![(80, 80)]);
        rule.pass = true;
    });
    let each = rule("each", |rule| rule.penalty = penalty(24, 64));
    let by = each.penalty.unwrap().by;
    for (rules, is_spared) in
        [([office.clone(), on_port.clone(), each.clone()], true), ([each, office, on_port], false)]
    {
        let Some(bench) = Bench::new(Policy::new(&guard(&[], rules.to_vec()), 1)) else { return };
        for offender in ["10.0.0.7", "fd00::7"] {
            bench.state.penalise(offender.parse().unwrap(), by, u64::MAX >> 1);
        }
        for (from, to, passes) in [
            ("10.0.0.6:1", "10.0.0.1:80", false),
            ("10.0.0.7:1", "10.0.0.1:80", is_spared),
            ("10.0.0.8:1", "10.0.0.1:80", is_spared),
            ("10.0.0.9:1", "10.0.0.1:80", false),
            ("[fd00::6]:1", "[fd00::1]:80", false),
            ("[fd00::7]:1", "[fd00::1]:80", is_spared),
        ] {
            assert_eq!(bench.passes(&syn(from, to)), passes, "{from}, spared: {is_spared}");
        }
    }
}

#[test]
fn penalties_hold_for_prefixes() {
    let few = [("a", 32, 64), ("b", 24, 64), ("c", 32, 48), ("d", 32, 64)];
    let rules = few.map(|(name, v4, v6)| rule(name, |rule| rule.penalty = penalty(v4, v6)));
    let policy = Policy::new(&guard(&[], rules.to_vec()), 1);
    let Some(bench) = Bench::new(policy) else { return };
    let to = |from: &str| if from.starts_with('[') { "[fd00::1]:80" } else { "10.0.0.1:80" };
    let check = |source: &str, rule: usize, expected: &[(&str, bool)]| {
        let by = rules[rule].penalty.unwrap().by;
        bench.state.penalise(source.parse().unwrap(), by, u64::MAX >> 1);
        for (from, passes) in expected {
            assert_eq!(bench.passes(&syn(from, to(from))), *passes, "{from} after {source}");
        }
    };
    check("10.1.0.7", 0, &[("10.1.0.7:1", false), ("10.1.0.8:1", true), ("10.1.0.0:1", true)]);
    let around = [("10.1.0.0:1", false), ("10.1.0.255:1", false), ("10.1.1.0:1", true)];
    check("10.1.0.9", 1, &around);
    let in_64 =
        [("[fd01::1]:1", false), ("[fd01::ffff:0:0:1]:1", false), ("[fd01:0:0:1::]:1", true)];
    check("fd01::1", 0, &in_64);
    let in_48 = [("[fd01:0:0:1::]:1", false), ("[fd01:0:1::]:1", true), ("[fd00::7]:1", true)];
    check("fd01::1", 2, &in_48);
    // A prefix of zeros is none of another length.
    check("0.0.0.0", 1, &[("10.2.0.1:1", true), ("0.0.0.5:1", false), ("[::1]:1", true)]);
}
