//! A plugin that fails again and again rests, longer each time, and comes back.

use std::time::{Duration, Instant};

use crate::bystanders::undisturbed;
use crate::common::{PATIENCE, wait_for};
use crate::site::{Site, setup};
use crate::wasm::{own, proxy_wasm};
use crate::{GOOD_ROUTES, good};

fn state(site: &Site, state: &str) -> bool {
    let line = format!("weir_plugin_state{{plugin=\"bad\",state=\"{state}\"}}");
    site.metric(&line) == Some(1.0)
}

fn failing() -> [(&'static str, String); 2] {
    let own = own(r#"(func (export "weir_on_request") (param i32) (result i64)
      (if (call $target (local.get 0) @{/q/bad}) (then (unreachable))) (i64.const 0))
      (func (export "weir_on_response") (param i32) (result i64) @edits{SET x-bad=1})"#);
    let wasm = proxy_wasm(
        r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (call $path @{/q/bad}) (then (unreachable))) (i32.const 0))
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $proxy_add_header_map_value (i32.const 2) @{x-bad} @{1})) (i32.const 0))"#,
    );
    [("own", own), ("proxy-wasm", wasm)]
}

#[test]
fn a_plugin_that_fails_rests_and_comes_back() {
    for (name, module) in failing() {
        for (policy, failed, resting) in [("pass", 200, 200), ("fail", 500, 503)] {
            let lines = format!(
                "on-failure \"{policy}\"; quarantine failures=3 window=\"1s\" back-off=\"300ms\" back-off-max=\"2s\""
            );
            let site =
                setup().plugin("good", &good(), "").plugin("bad", &module, &lines).run(&format!(
                    "{GOOD_ROUTES} route \"/q/*\" {{ respond \"q\"; use \"bad\"; use \"good\"; }}"
                ));
            undisturbed(&site, || quarantine(&site, name, failed, resting));
        }
    }
}

fn quarantine(site: &Site, name: &str, failed: u16, resting: u16) {
    let is_active = || wait_for(PATIENCE, || state(site, "active").then_some(())).is_some();
    assert_eq!(site.get("/q/a", &[]).header("x-bad"), Some("1"), "{name}");
    let rest = |failures: usize| {
        for n in 0..failures {
            let got = site.get("/q/bad", &[]);
            // The instance may just be coming back.
            assert!([failed, resting].contains(&got.status), "{name} {n}: {}", got.status);
        }
        let began = Instant::now();
        let rests = wait_for(PATIENCE, || site.weir.log().contains("quarantine").then_some(()));
        assert!(rests.is_some(), "{name}: {}", site.weir.log());
        // While it rests, requests do without it, or are refused.
        let got = site.get("/q/a", &[]);
        if began.elapsed() < Duration::from_millis(250) {
            assert_eq!(got.status, resting, "{name}");
            assert_eq!(got.header("x-bad"), None, "{name}");
            let retry_after = (resting == 503).then_some("1");
            assert_eq!(got.header("retry-after"), retry_after, "{name}");
        }
        let back = wait_for(PATIENCE, || {
            let got = site.get("/q/a", &[]);
            (got.status == 200 && got.header("x-bad").is_some()).then_some(())
        });
        assert!(back.is_some(), "{name} never comes back");
        began.elapsed()
    };
    let first = rest(3);
    assert!(first >= Duration::from_millis(150), "{name}: {first:?}");
    // One more failure is enough now, and costs twice as much.
    let second = rest(1);
    assert!(second >= Duration::from_millis(450), "{name}: {first:?}, then {second:?}");
    assert!(is_active(), "{name}");
    assert_eq!(site.weir.log().matches("plugin is back").count(), 2, "{name}");
}
