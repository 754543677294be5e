//! Deployments outlive the process where there is a store.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Host, idle, module, store_block, wait_for};
use weir_config::OnFailure;
use weir_plugin::{CanaryPlan, Code, Deployment, FailureKind, State};

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// One process after the other: the store is given up with the last clone.
fn restart(host: Host, store: &Path) -> Host {
    drop(host);
    start(store)
}

/// Starts over the store, once whoever was dropped lets go of it.
fn start(store: &Path) -> Host {
    let mut next = None;
    wait_for(|| {
        next = Host::at(store).ok();
        next.is_some()
    });
    next.unwrap_or_else(|| Host::at(store).unwrap())
}

#[test]
fn a_restart_needs_no_compiler() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    let mut wanted = Deployment::new("gray", idle(1));
    wanted.config = Some("one".to_owned());
    wanted.edits.cpu_ms = Some(7);
    wanted.routes = vec!["/b/*".parse().unwrap()];
    let first = host.plugins.deploy(wanted).unwrap();
    assert!(first.kept);
    let second = host.deploy("gray", &idle(2)).unwrap();
    host.deploy("other", &idle(3)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&store), mode(&store.join("deployments.json"))), (0o700, 0o600));

    let host = restart(host, &store);
    let shown = host.plugins.show("gray").unwrap();
    assert_eq!(shown.code, Code::Loaded, "not compiled");
    assert_eq!((shown.summary.generation, shown.summary.digest), (Some(2), Some(second.digest)));
    assert_eq!((&*shown.config, shown.policy.cpu.as_millis()), ("one", 7));
    assert_eq!((shown.summary.kept, &shown.summary.routes[..]), (true, &["/b/*".to_owned()][..]));
    assert!(host.pass("gray").failure.is_none());
    assert_eq!(host.active("other").number(), 3);
    // History too, and numbers go on.
    let back = host.plugins.rollback("gray").unwrap();
    assert_eq!((back.generation, back.digest, back.code), (4, first.digest, Code::Loaded));
    host.plugins.remove("other").unwrap();

    let host = restart(host, &store);
    assert_eq!(host.active("gray").number(), 4);
    assert_eq!(host.plugins.list().len(), 1);
    assert_eq!(host.deploy("gray", &idle(9)).unwrap().generation, 5);
}

#[test]
fn only_what_is_referred_to_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    for mark in 0..10 {
        host.deploy("gray", &idle(mark)).unwrap();
    }
    // The one in force and five before it.
    assert_eq!(files(&store.join("modules")).len(), 6);
    assert_eq!(files(&store.join("code")).len(), 6);
    // A trial's module is needed for the promotion.
    let canary = Some(CanaryPlan { share: 0.5, duration: Duration::from_secs(600) });
    host.plugins.deploy(Deployment { canary, ..Deployment::new("gray", idle(50)) }).unwrap();
    host.deploy("other", &idle(3)).unwrap();
    assert_eq!(files(&store.join("modules")).len(), 8);
    // Left by a crash.
    fs::write(store.join("modules/.new-x"), "x").unwrap();
    fs::write(store.join("code/ffff-0000.cwasm"), "x").unwrap();
    host.plugins.remove("other").unwrap();
    assert_eq!(files(&store.join("modules")).len(), 7);
    host.plugins.remove("gray").unwrap();
    assert!(files(&store.join("modules")).is_empty());
    assert!(files(&store.join("code")).is_empty());
}

/// Code in memory outlives the file of its module, while a request is on it.
#[test]
fn a_module_whose_code_is_still_in_memory_is_kept_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    host.deploy("a", &idle(1)).unwrap();
    let open = host.open("a").unwrap();
    host.plugins.remove("a").unwrap();
    let again = host.deploy("b", &idle(1)).unwrap();
    assert_eq!((again.code, again.kept), (Code::Shared, true));
    drop(open);
    let host = restart(host, &store);
    assert_eq!(host.plugins.show("b").unwrap().code, Code::Loaded);

    // The same, of one that fell out of the history.
    host.deploy("c", &idle(100)).unwrap();
    let open = host.open("c").unwrap();
    (101..=106).for_each(|mark| drop(host.deploy("c", &idle(mark)).unwrap()));
    assert_eq!(host.deploy("c", &idle(100)).unwrap().code, Code::Shared);
    host.deploy("d", &idle(1)).unwrap();
    host.plugins.remove("b").unwrap();
    drop(open);
    let host = restart(host, &store);
    assert!(host.pass("c").failure.is_none() && host.pass("d").failure.is_none());
    // What is on disk and damaged is written anew by whoever deploys it.
    let file = store.join("modules").join(format!("{}.wasm", again.digest));
    fs::write(&file, "x").unwrap();
    host.deploy("e", &idle(1)).unwrap();
    assert_eq!(fs::read(&file).unwrap(), idle(1).as_bytes());
}

