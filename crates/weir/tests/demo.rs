//! `weir demo`: the plugin that it deploys makes a picture grey, and the commands that it prints to
//! take it out and put it back do so; the crowd that it sends to itself shows what Guard does.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;

use common::server::{Weir, command};
use common::{client, free_address};
use tempfile::TempDir;

const GRAY: &str = "/gray/landscape-480.ppm";

#[test]
fn the_demo_deploys_a_plugin_and_shows_before_and_after() {
    let (front, admin) = (free_address(), free_address());
    let (listen, admin) = (front.to_string(), admin.to_string());
    let arguments = ["demo", "--listen", &listen, "--admin", &admin];
    let weir = Weir::start(TempDir::new().unwrap(), &arguments, &[front]);
    weir.wait_for_log("Ctrl-C ends it.");
    let told = weir.log();
    assert!(told.contains("before    432015 bytes  image/x-portable-pixmap\n"), "{told}");
    assert!(told.contains("after     144015 bytes  image/x-portable-graymap\n"), "{told}");

    let colour = picture(front, "/pictures/landscape-480.ppm");
    assert_eq!(colour.0, "image/x-portable-pixmap");
    let gray = picture(front, GRAY);
    assert_eq!((&*gray.0, gray.1.len()), ("image/x-portable-graymap", 144_015));

    // As a browser asks that reloads: the origin is asked again, whose validators are those of the
    // picture in colour.
    let again = client::ask(front, "GET", GRAY, &[("Cache-Control", "no-cache")]);
    assert_eq!((again.status, again.body == gray.1), (200, true), "{:?}", again.headers);

    // The commands as they are printed, on what the demo itself serves.
    let module = client::ask(front, "GET", "/gray.wasm", &[]).body;
    std::fs::write(weir.directory().join("gray.wasm"), &module).unwrap();
    let mut seen = Vec::new();
    for command in plugin_commands(&told) {
        run(weir.directory(), &command);
        seen.push(picture(front, GRAY).1.len());
    }
    assert_eq!(seen, [colour.1.len(), gray.1.len(), gray.1.len()], "{told}");
}

/// Whatever the machine's speed: with Guard the application is never asked more than it works on.
#[test]
fn a_crowd_comes_twice_and_leaves() {
    let (front, admin) = (free_address(), free_address());
    let (listen, admin) = (front.to_string(), admin.to_string());
    let arguments = ["demo", "--listen", &listen, "--admin", &admin];
    let weir = Weir::start(TempDir::new().unwrap(), &arguments, &[front]);
    weir.wait_for_log("Ctrl-C ends it.");
    assert!(weir.log().contains(&format!("http://{front}/crowd/run\n")), "{}", weir.log());

    let run = || client::ask(front, "POST", "/crowd/run?seconds=2", &[("Content-Length", "0")]);
    let mut answers = std::thread::scope(|scope| {
        [scope.spawn(run), scope.spawn(run)].map(|asked| asked.join().unwrap())
    });
    answers.sort_by_key(|answer| answer.status);
    let [report, other] = answers;
    assert_eq!((report.status, other.status), (200, 409), "one at a time");
    let report = String::from_utf8(report.body).unwrap();
    assert!(report.contains("\nwithout Guard: /sale/unguarded\n"), "{report}");
    assert!(report.contains("\nwith Guard: /sale/guarded\n"), "{report}");
    let last = report.lines().find(|line| line.starts_with("at the application")).unwrap();
    let most: Vec<u32> = last.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [without, with] = most[..] else { panic!("{report}") };
    assert!(without > 8 && (1..=8).contains(&with), "{report}");
}

