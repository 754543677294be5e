//! `docs/manual/configuration.md` is true: its examples parse, and its second part is the
//! reference made from the key table.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::fs;
use std::path::PathBuf;

use weir_config::{parse, reference};

/// What stands before the reference in the page.
const MARK: &str = "<!-- Below: made from the key table by \
                    `UPDATE_EXPECT=1 cargo test -p weir-config --test manual`. -->\n";

fn page() -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    (path, text)
}

#[test]
fn the_reference_is_up_to_date() {
    let (path, text) = page();
    let (before, after) = text.split_once(MARK).expect("the page has the mark");
    let expected = format!("\n{}\n", reference().trim_end());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, format!("{before}{MARK}{expected}")).unwrap();
        return;
    }
    assert!(
        after == expected,
        "the reference in {} is out of date; refresh it by\n    \
         UPDATE_EXPECT=1 cargo test -p weir-config --test manual",
        path.display()
    );
}

#[test]
fn the_examples_of_the_introduction_parse() {
    let (_, text) = page();
    let (introduction, _) = text.split_once(MARK).unwrap();
    let examples: Vec<&str> = introduction
        .split("```kdl\n")
        .skip(1)
        .map(|rest| rest.split_once("```").unwrap().0)
        .collect();
    assert!(examples.len() >= 2);
    for example in examples {
        if let Err(errors) = parse("example.kdl", example) {
            panic!("{errors}");
        }
    }
}

/// The page shows an error; it is the one that its configuration gets.
#[test]
fn the_error_in_the_introduction_is_what_weir_says() {
    let (_, text) = page();
    let wrong = "site \"shop.example\" {\n    lisen \":80\"\n    \
                 route \"/*\" { files \"/srv/shop\"; }\n}\n";
    let error = parse("weir.kdl", wrong).unwrap_err().to_string();
    assert!(text.contains(&format!("```text\n{error}\n```")), "{error}");
}
