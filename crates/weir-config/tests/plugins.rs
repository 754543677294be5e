//! What configurations of plugins mean: every setting, files on disk, policies kept as JSON.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_config::*;

const FULL: &str = r##"
upstream "auth" { server "http://127.0.0.1:1"; }
plugins { store "/var/lib/weir/plugins"; long-threads 5; }
plugin "gray" {
    source "plugins/gray.wasm"
    config #"{"depth": 8}"#
    vm-config "not JSON"
    root-id "add_header"
    limits cpu="5ms" memory="16MiB" tables=10 long="2ms" log=7
    on-failure "fail"
    quarantine failures=3 window="1m" back-off="2s" back-off-max="1h"
    allow {
        upstreams "auth"; shared "*"; bodies "response"; cache; log #false
        environment "LANG" "C"; environment "A" ""
    }
}
plugin "shy" { source "/opt/shy.wat"; allow { upstreams "*"; shared "a" "b/ c"; bodies "none"; } }
site "*" {
    listen ":8080"
    route "/*" { files "srv"; use "gray"; use "of-run-time" at="delivery"; use "gray" at="fill"; }
}
"##;

fn parse_ok(text: &str) -> Config {
    parse("/etc/weir/weir.kdl", text).unwrap_or_else(|errors| panic!("{errors}\n\nin:\n{text}"))
}

