//! Started by root, the server serves as somebody who may do less.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use common::net::{Net, SERVER, connect_from};
use common::server::{self, Weir};
use common::{PATIENCE, client, free_address, wait_for};
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

/// Capabilities of a thread: what it may, what it does, what it hands on.
#[derive(Debug, PartialEq)]
struct Caps {
    permitted: u64,
    effective: u64,
    inheritable: u64,
    ambient: u64,
    no_new_privs: bool,
}

fn caps(status: &str) -> Caps {
    let word = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    Caps {
        permitted: word("CapPrm:"),
        effective: word("CapEff:"),
        inheritable: word("CapInh:"),
        ambient: word("CapAmb:"),
        no_new_privs: word("NoNewPrivs:") == 1,
    }
}

/// What the process has, once all threads but its first have no capability at all: they give up
/// what they begin with.
fn caps_of(weir: &Weir) -> Caps {
    let pid = weir.pid();
    let own = |status: &str| {
        let Caps { permitted, effective, inheritable, ambient, .. } = caps(status);
        permitted | effective | inheritable | ambient
    };
    let others = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(Result::unwrap);
        let others = tasks.filter(|task| task.file_name() != *pid.to_string());
        // One that ends meanwhile has nothing any more.
        others.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).collect()
    };
    let given_up =
        wait_for(PATIENCE, || others().iter().all(|other| own(other) == 0).then_some(()));
    assert!(given_up.is_some() && others().len() >= 2, "{}", others().join("\n\n"));
    caps(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap())
}

/// `CAP_NET_ADMIN` and `CAP_BPF`, as linux/capability.h numbers them.
const NET_ADMIN: u64 = 1 << 12;
const BPF: u64 = 1 << 39;

const PORT: u16 = 8078;
const CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 3), Ipv4Addr::new(10, 77, 0, 4)];

fn guarded(server: &str, guard: &str) -> String {
    format!(
        "server {{ workers 2; admin \"127.0.0.1:9078\"; {server}; }}\nguard {{ {guard} }}\n\
         site \"*\" {{ listen \"{SERVER}:{PORT}\"; route \"/*\" {{ respond \"hello\"; }}; }}\n"
    )
}

/// Which of the clients are connected, before a SYN is sent again.
fn connected(net: &Net) -> [bool; 2] {
    connected_to(net, PORT)
}

fn connected_to(net: &Net, port: u16) -> [bool; 2] {
    let soon = Duration::from_millis(700);
    let to = SocketAddr::from((SERVER, port));
    net.client(|| CLIENTS.map(|from| connect_from(from, to, soon).is_ok()))
}

fn enforcement(net: &Net, weir: &Weir) -> Vec<String> {
    let arguments = ["guard", "status", "--json", "--admin", "127.0.0.1:9078"];
    let output = net.server(|| server::command(weir.directory(), &arguments));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(status["enforcement"].clone()).unwrap()
}

/// Reloads these rules, and waits until that is done.
fn reload(net: &Net, weir: &Weir, config: &str) {
    std::fs::write(weir.directory().join("weir.kdl"), config).unwrap();
    let arguments = ["reload", "--admin", "127.0.0.1:9078"];
    let output = net.server(|| server::command(weir.directory(), &arguments));
    assert!(output.status.success(), "{output:?}\n{}", weir.log());
}

/// What is kept is enough to have other rules in the kernel, and no more.
#[test]
fn rules_in_the_kernel_change_after_the_drop_where_that_is_kept() {
    if nobody().is_none() {
        return;
    }
    let Some(net) = Net::new() else { return };
    let refuse = |client: usize| {
        format!("rule \"no-{client}\" {{ from \"{}\"; refuse; always; }}; ", CLIENTS[client])
    };
    for (interface, kept, said) in [
        ("", BPF, "kernel: policing 1 rule"),
        ("interface \"server\" hook=\"tcx\"; ", BPF | NET_ADMIN, "interface server: tcx"),
        ("interface \"server\" hook=\"xdp\"; ", BPF | NET_ADMIN, "interface server: XDP"),
    ] {
        let with = |rules: &str| {
            guarded("user \"nobody\" keep-bpf=#true", &(interface.to_owned() + rules))
        };
        let weir = net.server(|| Weir::run(&with(&refuse(0)), &[]));
        weir.wait_for_log("admin API on");
        let expected = Caps {
            permitted: kept,
            effective: kept,
            inheritable: 0,
            ambient: 0,
            no_new_privs: true,
        };
        assert_eq!(caps_of(&weir), expected, "{interface}");
        assert!(weir.log().contains("CAP_BPF"), "{}", weir.log());
        assert_eq!(connected(&net), [false, true], "{interface}");
        // Another rule in its place, one more, and fewer again.
        for (rules, expected) in [
            (refuse(1), [true, false]),
            (refuse(1) + &refuse(0), [false, false]),
            (refuse(0), [false, true]),
        ] {
            reload(&net, &weir, &with(&rules));
            assert_eq!(connected(&net), expected, "{rules}\n{}", weir.log());
        }
        let facts = enforcement(&net, &weir);
        assert!(facts.iter().any(|fact| fact == said), "{facts:?}");
        assert!(!facts.iter().any(|fact| fact.starts_with("user space")), "{facts:?}");
        assert_eq!(caps_of(&weir), expected, "{interface}");
    }
}

