//! Each way that a decision can take, by test runs of loaded programs on crafted packets.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_config::{BucketKey, GuardRule, Rate};

use crate::compile::Hook;
use crate::packet::{Frame, SYN};
use crate::policy::Policy;
use crate::state::{FORGOTTEN, SPARE_ARRIVAL, halves};
use crate::sys::{LoadedProgram, ProgramKind};
use crate::testing::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn syn(from: &str, to: &str) -> Frame {
    Frame::syn(address(from), address(to))
}

fn v4(from: &str) -> Frame {
    Frame::syn(SocketAddr::new(from.parse().unwrap(), 40_000), address("10.0.0.1:80"))
}

fn bench(rules: Vec<GuardRule>) -> Option<Bench> {
    Bench::new(Policy::new(&guard(&["gold", "bulk"], rules), 2))
}

/// One rule that refuses what meets its conditions.
fn refusing(conditions: impl FnOnce(&mut GuardRule)) -> Option<Bench> {
    bench(vec![rule("no", |rule| {
        rule.refuse = true;
        conditions(rule);
    })])
}

#[test]
fn only_first_packets_are_judged() {
    let Some(bench) = refusing(|_| {}) else { return };
    for (flags, passes) in [
        (SYN, false),
        // Congestion notification is set up in SYNs (RFC 3168 §6.1.1).
        (SYN | 0xc0, false),
        (SYN | 0x08, false),
        (SYN | 0x10, true),
        (SYN | 0x04, true),
        (SYN | 0x01, true),
        (0x10, true),
        (0x04, true),
        (0, true),
    ] {
        let frame = Frame { flags, ..v4("10.0.0.2") };
        assert_eq!(bench.passes(&frame), passes, "flags {flags:#x}");
        let frame = Frame { flags, ..syn("[fd00::1]:1", "[fd00::2]:80") };
        assert_eq!(bench.passes(&frame), passes, "flags {flags:#x} of IPv6");
    }
    assert_eq!(bench.counts(0), (6, 6));
}

#[test]
fn packets_of_connections_meet_four_instructions() {
    let Some(bench) = refusing(|_| {}) else { return };
    let shown = bench.program(Hook::Socket { judged_on: 0 }).to_string();
    let begins = "0: r6 = r1\n1: r0 = *(u8 *)skb[13]\n2: r0 &= 23\n3: if r0 != 2 goto ";
    assert!(shown.starts_with(begins), "{shown}");
    let to: usize = shown[begins.len()..].split('\n').next().unwrap().parse().unwrap();
    let end = format!("\n{}: r0 = -1\n{}: exit\n", 4 + to, 5 + to);
    assert!(shown.contains(&end), "{shown}");
}

#[test]
fn options_change_nothing() {
    let ports = |rule: &mut GuardRule| rule.on.ports = vec![(80, 80)];
    let Some(bench) = refusing(ports) else { return };
    for (ip_options, tcp_options) in [(0, 40), (4, 0), (40, 40)] {
        let frame = Frame { ip_options, tcp_options, ..v4("10.0.0.2") };
        assert!(!bench.passes(&frame), "{ip_options} and {tcp_options} bytes of options");
        let other = Frame { to: address("10.0.0.1:81"), ..frame };
        assert!(bench.passes(&other));
    }
}

#[test]
fn what_is_cut_or_no_tcp_is_not_refused_by_a_rule() {
    let Some(bench) = refusing(|_| {}) else { return };
    let frame = v4("10.0.0.2").bytes();
    // A header without flags never comes so far in the kernel; here the load ends the program.
    let cut = bench.police.test(&frame[..14 + 20 + 12], 1).unwrap();
    assert_eq!((cut.result, bench.counts(0)), (0, (0, 0)));
    let mut udp = frame.clone();
    udp[14 + 9] = 17;
    assert_ne!(bench.police.test(&udp, 1).unwrap().result, 0);
    let mut other = frame;
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_ne!(bench.police.test(&other, 1).unwrap().result, 0);
    assert_eq!(bench.counts(0), (0, 0));
}

