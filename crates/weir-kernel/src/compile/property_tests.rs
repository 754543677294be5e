//! Programs against a model of what rules mean, on random rules and packets.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_config::{AddressSet, BucketKey, GuardRule};

use crate::packet::Frame;
use crate::policy::Policy;
use crate::testing::*;

/// Addresses that are near each other, so that ranges meet them; of IPv6 some differ in their upper
/// and some in their lower halves.
fn address(number: u8, family: u8) -> IpAddr {
    let number = u128::from(number);
    match family % 3 {
        0 => Ipv4Addr::from_bits(0x0a00_0000 + number as u32).into(),
        1 => Ipv6Addr::from_bits((0xfd00 << 112) + number).into(),
        _ => Ipv6Addr::from_bits((0xfd00 << 112) + (number << 64)).into(),
    }
}

fn addresses(most: usize) -> impl Strategy<Value = AddressSet> {
    let range = (any::<u8>(), 0..8_u8, 0..3_u8).prop_map(|(first, more, family)| {
        (address(first, family), address(first.saturating_add(more), family))
    });
    vec(range, 1..=most).prop_map(|ranges| AddressSet::new(ranges).unwrap())
}

fn port_ranges() -> impl Strategy<Value = Vec<(u16, u16)>> {
    vec((0..6_u16, 0..3_u16).prop_map(|(first, more)| (first, first + more)), 0..3)
}

fn rules() -> impl Strategy<Value = Vec<GuardRule>> {
    let conditions = (
        // So many that they need a table now and then.
        option::weighted(0.7, prop_oneof![3 => addresses(4), 1 => addresses(120)]),
        option::weighted(0.3, addresses(20)),
        port_ranges(),
        port_ranges(),
    );
    let class = option::weighted(0.4, prop_oneof![Just("gold"), Just("bulk")]);
    let by = prop_oneof![
        Just(BucketKey::Rule),
        Just(BucketKey::Source),
        (29..=32_u8, 0..=128_u8).prop_map(|(v4, v6)| BucketKey::Prefix { v4, v6 }),
    ];
    let limit = (option::weighted(0.5, 1..4_u32), by, prop::bool::weighted(0.1));
    let flags = (prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.2));
    vec((conditions, class, limit, flags), 0..6).prop_map(|rules| {
        let make =
            |(number, (conditions, class, limit, flags)): (usize, (_, Option<&str>, _, _))| {
                rule(&format!("r{number}"), |rule| {
                    let (from, to, ports, from_ports) = conditions;
                    (rule.on.from, rule.on.to) = (from, to);
                    (rule.on.ports, rule.on.from_ports) = (ports, from_ports);
                    rule.class = class.map(str::to_owned);
                    let (burst, by, refuse): (Option<u32>, _, _) = limit;
                    rule.rate = burst.and_then(|burst| per_hour(1, burst));
                    (rule.by, rule.refuse) = (by, refuse);
                    (rule.pass, rule.always, rule.dry_run) = flags;
                })
            };
        rules.into_iter().enumerate().map(make).collect()
    })
}

/// A packet: both addresses, both ports, whether there is overload.
fn packets() -> impl Strategy<Value = Vec<(SocketAddr, SocketAddr, bool)>> {
    let packet = (any::<[u8; 3]>(), 0..8_u16, 0..8_u16, any::<bool>());
    let packet = packet.prop_map(|([from, to, family], from_port, to_port, overload)| {
        // The lower half of a destination is looked at beside a source's upper half.
        let other = if family % 3 == 0 { 0 } else { 1 + to % 2 };
        let from = SocketAddr::new(address(from, family), from_port);
        (from, SocketAddr::new(address(to, other), to_port), overload)
    });
    vec(packet, 1..60)
}

/// What rules mean, told as simply as can be. No bucket fills again within a test.
#[derive(Default)]
struct Model {
    used: HashMap<(usize, u128), u32>,
    /// Of the rule as a whole, while nothing is refused.
    spare_used: HashMap<usize, u32>,
    /// Meant, refused or what would be if the rule were not only tried, spared.
    counts: Vec<(u64, u64, u64)>,
}