/// The first rules come when the sockets that are there are root's, and new ones cannot be bound.
#[test]
fn first_rules_after_the_drop_hold_on_the_sockets_that_are_there() {
    if nobody().is_none() {
        return;
    }
    let Some(net) = Net::new() else { return };
    let refuse = format!("rule \"no\" {{ from \"{}\"; refuse; always; }}; ", CLIENTS[0]);
    let gold = format!("rule \"gold\" {{ from \"{}\"; class \"gold\"; }}; ", CLIENTS[1]);
    let gold = format!("class \"gold\" priority=1; {gold}{refuse}");
    for port in [78, PORT] {
        for (keep, fact, seen) in [
            ("", "user space: 1 rule after accept", [true, true]),
            (" keep-bpf=#true", "kernel: policing 1 rule", [false, true]),
        ] {
            let with = |guard: &str| {
                let text = guarded(&format!("user \"nobody\"{keep}"), guard);
                text.replace(&format!("{SERVER}:{PORT}"), &format!("{SERVER}:{port}"))
            };
            let weir = net.server(|| Weir::run(&with(""), &[]));
            weir.wait_for_log("admin API on");
            assert_eq!(connected_to(&net, port), [true; 2]);
            reload(&net, &weir, &with(&refuse));
            assert_eq!(connected_to(&net, port), seen, "{port}{keep}: {}", weir.log());
            let facts = enforcement(&net, &weir);
            assert!(facts.iter().any(|known| known == fact), "{facts:?}");
            // Other accept queues take other sockets.
            let said = "connections keep the accept queues they have until a restart";
            assert!(!weir.log().contains(said), "{}", weir.log());
            reload(&net, &weir, &with(&gold));
            assert_eq!(connected_to(&net, port), seen, "{port}{keep}: {}", weir.log());
            assert!(weir.log().contains(said), "{}", weir.log());
        }
    }
}

#[test]
fn nothing_is_kept_unless_it_is_asked_for() {
    if nobody().is_none() {
        return;
    }
    let Some(net) = Net::new() else { return };
    let refuse =
        |client: usize| format!("rule \"no\" {{ from \"{}\"; refuse; always; }}", CLIENTS[client]);
    let config = |client| guarded("user \"nobody\"", &refuse(client));
    let weir = net.server(|| Weir::run(&config(0), &[]));
    weir.wait_for_log("admin API on");
    let found = caps_of(&weir);
    assert_eq!((found.permitted, found.effective, found.ambient), (0, 0, 0));
    assert_eq!(connected(&net), [false, true]);
    // The rule then is user space's, and the kernel's own is gone.
    reload(&net, &weir, &config(1));
    let facts = enforcement(&net, &weir);
    assert!(facts.iter().any(|fact| fact == "user space: 1 rule after accept"), "{facts:?}");
    assert_eq!(connected(&net), [true; 2], "the kernel connects, and Weir resets");
    // What is kept is decided once.
    let other = config(1).replace("\"nobody\"", "\"nobody\" keep-bpf=#true");
    std::fs::write(weir.directory().join("weir.kdl"), other).unwrap();
    let arguments = ["reload", "--admin", "127.0.0.1:9078"];
    let output = net.server(|| server::command(weir.directory(), &arguments));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("server user"), "{said}");
}

#[test]
fn who_has_nothing_to_keep_is_told_so() {
    let directory = TempDir::new().unwrap();
    mode(directory.path(), 0o755);
    let config = format!(
        "server {{ admin \"off\"; user \"65534\" keep-bpf=#true; }}\n\
         guard {{ interface \"lo\"; }}\n\
         site \"*\" {{ listen \"{}\"; route \"/*\" {{ respond \"x\"; }}; }}\n",
        free_address()
    );
    std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
    let mut weir = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    if Uid::effective().is_root() {
        // The binary lies where only root may look.
        let copy = directory.path().join("weir");
        std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
        weir = std::process::Command::new(copy);
        weir.uid(65534).gid(65534);
    }
    let output = weir.args(["run", "weir.kdl"]).current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let missing = "keep-bpf: this process has no CAP_NET_ADMIN and CAP_BPF";
    assert!(said.contains(missing) && said.contains("only root can change its groups"), "{said}");
}
