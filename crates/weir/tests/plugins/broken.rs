//! Plugins that cannot be brought back after a restart, and a server that starts all the same.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::bystanders::undisturbed;
use crate::site::{Site, setup};
use crate::wasm::own;
use crate::{GOOD_ROUTES, good};

fn start(store: &TempDir) -> Site {
    let block = format!("plugins {{ store \"{}\"; }}", store.path().join("store").display());
    let routes = format!("{GOOD_ROUTES} route \"/strict\" {{ respond \"strict\"; }}");
    setup().plugin("good", &good(), "").block(&block).run(&routes)
}

fn marking(mark: &str) -> String {
    own(&format!(
        r#"(func (export "weir_on_response") (param i32) (result i64) @edits{{SET x-mark={mark}}})"#
    ))
}

fn done(site: &Site, method: &str, path: &str, module: &str) {
    let (status, said) = site.manage(method, path, module.as_bytes());
    assert_eq!(status, 200, "{method} {path}: {said}");
}

fn show(site: &Site, name: &str) -> Value {
    serde_json::from_str(&site.manage("GET", &format!("/plugins/{name}"), b"").1).unwrap()
}

#[test]
fn a_lost_module_stops_its_plugin_and_not_the_server() {
    let store = TempDir::new().unwrap();
    let mut site = start(&store);
    done(&site, "POST", "/plugins/gentle?route=/spare", &marking("1"));
    done(&site, "POST", "/plugins/strict?route=/strict&on-failure=fail", &marking("2"));
    site.weir.stop();
    for module in fs::read_dir(store.path().join("store/modules")).unwrap() {
        fs::remove_file(module.unwrap().path()).unwrap();
    }
    // What has a block is made anew from it.
    let mut site = start(&store);
    undisturbed(&site, || {
        let got = site.get("/spare", &[]);
        assert_eq!((got.status, got.header("x-mark")), (200, None));
        assert_eq!(site.get("/strict", &[]).status, 500);
        let shown = show(&site, "strict");
        assert_eq!(shown["state"], "broken");
        assert!(shown["broken"].as_str().unwrap().contains("the module is gone"), "{shown}");
        let state = "weir_plugin_state{plugin=\"gentle\",state=\"broken\"}";
        assert_eq!(site.metric(state), Some(1.0));
        site.weir.wait_for_log("plugin is broken");
        done(&site, "POST", "/plugins/strict", &marking("2"));
        let got = site.get("/strict", &[]);
        assert_eq!((got.status, got.header("x-mark")), (200, Some("2")));
        done(&site, "DELETE", "/plugins/gentle", "");
    });
    site.weir.stop();
    // One that is there, and does not start any more.
    let manifest = store.path().join("store/deployments.json");
    let all: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let mut changed = all.clone();
    changed["plugins"]["strict"]["active"]["policy"]["memory"] = 65_536.into();
    fs::write(&manifest, changed.to_string()).unwrap();
    let site = start(&store);
    let shown = show(&site, "strict");
    assert_eq!(shown["state"], "broken");
    assert!(shown["broken"].as_str().unwrap().contains("does not start: memory"), "{shown}");
    assert_eq!((site.get("/strict", &[]).status, site.get("/spare", &[]).status), (500, 200));
}
