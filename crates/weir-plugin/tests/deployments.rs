//! Deploying, going back, removing, configuring: with real modules, without a server.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{Host, idle, module, trapping, wait_for};
use weir_config::At;
use weir_plugin::{Attachment, Code, Deployment, PluginError, State};

#[test]
fn a_plugin_serves_from_the_moment_it_is_deployed() {
    let host = Host::new();
    assert!(host.plugins.list().is_empty());
    let deployed = host.deploy("gray", &idle(1)).unwrap();
    assert_eq!((deployed.generation, deployed.state, deployed.kept), (1, "active", false));
    assert_eq!((deployed.code, &*deployed.abi), (Code::Compiled, "weir 1"));
    assert_eq!(deployed.routes, ["every route"]);
    assert!(host.pass("gray").failure.is_none());
    let all = host.plugins.list();
    assert_eq!(all.len(), 1);
    assert_eq!((&*all[0].name, all[0].state, all[0].generation), ("gray", State::Active, Some(1)));
    assert_eq!((all[0].counted.streams, all[0].counted.calls), (1, 1));
    // A worker and two threads for long calls, 4 pages each.
    assert_eq!(all[0].memory_bytes, 3 * 4 * 65536);
    assert_eq!(host.plugins.attachments(), [("gray".to_owned(), Attachment::default())]);

    let second = host.deploy("gray", &idle(2)).unwrap();
    assert_eq!(second.generation, 2);
    assert_ne!(second.digest, deployed.digest);
    assert_eq!(host.active("gray").number(), 2);
    let again = host.deploy("gray", &idle(2)).unwrap();
    assert_eq!((again.generation, again.code, again.digest), (3, Code::Shared, second.digest));
    assert_eq!(
        host.plugins.plugin("gray").unwrap().totals().stats.streams,
        1,
        "of all generations"
    );
}

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    let host = Host::new();
    host.deploy("gray", &idle(1)).unwrap();
    let check = |name: &str, module: &str, word: &str| {
        let error = host.deploy(name, module).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!(host.active("gray").number(), 1);
        assert_eq!(host.plugins.list().len(), 1);
    };
    check("../gray", &idle(2), "\"../gray\" is no name of a plugin: expected 1 to 64 letters");
    check("gray", "(module", "plugin \"gray\": not a WebAssembly module");
    check("gray", "(module)", "speaks no interface");
    check("other", "(module)", "plugin \"other\"");
    let importing = idle(3).replacen("(memory", "(import \"env\" \"moon\" (func)) (memory", 1);
    check("gray", &importing, "imports what Weir does not have: env.moon");
    check("gray", &module(4, "(i64.const 0)", "unreachable"), "does not start: trap");
    check("gray", &module(5, "(i64.const 0)", "(i32.const 7)"), "with 7");
    let on = |route: &str| {
        let route = route.parse().unwrap();
        let wanted = Deployment { routes: vec![route], ..Deployment::new("gray", idle(6)) };
        host.plugins.deploy(wanted).unwrap_err().to_string()
    };
    assert_eq!(on("/c/*"), "no route is \"/c/*\"; the routes are a.example/*, a.example/b/*");
    assert!(on("b.example/b/*").starts_with("no route is \"b.example/b/*\""));
    assert!(host.pass("gray").failure.is_none());
    for error in [host.plugins.rollback("moon").map(drop), host.plugins.remove("moon").map(drop)] {
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "no plugin is called \"moon\"; there are gray");
    }
}

#[test]
fn what_is_left_out_is_as_it_was() {
    let host = Host::new();
    let mut first = Deployment::new("gray", idle(1));
    first.config = Some("{}".to_owned());
    first.edits.cpu_ms = Some(7);
    first.routes = vec![Attachment { at: At::Fill, ..("/b/*".parse().unwrap()) }];
    let deployed = host.plugins.deploy(first).unwrap();
    assert_eq!(deployed.routes, ["/b/* (at fill)"]);
    host.deploy("gray", &idle(2)).unwrap();
    let shown = host.plugins.show("gray").unwrap();
    assert_eq!((&*shown.config, shown.policy.cpu.as_millis()), ("{}", 7));
    assert_eq!(shown.summary.routes, ["/b/* (at fill)"]);
    let mut third = Deployment::new("gray", idle(3));
    third.edits.memory = Some(1 << 20);
    third.config = Some(String::new());
    host.plugins.deploy(third).unwrap();
    let shown = host.plugins.show("gray").unwrap();
    assert_eq!((&*shown.config, shown.policy.cpu.as_millis()), ("", 7));
    assert_eq!(shown.policy.memory, 1 << 20);
    let generations: Vec<u64> = shown.history.iter().map(|entry| entry.generation).collect();
    assert_eq!(generations, [2, 1]);
}

