//! Where it may go: hosts, ports, addresses, however they are written.

use std::net::TcpListener;

use super::common::client::get;
use super::common::{PATIENCE, wait_for};
use super::tunnels::connect;
use super::*;
use tempfile::TempDir;

/// Status, and the details of Proxy-Status.
fn outcome(proxy: SocketAddr, url: &str) -> (u16, Option<String>) {
    let response = fetch(proxy, url);
    let field = response.header("proxy-status").map(str::to_owned);
    let details = field.and_then(|field| Some(field.split('"').nth(1)?.to_owned()));
    (response.status, details)
}

#[test]
fn private_addresses_are_denied_however_they_are_written() {
    let (origin, address) = (Origin::start(echo), free_address());
    let port = origin.address.port();
    let route = format!("route \"/*\" {{ forward {{ ports 80 {port}; }}\n}}");
    let _weir = Weir::run(&front_config(address, "", &route), &[address]);
    for host in [
        "127.0.0.1",
        "127.1.2.3",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "169.254.169.254",
        "192.168.0.1",
        "172.31.255.254",
        "100.64.0.1",
        "[fd00::1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let (status, details) = outcome(address, &format!("http://{host}:{port}/"));
        assert_eq!((status, details.as_deref()), (403, Some("private")), "{host}");
    }
    // What one program takes for an address and another does not.
    for host in [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.1.1",
        "user@127.0.0.1",
        "127.0.0.1%2f",
        "[fe80::1%25lo]",
        "127.0.0.1:80:80",
    ] {
        assert_eq!(outcome(address, &format!("http://{host}/")).0, 400, "{host}");
    }
    assert_eq!(origin.take().len(), 0);
}

#[test]
fn hosts_and_ports_are_denied_by_name() {
    let (origin, _weir, address) =
        proxy("deny \"localhost\" \"*.bad.example\"\ndeny \"*\" port=7777", "");
    let port = origin.address.port();
    let check = |host: &str, expected: (u16, Option<&str>)| {
        let (status, details) = outcome(address, &format!("http://{host}/"));
        assert_eq!((status, details.as_deref()), expected, "{host}");
    };
    check(&format!("127.0.0.1:{port}"), (200, None));
    check(&format!("localhost:{port}"), (403, Some("host")));
    check(&format!("LocalHost.:{port}"), (403, Some("host")));
    check("a.bad.example:8080", (403, Some("host")));
    check("127.0.0.1:7777", (403, Some("host")));
    check("127.0.0.1", (403, Some("port")));
    check("127.0.0.1:22", (403, Some("port")));
    check("127.0.0.1:0", (400, None));
}

#[test]
fn only_what_is_allowed_is_where_some_is() {
    let (origin, _weir, address) = proxy("allow \"localhost\" \"127.0.0.2\"", "");
    let port = origin.address.port();
    assert_eq!(outcome(address, &format!("http://localhost:{port}/")).0, 200);
    let denied = outcome(address, &format!("http://127.0.0.1:{port}/"));
    assert_eq!(denied, (403, Some("address".to_owned())));
}

#[test]
fn a_name_without_an_address_is_502() {
    let (_origin, _weir, address) = proxy("", "");
    // RFC 6761, section 6.4: never resolves.
    assert_eq!(outcome(address, "http://nowhere.invalid:8080/").0, 502);
}

/// A name that means another address at the next question leads to none that is not allowed.
#[test]
fn a_name_that_is_rebound_leads_nowhere_else() {
    let origin = Origin::start(|request| {
        let body = request.line();
        answer("200 OK", "Cache-Control: no-store\r\nConnection: close\r\n", body.as_bytes())
    });
    let port = origin.address.port();
    let other = TcpListener::bind(("127.0.0.2", port)).unwrap();
    other.set_nonblocking(true).unwrap();
    let (directory, address) = (TempDir::new().unwrap(), free_address());
    let hosts = directory.path().join("hosts");
    let means = |addresses: &[&str]| {
        let lines = addresses.iter().map(|address| format!("{address} rebinding.test\n"));
        std::fs::write(&hosts, lines.collect::<String>()).unwrap();
    };
    means(&["127.0.0.1"]);
    let lines = "forward { private \"127.0.0.1\"; ports \"1024-65535\"; connect \"1024-65535\"; }";
    let config = front_config(address, "", &format!("route \"/*\" {{ {lines}\n}}"));
    let Some(_weir) = Weir::run_with_hosts(directory, &config, &[address]) else { return };
    let to = format!("rebinding.test:{port}");
    let tunnel = || {
        let answer = connect(address, &to).1;
        let field = answer.header("proxy-status").unwrap_or_default().to_owned();
        (answer.status, field.split('"').nth(1).map(str::to_owned))
    };
    let private = (403, Some("private".to_owned()));
    assert_eq!(outcome(address, &format!("http://{to}/")), (200, None));
    assert_eq!(tunnel(), (200, None));

    means(&["127.0.0.2"]);
    assert_eq!(tunnel(), private);
    // What was found before is used for some seconds more: it was judged.
    let rebound = wait_for(PATIENCE, || {
        let outcome = outcome(address, &format!("http://{to}/"));
        (outcome != (200, None)).then_some(outcome)
    });
    assert_eq!(rebound.as_ref(), Some(&private));
    // Of several addresses, those that are not allowed are left out.
    means(&["::1", "127.0.0.1"]);
    assert_eq!(tunnel(), (200, None));
    means(&["::1", "127.0.0.2"]);
    assert_eq!(tunnel(), private);
    let nobody = other.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(nobody, Err(std::io::ErrorKind::WouldBlock));
}

/// A listener on all addresses is found by any of them, however that is written.
#[test]
fn the_server_is_not_asked_itself_by_any_address() {
    for any in ["0.0.0.0", "[::]"] {
        let address = free_address();
        let forward = "forward { from \"127.0.0.0/8\" \"::/0\"; private \"0.0.0.0/0\" \"::/0\"; \
                       ports \"1024-65535\"; connect \"1024-65535\"; }";
        let config = front_config(address, "", &format!("route \"/*\" {{ {forward}\n}}"));
        let config = config.replace(&address.to_string(), &format!("{any}:{}", address.port()));
        let _weir = Weir::run(&config, &[address]);
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "localhost",
            "0.0.0.0",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:0.0.0.0]",
        ] {
            let (status, details) = outcome(address, &format!("http://{host}:{}/", address.port()));
            assert_eq!((status, details.as_deref()), (403, Some("own")), "{any} {host}");
        }
    }
}

#[test]
fn the_server_is_not_asked_itself() {
    let admin = free_address();
    let server = format!("server {{ admin \"{admin}\"; }}");
    let (_origin, _weir, address) = proxy_with(&server, "", "");
    for own in [address, admin] {
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            let (status, details) = outcome(address, &format!("http://{host}:{}/", own.port()));
            // Of the addresses of localhost, ::1 is not opened.
            let is_refused = matches!(details.as_deref(), Some("own" | "private"));
            assert!(is_refused && status != 200, "{host}: {status} {details:?}");
        }
    }
    let metrics = text(&get(admin, "localhost", "/metrics").unwrap());
    assert!(metrics.contains("weir_forward_requests_total 8"), "{metrics}");
    let denied = metrics.lines().find(|line| line.contains("reason=\"own\"")).unwrap();
    assert!(!denied.ends_with(" 0"), "{denied}");
}