#[test]
fn each_condition_decides() {
    type Conditions = fn(&mut GuardRule);
    type Packets = &'static [(&'static str, &'static str, bool)];
    let cases: [(Conditions, Packets); 5] = [
        (
            |rule| {
                let ranges = [("10.1.0.0", "10.1.255.255"), ("fd01::", "fd01::ffff")];
                rule.on.from = set(&ranges);
            },
            &[
                ("10.0.255.255:1", "10.0.0.1:80", true),
                ("10.1.0.0:1", "10.0.0.1:80", false),
                ("10.1.255.255:1", "10.0.0.1:80", false),
                ("10.2.0.0:1", "10.0.0.1:80", true),
                ("[fd00:ffff::ffff]:1", "[fd00::1]:80", true),
                ("[fd01::]:1", "[fd00::1]:80", false),
                ("[fd01::ffff]:1", "[fd00::1]:80", false),
                ("[fd01::1:0]:1", "[fd00::1]:80", true),
                ("[::a01:0]:1", "[fd00::1]:80", true),
            ],
        ),
        (
            |rule| {
                let ranges = [("10.9.0.5", "10.9.0.6"), ("fd02::1:0:0:5", "fd02::2:0:0:3")];
                rule.on.to = set(&ranges);
            },
            &[
                ("10.0.0.1:1", "10.9.0.4:80", true),
                ("10.0.0.1:1", "10.9.0.5:80", false),
                ("10.0.0.1:1", "10.9.0.6:80", false),
                ("10.0.0.1:1", "10.9.0.7:80", true),
                ("[fd00::1]:1", "[fd02::1:0:0:4]:80", true),
                ("[fd00::1]:1", "[fd02::1:0:0:5]:80", false),
                ("[fd00::1]:1", "[fd02::2:0:0:3]:80", false),
                ("[fd00::1]:1", "[fd02::2:0:0:4]:80", true),
                ("[fd00::1]:1", "[fd01::1:0:0:5]:80", true),
                ("[fd00::1]:1", "[fd03::1:0:0:5]:80", true),
            ],
        ),
        (
            |rule| rule.on.to = set(&[("10.9.0.5", "10.9.0.6")]),
            // The rule can hold for no address of IPv6.
            &[("[fd00::1]:1", "[::ffff:0:1]:80", true), ("10.0.0.1:1", "10.9.0.5:80", false)],
        ),
        (
            |rule| rule.on.ports = vec![(80, 80), (8000, 8010)],
            &[
                ("10.0.0.1:80", "10.0.0.1:79", true),
                ("10.0.0.1:1", "10.0.0.1:80", false),
                ("10.0.0.1:1", "10.0.0.1:7999", true),
                ("10.0.0.1:1", "10.0.0.1:8000", false),
                ("[fd00::1]:1", "[fd00::1]:8010", false),
                ("[fd00::1]:1", "[fd00::1]:8011", true),
            ],
        ),
        (
            |rule| rule.on.from_ports = vec![(1, 1023), (65_535, 65_535)],
            &[
                ("10.0.0.1:0", "10.0.0.1:80", true),
                ("10.0.0.1:1", "10.0.0.1:80", false),
                ("10.0.0.1:1023", "10.0.0.1:80", false),
                ("10.0.0.1:1024", "10.0.0.1:80", true),
                ("10.0.0.1:65535", "10.0.0.1:80", false),
            ],
        ),
    ];
    for (conditions, packets) in cases {
        let Some(bench) = refusing(conditions) else { return };
        for (from, to, passes) in packets {
            assert_eq!(bench.passes(&syn(from, to)), *passes, "{from} to {to}");
        }
    }
}

