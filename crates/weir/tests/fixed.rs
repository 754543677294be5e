//! Answers that need no source: redirects, fixed texts; and edits of a response's header, wherever
//! the response comes from.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use common::client;
use common::origin::{self, Origin};
use common::server::{Weir, command};
use common::{PATIENCE, wait_for};

#[test]
fn redirects_are_filled_in() {
    let (_weir, address) = Weir::front(
        "",
        r#"
        route "/old/*" { redirect "https://{host}/new{uri}" status=308; }
        route "/path/*" { redirect "/p{path}"; }
        route "/query" { redirect "/search?q={query}" status=303; }
        route "/fixed" { redirect "https://example.com/" status=301; }
        "#,
    );
    let check = |target: &str, status: u16, location: &str| {
        for method in ["GET", "HEAD", "POST"] {
            let response = client::ask(address, method, target, &[("Content-Length", "0")]);
            assert_eq!(response.status, status, "{method} {target}");
            assert_eq!(response.header("location"), Some(location), "{method} {target}");
            assert!(response.body.is_empty(), "{method} {target}");
        }
    };
    check("/old/a/b?x=1&y=%2F", 308, "https://site.example/new/old/a/b?x=1&y=%2F");
    check("/old/", 308, "https://site.example/new/old/");
    check("/old/a%20b", 308, "https://site.example/new/old/a%20b");
    check("/old/../old/x", 308, "https://site.example/new/old/x");
    check("/path/x?ignored", 302, "/p/path/x");
    check("/query?a=b&c", 303, "/search?q=a=b&c");
    check("/query", 303, "/search?q=");
    check("/fixed?x", 301, "https://example.com/");
    // Nothing that a client writes gets out of the field it is put into.
    check("/old/%0d%0aX:1", 308, "https://site.example/new/old/%0d%0aX:1");
}

#[test]
fn fixed_texts() {
    let (_weir, address) = Weir::front(
        "",
        r##"
        route "/plain" { respond "hello\n"; }
        route "/json" { respond "{\"a\": \"#\"}" content-type="application/json"; }
        route "/gone" { respond "gone" status=410; }
        route "/empty" { respond "" status=204; }
        route "/*" { respond "else" status=404; }
        "##,
    );
    let check = |target: &str, status: u16, content_type: Option<&str>, body: &str| {
        let response = client::ask(address, "GET", target, &[]);
        assert_eq!(response.status, status, "{target}");
        assert_eq!(response.header("content-type"), content_type, "{target}");
        assert_eq!(response.body, body.as_bytes(), "{target}");
        let head = client::ask(address, "HEAD", target, &[]);
        assert_eq!(head.status, status, "{target}");
        let length = (status != 204).then(|| body.len().to_string());
        assert_eq!(head.header("content-length"), length.as_deref(), "{target}");
    };
    check("/plain", 200, Some("text/plain; charset=utf-8"), "hello\n");
    check("/json", 200, Some("application/json"), "{\"a\": \"#\"}");
    check("/gone", 410, Some("text/plain; charset=utf-8"), "gone");
    check("/empty", 204, None, "");
    check("/plain/more", 404, Some("text/plain; charset=utf-8"), "else");
    check("/%70lain", 200, Some("text/plain; charset=utf-8"), "hello\n");
    let part = client::ask(address, "GET", "/plain", &[("Range", "bytes=1-3")]);
    assert_eq!((part.status, &part.body[..]), (206, &b"ell"[..]));
    let options = client::ask(address, "OPTIONS", "/plain", &[]);
    assert_eq!(options.header("allow"), Some("GET, HEAD, OPTIONS"));
}

