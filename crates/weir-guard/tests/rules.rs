//! Rules against the plainest reading of them, one after the other.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use weir_config::{
    AddressSet, BucketKey, Class, FieldMatch, Guard, GuardRule, Match, PathMatch, Rate, RateUnit,
    RefusalAnswer, ValueMatch,
};
use weir_guard::{ClassId, Count, Ends, Fields, Moment, Rules, Subject};

const SECOND: u64 = 1_000_000_000;

/// A header section as a list.
struct Headers<'a>(&'a [(&'a str, &'a str)]);

impl<'a> Fields<'a> for Headers<'a> {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        self.0.iter().filter(|(known, _)| *known == name).for_each(|(_, v)| see(v.as_bytes()));
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        self.0.iter().for_each(|(name, value)| see(name.as_bytes(), value.as_bytes()));
    }
}

fn rule(name: &str) -> GuardRule {
    GuardRule {
        name: name.to_owned(),
        on: Match::default(),
        class: None,
        rate: None,
        concurrency: None,
        by: BucketKey::Rule,
        unit: RateUnit::Auto,
        refuse: false,
        pass: false,
        always: true,
        dry_run: false,
        answer: RefusalAnswer::Status(503),
        penalty: None,
    }
}

fn path(path: &str) -> Match {
    let paths = vec![match path.split_once('*') {
        None => PathMatch::Exact(path.to_owned()),
        Some((prefix, "")) => PathMatch::Prefix(prefix.to_owned()),
        Some(_) => PathMatch::Glob(path.to_owned()),
    }];
    Match { paths, ..Match::default() }
}

fn rate(count: u32, burst: u32) -> Option<Rate> {
    Some(Rate { count, period: Duration::from_secs(1), burst })
}

fn guard(rules: Vec<GuardRule>) -> Guard {
    let class =
        |name: &str, priority| Class { name: name.to_owned(), priority, ..Class::default() };
    let classes = vec![class("gold", 1), class("default", 2), class("bulk", 3)];
    Guard { classes, rules, keys: 1000, ..Guard::default() }
}

fn ends(source: &str) -> Ends {
    let source: SocketAddr = source.parse().unwrap();
    Ends { source: Some(source), destination: Some("10.9.9.9:80".parse().unwrap()) }
}

fn request<'a>(path: &'a str, headers: &'a Headers<'a>) -> Subject<'a> {
    Subject {
        ends: ends("192.0.2.7:5000"),
        site: "shop.example",
        path,
        query: None,
        method: "GET",
        server_name: None,
        verdict: "",
        fields: headers,
    }
}

const NONE: Headers<'static> = Headers(&[]);

fn at(now_ns: u64) -> Moment {
    Moment { now_ns, is_overloaded: false, worker: 0 }
}

/// Admits `count` requests for a path at a moment; how many passed.
fn admitted(rules: &Rules, target: &str, moment: &Moment, count: usize) -> usize {
    let subject = request(target, &NONE);
    (0..count).filter(|_| rules.decide(&subject, moment, false).refusal().is_none()).count()
}

#[test]
fn classes_are_given_by_the_first_rule_and_pass_ends_the_search() {
    let mut health = rule("health");
    (health.on, health.pass) = (path("/healthz"), true);
    let mut gold = rule("gold");
    (gold.on, gold.class) = (path("/pay/*"), Some("gold".to_owned()));
    let mut bulk = rule("bulk");
    bulk.class = Some("bulk".to_owned());
    let mut none = rule("none");
    (none.on, none.refuse) = (path("/no/*"), true);
    let rules = Rules::new(&guard(vec![health, gold, bulk, none]), 1, None);
    for (target, class, refused) in [
        ("/healthz", 1, None),
        ("/pay/x", 0, None),
        ("/other", 2, None),
        ("/no/x", 2, Some((3, Count::Refused))),
    ] {
        let decision = rules.decide(&request(target, &NONE), &at(0), false);
        assert_eq!(decision.class, ClassId(class), "{target}");
        assert_eq!(decision.refusal().map(|r| (r.rule, r.reason)), refused, "{target}");
    }
    let met: Vec<u64> = rules.states().map(|(_, state)| state.counted(Count::Met)).collect();
    // Rules for connections are not counted for requests.
    assert_eq!(met, [1, 1, 0, 1]);
}

