//! What configurations of overload control mean: every setting, defaults that depend on others,
//! lists of addresses on disk, rules given at run time, and files as large as they may be.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use weir_config::*;

const SITE: &str = "site \"shop.example\" \"www.shop.example\" { listen \":80\"; route \"/*\" { respond \"\"; }; }";

fn parse_ok(text: &str) -> Config {
    let text = format!("{text}\n{SITE}");
    parse("/etc/weir/weir.kdl", &text).unwrap_or_else(|errors| panic!("{errors}\n\nin:\n{text}"))
}

fn guard(inside: &str) -> Guard {
    parse_ok(&format!("guard {{\n{inside}\n}}")).guard
}

/// The one rule of a block.
fn rule(lines: &str) -> GuardRule {
    let mut guard = guard(&format!("class \"gold\" priority=1; rule \"a\" {{\n{lines}\n}}"));
    guard.rules.pop().unwrap()
}

fn range(first: &str, last: &str) -> AddressRange {
    (first.parse().unwrap(), last.parse().unwrap())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn no_block_and_an_empty_one_are_the_default() {
    assert_eq!(parse_ok("").guard, Guard::default());
    assert_eq!(guard(""), Guard::default());
    assert!(!print(&parse_ok("")).contains("guard"));
}

#[test]
fn every_setting_of_the_block() {
    let config = parse_ok(
        r#"guard {
            keys 500; kernel "auto"; interface "eth0" hook="tcx"
            overload target="10ms" interval="1s"
            list "crawlers" "lists/crawlers.txt"; list "b" "/b"
            class "bulk" priority=3 queue=0; class "gold" priority=1 queue=7 wait="2s" share=5
            rule "x" { class "gold"; }
        }"#,
    );
    let class = |name: &str, priority, queue, millis| Class {
        name: name.to_owned(),
        priority,
        queue,
        wait: Duration::from_millis(millis),
        share: if name == "gold" { 5 } else { 0 },
    };
    let list = |name: &str, path: &str| AddressList {
        name: name.to_owned(),
        path: path.into(),
        addresses: AddressSet::default(),
    };
    let guard = &config.guard;
    assert_eq!(
        guard.classes,
        [class("gold", 1, 7, 2000), class("default", 2, 10_000, 5000), class("bulk", 3, 0, 5000)]
    );
    assert_eq!(guard.lists, [list("crawlers", "/etc/weir/lists/crawlers.txt"), list("b", "/b")]);
    assert_eq!((guard.keys, guard.kernel), (500, KernelUse::Auto));
    assert_eq!((guard.target.as_millis(), guard.interval.as_millis()), (10, 1000));
    let interface = Interface { name: "eth0".to_owned(), hook: InterfaceHook::Tcx };
    assert_eq!(guard.interface, Some(interface));
    assert_eq!(
        parse_ok("guard { interface \"lo\"; }").guard.interface.unwrap().hook,
        InterfaceHook::Xdp
    );
    assert_eq!(parse_ok("guard { kernel \"off\"; }").guard.kernel, KernelUse::Off);
    let again = parse("/etc/weir/weir.kdl", &print(&config)).unwrap();
    assert_eq!(again, config);
}

#[test]
fn every_condition() {
    let on = rule(
        r#"from "10.1.0.0/16" "10.2.0.1-10.2.0.9"; from "10.0.0.0/16" "::1"
        from-port "1024-65535"; to "192.0.2.1"; port 443 "8000-8999"; port 80
        site "shop.example"; method "POST" "PATCH"
        path "/search/*" "/*.php" "/%7euser/%c3%a9" "/a%2Ab" "/x%2f%2A/*"
        header "User-Agent" "*BadBot*" "Other"; header "accept" exact="*/*"
        header "authorization" absent=#true
        cookie "Tier" "gold"; cookie "session"; query "q r" "é*"
        server-name "API.shop.example" "*.cdn.example"
        content-type "Image/*" "text/html"; verdict "a robot"
        class "gold""#,
    )
    .on;
    let v4 = [range("10.0.0.0", "10.1.255.255"), range("10.2.0.1", "10.2.0.9")];
    assert_eq!(on.from.unwrap().ranges(), [v4[0], v4[1], range("::1", "::1")]);
    assert_eq!(on.from_ports, [(1024, 65535)]);
    assert_eq!(on.to.unwrap().ranges(), [range("192.0.2.1", "192.0.2.1")]);
    assert_eq!(on.ports, [(443, 443), (8000, 8999), (80, 80)]);
    assert_eq!((on.sites, on.methods), (texts(&["shop.example"]), texts(&["POST", "PATCH"])));
    let paths = [
        PathMatch::Prefix("/search/".into()),
        PathMatch::Glob("/*.php".into()),
        PathMatch::Exact("/~user/%C3%A9".into()),
        PathMatch::Exact("/a*b".into()),
        PathMatch::Prefix("/x%2F*/".into()),
    ];
    assert_eq!(on.paths, paths);
    let field = |name: &str, value| FieldMatch { name: name.to_owned(), value };
    let exact = |text: &str| ValueMatch::Exact(text.to_owned());
    let headers = [
        field("user-agent", ValueMatch::Glob("*BadBot*".to_owned())),
        field("user-agent", exact("Other")),
        field("accept", exact("*/*")),
        field("authorization", ValueMatch::Absent),
    ];
    assert_eq!(on.headers, headers);
    assert_eq!(on.cookies, [field("Tier", exact("gold")), field("session", ValueMatch::Present)]);
    assert_eq!(on.queries, [field("q r", ValueMatch::Glob("é*".to_owned()))]);
    assert_eq!(on.server_names, ["api.shop.example", "*.cdn.example"]);
    assert_eq!(on.content_types, ["image/*", "text/html"]);
    assert_eq!(on.verdicts, ["a robot"]);
}