impl Model {
    /// Whether a connection passes, and its class.
    fn judge(
        &mut self,
        rules: &[GuardRule],
        from: SocketAddr,
        to: SocketAddr,
        overload: bool,
    ) -> (bool, Option<String>) {
        self.counts.resize(rules.len(), (0, 0, 0));
        let (mut class, mut passes) = (None, true);
        let mut shared = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let within = |ranges: &[(u16, u16)], port: u16| {
                ranges.is_empty() || ranges.iter().any(|(a, b)| (*a..=*b).contains(&port))
            };
            let matches = rule.on.from.as_ref().is_none_or(|set| set.contains(from.ip()))
                && rule.on.to.as_ref().is_none_or(|set| set.contains(to.ip()))
                && within(&rule.on.ports, to.port())
                && within(&rule.on.from_ports, from.port());
            if !matches {
                continue;
            }
            if class.is_none() {
                class.clone_from(&rule.class);
            }
            if passes {
                self.counts[index].0 += 1;
                if (rule.always || overload) && !self.has_room(index, rule, from.ip()) {
                    self.counts[index].1 += 1;
                    passes = rule.dry_run;
                    for payer in shared.extract_if(.., |_| !rule.dry_run) {
                        self.used.entry((payer, 0)).and_modify(|used| *used -= 1);
                    }
                } else if !rule.always && !overload {
                    self.counts[index].2 += u64::from(self.would_refuse(index, rule));
                } else if rule.by == BucketKey::Rule && rule.rate.is_some() {
                    shared.push(index);
                }
            }
            if rule.pass {
                break;
            }
        }
        (passes, class)
    }

    /// Only what needs no look-up of the source is counted.
    fn would_refuse(&mut self, index: usize, rule: &GuardRule) -> bool {
        match rule.rate {
            _ if rule.refuse => true,
            Some(rate) if rule.by == BucketKey::Rule => {
                let used = self.spare_used.entry(index).or_default();
                *used += 1;
                *used > rate.burst
            }
            _ => false,
        }
    }

    fn has_room(&mut self, index: usize, rule: &GuardRule, from: IpAddr) -> bool {
        if rule.refuse {
            return false;
        }
        let Some(rate) = rule.rate else { return true };
        let cut = |bits: u128, width: u32, keep: u8| {
            bits & u128::MAX.checked_shl(width - u32::from(keep)).unwrap_or(0)
        };
        let key = match (&rule.by, from) {
            (BucketKey::Prefix { v4, .. }, IpAddr::V4(from)) => {
                cut(from.to_bits().into(), 32, *v4) + (1 << 40)
            }
            (BucketKey::Prefix { v6, .. }, IpAddr::V6(from)) => cut(from.to_bits(), 128, *v6),
            (BucketKey::Source, IpAddr::V4(from)) => u128::from(from.to_bits()) + (1 << 40),
            (BucketKey::Source, IpAddr::V6(from)) => from.to_bits(),
            _ => 0,
        };
        let used = self.used.entry((index, key)).or_default();
        let has_room = *used < rate.burst;
        *used += u32::from(has_room);
        has_room
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn programs_decide_as_the_model_does(rules in rules(), packets in packets()) {
        let guard = guard(&["gold", "bulk"], rules);
        let Some(bench) = Bench::new(Policy::new(&guard, 2)) else { return Ok(()) };
        let mut model = Model::default();
        for (from, to, overload) in packets {
            bench.set_overload(overload);
            let frame = Frame::syn(from, to);
            let (passes, class) = model.judge(&guard.rules, from, to, overload);
            let class = class.as_deref().unwrap_or("default");
            let class = guard.classes.iter().position(|known| known.name == class);
            prop_assert_eq!(bench.passes(&frame), passes, "{} to {}", from, to);
            prop_assert_eq!(Some(bench.class(&frame)), class, "{} to {}", from, to);
        }
        let counts = |rule| {
            let (offered, dropped) = bench.counts(rule);
            (offered, dropped, bench.spared(rule))
        };
        let counts: Vec<_> = (0..guard.rules.len()).map(counts).collect();
        prop_assert_eq!(counts, model.counts);
    }
}