#[test]
fn limits_hold_under_overload_only_unless_always() {
    let mut sometimes = rule("sometimes");
    (sometimes.on, sometimes.rate, sometimes.always) = (path("/a"), rate(10, 2), false);
    let rules = Rules::new(&guard(vec![sometimes]), 1, None);
    assert_eq!(admitted(&rules, "/a", &at(SECOND), 10), 10);
    let overload = Moment { is_overloaded: true, ..at(SECOND) };
    assert_eq!(admitted(&rules, "/a", &overload, 10), 0, "the bucket was used meanwhile");
    let later = Moment { is_overloaded: true, ..at(2 * SECOND) };
    assert_eq!(admitted(&rules, "/a", &later, 10), 2);
    let counted = |what| rules.states().next().unwrap().1.counted(what);
    assert_eq!((counted(Count::Spared), counted(Count::Rate)), (8, 18));
}

#[test]
fn places_are_given_back_and_tokens_of_refused_requests_too() {
    let mut tokens = rule("tokens");
    (tokens.on, tokens.rate) = (path("/a"), rate(1, 5));
    let mut places = rule("places");
    (places.on, places.concurrency) = (path("/a"), Some(2));
    let rules = Rules::new(&guard(vec![tokens, places]), 1, None);
    let subject = request("/a", &NONE);
    let held: Vec<_> = (0..2).map(|_| rules.decide(&subject, &at(0), false)).collect();
    assert!(held.iter().all(|decision| decision.refusal().is_none()));
    for _ in 0..9 {
        let refused = rules.decide(&subject, &at(0), false).refusal().unwrap();
        assert_eq!(
            (rules.name(refused.rule), refused.reason),
            (Some("places"), Count::Concurrency)
        );
    }
    drop(held);
    // Three tokens are left of five.
    assert_eq!(admitted(&rules, "/a", &at(0), 9), 3);
}

