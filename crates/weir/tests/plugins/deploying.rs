//! What a deployment may say, and what becomes of one whose route or upstream is gone.

use tempfile::TempDir;

use crate::site::{Site, setup};
use crate::wasm::own;

const MARKS: &str =
    r#"(func (export "weir_on_response") (param i32) (result i64) @edits{SET x-mark=1})"#;

fn deploy(site: &Site, parameters: &str, module: &str) -> (u16, serde_json::Value) {
    let (status, said) =
        site.manage("POST", &format!("/plugins/p?{parameters}"), module.as_bytes());
    (status, serde_json::from_str(&said).unwrap())
}

fn shown(site: &Site) -> serde_json::Value {
    serde_json::from_str(&site.manage("GET", "/plugins/p", b"").1).unwrap()
}

fn is_marked(site: &Site, target: &str) -> bool {
    site.get(target, &[]).header("x-mark").is_some()
}

#[test]
fn a_policy_is_taken_as_a_whole_or_not_at_all() {
    let site = setup()
        .block("upstream \"app\" { server \"http://127.0.0.1:1\"; }")
        .run("route \"/*\" { respond \"in\"; }");
    let module = own(MARKS);
    for (parameters, word) in [
        ("policy={%22bogus%22:1}", "a policy has no \"bogus\"; there are allow, cpu_ms,"),
        ("policy={%22on-failure%22:%22fail%22}", "a policy has no \"on-failure\"; there are"),
        ("policy={%22allow%22:{%22upstream%22:{}}}", "\"allow\" of a policy has no \"upstream\""),
        ("policy={%22cpu_ms%22:%225ms%22}", "policy: "),
        ("allow-upstream=nope", "no upstream is called \"nope\"; the upstreams are app"),
        (
            "policy={%22allow%22:{%22upstreams%22:{%22these%22:[%22nope%22]}}}",
            "no upstream is called \"nope\"",
        ),
    ] {
        let (status, said) = deploy(&site, parameters, &module);
        let said = said["error"].as_str().unwrap().to_owned();
        assert!(status == 400 && said.contains(word), "{parameters}: {status} {said}");
    }
    assert_eq!(site.manage("GET", "/plugins/p", b"").0, 404, "nothing was deployed");
    for parameters in [
        "policy={%22on_failure%22:%22fail%22,%22allow%22:{%22upstreams%22:{%22these%22:[%22app%22]}}}",
        "policy={%22allow%22:{%22upstreams%22:%22all%22}}",
        "allow-upstream=app",
        "allow-upstream=*",
        "allow-upstream=",
    ] {
        let (status, said) = deploy(&site, parameters, &module);
        assert_eq!(status, 200, "{parameters}: {said}");
    }
    // What is shown can be given back.
    let policy = shown(&site)["policy"].to_string().replace('"', "%22");
    assert_eq!(deploy(&site, &format!("policy={policy}"), &module).0, 200);
}

#[test]
fn a_route_that_is_gone_is_told_of() {
    let directory = TempDir::new().unwrap();
    let store = format!("plugins {{ store \"{}\"; }}", directory.path().join("store").display());
    let old = "route \"/old/*\" { respond \"old\"; }\nroute \"/*\" { respond \"in\"; }";
    let new = "route \"/new/*\" { respond \"new\"; }\nroute \"/*\" { respond \"in\"; }";
    let line = "a plugin was deployed on a route that the configuration does not have any more";
    let is_missing = |site: &Site| {
        let shown = shown(site);
        assert_eq!(shown["routes"], serde_json::json!(["/old/* (no such route)"]), "{shown}");
        assert_eq!(shown["missing_routes"], serde_json::json!(["/old/*"]), "{shown}");
    };
    let site = setup().block(&store).run(old);
    assert_eq!(deploy(&site, "route=/old/*", &own(MARKS)).0, 200);
    assert!(is_marked(&site, "/old/a") && !is_marked(&site, "/a"));
    assert_eq!(shown(&site)["missing_routes"], serde_json::json!([]));
    // A reload.
    assert_eq!(site.reload("", new).0, 200);
    site.weir.wait_for_log(line);
    is_missing(&site);
    assert!(!is_marked(&site, "/old/a"));
    assert_eq!(site.reload("", old).0, 200);
    assert!(is_marked(&site, "/old/a"));
    drop(site);
    // A restart.
    let site = setup().block(&store).run(new);
    site.weir.wait_for_log(line);
    is_missing(&site);
}
