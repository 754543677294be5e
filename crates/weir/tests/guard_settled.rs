//! Rules about paths under which something is stored.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use common::client::ask;
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// What rules make of a path is kept with what is stored under it; not beyond the rules.
#[test]
fn rules_about_stored_paths_are_counted_at_every_hit_and_hold_at_once() {
    let rules = |act: &str| format!("rule \"shop\" {{ path \"/shop/*\"; {act}; }}\n");
    let (address, admin) = (free_address(), free_address());
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("shop")).unwrap();
    std::fs::write(directory.path().join("shop/page.txt"), "a page").unwrap();
    let config = format!(
        "server {{ workers 1; admin \"{admin}\"; }}\nguard {{ class \"gold\" priority=1\n{} }}\n\
         site \"*\" {{ listen \"{address}\"; route \"/*\" {{ files \".\"; }} }}\n",
        rules("class \"gold\"")
    );
    let weir = Weir::run_in(directory, &config, &[address, admin]);
    let get = || ask(address, "GET", "/shop/page.txt", &[("Host", "a.example")]).status;
    let rule = || {
        let guard = ask(admin, "GET", "/guard", &[("Host", "localhost")]);
        let guard: Value = serde_json::from_slice(&guard.body).unwrap();
        guard["rules"][0].clone()
    };
    assert_eq!([get(), get(), get(), get()], [200; 4]);
    assert_eq!(rule()["met"], 4, "{}", rule());

    std::fs::write(weir.directory().join("rules.kdl"), rules("refuse; always; answer 429"))
        .unwrap();
    let apply = ["guard", "apply", "rules.kdl", "--admin", &admin.to_string()];
    let applied = command(weir.directory(), &apply);
    assert!(applied.status.success(), "{applied:?}");
    assert_eq!([get(), get()], [429; 2]);
    assert_eq!(rule()["refused"], 2, "{}", rule());

    weir.signal(Signal::HUP);
    weir.wait_for_log("rules set at run time are gone");
    assert_eq!(wait_for(PATIENCE, || (get() == 200).then_some(())), Some(()));
    assert_eq!(get(), 200);
}