fn names(names: &[&str]) -> Names {
    Names::These(names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn every_setting_of_plugins() {
    let config = parse_ok(FULL);
    let store = Some(PathBuf::from("/var/lib/weir/plugins"));
    assert_eq!(config.plugin_settings, Plugins { store, long_threads: 5 });
    let text = |text: &str| text.to_owned();
    let policy = PluginPolicy {
        cpu: Duration::from_millis(5),
        memory: 16 << 20,
        tables: 10,
        long: Duration::from_millis(2),
        log_per_s: 7,
        on_failure: OnFailure::Fail,
        quarantine: Quarantine {
            failures: 3,
            window: Duration::from_secs(60),
            back_off: Duration::from_secs(2),
            back_off_max: Duration::from_secs(3600),
        },
        allow: Allow {
            upstreams: names(&["auth"]),
            shared: Names::All,
            request_body: false,
            response_body: true,
            cache: true,
            log: false,
            environment: vec![(text("LANG"), text("C")), (text("A"), text(""))],
        },
    };
    let gray = Plugin {
        name: text("gray"),
        source: "/etc/weir/plugins/gray.wasm".into(),
        config: text("{\"depth\": 8}"),
        vm_config: text("not JSON"),
        root_id: Some(text("add_header")),
        policy,
    };
    let allow = Allow {
        upstreams: Names::All,
        shared: names(&["a", "b/ c"]),
        request_body: false,
        response_body: false,
        ..Allow::default()
    };
    let shy = Plugin {
        name: text("shy"),
        source: "/opt/shy.wat".into(),
        config: String::new(),
        vm_config: String::new(),
        root_id: None,
        policy: PluginPolicy { allow, ..PluginPolicy::default() },
    };
    assert_eq!(config.plugins, [gray, shy]);
    let line = |plugin: &str, at| Use { plugin: plugin.to_owned(), at };
    assert_eq!(
        config.sites[0].routes[0].plugins,
        [line("gray", At::Delivery), line("of-run-time", At::Delivery), line("gray", At::Fill)]
    );
    assert_eq!(parse_ok(&print(&config)), config);
}

#[test]
fn names_are_all_or_these() {
    assert!(Names::All.contains("a") && names(&["a", "b"]).contains("b"));
    assert!(!names(&["a"]).contains("*") && !Names::default().contains(""));
}

/// What is kept with a deployment must be read by later versions, whatever they add.
#[test]
fn policies_are_json() {
    let policies: Vec<PluginPolicy> =
        parse_ok(FULL).plugins.into_iter().map(|plugin| plugin.policy).collect();
    let json = serde_json::to_value(&policies).unwrap();
    assert_eq!(
        json[0],
        serde_json::json!({
            "cpu_ms": 5, "memory": 16 << 20, "tables": 10, "long_ms": 2, "log_per_s": 7,
            "on_failure": "fail",
            "quarantine": {
                "failures": 3, "window_ms": 60_000, "back_off_ms": 2_000,
                "back_off_max_ms": 3_600_000,
            },
            "allow": {
                "upstreams": { "these": ["auth"] }, "shared": "all", "request_body": false,
                "response_body": true, "cache": true, "log": false,
                "environment": [["LANG", "C"], ["A", ""]],
            },
        })
    );
    assert_eq!(serde_json::from_value::<Vec<PluginPolicy>>(json).unwrap(), policies);
    let sparse = serde_json::json!({ "cpu_ms": 9, "allow": { "cache": true }, "of_later": 1 });
    let allow = Allow { cache: true, ..Allow::default() };
    let cpu = Duration::from_millis(9);
    let expected = PluginPolicy { cpu, allow, ..PluginPolicy::default() };
    assert_eq!(serde_json::from_value::<PluginPolicy>(sparse).unwrap(), expected);
}

/// A configuration with two plugins that take their configurations from files.
const WITH_FILES: &str = "plugins { store \"state/plugins\"; }
plugin \"a\" { source \"a.wasm\"; config \"of a\"; }
plugin \"b\" { source \"b.wasm\"; config-file \"b.json\"; }
plugin \"c\" { source \"b.wasm\"; config-file \"c.json\"; }
site \"*\" { listen \":0\"; route \"/*\" { respond \"\"; }; }
";

fn load_errors(path: &Path) -> Vec<(usize, usize, String)> {
    let errors = load(path).unwrap_err();
    errors.iter().map(|error| (error.line, error.column, error.message.clone())).collect()
}

#[test]
fn load_reads_the_files_of_plugins() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("weir.kdl"), WITH_FILES).unwrap();
    let errors = load_errors(&at("weir.kdl"));
    let places: Vec<_> = errors.iter().map(|&(line, column, _)| (line, column)).collect();
    assert_eq!(places, [(1, 17), (2, 21), (3, 21), (3, 43), (4, 21), (4, 43)], "{errors:?}");
    let about = |position: usize, what: &str| errors[position].2.starts_with(what);
    assert!(about(0, "cannot read the store's directory"), "{errors:?}");
    assert!(about(1, "cannot read the plugin's module"), "{errors:?}");
    assert!(about(3, "cannot read the plugin's configuration"), "{errors:?}");

    fs::create_dir(at("state")).unwrap();
    fs::write(at("a.wasm"), "").unwrap();
    fs::write(at("b.wasm"), "").unwrap();
    fs::write(at("b.json"), [b'a', 0xff]).unwrap();
    fs::write(at("c.json"), "x".repeat(limits::PLUGIN_CONFIG_MAX + 1)).unwrap();
    let errors = load_errors(&at("weir.kdl"));
    assert_eq!((errors[0].0, errors[0].1, errors[1].0, errors.len()), (3, 43, 4, 2));
    assert!(errors[0].2.ends_with("is not UTF-8 text"), "{errors:?}");
    assert!(errors[1].2.ends_with("is larger than 1MiB"), "{errors:?}");

    fs::remove_file(at("c.json")).unwrap();
    fs::create_dir(at("c.json")).unwrap();
    fs::write(at("b.json"), "{ \"of\": \"b\" }\n").unwrap();
    let errors = load_errors(&at("weir.kdl"));
    assert!(errors.len() == 1 && errors[0].2.ends_with("is no file"), "{errors:?}");

    fs::remove_dir(at("c.json")).unwrap();
    let largest = "x".repeat(limits::PLUGIN_CONFIG_MAX);
    fs::write(at("c.json"), &largest).unwrap();
    let config = load(&at("weir.kdl")).unwrap();
    let configs: Vec<&str> = config.plugins.iter().map(|plugin| &*plugin.config).collect();
    assert_eq!(configs, ["of a", "{ \"of\": \"b\" }\n", &largest]);
    assert_eq!(config.plugin_settings.store, Some(at("state/plugins")));
    assert_eq!(config.plugins[0].source, at("a.wasm"));
    assert_eq!(parse_ok(&print(&config)), config);
    check_files(&config).unwrap();
    fs::remove_file(at("a.wasm")).unwrap();
    assert!(check_files(&config).unwrap_err().to_string().contains("a.wasm"));
}

#[test]
fn parse_reads_no_files() {
    assert_eq!(parse_ok(WITH_FILES).plugins[1].config, "");
}
