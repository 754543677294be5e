//! Started by root, the server serves as somebody who may do less.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::server::{self, Weir};
use common::{client, free_address, wait_for};
use nix::unistd::{Uid, User};
use rustix::process::Signal;
use tempfile::TempDir;

/// The account of nobody, or why there is nothing to test.
fn nobody() -> Option<User> {
    if !Uid::effective().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return None;
    }
    let nobody = User::from_name("nobody").unwrap();
    if nobody.is_none() {
        eprintln!("skipped: this system has no user nobody");
    }
    nobody
}

/// A port that only root may bind, where nothing listens.
fn low_address() -> Option<SocketAddr> {
    let mut addresses = (600..1024).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    addresses.find(|address| TcpListener::bind(address).is_ok())
}

fn mode(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn root_becomes_nobody_and_serves_on() {
    let Some(nobody) = nobody() else { return };
    let Some(address) = low_address() else { return };
    let directory = TempDir::new().unwrap();
    mode(directory.path(), 0o755);
    for name in ["open", "closed"] {
        std::fs::write(directory.path().join(name), name).unwrap();
    }
    mode(&directory.path().join("open"), 0o644);
    mode(&directory.path().join("closed"), 0o600);
    let admin = format!("unix:{}/admin.sock", directory.path().display());
    let config = format!(
        r#"
        server {{ workers 2; admin "{admin}"; user "nobody"; }}
        site "*" {{
            listen "{address}"
            access-log "access.log"
            route "/*" {{ files "."; }}
        }}
        "#
    );
    let mut weir = Weir::run_in(directory, &config, &[address]);
    // The system could take a moment less than this test to start the threads.
    assert_eq!(client::get(address, "a", "/open").unwrap().body, b"open");

    let expected_uid = [nobody.uid.as_raw(); 4];
    let expected_gid = [nobody.gid.as_raw(); 4];
    let tasks = std::fs::read_dir(format!("/proc/{}/task", weir.pid())).unwrap();
    let mut count = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let numbers = |key: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().map(|word| word.parse().unwrap()).collect()
        };
        assert_eq!(numbers("Uid:"), expected_uid, "{status}");
        assert_eq!(numbers("Gid:"), expected_gid, "{status}");
        assert!(!numbers("Groups:").contains(&0), "root's groups are kept: {status}");
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        assert_eq!(capabilities.trim().trim_matches('0'), "", "{status}");
        count += 1;
    }
    assert!(count >= 3, "{count} threads: the control thread and two workers");

    // The system decides for nobody now, not for root.
    assert_eq!(client::get(address, "a", "/closed").unwrap().status, 403);
    // After the root directory has been opened anew it is still served.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(client::get(address, "a", "/open").unwrap().status, 200);
    // A log that cannot be opened again goes on where it is.
    weir.signal(Signal::USR1);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client::get(address, "a", "/open?late").unwrap().status, 200);
    let log = weir.directory().join("access.log");
    let late = wait_for(Duration::from_secs(5), || {
        std::fs::read_to_string(&log).unwrap().contains("/open?late").then_some(())
    });
    assert!(late.is_some(), "{}", weir.log());
    // What root asked for before is there: the admin API, and a reload that keeps the port.
    let reload = server::command(weir.directory(), &["reload", "--admin", &admin]);
    assert!(reload.status.success(), "{reload:?}");
    assert_eq!(client::get(address, "a", "/open").unwrap().status, 200);
    assert!(weir.stop().success());
}

#[test]
fn an_account_that_does_not_exist_ends_the_start() {
    if nobody().is_none() {
        return;
    }
    let directory = TempDir::new().unwrap();
    for (lines, expected) in [
        ("user \"no-such-user\"", "no-such-user"),
        ("user \"nobody\"; group \"no-such-group\"", "no-such-group"),
    ] {
        let config = format!(
            "server {{ admin \"off\"; {lines}; }}\n\
             site \"*\" {{ listen \"{}\"; route \"/*\" {{ respond \"x\"; }}; }}\n",
            free_address()
        );
        std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
        let output = server::command(directory.path(), &["run", "weir.kdl"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}
