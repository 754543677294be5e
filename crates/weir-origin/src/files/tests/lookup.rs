//! Path and accepted codings → outcome.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use http::header::{ACCEPT_ENCODING, HeaderMap};
use http::{HeaderValue, StatusCode};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use Coding::{Brotli, Gzip, Identity, Zstd};

#[test]
fn paths_lead_to_files_redirects_and_refusals() {
    let site = Site::new();
    site.write("index.html", "home");
    site.write("a b.txt", "spaces");
    site.write("docs/index.txt", "second index");
    site.write("both/index.html", "first");
    site.write("both/index.txt", "second");
    site.write("empty/.keep", "");
    site.write(".env", "password");
    site.write(".git/config", "repository");
    site.write("docs/.htaccess", "hidden");
    site.write(".well-known/acme-challenge/token", "challenge");
    let walking = FileRoot::new(
        &site.config(),
        std::fs::File::open(&site.www).unwrap().into(),
        super::super::beneath::Method::Walk,
    );
    let root = site.root();
    for (path, expect) in [
        ("", "home"),
        ("/", "home"),
        ("index.html", "home"),
        ("a b.txt", "spaces"),
        ("docs", "redirect"),
        ("docs/", "second index"),
        ("both/", "first"),
        ("empty/", "not found"),
        ("index.html/", "not found"),
        ("index.html/x", "not found"),
        ("missing", "not found"),
        ("missing/", "not found"),
        (".env", "not found"),
        (".git/config", "not found"),
        (".git/", "not found"),
        ("docs/.htaccess", "not found"),
        (".", "not found"),
        ("..", "not found"),
        ("../secret.txt", "not found"),
        ("docs/../index.html", "not found"),
        ("docs/..", "not found"),
        ("docs//index.txt", "not found"),
        ("/index.html", "not found"),
        ("index.html\0.txt", "not found"),
        (".well-known/acme-challenge/token", "challenge"),
    ] {
        assert_eq!(outcome(&root, path), expect, "{path:?}");
        assert_eq!(outcome(&walking, path), expect, "{path:?} without openat2");
    }
    assert_eq!(outcome(&site.listing_root(), "empty/"), "listing");
    assert_eq!(outcome(&root, &"x".repeat(300)), "not found", "ENAMETOOLONG");
    assert_eq!(outcome(&root, &"x/".repeat(3000)), "not found", "longer than PATH_MAX");
}

#[test]
fn only_regular_files_are_served_and_none_blocks() {
    let site = Site::new();
    mknodat(CWD, site.www.join("pipe"), FileType::Fifo, Mode::from(0o644), 0).unwrap();
    let _socket = UnixListener::bind(site.www.join("socket")).unwrap();
    let device = mknodat(
        CWD,
        site.www.join("device"),
        FileType::CharacterDevice,
        Mode::from(0o644),
        rustix::fs::makedev(1, 5),
    );
    let root = site.root();
    assert_eq!(outcome(&root, "pipe"), "not found");
    assert_eq!(outcome(&root, "socket"), "not found");
    if device.is_ok() {
        assert_eq!(outcome(&root, "device"), "not found");
    }
}

/// On a thread that gave up root's right to read everything, if it had it.
#[test]
fn an_unreadable_file_is_forbidden() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let site = Site::new();
    let path = site.write("closed.txt", "closed");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    site.write("closed.css", "open");
    let sibling = site.write("closed.css.gz", "closed");
    std::fs::set_permissions(&sibling, std::fs::Permissions::from_mode(0o000)).unwrap();
    let root = site.root();
    let unprivileged = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).unwrap();
        let error = root.resolve(b"closed.txt", false, Accepted::default(), later());
        assert_eq!(error.unwrap_err().status(), StatusCode::FORBIDDEN);
        // A sibling that cannot be read is no reason to refuse the original.
        assert_eq!(body(&open_as(&root, "closed.css", &[Gzip])), b"open");
    });
    unprivileged.join().unwrap();
}

#[test]
fn system_errors_become_statuses() {
    use rustix::io::Errno;
    for (errno, expect) in [
        (Errno::NOENT, 404),
        (Errno::NOTDIR, 404),
        (Errno::LOOP, 404),
        (Errno::XDEV, 404),
        (Errno::NAMETOOLONG, 404),
        (Errno::NXIO, 404),
        (Errno::ACCESS, 403),
        (Errno::PERM, 403),
        (Errno::MFILE, 503),
        (Errno::NFILE, 503),
        (Errno::NOMEM, 503),
        (Errno::AGAIN, 503),
        (Errno::IO, 500),
        (Errno::STALE, 500),
    ] {
        let error = FilesError::from_errno(errno, || "/srv/www/x".into());
        assert_eq!(error.status().as_u16(), expect, "{error}");
    }
}

