//! The configurations in the README and the manual's pages parse. A page may show a part of a file
//! only: it is then put where it belongs. `configuration.md` has tests of its own, in `manual.rs`.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::fs;
use std::path::{Path, PathBuf};

use weir_config::{Errors, parse};

/// Where a part of a file may stand: it replaces `HERE`. Routes may name the upstream `app`.
const PLACES: [&str; 5] = [
    "HERE",
    "HERE
     site \"somewhere-else.example\" { listen \":1\"; route \"/*\" { respond \"\"; }; }",
    "upstream \"app\" { server \"http://127.0.0.1:1\"; }
     site \"*\" {
         listen \":1\"
         HERE
     }",
    "site \"*\" {
         listen \":1\"
         route \"/*\" {
             HERE
         }
     }",
    "guard { HERE\n}
     site \"*\" { listen \":1\"; route \"/*\" { respond \"\"; }; }",
];

#[test]
fn configurations_in_the_documents_parse() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        for (line, example) in examples(&text) {
            count += 1;
            if let Err(errors) = parses_somewhere(&example) {
                wrong.push(format!("{}:{line}:\n{errors}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 20, "only {count} configurations found");
}

#[test]
fn wrong_configurations_are_noticed() {
    let ok = |text: &str| parses_somewhere(text).is_ok();
    assert!(ok("cache { memory \"1GiB\"; }"));
    assert!(ok("route \"/*\" { proxy \"app\"; }"));
    assert!(ok("files \"/srv\" listing=#true"));
    assert!(ok("site \"*\" { listen \":1\"; route \"/*\" { respond \"\"; }\n}"));
    assert!(!ok("route \"/*\" { proxy \"nowhere\"; }"));
    assert!(!ok("cache { memry \"1GiB\"; }"));
    assert!(!ok("site \"*\" { listen \":1\"; }"));

    let text = "a\n  ```kdl\n  x\n    y\n  ```\n```text\nz\n```\n";
    assert_eq!(examples(text), [(2, "x\n  y".to_owned())]);
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let entries = fs::read_dir(root.join("docs/manual")).unwrap();
    pages.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| {
        path.extension().is_some_and(|extension| extension == "md")
            && !path.ends_with("configuration.md")
    }));
    pages.sort();
    pages
}

/// The `kdl` blocks of a page, with the numbers of their first lines; those in lists are indented.
fn examples(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if line.trim_start() != "```kdl" {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().map(|(_, line)| line);
        let block: Vec<&str> = block
            .take_while(|line| line.trim() != "```")
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        found.push((number, block.join("\n")));
    }
    found
}

/// The errors are those of the place where there are fewest, which is where it was meant for.
fn parses_somewhere(example: &str) -> Result<(), Errors> {
    let mut failures = Vec::new();
    for place in PLACES {
        match parse("example.kdl", &place.replace("HERE", example)) {
            Ok(_) => return Ok(()),
            Err(errors) => failures.push(errors),
        }
    }
    Err(failures.into_iter().min_by_key(Errors::len).unwrap())
}
