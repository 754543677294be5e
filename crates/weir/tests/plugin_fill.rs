//! Plugins at fill on files: the transcoder runs once for a file, not once for a request.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use common::client::{Response, ask};
use common::free_address;
use common::server::Weir;

const GRAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/built/gray-rust.wasm");

/// A picture of one colour.
fn picture(width: usize, height: usize, rgb: [u8; 3]) -> Vec<u8> {
    let mut ppm = format!("P6\n{width} {height}\n255\n").into_bytes();
    ppm.extend(rgb.into_iter().cycle().take(width * height * 3));
    ppm
}

fn start(files: &[(&str, Vec<u8>)]) -> (Weir, SocketAddr) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("www")).unwrap();
    for (name, content) in files {
        std::fs::write(directory.path().join("www").join(name), content).unwrap();
    }
    // Files that have just changed are not stored.
    std::thread::sleep(Duration::from_millis(120));
    let address = free_address();
    let config = format!(
        "server {{ admin \"off\"; workers 1 }}\n\
         plugin \"gray\" {{ source {GRAY:?}; on-failure \"fail\" }}\n\
         site \"*\" {{ listen \"{address}\"\n\
         route \"/*\" {{ files \"www\"; use \"gray\" at=\"fill\" }} }}"
    );
    (Weir::run_in(directory, &config, &[address]), address)
}

fn get(address: SocketAddr, path: &str) -> Response {
    ask(address, "GET", path, &[])
}

fn cache_status(response: &Response) -> &str {
    response.header("cache-status").unwrap_or_default()
}

fn change(directory: &Path, name: &str, content: &[u8]) {
    std::fs::write(directory.join("www").join(name), content).unwrap();
    std::thread::sleep(Duration::from_millis(120));
}

#[test]
fn a_file_is_transcoded_once_and_again_when_it_changes() {
    let (weir, address) = start(&[("a.ppm", picture(400, 300, [255, 255, 255]))]);
    let first = get(address, "/a.ppm");
    assert_eq!(first.status, 200);
    assert!(first.body.starts_with(b"P5\n400 300\n255\n"), "{:?}", &first.body[..20]);
    assert!(first.body.ends_with(&[255; 100]));
    assert_eq!(first.body.len(), b"P5\n400 300\n255\n".len() + 400 * 300);
    assert!(cache_status(&first).contains("stored"), "{}", cache_status(&first));
    let second = get(address, "/a.ppm");
    assert!(cache_status(&second).contains("hit"), "{}", cache_status(&second));
    assert_eq!(second.body, first.body);
    change(weir.directory(), "a.ppm", &picture(40, 30, [0, 0, 0]));
    let third = get(address, "/a.ppm");
    assert!(third.body.starts_with(b"P5\n40 30\n255\n"));
    assert!(third.body.ends_with(&[0; 100]));
}

#[test]
fn what_is_stored_has_ranges_and_conditions() {
    let (_weir, address) = start(&[("a.ppm", picture(400, 300, [10, 20, 30]))]);
    let whole = get(address, "/a.ppm");
    let part = ask(address, "GET", "/a.ppm", &[("Range", "bytes=0-1")]);
    assert_eq!((part.status, &part.body[..]), (206, &b"P5"[..]));
    let tag = whole.header("etag").unwrap().to_owned();
    assert_eq!(ask(address, "GET", "/a.ppm", &[("If-None-Match", &tag)]).status, 304);
    // The file's date says nothing of what another version of the plugin would make of it.
    assert_eq!(whole.header("last-modified"), None);
    let date = "Fri, 31 Dec 2100 00:00:00 GMT";
    assert_eq!(ask(address, "GET", "/a.ppm", &[("If-Modified-Since", date)]).status, 200);
}

#[test]
fn other_files_and_directories_are_as_they_are() {
    let (_weir, address) = start(&[("a.txt", b"P7 no picture".to_vec())]);
    assert_eq!(get(address, "/a.txt").body, b"P7 no picture");
    assert_eq!(get(address, "/nothing").status, 404);
}
