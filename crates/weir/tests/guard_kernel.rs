//! Overload control before the request: what the kernel drops, who is accepted first, and the same
//! without the kernel.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::net::{Flood, Net, SERVER, connect_from};
use common::origin::{Origin, Step, answer};
use common::server::{Weir, command};
use common::{PATIENCE, free_address, wait_for};
use rustix::process::Signal;

const PORT: u16 = 8077;
const ADDRESS: SocketAddrV4 = SocketAddrV4::new(SERVER, PORT);
const GOLD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 4);

/// Longer than a SYN that is sent again takes (RFC 6298 §2.1: one second).
const DROPPED: Duration = Duration::from_millis(2500);

/// A server with these lines in its guard block.
fn config(guard: &str) -> String {
    format!(
        "server {{ workers 2; admin \"127.0.0.1:9077\"; }}\n\
         guard {{\nclass \"gold\" priority=1\nclass \"bulk\" priority=3\n{guard}\n}}\n\
         site \"*\" {{ listen \"{ADDRESS}\"; route \"/*\" {{ respond \"hello\"; }}; }}\n"
    )
}

fn run(net: &Net, guard: &str) -> Weir {
    // It is on the loopback interface of the server's side that it is waited for.
    let weir = net.server(|| Weir::run(&config(guard), &[]));
    weir.wait_for_log("admin API on");
    weir
}

/// One request on a connection of its own.
fn get(from: Ipv4Addr, patience: Duration) -> std::io::Result<String> {
    receive(send(from, "/", patience)?)
}