#[test]
fn each_source_has_its_bucket() {
    let mut each = rule("each");
    (each.on, each.rate, each.by) = (path("/*"), rate(1, 3), BucketKey::Prefix { v4: 24, v6: 56 });
    let rules = Rules::new(&guard(vec![each]), 1, None);
    let passes = |source: &str| {
        let mut subject = request("/", &NONE);
        subject.ends = ends(source);
        rules.decide(&subject, &at(0), false).refusal().is_none()
    };
    let of = |sources: &[&str]| sources.iter().filter(|source| passes(source)).count();
    assert_eq!(of(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.255:9", "10.0.0.1:1"]), 3);
    assert_eq!(of(&["10.0.1.1:1", "[::ffff:10.0.1.2]:1", "10.0.1.1:1", "10.0.1.1:1"]), 3);
    assert_eq!(of(&["[fd00::1]:1", "[fd00:0:0:ff::1]:1", "[fd00::9]:1", "[fd00::8]:1"]), 3);
    assert_eq!(of(&["[fd00:0:0:100::1]:1"]), 1);
}

#[test]
fn each_value_has_its_bucket_and_none_has_none() {
    let mut each = rule("each");
    (each.rate, each.by) = (rate(1, 2), BucketKey::Header("x-key".to_owned()));
    let rules = Rules::new(&guard(vec![each]), 1, None);
    let passed = |headers: Headers<'_>| {
        let subject = request("/", &headers);
        (0..5).filter(|_| rules.decide(&subject, &at(0), false).refusal().is_none()).count()
    };
    assert_eq!(passed(Headers(&[("x-key", "a")])), 2);
    assert_eq!(passed(Headers(&[("x-key", "b")])), 2);
    assert_eq!(passed(Headers(&[("x-key", "a")])), 0);
    assert_eq!(passed(NONE), 5);
}

#[test]
fn what_did_not_change_keeps_its_state() {
    let limited = |name: &str, count, burst| {
        let mut limited = rule(name);
        (limited.on, limited.rate, limited.by) =
            (path(&format!("/{name}")), rate(count, burst), BucketKey::Source);
        limited
    };
    let before = Rules::new(&guard(vec![limited("a", 1, 4), limited("b", 1, 4)]), 1, None);
    assert_eq!(admitted(&before, "/a", &at(0), 9), 4);
    assert_eq!(admitted(&before, "/b", &at(0), 9), 4);
    let other = guard(vec![limited("c", 1, 4), limited("b", 2, 8), limited("a", 1, 4)]);
    let after = Rules::new(&other, 1, Some(&before));
    assert_eq!(admitted(&after, "/a", &at(0), 9), 0);
    // Twice the rate and twice the burst: four seconds' worth of tokens were taken, as before.
    assert_eq!(admitted(&after, "/b", &at(0), 9), 0);
    assert_eq!(admitted(&after, "/c", &at(0), 9), 4);
    let met: Vec<u64> = after.states().map(|(_, state)| state.counted(Count::Met)).collect();
    assert_eq!(met, [9, 18, 18]);
}

/// The first rule with keys needs a table that was not there before, and so does a larger one.
#[test]
fn more_room_for_keys_costs_nobody_his_state() {
    let mut whole = rule("whole");
    (whole.on, whole.rate) = (path("/a"), rate(1, 4));
    let mut places = rule("places");
    (places.on, places.concurrency) = (path("/b"), Some(1));
    let mut keyed = rule("keyed");
    (keyed.on, keyed.rate, keyed.by) = (path("/c"), rate(1, 3), BucketKey::Source);
    let first = Rules::new(&guard(vec![whole.clone(), places.clone()]), 1, None);
    assert_eq!(admitted(&first, "/a", &at(0), 9), 4);
    let held = first.decide(&request("/b", &NONE), &at(0), false);

    let second =
        Rules::new(&guard(vec![whole.clone(), places.clone(), keyed.clone()]), 1, Some(&first));
    assert_eq!(admitted(&second, "/a", &at(0), 9), 0);
    assert_eq!(admitted(&second, "/b", &at(0), 1), 0);
    assert_eq!(admitted(&second, "/c", &at(0), 9), 3);

    let larger = Guard { keys: 1 << 14, ..guard(vec![whole, places, keyed]) };
    let third = Rules::new(&larger, 1, Some(&second));
    assert_eq!((admitted(&third, "/a", &at(0), 9), admitted(&third, "/c", &at(0), 9)), (0, 0));
    drop(held);
    assert_eq!(admitted(&third, "/b", &at(0), 1), 1);
}

#[test]
fn repeat_offenders_are_not_let_in() {
    let mut no = rule("no");
    (no.on, no.refuse) = (path("/no"), true);
    no.penalty = Some(weir_config::Penalty {
        after: 3,
        within: Duration::from_secs(10),
        lasts: Duration::from_secs(60),
        by: weir_config::PrefixLengths { v4: 32, v6: 64 },
    });
    let rules = Rules::new(&guard(vec![no]), 1, None);
    let banned = |now_ns| {
        let decision = rules.decide(&request("/no", &NONE), &at(now_ns), false);
        decision.refusal().unwrap().banned
    };
    let seen: Vec<_> = (0..4).map(|_| banned(SECOND).is_some()).collect();
    assert_eq!(seen, [false, false, true, true]);
    let (it, other) = (ends("192.0.2.7:1"), ends("192.0.2.8:1"));
    assert!(rules.is_banned(&it, 60 * SECOND) && !rules.is_banned(&other, 60 * SECOND));
    assert!(!rules.is_banned(&it, 61 * SECOND));
    // Whoever comes through a trusted proxy has no connection to be kept out.
    let refused = |now_ns| {
        let decision = rules.decide(&request("/yes", &NONE), &at(now_ns), true);
        decision.refusal().map(|refused| refused.reason)
    };
    assert_eq!((refused(60 * SECOND), refused(61 * SECOND)), (Some(Count::Refused), None));
}

#[test]
fn whoever_passes_by_its_address_is_spared_by_penalties() {
    let mut no = rule("no");
    (no.on, no.refuse) = (path("/no"), true);
    no.penalty = Some(weir_config::Penalty {
        after: 1,
        within: Duration::from_secs(10),
        lasts: Duration::from_secs(60),
        by: weir_config::PrefixLengths { v4: 24, v6: 64 },
    });
    let mut office = rule("office");
    let address = "192.0.2.9".parse().unwrap();
    office.on.from = AddressSet::new(vec![(address, address)]);
    office.pass = true;
    for (rules, is_banned) in [([office.clone(), no.clone()], false), ([no, office], true)] {
        let rules = Rules::new(&guard(rules.to_vec()), 1, None);
        (0..2).for_each(|_| drop(rules.decide(&request("/no", &NONE), &at(SECOND), false)));
        let banned = |from| rules.is_banned(&ends(from), 2 * SECOND);
        assert_eq!((banned("192.0.2.8:1"), banned("192.0.2.9:1")), (true, is_banned));
    }
}

#[test]
fn penalties_hold_for_prefixes() {
    let penalised = |name: &str, v4, v6| {
        let mut rule = rule(name);
        (rule.on, rule.refuse) = (path(&format!("/{name}")), true);
        rule.penalty = Some(weir_config::Penalty {
            after: 3,
            within: Duration::from_secs(10),
            lasts: Duration::from_secs(60),
            by: weir_config::PrefixLengths { v4, v6 },
        });
        rule
    };
    let both = vec![penalised("a", 32, 64), penalised("b", 24, 128)];
    let mut rules = Rules::new(&guard(both.clone()), 1, None);
    let offend = |rules: &Rules, target: &'static str, from: &[&str]| {
        for from in from {
            let mut subject = request(target, &NONE);
            subject.ends = ends(from);
            rules.decide(&subject, &at(SECOND), false);
        }
    };
    let banned = |rules: &Rules, from: &str| {
        rules.ban(&ends(from), SECOND).map(|ban| (ban.by.v4, ban.by.v6, ban.lasts.as_secs()))
    };
    assert_eq!(rules.bans(SECOND).0, 0);
    // Refusals of all addresses of a prefix are counted together, and all are kept out together.
    offend(&rules, "/a", &["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"]);
    assert_eq!(banned(&rules, "[2001:db8::ffff:0:1]:9"), Some((32, 64, 60)));
    assert_eq!(banned(&rules, "[2001:db8:0:1::1]:9"), None);
    offend(&rules, "/a", &["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]);
    assert_eq!(banned(&rules, "10.0.0.1:1"), None);
    // A client of IPv4 by an address of IPv6 is the same (RFC 4291 §2.5.5.2).
    offend(&rules, "/b", &["10.0.0.1:1", "[::ffff:10.0.0.2]:1", "10.0.0.3:1"]);
    assert_eq!(banned(&rules, "10.0.0.99:1"), Some((24, 128, 60)));
    assert_eq!(banned(&rules, "10.0.1.1:1"), None);
    assert_eq!(rules.bans(SECOND).0, 2);
    // They outlive a reload, for as long as a rule has penalties for such prefixes.
    rules = Rules::new(&guard(both[1..].to_vec()), 1, Some(&rules));
    assert_eq!(
        (banned(&rules, "[2001:db8::1]:1"), banned(&rules, "10.0.0.1:1").is_some()),
        (None, true)
    );
    rules = Rules::new(&guard(vec![rule("none")]), 1, Some(&rules));
    assert_eq!((banned(&rules, "10.0.0.1:1"), rules.bans(SECOND).1), (None, 0));
}

#[test]
fn connections_are_decided_by_their_ends() {
    let from = |name: &str, first: &str, last: &str| {
        let mut rule = rule(name);
        let range = (first.parse().unwrap(), last.parse().unwrap());
        rule.on.from = AddressSet::new(vec![range]);
        rule
    };
    let mut gold = from("gold", "10.1.0.0", "10.1.255.255");
    gold.class = Some("gold".to_owned());
    let mut all = from("all", "0.0.0.0", "255.255.255.255");
    (all.class, all.rate) = (Some("bulk".to_owned()), rate(1, 2));
    let rules = Rules::new(&guard(vec![gold, all]), 1, None);
    let decide = |source: &str| rules.decide_connection(&ends(source), &at(0), 0);
    let first = decide("10.1.2.3:1");
    assert_eq!((first.class, first.refusal().is_none()), (ClassId(0), true));
    let second = decide("10.2.2.3:1");
    assert_eq!((second.class, second.refusal().is_none()), (ClassId(2), true));
    assert_eq!(decide("10.2.2.3:1").refusal().map(|refused| refused.rule), Some(1));
    // A request gets the class of its connection, and costs the rule nothing.
    let mut subject = request("/", &NONE);
    subject.ends = ends("10.1.0.1:1");
    let decision = rules.decide(&subject, &at(0), false);
    assert_eq!((decision.class, decision.refusal().is_none()), (ClassId(0), true));
    // Behind a trusted proxy each request is what a connection would be.
    assert!(rules.decide(&subject, &at(0), true).refusal().is_some());
}

fn field() -> impl Strategy<Value = FieldMatch> {
    let value = prop_oneof![
        Just(ValueMatch::Present),
        Just(ValueMatch::Absent),
        "[ab]{1,2}".prop_map(ValueMatch::Exact),
        "[ab]\\*".prop_map(ValueMatch::Glob),
    ];
    ("[xy]", value).prop_map(|(name, value)| FieldMatch { name, value })
}

prop_compose! {
    fn conditions()(
        paths in prop::collection::vec("/[ab]{0,2}\\*?[ab]?", 0..3),
        headers in prop::collection::vec(field(), 0..3),
        cookies in prop::collection::vec(field(), 0..2),
        queries in prop::collection::vec(field(), 0..2),
        from in prop::option::of((0_u32..4, 0_u32..4)),
        site in prop::option::of(prop::bool::ANY),
        method in prop::option::of(prop::bool::ANY),
        others in prop::collection::vec(prop::option::weighted(0.1, prop::bool::ANY), 5),
    ) -> Match {
        let either = |at: usize, holds: &str, fails: &str| -> Vec<String> {
            others[at].map(|it| if it { holds } else { fails }.to_owned()).into_iter().collect()
        };
        let port = |at: usize, port: u16| -> Vec<(u16, u16)> {
            others[at].map(|it| if it { (1, port) } else { (port + 1, 9999) }).into_iter().collect()
        };
        let ip = |last: u32| std::net::IpAddr::from((0x0a00_0000 + last).to_be_bytes());
        Match {
            from: from.and_then(|(at, n)| AddressSet::new(vec![(ip(at), ip(at + n))])),
            paths: paths.iter().flat_map(|text| path(text).paths).collect(),
            headers,
            cookies,
            queries,
            sites: site.map(|it| if it { "shop.example" } else { "other" }.to_owned())
                .into_iter().collect(),
            methods: method.map(|it| if it { "GET" } else { "POST" }.to_owned())
                .into_iter().collect(),
            ports: port(0, 80),
            from_ports: port(1, 99),
            server_names: either(2, "*.example", "example"),
            content_types: either(3, "text/*", "image/*"),
            to: others[4].and_then(|it| {
                let to = [10, 9, 9, if it { 9 } else { 8 }].into();
                AddressSet::new(vec![(to, to)])
            }),
            ..Match::default()
        }
    }
}

/// The plainest reading of a pattern.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((first, rest)) => text
            .strip_prefix(first)
            .is_some_and(|tail| (0..=tail.len()).any(|skip| fits(rest, &tail[skip..]))),
    }
}