#[test]
fn rules_are_looked_at_in_order() {
    let Some(bench) = bench(vec![
        rule("friends", |rule| {
            rule.on.from = set(&[("10.1.0.0", "10.1.255.255")]);
            rule.class = Some("gold".to_owned());
            rule.on.ports = vec![(443, 443)];
            rule.pass = true;
        }),
        rule("net", |rule| {
            rule.on.from = set(&[("10.0.0.0", "10.255.255.255")]);
            rule.class = Some("bulk".to_owned());
        }),
        rule("late", |rule| {
            rule.on.from = set(&[("10.1.0.0", "10.1.255.255")]);
            rule.class = Some("gold".to_owned());
        }),
        rule("no", |rule| {
            rule.on.from = set(&[("10.1.0.0", "10.1.0.255")]);
            rule.refuse = true;
        }),
    ]) else {
        return;
    };
    for (from, to, class, passes) in [
        ("10.1.0.1:1", "10.0.0.1:443", 0, true),
        ("10.1.0.1:1", "10.0.0.1:80", 1, false),
        ("10.1.1.1:1", "10.0.0.1:80", 1, true),
        ("10.2.0.1:1", "10.0.0.1:443", 1, true),
        ("192.0.2.1:1", "10.0.0.1:443", 2, true),
        ("[fd00::1]:1", "[fd00::2]:443", 2, true),
    ] {
        let frame = syn(from, to);
        assert_eq!((bench.class(&frame), bench.passes(&frame)), (class, passes), "{from} to {to}");
    }
    let of_class = |class| bench.state.of_class(class).load(Ordering::Relaxed);
    assert_eq!([0, 1, 2].map(of_class), [1, 2, 2]);
    assert_eq!([0, 1, 2, 3].map(|rule| bench.counts(rule)), [(1, 0), (3, 0), (2, 0), (1, 1)]);
}

#[test]
fn buckets_are_exhausted_and_refilled() {
    let Some(bench) = bench(vec![rule("slow", |rule| rule.rate = per_hour(10, 3))]) else { return };
    let frame = v4("10.0.0.2");
    let passed = |times: usize| (0..times).filter(|_| bench.passes(&frame)).count();
    assert_eq!(passed(10), 3);
    assert_eq!(bench.counts(0), (10, 7));
    // As if six minutes had passed: room for one.
    let interval = 360_000_000_000;
    bench.arrival(0).fetch_sub(interval, Ordering::Relaxed);
    assert_eq!(passed(5), 1);
    // As if it had not been asked since the machine started: not more than the burst.
    bench.arrival(0).store(1, Ordering::Relaxed);
    assert_eq!(passed(5), 3);
    bench.arrival(0).store(0, Ordering::Relaxed);
    assert_eq!(passed(5), 3);
}

#[test]
fn a_bucket_of_another_time_is_shut_no_longer_than_a_full_one() {
    let Some(bench) = bench(vec![rule("slow", |rule| rule.rate = per_hour(10, 3))]) else { return };
    let frame = v4("10.0.0.2");
    assert!(bench.passes(&frame));
    let now = bench.arrival(0).load(Ordering::Relaxed) - 360_000_000_000;
    for far in [now + (1 << 50), 1 << 62, u64::MAX >> 1, u64::MAX] {
        bench.arrival(0).store(far, Ordering::Relaxed);
        assert!(!bench.passes(&frame));
        let ahead = bench.arrival(0).load(Ordering::Relaxed) - now;
        let full = 3 * 360_000_000_000;
        assert!((full..full + 60_000_000_000).contains(&ahead), "{far}: {ahead} ns ahead");
    }
}

#[test]
fn extreme_rates_hold() {
    let year = Duration::from_secs(3600);
    for (count, period, burst, expected) in [
        (1, year, u32::MAX, 100),
        (1, year, 1, 1),
        (u32::MAX, Duration::from_secs(1), 1, 100),
        (u32::MAX, Duration::from_secs(1), u32::MAX, 100),
    ] {
        let rate = Some(Rate { count, period, burst });
        let Some(bench) = bench(vec![rule("odd", |rule| rule.rate = rate)]) else { return };
        let passed = (0..100).filter(|_| bench.passes(&v4("10.0.0.2"))).count();
        assert_eq!(passed, expected, "{rate:?}");
    }
}

