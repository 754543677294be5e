//! Paths that try to leave the root, by dots, encodings or symlinks, and what must stay hidden.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::{FILES, Site};
use crate::common::client::{Client, find};

const SECRET: &[u8] = b"the secret";

fn site_with_secrets() -> Site {
    let directory = TempDir::new().unwrap();
    let outside = directory.path();
    let root = outside.join("www");
    std::fs::create_dir_all(root.join("dir/.git")).unwrap();
    std::fs::create_dir_all(root.join(".well-known")).unwrap();
    std::fs::create_dir_all(outside.join("private")).unwrap();
    for secret in ["secret", "private/secret", "www/.htpasswd", "www/dir/.git/config"] {
        std::fs::write(outside.join(secret), SECRET).unwrap();
    }
    for open in ["www/index.html", "www/dir/page", "www/a%2fb", "www/100%", "www/a..b"] {
        std::fs::write(outside.join(open), "open").unwrap();
    }
    for (target, link) in [
        ("../secret", "out"),
        ("../private", "outdir"),
        ("/etc/passwd", "absolute"),
        ("out", "twice"),
        ("loop", "loop"),
        ("dir/page", "inside"),
        ("../www/dir/page", "around"),
        ("dir", "insidedir"),
        ("nowhere", "dangling"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    Site::start_in(directory, FILES)
}

/// Sends the target as it is and returns status and body.
fn raw(site: &Site, target: &[u8]) -> (u16, Vec<u8>) {
    let mut client = Client::connect(site.address).unwrap();
    let request =
        [b"GET ", target, b" HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n"].concat();
    client.send(&request).unwrap();
    let response = client.response("GET").unwrap();
    (response.status, response.body)
}

#[test]
fn no_spelling_of_a_path_leaves_the_root() {
    let site = site_with_secrets();
    let check = |target: &[u8], expected: u16| {
        let (status, body) = raw(&site, target);
        let context = target.escape_ascii();
        assert!(find(&body, SECRET).is_none() && find(&body, b"root:").is_none(), "{context}");
        assert_eq!(status, expected, "{context}");
        if status == 200 {
            assert_eq!(body, b"open", "{context}");
        }
    };
    check(b"/", 200);
    check(b"/dir/page", 200);
    check(b"/dir/../dir/./page", 200);
    check(b"/dir/%2e%2E/dir/page", 200);
    check(b"//dir//page", 200);
    check(b"/%64ir/p%61ge", 200);
    check(b"/a..b", 200);
    check(b"/100%25", 200);
    check(b"/a%252fb", 200);
    check(b"http://site.example/dir/page", 200);
    check(b"/dir/page#fragment", 200);

    check(b"/../secret", 400);
    check(b"/dir/../../secret", 400);
    check(b"/%2e%2e/secret", 400);
    check(b"/%2E%2e/secret", 400);
    check(b"/.%2e/secret", 400);
    check(b"/dir/%2e%2e/%2e%2e/secret", 400);
    check(b"http://site.example/../secret", 400);
    check(b"/..%2fsecret", 404);
    check(b"/%2e%2e%2fsecret", 404);
    check(b"/dir%2f..%2f..%2fsecret", 404);
    check(b"/a%2fb", 404);
    check(b"/..%5csecret", 404);
    check(b"/..\\secret", 404);
    check(b"/%252e%252e/secret", 404);
    check(b"/%c0%ae%c0%ae/secret", 404);
    check(b"/..;/secret", 404);
    check(b"//etc/passwd", 404);
    check(b"/%2fetc/passwd", 404);
    check(b"/.../secret", 404);
    check(b"/%00", 400);
    check(b"/index.html%00.png", 400);
    check(b"/index.html%", 400);
    check(b"/index.html%2", 400);
    check(b"/%zz", 400);
    check(b"/a\x01b", 400);
    check(b"dir/page", 400);
    check(&[b"/".as_slice(), &[b'a'; 300]].concat(), 404);
    check(&[b"/".as_slice(), &b"a/".repeat(3000)].concat(), 404);
}

#[test]
fn dot_files_are_refused_but_for_well_known() {
    let site = site_with_secrets();
    for target in [
        "/.htpasswd",
        "/%2ehtpasswd",
        "/dir/.git/config",
        "/dir/%2egit/config",
        "/dir/.git/",
        "/dir/.git",
    ] {
        let response = site.get(target);
        assert_ne!(response.body, SECRET, "{target}");
        assert_eq!(response.status, 404, "{target}: not even that it exists is told");
    }
    std::fs::write(site.path(".well-known/security.txt"), "Contact: us").unwrap();
    assert_eq!(site.get("/.well-known/security.txt").body, b"Contact: us");
}

#[test]
fn symlinks_lead_anywhere_but_out() {
    let site = site_with_secrets();
    for target in ["/out", "/twice", "/outdir/secret", "/outdir/", "/outdir", "/absolute", "/loop"]
    {
        for _ in 0..2 {
            let response = site.get(target);
            assert!(matches!(response.status, 403 | 404), "{target}: {}", response.status);
            assert!(find(&response.body, SECRET).is_none(), "{target}");
        }
    }
    assert_eq!(site.get("/dangling").status, 404);
    for target in ["/inside", "/insidedir/page"] {
        assert_eq!(site.get(target).body, b"open", "{target}");
    }
    // A link that was inside and now leads out is noticed by the next request.
    std::fs::remove_file(site.path("inside")).unwrap();
    symlink("../secret", site.path("inside")).unwrap();
    let replaced = crate::common::wait_for(std::time::Duration::from_secs(2), || {
        let response = site.get("/inside");
        assert_ne!(response.body, SECRET);
        (response.status != 200).then_some(response.status)
    });
    assert!(matches!(replaced, Some(403 | 404)), "{replaced:?}");
}

#[test]
fn a_directory_redirects_to_its_slash_and_to_no_other_host() {
    let site = site_with_secrets();
    let check = |target: &str, expected: &str| {
        let response = site.get(target);
        assert_eq!((response.status, response.header("location")), (301, Some(expected)));
        assert_eq!(response.body, b"");
    };
    check("/dir", "/dir/");
    check("/dir?a=1&b=%20", "/dir/?a=1&b=%20");
    check("/dir?", "/dir/?");
    check("/%64ir", "/%64ir/");
    check("/insidedir", "/insidedir/");
    check("//dir", "/dir/");
    check("///dir?x", "/dir/?x");
}
