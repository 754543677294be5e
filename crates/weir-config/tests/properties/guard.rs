//! Any `guard` block that a file could make, but for rules that name lists: their contents are not
//! in a file's text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use weir_config::*;

use super::{field_value, file, host, path, time};

/// Rules name sites by numbers, which are made names by [`name_sites`].
pub(crate) fn guard() -> impl Strategy<Value = Guard> {
    let settings = (1_usize..=10_000_000, time(1, 9), time(10, 10_000), option::of(interface()));
    let names = btree_set("[a-z0-9][a-zA-Z0-9._-]{0,10}", 0..5);
    let files = vec(file(), 5);
    let guard = (settings, any::<bool>(), classes(), names, files, vec(rule(), 5)).prop_map(
        |((keys, target, interval, interface), off, classes, names, files, rules)| {
            let kernel = if off && interface.is_none() { KernelUse::Off } else { KernelUse::Auto };
            let names: Vec<String> = names.into_iter().collect();
            let lists = names.iter().cloned().zip(files).map(|(name, path)| AddressList {
                name,
                path,
                addresses: AddressSet::default(),
            });
            let lists = lists.collect();
            let rules = names.iter().zip(rules).map(|(name, (class, rule))| GuardRule {
                name: name.clone(),
                class: class.map(|class: prop::sample::Index| class.get(&classes).name.clone()),
                ..rule
            });
            let rules = reachable(rules.collect());
            Guard { classes, lists, rules, keys, target, interval, kernel, interface }
        },
    );
    prop_oneof![1 => Just(Guard::default()), 4 => guard]
}

/// Gives the rules' sites names.
pub(crate) fn name_sites(guard: &mut Guard, sites: &[Site]) {
    for rule in &mut guard.rules {
        for site in &mut rule.on.sites {
            let number: usize = site.parse().unwrap();
            *site = sites[number % sites.len()].names[0].clone();
        }
        rule.on.sites.sort();
        rule.on.sites.dedup();
    }
}

/// No rule after one that lets everything pass, and none that does nothing.
fn reachable(mut rules: Vec<GuardRule>) -> Vec<GuardRule> {
    for rule in &mut rules {
        let limits = rule.rate.is_some() || rule.concurrency.is_some() || rule.refuse;
        rule.pass |= !limits && rule.class.is_none();
        if rule.refuse && rule.always && !rule.dry_run {
            rule.class = None;
        }
    }
    let is_last = |rule: &GuardRule| rule.pass && rule.on == Match::default();
    let end = rules.iter().position(is_last).map_or(rules.len(), |position| position + 1);
    rules.truncate(end);
    rules
}

fn interface() -> impl Strategy<Value = Interface> {
    let hook = prop::sample::select(vec![InterfaceHook::Xdp, InterfaceHook::Tcx]);
    ("[a-z][a-z0-9.@\"\\\\-]{0,14}", hook).prop_map(|(name, hook)| Interface { name, hook })
}

fn classes() -> impl Strategy<Value = Vec<Class>> {
    let class =
        ("[a-zA-Z0-9][a-zA-Z0-9._-]{0,10}", 0_usize..=1_000_000, time(1, 600_000), 0_u8..=6);
    let priorities = prop::sample::subsequence((1..=16_u8).collect::<Vec<_>>(), 1..=8);
    (priorities, vec(class, 8), any::<prop::sample::Index>()).prop_map(
        |(priorities, classes, default)| {
            let default = default.index(priorities.len());
            let classes = priorities.into_iter().zip(classes).enumerate();
            let class = |(number, (priority, (name, queue, wait, share)))| {
                let name = match number == default {
                    true => DEFAULT_CLASS.to_owned(),
                    false => format!("{name}{number}"),
                };
                Class { name, priority, queue, wait, share }
            };
            classes.map(class).collect()
        },
    )
}

