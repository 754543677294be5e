//! What plugins can know of a request, by Envoy's names and in Envoy's forms.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::PrivateKeyDer;

use crate::common::client::Response;
use crate::common::origin::{self, Origin, Step, answer, ok};
use crate::common::{PATIENCE, wait_for};
use crate::site::{Site, setup};
use crate::wasm::proxy_wasm;

/// Tells each property by a field `x-known: NAME=HEX` of the response, `NAME=-` where there is
/// none; and in the log before and after.
fn knows(paths: &[&str]) -> String {
    let each = |then: &str| -> String {
        let one = |path: &&str| {
            let parts = path.replace('.', "\0");
            format!("(call $show @{{{path}=}} @{{{parts}}}) {then}")
        };
        paths.iter().map(one).collect()
    };
    let add = "(drop (call $proxy_add_header_map_value (i32.const 2) @{x-known}
                     (i32.const 2048) (global.get $len)))";
    let log = "(drop (call $proxy_log (i32.const 2) (i32.const 2048) (global.get $len)))";
    let (at_request, at_response, at_log) = (each(log), each(add), each(log));
    proxy_wasm(&format!(
        r#"(global $len (mut i32) (i32.const 0))
        (func $put (param $byte i32)
          (i32.store8 (i32.add (i32.const 2048) (global.get $len)) (local.get $byte))
          (global.set $len (i32.add (global.get $len) (i32.const 1))))
        (func $digit (param $digit i32)
          (call $put (i32.add (local.get $digit)
            (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get $digit) (i32.const 9))))))
        (func $show (param $name i32) (param $size i32) (param $path i32) (param $length i32)
            (local $at i32) (local $byte i32)
          (global.set $len (i32.const 0))
          (loop $next
            (call $put (i32.load8_u (i32.add (local.get $name) (global.get $len))))
            (br_if $next (i32.lt_u (global.get $len) (local.get $size))))
          (i32.store (i32.const 516) (i32.const 0))
          (if (call $proxy_get_property (local.get $path) (local.get $length)
                    (i32.const 512) (i32.const 516))
            (then (call $put (i32.const 45)) (return)))
          (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $at) (i32.load (i32.const 516))))
            (local.set $byte
              (i32.load8_u (i32.add (i32.load (i32.const 512)) (local.get $at))))
            (call $digit (i32.shr_u (local.get $byte) (i32.const 4)))
            (call $digit (i32.and (local.get $byte) (i32.const 15)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          {at_request} (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          {at_response} (i32.const 0))
        (func (export "proxy_on_log") (param i32)
          {at_log} (drop (call $proxy_log (i32.const 2) @{{that was all}})))"#
    ))
}

/// The value of a property in what a plugin told.
fn told<'a>(said: impl IntoIterator<Item = &'a str>, path: &str) -> Option<Vec<u8>> {
    let hex = said.into_iter().find_map(|known| known.strip_prefix(path)?.strip_prefix('='));
    let hex = hex.unwrap_or_else(|| panic!("{path} was not asked for"));
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (hex != "-").then(|| (0..hex.len()).step_by(2).map(byte).collect())
}

fn of_response(response: &Response, path: &str) -> Option<Vec<u8>> {
    let known = response.headers.iter().filter(|(name, _)| name == "x-known");
    told(known.map(|(_, value)| value.as_str()), path)
}

/// What was told in the log at the end of the request of this number, from 1.
fn of_log(site: &Site, request: usize, path: &str) -> Option<Vec<u8>> {
    let ended = || {
        let log = site.weir.log();
        (log.matches("that was all").count() >= request).then_some(log)
    };
    let log = wait_for(PATIENCE, ended).expect("its end in the log");
    let asked = format!(" {path}=");
    let said = log.lines().rev().find_map(|line| {
        let (_, said) = line.split_once(asked.as_str())?;
        said.split(' ').next()
    });
    told([format!("{path}={}", said.unwrap_or_default()).as_str()], path)
}

fn text(value: Option<Vec<u8>>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| String::from_utf8(value).unwrap())
}