fn send(from: Ipv4Addr, target: &str, patience: Duration) -> std::io::Result<TcpStream> {
    let mut stream = connect_from(from, ADDRESS.into(), patience)?;
    let head = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

fn receive(mut stream: TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn is_served(from: Ipv4Addr) -> bool {
    get(from, DROPPED).is_ok_and(|text| text.starts_with("HTTP/1.1 200 "))
}

fn status(net: &Net, weir: &Weir) -> serde_json::Value {
    let arguments = ["guard", "status", "--json", "--admin", "127.0.0.1:9077"];
    let output = net.server(|| command(weir.directory(), &arguments));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What the kernel has dropped by a rule, and how many connections it counted for it.
fn dropped(status: &serde_json::Value, rule: &str) -> (u64, u64) {
    let rules = status["rules"].as_array().unwrap();
    let found = rules.iter().find(|known| known["name"] == rule).unwrap();
    let count = |key: &str| found[key].as_u64().unwrap_or_else(|| panic!("{found}"));
    (count("kernel_dropped"), count("kernel_offered"))
}

#[test]
fn what_rules_refuse_is_dropped_without_a_word() {
    let Some(net) = Net::new() else { return };
    let guard = "rule \"few\" { from \"10.77.0.4\"; rate 1 burst=2 per=\"hour\"; always; }";
    let weir = run(&net, guard);
    net.client(|| {
        assert!(is_served(OTHER) && is_served(OTHER));
        let error = get(OTHER, DROPPED).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "no reset, no answer: {error}");
        assert!(is_served(GOLD));
    });
    let (dropped, offered) = dropped(&status(&net, &weir), "few");
    assert!(dropped >= 1 && offered == dropped + 2, "{dropped} of {offered}");
}

/// What a rule holds only under overload, the kernel counts all the same; and what its buckets have
/// left can be asked for.
#[test]
fn buckets_in_the_kernel_can_be_looked_at() {
    let Some(net) = Net::new() else { return };
    let guard = "rule \"few\" { from \"10.77.0.4\"; rate 1 burst=3 per=\"hour\"; always; }\n\
        rule \"own\" { from \"10.77.0.3\"; rate 1 burst=2 per=\"hour\"; by \"source\"; always; }\n\
        rule \"soft\" { from \"10.77.0.5\"; rate 1 burst=2 per=\"hour\"; }\n\
        rule \"none\" { from \"10.77.0.6\"; refuse; }\n\
        rule \"keyed\" { from \"10.77.0.7\"; rate 1 burst=1 per=\"hour\"; by \"source\"; }";
    let weir = run(&net, guard);
    let told = |from: &str| {
        let arguments = ["guard", "test", "/", "--from", from, "--admin", "127.0.0.1:9077"];
        let output = net.server(|| command(weir.directory(), &arguments));
        String::from_utf8(output.stdout).unwrap()
    };
    let left = |from: &str, tokens: usize| {
        let told = told(from);
        let token = if tokens == 1 { "token" } else { "tokens" };
        let expected = format!("counts connections in the kernel, {tokens} {token} left");
        assert!(told.contains(&expected), "{expected}:\n{told}");
        told
    };
    left("10.77.0.4", 3);
    net.client(|| assert!([OTHER; 3].into_iter().all(is_served) && is_served(GOLD)));
    left("10.77.0.3", 1);
    let told = left("10.77.0.4", 0);
    assert!(
        told.ends_with("outcome   refused by few (rate): its connection is dropped\n"),
        "{told}"
    );

    let often = |last: u8| [Ipv4Addr::new(10, 77, 0, last); 5];
    net.client(|| assert!([5, 6, 7].map(often).concat().into_iter().all(is_served)));
    let status = status(&net, &weir);
    let spared = |name: &str| {
        let rules = status["rules"].as_array().unwrap();
        let rule = rules.iter().find(|rule| rule["name"] == name).unwrap();
        (rule["kernel_offered"].as_u64(), rule["kernel_spared"].as_u64())
    };
    assert_eq!(spared("soft"), (Some(5), Some(3)), "{status}");
    assert_eq!(spared("none"), (Some(5), Some(5)), "{status}");
    assert_eq!((spared("keyed"), spared("few")), ((Some(5), None), (Some(3), None)));
    left("10.77.0.5", 2);
}

/// A flood that its rule lets through still fills nobody else's queue.
#[test]
fn a_flood_does_not_reach_other_classes() {
    let Some(net) = Net::new() else { return };
    for limit in ["rate 50 burst=50; always;", ""] {
        let guard = format!(
            "rule \"gold\" {{ from \"{GOLD}\"; class \"gold\"; }}\n\
             rule \"flood\" {{ from \"10.78.0.0/16\"; class \"bulk\"; {limit} }}"
        );
        let weir = run(&net, &guard);
        let is_over = AtomicBool::new(false);
        let took = std::thread::scope(|scope| {
            let flood = scope.spawn(|| net.client(|| flood_until(&is_over)));
            let took = net.client(|| {
                let (began, mut took) = (Instant::now(), Vec::new());
                while began.elapsed() < Duration::from_secs(2) {
                    let asked = Instant::now();
                    assert!(get(GOLD, PATIENCE).unwrap().starts_with("HTTP/1.1 200 "));
                    took.push(asked.elapsed());
                    std::thread::sleep(Duration::from_millis(20));
                }
                took
            });
            is_over.store(true, SeqCst);
            assert!(flood.join().unwrap() > 1000);
            took
        });
        // A SYN that was lost would have been sent again after a second.
        let quick = took.iter().filter(|took| **took < Duration::from_millis(900)).count();
        assert!(quick * 10 >= took.len() * 9, "{limit}: {took:?}");
        let (dropped, offered) = dropped(&status(&net, &weir), "flood");
        assert!(offered > 1000, "{offered}");
        match limit {
            "" => assert_eq!(dropped, 0),
            _ => assert!(dropped > offered / 2, "{dropped} of {offered}"),
        }
    }
}

/// Floods until told not to, at most for ten seconds.
fn flood_until(is_over: &AtomicBool) -> usize {
    let mut flood = Flood::new(ADDRESS);
    let began = Instant::now();
    let mut sent = 0;
    while !is_over.load(SeqCst) && began.elapsed() < Duration::from_secs(10) {
        for _ in 0..50 {
            sent += usize::from(flood.send());
        }
        // Some 20,000 a second leave the processors to others.
        std::thread::sleep(Duration::from_millis(2));
    }
    sent
}

#[test]
fn a_million_sources_cost_no_memory_and_nobody_its_bucket() {
    let Some(net) = Net::new() else { return };
    let guard = "keys 65536\n\
        rule \"each\" { by \"source\"; rate 100 burst=100; always; class \"bulk\"; }";
    let weir = run(&net, guard);
    let before = weir.resident_bytes();
    net.client(|| {
        assert!(is_served(GOLD));
        let mut flood = Flood::new(ADDRESS);
        let sent = (0..1_000_000).filter(|_| flood.send()).count();
        assert!(sent > 900_000, "{sent}");
        assert!(is_served(GOLD));
    });
    let grown = weir.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown}");
    let (_, offered) = dropped(&status(&net, &weir), "each");
    assert!(offered > 500_000, "{offered}");
}

#[test]
fn a_hundred_thousand_prefixes_in_the_kernel_and_without() {
    let Some(net) = Net::new() else { return };
    for kernel in ["auto", "off"] {
        let directory = tempfile::TempDir::new().unwrap();
        let mut list: String = (0..100_000_u32)
            .map(|n| format!("{}/24\n", Ipv4Addr::from(0x2000_0000 + (n << 9))))
            .collect();
        list.push_str("10.77.0.4/31\n");
        std::fs::write(directory.path().join("bad.txt"), list).unwrap();
        let guard = format!(
            "kernel \"{kernel}\"\nlist \"bad\" \"bad.txt\"\n\
             rule \"bad\" {{ from \"@bad\"; refuse; always; }}"
        );
        let weir = net.server(|| Weir::run_in(directory, &config(&guard), &[]));
        weir.wait_for_log("admin API on");
        net.client(|| {
            assert!(is_served(GOLD), "{kernel}");
            let error = get(OTHER, DROPPED).unwrap_err();
            let expected = match kernel {
                "off" => std::io::ErrorKind::ConnectionReset,
                _ => std::io::ErrorKind::TimedOut,
            };
            assert_eq!(error.kind(), expected, "{kernel}: {error}");
        });
    }
}

/// Rules come and go, classes with them, while connections are made all the time.
#[test]
fn reloads_lose_no_connection() {
    let Some(net) = Net::new() else { return };
    let variants = [
        "rule \"gold\" { from \"10.77.0.3\"; class \"gold\"; }",
        "rule \"gold\" { from \"10.77.0.3\"; class \"gold\"; rate 100000; always; }",
        "class \"silver\" priority=4\nrule \"gold\" { from \"10.77.0.0/16\"; class \"silver\"; }",
        "rule \"path\" { path \"/none\"; refuse; }",
        "kernel \"off\"",
    ];
    let weir = run(&net, variants[0]);
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for from in [GOLD, OTHER] {
            let (is_over, served, net) = (&is_over, &served, &net);
            scope.spawn(move || {
                net.client(|| {
                    while !is_over.load(SeqCst) {
                        let text = get(from, PATIENCE).unwrap();
                        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
                        served.fetch_add(1, SeqCst);
                    }
                });
            });
        }
        let mut reloads = 0;
        for guard in variants.iter().cycle().skip(1).take(25) {
            std::fs::write(weir.directory().join("weir.kdl"), config(guard)).unwrap();
            weir.signal(Signal::HUP);
            reloads += 1;
            let count = || weir.log().matches("configuration reloaded").count();
            let done = wait_for(PATIENCE, || (count() >= reloads).then_some(()));
            assert!(done.is_some(), "reload {reloads}");
        }
        is_over.store(true, SeqCst);
    });
    assert!(served.load(SeqCst) > 50, "{served:?}");
    assert_eq!(weir.log().matches("ERROR").count(), 0);
}