#[test]
fn a_rollback_goes_back_one_deployment_at_a_time() {
    let host = Host::new();
    let told = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&told);
    host.plugins.on_change(Box::new(move || {
        counter.fetch_add(1, Relaxed);
    }));
    let digests: Vec<String> =
        (1..=8).map(|mark| host.deploy("gray", &idle(mark)).unwrap().digest).collect();
    let mut back: Vec<String> = Vec::new();
    let error = loop {
        match host.plugins.rollback("gray") {
            Ok(deployed) => {
                // Without a store the code is still in memory.
                assert_eq!((deployed.state, deployed.code), ("active", Code::Shared));
                assert_eq!(host.active("gray").number(), deployed.generation);
                back.push(deployed.digest);
            }
            Err(error) => break error,
        }
    };
    // Five are kept.
    assert_eq!(back, digests[2..7].iter().rev().cloned().collect::<Vec<_>>());
    assert!(matches!(error, PluginError::NothingBefore { .. }), "{error}");
    assert_eq!(host.active("gray").number(), 13, "numbers only count up");
    assert!(host.pass("gray").failure.is_none());
    assert_eq!(told.load(Relaxed), 13);
    host.plugins.remove("gray").unwrap();
    assert!(host.plugins.plugin("gray").is_none() && host.plugins.attachments().is_empty());
    assert_eq!(told.load(Relaxed), 14);
}

#[test]
fn requests_finish_on_the_generation_they_began_with() {
    let host = Host::new();
    host.deploy("gray", &idle(1)).unwrap();
    let old = Arc::downgrade(&host.active("gray"));
    let streams: Vec<_> = (0..10).map(|_| host.open("gray").unwrap()).collect();
    host.deploy("gray", &trapping(2)).unwrap();
    assert_eq!(host.plugins.show("gray").unwrap().draining, 1);
    for stream in &streams {
        assert!(host.show(stream).failure.is_none());
        assert_eq!(stream.generation().number(), 1);
    }
    assert!(host.pass("gray").failure.is_some(), "new ones are on the new one");
    assert!(old.upgrade().is_some());
    drop(streams);
    assert!(wait_for(|| old.upgrade().is_none()), "the last one out frees it");
    assert_eq!(host.plugins.show("gray").unwrap().draining, 0);
    let totals = host.plugins.plugin("gray").unwrap().totals();
    assert_eq!((totals.stats.streams, totals.stats.failed()), (11, 1));

    // Removed with a request on it.
    let stream = host.open("gray").unwrap();
    let generation = Arc::downgrade(stream.generation());
    host.plugins.remove("gray").unwrap();
    assert!(generation.upgrade().is_some());
    drop(stream);
    assert!(wait_for(|| generation.upgrade().is_none()));
}

#[test]
fn the_configuration_deploys_changes_and_removes() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (gray, other) = (file("gray.wat", &idle(1)), file("other.wat", &idle(2)));
    let block = |name: &str, source: &str, more: &str| {
        format!("plugin \"{name}\" {{ source {source:?}; {more}\n}}\n")
    };
    let both = block("gray", &gray, "") + &block("other", &other, "config \"x\"");
    let host = Host::with(&both, "use \"gray\"").unwrap();
    let numbers = || (host.active("gray").number(), host.active("other").number());
    assert_eq!(numbers(), (1, 2));
    let shown = host.plugins.show("gray").unwrap();
    assert_eq!(shown.summary.routes, ["a.example/*"]);
    assert!(shown.summary.configured && !shown.summary.deployed);
    let shown = host.plugins.show("other").unwrap();
    assert_eq!((&*shown.config, shown.summary.routes.len()), ("x", 0), "no route uses it");
    assert!(host.plugins.attachments().is_empty());

    host.reload(&both, "use \"gray\"").unwrap();
    assert_eq!(numbers(), (1, 2), "nothing has changed");
    let changed = block("gray", &gray, "") + &block("other", &other, "config \"y\"");
    host.reload(&changed, "use \"gray\"").unwrap();
    assert_eq!(numbers(), (1, 3), "one has");

    // What is deployed over a block stays until the block changes, or the module that it names.
    let deployed = host.deploy("gray", &idle(3)).unwrap();
    assert_eq!((deployed.generation, &deployed.routes[..]), (4, &["a.example/*".to_owned()][..]));
    host.reload(&changed, "use \"gray\"").unwrap();
    assert_eq!(numbers(), (4, 3));
    file("gray.wat", &idle(4));
    host.reload(&changed, "use \"gray\"").unwrap();
    assert_eq!(numbers(), (5, 3));

    // One that fails leaves all as they were.
    let bad = file("bad.wat", "(module)");
    let broken = block("gray", &gray, "config \"z\"") + &block("other", &bad, "");
    let error = host.reload(&broken, "use \"gray\"").unwrap_err().to_string();
    assert!(error.contains("plugin \"other\": the module speaks no interface"), "{error}");
    assert_eq!(numbers(), (5, 3));
    let error = host.reload(&changed, "use \"moon\"").unwrap_err().to_string();
    assert_eq!(
        error,
        "route \"a.example/*\" uses the plugin \"moon\", which is neither in the configuration nor \
         deployed; the plugins are gray, other"
    );
    let missing = block("gray", "/nowhere.wasm", "");
    let error = host.reload(&missing, "").unwrap_err().to_string();
    assert!(error.contains("cannot read its module /nowhere.wasm: No such file"), "{error}");

    // What the configuration names is not removed by hand.
    host.deploy("third", &idle(5)).unwrap();
    host.reload(&block("gray", &gray, ""), "use \"third\"").unwrap();
    assert!(host.plugins.plugin("other").is_none(), "its block is gone");
    assert_eq!(host.plugins.show("third").unwrap().summary.routes, ["a.example/*"]);
    for (name, word) in [("gray", "it has a block there"), ("third", "a.example/* uses it")] {
        let error = host.plugins.remove(name).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    host.reload("", "use \"third\"").unwrap();
    host.reload("", "").unwrap();
    host.plugins.remove("third").unwrap();
    assert!(host.plugins.list().is_empty());
}
