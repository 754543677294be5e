//! Rules that are tried before they refuse: what operators see of them.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use common::client::ask;
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use serde_json::Value;

#[test]
fn what_a_rule_would_refuse_is_seen_everywhere() {
    let (address, admin) = (free_address(), free_address());
    let config = format!(
        "server {{ workers 2; admin \"{admin}\"; }}\n\
         guard {{\n\
         rule \"few\" {{ path \"/few\"; rate 1 burst=2 per=\"hour\"; always; dry-run; }}\n\
         rule \"local\" {{ from \"127.0.0.0/8\"; refuse; always; dry-run; }}\n\
         rule \"none\" {{ path \"/none\"; refuse; always; }}\n}}\n\
         site \"a.example\" {{\nlisten \"{address}\"\n\
         access-log \"access.log\" format=\"json\"\nroute \"/*\" {{ respond \"hello\"; }}\n}}\n"
    );
    let weir = Weir::run(&config, &[address, admin]);
    let status = |path: &str| ask(address, "GET", path, &[("Host", "a.example")]).status;
    assert_eq!([(); 5].map(|()| status("/few")), [200; 5]);
    assert_eq!(status("/none"), 503);

    let log = weir.directory().join("access.log");
    let lines = wait_for(PATIENCE, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        (text.lines().count() == 6).then_some(text)
    });
    let lines: Vec<Value> =
        lines.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_few = lines.iter().filter(|line| line["dry_run"] == "few").count();
    assert_eq!(of_few, 3, "{lines:?}");
    let (tried, refused) = lines.iter().partition::<Vec<_>, _>(|line| line["status"] == 200);
    assert!(tried.iter().all(|line| line["refused"].is_null() && line["rule"].is_null()));
    assert_eq!((&refused[0]["rule"], &refused[0]["dry_run"]), (&"none".into(), &Value::Null));

    let page = |path: &str| {
        let response = ask(admin, "GET", path, &[("Host", "127.0.0.1")]);
        String::from_utf8(response.body.clone()).unwrap()
    };
    let metrics = page("/metrics");
    for sample in [
        "weir_guard_rule_total{rule=\"few\",result=\"met\"} 5",
        "weir_guard_rule_total{rule=\"few\",result=\"dry-run\"} 3",
        "weir_guard_rule_total{rule=\"none\",result=\"refused\"} 1",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "no {sample} in\n{metrics}");
    }
    assert!(!metrics.contains("rule=\"few\",result=\"rate\""));
    assert!(!metrics.contains("rule=\"none\",result=\"dry-run\""));
    let guard: Value = serde_json::from_str(&page("/guard")).unwrap();
    let [few, local, none] = [0, 1, 2].map(|rule| &guard["rules"][rule]["dry_run"]);
    assert_eq!((few, none), (&3.into(), &Value::Null));
    // In the kernel or after accept: every connection to the site, those of the test's start too.
    assert!(local.as_u64().is_some_and(|count| count >= 6), "{guard}");
    assert_eq!(
        (&guard["connections_reset"], &guard["penalties"]["in_force"]),
        (&0.into(), &0.into())
    );

    let cli = |arguments: &[&str]| {
        let admin = admin.to_string();
        let arguments = [arguments, &["--admin", &admin]].concat();
        String::from_utf8(command(weir.directory(), &arguments).stdout).unwrap()
    };
    assert!(cli(&["guard", "status"]).contains("  dry run: 3 would be refused\n"));
    let told = cli(&["guard", "test", "GET http://a.example/few"]);
    let expected = "+ few    matches: 0 tokens left; WOULD REFUSE, but is a dry run\n";
    assert!(told.contains(expected) && told.contains("outcome   admitted"), "{told}");
}