/// Programs are loaded before privileges are dropped, and go on after that.
#[test]
fn privileges_are_dropped_after_loading() {
    let Some(net) = Net::new() else { return };
    let guard = "rule \"few\" { from \"10.77.0.4\"; rate 1 burst=1 per=\"hour\"; always; }\n\
        rule \"gold\" { from \"10.77.0.3\"; class \"gold\"; }";
    let config = config(guard).replace("workers 2;", "workers 2; user \"nobody\";");
    let weir = net.server(|| Weir::run(&config, &[]));
    weir.wait_for_log("admin API on");
    net.client(|| {
        assert!(is_served(OTHER) && is_served(GOLD));
        assert_eq!(get(OTHER, DROPPED).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    });
}

/// Without the privilege the same is decided after accept, and said at start.
#[test]
fn without_privileges_rules_hold_all_the_same() {
    let address = free_address();
    let directory = tempfile::TempDir::new().unwrap();
    let text = format!(
        "server {{ workers 2; admin \"off\"; }}\n\
         guard {{\n\
         rule \"few\" {{ from \"127.0.0.5\"; rate 1 burst=2 per=\"hour\"; always; }}\n}}\n\
         site \"*\" {{ listen \"{address}\"; route \"/*\" {{ respond \"hello\"; }}; }}\n"
    );
    std::fs::write(directory.path().join("weir.kdl"), text).unwrap();
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let mut binary = Command::new(env!("CARGO_BIN_EXE_weir"));
    if rustix::process::geteuid().is_root() {
        // Who is not root has no privilege anyway. The binary lies where only root may look.
        let copy = directory.path().join("weir");
        std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), mode).unwrap();
        binary = Command::new(copy);
        binary.uid(65534).gid(65534);
    }
    let mut child = binary
        .args(["run", "weir.kdl"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let listening = wait_for(PATIENCE, || said().contains("listening on").then_some(()));
    let ask = |from: [u8; 4]| -> std::io::Result<String> {
        let mut stream = connect_from(from.into(), address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let seen = listening.map(|()| {
        let few: Vec<_> = (0..3).map(|_| ask([127, 0, 0, 5]).is_ok()).collect();
        (few, ask([127, 0, 0, 6]).is_ok())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, Some((vec![true, true, false], true)), "{}", said());
    assert!(said().contains("user space: 1 rule after accept"), "{}", said());
}

/// A server whose `/dear` takes a third of a second, one at a time.
fn dear(net: &Net) -> (Origin, impl Fn(&str) -> String) {
    let origin = net.server(|| {
        Origin::start(|_| {
            let mut steps = vec![Step::Pause(Duration::from_millis(300))];
            steps.extend(answer("200 OK", "Cache-Control: no-store\r\n", b"dear"));
            steps
        })
    });
    let upstream = format!("upstream \"app\" {{ server \"{}\"; concurrency 1; }}\n", origin.url());
    let routes = "route \"/dear\" { proxy \"app\"; }; route \"/*\"";
    (origin, move |guard| config(guard).replace("route \"/*\"", routes) + &upstream)
}

/// Has others ask for `/dear` for as long as `run` takes.
fn crowded<T>(net: &Net, run: impl FnOnce() -> T) -> T {
    let (began, is_over) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                net.client(|| {
                    while !is_over.load(SeqCst) && began.elapsed() < 3 * PATIENCE {
                        let text = send(GOLD, "/dear", PATIENCE).and_then(receive).unwrap();
                        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
                    }
                });
            });
        }
        let result = run();
        is_over.store(true, SeqCst);
        result
    })
}

