//! The built examples, as operators deploy them.

use crate::common::origin::{Origin, answer, ok};
use crate::site::{setup, text};

fn kdl(json: &str) -> String {
    format!("config {json:?}")
}

#[test]
fn header_rewrite() {
    let config =
        kdl(r#"{"request": {"remove": ["x-debug"], "set": {"x-environment": "production"}},
        "response": {"remove": ["x-powered-by"],
            "default": {"x-content-type-options": "nosniff"}}}"#);
    let origin = Origin::start(|request| {
        let seen = format!("{:?}{:?}", request.values("x-debug"), request.values("x-environment"));
        answer("200 OK", "X-Powered-By: magic\r\n", seen.as_bytes())
    });
    let site = setup()
        .built("header-rewrite", &config)
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "header-rewrite"; }}"#, origin.url()));
    let got = site.get("/", &[("X-Debug", "1")]);
    assert_eq!(text(&got), r#"[]["production"]"#);
    assert_eq!(got.header("x-powered-by"), None);
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn body_replace() {
    let config = kdl(r#"{"replace": {"old": "brand new", "gone": ""}}"#);
    let body = "the old text is gone, old as it was. ".repeat(2000);
    let expected = body.replace("old", "brand new").replace("gone", "");
    let origin = Origin::start(move |_| {
        answer(
            "200 OK",
            "Content-Type: text/html\r\nCache-Control: max-age=60\r\n",
            body.as_bytes(),
        )
    });
    let site = setup().built("body-replace", &config).run(&format!(
        r#"route "/fill/*" {{ proxy "{0}"; use "body-replace" at="fill"; }}
        route "/*" {{ proxy "{0}"; use "body-replace"; }}"#,
        origin.url()
    ));
    let mut client = site.connect();
    for target in ["/a", "/a", "/fill/a", "/fill/a"] {
        let got = client.ask("GET", target, &[("Range", "bytes=0-10")]).unwrap();
        let got = if got.status == 206 { client.ask("GET", target, &[]).unwrap() } else { got };
        assert_eq!(got.status, 200, "{target}");
        assert!(got.body == expected.as_bytes(), "{target}: {} bytes", got.body.len());
    }
    assert_eq!(origin.take().len(), 2);
}

/// It takes Accept-Encoding off, for its origin: what clients take is another matter.
#[test]
fn body_replace_and_compression() {
    let config = kdl(r#"{"replace": {"old": "new"}}"#);
    let body = "the old text. ".repeat(200);
    let origin = Origin::start(move |request| {
        assert!(request.values("accept-encoding").is_empty());
        let fields = "Content-Type: text/html\r\nCache-Control: max-age=60\r\n";
        answer("200 OK", fields, body.as_bytes())
    });
    let site = setup().built("body-replace", &config).run(&format!(
        r#"route "/*" {{ proxy "{0}"; use "body-replace" at="fill"; compress "gzip:4"; }}"#,
        origin.url()
    ));
    let mut client = site.connect();
    for said in ["gzip;q=4;stream", "gzip;q=4"] {
        let got = client.ask("GET", "/", &[("Accept-Encoding", "gzip")]).unwrap();
        assert_eq!(got.header("weir-adapt"), Some(said));
        assert_eq!(got.header("content-encoding"), Some("gzip"));
    }
    let got = client.ask("GET", "/", &[("Accept-Encoding", "br")]).unwrap();
    assert_eq!(got.header("weir-adapt"), Some("original;reason=not-accepted"));
    assert!(got.body == "the new text. ".repeat(200).as_bytes());
}

#[test]
fn token_check_asks_another_server() {
    // SHA-256 of "secret".
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let config = kdl(&format!(
        r#"{{"tokens": {{"ci": "{digest}"}}, "subject-header": "x-user", "open": ["/open"],
        "remote": {{"upstream": "auth", "path": "/check"}}}}"#
    ));
    let auth = Origin::start(|request| match request.values("authorization").join("").as_str() {
        "Bearer known" => ok(""),
        _ => answer("401 Unauthorized", "", b""),
    });
    let app = Origin::start(|request| ok(&request.values("x-user").join(",")));
    let site = setup()
        .built(
            "token-check",
            &format!("{config}; allow {{ upstreams \"auth\"; }}; on-failure \"fail\""),
        )
        .block(&format!("upstream \"auth\" {{ server \"{}\"; }}", auth.url()))
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "token-check"; }}"#, app.url()));
    let check = |target: &str, token: Option<&str>, status: u16| {
        let value = token.map(|token| format!("Bearer {token}"));
        let fields: Vec<_> = value.iter().map(|value| ("Authorization", value.as_str())).collect();
        let got = site.get(target, &fields);
        assert_eq!(got.status, status, "{target} {token:?}");
        got
    };
    assert!(check("/a", None, 401).header("www-authenticate").is_some());
    assert_eq!(text(&check("/a", Some("secret"), 200)), "ci");
    check("/a", Some("known"), 200);
    check("/a", Some("unknown"), 401);
    check("/open", None, 200);
}

#[test]
fn ab_routing_and_canonical_query_start_and_let_requests_pass() {
    let site = setup()
        .built(
            "ab-routing",
            &kdl(r#"{"name": "test", "variants": [{"name": "a", "percent": 100}]}"#),
        )
        .built("canonical-query", "")
        .run(r#"route "/*" { respond "fine"; use "canonical-query"; }"#);
    assert_eq!(text(&site.get("/?b=1&a=2", &[])), "fine");
}