#[test]
fn keyed_buckets_are_apart() {
    let Some(bench) = bench(vec![
        rule("each", |rule| {
            rule.rate = per_hour(10, 2);
            rule.by = BucketKey::Source;
        }),
        rule("net", |rule| {
            rule.rate = per_hour(10, 5);
            rule.by = BucketKey::Prefix { v4: 24, v6: 56 };
        }),
    ]) else {
        return;
    };
    let passed = |from: &str| (0..4).filter(|_| bench.passes(&syn(from, "10.0.0.1:80"))).count();
    // Two of each address, five of each /24.
    assert_eq!(["10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"].map(passed), [2, 2, 1]);
    assert_eq!(["10.0.1.2:1", "10.0.0.5:1"].map(passed), [2, 0]);
    let passed = |from: &str| (0..4).filter(|_| bench.passes(&syn(from, "[fd00::1]:80"))).count();
    let sources = ["[fd00::1]:1", "[fd00:0:0:ff::1]:1", "[fd00::2]:1", "[fd00:0:0:100::1]:1"];
    assert_eq!(sources.map(passed), [2, 2, 1, 2]);
}

/// One that comes too often for itself does not take what all share.
#[test]
fn what_is_dropped_has_taken_nothing_of_shared_buckets() {
    let all = |name: &str, burst| rule(name, |rule| rule.rate = per_hour(10, burst));
    let ports = |rule: &mut GuardRule| rule.on.ports = vec![(81, 81)];
    let each = rule("each", |rule| (rule.rate, rule.by) = (per_hour(10, 2), BucketKey::Source));
    let mut other = all("other", 1);
    ports(&mut other);
    let mut calm = all("calm", 1);
    calm.always = false;
    let Some(bench) = bench(vec![all("all", 8), other, calm, each, all("last", 7)]) else { return };
    let passed = |from: &str, times: usize| (0..times).filter(|_| bench.passes(&v4(from))).count();
    assert_eq!(passed("10.0.0.2", 100), 2);
    assert_eq!(["10.0.0.3", "10.0.0.4", "10.0.0.5"].map(|from| passed(from, 2)), [2, 2, 1]);
    // The last one has no more, and drops what the first still has room for.
    assert_eq!(passed("10.0.0.6", 9), 0);
    let left = |rule: usize| bench.state.tokens_left(bench.slots[rule], None);
    assert_eq!([0, 1, 4].map(left), [1, 1, 0]);
}

#[test]
fn a_table_that_is_full_forgets_the_idlest() {
    let keyed = |rule: &mut GuardRule| {
        rule.rate = per_hour(10, 2);
        rule.by = BucketKey::Source;
    };
    let Some(bench) = bench(vec![rule("each", keyed)]) else { return };
    let heavy = v4("192.0.2.1");
    assert_eq!([(); 3].map(|()| bench.passes(&heavy)), [true, true, false]);
    // Ten times as many sources as there is room for, with one connection each.
    for number in 0..10_240_u32 {
        let from = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
        assert!(bench.passes(&Frame::syn((from, 1).into(), address("10.0.0.1:80"))));
    }
    assert!(bench.state.word(FORGOTTEN).load(Ordering::Relaxed) > 5000);
    // The one that was refused is farthest ahead, and remembered.
    assert!(!bench.passes(&heavy));
}

#[test]
fn limits_wait_for_overload() {
    let Some(bench) = bench(vec![
        rule("shed", |rule| {
            rule.on.from = set(&[("10.0.0.2", "10.0.0.2")]);
            (rule.refuse, rule.always) = (true, false);
        }),
        rule("slow", |rule| (rule.rate, rule.always) = (per_hour(1, 1), false)),
    ]) else {
        return;
    };
    let (shed, slow) = (v4("10.0.0.2"), v4("10.0.0.3"));
    assert!(bench.passes(&shed) && bench.passes(&slow) && bench.passes(&slow));
    bench.set_overload(true);
    assert!(!bench.passes(&shed) && bench.passes(&slow) && !bench.passes(&slow));
    bench.set_overload(false);
    assert!(bench.passes(&shed) && bench.passes(&slow));
    assert_eq!([0, 1].map(|rule| bench.counts(rule)), [(3, 1), (7, 1)]);
    // What would have been dropped of those that came without overload: of five, one had a token.
    assert_eq!([0, 1].map(|rule| bench.spared(rule)), [2, 4]);
    // As if an hour had passed.
    let hour = bench.state.jiffies().unwrap().of_ns(3_600_000_000_000);
    let line = bench.slots[1];
    bench.state.of_rule(line, SPARE_ARRIVAL).fetch_sub(hour, Ordering::Relaxed);
    assert!(bench.passes(&slow) && bench.passes(&slow));
    assert_eq!(bench.spared(1), 5);
    // One of another rate is full at the latest after what that takes.
    bench.state.of_rule(line, SPARE_ARRIVAL).store(u64::MAX >> 1, Ordering::Relaxed);
    assert!(bench.passes(&slow));
    bench.state.of_rule(line, SPARE_ARRIVAL).fetch_sub(hour + hour / 100, Ordering::Relaxed);
    assert!(bench.passes(&slow));
    assert_eq!(bench.spared(1), 6);
}

