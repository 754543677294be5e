//! Every `weir …` command in the documents is one that the binary knows, options included.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn commands_in_the_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut helps = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in documents(&root) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, command) in commands(&text) {
            count += 1;
            if let Err(reason) = check(&command, &mut |name| help(&mut helps, name)) {
                wrong.push(format!("{}:{number}: `{command}`: {reason}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 5, "only {count} commands found");
}

#[test]
fn commands_are_found_and_wrong_ones_noticed() {
    let text = "Use `weir check FILE`, not `weird`.\n```sh\n$ weir run --watch x.kdl  # now\n\
                sudo weir stop\ncargo run --release -- demo\nweir purge \\\n    --all\n```\n\
                weir is prose\n";
    let found: Vec<String> = commands(text).into_iter().map(|(_, command)| command).collect();
    assert_eq!(found, ["check FILE", "run --watch x.kdl", "stop", "demo", "purge  --all"]);

    let help = |name: &str| match name {
        "run" => Some("Usage\n  -w, --watch  Reload".to_owned()),
        "plugin deploy" => Some("Usage\n  --route".to_owned()),
        _ => None,
    };
    let ok = |command| check(command, &mut |name| help(name)).is_ok();
    assert!(ok("run x.kdl") && ok("run --watch") && ok("run --watch=1") && ok("--version"));
    assert!(!ok("walk x.kdl") && !ok("run --wat") && !ok("run --watches"));
    assert!(ok("plugin deploy a b --route /*") && !ok("plugin deploy a b --watch"));
    assert!(!ok("plugin walk") && ok("plugin"));
}

/// The Markdown files of the root, of `docs` and of the example plugins.
fn documents(root: &Path) -> Vec<PathBuf> {
    /// What tools have put there.
    const NOT_OURS: [&str; 2] = ["node_modules", "target"];
    let mut found = Vec::new();
    let mut folders =
        vec![(root.to_owned(), false), (root.join("docs"), true), (root.join("plugins"), true)];
    while let Some((folder, descend)) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if NOT_OURS.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            if path.is_dir() && descend {
                folders.push((path, true));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What follows `weir` in code blocks and code spans, with line numbers.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_block = false;
    // A command may go on in the next line.
    let text = text.replace("\\\n   ", "");
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            found.extend(command(line).map(|command| (number, command)));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(command).map(|command| (number, command)));
        }
    }
    found
}

fn command(code: &str) -> Option<String> {
    const BEFORE: &[&str] = &["weir ", "cargo run --release -- ", "cargo run -- "];
    let code = code.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
    let rest = BEFORE.iter().find_map(|start| code.strip_prefix(start))?;
    // A comment, a pipe, another command.
    let end = rest.find(['#', '|', '&', ';', '>']).unwrap_or(rest.len());
    Some(rest[..end].trim().to_owned())
}

/// Whether `help` knows the subcommand and it knows the options.
fn check(command: &str, help: &mut impl FnMut(&str) -> Option<String>) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let mut name = words.next().unwrap_or_default().to_owned();
    // Options of no command, and the first line of `weir status`, which names the version.
    let is_version = name.starts_with(|c: char| c.is_ascii_digit());
    if name.starts_with('-') || is_version || name == "help" || name == "…" {
        return Ok(());
    }
    if matches!(&*name, "plugin" | "guard" | "ca") {
        match words.next() {
            None | Some("…") => return Ok(()),
            Some(part) => name = format!("{name} {part}"),
        }
    }
    let text = help(&name).ok_or_else(|| format!("no command “{name}”"))?;
    let known = |option: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == option)
    };
    let option = |word: &str| word.trim_matches(['[', ']']).split('=').next().map(str::to_owned);
    let options = words.filter_map(option).filter(|word| word.starts_with("--"));
    match options.into_iter().find(|option| !known(option)) {
        Some(option) => Err(format!("no option “{option}”")),
        None => Ok(()),
    }
}

/// What `weir NAME --help` prints; `None` where there is no such command.
fn help(known: &mut BTreeMap<String, Option<String>>, name: &str) -> Option<String> {
    let ask = || {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = weir.args(name.split(' ')).arg("--help").output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    known.entry(name.to_owned()).or_insert_with(ask).clone()
}
