//! A file that is edited, replaced or deleted is what the very next request gets, cached or not.

use std::io::Write;

use super::{FILES, Site};
use crate::common::client::Client;

#[test]
fn every_change_shows_in_the_next_request() {
    let site = Site::start(FILES, &[("a.txt", b"first")]);
    let mut client = Client::connect(site.address).unwrap();
    let mut get = |target: &str| {
        let response = client.ask("GET", target, &[]).unwrap();
        (response.status, String::from_utf8(response.body).unwrap())
    };
    let path = site.path("a.txt");
    for round in 0..30 {
        let ok = |text: &str| (200, text.to_owned());
        // Of the same length each time: size must not be what tells.
        let edited = format!("edited in place {round:02}");
        std::fs::write(&path, &edited).unwrap();
        assert_eq!(get("/a.txt"), ok(&edited), "round {round}");
        assert_eq!(get("/a.txt"), ok(&edited), "round {round}");
        if round % 3 == 0 {
            // Old enough to be stored for good, so that the next round begins with a hit.
            std::thread::sleep(std::time::Duration::from_millis(60));
            assert_eq!(get("/a.txt"), ok(&edited), "round {round}");
            assert_eq!(get("/a.txt"), ok(&edited), "round {round}");
        }

        let replaced = format!("renamed over it {round:02}");
        std::fs::write(site.path("new"), &replaced).unwrap();
        std::fs::rename(site.path("new"), &path).unwrap();
        assert_eq!(get("/a.txt"), ok(&replaced), "round {round}");

        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b" and more").unwrap();
        assert_eq!(get("/a.txt"), ok(&format!("{replaced} and more")), "round {round}");
        file.set_len(4).unwrap();
        assert_eq!(get("/a.txt"), ok("rena"), "round {round}");

        std::fs::remove_file(&path).unwrap();
        assert_eq!(get("/a.txt").0, 404, "round {round}");
    }
}

#[test]
fn a_hit_notices_a_change_that_keeps_size_and_time() {
    let site = Site::start(FILES, &[("a.txt", b"one")]);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let set_time = || std::fs::File::open(site.path("a.txt")).unwrap().set_modified(time).unwrap();
    set_time();
    let hit = crate::common::wait_for(std::time::Duration::from_secs(5), || {
        let response = site.get("/a.txt");
        (response.header("cache-status") == Some("weir; hit")).then_some(())
    });
    hit.expect("the file becomes a hit");
    std::fs::write(site.path("a.txt"), "two").unwrap();
    set_time();
    assert_eq!(site.get("/a.txt").body, b"two");
}

#[test]
fn index_files_and_siblings_that_come_and_go_are_noticed_within_a_second() {
    let site = Site::start(FILES, &[("a.txt", b"identity"), ("index.html", b"home")]);
    let patience = std::time::Duration::from_secs(2);
    let gzip = [("Accept-Encoding", "gzip")];
    assert_eq!(site.ask("GET", "/a.txt", &gzip).body, b"identity");
    std::fs::write(site.path("a.txt.gz"), "GZIP").unwrap();
    let noticed = crate::common::wait_for(patience, || {
        (site.ask("GET", "/a.txt", &gzip).body == b"GZIP").then_some(())
    });
    assert!(noticed.is_some(), "the new sibling");
    // An original that is newer than its sibling makes that last year's text.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::write(site.path("a.txt"), "identity 2").unwrap();
    std::fs::File::open(site.path("a.txt")).unwrap().set_modified(later).unwrap();
    let noticed = crate::common::wait_for(patience, || {
        (site.ask("GET", "/a.txt", &gzip).body == b"identity 2").then_some(())
    });
    assert!(noticed.is_some(), "the outdated sibling");

    assert_eq!(site.get("/").body, b"home");
    std::fs::remove_file(site.path("index.html")).unwrap();
    assert_eq!(site.get("/").status, 404);
    std::fs::write(site.path("index.html"), "home again").unwrap();
    assert_eq!(site.get("/").body, b"home again");
}