#[test]
fn every_action() {
    let all = rule(
        "path \"/a\"; class \"gold\"; rate 10 burst=5 per=\"minute\"; concurrency 20; pass; always; dry-run
         by \"source/24,56\"; unit \"requests\"; answer \"reset\"
         penalty after=20 within=\"10s\" lasts=\"1m\"",
    );
    let expected = GuardRule {
        name: "a".to_owned(),
        on: Match { paths: vec![PathMatch::Exact("/a".to_owned())], ..Match::default() },
        class: Some("gold".to_owned()),
        rate: Some(Rate { count: 10, period: Duration::from_secs(60), burst: 5 }),
        concurrency: Some(20),
        by: BucketKey::Prefix { v4: 24, v6: 56 },
        unit: RateUnit::Requests,
        refuse: false,
        pass: true,
        always: true,
        dry_run: true,
        answer: RefusalAnswer::Reset,
        penalty: Some(Penalty {
            after: 20,
            within: Duration::from_secs(10),
            lasts: Duration::from_secs(60),
            by: PrefixLengths { v4: 32, v6: 64 },
        }),
    };
    assert_eq!(all, expected);
    for (by, v4, v6) in [("source", 32, 128), ("source/24,48", 24, 48), ("source/1,1", 1, 1)] {
        let line = "refuse; unit \"requests\"\npenalty after=1 within=\"1s\" lasts=\"1s\"";
        let rule = rule(&format!("{line} by=\"{by}\""));
        assert_eq!(rule.penalty.unwrap().by, PrefixLengths { v4, v6 }, "{by}");
    }
    let least = rule("refuse");
    let on = Match::default();
    let answer = RefusalAnswer::Status(503);
    let none = GuardRule { on, class: None, rate: None, concurrency: None, penalty: None, ..least };
    assert_eq!(rule("refuse"), none);
    assert!(none.refuse && !none.pass && !none.always && none.is_of_connections());
    assert_eq!((none.by, none.unit, none.answer), (BucketKey::Rule, RateUnit::Auto, answer));
}

#[test]
fn what_is_left_out_follows_from_the_rest() {
    for (count, burst) in [(1, 1), (9, 1), (19, 1), (20, 2), (300, 30), (10_000_000, 1_000_000)] {
        assert_eq!(rule(&format!("rate {count}")).rate.unwrap().burst, burst, "{count}");
    }
    for (per, seconds) in
        [("", 1), ("per=\"second\"", 1), ("per=\"minute\"", 60), ("per=\"hour\"", 3600)]
    {
        assert_eq!(rule(&format!("rate 1 {per}")).rate.unwrap().period.as_secs(), seconds, "{per}");
    }
    for (by, answer) in [
        ("rule", 503),
        ("source", 429),
        ("source/32,128", 429),
        ("header:x-key", 429),
        ("cookie:session", 429),
    ] {
        let rule = rule(&format!("rate 1; by \"{by}\""));
        assert_eq!(rule.answer, RefusalAnswer::Status(answer), "{by}");
        assert_eq!(
            rule.is_of_connections(),
            by != "header:x-key" && by != "cookie:session",
            "{by}"
        );
    }
    assert_eq!(rule("rate 1; by \"header:X-Key\"").by, BucketKey::Header("x-key".to_owned()));
    assert_eq!(rule("rate 1; by \"cookie:X-Key\"").by, BucketKey::Cookie("X-Key".to_owned()));
    assert_eq!(rule("rate 1; unit \"connections\"").unit, RateUnit::Auto);
    assert!(!rule("rate 1; unit \"requests\"").is_of_connections());
    assert!(!rule("concurrency 1").is_of_connections());
}