/// Each claim of the page on adaptation, by the figures that it shows.
#[test]
fn what_is_adapted_is_smaller_and_without_ads() {
    let (front, admin) = (free_address(), free_address());
    let (listen, admin) = (front.to_string(), admin.to_string());
    let arguments = ["demo", "--listen", &listen, "--admin", &admin];
    let weir = Weir::start(TempDir::new().unwrap(), &arguments, &[front]);
    weir.wait_for_log("Ctrl-C ends it.");
    assert!(weir.log().contains(&format!("http://{front}/adapt/figures\n")), "{}", weir.log());

    let told = client::ask(front, "GET", "/adapt/figures", &[]).body;
    let told = String::from_utf8(told).unwrap();
    let figure = |name: &str| -> (usize, String) {
        let line = told.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        let mut words = line.split_whitespace().skip(1);
        let bytes = words.next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"));
        (bytes, words.skip(1).collect::<Vec<_>>().join(" "))
    };
    for format in ["jpeg", "webp", "avif"] {
        let sizes = ["320", "640", "1200"].map(|width| {
            let (bytes, word) = figure(&format!("{format}-{width}"));
            assert!(word.starts_with(format) && word.contains(&format!(";{width}x")), "{told}");
            bytes
        });
        assert!(sizes.is_sorted() && sizes[2] < figure("picture").0, "{told}");
    }
    assert_eq!(figure("picture").1, "-");
    for name in ["save-data", "quality-40", "grey"] {
        let (bytes, word) = figure(name);
        assert!(word.starts_with("webp;") && bytes < figure("webp-640").0, "{name}: {told}");
    }
    let original = figure("identity").0;
    for coding in ["gzip", "zstd", "br"] {
        let [quick, strong] =
            ["quick", "strong"].map(|strength| figure(&format!("{coding}-{strength}")));
        assert!(quick.1.starts_with(coding) && strong.1.starts_with(coding), "{told}");
        assert!(strong.0 < quick.0 && quick.0 < original / 2, "{told}");
    }
    let changed = figure("page-changed").1;
    assert!(changed.starts_with("html;") && changed.contains("hidden=1"), "{told}");
    assert_eq!(figure("ad-blocked").1, "ads;blocked");
    assert_eq!(figure("script-blocked").1, "ads;blocked");

    let [before, after] = ["/paper/", "/clean/"].map(|path| {
        let answer = client::ask(front, "GET", path, &[]);
        assert!(answer.header("content-security-policy").unwrap().contains("'nonce-of-the-demo'"));
        String::from_utf8(answer.body).unwrap()
    });
    assert!(before.contains("class=\"advert\"") && before.contains("//old.example/"));
    for gone in ["advert", "banner.svg", "old.example"] {
        assert!(!after.contains(gone), "{gone}: {after}");
    }
    let script = "<script nonce=\"of-the-demo\" src=\"note.js\"></script>";
    for there in [script, "loading=\"lazy\"", "river.jpg?width=320 320w"] {
        assert!(!before.contains(there) && after.contains(there), "{there}: {after}");
    }
    let candidate = client::ask(front, "GET", "/clean/river.jpg?width=320", &[]);
    assert_eq!(candidate.status, 200);
    // The file in memory is there for a reload, too.
    run(weir.directory(), &["reload", "--admin", &admin].map(str::to_owned));
    let blocked = client::ask(front, "GET", "/clean/ads/count.js", &[("Sec-Fetch-Dest", "script")]);
    assert_eq!(blocked.header("weir-adapt"), Some("ads;blocked"));
}

/// The `… plugin …` commands of the banner, without the program's name.
fn plugin_commands(banner: &str) -> Vec<Vec<String>> {
    let joined = banner.replace("\\\n", " ");
    let commands = joined.lines().filter_map(|line| {
        let (_, rest) = line.trim().split_once(" plugin ")?;
        let words = rest.split_whitespace().map(|word| word.trim_matches('\'').to_owned());
        line.contains(" --admin ")
            .then(|| std::iter::once("plugin".to_owned()).chain(words).collect())
    });
    commands.collect()
}

fn run(directory: &std::path::Path, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = command(directory, &words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn picture(front: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let answer = client::ask(front, "GET", path, &[]);
    assert_eq!(answer.status, 200, "{path}");
    (answer.header("content-type").unwrap().to_owned(), answer.body)
}
