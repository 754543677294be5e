//! Files over real sockets: what a path stands for, how it is described, methods, codings and
//! listings. Conditions and ranges, paths that try to leave the root, and changes of files are in
//! the modules below.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "files/changes.rs"]
mod changes;
#[path = "files/paths.rs"]
mod paths;
#[path = "files/selection.rs"]
mod selection;

use std::net::SocketAddr;
use std::path::PathBuf;

use common::client::{self, Response};
use common::server::Weir;
use common::{PATIENCE, free_address, wait_for};
use tempfile::TempDir;

/// A server whose root is the folder `www` of its directory.
struct Site {
    weir: Weir,
    address: SocketAddr,
}

impl Site {
    /// `routes` is put into the site's block, `files` are written below `www`.
    fn start(routes: &str, files: &[(&str, &[u8])]) -> Site {
        let directory = TempDir::new().unwrap();
        for (name, content) in files {
            let path = directory.path().join("www").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Site::start_in(directory, routes)
    }

    fn start_in(directory: TempDir, routes: &str) -> Site {
        let address = free_address();
        let config = format!(
            r#"
            server {{ workers 2; admin "off"; }}
            cache {{ memory "8MiB"; object-max "256KiB"; }}
            site "*" {{
                listen "{address}"
                {routes}
            }}
            "#
        );
        Site { weir: Weir::run_in(directory, &config, &[address]), address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.weir.directory().join("www").join(name)
    }

    fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        client::ask(self.address, method, target, fields)
    }

    fn get(&self, target: &str) -> Response {
        self.ask("GET", target, &[])
    }
}

const FILES: &str = r#"route "/*" { files "www"; }"#;

#[test]
fn names_decide_the_type_and_directories_have_an_index() {
    let site = Site::start(
        FILES,
        &[
            ("index.html", b"<p>home"),
            ("style.css", b"a{}"),
            ("code.js", b"1"),
            ("code.mjs", b"1"),
            ("data.json", b"{}"),
            ("picture.PNG", b"\x89PNG"),
            ("picture.svg", b"<svg/>"),
            ("picture.avif", b"-"),
            ("code.wasm", b"\0asm"),
            ("notes.txt", b"hi"),
            ("font.woff2", b"-"),
            ("LICENSE", b"free"),
            ("with space.txt", b"space"),
            ("gr\u{fc}n.txt", b"green"),
            ("sub/index.html", b"<p>sub"),
            ("bare/file", b"-"),
            ("empty", b""),
        ],
    );
    let check = |target: &str, content_type: &str, body: &[u8]| {
        for turn in ["first", "again"] {
            let response = site.get(target);
            assert_eq!(response.status, 200, "{target} {turn}");
            assert_eq!(response.header("content-type"), Some(content_type), "{target} {turn}");
            assert_eq!(response.body, body, "{target} {turn}");
            let length = body.len().to_string();
            assert_eq!(response.header("content-length"), Some(&*length), "{target} {turn}");
        }
        let head = site.ask("HEAD", target, &[]);
        assert_eq!(head.header("content-length"), Some(&*body.len().to_string()), "{target}");
        assert_eq!(head.header("content-type"), Some(content_type), "{target}");
    };
    check("/", "text/html; charset=utf-8", b"<p>home");
    check("/?a=b", "text/html; charset=utf-8", b"<p>home");
    check("/style.css", "text/css; charset=utf-8", b"a{}");
    check("/code.js", "text/javascript; charset=utf-8", b"1");
    check("/code.mjs", "text/javascript; charset=utf-8", b"1");
    check("/data.json", "application/json", b"{}");
    check("/picture.PNG", "image/png", b"\x89PNG");
    check("/picture.svg", "image/svg+xml; charset=utf-8", b"<svg/>");
    check("/picture.avif", "image/avif", b"-");
    check("/code.wasm", "application/wasm", b"\0asm");
    check("/notes.txt", "text/plain; charset=utf-8", b"hi");
    check("/font.woff2", "font/woff2", b"-");
    check("/LICENSE", "application/octet-stream", b"free");
    check("/with%20space.txt", "text/plain; charset=utf-8", b"space");
    check("/gr%C3%BCn.txt", "text/plain; charset=utf-8", b"green");
    check("/sub/", "text/html; charset=utf-8", b"<p>sub");
    check("/empty", "application/octet-stream", b"");
    assert_eq!(site.get("/bare/").status, 404, "neither index nor listing");
    assert_eq!(site.get("/nothing").status, 404);
    // A file is no directory: below it and with a slash there is nothing.
    assert_eq!(site.get("/notes.txt/").status, 404);
    assert_eq!(site.get("/notes.txt/more").status, 404);
}

#[test]
fn responses_carry_validators_and_dates() {
    let routes = r#"
        route "/*" { files "www" cache-control="public, max-age=60"; }
        route "/uncached/*" { files "www" strip-prefix=#true; cache "off"; }
    "#;
    let site = Site::start(routes, &[("a.txt", b"hello")]);
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    std::fs::File::open(site.path("a.txt")).unwrap().set_modified(modified).unwrap();
    for target in ["/a.txt", "/a.txt", "/uncached/a.txt"] {
        let response = site.get(target);
        assert_eq!(response.header("last-modified"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
        let etag = response.header("etag").unwrap();
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 4, "{etag}");
        assert_eq!(response.header("accept-ranges"), Some("bytes"), "{target}");
        assert!(response.header("date").unwrap().ends_with(" GMT"), "{target}");
        let is_public = target == "/a.txt";
        let cache_control = response.header("cache-control");
        assert_eq!(cache_control, is_public.then_some("public, max-age=60"), "{target}");
    }
    let hit = wait_for(PATIENCE, || {
        // A file that has only just changed may change again unseen: it is not a hit yet.
        (site.get("/a.txt").header("cache-status") == Some("weir; hit")).then_some(())
    });
    hit.expect("the file becomes a hit");
    assert_eq!(site.get("/a.txt").header("etag"), site.get("/uncached/a.txt").header("etag"));
}

#[test]
fn only_reading_methods() {
    let site = Site::start(FILES, &[("a.txt", b"hello")]);
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND", "TRACE"] {
        let response = site.ask(method, "/a.txt", &[("Content-Length", "0")]);
        assert_eq!(response.status, 405, "{method}");
        let allow = response.header("allow").unwrap();
        assert!(allow.starts_with("GET, HEAD, OPTIONS"), "{method}: {allow}");
    }
    for target in ["/a.txt", "/", "*"] {
        let response = site.ask("OPTIONS", target, &[]);
        assert_eq!(response.status, 204, "{target}");
        assert_eq!(response.header("allow"), Some("GET, HEAD, OPTIONS"), "{target}");
    }
    let mut client = client::Client::connect(site.address).unwrap();
    client.send(b"POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").unwrap();
    assert_eq!(client.response("POST").unwrap().status, 405);
}

#[test]
fn precompressed_siblings_are_chosen_by_accept_encoding() {
    let routes = r#"
        route "/*" { files "www"; }
        route "/plain/*" { files "www" strip-prefix=#true precompressed=#false; }
        route "/uncached/*" { files "www" strip-prefix=#true; cache "off"; }
    "#;
    let site = Site::start(
        routes,
        &[
            ("a.txt", b"identity"),
            ("a.txt.br", b"BR"),
            ("a.txt.zst", b"ZSTD"),
            ("a.txt.gz", b"GZIP!"),
            ("b.txt", b"identity"),
            ("b.txt.gz", b"GZIP!"),
            ("wide.txt", b"identity"),
            // A Zstandard frame whose window of 128 MiB browsers refuse.
            ("wide.txt.zst", b"\x28\xb5\x2f\xfd\x04\x88"),
            ("lone.txt", b"lone"),
        ],
    );
    let check = |target: &str, accept: Option<&str>, coding: Option<&str>, body: &[u8]| {
        let fields: Vec<_> = accept.map(|value| ("Accept-Encoding", value)).into_iter().collect();
        for prefix in ["", "/uncached"] {
            let response = site.ask("GET", &format!("{prefix}{target}"), &fields);
            let context = format!("{prefix}{target} {accept:?}");
            assert_eq!(response.status, 200, "{context}");
            assert_eq!(response.header("content-encoding"), coding, "{context}");
            assert_eq!(response.body, body, "{context}");
            assert_eq!(response.header("vary"), Some("accept-encoding"), "{context}");
            let content_type = response.header("content-type");
            assert_eq!(content_type, Some("text/plain; charset=utf-8"), "{context}");
        }
    };
    check("/a.txt", None, None, b"identity");
    check("/a.txt", Some("gzip"), Some("gzip"), b"GZIP!");
    check("/a.txt", Some("x-gzip"), Some("gzip"), b"GZIP!");
    check("/a.txt", Some("zstd"), Some("zstd"), b"ZSTD");
    check("/a.txt", Some("gzip, deflate, br, zstd"), Some("br"), b"BR");
    check("/a.txt", Some("br;q=0, gzip;q=0.5"), Some("gzip"), b"GZIP!");
    check("/a.txt", Some("br;q=0.1, gzip;q=0.9"), Some("gzip"), b"GZIP!");
    check("/a.txt", Some("GZip"), Some("gzip"), b"GZIP!");
    check("/a.txt", Some("*"), Some("br"), b"BR");
    check("/a.txt", Some("br;q=0, *"), Some("zstd"), b"ZSTD");
    check("/a.txt", Some("br;q=0, zstd;q=0, gzip;q=0"), None, b"identity");
    check("/a.txt", Some("identity, gzip;q=0.5"), None, b"identity");
    check("/a.txt", Some("deflate"), None, b"identity");
    check("/a.txt", Some(""), None, b"identity");
    check("/b.txt", Some("br, gzip"), Some("gzip"), b"GZIP!");
    check("/b.txt", Some("br"), None, b"identity");
    check("/wide.txt", Some("zstd"), None, b"identity");

    let lone = site.ask("GET", "/lone.txt", &[("Accept-Encoding", "br")]);
    assert_eq!((lone.header("content-encoding"), &lone.body[..]), (None, &b"lone"[..]));
    let off = site.ask("GET", "/plain/a.txt", &[("Accept-Encoding", "br")]);
    assert_eq!((off.header("content-encoding"), off.header("vary")), (None, None));
    assert_eq!(off.body, b"identity");

    // Each form is a representation of its own: with its own ETag, conditions and ranges.
    let etag = |coding: &str| {
        let response = site.ask("GET", "/a.txt", &[("Accept-Encoding", coding)]);
        response.header("etag").unwrap().to_owned()
    };
    let etags = [etag("br"), etag("zstd"), etag("gzip"), etag("identity")];
    let mut distinct = etags.to_vec();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "{etags:?}");
    let fields = [("Accept-Encoding", "br"), ("If-None-Match", &*etags[2])];
    assert_eq!(site.ask("GET", "/a.txt", &fields).status, 200, "another form's tag");
    let fields = [("Accept-Encoding", "br"), ("If-None-Match", &*etags[0])];
    let unchanged = site.ask("GET", "/a.txt", &fields);
    assert_eq!((unchanged.status, unchanged.header("vary")), (304, Some("accept-encoding")));
    let part = site.ask("GET", "/a.txt", &[("Accept-Encoding", "gzip"), ("Range", "bytes=1-2")]);
    assert_eq!((part.status, &part.body[..]), (206, &b"ZI"[..]));
    assert_eq!(part.header("content-range"), Some("bytes 1-2/5"));
}

#[test]
fn listings_for_people_and_programs() {
    let routes = r#"
        route "/*" { files "www" listing=#true; }
        route "/closed/*" { files "www" strip-prefix=#true; }
    "#;
    let site = Site::start(
        routes,
        &[
            ("d/b <&\"'>.txt", b"12345"),
            ("d/a.txt", b"1"),
            ("d/.hidden", b"-"),
            ("d/sub/x", b"-"),
            ("with/index.html", b"index"),
        ],
    );
    let page = site.get("/d/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("a.txt") && text.contains("sub/"), "{text}");
    assert!(text.contains("&lt;&amp;") && !text.contains("b <&"), "{text}");
    assert!(text.contains("b%20%3C%26%22%27%3E.txt"), "{text}");
    assert!(!text.contains("hidden"), "{text}");

    let list = site.ask("GET", "/d/", &[("Accept", "application/json")]);
    assert_eq!(list.header("content-type"), Some("application/json"));
    let list: serde_json::Value = serde_json::from_slice(&list.body).unwrap();
    let entries = list["entries"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sub", "a.txt", "b <&\"'>.txt"], "{list}");
    assert_eq!(entries[2]["size"], 5, "{list}");

    let head = site.ask("HEAD", "/d/", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("vary"), Some("accept"));
    assert_eq!(site.get("/with/").body, b"index", "an index goes before the listing");
    assert_eq!(site.get("/closed/d/").status, 404);
}

#[test]
fn a_prefix_may_be_stripped() {
    let routes = r#"
        route "/static/*" { files "www" strip-prefix=#true listing=#true; }
        route "/kept/*" { files "www"; }
        route "/static/exact" { respond "exact"; }
    "#;
    let files: &[(&str, &[u8])] = &[("a.txt", b"a"), ("d/x", b"x"), ("kept/a.txt", b"kept")];
    let site = Site::start(routes, files);
    assert_eq!(site.get("/static/a.txt").body, b"a");
    assert_eq!(site.get("/kept/a.txt").body, b"kept");
    assert_eq!(site.get("/static/exact").body, b"exact", "the more specific route");
    assert_eq!(site.get("/a.txt").status, 404, "no route");
    assert_eq!(site.get("/static/static/a.txt").status, 404, "stripped once");
    let redirect = site.get("/static/d?x=1&y=%2F");
    assert_eq!(redirect.status, 301);
    assert_eq!(redirect.header("location"), Some("/static/d/?x=1&y=%2F"));
    assert_eq!(site.get("/static/d/").status, 200);
}

#[test]
fn a_file_is_stored_once_whatever_the_host() {
    let admin = free_address();
    let address = free_address();
    let config = format!(
        r#"
        server {{ workers 1; admin "{admin}"; }}
        site "a.example" "*" {{ listen "{address}"; route "/*" {{ files "."; }}; }}
        site "b.example" {{ listen "{address}"; route "/*" {{ files "."; }}; }}
        "#
    );
    let weir = Weir::run(&config, &[address, admin]);
    std::fs::write(weir.directory().join("a.txt"), "hello").unwrap();
    let is_hit = |host: &str| {
        let response = client::get(address, host, "/a.txt").unwrap();
        response.header("cache-status") == Some("weir; hit")
    };
    assert!(wait_for(PATIENCE, || is_hit("a.example").then_some(())).is_some());
    assert!(is_hit("x.example") && is_hit("y.example:80"), "no client fills the cache by names");
    assert!(!is_hit("b.example"), "another site may have another root");
    let purge = ["purge", "http://z.example/a.txt", "--admin", &admin.to_string()];
    let purged = common::server::command(weir.directory(), &purge);
    assert_eq!(String::from_utf8(purged.stdout).unwrap(), "purged 1 stored response\n");
    assert!(!is_hit("a.example"));
}