#[test]
fn addresses_are_one_number_for_both_sides() {
    let mapped = halves("::ffff:10.0.0.1".parse().unwrap());
    assert_eq!(halves("10.0.0.1".parse().unwrap()), mapped);
    assert_ne!(halves("::10.0.0.1".parse().unwrap()), mapped);
}

#[test]
fn exempt_sources_are_left_alone() {
    let gold = rule("gold", |rule| (rule.class, rule.refuse) = (Some("gold".to_owned()), true));
    let policy = Policy::new(&guard(&["gold"], vec![gold]), 1);
    let Some(bench) = Bench::new(policy.exempt(set(&[("10.0.0.0", "10.0.0.255")]))) else { return };
    let (proxy, other) = (v4("10.0.0.7"), v4("10.0.1.7"));
    assert_eq!((bench.passes(&proxy), bench.class(&proxy)), (true, 1));
    assert_eq!((bench.passes(&other), bench.class(&other)), (false, 0));
    assert_eq!(bench.counts(0), (1, 1));
}

/// 100,000 ranges of a family, each of three addresses with gaps of odd sizes.
fn many(family_v6: bool, ranges: u128) -> Vec<(std::net::IpAddr, std::net::IpAddr)> {
    let address = |bits: u128| match family_v6 {
        false => std::net::IpAddr::V4((bits as u32).into()),
        true => std::net::IpAddr::V6(bits.into()),
    };
    let first = |number: u128| match family_v6 {
        false => 0x0100_0000 + number * 40_961 % 0xdead_0000,
        // Most differ in their upper halves, every tenth in its lower half only.
        true if !number.is_multiple_of(10) => (0x2001_0000_0000 + number * 77_777) << 80,
        true => (0x2a00 << 112) + number * 101,
    };
    (0..ranges).map(|number| (address(first(number)), address(first(number) + 2))).collect()
}

#[test]
fn a_hundred_thousand_ranges_hold() {
    for is_v6 in [false, true] {
        let ranges = many(is_v6, 100_000);
        let from = weir_config::AddressSet::new(ranges.clone());
        let Some(bench) = refusing(|rule| rule.on.from = from.clone()) else { return };
        let from = from.unwrap();
        let to = if is_v6 { address("[fd00::1]:80") } else { address("10.0.0.1:80") };
        let beside = |ip: std::net::IpAddr, by: i64| match ip {
            std::net::IpAddr::V4(v4) => {
                std::net::IpAddr::V4(v4.to_bits().wrapping_add_signed(by as i32).into())
            }
            std::net::IpAddr::V6(v6) => {
                std::net::IpAddr::V6(v6.to_bits().wrapping_add_signed(by.into()).into())
            }
        };
        let edges = ranges.iter().step_by(17).chain([&ranges[0], &ranges[99_999]]);
        for (first, last) in edges {
            for source in [beside(*first, -1), *first, *last, beside(*last, 1)] {
                let frame = Frame::syn(SocketAddr::new(source, 1), to);
                assert_eq!(bench.passes(&frame), !from.contains(source), "{source}");
            }
        }
        for source in ["0.0.0.0", "255.255.255.255", "::", "ffff::", "ffff:ffff::1"] {
            let source: std::net::IpAddr = source.parse().unwrap();
            if source.is_ipv6() == is_v6 {
                let frame = Frame::syn(SocketAddr::new(source, 1), to);
                assert_eq!(bench.passes(&frame), !from.contains(source), "{source}");
            }
        }
    }
}

