//! Directory listings: what they show, and that no name breaks out of its place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::{Directory, Listing, ListingFormat};
use super::*;

fn directory(root: &FileRoot, path: &str) -> Directory {
    match root.resolve(path.as_bytes(), true, Accepted::default(), later()) {
        Ok(Found::Listing(directory)) => directory,
        other => panic!("{path}: expected a listing, got {other:?}"),
    }
}

fn names(listing: &Listing) -> Vec<String> {
    let name = |entry: &super::super::Entry| String::from_utf8_lossy(&entry.name).into_owned();
    listing.entries.iter().map(name).collect()
}

#[test]
fn listings_show_what_would_be_served_in_order() {
    let site = Site::new();
    for name in ["b.txt", "a.txt", "Z.txt", ".hidden", "sub/x", ".git/config", ".well-known/y"] {
        site.write(name, "12345");
    }
    mknodat(CWD, site.www.join("pipe"), FileType::Fifo, Mode::from(0o644), 0).unwrap();
    symlink("a.txt", site.www.join("inside")).unwrap();
    symlink("sub", site.www.join("subway")).unwrap();
    symlink("../secret.txt", site.www.join("outside")).unwrap();
    symlink("nowhere", site.www.join("dangling")).unwrap();
    let root = site.listing_root();
    let listing = directory(&root, "").list().unwrap();
    let expect = [".well-known", "sub", "subway", "Z.txt", "a.txt", "b.txt", "inside"];
    assert_eq!(names(&listing), expect);
    assert_eq!(listing.entries[4].size, Some(5));
    assert_eq!(listing.entries[1].size, None);
    assert!(!listing.truncated);
}

#[test]
fn no_name_breaks_out_of_the_page() {
    let site = Site::new();
    let nasty: [&[u8]; 9] = [
        b"<script>alert(1)<",
        b"\"onmouseover=\"x",
        b"'single'",
        b"a&amp;b",
        b"100%.txt",
        b"what?.txt",
        b"#hash",
        b"javascript:alert(1)",
        b"\xff\xfe\n\x1b[2J",
    ];
    for name in nasty {
        fs::write(site.www.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let root = site.listing_root();
    let listing = directory(&root, "").list().unwrap();
    assert_eq!(listing.entries.len(), nasty.len());
    let page = listing.render(ListingFormat::Html, "/<b>\"path\"</b>/");
    let page = std::str::from_utf8(&page).unwrap();
    assert!(
        !page.contains("<script>") && !page.contains("<b>") && !page.contains('\x1b'),
        "{page}"
    );
    // Every attribute is the href that was written, and every href leads back to its file.
    let mut hrefs = Vec::new();
    for link in page.split("<a href=\"").skip(1) {
        let (href, rest) = link.split_once('"').unwrap();
        assert!(rest.starts_with('>'), "an attribute was added: {link}");
        hrefs.push(href);
    }
    assert_eq!(hrefs.len(), nasty.len(), "the root has no way up");
    for href in hrefs {
        let encoded = href.strip_prefix("./").unwrap();
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(encoded).collect();
        assert!(nasty.contains(&&decoded[..]), "{href}");
        let found = root.resolve(&decoded, false, Accepted::default(), later());
        assert!(matches!(found, Ok(Found::File(_))), "{href}: {found:?}");
    }
}

#[test]
fn json_holds_the_same() {
    let site = Site::new();
    site.write("d/q\"<.txt", "12345");
    site.write("d/sub/x", "x");
    set_modified(&site.www.join("d/q\"<.txt"), 1_700_000_000, 5);
    let listing = directory(&site.listing_root(), "d").list().unwrap();
    let json = listing.render(ListingFormat::Json, "/d/");
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["path"], "/d/");
    assert_eq!(json["truncated"], false);
    assert_eq!(json["entries"][0]["type"], "directory");
    assert_eq!(json["entries"][0]["href"], "./sub/");
    assert_eq!(json["entries"][1]["name"], "q\"<.txt");
    assert_eq!(json["entries"][1]["size"], 5);
    assert_eq!(json["entries"][1]["modified"], "2023-11-14T22:13:20Z");
    let page = listing.render(ListingFormat::Html, "/d/");
    let page = std::str::from_utf8(&page).unwrap();
    assert!(page.contains("href=\"../\"") && page.contains("2023-11-14 22:13 UTC"), "{page}");
}

#[test]
fn long_directories_are_cut_and_say_so() {
    let site = Site::new();
    for at in 0..25 {
        site.write(&format!("d/{at}"), "x");
    }
    let root = site.listing_root();
    let directory = directory(&root, "d");
    let listing = directory.read_entries(20).unwrap();
    assert_eq!((listing.entries.len(), listing.truncated), (20, true));
    let page = listing.render(ListingFormat::Html, "/d/");
    assert!(std::str::from_utf8(&page).unwrap().contains("Only 20 entries"));
    let whole = directory.read_entries(25).unwrap();
    assert_eq!((whole.entries.len(), whole.truncated), (25, false));
}

#[test]
fn accept_chooses_the_form() {
    use ListingFormat::{Html, Json};
    for (accept, expect) in [
        ("", Html),
        ("*/*", Html),
        ("text/html", Html),
        ("application/json", Json),
        ("APPLICATION/JSON", Json),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Html),
        ("application/json, text/plain, */*", Html),
        ("application/json, */*;q=0.5", Json),
        ("application/json;q=0.5, text/html", Html),
        ("application/*, text/html;q=0.1", Json),
        ("text/html;q=0, */*", Json),
        ("application/json;q=banana", Html),
        ("text/html; q=0.2 , application/json ; q=0.3", Json),
        (";;;,,,q=1", Html),
    ] {
        assert_eq!(ListingFormat::from_accept(accept.as_bytes()), expect, "{accept:?}");
    }
}
