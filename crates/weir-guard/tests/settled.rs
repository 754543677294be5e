//! What is settled about a path is what is decided about every request for it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use proptest::prelude::*;
use weir_config::Guard;
use weir_guard::{Count, Decision, Ends, Fields, Moment, Rules, Subject};

const MOMENT: Moment = Moment { now_ns: 0, is_overloaded: true, worker: 0 };

/// A header section with nothing in it but `x: 1`, if that.
struct Header(bool);

impl<'a> Fields<'a> for Header {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        if self.0 && name == "x" {
            see(b"1");
        }
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        if self.0 {
            see(b"x", b"1");
        }
    }
}

fn rules(lines: &[String]) -> Rules {
    let rules: String =
        (0..).zip(lines).map(|(n, line)| format!("rule \"r{n}\" {{ {line} }}\n")).collect();
    let text = format!(
        "site \"a.example\" {{ listen \"127.0.0.1:80\"; route \"/*\" {{ respond \"\" }} }}\n\
         guard {{ class \"gold\" priority=1\nclass \"bulk\" priority=3\n{rules} }}"
    );
    let guard: Guard = weir_config::parse("test.kdl", &text).unwrap().guard;
    Rules::new(&guard, 1, None)
}

fn subject<'a>(path: &'a str, header: &'a Header, method: &'a str) -> Subject<'a> {
    Subject {
        ends: Ends { source: None, destination: None },
        site: "a.example",
        path,
        query: None,
        method,
        server_name: None,
        verdict: "",
        fields: header,
    }
}

fn counted(rules: &Rules) -> Vec<u64> {
    rules.states().map(|(_, state)| state.counted(Count::Met)).collect()
}

fn seen(decision: &Decision, met: Vec<u64>) -> (u8, bool, Vec<u64>) {
    (decision.class.0, decision.refusal().is_some(), met)
}

#[test]
fn paths_alone_settle_what_limits_nothing() {
    for (lines, path, settles) in [
        (&["path \"/a\"; class \"gold\""][..], "/a", true),
        (&["path \"/a\"; class \"gold\""], "/b", true),
        (&["path \"/a*\"; rate 1"], "/b", true),
        (&["path \"/a*\"; rate 1"], "/a", false),
        (&["path \"/a\"; refuse"], "/a", false),
        (&["path \"/a\"; method \"POST\"; class \"gold\""], "/b", true),
        (&["path \"/a\"; method \"POST\"; class \"gold\""], "/a", false),
        (&["method \"POST\"; class \"gold\""], "/a", false),
        (&["from \"10.0.0.0/8\"; method \"GET\"; class \"gold\""], "/a", false),
        // What comes after a rule that ends the search decides nothing.
        (&["path \"/a\"; pass", "path \"/*\"; rate 1"], "/a", true),
        (&["path \"/*\"; rate 1", "path \"/a\"; pass"], "/a", false),
    ] {
        let lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        let rules = rules(&lines);
        let settled = rules.settle(path);
        assert!(settled.is_of(rules.id()));
        assert_eq!(settled.decide(0).is_some(), settles, "{lines:?} {path}");
    }
}

#[test]
fn other_rules_have_other_numbers() {
    let line = "path \"/a\"; class \"gold\"".to_owned();
    let (one, other) = (rules(std::slice::from_ref(&line)), rules(&[line]));
    assert!(!one.settle("/a").is_of(other.id()));
}

proptest! {
    #[test]
    fn what_is_settled_is_what_is_decided(
        many in any::<bool>(),
        lines in prop::collection::vec((
            "/[ab]{0,2}\\*?[ab]{0,2}",
            prop::sample::select(vec!["", "; method \"POST\"", "; header \"x\" \"1\""]),
            prop::sample::select(vec![
                "class \"gold\"", "class \"bulk\"", "pass", "class \"bulk\"; pass", "refuse",
            ]),
        ), 1..12),
        path in "/[ab]{0,3}",
        has_header in any::<bool>(),
        method in prop::sample::select(vec!["GET", "POST"]),
    ) {
        let line = |(path, more, act): &(String, &str, &str)| format!("path \"{path}\"{more}; {act}");
        let mut lines: Vec<String> = lines.iter().map(line).collect();
        if many {
            // So many that there is an index.
            lines.extend((0..20).map(|n| format!("path \"/other/{n}\" \"/{n}/*/x\"; refuse")));
        }
        let header = Header(has_header);
        let rules = rules(&lines);
        let decided = rules.decide(&subject(&path, &header, method), &MOMENT, false);
        let met = counted(&rules);
        if let Some(settled) = rules.settle(&path).decide(0) {
            let again: Vec<u64> = counted(&rules).iter().zip(&met).map(|(b, a)| b - a).collect();
            prop_assert_eq!(seen(&settled, again), seen(&decided, met), "{:#?} {}", lines, path);
        }
    }
}
