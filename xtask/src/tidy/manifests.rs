//! Checks of `Cargo.toml` files: dependencies are declared once, each with its reason, and every
//! crate is held to the workspace's lints. Reads the lines it needs, as this project writes them;
//! whether the file is TOML at all is for cargo to say.

use super::rust::UNSAFE_CRATES;
use super::{File, Problem};

/// The workspaces' manifests: the server's, and that of the example plugins, which are built for
/// another machine.
const ROOTS: &[&str] = &["plugins/Cargo.toml", "Cargo.toml"];

/// All checks of all manifests.
pub(super) fn check(files: &[File]) -> Vec<Problem> {
    let manifests = || files.iter().filter(|file| file.name() == "Cargo.toml");
    let is_root = |file: &&File| ROOTS.contains(&file.path.as_str());
    let mut problems: Vec<Problem> = manifests().filter(is_root).flat_map(check_reasons).collect();
    // The fuzz crate stands outside the workspaces, because it needs another compiler.
    for file in manifests().filter(|f| !is_root(f) && !f.path.starts_with("fuzz/")) {
        let folder = |root: &&&str| file.path.starts_with(root.trim_end_matches("Cargo.toml"));
        let root = ROOTS.iter().find(folder);
        let root = manifests().find(|manifest| root.is_some_and(|root| *root == manifest.path));
        problems.extend(check_inherited(file));
        problems.extend(check_lints(file, root.map_or("", |root| &root.text)));
    }
    problems
}

/// Lines of a table, with their numbers; comments and blank lines too.
fn table<'a>(text: &'a str, name: &str) -> Vec<(usize, &'a str)> {
    let header = format!("[{name}]");
    let lines = (1..).zip(text.lines());
    lines
        .skip_while(|(_, line)| line.trim() != header)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
        .collect()
}

/// In the root, the line before a dependency says why it is there.
fn check_reasons(root: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut previous = "";
    for (number, line) in table(&root.text, "workspace.dependencies") {
        let is_ours = line.starts_with("weir");
        if line.contains(" = ") && !line.starts_with('#') && !is_ours && !previous.starts_with('#')
        {
            problems.push(root.problem(number, "a dependency without a comment that says why"));
        }
        previous = line;
    }
    problems
}

/// In a crate, every dependency is taken from the root.
fn check_inherited(file: &File) -> Vec<Problem> {
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let lines = tables.iter().flat_map(|name| table(&file.text, name));
    let own = lines.filter(|(_, line)| {
        line.contains('=') && !line.starts_with('#') && !line.contains("workspace = true")
    });
    own.map(|(n, _)| file.problem(n, "declare it in the root manifest: `x.workspace = true`"))
        .collect()
}

/// A crate takes the workspace's lints as they are; one that may hold unsafe code repeats the rest.
fn check_lints(file: &File, root: &str) -> Option<Problem> {
    if table(&file.text, "lints").iter().any(|(_, line)| line.trim() == "workspace = true") {
        return None;
    }
    let folder = file.path.split('/').rev().nth(1);
    if !UNSAFE_CRATES.iter().any(|(name, _)| Some(*name) == folder) {
        return Some(file.problem(0, "needs `[lints]` with `workspace = true`"));
    }
    let missing = ["rust", "clippy"].iter().find_map(|tool| {
        let own = table(&file.text, &format!("lints.{tool}"));
        let shared = table(root, &format!("workspace.lints.{tool}"));
        shared.into_iter().map(|(_, line)| line).find(|line| {
            line.contains('=')
                && !line.starts_with("unsafe_code ")
                && !own.iter().any(|(_, own)| own == line)
        })
    })?;
    Some(file.problem(0, format!("lacks a lint of the workspace: `{missing}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]
weir-a = { path = \"crates/weir-a\" }
# Why.
one = \"1\"

[workspace.lints.rust]
unsafe_code = \"forbid\"
missing_docs = \"warn\"
";

    #[track_caller]
    fn expect(manifests: &[(&str, &str)], expect: &[(&str, usize)]) {
        let file =
            |(path, text): &(&str, &str)| File { path: path.to_string(), text: text.to_string() };
        let files: Vec<File> = manifests.iter().map(file).collect();
        let problems = check(&files);
        let found: Vec<_> = problems.iter().map(|p| (p.path.as_str(), p.line)).collect();
        assert_eq!(found, expect, "{problems:?}");
    }

    #[test]
    fn dependencies_have_a_reason() {
        expect(&[("Cargo.toml", ROOT)], &[]);
        let bad = ROOT.replace(
            "\n\n[workspace.l",
            "\ntwo = \"2\"\n\n# Tests.\n\nthree = \"3\"\n\n[workspace.l",
        );
        expect(&[("Cargo.toml", &bad)], &[("Cargo.toml", 5), ("Cargo.toml", 9)]);
    }

    #[test]
    fn dependencies_come_from_the_root() {
        let path = "crates/weir-a/Cargo.toml";
        let manifest =
            |line: &str| format!("[dependencies]\n{line}\n\n[lints]\nworkspace = true\n");
        expect(&[(path, &manifest("one.workspace = true"))], &[]);
        expect(&[(path, &manifest("one = { workspace = true, features = [\"x\"] }"))], &[]);
        expect(&[(path, &manifest("one = \"1\""))], &[(path, 2)]);
        let development = manifest("one = \"1\"").replace("[dep", "[dev-dep");
        expect(&[(path, &development)], &[(path, 2)]);
        expect(&[("fuzz/Cargo.toml", &manifest("one = \"1\""))], &[]);
        let plugin = "plugins/a/Cargo.toml";
        expect(&[(plugin, &manifest("one = \"1\""))], &[(plugin, 2)]);
        expect(&[("plugins/Cargo.toml", ROOT), (plugin, "[package]\n")], &[(plugin, 0)]);
        let bad = "[workspace.dependencies]\none = \"1\"\n";
        expect(&[("plugins/Cargo.toml", bad)], &[("plugins/Cargo.toml", 2)]);
    }

    #[test]
    fn crates_have_the_lints() {
        let plain = "crates/weir-http/Cargo.toml";
        expect(&[("Cargo.toml", ROOT), (plain, "[package]\n")], &[(plain, 0)]);
        expect(&[("Cargo.toml", ROOT), (plain, "[lints]\nworkspace = true\n")], &[]);
        let own = "[lints.rust]\nunsafe_code = \"allow\"\nmissing_docs = \"warn\"\n";
        expect(&[("Cargo.toml", ROOT), (plain, own)], &[(plain, 0)]);
        let low = "crates/weir-net/Cargo.toml";
        expect(&[("Cargo.toml", ROOT), (low, own)], &[]);
        expect(&[("Cargo.toml", ROOT), (low, "[lints.rust]\n")], &[(low, 0)]);
    }
}
