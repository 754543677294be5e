//! Rules that are only tried: they count what they would do, and do nothing.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::net::SocketAddr;

use weir_guard::{ClassId, Count, Decision, Ends, Fields, Moment, Rules, Subject};

const SECOND: u64 = 1_000_000_000;

struct NoFields;

impl<'a> Fields<'a> for NoFields {
    fn values(&self, _: &str, _: &mut dyn FnMut(&'a [u8])) {}

    fn each(&self, _: &mut dyn FnMut(&[u8], &'a [u8])) {}
}

fn rules(guard: &str) -> Rules {
    let text = format!(
        "site \"a.example\" {{ listen \"127.0.0.1:80\"; route \"/*\" {{ respond \"\" }} }}\n\
         guard {{\nclass \"gold\" priority=1\n{guard}\n}}"
    );
    Rules::new(&weir_config::parse("test.kdl", &text).unwrap().guard, 1, None)
}

fn ends() -> Ends {
    let address = |text: &str| -> Option<SocketAddr> { Some(text.parse().unwrap()) };
    Ends { source: address("192.0.2.7:5000"), destination: address("192.0.2.1:80") }
}

fn subject(path: &str) -> Subject<'_> {
    Subject {
        ends: ends(),
        site: "a.example",
        path,
        query: None,
        method: "GET",
        server_name: None,
        verdict: "",
        fields: &NoFields,
    }
}

fn moment(is_overloaded: bool) -> Moment {
    Moment { now_ns: SECOND, is_overloaded, worker: 0 }
}

fn decide(rules: &Rules, path: &str) -> Decision {
    rules.decide(&subject(path), &moment(false), false)
}

fn counts(rules: &Rules, rule: usize) -> [u64; 6] {
    let (_, state) = rules.states().nth(rule).unwrap();
    Count::ALL.map(|count| state.counted(count))
}

#[test]
fn what_would_be_refused_is_counted_and_let_through() {
    let rules = rules(
        "rule \"few\" { path \"/a\"; rate 1 burst=2; always; dry-run; class \"gold\" }
         rule \"none\" { path \"/a\" \"/b\"; refuse; always; dry-run }
         rule \"one\" { path \"/c\"; concurrency 1; always; dry-run }
         rule \"last\" { path \"/b\"; class \"gold\" }",
    );
    let decided: Vec<_> = (0..3).map(|_| decide(&rules, "/a")).collect();
    assert!(decided.iter().all(|it| it.refusal().is_none() && it.class == ClassId(0)));
    // The first that would have.
    assert_eq!(decided.iter().map(Decision::dry_run).collect::<Vec<_>>(), [1, 1, 0].map(Some));
    assert_eq!(counts(&rules, 0), [3, 0, 0, 0, 0, 1]);
    assert_eq!(counts(&rules, 1), [3, 0, 0, 0, 0, 3]);

    // The search goes on.
    let decision = decide(&rules, "/b");
    assert_eq!((decision.class, decision.dry_run()), (ClassId(0), Some(1)));
    assert_eq!(decide(&rules, "/d").dry_run(), None);

    // Only those who would have been let in have places.
    let first = decide(&rules, "/c");
    assert_eq!((first.dry_run(), decide(&rules, "/c").dry_run()), (None, Some(2)));
    drop(first);
    assert_eq!(decide(&rules, "/c").dry_run(), None);
    assert_eq!(counts(&rules, 2), [3, 0, 0, 0, 0, 1]);
}

#[test]
fn no_penalty_follows() {
    let rules = rules(
        "rule \"no\" { path \"/a\"; refuse; always; dry-run
             penalty after=2 within=\"1s\" lasts=\"1m\" }",
    );
    for _ in 0..10 {
        assert!(decide(&rules, "/a").refusal().is_none());
    }
    assert!(!rules.is_banned(&ends(), SECOND));
    assert_eq!(rules.bans(SECOND).0, 0);
}

#[test]
fn overload_means_to_it_what_it_means_to_others() {
    let rules = rules("rule \"no\" { path \"/a\"; refuse; dry-run }");
    for is_overloaded in [false, true, true] {
        let decision = rules.decide(&subject("/a"), &moment(is_overloaded), false);
        assert_eq!((decision.refusal(), decision.dry_run()), (None, is_overloaded.then_some(0)));
    }
    assert_eq!(counts(&rules, 0), [3, 0, 0, 0, 1, 2]);
}

/// A rule that refuses takes nothing from those before, whether they are tried or not.
#[test]
fn what_another_rule_refuses_costs_nothing() {
    let rules = rules(
        "rule \"tried\" { path \"/*\"; rate 1 burst=2; always; dry-run }
         rule \"no\" { path \"/no\"; refuse; always }",
    );
    for _ in 0..5 {
        assert_eq!(decide(&rules, "/no").refusal().map(|refused| refused.rule), Some(1));
    }
    let dry_runs = [(); 3].map(|()| decide(&rules, "/a").dry_run());
    assert_eq!(dry_runs, [None, None, Some(0)]);
}

#[test]
fn connections_are_let_in() {
    let rules = rules("rule \"no\" { from \"192.0.2.0/24\"; refuse; always; dry-run }");
    assert!(rules.decide_connection(&ends(), &moment(false), 0).refusal().is_none());
    assert_eq!(counts(&rules, 0), [1, 0, 0, 0, 0, 1]);
}

#[test]
fn it_is_explained() {
    let rules = rules(
        "rule \"no\" { path \"/a\"; refuse; always; dry-run }
         rule \"next\" { path \"/a\"; refuse; always }",
    );
    let explained = rules.explain(&subject("/a"), &moment(false));
    assert_eq!(explained.refused_by, Some(1));
    let limits: Vec<_> = explained.rules.iter().map(|met| met.limit.as_ref().unwrap()).collect();
    assert!(limits[0].dry_run && limits[0].is_exceeded() && !limits[1].dry_run);
}
