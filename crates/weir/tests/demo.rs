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
