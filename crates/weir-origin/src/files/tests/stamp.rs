//! What a stamp notices, and when.

use std::io::Write;
use std::os::unix::fs::symlink;

use super::super::{RACY_WINDOW, RESOLVE_INTERVAL, Stamp};
use super::*;

fn open_write(path: &Path) -> fs::File {
    fs::File::options().write(true).open(path).unwrap()
}

/// What stamps notice at once, whatever the clock.
#[test]
fn edits_are_noticed_at_once() {
    type Edit = fn(&Path);
    let edits: [(&str, Edit); 8] = [
        ("edit in place", |path| open_write(path).write_all(b"edit").unwrap()),
        ("same bytes again", |path| fs::write(path, "text").unwrap()),
        ("truncation", |path| open_write(path).set_len(1).unwrap()),
        ("append", |path| {
            fs::File::options().append(true).open(path).unwrap().write_all(b"more").unwrap();
        }),
        ("replacement by rename", |path| {
            let next = path.with_extension("next");
            fs::write(&next, "text").unwrap();
            fs::rename(next, path).unwrap();
        }),
        ("unlinking", |path| fs::remove_file(path).unwrap()),
        ("a time set back", |path| set_modified(path, 1_000_000_000, 0)),
        ("a change of mode", |path| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }),
    ];
    for (name, edit) in edits {
        let site = Site::new();
        let path = site.write("f.txt", "text");
        wait_for_next_tick(&site);
        let stamp = open(&site.root(), "f.txt").stamp();
        assert!(stamp.is_current(later()), "{name}: current before");
        edit(&path);
        assert!(!stamp.is_current(later()), "{name}: noticed");
    }
}

/// Until the kernel gives new files a later time than those that exist.
fn wait_for_next_tick(site: &Site) {
    let probe = site.base.join("tick");
    let time = || {
        fs::write(&probe, "").unwrap();
        fs::metadata(&probe).unwrap().modified().unwrap()
    };
    let start = time();
    for _ in 0..1000 {
        if time() > start {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the clock of {} stands still", probe.display());
}

#[test]
fn a_file_read_right_after_its_change_is_never_current() {
    let site = Site::new();
    let path = site.write("f.txt", "text");
    let changed = {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(&path).unwrap();
        let since = Duration::new(metadata.ctime() as u64, metadata.ctime_nsec() as u32);
        SystemTime::UNIX_EPOCH + since
    };
    let root = site.root();
    let stamp_found_at = |found_at: SystemTime| -> Stamp {
        match root.resolve(b"f.txt", false, Accepted::default(), found_at) {
            Ok(Found::File(file)) => file.stamp(),
            other => panic!("{other:?}"),
        }
    };
    let hour = Duration::from_secs(3600);
    for (found_at, expect) in [
        (changed, false),
        (changed + RACY_WINDOW / 2, false),
        (changed + RACY_WINDOW, true),
        (changed + hour, true),
        // The change is ahead of the clock, by less than the window or by far.
        (changed - RACY_WINDOW / 2, false),
        (changed - hour, true),
    ] {
        let stamp = stamp_found_at(found_at);
        assert_eq!(stamp.is_current(found_at), expect, "{:?}", found_at.duration_since(changed));
        // A later question does not heal it; a later read does.
        assert_eq!(stamp.is_current(found_at + 2 * RACY_WINDOW), expect);
    }
}

/// Asks a stamp just before and just after its path is due to be looked up again.
fn check_path_change(name: &str, site: &Site, path: &str, accepted: &[Coding], change: &dyn Fn()) {
    let found_at = later();
    let root = site.root();
    let Ok(Found::File(file)) =
        root.resolve(path.as_bytes(), false, Accepted::new(accepted), found_at)
    else {
        panic!("{name}: expected a file");
    };
    let stamp = file.stamp();
    let due = found_at + RESOLVE_INTERVAL;
    assert!(stamp.is_current(due), "{name}: unchanged");
    change();
    let again = due + RESOLVE_INTERVAL;
    assert!(
        stamp.is_current(again - Duration::from_millis(1)),
        "{name}: no lookup before its time"
    );
    assert!(!stamp.is_current(again), "{name}: noticed");
    assert!(!stamp.is_current(again), "{name}: for good");
}

#[test]
fn a_swapped_path_is_noticed_in_time() {
    let site = Site::new();
    site.write("one/f.txt", "one");
    site.write("two/f.txt", "two");
    symlink("one", site.www.join("current")).unwrap();
    check_path_change("symlink", &site, "current/f.txt", &[], &|| {
        symlink("two", site.www.join("next")).unwrap();
        fs::rename(site.www.join("next"), site.www.join("current")).unwrap();
    });
    check_path_change("directory", &site, "one/f.txt", &[], &|| {
        fs::rename(site.www.join("one"), site.www.join("old")).unwrap();
        fs::rename(site.www.join("two"), site.www.join("one")).unwrap();
    });
    check_path_change("root", &site, "one/f.txt", &[], &|| {
        fs::rename(&site.www, site.base.join("away")).unwrap();
    });
}

#[test]
fn another_choice_is_noticed_in_time() {
    let site = Site::new();
    let original = site.write("a.css", "text");
    check_path_change("sibling appears", &site, "a.css", &[], &|| {
        site.write("a.css.br", "brotli");
    });
    check_path_change("original edited", &site, "a.css", &[Coding::Brotli], &|| {
        set_modified(&original, 4_000_000_000, 0);
    });
    site.write("index.txt", "second");
    check_path_change("better index", &site, "", &[], &|| {
        site.write("index.html", "first");
    });
}

#[test]
fn a_stamp_without_a_descriptor_looks_the_path_up_every_time() {
    let site = Site::new();
    let path = site.write("f.txt", "text");
    let file = open(&site.root(), "f.txt");
    let stamp = Stamp::holding(&file, 0);
    assert!(stamp.is_current(later()));
    // Nothing but a lookup can tell that the directory was swapped.
    fs::rename(path.parent().unwrap(), site.base.join("away")).unwrap();
    fs::create_dir(&site.www).unwrap();
    site.write("f.txt", "text");
    assert!(!stamp.is_current(later() + RESOLVE_INTERVAL));
}

/// The hit path's one system call, against the lookup it saves. Prints; asserts only the ratio.
#[test]
fn a_check_costs_less_than_a_lookup() {
    let site = Site::new();
    site.write("a/b/c/f.txt", "text");
    let root = site.root();
    let now = later();
    let Ok(Found::File(file)) = root.resolve(b"a/b/c/f.txt", false, Accepted::default(), now)
    else {
        panic!("expected a file");
    };
    let stamp = file.stamp();
    let time = |work: &dyn Fn()| {
        let start = std::time::Instant::now();
        (0..20_000).for_each(|_| work());
        start.elapsed() / 20_000
    };
    let check = time(&|| assert!(stamp.is_current(now)));
    let lookup = time(&|| drop(root.resolve(b"a/b/c/f.txt", false, Accepted::default(), now)));
    println!("check {check:?}, lookup {lookup:?}");
    assert!(check * 2 < lookup, "check {check:?}, lookup {lookup:?}");
}