fn number(value: Option<Vec<u8>>) -> u64 {
    u64::from_le_bytes(value.expect("a number").try_into().expect("of eight bytes"))
}

#[test]
fn requests_are_known_by_envoys_names() {
    let paths = [
        "request.path",
        "request.url_path",
        "request.query",
        "request.host",
        "request.scheme",
        "request.method",
        "request.protocol",
        "request.headers.x-list",
        "request.headers.user-agent",
        "request.useragent",
        "request.referer",
        "request.id",
        "request.time",
        "request.duration",
        "request.size",
        "request.total_size",
        "response.code",
        "response.headers.x-list",
        "response.flags",
        "response.code_details",
        "response.backend_latency",
        "source.address",
        "source.port",
        "destination.address",
        "destination.port",
        "connection.id",
        "connection.mtls",
        "connection.tls_version",
        "connection.subject_peer_certificate",
        "connection.termination_details",
        "plugin_name",
        "plugin_root_id",
        "plugin_vm_id",
        "route_name",
        "cluster_name",
        "xds.cluster_name",
        "xds.route_name",
        "xds.listener_direction",
        "xds.node.id",
        "listener_direction",
        "node.id",
        "node.cluster",
        "upstream.address",
    ];
    let site = setup()
        .plugin("knows", &knows(&paths), "limits log=100000")
        .run(r#"route "/a/*" { respond "fine"; use "knows"; header { set "X-List" "c"; }; }"#);
    let mut client = site.connect();
    let local = client.stream().local_addr().unwrap();
    let fields = [
        ("User-Agent", "test"),
        ("X-List", "a"),
        ("X-List", "b"),
        ("X-Request-Id", "17"),
        ("Content-Length", "0"),
    ];
    let got = client.ask("GET", "/a/b?c=d", &fields).unwrap();
    let of = |path: &str| of_response(&got, path);
    for (path, expected) in [
        ("request.path", "/a/b?c=d"),
        ("request.url_path", "/a/b"),
        ("request.query", "c=d"),
        ("request.host", "site.example"),
        ("request.scheme", "http"),
        ("request.method", "GET"),
        ("request.protocol", "HTTP/1.1"),
        ("request.headers.x-list", "a,b"),
        ("request.headers.user-agent", "test"),
        ("request.useragent", "test"),
        ("request.referer", "none"),
        ("request.id", "17"),
        ("response.headers.x-list", "c"),
        ("response.code_details", "direct_response"),
        ("response.backend_latency", "none"),
        ("source.address", &local.to_string()),
        ("destination.address", &site.address.to_string()),
        ("connection.tls_version", "none"),
        ("connection.subject_peer_certificate", "none"),
        ("connection.termination_details", "none"),
        ("plugin_name", "knows"),
        ("plugin_root_id", "knows"),
        ("plugin_vm_id", "knows"),
        ("route_name", "/a/*"),
        ("xds.route_name", "/a/*"),
        ("cluster_name", "none"),
        ("xds.cluster_name", "none"),
        ("node.cluster", "weir"),
        ("upstream.address", "none"),
    ] {
        assert_eq!(text(of(path)), expected, "{path}");
    }
    assert_eq!(number(of("response.code")), 200);
    assert_eq!(number(of("response.flags")), 0);
    assert_eq!(number(of("source.port")), u64::from(local.port()));
    assert_eq!(number(of("destination.port")), u64::from(site.address.port()));
    assert_eq!(number(of("request.size")), 0);
    assert!(number(of("request.total_size")) > 40);
    assert!(number(of("request.duration")) < 60_000_000_000);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_nanos().abs_diff(u128::from(number(of("request.time")))) < 60_000_000_000);
    assert_eq!(of("connection.mtls"), Some(vec![0]));
    assert_eq!(number(of("listener_direction")), 1);
    assert_eq!(number(of("xds.listener_direction")), 1);
    assert_eq!(text(of("node.id")), text(of("xds.node.id")));
    number(of("connection.id"));
}

