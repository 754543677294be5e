//! Many rules at once are what each of them is by itself: found by an index, a rule is met by
//! whatever meets it alone, when it is looked at as it is.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::time::Instant;

use proptest::prelude::*;
use weir_config::{Guard, GuardRule};
use weir_guard::{Count, Ends, Fields, Moment, Rules, Subject};

struct Headers<'a>(&'a [(String, String)]);

impl<'a> Fields<'a> for Headers<'a> {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        let of_name = self.0.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        of_name.for_each(|(_, value)| see(value.as_bytes()));
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        self.0.iter().for_each(|(name, value)| see(name.as_bytes(), value.as_bytes()));
    }
}

/// Rules with the given conditions.
fn config(conditions: &[String]) -> String {
    let mut text = String::from(
        "site \"a.example\" { listen \"127.0.0.1:80\"; route \"/*\" { respond \"\" } }\nguard {\n",
    );
    for (number, on) in conditions.iter().enumerate() {
        text.push_str(&format!("rule \"r{number}\" {{ {on}; class \"default\" }}\n"));
    }
    text.push('}');
    text
}

fn guard(conditions: &[String]) -> Guard {
    weir_config::parse("test.kdl", &config(conditions)).unwrap().guard
}

/// Which rules a request meets.
fn met(rules: Vec<GuardRule>, subject: &Subject<'_>) -> Vec<bool> {
    let rules = Rules::new(&Guard { rules, ..Guard::default() }, 1, None);
    let moment = Moment { now_ns: 0, is_overloaded: false, worker: 0 };
    let mut decision = rules.decide(subject, &moment, false);
    rules.decide_verdict(subject, &moment, &mut decision);
    rules.states().map(|(_, state)| state.counted(Count::Met) == 1).collect()
}

fn check(conditions: &[String], subject: &Subject<'_>) -> Vec<bool> {
    let rules = guard(conditions).rules;
    let alone: Vec<bool> =
        rules.iter().map(|rule| met(vec![rule.clone()], subject) == [true]).collect();
    assert_eq!(met(rules, subject), alone, "{conditions:#?}");
    alone
}

fn request<'a>(headers: &'a Headers<'a>, query: &'a str, server_name: &'a str) -> Subject<'a> {
    Subject {
        ends: Ends { source: None, destination: None },
        site: "a.example",
        path: "/ab/ba",
        query: Some(query),
        method: "GET",
        server_name: Some(server_name),
        verdict: "robot",
        fields: headers,
    }
}