#[test]
fn the_same_is_decided_on_interfaces() {
    let policy = Policy::new(
        &guard(
            &[],
            vec![rule("no", |rule| {
                rule.on.from = set(&[("10.0.0.2", "10.0.0.2"), ("fd00::2", "fd00::2")]);
                rule.refuse = true;
            })],
        ),
        1,
    );
    let Some(bench) = Bench::new(policy.listening_on(vec![443, 80])) else { return };
    let xdp = LoadedProgram::load(ProgramKind::Xdp, &bench.program(Hook::Xdp)).unwrap();
    let tcx = LoadedProgram::load(ProgramKind::Tcx, &bench.program(Hook::Tcx)).unwrap();
    let check = |what: &str, bytes: &[u8], passes: bool| {
        let verdict = |yes: u32, no: u32| if passes { yes } else { no };
        assert_eq!(xdp.test(bytes, 1).unwrap().result, verdict(2, 1), "XDP: {what}");
        assert_eq!(tcx.test(bytes, 1).unwrap().result, verdict(u32::MAX, 2), "tcx: {what}");
    };
    let refused = v4("10.0.0.2");
    check("a SYN", &refused.bytes(), false);
    check("another's SYN", &v4("10.0.0.3").bytes(), true);
    check("options", &Frame { ip_options: 40, tcp_options: 40, ..refused.clone() }.bytes(), false);
    check("no SYN", &Frame { flags: 0x10, ..refused.clone() }.bytes(), true);
    check("443", &Frame { to: address("10.0.0.1:443"), ..refused.clone() }.bytes(), false);
    check("not ours", &Frame { to: address("10.0.0.1:81"), ..refused.clone() }.bytes(), true);
    for tags in [1, 2] {
        check("tags", &Frame { tags, ..refused.clone() }.bytes(), false);
    }
    check("too many tags", &Frame { tags: 3, ..refused.clone() }.bytes(), true);
    let v6 = syn("[fd00::2]:1", "[fd00::1]:80");
    check("IPv6", &v6.bytes(), false);
    check("another's IPv6", &syn("[fd00::3]:1", "[fd00::1]:80").bytes(), true);
    let mut later = refused.bytes();
    (later[14 + 6], later[14 + 7]) = (0x00, 0x10);
    check("a later fragment", &later, true);
    let mut first = refused.bytes();
    first[14 + 6] = 0x20;
    check("a first fragment", &first, false);
    check("a first fragment without flags", &first[..14 + 20 + 8], false);
    // The test runs of tcx take no frames that are as short.
    assert_eq!(xdp.test(&first[..14 + 12], 1).unwrap().result, 2);
    let mut fragment = v6.bytes();
    fragment[14 + 6] = 44;
    fragment.splice(54..54, [6, 0, 0, 1, 0, 0, 0, 0]);
    check("a first fragment of IPv6", &fragment, false);
    fragment[54 + 3] = 9;
    check("a later fragment of IPv6", &fragment, true);
    let mut arp = refused.bytes();
    arp[13] = 6;
    check("ARP", &arp, true);
}

#[test]
fn a_refusal_by_the_verifier_is_reported() {
    let mut asm = crate::asm::Assembler::new();
    asm.load(crate::asm::Size::Double, crate::asm::Reg::R0, crate::asm::Reg::R5, 0);
    asm.exit();
    let program = asm.finish(10).unwrap();
    match LoadedProgram::load(ProgramKind::SocketFilter, &program) {
        Err(crate::KernelError::NotPermitted { .. }) => println!("skipped: not permitted"),
        Err(e) => {
            let text = e.to_string();
            assert!(text.contains("policing program") && text.contains("R5 !read_ok"), "{text}");
        }
        Ok(_) => panic!("an unset register was read"),
    }
}