/// A rule without a name, and the class it gives.
fn rule() -> impl Strategy<Value = (Option<prop::sample::Index>, GuardRule)> {
    let class = option::of(any::<prop::sample::Index>());
    let limits = (option::of(rate()), option::of(1_u32..=10_000_000), bucket_key());
    let switches = (any::<[bool; 4]>(), any::<bool>());
    let answer = prop::sample::select(vec![
        None,
        Some(RefusalAnswer::Status(429)),
        Some(RefusalAnswer::Status(503)),
        Some(RefusalAnswer::Reset),
    ]);
    let on = prop_oneof![1 => Just(Match::default()), 6 => matches()];
    (class, on, limits, switches, answer, option::of(penalty())).prop_map(
        |(class, on, (rate, concurrency, by), switches, answer, penalty)| {
            let ([refuse, pass, always, requests], limits) = switches;
            // Any of the others says as well whether it is only tried.
            let dry_run = pass != requests;
            let counts = limits && (rate.is_some() || concurrency.is_some());
            let refuse = refuse && !counts;
            let acts = counts || refuse;
            let mut rule = GuardRule {
                name: String::new(),
                on,
                class: None,
                rate: rate.filter(|_| counts),
                concurrency: concurrency.filter(|_| counts),
                by: if counts { by } else { BucketKey::Rule },
                unit: if requests { RateUnit::Requests } else { RateUnit::Auto },
                refuse,
                pass: pass && !refuse,
                always: always && acts,
                dry_run: dry_run && acts,
                answer: RefusalAnswer::Status(503),
                penalty: None,
            };
            if rule.by != BucketKey::Rule {
                rule.answer = RefusalAnswer::Status(429);
            }
            if let (Some(answer), true, false) = (answer, acts, rule.is_of_connections()) {
                rule.answer = answer;
            }
            rule.penalty = penalty.filter(|_| acts && !rule.is_of_connections());
            (class, rule)
        },
    )
}

fn rate() -> impl Strategy<Value = Rate> {
    let period = prop::sample::select(vec![1, 60, 3600]).prop_map(Duration::from_secs);
    (1_u32..=10_000_000, period, 1_u32..=10_000_000).prop_map(|(count, period, burst)| Rate {
        count,
        period,
        burst,
    })
}

fn bucket_key() -> impl Strategy<Value = BucketKey> {
    prop_oneof![
        Just(BucketKey::Rule),
        Just(BucketKey::Source),
        (1_u8..=32, 1_u8..=128).prop_map(|(v4, v6)| BucketKey::Prefix { v4, v6 }),
        "[a-z0-9!#$%&'*+.^_`|~-]{1,8}".prop_map(BucketKey::Header),
        "[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,8}".prop_map(BucketKey::Cookie),
    ]
}

fn penalty() -> impl Strategy<Value = Penalty> {
    let day = 86_400_000;
    let by = (1_u8..=32, 1_u8..=128).prop_map(|(v4, v6)| PrefixLengths { v4, v6 });
    (1_u32..=10_000_000, time(100, day), time(1_000, day), by)
        .prop_map(|(after, within, lasts, by)| Penalty { after, within, lasts, by })
}

fn matches() -> impl Strategy<Value = Match> {
    let addresses = || option::of(addresses());
    let connections = (addresses(), ports(), addresses(), ports());
    let name = (prop::sample::select(vec!["", "*."]), host())
        .prop_map(|(before, host)| format!("{before}{host}"));
    let media = "[a-z]{1,5}/([a-z.+-]{1,6}|\\*)";
    let requests = (
        few("[0-9]"),
        few_paths(),
        few("[A-Z!#-]{1,6}"),
        [fields(true), fields(false), fields(false)],
        (few(name), few(media), few("[ -~é😀]{1,9}")),
    );
    (connections, requests).prop_map(|((from, from_ports, to, ports), requests)| {
        let (sites, paths, methods, [headers, cookies, queries], texts) = requests;
        let (server_names, content_types, verdicts) = texts;
        Match {
            from,
            from_ports,
            to,
            ports,
            sites,
            paths,
            methods,
            headers,
            cookies,
            queries,
            server_names,
            content_types,
            verdicts,
        }
    })
}