#[test]
fn a_missing_root_is_named() {
    let site = Site::new();
    for (root, expect) in [("absent", "absent"), ("secret.txt", "secret.txt")] {
        let config = weir_config::Files { root: site.base.join(root), ..site.config() };
        let text = FileRoot::open(&config).unwrap_err().to_string();
        assert!(text.contains(expect) && text.contains("expected a directory"), "{text}");
    }
}

#[test]
fn a_root_that_is_swapped_is_followed() {
    let site = Site::new();
    for release in ["one", "two"] {
        std::fs::create_dir(site.base.join(release)).unwrap();
        std::fs::write(site.base.join(release).join("page"), release).unwrap();
    }
    let current = site.base.join("current");
    symlink(site.base.join("one"), &current).unwrap();
    let config = weir_config::Files { root: current.clone(), ..site.config() };
    let root = FileRoot::open(&config).unwrap();
    assert_eq!(outcome(&root, "page"), "one");
    symlink(site.base.join("two"), site.base.join("next")).unwrap();
    std::fs::rename(site.base.join("next"), &current).unwrap();
    let after = later() + Duration::from_secs(1);
    let Ok(Found::File(file)) = root.resolve(b"page", false, Accepted::default(), after) else {
        panic!("expected a file");
    };
    assert_eq!(body(&file), b"two");
    std::fs::remove_file(&current).unwrap();
    let gone = after + Duration::from_secs(1);
    let error = root.resolve(b"page", false, Accepted::default(), gone).unwrap_err();
    assert!(matches!(error, FilesError::NotFound), "{error}");
}

