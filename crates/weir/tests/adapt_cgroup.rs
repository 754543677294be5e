//! Helpers in a control group of their own. Groups are made below the one that the test is in,
//! which takes a file system of cgroup v2 that may be written to: without one these tests say so,
//! and end.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use common::client::ask;
use common::origin::{Origin, answer};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};

const STORED: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: text/css\r\n";

/// A group for a test, with all that is in it.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.into_iter().find(|fields| fields[2] == "cgroup2");
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let Some(mount) = mount else {
            eprintln!("skipped: no file system of cgroup v2 is mounted");
            return None;
        };
        let path =
            Path::new(mount[1]).join(own).join(format!("weir-{name}-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Some(Group(path)),
            Err(cause) => {
                eprintln!("skipped: no group can be made at {}: {cause}", path.display());
                None
            }
        }
    }

    fn helpers(&self) -> PathBuf {
        self.0.join("helpers")
    }

    /// The processes of the group for helpers.
    fn members(&self) -> Vec<i32> {
        let all = fs::read_to_string(self.helpers().join("cgroup.procs")).unwrap_or_default();
        all.lines().map(|pid| pid.parse().unwrap()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that have been killed leave it a moment later.
        for path in [self.helpers(), self.0.clone()] {
            wait_for(PATIENCE, || (!path.exists() || fs::remove_dir(&path).is_ok()).then_some(()));
        }
    }
}

struct Served {
    weir: Weir,
    address: SocketAddr,
    admin: String,
    _origin: Origin,
}

impl Served {
    fn start(cgroup: &Path) -> Served {
        let (text, admin) = ("a { color: red }\n".repeat(200), free_address());
        let origin = Origin::start(move |_| answer("200 OK", STORED, text.as_bytes()));
        let rest = format!(
            "server {{ workers 1; admin \"{admin}\"; }}\n\
             adapt {{ helpers 1; memory \"64MiB\"; output \"1MiB\"; cgroup {cgroup:?}; }}\n\
             cache {{ memory \"16MiB\"; }}"
        );
        let site = format!("route \"/*\" {{ proxy \"{}\"; compress \"gzip\"; }}", origin.url());
        let (weir, address) = Weir::front(&rest, &site);
        Served { weir, address, admin: admin.to_string(), _origin: origin }
    }

    fn has_variant(&self, target: &str) {
        let made = wait_for(PATIENCE, || {
            let response = ask(self.address, "GET", target, &[("accept-encoding", "gzip")]);
            (response.header("weir-adapt") == Some("gzip;q=9")).then_some(())
        });
        assert!(made.is_some(), "{target}: no variant");
    }

    /// What the status says of the group, for people and for programs.
    fn status(&self) -> (String, Value) {
        let ask = |form: &[&str]| {
            let arguments = [&["status", "--admin", &self.admin][..], form].concat();
            String::from_utf8(command(self.weir.directory(), &arguments).stdout).unwrap()
        };
        let all: Value = serde_json::from_str(&ask(&["--json"])).unwrap();
        (ask(&[]), all["cgroup"].clone())
    }
}

#[test]
fn helpers_are_in_a_group_of_their_own() {
    let Some(group) = Group::new("own") else { return };
    let served = Served::start(&group.helpers());
    served.weir.wait_for_log("helpers have a cgroup of their own");
    assert!(group.members().is_empty());
    served.has_variant("/first");
    assert_eq!(group.members(), served.weir.helpers());
    let (text, status) = served.status();
    let path = group.helpers();
    assert!(text.contains(&format!("helpers in cgroup {}: ", path.display())), "{text}");
    assert_eq!((&status["outside"], &status["error"]), (&json!(0), &Value::Null));
    // What the kernel has of it is what is said.
    for said in status["holds"].as_array().unwrap() {
        let (name, value) = said.as_str().unwrap().split_once('=').unwrap();
        assert_eq!(fs::read_to_string(path.join(name)).unwrap().trim(), value, "{name}");
    }
    let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap();
    let limits = [
        ("cpu", "cpu.idle=1".to_owned()),
        ("memory", format!("memory.max={}", 81 << 20)),
        ("pids", "pids.max=1".to_owned()),
    ];
    for (controller, limit) in limits {
        let is_there = controllers.split_whitespace().any(|known| known == controller);
        let holds = status["holds"].as_array().unwrap().contains(&json!(limit));
        assert_eq!(holds, is_there, "{limit}: {status}");
    }
    if controllers.trim().is_empty() {
        assert!(text.contains(": no controllers\n"), "{text}");
    }
    let check = command(served.weir.directory(), &["check", "weir.kdl"]);
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_group_that_goes_away_takes_no_variant_with_it() {
    let Some(group) = Group::new("gone") else { return };
    let served = Served::start(&group.helpers());
    served.has_variant("/first");
    for pid in served.weir.helpers() {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
    let gone = wait_for(PATIENCE, || fs::remove_dir(group.helpers()).ok());
    assert!(gone.is_some(), "{:?}", group.members());
    served.has_variant("/second");
    served.weir.wait_for_log("a helper is not in its cgroup");
    let (text, status) = served.status();
    assert_eq!(status["outside"], json!(1));
    assert!(text.contains("; 1 could not be put there\n"), "{text}");
    let admin = served.admin.parse().unwrap();
    let metrics = ask(admin, "GET", "/metrics", &[("host", "localhost")]);
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("\nweir_adapt_helpers_outside_total 1\n"));
}

#[test]
fn what_is_no_group_is_said_and_not_used() {
    let Some(group) = Group::new("wrong") else { return };
    fs::create_dir(group.helpers()).unwrap();
    for (path, why) in [
        (group.0.clone(), "helpers need one without groups below it"),
        (group.0.join("a/b"), "there is no directory"),
        (PathBuf::from("/var/weir"), "is not in a file system of cgroup v2"),
    ] {
        let served = Served::start(&path);
        served.weir.wait_for_log("helpers stay in the server's cgroup: ");
        served.weir.wait_for_log(why);
        served.has_variant("/first");
        let (text, status) = served.status();
        assert!(text.contains(": not used: "), "{text}");
        assert!(status["error"].as_str().unwrap().contains(why), "{status}");
        assert!(!path.join("b").exists() && !Path::new("/var/weir").exists());
        let check = command(served.weir.directory(), &["check", "weir.kdl"]);
        let said = String::from_utf8(check.stderr).unwrap();
        assert!(!check.status.success() && said.contains("adapt: cgroup "), "{said}");
    }
}