/// Mostly none, so that rules of connections are among the rest.
fn few(text: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<String>> {
    let some = btree_set(text, 1..4).prop_map(|texts| texts.into_iter().collect());
    prop_oneof![3 => Just(Vec::new()), 1 => some]
}

fn addresses() -> impl Strategy<Value = AddressSet> {
    let v4 = any::<[u32; 2]>().prop_map(|[a, b]| {
        let address = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
        (address(a.min(b)), address(a.max(b)))
    });
    let v6 = (any::<u128>(), 0_u32..128).prop_map(|(a, bits)| {
        // Beyond the addresses that stand for IPv4 ones.
        let first = (a | 1 << 127) >> bits << bits;
        let last = first | ((1 << bits) - 1);
        (IpAddr::V6(Ipv6Addr::from_bits(first)), IpAddr::V6(Ipv6Addr::from_bits(last)))
    });
    vec(prop_oneof![v4, v6], 1..5).prop_map(|ranges| AddressSet::new(ranges).unwrap())
}

fn ports() -> impl Strategy<Value = Vec<(u16, u16)>> {
    let range = (1_u16.., 1_u16.., any::<bool>())
        .prop_map(|(a, b, one)| (a.min(b), if one { a.min(b) } else { a.max(b) }));
    btree_set(range, 0..4).prop_map(|ranges| ranges.into_iter().collect())
}

fn few_paths() -> impl Strategy<Value = Vec<PathMatch>> {
    let path = || (path(), prop::sample::select(vec!["", "*", "%2F", "%20"]));
    let exact = path().prop_map(|(path, more)| PathMatch::Exact(path + more));
    let prefix = path().prop_map(|(path, more)| PathMatch::Prefix(format!("{path}{more}/")));
    let glob = prop_oneof![
        super::path().prop_map(|path| format!("{path}*")),
        super::path().prop_map(|path| format!("/*{path}/*")),
        super::path().prop_map(|path| format!("/*{path}")),
    ];
    let paths = vec(prop_oneof![exact, prefix, glob.prop_map(PathMatch::Glob)], 1..4);
    let paths = paths.prop_map(|mut paths| {
        paths.sort_by_key(|path| format!("{path:?}"));
        paths.dedup();
        paths
    });
    prop_oneof![1 => Just(Vec::new()), 1 => paths]
}

/// Conditions on named values; names of header fields are in lower case.
fn fields(is_header: bool) -> BoxedStrategy<Vec<FieldMatch>> {
    let name = if is_header { "[a-z][a-z0-9-]{0,8}" } else { "[a-zA-Z][a-zA-Z0-9_-]{0,8}" };
    let value = field_value().prop_map(|value| match value.replace(';', "").trim() {
        value if value.contains('*') => ValueMatch::Glob(value.to_owned()),
        value => ValueMatch::Exact(value.to_owned()),
    });
    let literal = "[a-z*]{0,4}".prop_map(ValueMatch::Exact);
    let values = prop_oneof![
        Just(vec![ValueMatch::Present]),
        vec(prop_oneof![Just(ValueMatch::Absent), value, literal], 1..4),
    ];
    let names = prop_oneof![2 => Just(0_usize..1), 1 => Just(1..3)];
    let named = names.prop_flat_map(move |count| vec((name, values.clone()), count));
    let fields = |named: Vec<(String, Vec<ValueMatch>)>| {
        let mut fields: Vec<FieldMatch> = Vec::new();
        for (number, (name, values)) in named.into_iter().enumerate() {
            for value in values {
                let field = FieldMatch { name: format!("{name}{number}"), value };
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
        fields
    };
    named.prop_map(fields).boxed()
}