/// Paths of rules are in the form in which requests' paths are compared.
#[test]
fn paths_are_those_of_requests() {
    for path in ["/a", "/%41%2f%2F%25", "/%7e%c3%a9/", "/a%20b%5Cc", "/;=@:!$&'()+,%3b", "/%2A"] {
        let rule = rule(&format!("path \"{path}\"; refuse"));
        let normal = weir_http::path::normalise(path).unwrap();
        assert_eq!(rule.on.paths, [PathMatch::Exact(normal.as_str().to_owned())], "{path}");
    }
}

/// A directory with a configuration in which rules name the lists `a` and `b`.
fn with_lists(a: &str, b: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("lists")).unwrap();
    let text = format!(
        "guard {{
            list \"a\" \"lists/a.txt\"
            list \"b\" \"lists/b.txt\"
            rule \"a\" {{ from \"@a\"; refuse; }}
            rule \"both\" {{ from \"@b\" \"10.0.0.4/30\" \"@a\"; refuse; }}
            rule \"to\" {{ to \"@b\"; refuse; }}
        }}
        {SITE}"
    );
    fs::write(directory.path().join("weir.kdl"), text).unwrap();
    fs::write(directory.path().join("lists/a.txt"), a).unwrap();
    fs::write(directory.path().join("lists/b.txt"), b).unwrap();
    directory
}

fn load_errors(directory: &Path) -> Vec<(usize, usize, String)> {
    let errors = load(&directory.join("weir.kdl")).unwrap_err();
    errors.iter().map(|error| (error.line, error.column, error.message.clone())).collect()
}

#[test]
fn load_reads_lists() {
    let directory = with_lists("10.0.0.0-10.0.0.3 # some\n", "# nobody yet\n");
    let config = load(&directory.path().join("weir.kdl")).unwrap();
    let [a, both, to] = &config.guard.rules[..] else { panic!("{:?}", config.guard.rules) };
    let from = |rule: &GuardRule| rule.on.from.clone().unwrap();
    assert_eq!(from(a).ranges(), [range("10.0.0.0", "10.0.0.3")]);
    assert_eq!(from(both).ranges(), [range("10.0.0.0", "10.0.0.7")]);
    assert_eq!(from(both).lists(), ["b", "a"]);
    let to = to.on.to.clone().unwrap();
    assert!(to.ranges().is_empty() && !to.contains("10.0.0.1".parse().unwrap()));
    assert_eq!(config.guard.lists[0].addresses.ranges(), from(a).ranges());

    // Printed, a set is what it was written as; loaded again, it is the same.
    let printed = print(&config);
    assert!(printed.contains("from \"@b\" \"@a\" \"10.0.0.4/30\""), "{printed}");
    let again = directory.path().join("printed.kdl");
    fs::write(&again, &printed).unwrap();
    assert_eq!(load(&again).unwrap(), config);
    assert!(check_files(&config).is_ok());

    // Without reading, a list is one of nobody: never one of everybody.
    let unread = parse("weir.kdl", &printed).unwrap();
    assert_eq!(parse("weir.kdl", &print(&unread)).unwrap(), unread);
    let from = unread.guard.rules[0].on.from.clone().unwrap();
    assert!(!from.contains("10.0.0.1".parse().unwrap()));
}

#[test]
fn load_says_what_is_wrong_with_lists() {
    let directory = with_lists("10.0.0.0/8\n\n10.0.0.300\n1.2.3.4/33 # x\n", "::1\n");
    let file = directory.path().join("lists/b.txt");
    fs::write(&file, [b':', b':', b'1', 0xff]).unwrap();
    let errors = load_errors(directory.path());
    let places: Vec<_> = errors.iter().map(|&(line, column, _)| (line, column)).collect();
    assert_eq!(places, [(2, 22), (2, 22), (3, 22)], "{errors:?}");
    let shown = directory.path().join("lists/a.txt");
    assert_eq!(
        errors[0].2,
        format!(
            "the list of addresses ({}), line 3: \"10.0.0.300\" is no address, prefix or range",
            shown.display()
        )
    );
    assert!(
        errors[1].2.ends_with(
            "line 4: \"1.2.3.4/33\" is no address, prefix or range: the \
                                   number of bits goes from 0 to 32"
        ),
        "{errors:?}"
    );
    assert!(errors[2].2.ends_with("b.txt) is not UTF-8 text"), "{errors:?}");

    // A hole takes no room on the disk.
    let large = fs::File::create(&file).unwrap();
    large.set_len(limits::LIST_SIZE_MAX as u64 + 1).unwrap();
    fs::remove_file(&shown).unwrap();
    let errors = load_errors(directory.path());
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].2.starts_with("cannot read the list of addresses ("), "{errors:?}");
    assert!(errors[1].2.ends_with("b.txt) is larger than 64MiB"), "{errors:?}");

    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fs::write(&shown, "10.0.0.1").unwrap();
    let errors = load_errors(directory.path());
    assert!(errors.len() == 1 && errors[0].2.ends_with("b.txt) is no file"), "{errors:?}");
}