/// So many names that all fields of a request are looked at.
#[test]
fn fields_of_many_names_are_found_in_any_case() {
    let conditions: Vec<String> =
        (0..100).map(|n| format!("header \"x-{n}\" \"*{}*\"", n % 7)).collect();
    let headers: Vec<_> = [("X-7", "70"), ("x-8", "70"), ("X-8", "01"), ("x-9", "2"), ("y", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let found = check(&conditions, &request(&Headers(&headers), "", "a"));
    let found: Vec<usize> = (0..100).filter(|n| found[*n]).collect();
    assert_eq!(found, [7, 8, 9]);
}

#[test]
fn rules_are_found_by_whatever_tells_them_apart() {
    let mut conditions = Vec::new();
    for n in 0..30 {
        conditions.push(format!("path \"/ab/*\"; server-name \"{n}.example\" \"*.{n}.example\""));
        conditions.push(format!("verdict \"{n}\" \"robot{}\"", ["", "s"][n % 2]));
        conditions.push(format!("path \"/a*\"; content-type \"a/{n}\" \"b{n}/*\""));
        conditions.push(format!("site \"a.example\"; query \"q\" \"*a{n}*\" \"{n}b\""));
    }
    // Two types in one request, and values that come again.
    let headers = [("content-type", "A/3; x=y"), ("content-type", "b17/y")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let headers = Headers(&headers);
    for (server_name, query) in [
        ("1.example", "q=xa12x&q=xa12x&q=a3"),
        ("x.Y.2.EXAMPLE", "q=3b&q=xa29&q=xa2"),
        (".3.example", "q=%61%31&q=a"),
        ("x.3.example.", ""),
    ] {
        let met = check(&conditions, &request(&headers, query, server_name));
        assert!(met.contains(&true) && met.contains(&false));
    }
}

/// A rule with many values is looked at as fast as many rules are.
#[test]
fn one_rule_may_list_many_values() {
    let values: Vec<String> = (0..900).map(|n| format!("\"*<{n}>*({n})*<{n}>*\"")).collect();
    let condition = format!("path \"/ab/*\"; header \"x\" {}", values.join(" "));
    let value: String = (0..900).map(|n| format!("<{n}>({n})")).collect();
    for (value, expected) in [(value.clone(), false), (format!("{value}<899>"), true)] {
        let headers = [("x".to_owned(), value)];
        let met = check(std::slice::from_ref(&condition), &request(&Headers(&headers), "", "a"));
        assert_eq!(met, [expected]);
    }
}

/// Twice the rules and twice the text cost about twice as much each, not four times: a bound far
/// above that, which looking at each rule misses by far.
#[test]
fn a_text_made_against_many_rules_costs_what_its_length_says() {
    let time = |count: usize| {
        let conditions: Vec<String> =
            (0..count).map(|n| format!("cookie \"c\" \"*<{n}>*({n})*<{n}>*\"")).collect();
        let value: String = (0..count).map(|n| format!("<{n}>({n})")).collect();
        let headers = [("cookie".to_owned(), format!("c={value}"))];
        let headers = Headers(&headers);
        let rules = Rules::new(&guard(&conditions), 1, None);
        let (subject, moment) =
            (request(&headers, "", "a"), Moment { now_ns: 0, is_overloaded: false, worker: 0 });
        let once = || {
            let began = Instant::now();
            assert!(rules.decide(&subject, &moment, false).refusal().is_none());
            began.elapsed()
        };
        (0..5).map(|_| once()).min().unwrap()
    };
    let (some, many) = (time(500), time(4_000));
    assert!(many < some * 24, "{some:?} for 500, {many:?} for 4,000");
}

proptest! {
    // Each reads dozens of configurations.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn many_rules_are_what_each_of_them_is(
        patterns in prop::collection::vec(("[xyz]", "[ab]{0,2}\\*?[ab]{0,2}\\*[ab]{0,2}"), 1..60),
        kinds in prop::collection::vec(0_usize..4, 60),
        others in prop::collection::vec(prop::bool::weighted(0.2), 60),
        values in prop::collection::vec(("[xyz]", "[ab]{1,6}"), 0..6),
    ) {
        let condition = |((name, glob), (kind, other)): (&(String, String), (&usize, &bool))| {
            let more = if *other { "; path \"/ab/*\"" } else { "" };
            match kind {
                0 => format!("header \"{name}\" \"{glob}\"{more}"),
                1 => format!("cookie \"{name}\" \"{glob}\" \"b\"{more}"),
                2 => format!("query \"{name}\" \"{glob}\" \"a*\"{more}"),
                _ => format!("path \"/{glob}\"; header \"{name}\""),
            }
        };
        let conditions: Vec<String> =
            patterns.iter().zip(kinds.iter().zip(&others)).map(condition).collect();
        let pairs: Vec<String> = values.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let (query, mut headers) = (pairs.join("&"), values.clone());
        headers.push(("Cookie".to_owned(), pairs.join("; ")));
        // A value that is given twice is an error of the configuration, not of what is tested.
        let is_valid = |on: &String| weir_config::parse("", &config(std::slice::from_ref(on))).is_ok();
        let conditions: Vec<String> = conditions.into_iter().filter(is_valid).collect();
        check(&conditions, &request(&Headers(&headers), &query, "a"));
    }
}