fn fields_hold(wanted: &[FieldMatch], found: &[(String, String)]) -> bool {
    let holds = |wanted: &FieldMatch| {
        let values: Vec<_> = found.iter().filter(|(name, _)| *name == wanted.name).collect();
        match &wanted.value {
            ValueMatch::Present => !values.is_empty(),
            ValueMatch::Absent => values.is_empty(),
            ValueMatch::Exact(text) | ValueMatch::Glob(text) => {
                values.iter().any(|(_, value)| fits(text, value))
            }
        }
    };
    wanted.iter().all(|field| wanted.iter().filter(|other| other.name == field.name).any(holds))
}

type Pairs = Vec<(String, String)>;

fn pairs() -> impl Strategy<Value = Pairs> {
    prop::collection::vec(("[xy]", "[ab]{1,2}"), 0..3)
}

proptest! {
    /// Few rules are met one by one, many by the index: both as the plainest reading has it.
    #[test]
    fn rules_mean_what_they_say(
        rules in prop::collection::vec(conditions(), 1..40),
        target in "/[ab]{0,3}",
        (headers, cookies, queries) in (pairs(), pairs(), pairs()),
        last in 0_u8..8,
    ) {
        let holds = |on: &Match| {
            let paths = |path: &PathMatch| match path {
                PathMatch::Exact(path) => *path == target,
                PathMatch::Prefix(prefix) => target.starts_with(prefix),
                PathMatch::Glob(pattern) => fits(pattern, &target),
            };
            let source = std::net::IpAddr::from([10, 0, 0, last]);
            (on.paths.is_empty() || on.paths.iter().any(paths))
                && fields_hold(&on.headers, &headers)
                && fields_hold(&on.cookies, &cookies)
                && fields_hold(&on.queries, &queries)
                && on.from.as_ref().is_none_or(|from| from.contains(source))
                && !on.sites.contains(&"other".to_owned())
                && !on.methods.contains(&"POST".to_owned())
                && on.ports.iter().all(|(first, _)| *first == 1)
                && on.from_ports.iter().all(|(first, _)| *first == 1)
                && on.server_names.iter().all(|name| name == "*.example")
                && on.content_types.iter().all(|media_type| media_type == "text/*")
                && on.to.as_ref().is_none_or(|to| to.contains([10, 9, 9, 9].into()))
        };
        let expected: Vec<bool> = rules.iter().map(holds).collect();
        let rules = rules.into_iter().enumerate().map(|(number, on)| {
            GuardRule { on, unit: RateUnit::Requests, ..rule(&number.to_string()) }
        });
        let rules = Rules::new(&guard(rules.collect()), 1, None);
        let joined = |pairs: &Pairs, by: &str| {
            let each: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            each.join(by)
        };
        let (cookie, query) = (joined(&cookies, "; "), joined(&queries, "&"));
        let mut list: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        list.extend([("cookie", cookie.as_str()), ("content-type", "Text/HTML; charset=utf-8")]);
        let list = Headers(&list);
        let source = format!("10.0.0.{last}:99");
        let asked = request(&target, &list);
        let server_name = Some("shop.example");
        let subject = Subject { ends: ends(&source), query: Some(&query), server_name, ..asked };
        rules.decide(&subject, &at(0), false);
        let met: Vec<bool> =
            rules.states().map(|(_, state)| state.counted(Count::Met) == 1).collect();
        prop_assert_eq!(&met, &expected);
        let explained = rules.explain(&subject, &at(0));
        let met: Vec<bool> = explained.rules.iter().map(|met| met.fails.is_none()).collect();
        prop_assert_eq!(met, expected);
    }
}
