//! Plugins over HTTP/2 and TLS, with trailers, and with requests that come one behind the other.

use bytes::Bytes;
use http::{HeaderMap, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::common::PATIENCE;
use crate::common::origin::{Origin, Step, ok};
use crate::site::{Site, setup, text};
use crate::wasm::{own, proxy_wasm};

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A request over HTTP/2 with prior knowledge.
pub(crate) fn over_http2(
    site: &Site,
    method: &str,
    target: &str,
    body: &str,
) -> hyper::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(site.address).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(format!("http://site.example{target}"))
            .version(Version::HTTP_2)
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let asked = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let collected = body.collect().await?;
            let trailers = collected.trailers().cloned().unwrap_or_default();
            let body = collected.to_bytes();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, trailers })
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("an answer in time")
    })
}

/// Everything at once, by both interfaces.
fn busy() -> [(&'static str, String); 2] {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/deny}) (then (return @edits{ANSWER 403;BODY denied})))
          (if (call $target (local.get 0) @{/end}) (then (return @edits{CLOSE})))
          @edits{SET x-mark=1;WANT 1})
        (func (export "weir_on_request_body") (param i32) (result i64)
          (call $upper (i32.load offset=96 (local.get 0)) (i32.load offset=100 (local.get 0)))
          (call $piece (local.get 0)))
        (func (export "weir_on_response") (param i32) (result i64) @edits{SET x-seen=1;WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64) (i64.const 0))
        (func (export "weir_on_response_trailers") (param i32) (result i64)
          @edits{SET x-trailer=changed;TRAILER x-more=1})"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $path @{/deny}) (then
            (call $answer (i32.const 403) @{denied}) (return (i32.const 1))))
          (if (call $path @{/end}) (then
            (drop (call $proxy_close_stream (i32.const 0))) (return (i32.const 1))))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{x-mark} @{1}))
          (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (call $upper_body (i32.const 0)) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_add_header_map_value (i32.const 2) @{x-seen} @{1}))
          (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_trailers") (param i32 i32) (result i32)
          (drop (call $proxy_replace_header_map_value (i32.const 3) @{x-trailer} @{changed}))
          (drop (call $proxy_add_header_map_value (i32.const 3) @{x-more} @{1}))
          (i32.const 0))"#,
    );
    [("own", own), ("proxy-wasm", wasm)]
}

fn origin() -> Origin {
    Origin::start(|request| {
        let marks = request.values("x-mark").len();
        let body = format!("{marks} {}", String::from_utf8_lossy(&request.body));
        match request.line().contains("/trailers") {
            true => vec![Step::Send(
                format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-trailer\r\n\r\n\
                     {:x}\r\n{body}\r\n0\r\nX-Trailer: 1\r\n\r\n",
                    body.len()
                )
                .into_bytes(),
            )],
            false => ok(&body),
        }
    })
}