#[test]
fn damaged_code_is_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let mut host = Host::at(&store).unwrap();
    host.deploy("gray", &idle(1)).unwrap();
    let file = files(&store.join("code")).remove(0);
    let good = fs::read(&file).unwrap();
    let damage: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&file).unwrap(),
        &|| fs::write(&file, &good[..good.len() - 1]).unwrap(),
        &|| {
            let mut bad = good.clone();
            bad[good.len() / 2] ^= 1;
            fs::write(&file, bad).unwrap();
        },
        // Others could have written it.
        &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap(),
    ];
    for (number, damage) in damage.into_iter().enumerate() {
        damage();
        host = restart(host, &store);
        assert_eq!(host.plugins.show("gray").unwrap().code, Code::Compiled, "{number}");
        assert!(host.pass("gray").failure.is_none());
        assert_eq!(fs::read(&file).unwrap(), good, "{number}: and kept again");
        host = restart(host, &store);
        assert_eq!(host.plugins.show("gray").unwrap().code, Code::Loaded, "{number}");
    }
}

#[test]
fn what_cannot_be_trusted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    let refused = |word: &str| {
        // A host that was just dropped lets go of its store when its threads have ended.
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let error = match Host::at(&store) {
                Ok(_) => panic!("not refused: {word}"),
                Err(error) => error.to_string(),
            };
            if error.contains(word) {
                return;
            }
            assert!(error.contains("another process") && Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    refused("another process uses it");
    host.deploy("gray", &idle(1)).unwrap();
    drop(restart(host, &store));

    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, open, own) in [
        (store.clone(), 0o770, 0o700),
        (store.clone(), 0o707, 0o700),
        (store.join("code"), 0o777, 0o700),
        (store.join("deployments.json"), 0o666, 0o600),
    ] {
        set(&path, open);
        refused("others may write it");
        set(&path, own);
    }
    let manifest = store.join("deployments.json");
    let good = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, "{").unwrap();
    refused("deployments.json: it cannot be read: EOF");
    fs::write(&manifest, good.replace("\"version\": 1", "\"version\": 2")).unwrap();
    refused("it has version 2; this Weir reads 1");
    let digest = weir_plugin::Digest::of(idle(1).as_bytes()).to_string();
    fs::write(&manifest, good.replace(&digest, "../../etc/passwd")).unwrap();
    refused("\"../../etc/passwd\" is no SHA-256 digest; move the file away to start without");
    fs::write(&manifest, good.replace("\"gray\"", "\"../../x\"")).unwrap();
    refused("\"../../x\" is no name of a plugin; move the file away to start without");
    fs::write(&manifest, &good).unwrap();
    drop(start(&store));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&store, Some(65_534), None).unwrap();
        refused("it belongs to the user with number 65534");
    }
}

#[test]
fn what_cannot_be_brought_back_is_broken_and_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    host.deploy("good", &idle(1)).unwrap();
    host.deploy("bad", &idle(2)).unwrap();
    let mut wanted = Deployment::new("bad", idle(3));
    wanted.config = Some("one".to_owned());
    wanted.edits.on_failure = Some(OnFailure::Fail);
    let digest = host.plugins.deploy(wanted).unwrap().digest;
    drop(host);
    let file = store.join("modules").join(format!("{digest}.wasm"));
    let broken = |word: &str| {
        let host = start(&store);
        assert!(host.pass("good").failure.is_none());
        let shown = host.plugins.show("bad").unwrap();
        assert_eq!((shown.summary.state, shown.summary.generation), (State::Broken, Some(3)));
        let why = shown.summary.broken.unwrap();
        assert!(why.contains(word), "{why}");
        let failure = host.open("bad").err().unwrap();
        assert_eq!((failure.kind, host.active("bad").on_failure()), {
            (FailureKind::Start, OnFailure::Fail)
        });
        assert!(!host.plugins.metered().iter().any(|m| m.state == State::Resting));
        host
    };
    fs::write(&file, idle(9)).unwrap();
    drop(broken(&format!("modules/{digest}.wasm: the module is damaged")));
    fs::remove_file(&file).unwrap();
    drop(broken("the module is gone"));
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    drop(broken(&format!("modules/{digest}.wasm")));
    fs::remove_file(&file).unwrap();
    // Each way out of it.
    let host = broken("deploy it again");
    host.deploy("bad", &idle(3)).unwrap();
    let shown = host.plugins.show("bad").unwrap();
    assert_eq!((shown.summary.state, &*shown.config), (State::Active, "one"));
    assert!(host.pass("bad").failure.is_none());
    let host = restart(host, &store);
    assert_eq!(host.plugins.show("bad").unwrap().summary.state, State::Active);
    drop(host);
    fs::remove_file(&file).unwrap();
    let host = start(&store);
    assert_eq!(host.plugins.show("bad").unwrap().summary.state, State::Broken);
    assert_eq!(host.plugins.show("bad").unwrap().history.len(), 2);
    // What was broken before is in the history by now, and cannot be gone back to.
    let back = host.plugins.rollback("bad").unwrap();
    assert_eq!(back.digest, weir_plugin::Digest::of(idle(2).as_bytes()).to_string());
    assert!(host.pass("bad").failure.is_none());
    let shown = host.plugins.show("bad").unwrap();
    assert_eq!((shown.summary.state, shown.history.len()), (State::Active, 0));
    host.plugins.remove("bad").unwrap();
    assert!(host.plugins.plugin("bad").is_none());
}