const REST: &str = "rule \"rest\" { from \"10.77.0.4\"; refuse; }";

/// The end of overload is seen though there is nobody left who could ask for anything.
#[test]
fn the_kernel_is_told_of_the_end_of_overload() {
    let Some(net) = Net::new() else { return };
    let (_origin, config) = dear(&net);
    let weir = net.server(|| Weir::run(&config(REST), &[]));
    weir.wait_for_log("admin API on");
    let becomes = |wanted| {
        let seen = || (is_served(OTHER) == wanted).then_some(());
        net.client(|| wait_for(PATIENCE, seen)).is_some()
    };
    assert!(becomes(true));
    assert!(crowded(&net, || becomes(false)), "not refused under overload");
    assert!(becomes(true), "refused though there is no overload");
}

#[test]
fn the_kernel_is_told_of_overload_that_it_has_not_seen_begin() {
    let Some(net) = Net::new() else { return };
    let (origin, config) = dear(&net);
    let weir = net.server(|| Weir::run(&config(""), &[]));
    weir.wait_for_log("admin API on");
    let is_refused = crowded(&net, || {
        let is_overloaded = || (status(&net, &weir)["overloaded"] == true).then_some(());
        assert!(wait_for(PATIENCE, is_overloaded).is_some());
        // Workers look for it when requests come.
        origin.take();
        let mut came = 0;
        let some_came = || {
            came += origin.take().len();
            (came >= 3).then_some(())
        };
        assert!(wait_for(PATIENCE, some_came).is_some());
        std::fs::write(weir.directory().join("weir.kdl"), config(REST)).unwrap();
        weir.signal(Signal::HUP);
        weir.wait_for_log("configuration reloaded");
        net.client(|| wait_for(PATIENCE, || (!is_served(OTHER)).then_some(()))).is_some()
    });
    assert!(is_refused);
}

/// Each class's queue is as long as it is, whatever it was when somebody last came to it.
#[test]
fn a_queue_that_was_emptied_does_not_stand() {
    let Some(net) = Net::new() else { return };
    let guard = format!(
        "overload target=\"400ms\" interval=\"500ms\"\n\
         rule \"gold\" {{ from \"{GOLD}\"; class \"gold\"; }}"
    );
    let config = config(&guard).replace("workers 2", "workers 1");
    let weir = net.server(|| Weir::run(&config, &[]));
    weir.wait_for_log("admin API on");
    net.client(|| {
        // As many come at once as are let in in one turn.
        weir.signal(Signal::STOP);
        let sent = [OTHER; 4].map(|from| send(from, "/", PATIENCE).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        weir.signal(Signal::CONT);
        for stream in sent {
            assert!(receive(stream).unwrap().starts_with("HTTP/1.1 200 "));
        }
        std::thread::sleep(Duration::from_millis(600));
        for _ in 0..80 {
            assert!(is_served(GOLD));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let status = status(&net, &weir);
    assert_eq!(status["overloads"], 0, "{status}");
}
