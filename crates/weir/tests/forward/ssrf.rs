//! What clients try who want the proxy to go where they cannot: to this machine, its network, and
//! the server itself.

use std::net::TcpListener;

use http::{Method, Request, Version};
use tokio::net::TcpStream;

use super::http2::{begin, run, speak};
use super::inspection::{ask_inside_raw, inspected};
use super::tunnels::connect;
use super::*;

/// A proxy that may ask no private address at all, and a service on this machine, at a port that
/// may be asked for.
fn closed() -> (TcpListener, Weir, SocketAddr) {
    let (inside, address) = (TcpListener::bind("127.0.0.1:0").unwrap(), free_address());
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    let forward = format!("forward {{ ports 80 {port}; connect 443 {port}; }}");
    let config = front_config(address, "", &format!("route \"/*\" {{ {forward}\n}}"));
    (inside, Weir::run(&config, &[address]), address)
}

/// Whether nobody has connected.
fn is_untouched(listener: &TcpListener) -> bool {
    listener.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The status of what these bytes are answered.
fn raw(proxy: SocketAddr, head: &[u8]) -> u16 {
    let mut client = Client::connect(proxy).unwrap();
    client.send(head).unwrap();
    let head = String::from_utf8(client.head().unwrap()).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Hosts that mean this machine, or another that is private, to some program.
const HOSTS: &[&str] = &[
    // Numbers: decimal, octal, hexadecimal, too few, too many, and with a dot at their end.
    "0",
    "0x0",
    "00000000000",
    "2130706433.",
    "017700000001",
    "0x7F000001",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1.",
    "127.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    "127.0.0.1..",
    "0.1.2.3",
    "192.0.0.170",
    "198.18.0.1",
    "4294967296",
    // Addresses that carry others.
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:0:0:0:0:80ff:fffe]",
    "[2a00:1450::5efe:127.0.0.1]",
    // Others that are not public.
    "[fec0::1]",
    "[fe80::1]",
    "[100::1]",
    "[ff02::1]",
    "[0:0:0:0:0:0:0:1]",
    // Zones, with and without coding.
    "[::1%25lo]",
    "[::1%lo]",
    "[fe80::1%1]",
    // Names of this machine.
    "localhost",
    "localhost.",
    "LOCALhost",
    // Coded, and with what ends a host to somebody.
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "127.0.0.1%00.example",
    "127.0.0.1%09",
    "user@127.0.0.1",
    "user:word@127.0.0.1",
    "a.example@127.0.0.1",
    "127.0.0.1\\@a.example",
    "127.0.0.1,a.example",
    "::1",
    "[::1",
    "[127.0.0.1]",
    "[v1.127.0.0.1]",
    "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
    "127\u{3002}0\u{3002}0\u{3002}1",
];

#[test]
fn no_form_of_a_host_leads_inside() {
    let (inside, _weir, proxy) = closed();
    let port = inside.local_addr().unwrap().port();
    for host in HOSTS {
        let get = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let status = raw(proxy, get.as_bytes());
        assert!(matches!(status, 400 | 403), "GET {host}: {status}");
        let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        let status = raw(proxy, connect.as_bytes());
        assert!(matches!(status, 400 | 403), "CONNECT {host}: {status}");
        assert!(is_untouched(&inside), "{host}");
    }
}

#[test]
fn no_form_of_a_port_is_another_one() {
    let (origin, _weir, proxy) = proxy("connect \"1024-65535\"", "");
    let port = origin.address.port();
    let wrapped = u32::from(port) + 65_536;
    for written in [
        "0".to_owned(),
        "00000".to_owned(),
        "65536".to_owned(),
        "99999".to_owned(),
        wrapped.to_string(),
        (u64::from(port) + (1 << 32)).to_string(),
        (u128::from(port) + (1 << 64)).to_string(),
        format!("00{port}"),
        format!("+{port}"),
        format!("-{port}"),
        format!("{port}.0"),
        format!("0x{port:x}"),
        format!("{port}%20"),
        format!("{port}:{port}"),
        format!("{port}@a.example"),
    ] {
        let get = format!("GET http://127.0.0.1:{written}/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(raw(proxy, get.as_bytes()), 400, "GET {written}");
        let connect = format!("CONNECT 127.0.0.1:{written} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(raw(proxy, connect.as_bytes()), 400, "CONNECT {written}");
    }
    assert_eq!(origin.take().len(), 0);
    // The default of one scheme is not that of another, and is judged like any.
    for url in ["http://127.0.0.1/", "http://127.0.0.1:/", "https://127.0.0.1/"] {
        let response = fetch(proxy, url);
        let field = response.header("proxy-status").unwrap_or_default();
        assert_eq!((response.status, field.contains("\"port\"")), (403, true), "{url}");
    }
}

/// Fields that say where a request is for are not asked.
#[test]
fn only_the_target_says_where_to() {
    let (origin, _weir, proxy) = proxy("", "");
    let authority = origin.address.to_string();
    let fields = [
        ("host", "169.254.169.254"),
        ("forwarded", "host=169.254.169.254"),
        ("x-forwarded-host", "169.254.169.254"),
        ("x-host", "169.254.169.254"),
        ("x-original-url", "http://169.254.169.254/"),
        ("x-rewrite-url", "/rewritten"),
        ("alt-used", "169.254.169.254"),
    ];
    let response = ask(proxy, "GET", &format!("{}/a", origin.url()), &fields);
    assert_eq!(text(&response), format!("{authority} GET /a HTTP/1.1"));
    for target in
        ["//169.254.169.254/", "/http://169.254.169.254/", "http:/a", "http:a.example", "a"]
    {
        assert_eq!(ask(proxy, "GET", target, &[("host", &authority)]).status, 400, "{target}");
    }
    assert_eq!(origin.take().len(), 1);
}

#[test]
fn redirects_are_for_the_client_to_follow() {
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let location = format!("http://{}/secret", inside.local_addr().unwrap());
    let fields = format!("Location: {location}\r\nRefresh: 0; url={location}\r\n");
    let origin = Origin::start(move |_: &Received| answer("302 Found", &fields, b""));
    let address = free_address();
    let ports = format!("ports {}", origin.address.port());
    let route = format!("route \"/*\" {{ forward {{ private \"127.0.0.1\"; {ports}; }}\n}}");
    let _weir = Weir::run(&front_config(address, "", &route), &[address]);
    let response = fetch(address, &origin.url());
    assert_eq!((response.status, response.header("location")), (302, Some(&*location)));
    // Whoever follows is judged like whoever goes there first.
    assert_eq!(fetch(address, &location).status, 403);
    assert!(is_untouched(&inside));
}

#[test]
fn authorities_of_http2_are_judged_likewise() {
    let (inside, _weir, proxy) = closed();
    let port = inside.local_addr().unwrap().port();
    run(async {
        let mut client = speak(TcpStream::connect(proxy).await.unwrap()).await;
        for host in HOSTS {
            let authority = format!("{host}:{port}");
            // What the library refuses to send nobody can ask for with it.
            if http::uri::Authority::try_from(authority.as_str()).is_err() {
                continue;
            }
            for (method, target) in
                [(Method::GET, format!("http://{authority}/")), (Method::CONNECT, authority)]
            {
                let (status, _, _) = begin(&mut client, method.clone(), &target).await;
                assert!(matches!(status, 400 | 403), "{method} {target}: {status}");
            }
        }
        // A field that says otherwise than :authority (RFC 9113, section 8.3.1).
        let request = Request::get(format!("http://127.0.0.1:{port}/")).version(Version::HTTP_2);
        let request = request.header("host", "a.example").body(()).unwrap();
        let status = client.send_request(request, true).unwrap().0.await.unwrap().status();
        assert!(matches!(status.as_u16(), 400 | 403), "{status}");
    });
    assert!(is_untouched(&inside));
}

/// The server itself, by each of its listeners, as a request and as a tunnel.
#[test]
fn nobody_asks_the_server_through_itself() {
    let (admin, second) = (free_address(), free_address());
    let rest = format!(
        "server {{ admin \"{admin}\"; }}\nsite \"second.example\" {{ listen \"{second}\"; \
         route \"/*\" {{ respond \"second\"; }}\n}}"
    );
    let (_origin, weir, proxy) = proxy_with(&rest, "connect \"1024-65535\"", "");
    for own in [proxy, admin, second] {
        let port = own.port();
        for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "localhost"] {
            let url = format!("http://{host}:{port}/metrics");
            assert_eq!(fetch(proxy, &url).status, 403, "{url}");
            let (_client, response) = connect(proxy, &format!("{host}:{port}"));
            assert_eq!(response.status, 403, "{host}:{port}");
        }
    }
    // Nor by a name that leads there, with the host's own name in the request.
    let url = format!("http://127.0.0.1:{}/", second.port());
    assert_eq!(ask(proxy, "GET", &url, &[("host", "second.example")]).status, 403);
    drop(weir);
}

/// A tunnel that is inspected is for its host: whole URLs lead nowhere else either.
#[test]
fn whole_urls_inside_of_a_tunnel_lead_nowhere_else() {
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let inspected = inspected("\"localhost\"", true, "");
    let (to, port) = (format!("localhost:{}", inspected.port), inside.local_addr().unwrap().port());
    for (target, host, expected) in [
        (format!("http://127.0.0.1:{port}/"), to.clone(), "421"),
        (format!("https://127.0.0.1:{port}/"), to.clone(), "421"),
        (format!("https://localhost:{port}/"), to.clone(), "421"),
        (format!("https://user@{to}/"), to.clone(), "400"),
        ("/".to_owned(), format!("127.0.0.1:{port}"), "421"),
        (format!("https://{to}/"), "169.254.169.254".to_owned(), "200"),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = ask_inside_raw(&inspected, head.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{target}: {answer}");
    }
    assert!(is_untouched(&inside));
}