fn served(module: &str, origin: &Origin) -> Site {
    setup()
        .plugin("p", module, "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, origin.url()))
}

#[test]
fn plugins_work_the_same_over_http2() {
    for (name, module) in busy() {
        let origin = origin();
        let site = served(&module, &origin);
        let got = over_http2(&site, "GET", "/a", "").unwrap();
        assert_eq!((got.status, &*got.body), (200, &b"1 "[..]), "{name}");
        assert_eq!(got.headers["x-seen"], "1", "{name}");
        let got = over_http2(&site, "POST", "/a", "content").unwrap();
        assert_eq!((got.status, &*got.body), (200, &b"1 CONTENT"[..]), "{name}");
        let got = over_http2(&site, "POST", "/deny", "content").unwrap();
        assert_eq!((got.status, &*got.body), (403, &b"denied"[..]), "{name}");
        // The stream ends, and nothing else does.
        assert!(over_http2(&site, "GET", "/end", "").is_err(), "{name}");
        assert_eq!(over_http2(&site, "GET", "/a", "").unwrap().status, 200, "{name}");
    }
}

#[test]
fn trailers_are_seen_and_changed() {
    for (name, module) in busy() {
        let origin = origin();
        let site = served(&module, &origin);
        let got = over_http2(&site, "GET", "/trailers", "").unwrap();
        assert_eq!(&*got.body, b"1 ", "{name}");
        assert_eq!(got.trailers["x-trailer"], "changed", "{name}");
        assert_eq!(got.trailers["x-more"], "1", "{name}");
        // Over HTTP/1.1 the message stays well-formed.
        assert_eq!(text(&site.get("/trailers", &[("TE", "trailers")])), "1 ", "{name}");
    }
}

#[test]
fn requests_in_a_row_are_answered_in_order() {
    for (name, module) in busy() {
        let origin = origin();
        let site = served(&module, &origin);
        let mut client = site.connect();
        let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let post = "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let all = [&*get("/a"), post, &get("/deny"), &get("/trailers"), post, &get("/a")].concat();
        client.send(all.as_bytes()).unwrap();
        for (status, body) in
            [(200, "1 "), (200, "1 ABC"), (403, "denied"), (200, "1 "), (200, "1 ABC"), (200, "1 ")]
        {
            let got = client.response("GET").unwrap();
            assert_eq!((got.status, text(&got)), (status, body), "{name}");
        }
        assert_eq!(origin.take_oddities(), [""; 0]);
    }
}

#[test]
fn plugins_see_that_a_connection_is_encrypted() {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (i32.and (call $flags (local.get 0)) (i32.const 1)) (then (return
            @edits{ANSWER 200;BODY encrypted})))
          (i64.const 0))"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (i32.store (i32.const 516) (i32.const 0))
          (drop (call $proxy_get_property @{request\0scheme} (i32.const 512) (i32.const 516)))
          (if (i32.ne (i32.load (i32.const 516)) (i32.const 5)) (then (return (i32.const 0))))
          (if (i32.eqz (call $same (i32.load (i32.const 512)) @{https}))
            (then (return (i32.const 0))))
          (call $answer (i32.const 200) @{encrypted})
          (i32.const 1))"#
            .replace("\\0", "\0")
            .as_str(),
    );
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["a.example".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    for module in [own, wasm] {
        let address = crate::common::free_address();
        let site = setup()
            .plugin("p", &module, "")
            .file("a.pem", certificate.pem().as_bytes())
            .file("a.key", key.serialize_pem().as_bytes())
            .block(&format!(
                r#"site "a.example" {{
                    listen "{address}" tls="auto"
                    certificate "a.pem" key="a.key"
                    route "/*" {{ respond "plain"; use "p"; }}
                }}"#
            ))
            .run(r#"route "/*" { respond "plain"; use "p"; }"#);
        assert_eq!(text(&site.get("/", &[])), "plain");
        for (offered, version) in [("http/1.1", "HTTP/1.1"), ("h2", "HTTP/2.0")] {
            let got = crate::tls_client::get(address, "a.example", "/", &[offered]).unwrap();
            let body = String::from_utf8(got.body).unwrap();
            assert_eq!((got.status, &*got.version, &*body), (200, version, "encrypted"));
        }
    }
}

/// Answers with what a property of the connection is; 404 if there is none.
fn tells(property: &str) -> String {
    let property = property.replace('.', "\0");
    proxy_wasm(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (if (call $proxy_get_property @{{{property}}} (i32.const 512) (i32.const 516))
            (then (call $answer (i32.const 404) (i32.const 0) (i32.const 0)))
            (else (call $answer (i32.const 200)
                                (i32.load (i32.const 512)) (i32.load (i32.const 516)))))
          (i32.const 1))"#
    ))
}

#[test]
fn connections_tell_of_their_tls_and_their_addresses() {
    let (encrypted, proxied) = (crate::common::free_address(), crate::common::free_address());
    let paths = [
        ("/version", "connection.tls_version"),
        ("/name", "connection.requested_server_name"),
        ("/address", "destination.address"),
        ("/port", "destination.port"),
    ];
    let mut setup = setup();
    let mut routes = String::new();
    for (path, property) in paths {
        setup = setup.plugin(property, &tells(property), "");
        routes.push_str(&format!("route \"{path}\" {{ respond \"\"; use \"{property}\"; }}\n"));
    }
    let site = setup
        .block(&format!(
            r#"site "a.example" {{ listen "{encrypted}" tls="self-signed"; {routes} }}
            site "b.example" {{ listen "{proxied}" proxy-protocol=#true; {routes} }}"#
        ))
        .run(&routes);
    let by_tls = |path: &str| {
        let got = crate::tls_client::get(encrypted, "a.example", path, &["http/1.1"]).unwrap();
        (got.status, String::from_utf8(got.body).unwrap())
    };
    assert_eq!(by_tls("/version"), (200, "TLSv1.3".to_owned()));
    assert_eq!(by_tls("/name"), (200, "a.example".to_owned()));
    assert_eq!(by_tls("/address"), (200, encrypted.to_string()));
    let by_proxy = |path: &str| {
        let mut client = crate::common::client::Client::connect(proxied).unwrap();
        let head = "PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n";
        let request = format!("{head}GET {path} HTTP/1.1\r\nHost: b.example\r\n\r\n");
        client.send(request.as_bytes()).unwrap();
        client.response("GET").unwrap()
    };
    assert_eq!(text(&by_proxy("/address")), "198.51.100.1:443");
    assert_eq!(by_proxy("/port").body, 443u64.to_le_bytes());
    for path in ["/version", "/name"] {
        assert_eq!(by_proxy(path).status, 404, "{path}");
    }
    assert_eq!(text(&site.get("/address", &[])), site.address.to_string());
}