const UPSTREAM: [&str; 13] = [
    "upstream.address",
    "upstream.port",
    "upstream.local_address",
    "upstream.transport_failure_reason",
    "upstream.tls_version",
    "upstream.subject_peer_certificate",
    "upstream.dns_san_peer_certificate",
    "upstream.uri_san_peer_certificate",
    "upstream.sha256_peer_certificate_digest",
    "upstream.subject_local_certificate",
    "response.flags",
    "response.code_details",
    "cluster_name",
];

#[test]
fn the_upstream_is_known_from_its_response_on() {
    let origin = Origin::start(|request| match request.line().contains("/fresh") {
        true => answer("200 OK", "Cache-Control: max-age=600\r\n", b"stored"),
        false => ok("fine"),
    });
    let site = setup()
        .plugin("knows", &knows(&UPSTREAM), "limits log=100000")
        .plugin("fills", &knows(&UPSTREAM), "limits log=100000")
        .block(&format!("upstream \"app\" {{ server \"{}\"; }}", origin.url()))
        .file("www/file/a", b"a file")
        .run(
            r#"route "/file/*" { files "www"; use "knows"; }
            route "/off/*" { proxy "app"; cache "off"; use "knows"; }
            route "/fill/*" { proxy "app"; use "fills" at="fill"; }
            route "/*" { proxy "app"; use "knows"; }"#,
        );
    let address = origin.address.to_string();
    for (before, target) in ["/off/a", "/off/a", "/fresh", "/fill/fresh"].iter().enumerate() {
        let got = site.get(target, &[]);
        let of = |path: &str| text(of_response(&got, path));
        assert_eq!(of("upstream.address"), address, "{target}");
        assert_eq!(
            number(of_response(&got, "upstream.port")),
            u64::from(origin.address.port()),
            "{target}"
        );
        let local: SocketAddr = of("upstream.local_address").parse().unwrap();
        assert!(local.ip().is_loopback() && local.port() != origin.address.port(), "{target}");
        assert_eq!(of("upstream.transport_failure_reason"), "none", "{target}");
        assert_eq!(of("upstream.tls_version"), "none", "{target}");
        assert_eq!(of("upstream.subject_peer_certificate"), "none", "{target}");
        assert_eq!(of("response.code_details"), "via_upstream", "{target}");
        assert_eq!(of("cluster_name"), "app", "{target}");
        let at_end = of_log(&site, before + 1, "upstream.address");
        assert_eq!(text(at_end), address, "{target} at its end");
    }
    // Nobody was asked.
    for (before, target) in ["/fresh", "/fresh", "/file/file/a", "/file/file/a"].iter().enumerate()
    {
        let got = site.get(target, &[]);
        assert_eq!(text(of_response(&got, "upstream.address")), "none", "{target}");
        assert_eq!(text(of_response(&got, "response.code_details")), "direct_response", "{target}");
        assert_eq!(of_log(&site, before + 5, "upstream.address"), None, "{target} at its end");
    }
}

#[test]
fn a_stale_response_knows_nothing_of_the_fetch_behind_it() {
    let fields = "Cache-Control: max-age=0, stale-while-revalidate=600\r\n";
    let origin = Origin::start(move |_| answer("200 OK", fields, b"stored"));
    let site = setup()
        .plugin("knows", &knows(&["upstream.address"]), "limits log=100000")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "knows"; }}"#, origin.url()));
    site.get("/a", &[]);
    for request in 2..6 {
        let said = |got: &Response| got.header("cache-status").unwrap_or_default().to_owned();
        let got = site.get("/a", &[]);
        assert!(said(&got).contains("stale-while-revalidate"), "{}", said(&got));
        assert_eq!(of_response(&got, "upstream.address"), None);
        assert_eq!(of_log(&site, request, "upstream.address"), None);
    }
    assert!(origin.take().len() > 1, "there was a fetch");
}

