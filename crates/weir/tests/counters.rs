//! Counters that an operator sets alarms on.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod common;

use std::net::SocketAddr;

use common::client::{self, Client};
use common::server::{Weir, command};
use common::{free_address, wait_for};

/// The value of a metric without labels, or with those given in `name`.
fn metric(admin: SocketAddr, name: &str) -> u64 {
    let page = client::get(admin, "localhost", "/metrics").unwrap();
    let page = String::from_utf8(page.body).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

fn config(admin: SocketAddr, address: SocketAddr, limits: &str) -> String {
    format!(
        "server {{ admin \"{admin}\"; workers 1; limits {{ {limits}; }} }}\n\
         site \"*\" {{ listen \"{address}\"; route \"/*\" {{ respond \"ok\"; }} }}\n"
    )
}

#[test]
fn refused_configurations_are_counted_whatever_is_wrong_with_them() {
    let (admin, address) = (free_address(), free_address());
    let good = config(admin, address, "connections 100");
    let weir = Weir::run(&good, &[address, admin]);
    let reload = |text: &str| {
        std::fs::write(weir.directory().join("weir.kdl"), text).unwrap();
        command(weir.directory(), &["reload", "--admin", &admin.to_string()]).status.success()
    };
    let failures = || metric(admin, "weir_config_reload_failures_total");
    assert_eq!(failures(), 0);
    assert!(!reload("sit \"*\" { }"), "no configuration");
    assert_eq!(failures(), 1);
    assert!(!reload(&good.replace("workers 1", "workers 2")), "needs a restart");
    assert_eq!(failures(), 2);
    assert!(reload(&good));
    assert_eq!((failures(), metric(admin, "weir_config_reloads_total")), (2, 1));
}

#[test]
fn connections_that_make_room_are_counted() {
    let (admin, address) = (free_address(), free_address());
    let _weir = Weir::run(&config(admin, address, "connections 1"), &[address, admin]);
    let evicted = || metric(admin, "weir_connections_reaped_total{reason=\"evicted\"}");
    let mut kept = None;
    // The harness's own connection may still be open.
    let served = wait_for(common::PATIENCE, || {
        let mut client = Client::connect(address).unwrap();
        let served = client.ask("GET", "/", &[]).is_ok_and(|response| response.status == 200);
        kept = Some(client);
        served.then_some(())
    });
    assert!(served.is_some());
    let before = evicted();
    let mut next = Client::connect(address).unwrap();
    assert_eq!(next.ask("GET", "/", &[]).unwrap().status, 200, "the kept one makes room");
    assert_eq!(evicted(), before + 1);
}