#[test]
fn a_full_disk_keeps_no_plugin_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    host.deploy("bad", &idle(1)).unwrap();
    host.deploy("worse", &idle(2)).unwrap();
    host.deploy("worse", &idle(3)).unwrap();
    let manifest = || fs::read_to_string(store.join("deployments.json")).unwrap();
    let before = manifest();
    // What stands where the manifest's new version would be written.
    let obstacle = store.join(".new-deployments.json");
    fs::create_dir(&obstacle).unwrap();
    let warning = host.plugins.remove("bad").unwrap().unwrap();
    assert!(warning.contains("not written down yet") && warning.contains(".json"), "{warning}");
    assert!(host.plugins.plugin("bad").is_none());
    let back = host.plugins.rollback("worse").unwrap();
    assert!(back.warning.unwrap().contains("a restart") && !back.kept);
    assert_eq!(host.active("worse").number(), back.generation);
    assert!(!host.plugins.show("worse").unwrap().summary.kept);
    assert!(host.deploy("new", &idle(4)).is_err(), "only what takes something out");
    assert_eq!(manifest(), before);
    assert!(files(&store.join("modules")).len() >= 3, "what it names is there");
    // It is written as soon as the disk takes it.
    fs::remove_dir(&obstacle).unwrap();
    assert!(wait_for(|| manifest() != before));
    assert!(wait_for(|| host.plugins.show("worse").unwrap().summary.kept));
    let host = restart(host, &store);
    assert_eq!(host.active("worse").number(), back.generation);
    assert!(host.plugins.plugin("bad").is_none());
    // A server starts over a disk that is full.
    drop(host);
    fs::create_dir(&obstacle).unwrap();
    let host = start(&store);
    assert!(host.pass("worse").failure.is_none());
}

#[test]
fn a_disk_that_does_not_take_it_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let host = Host::at(&store).unwrap();
    host.deploy("gray", &idle(1)).unwrap();
    // What stands where the manifest's new version would be written.
    fs::create_dir(store.join(".new-deployments.json")).unwrap();
    let error = host.deploy("gray", &idle(2)).unwrap_err().to_string();
    assert!(error.contains("deployments.json"), "{error}");
    assert_eq!(host.active("gray").number(), 1);
    fs::remove_dir(store.join(".new-deployments.json")).unwrap();
    host.deploy("gray", &idle(2)).unwrap();
    let host = restart(host, &store);
    assert_eq!(host.plugins.show("gray").unwrap().history.len(), 1);
}

#[test]
fn the_configuration_and_the_store_agree_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let source = directory.path().join("gray.wat");
    fs::write(&source, idle(1)).unwrap();
    let block = store_block(&store)
        + &format!("plugin \"gray\" {{ source {:?}; }}\n", source.display().to_string());
    let next = |host: Host, blocks: &str| {
        drop(host);
        let mut next = None;
        assert!(wait_for(|| {
            next = Host::with(blocks, "").ok();
            next.is_some()
        }));
        next.unwrap()
    };
    let host = Host::with(&block, "").unwrap();
    let host = next(host, &block);
    assert_eq!(host.active("gray").number(), 1, "restored");
    assert_eq!(host.plugins.show("gray").unwrap().code, Code::Loaded);
    host.deploy("gray", &idle(2)).unwrap();
    let host = next(host, &block);
    assert_eq!(host.active("gray").number(), 2, "deployed over an unchanged block");
    fs::write(&source, idle(3)).unwrap();
    let host = next(host, &block);
    assert_eq!(host.active("gray").number(), 3, "the block has changed");
    assert_eq!(host.plugins.show("gray").unwrap().history.len(), 2);
    // A plugin that does not start any more keeps the server from starting, and its store whole.
    fs::write(&source, module(4, "(i64.const 0)", "unreachable")).unwrap();
    drop(host);
    assert!(wait_for(|| Host::with(&block, "")
        .err()
        .is_some_and(|e| e.to_string().contains("trap"))));
    fs::write(&source, idle(3)).unwrap();
    let mut host = None;
    wait_for(|| {
        host = Host::with(&block, "").ok();
        host.is_some()
    });
    let host = host.unwrap();
    assert_eq!(host.active("gray").number(), 3);
    let host = next(host, &store_block(&store));
    assert!(host.plugins.list().is_empty(), "its block is gone");
    let host = next(host, &store_block(&store));
    assert!(host.plugins.list().is_empty());
    assert!(files(&store.join("modules")).is_empty());
}