#[test]
fn lists_of_all_rules_have_a_limit() {
    // Ranges that do not touch.
    let mut lines = String::new();
    for number in 0..250_000_u32 {
        writeln!(lines, "{}", IpAddr::from((number * 2).to_be_bytes())).unwrap();
    }
    let directory = with_lists(&lines, "::1\n");
    let config = load(&directory.path().join("weir.kdl")).unwrap();
    let rules = |from: &dyn Fn(u32) -> String| {
        let rule = |number| format!("rule \"r{number}\" {{ from {}; refuse; }}\n", from(number));
        parse_rules("body", &(0..17).map(rule).collect::<String>(), &config)
    };
    // One list, and one set of two, however many rules name them.
    assert!(rules(&|_| "\"@a\"".to_owned()).is_ok());
    assert!(rules(&|_| "\"@a\" \"@b\"".to_owned()).is_ok());
    let errors = rules(&|number| format!("\"@a\" \"::{number}:1\"")).unwrap_err().to_string();
    assert!(errors.contains("come to more than 4000000 ranges; expected one of fewer"), "{errors}");
}

/// A bound far above what it takes, for slow machines and builds without optimisation.
const TIME_MAX: Duration = Duration::from_secs(20);

#[test]
fn a_list_of_100000_prefixes_is_read_in_a_moment() {
    let mut lines = String::new();
    for number in 0..100_000_u32 {
        writeln!(lines, "{}/28", IpAddr::from((number * 32).to_be_bytes())).unwrap();
    }
    let directory = with_lists(&lines, "");
    let start = std::time::Instant::now();
    let config = load(&directory.path().join("weir.kdl")).unwrap();
    let took = start.elapsed();
    println!("100,000 prefixes: {took:?}");
    assert_eq!(config.guard.rules[0].on.from.as_ref().unwrap().ranges().len(), 100_000);
    assert!(took < TIME_MAX, "{took:?}");
}

#[test]
fn a_file_of_10000_rules_is_read_in_a_moment() {
    let mut rules = String::new();
    for number in 0..10_000 {
        writeln!(
            rules,
            "rule \"r{number}\" {{ path \"/p{number}/*\"; rate 10; by \"source\"; class \"gold\"; }}"
        )
        .unwrap();
    }
    let start = std::time::Instant::now();
    let guard = guard(&format!("class \"gold\" priority=1\n{rules}"));
    let took = start.elapsed();
    println!("10,000 rules: {took:?}");
    assert_eq!(guard.rules.len(), 10_000);
    assert_eq!(guard.rules[9_999].name, "r9999");
    assert!(took < TIME_MAX, "{took:?}");
}

#[test]
fn limits_hold() {
    let shown = |inside: &str| {
        let text = format!("guard {{\n{inside}\n}}\n{SITE}");
        parse("weir.kdl", &text).unwrap_err().to_string()
    };
    let lines =
        |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let rules = lines(limits::RULES_MAX + 1, &|n| format!("rule \"{n}\" {{ refuse; }}\n"));
    assert!(shown(&rules).contains("more than 20000 rules"));
    let lists = lines(limits::LISTS_MAX + 1, &|n| format!("list \"{n}\" \"a\"\n"));
    assert!(shown(&lists).contains("more than 1000 lists"));
    let ports = lines(limits::CONDITIONS_MAX, &|n| format!(" {}", n + 1));
    let full = format!("rule \"a\" {{ port{ports}; refuse; }}");
    assert_eq!(guard(&full).rules[0].on.ports.len(), limits::CONDITIONS_MAX);
    let over = format!("rule \"a\" {{ port{ports}; method \"GET\"; refuse; }}");
    assert!(shown(&over).contains("more than 1000 values in the conditions of a rule"));
    let pattern = "y".repeat(limits::RULE_TEXT_MAX - 2);
    let rule = |n| format!("rule \"{n}\" {{ header \"x\" \"*{pattern}*\"; refuse; }}\n");
    let most = limits::PATTERNS_SIZE_MAX / limits::RULE_TEXT_MAX;
    assert_eq!(guard(&lines(most, &rule)).rules.len(), most);
    let patterns = shown(&lines(most + 1, &rule));
    assert!(patterns.contains(":258:1: patterns with a `*` are more than 1048576 bytes in all"));
    let long = "x".repeat(limits::RULE_TEXT_MAX + 1);
    for condition in [
        format!("path \"/{long}\""),
        format!("header \"x\" \"{long}\""),
        format!("query \"{long}\""),
    ] {
        let shown = shown(&format!("rule \"a\" {{ {condition}; refuse; }}"));
        assert!(shown.contains("4096 bytes"), "{shown}");
    }
}

