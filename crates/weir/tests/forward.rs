//! A forward proxy: whole URLs, through all that other requests pass, to where it may go.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "forward/cache.rs"]
mod cache;
#[path = "forward/destinations.rs"]
mod destinations;
#[path = "forward/http2.rs"]
mod http2;
#[path = "forward/inspection.rs"]
mod inspection;
#[path = "forward/lookups.rs"]
mod lookups;
#[path = "forward/ssrf.rs"]
mod ssrf;
#[path = "forward/tunnels.rs"]
mod tunnels;
#[path = "forward/users.rs"]
mod users;

use std::net::SocketAddr;

use common::client::{Client, Response, ask};
use common::free_address;
use common::origin::{Origin, Received, answer};
use common::server::{Weir, front_config};

/// What origins answer: which request it was.
fn echo(request: &Received) -> Vec<common::origin::Step> {
    let host = request.values("host").join(",");
    let body = format!("{host} {}", request.line());
    answer("200 OK", "Cache-Control: max-age=600\r\n", body.as_bytes())
}

/// A proxy with these lines in `forward` and these beside it, in front of an origin on loopback,
/// which it may ask.
fn proxy(lines: &str, beside: &str) -> (Origin, Weir, SocketAddr) {
    proxy_with("", lines, beside)
}

/// The same with more around the site.
fn proxy_with(rest: &str, lines: &str, beside: &str) -> (Origin, Weir, SocketAddr) {
    let (origin, address) = (Origin::start(echo), free_address());
    let forward = format!("forward {{ private \"127.0.0.1\"\nports \"1024-65535\"\n{lines}\n}}");
    let route =
        format!("access-log \"-\" format=\"json\"\nroute \"/*\" {{ {forward}\n{beside}\n}}");
    let config = front_config(address, rest, &route);
    let weir = Weir::run(&config, &[address]);
    (origin, weir, address)
}

/// Asks a proxy for a whole URL.
fn fetch(proxy: SocketAddr, url: &str) -> Response {
    ask(proxy, "GET", url, &[("host", "elsewhere.example")])
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[test]
fn a_whole_url_is_asked_of_the_origin_it_names() {
    let (origin, weir, address) = proxy("", "");
    let (port, url) = (origin.address.port(), origin.url());
    let mut client = Client::connect(address).unwrap();
    let fields = [
        ("host", "other.example"),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("proxy-connection", "keep-alive"),
        ("x-forwarded-for", "192.0.2.7"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("x-own", "2"),
    ];
    let response = client.ask("GET", &format!("{url}/a%41?b=c"), &fields).unwrap();
    // The target's host counts, not the field's (RFC 9112, section 3.2.2).
    assert_eq!(text(&response), format!("127.0.0.1:{port} GET /a%41?b=c HTTP/1.1"));
    assert!(response.header("via").is_some() && response.header("proxy-status").is_none());
    let [asked] = &origin.take()[..] else { panic!("asked more than once") };
    for gone in ["proxy-authorization", "proxy-connection", "x-forwarded-for", "forwarded", "x-hop"]
    {
        assert_eq!(asked.values(gone), Vec::<String>::new(), "{gone}");
    }
    assert_eq!(asked.values("x-own"), ["2"]);
    assert_eq!(asked.values("via").len(), 1);
    // Its connection goes on, and the next request may be for another host.
    let named = client.ask("GET", &format!("http://localhost:{port}"), &[]).unwrap();
    assert_eq!(text(&named), format!("localhost:{port} GET / HTTP/1.1"));
    // What the origin is told is what its answer is stored for.
    let odd = client.ask("GET", &format!("http://LocalHost.:{port}/odd"), &[]).unwrap();
    assert_eq!(text(&odd), format!("localhost:{port} GET /odd HTTP/1.1"));
    let head = client.ask("HEAD", &url, &[]).unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    weir.wait_for_log(&format!("\"{url}/a%41?b=c\""));
}

#[test]
fn what_names_no_origin_is_refused() {
    let (origin, _weir, address) = proxy("", "");
    // By the fast lane and by hyper alike.
    for fields in [&[("host", "127.0.0.1")][..], &[("host", "127.0.0.1"), ("te", "trailers")]] {
        let response = ask(address, "GET", "/", fields);
        assert_eq!(response.status, 400);
        assert_eq!(text(&response), "400 Bad Request: a forward proxy is asked for whole URLs\n");
        assert_eq!(response.header("proxy-status"), Some("weir; error=http_request_error"));
    }
    assert_eq!(ask(address, "GET", "ftp://127.0.0.1/", &[]).status, 400);
    assert_eq!(origin.take().len(), 0);
}

/// NTLM and Negotiate authenticate connections: nobody else's request goes by such a one.
#[test]
fn connections_of_one_user_are_not_shared() {
    let (origin, _weir, address) = proxy("", "");
    let mut client = Client::connect(address).unwrap();
    let mut ask = |credentials: &str| {
        let fields = [("authorization", credentials), ("cache-control", "no-store")];
        assert_eq!(client.ask("GET", &origin.url(), &fields).unwrap().status, 200);
        let [asked] = &origin.take()[..] else { panic!("asked more than once") };
        asked.connection
    };
    let first = ask("Basic YTpi");
    assert_eq!(ask("Bearer NTLM"), first);
    // It came by one that was used, and nobody comes after it.
    assert_eq!(ask("NTLM TlRMTVNTUAAB"), first);
    let second = ask("negotiate YII");
    assert_ne!(second, first);
    assert_ne!(ask("Basic YTpi"), second);
}

#[test]
fn content_passes_both_ways() {
    let (origin, _weir, address) = proxy("", "");
    let mut client = Client::connect(address).unwrap();
    let content = vec![b'x'; 300_000];
    let head = format!(
        "POST {}/in HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        origin.url(),
        content.len()
    );
    client.send(head.as_bytes()).unwrap();
    client.send(&content).unwrap();
    assert_eq!(client.response("POST").unwrap().status, 200);
    assert_eq!(origin.take()[0].body, content);
}

#[test]
fn only_clients_of_from_may_use_it() {
    let (origin, _weir, address) = proxy("from \"10.0.0.0/8\"", "");
    let response = fetch(address, &origin.url());
    assert_eq!(response.status, 403);
    assert_eq!(text(&response), "403 Forbidden: this proxy is not for you\n");
    let status = "weir; error=http_request_denied; details=\"client\"";
    assert_eq!(response.header("proxy-status"), Some(status));
    let (origin, _weir, address) = proxy("from \"10.0.0.0/8\" \"127.0.0.0/8\"", "");
    assert_eq!(fetch(address, &origin.url()).status, 200);
}

#[test]
fn a_site_with_a_name_answers_beside_it() {
    let address = free_address();
    let named = format!(
        "site \"weir.test\" {{ listen \"{address}\"; route \"/*\" {{ respond \"own\"; }}\n}}"
    );
    let config = front_config(address, &named, "route \"/*\" { forward; }");
    let _weir = Weir::run(&config, &[address]);
    assert_eq!(text(&fetch(address, "http://weir.test/")), "own");
    assert_eq!(text(&ask(address, "GET", "/", &[("host", "weir.test")])), "own");
    assert_eq!(ask(address, "GET", "/", &[("host", "a.test")]).status, 400);
}
