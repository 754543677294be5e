//! What a deployment may say, and what becomes of one whose route or upstream is gone.

use tempfile::TempDir;

use crate::site::{Site, setup, text};
use crate::wasm::{own, proxy_wasm};

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

/// Answers with what the property `plugin_root_id` is when the plugin's own context is created, and
/// with the one during a request.
fn tells_root_id() -> String {
    proxy_wasm(
        r#"(global $at (mut i32) (i32.const 0))
        (global $size (mut i32) (i32.const 0))
        (func (export "proxy_on_context_create") (param i32 i32)
          (if (i32.eqz (local.get 1)) (then
            (drop (call $proxy_get_property @{plugin_root_id} (i32.const 512) (i32.const 516)))
            (global.set $at (i32.load (i32.const 512)))
            (global.set $size (i32.load (i32.const 516))))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_get_property @{plugin_root_id} (i32.const 512) (i32.const 516)))
          (if (i32.ne (i32.load (i32.const 516)) (global.get $size)) (then unreachable))
          (if (i32.eqz (call $same (i32.load (i32.const 512)) (global.get $at)
                                   (global.get $size))) (then unreachable))
          (call $answer (i32.const 200) (global.get $at) (global.get $size))
          (i32.const 1))"#,
    )
}

#[test]
fn a_plugin_has_the_root_id_that_it_registers_by() {
    let directory = TempDir::new().unwrap();
    let store = format!("plugins {{ store \"{}\"; }}", directory.path().join("store").display());
    let module = tells_root_id();
    let fail = "on-failure \"fail\"";
    let start = |lines: &str| {
        setup()
            .block(&store)
            .plugin("a", &module, fail)
            .plugin("b", &module, &format!("{fail}; {lines}"))
            .run(
                r#"route "/a" { respond ""; use "a"; }
                route "/b" { respond ""; use "b"; }
                route "/p" { respond ""; }"#,
            )
    };
    let site = start("root-id \"add_header\"");
    assert_eq!(text(&site.get("/a", &[])), "a");
    assert_eq!(text(&site.get("/b", &[])), "add_header");
    let id = |site: &Site| text(&site.get("/p", &[])).to_owned();
    for (parameters, expect) in [
        ("route=/p&on-failure=fail", "p"),
        ("root-id=my%20root", "my root"),
        // As it was.
        ("cpu=20ms", "my root"),
        ("root-id=", ""),
        ("root-id=kept", "kept"),
    ] {
        let (status, said) = deploy(&site, parameters, &module);
        assert_eq!((status, &*id(&site)), (200, expect), "{parameters}: {said}");
    }
    assert_eq!(shown(&site)["root_id"], "kept");
    assert_eq!(site.manage("POST", "/plugins/p/rollback", b"{}").0, 200);
    assert_eq!(id(&site), "");
    assert_eq!(site.manage("POST", "/plugins/p/rollback", b"{}").0, 200);
    assert_eq!(id(&site), "my root");
    drop(site);
    let site = start("root-id \"another\"");
    assert_eq!(id(&site), "my root");
    assert_eq!(text(&site.get("/b", &[])), "another");
}