#[test]
fn media_types_follow_the_name() {
    let site = Site::new();
    let root = site.root();
    for (name, expect) in [
        ("a.html", "text/html; charset=utf-8"),
        ("a.HTM", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.js.map", "application/json"),
        ("a.svg", "image/svg+xml; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.wasm", "application/wasm"),
        ("a.avif", "image/avif"),
        ("a.webp", "image/webp"),
        ("a.jxl", "image/jxl"),
        ("a.woff2", "font/woff2"),
        ("a.woff", "font/woff"),
        ("a.OTF", "font/otf"),
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("a.yml", "application/yaml"),
        ("a.tgz", "application/gzip"),
        ("a.rpm", "application/x-rpm"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.ico", "image/x-icon"),
        ("a.mp4", "video/mp4"),
        ("a.webm", "video/webm"),
        ("a.ts", "video/mp2t"),
        ("a.pdf", "application/pdf"),
        ("a.gz", "application/gzip"),
        ("a.zst", "application/zstd"),
        ("a.unheard-of", "application/octet-stream"),
        ("README", "application/octet-stream"),
        ("html", "application/octet-stream"),
    ] {
        site.write(name, "x");
        assert_eq!(open(&root, name).content_type, expect, "{name}");
    }
}

#[test]
fn the_sibling_the_client_likes_best_is_chosen() {
    let site = Site::new();
    for name in ["all.css", "all.css.br", "all.css.zst", "all.css.gz", "some.css", "some.css.gz"] {
        site.write(name, name);
    }
    site.write("none.css", "none.css");
    std::fs::create_dir(site.www.join("none.css.br")).unwrap();
    site.write("emptied.css", "text");
    site.write("emptied.css.gz", "");
    site.write("orphan.css.gz", "orphan");
    let root = site.root();
    let check = |path: &str, accepted: &[Coding], expect: &str, vary: bool| {
        let file = open_as(&root, path, accepted);
        assert_eq!(String::from_utf8(body(&file)).unwrap(), expect, "{path} {accepted:?}");
        assert_eq!(file.vary_on_encoding, vary, "{path} {accepted:?}");
        assert_eq!(file.content_type, "text/css; charset=utf-8", "{path} {accepted:?}");
    };
    check("all.css", &[Brotli, Zstd, Gzip], "all.css.br", true);
    check("all.css", &[Gzip, Brotli], "all.css.gz", true);
    check("all.css", &[Zstd], "all.css.zst", true);
    check("all.css", &[Identity, Gzip], "all.css", true);
    check("all.css", &[], "all.css", true);
    check("some.css", &[Brotli, Zstd, Gzip], "some.css.gz", true);
    check("some.css", &[Brotli], "some.css", true);
    check("none.css", &[Brotli, Gzip], "none.css", false);
    check("emptied.css", &[Gzip], "text", false);
    assert_eq!(outcome(&root, "orphan.css"), "not found");

    let itself = open_as(&root, "all.css.gz", &[Gzip]);
    assert_eq!((itself.coding, itself.content_type.as_bytes()), (None, &b"application/gzip"[..]));

    let plain = FileRoot::open(&weir_config::Files { precompressed: false, ..site.config() });
    let file = open_as(&plain.unwrap(), "all.css", &[Gzip]);
    assert_eq!((file.coding, file.vary_on_encoding), (None, false));
}

/// Browsers refuse windows above 8 MiB: who takes another coding gets that, or else the original.
#[test]
fn a_sibling_with_a_window_that_browsers_refuse_is_passed_over() {
    let site = Site::new();
    site.write("wide.css", "text");
    // As `zstd --ultra -22` begins: a window of 128 MiB. And the largest that is allowed.
    site.write("wide.css.zst", b"\x28\xb5\x2f\xfd\x04\x88rest");
    site.write("wide.css.gz", "gzip");
    site.write("right.css", "text");
    site.write("right.css.zst", b"\x28\xb5\x2f\xfd\x04\x68rest");
    let root = site.root();
    for (path, accepted, expect) in [
        ("wide.css", &[Zstd, Gzip][..], Some(Gzip)),
        ("wide.css", &[Zstd], None),
        ("right.css", &[Zstd], Some(Zstd)),
    ] {
        let file = open_as(&root, path, accepted);
        assert_eq!((file.coding, file.vary_on_encoding), (expect, true), "{path} {accepted:?}");
    }
}

#[test]
fn a_sibling_older_than_its_original_is_passed_over() {
    let site = Site::new();
    let original = site.write("a.css", "new");
    let sibling = site.write("a.css.gz", "old");
    let root = site.root();
    // (original, sibling) in seconds and nanoseconds; whether the sibling is taken.
    for (at, sibling_at, expect) in [
        ((1_700_000_000, 5_000), (1_700_000_000, 5_000), Some(Gzip)),
        ((1_700_000_000, 5_000), (1_700_000_001, 1), Some(Gzip)),
        ((1_700_000_000, 987_654_321), (1_700_000_000, 0), Some(Gzip)),
        ((1_700_000_000, 987_654_321), (1_700_000_000, 987_654_000), Some(Gzip)),
        ((1_700_000_000, 987_654_321), (1_700_000_000, 987_653_000), None),
        ((1_700_000_000, 987_654_321), (1_700_000_000, 987_654_320), None),
        ((1_700_000_001, 0), (1_700_000_000, 0), None),
    ] {
        set_modified(&original, at.0, at.1);
        set_modified(&sibling, sibling_at.0, sibling_at.1);
        let file = open_as(&root, "a.css", &[Gzip]);
        assert_eq!(file.coding, expect, "{at:?} {sibling_at:?}");
        assert_eq!(file.vary_on_encoding, expect.is_some());
    }
}

#[test]
fn accepted_codings_come_from_the_request() {
    let check = |value: Option<&'static str>, expect: &[Coding]| {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        assert_eq!(Accepted::of_request(&headers), Accepted::new(expect), "{value:?}");
    };
    check(None, &[]);
    check(Some(""), &[]);
    check(Some("gzip"), &[Gzip]);
    check(Some("gzip, br, zstd"), &[Brotli, Zstd, Gzip]);
    check(Some("gzip;q=0.9, br;q=0.5, zstd;q=0"), &[Gzip, Brotli]);
    check(Some("identity, gzip;q=0.5"), &[]);
    check(Some("*;q=0"), &[]);
}

#[test]
fn validators_tell_contents_apart() {
    let site = Site::new();
    let path = site.write("a.css", "text");
    site.write("a.css.gz", "gzip");
    let root = site.root();
    set_modified(&path, 1_700_000_000, 1);
    let first = open(&root, "a.css");
    assert!(first.etag.as_bytes().starts_with(b"\""), "strong: {:?}", first.etag);
    assert_ne!(first.etag, open_as(&root, "a.css", &[Gzip]).etag);
    assert_eq!(first.modified, SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 1));
    set_modified(&path, 1_700_000_000, 2);
    assert_ne!(first.etag, open(&root, "a.css").etag);

    // Last-Modified must not lie in the future (RFC 9110 §8.8.2.1).
    set_modified(&path, 9_000_000_000, 0);
    assert!(open(&root, "a.css").modified <= later());
}

/// Reproducible builds give every file the same time; the tag must tell contents apart all the
/// same.
#[test]
fn placeholder_times_are_not_trusted() {
    let site = Site::new();
    let path = site.write("a.css", "one!");
    let root = site.root();
    set_modified(&path, 1, 0);
    let first = open(&root, "a.css");
    assert!(first.modified > SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000));
    let mut tags = vec![first.etag.clone()];
    // The change time may take a tick of the kernel's clock to move on.
    for _ in 0..200 {
        site.write("a.css", "two!");
        set_modified(&path, 1, 0);
        tags.push(open(&root, "a.css").etag);
        if tags[0] != tags[tags.len() - 1] {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("same tag for different contents: {:?}", tags[0]);
}