#[test]
fn rules_of_run_time_know_the_running_configuration() {
    let directory = with_lists("10.0.0.0/24\n", "");
    let config = load(&directory.path().join("weir.kdl")).unwrap();
    let text =
        "rule \"new\" { from \"@a\" \"10.0.1.0/24\"; site \"shop.example\"; class \"default\" }
        rule \"next\" { path \"/x\"; rate 5 }";
    let rules = parse_rules("body", text, &config).unwrap();
    let names: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["new", "next"]);
    let from = rules[0].on.from.as_ref().unwrap();
    assert_eq!(
        (from.ranges(), from.lists()),
        (&[range("10.0.0.0", "10.0.1.255")][..], &texts(&["a"])[..])
    );
    assert_eq!(parse_rules("body", &print_rules(&rules), &config).unwrap(), rules);
    assert_eq!(parse_rules("body", "", &config).unwrap(), []);

    let errors = |text: &str| parse_rules("body", text, &config).unwrap_err().to_string();
    for (text, expected) in [
        ("rule \"a\" { from \"@c\"; refuse }", "body:1:17: there is no list \"c\""),
        ("rule \"a\" { class \"gold\" }", "body:1:18: there is no class \"gold\""),
        ("rule \"a\" { site \"x\"; refuse }", "body:1:17: there is no site \"x\""),
        ("rule \"a\" { site \"www.shop.example\"; refuse }", "is a further name of the site"),
        ("rule \"a\" { pass }\nrule \"a\" { refuse }", "body:2:6: there is a rule \"a\" on line 1"),
        ("guard { }", "body:1:1: only `rule` blocks stand here; expected rule \"name\" { … }"),
        ("class \"gold\" priority=1", "body:1:1: only `rule` blocks stand here"),
        ("rule {", "body:1:6: this block is never closed"),
    ] {
        assert!(errors(text).contains(expected), "{text}: {}", errors(text));
    }
}

#[test]
fn guard_blocks_of_run_time_have_lists_of_the_running_configuration() {
    let directory = with_lists("10.0.0.0/24\n", "");
    let file = directory.path().join("weir.kdl");
    let config = load(&file).unwrap();
    let name = file.to_str().unwrap();
    let text = "guard {
        list \"b\" \"lists/b.txt\"; list \"a\" \"lists/a.txt\"; class \"new\" priority=9
        rule \"x\" { from \"@a\"; site \"shop.example\"; class \"new\" }
    }";
    let guard = parse_guard(name, text, &config).unwrap();
    assert_eq!(guard.classes.len(), 2);
    assert_eq!(guard.lists, [config.guard.lists[1].clone(), config.guard.lists[0].clone()]);
    assert_eq!(guard.rules[0].on.from, config.guard.rules[0].on.from);
    assert_eq!(parse_guard(name, "guard { }", &config).unwrap(), Guard::default());

    let errors = |text: &str| parse_guard(name, text, &config).unwrap_err().to_string();
    for (text, expected) in [
        ("", "there is no `guard` block; expected guard { … }"),
        ("rule \"a\" { pass }", ":1:1: only `guard` blocks stand here"),
        ("guard { }\nguard { }", ":2:1: `guard` is already set on line 1"),
        (
            "guard { list \"a\" \"other\" }",
            ":1:18: the running configuration has no list \"a\" from",
        ),
        ("guard { rule \"a\" { from \"@a\"; refuse } }", "there is no list \"a\""),
        ("guard { rule \"a\" { site \"x\"; refuse } }", "there is no site \"x\""),
    ] {
        assert!(errors(text).contains(expected), "{text}: {}", errors(text));
    }
}
