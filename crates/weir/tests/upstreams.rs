//! Upstream groups as origins see them: which server gets which request, over which protocol, and
//! what becomes of servers that fall ill and recover.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::client::{self, Client};
use common::origin::{self, Origin, Step, answer};
use common::server::Weir;
use common::{PATIENCE, wait_for};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;

/// An origin that says its name and is never cached.
fn named(name: &'static str) -> Origin {
    Origin::start(move |_| answer("200 OK", "Cache-Control: no-store\r\n", name.as_bytes()))
}

/// Weir with one worker, so that turns are exact.
fn front(upstream: &str) -> (Weir, SocketAddr) {
    let rest = format!("server {{ workers 1; admin \"off\"; }}\nupstream \"app\" {{ {upstream} }}");
    Weir::front(&rest, r#"route "/*" { proxy "app"; }"#)
}

fn body_of(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> String {
    let response = client::ask(address, "GET", target, fields);
    assert_eq!(response.status, 200, "{target}");
    String::from_utf8(response.body).unwrap()
}

#[test]
fn turns_follow_the_weights() {
    let (a, b) = (named("a"), named("b"));
    let (_weir, address) =
        front(&format!(r#"server "{}"; server "{}" weight=3"#, a.url(), b.url()));
    for _ in 0..20 {
        body_of(address, "/", &[]);
    }
    assert_eq!((a.take().len(), b.take().len()), (5, 15));
}

#[test]
fn a_key_stays_with_its_server() {
    let origins = [named("a"), named("b"), named("c")];
    let servers: Vec<String> = origins.iter().map(|o| format!("server \"{}\"", o.url())).collect();
    let balance = "balance \"hash\" key=\"cookie:session\"";
    let (_weir, address) = front(&format!("{}; {balance}", servers.join("; ")));
    let mut used = std::collections::HashSet::new();
    for session in 0..20 {
        let cookie = format!("x=1; session={session}");
        let first = body_of(address, "/", &[("Cookie", &cookie)]);
        for target in ["/a", "/b"] {
            assert_eq!(body_of(address, target, &[("Cookie", &cookie)]), first, "{cookie}");
        }
        used.insert(first);
    }
    assert_eq!(used.len(), 3, "twenty keys are spread over all servers");
}

#[test]
fn the_least_busy_server_is_chosen() {
    let slow = Origin::start(|_| {
        vec![Step::Pause(Duration::from_secs(1)), answer("200 OK", "", b"slow").remove(0)]
    });
    let fast = named("fast");
    let (_weir, address) = front(&format!(
        r#"server "{}"; server "{}"; balance "least-connections""#,
        slow.url(),
        fast.url()
    ));
    let mut waiting: Vec<Client> = (0..2).map(|_| Client::connect(address).unwrap()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    }
    let busy = wait_for(PATIENCE, || (!slow.take().is_empty()).then_some(()));
    assert!(busy.is_some(), "the slow server got none of two requests");
    for _ in 0..10 {
        assert_eq!(body_of(address, "/", &[]), "fast");
    }
}

#[test]
fn a_sick_server_gets_no_requests_until_it_is_well() {
    let well = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&well);
    let a = Origin::start(move |request| match request.line().contains("/healthz") {
        true if !state.load(SeqCst) => answer("500 No", "", b""),
        _ => answer("200 OK", "Cache-Control: no-store\r\n", b"a"),
    });
    let b = named("b");
    let check = r#"health-check "/healthz" interval="100ms" timeout="100ms" healthy=2 unhealthy=2"#;
    let (weir, address) = front(&format!(r#"server "{}"; server "{}"; {check}"#, a.url(), b.url()));
    let serves = |name: &str| (0..4).any(|_| body_of(address, "/", &[]) == name);
    let until = |wanted: bool| {
        let done = wait_for(PATIENCE, || (serves("a") == wanted).then_some(()));
        assert!(done.is_some(), "the sick server serves: {}", !wanted);
    };
    until(true);
    well.store(false, SeqCst);
    until(false);
    weir.wait_for_log(&a.address.to_string());
    assert!(serves("b"));
    well.store(true, SeqCst);
    until(true);
}

#[test]
fn a_dead_server_is_passed_over() {
    let dead = common::free_address();
    let alive = named("alive");
    let (weir, address) =
        front(&format!(r#"server "http://{dead}"; server "{}"; retries 1"#, alive.url()));
    for _ in 0..10 {
        assert_eq!(body_of(address, "/", &[]), "alive");
    }
    weir.wait_for_log(&dead.to_string());
    // Nothing was sent to it, so a POST may go elsewhere too.
    let mut client = Client::connect(address).unwrap();
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    client.send(post.repeat(4).as_bytes()).unwrap();
    for _ in 0..4 {
        assert_eq!(client.response("POST").unwrap().body, b"alive");
    }
}

#[test]
fn a_server_that_fails_rests_for_a_while() {
    let well = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&well);
    let sick = Origin::start(move |_| match state.load(SeqCst) {
        true => answer("200 OK", "Cache-Control: no-store\r\n", b"sick"),
        false => vec![Step::Send(b"nonsense\r\n\r\n".to_vec()), Step::Close],
    });
    let good = named("good");
    let passive = "passive-health failures=3 window=\"1m\" eject=\"1s\"";
    let (weir, address) =
        front(&format!(r#"server "{}"; server "{}"; {passive}"#, sick.url(), good.url()));
    let statuses: Vec<u16> =
        (0..20).map(|_| client::ask(address, "GET", "/", &[]).status).collect();
    assert_eq!(statuses.iter().filter(|&&status| status == 502).count(), 3, "{statuses:?}");
    assert_eq!((sick.take().len(), good.take().len()), (3, 17));
    weir.wait_for_log("ejected");
    well.store(true, SeqCst);
    let back = wait_for(PATIENCE, || (body_of(address, "/", &[]) == "sick").then_some(()));
    assert!(back.is_some(), "it never gets another chance");
}

#[test]
fn connections_are_kept_and_requests_limited() {
    let origin = Origin::start(|request| {
        let pause = if request.line().contains("/slow") { 500 } else { 0 };
        let whole = answer("200 OK", "Cache-Control: no-store\r\n", b"x").remove(0);
        vec![Step::Pause(Duration::from_millis(pause)), whole]
    });
    let (_weir, address) = front(&format!(r#"server "{}"; max-requests 1"#, origin.url()));
    for _ in 0..10 {
        body_of(address, "/", &[]);
    }
    assert!(origin.take().iter().all(|request| request.connection == 0));
    let mut slow = Client::connect(address).unwrap();
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(wait_for(PATIENCE, || (!origin.take().is_empty()).then_some(())).is_some());
    let refused = client::ask(address, "GET", "/", &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(slow.response("GET").unwrap().body, b"x");
    assert_eq!(body_of(address, "/", &[]), "x");
}

#[test]
fn a_unix_socket_is_a_server() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (send, received) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let count = stream.read(&mut head).unwrap();
        send.send(String::from_utf8_lossy(&head[..count]).into_owned()).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nunix").unwrap();
    });
    let (_weir, address) = front(&format!(r#"server "unix:{}""#, path.display()));
    assert_eq!(body_of(address, "/a", &[]), "unix");
    let head = received.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("GET /a HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("host: site.example\r\n"), "{head}");
}

/// An HTTP/2 origin that sends back the body it gets, and a trailer.
fn http2_origin() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
            });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || runtime.block_on(serve));
    address
}

async fn echo(
    request: Request<Incoming>,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let body = request.into_body().collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
    let frames = [Ok(Frame::data(body)), Ok(Frame::trailers(trailers))];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    let response = Response::builder()
        .header("cache-control", "no-store")
        .header("x-path", path)
        .header("x-authority", authority);
    Ok(response.body(BodyExt::boxed(body)).unwrap())
}

#[test]
fn http2_servers_get_requests_and_give_trailers() {
    let origin = http2_origin();
    let (_weir, address) = front(&format!(r#"server "http://{origin}"; protocol "http2""#));
    // From HTTP/1.1, in chunks.
    let mut client = Client::connect(address).unwrap();
    client
        .send(
            b"POST /a HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n\
              5\r\nhello\r\n0\r\n\r\n",
        )
        .unwrap();
    let got = client.response("POST").unwrap();
    assert_eq!((got.status, &got.body[..]), (200, &b"hello"[..]));
    assert_eq!(
        (got.header("x-path"), got.header("x-authority")),
        (Some("/a"), Some("site.example"))
    );

    // From HTTP/2, as gRPC does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let request = Request::post("http://site.example/grpc")
            .header("te", "trailers")
            .body(http_body_util::Full::new(Bytes::from_static(b"message")))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap()
    };
    let all = runtime.block_on(async { tokio::time::timeout(PATIENCE, call).await.unwrap() });
    assert_eq!(all.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(all.to_bytes(), "message");
}

/// A TLS origin for `localhost`; its CA's certificate is written to `ca`.
fn tls_origin(ca_file: &std::path::Path) -> SocketAddr {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(ca_file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".into()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    origin::raw(move |_, stream| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
            let name = stream.conn.server_name().unwrap_or("none").to_owned();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            if stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn tls_servers_must_prove_their_name_under_the_given_ca() {
    let directory = tempfile::TempDir::new().unwrap();
    let ca = directory.path().join("ca.pem");
    let port = tls_origin(&ca).port();
    let other = directory.path().join("other.pem");
    tls_origin(&other);

    let named = |ca: &std::path::Path, host: &str| {
        format!(r#"server "https://{host}:{port}"; tls ca="{}""#, ca.display())
    };
    let (_weir, address) = front(&named(&ca, "localhost"));
    assert_eq!(body_of(address, "/", &[]), "localhost");
    let by_address = format!(r#"{} server-name="localhost""#, named(&ca, "127.0.0.1"));
    let (_weir, address) = front(&by_address);
    assert_eq!(body_of(address, "/", &[]), "localhost");
    // The right name under another CA, and the right CA for another name.
    for upstream in [named(&other, "localhost"), named(&ca, "127.0.0.1")] {
        let (weir, address) = front(&upstream);
        assert_eq!(client::ask(address, "GET", "/", &[]).status, 502, "{upstream}");
        weir.wait_for_log("TLS");
    }
}
