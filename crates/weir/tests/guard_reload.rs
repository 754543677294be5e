//! Overload control before the request, while the configuration changes: what listeners are for,
//! and what the kernel is told when.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Output;
use std::time::Duration;

use common::net::{Net, SERVER, connect_from};
use common::server::{Weir, command};
use common::{PATIENCE, wait_for};

const PORT: u16 = 8079;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 4);
const ADMIN: &str = "127.0.0.1:9079";

/// Longer than a SYN that is sent again takes (RFC 6298 §2.1: one second).
const DROPPED: Duration = Duration::from_millis(2500);

/// A server with this in its guard block, and more sites.
fn config(guard: &str, more: &str) -> String {
    format!(
        "server {{ workers 2; admin \"{ADMIN}\"; }}\nguard {{\n{guard}\n}}\n\
         site \"*\" {{ listen \"{SERVER}:{PORT}\"; route \"/*\" {{ respond \"a\"; }}; }}\n{more}"
    )
}

fn run(net: &Net, config: &str) -> Weir {
    // It is on the loopback interface of the server's side that it is waited for.
    let weir = net.server(|| Weir::run(config, &[]));
    weir.wait_for_log("admin API on");
    weir
}

fn reload(net: &Net, weir: &Weir, config: &str) -> Output {
    std::fs::write(weir.directory().join("weir.kdl"), config).unwrap();
    net.server(|| command(weir.directory(), &["reload", "--admin", ADMIN]))
}

/// Whether the client is answered, on a connection that begins with these bytes.
fn is_served(net: &Net, port: u16, preface: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = connect_from(CLIENT, SocketAddr::from((SERVER, port)), DROPPED)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = "GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n";
        stream.write_all(format!("{preface}{head}").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    net.client(|| ask().is_ok_and(|text| text.starts_with("HTTP/1.1 200 ")))
}

/// Without a rule it has done nothing in the kernel, nor does it for those of a file that it does
/// not take.
#[test]
fn a_reload_that_is_refused_tells_the_kernel_nothing() {
    let Some(net) = Net::new() else { return };
    let weir = run(&net, &config("", ""));
    let taken = net.server(|| TcpListener::bind((SERVER, 8080)).unwrap());
    let more =
        format!("site \"b\" {{ listen \"{SERVER}:8080\"; route \"/*\" {{ respond \"b\"; }}; }}");
    for hook in ["tcx", "xdp"] {
        let guard = format!(
            "interface \"server\" hook=\"{hook}\"\n\
             rule \"no\" {{ from \"{CLIENT}\"; refuse; always; }}"
        );
        let output = reload(&net, &weir, &config(&guard, &more));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(":8080"), "{said}");
        assert!(is_served(&net, PORT, ""), "{hook}");
        // The next one is as if it had not been.
        let output = reload(&net, &weir, &config("", ""));
        assert!(output.status.success(), "{output:?}");
        assert!(is_served(&net, PORT, ""), "{hook}");
    }
    drop(taken);
    let guard = format!("rule \"no\" {{ from \"{CLIENT}\"; refuse; always; }}");
    assert!(reload(&net, &weir, &config(&guard, &more)).status.success(), "{}", weir.log());
    assert!(!is_served(&net, PORT, "") && !is_served(&net, 8080, ""));
}

/// Behind a balancer that names clients by the PROXY protocol, a connection's source is the
/// balancer, whichever way the kernel meets it.
#[test]
fn connections_of_balancers_are_not_judged_as_clients() {
    let Some(net) = Net::new() else { return };
    for interface in ["", "interface \"server\" hook=\"tcx\"", "interface \"server\" hook=\"xdp\""]
    {
        let guard = format!("{interface}\nrule \"no\" {{ from \"{CLIENT}\"; refuse; always; }}");
        let behind = |proxied: bool| {
            let listen = format!("\"{SERVER}:8080\" proxy-protocol=#{proxied}");
            format!("site \"b\" {{ listen {listen}; route \"/*\" {{ respond \"b\"; }}; }}")
        };
        let weir = run(&net, &config(&guard, &behind(true)));
        let named = |from: &str| format!("PROXY TCP4 {from} 198.51.100.1 5000 8080\r\n");
        let seen = [
            is_served(&net, PORT, ""),
            is_served(&net, 8080, &named("192.0.2.7")),
            is_served(&net, 8080, &named("10.77.0.4")),
        ];
        assert_eq!(seen, [false, true, false], "{interface}: {}", weir.log());
        // The same sockets are judged, or not, as the configuration changes.
        assert!(reload(&net, &weir, &config(&guard, &behind(false))).status.success());
        assert!(!is_served(&net, 8080, ""), "{interface}");
        assert!(reload(&net, &weir, &config(&guard, &behind(true))).status.success());
        assert!(is_served(&net, 8080, &named("192.0.2.7")), "{interface}");
    }
}

/// Classes that come while there are rules already have accept queues of their own.
#[test]
fn classes_that_come_later_have_queues() {
    let Some(net) = Net::new() else { return };
    let rate = "rule \"rate\" { rate 100000; always; }";
    let weir = run(&net, &config(rate, ""));
    let listeners = || -> BTreeSet<String> {
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", weir.pid())).unwrap();
        let port = format!(":{PORT:04X}");
        // Local address, state, of which 0A is to listen, and inode.
        let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
        let ours = words.filter(|words| words[1].ends_with(&port) && words[3] == "0A");
        ours.map(|words| words[9].to_owned()).collect()
    };
    let check = |guard: &str, expected: usize| {
        let before = listeners();
        assert!(reload(&net, &weir, &config(guard, "")).status.success());
        let others = || Some(listeners()).filter(|now| now.is_disjoint(&before));
        assert_eq!(wait_for(PATIENCE, others).unwrap().len(), expected, "{guard}");
        assert!(is_served(&net, PORT, ""));
    };
    assert_eq!(listeners().len(), 2);
    let gold = format!(
        "class \"gold\" priority=1\nrule \"gold\" {{ from \"{CLIENT}\"; class \"gold\"; }}"
    );
    check(&format!("{gold}\n{rate}"), 4);
    check(rate, 2);
}
