//! Nothing outside the root is ever opened.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::fs::OFlags;

use super::super::beneath::Method;
use super::*;

#[test]
fn symlinks_are_followed_inside_and_nowhere_else() {
    let site = Site::new();
    site.write("page.txt", "page");
    site.write("dir/inner.txt", "inner");
    symlink("page.txt", site.www.join("inside")).unwrap();
    symlink("../page.txt", site.www.join("dir/up")).unwrap();
    symlink("dir", site.www.join("linked")).unwrap();
    symlink("../secret.txt", site.www.join("parent")).unwrap();
    symlink("..", site.www.join("above")).unwrap();
    symlink(site.base.join("secret.txt"), site.www.join("absolute")).unwrap();
    symlink(site.www.join("page.txt"), site.www.join("absolute-inside")).unwrap();
    symlink("/proc/self/root", site.www.join("magic")).unwrap();
    symlink("loop", site.www.join("loop")).unwrap();
    symlink("nowhere", site.www.join("dangling")).unwrap();
    let root = site.root();
    for (path, expect) in [
        ("inside", "page"),
        ("dir/up", "page"),
        ("linked/inner.txt", "inner"),
        ("linked", "redirect"),
        ("parent", "not found"),
        ("above/secret.txt", "not found"),
        ("absolute", "not found"),
        ("absolute-inside", "not found"),
        ("magic/etc/passwd", "not found"),
        ("loop", "not found"),
        ("dangling", "not found"),
    ] {
        assert_eq!(outcome(&root, path), expect, "{path}");
    }
}

#[test]
fn a_directory_swapped_for_a_link_out_leads_nowhere() {
    let site = Site::new();
    site.write("dir/secret.txt", "public");
    let root = site.root();
    assert_eq!(outcome(&root, "dir/secret.txt"), "public");
    fs::rename(site.www.join("dir"), site.www.join("old")).unwrap();
    symlink("..", site.www.join("dir")).unwrap();
    assert_eq!(outcome(&root, "dir/secret.txt"), "not found");
}

/// An attacker with write access to the root swaps a directory and a link out of it as fast as it
/// can; every lookup meanwhile gives the public file or nothing.
#[test]
fn a_race_of_swaps_never_leaks() {
    let site = Site::new();
    site.write("dir/secret.txt", "public");
    symlink("..", site.www.join("link")).unwrap();
    let root = site.root();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (dir, link) = (site.www.join("dir"), site.www.join("link"));
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &dir, cwd, &link, exchange).unwrap();
            }
        });
        for _ in 0..5_000 {
            let found = root.resolve(b"dir/secret.txt", false, Accepted::default(), later());
            if let Ok(Found::File(file)) = found {
                assert_eq!(body(&file), b"public");
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn without_openat2_links_are_refused_and_files_served() {
    let site = Site::new();
    site.write("page.txt", "page");
    site.write("dir/inner.txt", "inner");
    symlink("page.txt", site.www.join("link")).unwrap();
    symlink("dir", site.www.join("linked")).unwrap();
    symlink("..", site.www.join("above")).unwrap();
    let directory = fs::File::open(&site.www).unwrap();
    let read = |path: &str| {
        let file = Method::Walk.open(directory.as_fd(), path.as_bytes(), OFlags::RDONLY)?;
        Ok::<_, rustix::io::Errno>(std::io::read_to_string(fs::File::from(file)).unwrap())
    };
    assert_eq!(read("page.txt").unwrap(), "page");
    assert_eq!(read("dir/inner.txt").unwrap(), "inner");
    for path in ["link", "linked/inner.txt", "above/secret.txt", "../secret.txt", "dir/../../x"] {
        assert!(read(path).is_err(), "{path}");
    }
    assert!(Method::Walk.open(directory.as_fd(), b"", OFlags::PATH).is_ok(), "the root itself");
}

/// Where an open descriptor really leads.
fn real_path(file: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

fn segment() -> impl Strategy<Value = Vec<u8>> {
    let known: [&[u8]; 12] = [
        b"..",
        b".",
        b"",
        b"dir",
        b"page.txt",
        b"above",
        b"absolute",
        b"secret.txt",
        b"linked",
        b"..\0",
        b"%2e%2e",
        b"magic",
    ];
    prop_oneof![
        4 => proptest::sample::select(known.to_vec()).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ]
}

#[test]
fn no_path_opens_anything_outside_the_root() {
    let site = Site::new();
    site.write("page.txt", "page");
    site.write("dir/page.txt", "inner");
    symlink("..", site.www.join("above")).unwrap();
    symlink("../..", site.www.join("dir/above")).unwrap();
    symlink(&site.base, site.www.join("absolute")).unwrap();
    symlink("dir", site.www.join("linked")).unwrap();
    symlink("/proc/self/cwd", site.www.join("magic")).unwrap();
    let root = site.listing_root();
    let directory = fs::File::open(&site.www).unwrap();
    proptest!(|(segments in proptest::collection::vec(segment(), 0..6), slash: bool)| {
        let path = segments.join(&b'/');
        if let Ok(Found::File(file)) = root.resolve(&path, slash, Accepted::default(), later()) {
            let real = real_path(file.file());
            prop_assert!(real.starts_with(&site.www), "{:?} opened {real:?}", path);
        }
        // Below the checks on names, each method must hold by itself.
        for method in [Method::Openat2, Method::Walk] {
            let text = std::ffi::OsStr::from_bytes(&path);
            if let Ok(file) = method.open(directory.as_fd(), &path, OFlags::PATH) {
                let real = real_path(&file);
                prop_assert!(real.starts_with(&site.www), "{method:?} {text:?} opened {real:?}");
            }
        }
    });
}
