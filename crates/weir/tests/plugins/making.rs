//! While a plugin is made, which may take long: other changes do not wait for it, what watches over
//! plugins keeps its priority, and it is dropped with whoever asked for it.

use std::fs;
use std::time::{Duration, Instant};

use crate::bombs::{body, loops, plugin};
use crate::bystanders::undisturbed;
use crate::common::client::Client;
use crate::common::{PATIENCE, wait_for};
use crate::site::{Site, setup};
use crate::wasm::own;
use crate::{GOOD_ROUTES, good};

/// Other changes take some milliseconds; the machine may be busy with a compiler and other tests.
const CHANGE_MAX: Duration = Duration::from_secs(5);

/// Asks for a deployment, and does not wait for the answer.
fn ask(site: &Site, name: &str, module: &[u8]) -> Client {
    let mut client = Client::connect(site.admin).unwrap();
    let head = format!(
        "POST /plugins/{name}?route=/spare HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\
         Content-Type: application/wasm\r\n\r\n",
        site.admin,
        module.len()
    );
    client.send(&[head.as_bytes(), module].concat()).unwrap();
    client
}

/// The server's threads: name and nice value.
fn threads(site: &Site) -> Vec<(String, i32)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", site.weir.pid())).unwrap();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
    stats
        .map(|stat| {
            // proc_pid_stat(5): the name is in parentheses, nice is the 19th field.
            let (before, after) = stat.rsplit_once(')').unwrap();
            let name = before.split_once('(').unwrap().1.to_owned();
            (name, after.split_whitespace().nth(16).unwrap().parse().unwrap())
        })
        .collect()
}

fn marking(mark: &str) -> String {
    own(&format!(
        r#"(func (export "weir_on_response") (param i32) (result i64) @edits{{SET x-mark={mark}}})"#
    ))
}

/// Some tenths of a second for each thread.
fn slow_to_start() -> String {
    own(r#"(func (export "_initialize") (local $n i64)
      (loop $more
        (local.set $n (i64.add (local.get $n) (i64.const 1)))
        (br_if $more (i64.lt_u (local.get $n) (i64.const 1000000000)))))"#)
}

#[test]
fn other_changes_do_not_wait_for_a_compiler_at_work() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    for mark in ["1", "2"] {
        let (status, said) =
            site.manage("POST", "/plugins/mark?route=/spare", marking(mark).as_bytes());
        assert_eq!(status, 200, "{said}");
    }
    // As much as is let through: most of a minute of a compiler that is built for speed.
    let function = body(10, &loops(6_000, 10));
    let mut slow = ask(&site, "slow", &plugin(0, &[], vec![function; 20]));
    let is_made = || threads(&site).iter().any(|(name, _)| name == "plugin-make").then_some(());
    assert!(wait_for(PATIENCE, is_made).is_some(), "{:?}", threads(&site));
    let quick = |method: &str, path: &str, module: &[u8]| {
        let began = Instant::now();
        let (status, said) = site.manage(method, path, module);
        assert_eq!(status, 200, "{method} {path}: {said}");
        assert!(began.elapsed() < CHANGE_MAX, "{method} {path} took {:?}", began.elapsed());
    };
    let mark = || site.get("/spare", &[]).header("x-mark").map(str::to_owned);
    undisturbed(&site, || {
        assert_eq!(mark().as_deref(), Some("2"));
        quick("POST", "/plugins/mark/rollback", b"{}");
        assert_eq!(mark().as_deref(), Some("1"));
        quick("POST", "/plugins/other?route=/spare", marking("3").as_bytes());
        assert_eq!(mark().as_deref(), Some("3"));
        quick("DELETE", "/plugins/other", b"");
        quick("DELETE", "/plugins/mark", b"");
        assert_eq!(mark(), None);
    });
    let threads = threads(&site);
    let nice = |of: &str| {
        let all: Vec<i32> = threads
            .iter()
            .filter(|(name, _)| name.starts_with(of))
            .map(|(_, nice)| *nice)
            .collect();
        assert!(!all.is_empty(), "{of}: {threads:?}");
        all
    };
    // As the test itself was started.
    let own = rustix::process::getpriority_process(None).unwrap();
    for name in ["plugin-watch", "plugin-keeper", "plugin-deploy"] {
        assert_eq!(nice(name), [own], "{name}");
    }
    for name in ["plugin-make", "plugin-code"] {
        assert!(nice(name).iter().all(|nice| *nice == 10), "{name}: {threads:?}");
    }
    slow.set_patience(Duration::from_millis(50));
    assert!(slow.response("POST").is_err(), "it was not slow");
}

#[test]
fn nothing_comes_of_a_deployment_whose_client_is_gone() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    let starting = slow_to_start();
    let client = ask(&site, "slow", starting.as_bytes());
    let is_made = || threads(&site).iter().any(|(name, _)| name == "plugin-make").then_some(());
    assert!(wait_for(PATIENCE, is_made).is_some());
    drop(client);
    site.weir.wait_for_log("deployment dropped: whoever asked is gone");
    let (_, listed) = site.manage("GET", "/plugins", b"");
    assert!(!listed.contains("slow"), "{listed}");
    // The same by somebody who waits.
    let (status, said) = site.deploy("slow", starting.as_bytes());
    assert_eq!(status, 200, "{said}");
}

/// What is taken out while a new version of it is being made stays out.
#[test]
fn what_is_removed_while_it_is_made_anew_stays_removed() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    let (status, said) = site.manage("POST", "/plugins/mark?route=/spare", marking("1").as_bytes());
    assert_eq!(status, 200, "{said}");
    let starting = slow_to_start();
    let mut client = ask(&site, "mark", starting.as_bytes());
    let is_made = || threads(&site).iter().any(|(name, _)| name == "plugin-make").then_some(());
    assert!(wait_for(PATIENCE, is_made).is_some());
    assert_eq!(site.manage("DELETE", "/plugins/mark", b"").0, 200);
    client.set_patience(PATIENCE * 4);
    let got = client.response("POST").unwrap();
    let said = String::from_utf8(got.body).unwrap();
    assert_eq!(got.status, 409, "{said}");
    assert!(said.contains("was rolled back, removed or configured anew"), "{said}");
    assert!(!site.manage("GET", "/plugins", b"").1.contains("mark"));
}