#[test]
fn no_upstream_is_known_before_one_was_asked() {
    let origin = Origin::start(|_| ok("fine"));
    let site = setup()
        .plugin("knows", &knows(&["upstream.address", "response.backend_latency"]), "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "knows"; }}"#, origin.url()));
    site.get("/a", &[]);
    let log = site.weir.log();
    let first = log.lines().find(|line| line.contains("upstream.address=")).unwrap();
    assert!(first.contains("upstream.address=-"), "{first}");
    let took = number(of_log(&site, 1, "response.backend_latency"));
    assert!((1..60_000_000_000).contains(&took), "{took}");
}

#[test]
fn what_kept_the_upstream_from_answering_is_known() {
    let paths = ["upstream.address", "upstream.transport_failure_reason", "response.flags"];
    let paths = [&paths[..], &["response.code_details"]].concat();
    let origin = Origin::start(|_| vec![Step::Close]);
    let site = setup().plugin("knows", &knows(&paths), "").run(&format!(
        r#"route "/closed" {{ proxy "{}"; use "knows"; }}
        route "/*" {{ proxy "http://127.0.0.1:1"; use "knows"; }}"#,
        origin.url()
    ));
    let got = site.get("/a", &[]);
    assert_eq!(got.status, 502);
    assert_eq!(text(of_response(&got, "upstream.address")), "127.0.0.1:1");
    let why = text(of_response(&got, "upstream.transport_failure_reason"));
    assert!(why.contains("refused"), "{why}");
    assert_eq!(number(of_response(&got, "response.flags")), 0x20);
    let details = text(of_response(&got, "response.code_details"));
    assert_eq!(details, "upstream_reset_before_response_started{connect}");
    let got = site.get("/closed", &[]);
    assert_eq!(got.status, 502);
    assert_eq!(text(of_response(&got, "upstream.address")), origin.address.to_string());
    assert_eq!(of_response(&got, "upstream.transport_failure_reason"), None);
    assert_eq!(number(of_response(&got, "response.flags")), 0x40);
}

/// A TLS origin for `localhost` whose certificate says more; its CA's certificate is written to a
/// file. Returns the SHA-256 of the certificate too.
fn tls_origin(ca_file: &Path) -> (SocketAddr, Vec<u8>) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(ca_file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(vec!["localhost".into(), "other".into()]).unwrap();
    leaf.subject_alt_names.push(SanType::URI("spiffe://a/b".try_into().unwrap()));
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Weir, Inc.");
    name.push(DnType::CommonName, "origin");
    leaf.distinguished_name = name;
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, leaf.der());
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
    let address = origin::raw(move |_, stream| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if stream.write_all(answer).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    (address, digest.as_ref().to_vec())
}

#[test]
fn what_tls_to_the_upstream_agreed_on_is_known() {
    let directory = tempfile::TempDir::new().unwrap();
    let ca = directory.path().join("ca.pem");
    let (address, digest) = tls_origin(&ca);
    let other_ca = directory.path().join("other.pem");
    tls_origin(&other_ca);
    let upstream = |name: &str, ca: &Path| {
        let port = address.port();
        format!(
            "upstream \"{name}\" {{ server \"https://localhost:{port}\"; tls ca=\"{}\"; }}",
            ca.display()
        )
    };
    let site = setup()
        .plugin("knows", &knows(&UPSTREAM), "")
        .block(&upstream("app", &ca))
        .block(&upstream("wrong", &other_ca))
        .run(
            r#"route "/wrong" { proxy "wrong"; use "knows"; }
            route "/*" { proxy "app"; use "knows"; }"#,
        );
    for target in ["/a", "/b"] {
        let got = site.get(target, &[]);
        let of = |path: &str| text(of_response(&got, &format!("upstream.{path}")));
        assert_eq!(of("address"), address.to_string());
        assert_eq!(of("tls_version"), "TLSv1.3");
        assert_eq!(of("subject_peer_certificate"), r"CN=origin,O=Weir\, Inc.");
        assert_eq!(of("dns_san_peer_certificate"), "localhost");
        assert_eq!(of("uri_san_peer_certificate"), "spiffe://a/b");
        assert_eq!(of("subject_local_certificate"), "none", "Weir shows none");
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of("sha256_peer_certificate_digest"), hex);
    }
    let got = site.get("/wrong", &[]);
    assert_eq!(got.status, 502);
    let why = text(of_response(&got, "upstream.transport_failure_reason"));
    assert!(why.to_lowercase().contains("certificate"), "{why}");
}