#[test]
fn header_edits_apply_to_every_source_and_to_hits() {
    let origin = Origin::start(|_| {
        origin::answer(
            "200 OK",
            "Cache-Control: max-age=60\r\nServer: origin/1\r\nX-Powered-By: a\r\n\
             X-Powered-By: b\r\nX-Multi: one\r\nETag: \"e\"\r\n",
            b"body",
        )
    });
    let edits = r#"header {
        set "Server" "front"
        remove "X-Powered-By"
        add "X-Multi" "two"
        add "X-Multi" "three"
        set "X-Gone" "for a moment"
        remove "X-Gone"
        set "Content-Security-Policy" "default-src 'self'; img-src *"
    };"#;
    let (weir, address) = Weir::front(
        "",
        &format!(
            r#"
            route "/proxied" {{ proxy "{}"; {edits} }}
            route "/fixed" {{ respond "fixed"; {edits} }}
            route "/moved" {{ redirect "/"; {edits} }}
            route "/*" {{ files "."; {edits} }}
            "#,
            origin.url()
        ),
    );
    std::fs::write(weir.directory().join("file"), "file").unwrap();
    for target in ["/proxied", "/proxied", "/fixed", "/moved", "/file", "/file"] {
        let response = client::ask(address, "GET", target, &[]);
        let all = |name: &str| {
            let fields = response.headers.iter().filter(|(n, _)| n == name);
            fields.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(all("server"), ["front"], "{target}");
        assert!(all("x-powered-by").is_empty(), "{target}");
        let before: &[&str] = if target == "/proxied" { &["one"] } else { &[] };
        assert_eq!(all("x-multi"), [before, &["two", "three"]].concat(), "{target}");
        assert!(all("x-gone").is_empty(), "{target}");
        assert_eq!(all("content-security-policy"), ["default-src 'self'; img-src *"], "{target}");
    }
    // A response to a condition is edited like the one it stands for.
    let unchanged = client::ask(address, "GET", "/proxied", &[("If-None-Match", "\"e\"")]);
    assert_eq!((unchanged.status, unchanged.header("server")), (304, Some("front")));
    assert_eq!(origin.take().len(), 1, "all but the first were hits");
}

#[test]
fn a_site_may_listen_on_a_unix_socket() {
    let directory = tempfile::TempDir::new().unwrap();
    let socket = directory.path().join("site.sock");
    let config = format!(
        "server {{ workers 2; admin \"off\"; }}\n\
         site \"*\" {{ listen \"unix:{}\"; route \"/*\" {{ respond \"hello\"; }}; }}\n",
        socket.display()
    );
    let mut weir = Weir::run_in(directory, &config, &[]);
    let connected = wait_for(PATIENCE, || UnixStream::connect(&socket).ok());
    let mut stream = connected.expect("the socket is there");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "open to all, as a port is");
    assert!(weir.stop().success());
    assert!(!socket.exists(), "the next server finds its place free");
}

#[test]
fn a_socket_left_behind_is_replaced_and_nothing_else_is() {
    let directory = tempfile::TempDir::new().unwrap();
    let socket = directory.path().join("site.sock");
    let config = |path: &std::path::Path| {
        format!(
            "server {{ workers 1; admin \"off\"; }}\n\
             site \"*\" {{ listen \"unix:{}\"; route \"/*\" {{ respond \"hello\"; }}; }}\n",
            path.display()
        )
    };
    drop(UnixListener::bind(&socket).unwrap());
    let weir = Weir::run_in(directory, &config(&socket), &[]);
    let connected = wait_for(PATIENCE, || UnixStream::connect(&socket).ok());
    assert!(connected.is_some());
    assert!(weir.log().contains("replacing a socket that nobody listens on"), "{}", weir.log());
    // Neither one that is in use nor what is no socket at all.
    let file = weir.directory().join("precious");
    std::fs::write(&file, "precious").unwrap();
    for (path, reason) in [(&socket, "a server listens there"), (&file, "is not a socket")] {
        std::fs::write(weir.directory().join("second.kdl"), config(path)).unwrap();
        let output = command(weir.directory(), &["run", "second.kdl"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason), "{said}");
        assert!(said.contains(&*path.to_string_lossy()), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert!(UnixStream::connect(&socket).is_ok());
}

#[test]
fn a_reload_takes_a_socket_away() {
    let directory = tempfile::TempDir::new().unwrap();
    let socket = directory.path().join("site.sock");
    let [address, admin] = [(); 2].map(|()| common::free_address());
    let config = |listen: &str| {
        format!(
            "server {{ workers 1; admin \"{admin}\"; }}\n\
             site \"*\" {{\nlisten \"{address}\"; {listen}\n\
             route \"/*\" {{ respond \"hello\"; }}\n}}\n"
        )
    };
    let both = config(&format!("listen \"unix:{}\";", socket.display()));
    let weir = Weir::run_in(directory, &both, &[address, admin]);
    assert!(socket.exists());
    std::fs::write(weir.directory().join("weir.kdl"), config("")).unwrap();
    let reload = command(weir.directory(), &["reload", "--admin", &admin.to_string()]);
    assert!(reload.status.success(), "{reload:?}");
    assert!(!socket.exists());
}
