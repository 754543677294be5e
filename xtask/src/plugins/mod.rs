//! `cargo xtask plugins`: makes the modules in `plugins/built/`, or says whether those there are
//! what the sources make. Which plugins there are is in `list`, how each is built in `build`.

mod build;
mod list;
pub(crate) mod rustc;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use list::{PLUGINS, Plugin};
use tools::Tools;

/// Which tools made the modules, beside them.
const VERSIONS_FILE: &str = "TOOLS";

/// Runs the command: `--check` and names of plugins, in any order.
///
/// # Errors
/// What is missing, what failed, or which modules differ.
pub(crate) fn run(arguments: &[String]) -> Result<String, String> {
    let (options, names): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.starts_with('-'));
    if let Some(option) = options.iter().find(|option| **option != "--check") {
        return Err(format!("unknown option “{option}”; there is only --check"));
    }
    let plugins = select(&names)?;
    let folder = folder()?;
    let tools = Tools::find(&plugins, &folder);
    if !tools.missing.is_empty() {
        return Err(format!("missing:\n  {}", tools.missing.join("\n  ")));
    }
    let built = folder.join("built");
    if options.is_empty() {
        build::build(&plugins, &tools, &folder, &built)?;
        let versions = built.join(VERSIONS_FILE);
        let text = merged(&fs::read_to_string(&versions).unwrap_or_default(), &tools.versions);
        fs::write(&versions, text).map_err(|e| format!("{}: {e}", versions.display()))?;
        return Ok(plugins.iter().map(|plugin| line(plugin, &built)).collect());
    }
    let fresh = folder.join("target/check");
    build::build(&plugins, &tools, &folder, &fresh)?;
    compare(&plugins, &built, &fresh, &tools.versions)
}

/// The plugins of these names; all where there are none.
fn select(names: &[&String]) -> Result<Vec<&'static Plugin>, String> {
    if names.is_empty() {
        return Ok(PLUGINS.iter().collect());
    }
    let find = |name: &&String| {
        let known = || PLUGINS.iter().map(|plugin| plugin.name).collect::<Vec<_>>().join(", ");
        PLUGINS
            .iter()
            .find(|plugin| plugin.name == **name)
            .ok_or_else(|| format!("there is no plugin “{name}”; there are {}", known()))
    };
    names.iter().map(find).collect()
}

fn folder() -> Result<PathBuf, String> {
    let folder = crate::root().join("plugins");
    folder.canonicalize().map_err(|e| format!("{}: {e}", folder.display()))
}

fn line(plugin: &Plugin, built: &Path) -> String {
    let size = fs::metadata(module(plugin, built)).map_or(0, |data| data.len());
    let note = if plugin.is_committed { "" } else { ", not under version control" };
    format!("{:16} {size} bytes{note}\n", plugin.name)
}

fn module(plugin: &Plugin, folder: &Path) -> PathBuf {
    folder.join(plugin.name).with_extension("wasm")
}

/// Compares the modules under version control with those just made.
fn compare(
    plugins: &[&Plugin],
    built: &Path,
    fresh: &Path,
    versions: &BTreeMap<&str, String>,
) -> Result<String, String> {
    let mut report = String::new();
    let mut differ = 0;
    for plugin in plugins {
        let read = |folder| fs::read(module(plugin, folder)).ok();
        let verdict = match (read(built), read(fresh)) {
            _ if !plugin.is_committed => "builds; not under version control",
            (Some(old), Some(new)) if old == new => "the same",
            (None, _) => "MISSING",
            _ => "DIFFERS",
        };
        differ += usize::from(matches!(verdict, "MISSING" | "DIFFERS"));
        report += &format!("{:16} {verdict}\n", plugin.name);
    }
    if differ == 0 {
        return Ok(report);
    }
    let recorded = fs::read_to_string(built.join(VERSIONS_FILE)).unwrap_or_default();
    for (tool, version) in versions {
        let was = recorded.lines().find_map(|line| line.strip_prefix(&format!("{tool}: ")));
        if was != Some(version.as_str()) {
            report += &format!("made with {}, now {version}\n", was.unwrap_or("unknown tools"));
        }
    }
    Err(format!("{report}{differ} of {} are not what the sources make", plugins.len()))
}

/// `old` with the tools just used in place of what it says of them.
fn merged(old: &str, versions: &BTreeMap<&str, String>) -> String {
    let old = old.lines().filter_map(|line| line.split_once(": "));
    let mut all: BTreeMap<&str, &str> = old.collect();
    all.extend(versions.iter().map(|(tool, version)| (*tool, version.as_str())));
    all.iter().map(|(tool, version)| format!("{tool}: {version}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::list::Source;
    use super::*;

    /// Bytes of a module under version control, at most: every change stays in the history.
    const MODULE_BYTES_MAX: usize = 2 << 20;

    #[test]
    fn every_plugin_has_its_folder_and_every_folder_its_plugin() {
        let folder = folder().unwrap();
        for plugin in PLUGINS {
            let has = |file: &str| folder.join(plugin.name).join(file).is_file();
            assert!(has("README.md"), "{} has no README.md", plugin.name);
            let source = match plugin.source {
                Source::Rust => "Cargo.toml",
                Source::C(file) => file,
                Source::Go => "go.mod",
                Source::AssemblyScript => "package-lock.json",
            };
            assert!(has(source), "{} has no {source}", plugin.name);
        }
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_plugin = entry.path().join("README.md").is_file();
            let is_known = PLUGINS.iter().any(|plugin| plugin.name == name);
            assert!(!is_plugin || is_known, "plugins/{name} is not in the list");
        }
    }

    #[test]
    fn modules_under_version_control_are_there_and_small() {
        let built = folder().unwrap().join("built");
        for plugin in PLUGINS.iter().filter(|plugin| plugin.is_committed) {
            let bytes = fs::read(module(plugin, &built));
            let bytes = bytes.unwrap_or_else(|e| panic!("{}: {e}", plugin.name));
            assert!(bytes.starts_with(b"\0asm\x01\0\0\0"), "{} is no module", plugin.name);
            assert!(bytes.len() <= MODULE_BYTES_MAX, "{}: {} bytes", plugin.name, bytes.len());
            // A path of the machine that built it.
            for part in ["/.cargo/", "/home/", concat!("/ro", "ot/")] {
                let is_part = |window: &[u8]| window == part.as_bytes();
                assert!(!bytes.windows(part.len()).any(is_part), "{}: {part}", plugin.name);
            }
        }
    }

    #[test]
    fn plugins_are_chosen_by_name() {
        let names = |names: &[&str]| -> Result<Vec<&str>, String> {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let plugins = select(&names.iter().collect::<Vec<_>>())?;
            Ok(plugins.iter().map(|plugin| plugin.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), PLUGINS.len());
        assert_eq!(names(&["token-check", "hello-go"]).unwrap(), ["token-check", "hello-go"]);
        assert!(names(&["token"]).unwrap_err().contains("there are ab-routing, "));
        assert!(run(&["--force".into()]).unwrap_err().contains("--force"));
    }

    #[test]
    fn versions_are_kept_and_replaced() {
        let versions = BTreeMap::from([("go", "go2".to_owned()), ("rust", "rustc 2".to_owned())]);
        assert_eq!(merged("", &versions), "go: go2\nrust: rustc 2\n");
        let old = "clang: clang 1: x\nrust: rustc 1\n";
        assert_eq!(merged(old, &versions), "clang: clang 1: x\ngo: go2\nrust: rustc 2\n");
    }

    #[test]
    fn differences_are_found() {
        let folder = std::env::temp_dir().join(format!("weir-xtask-{}", std::process::id()));
        let (built, fresh) = (folder.join("built"), folder.join("fresh"));
        fs::create_dir_all(&built).unwrap();
        fs::create_dir_all(&fresh).unwrap();
        let plugin = PLUGINS.iter().find(|plugin| plugin.is_committed).unwrap();
        let versions = BTreeMap::from([("rust", "rustc 2".to_owned())]);
        let compare = || compare(&[plugin], &built, &fresh, &versions);
        fs::write(module(plugin, &fresh), "new").unwrap();
        assert!(compare().unwrap_err().contains("MISSING"));
        fs::write(built.join(VERSIONS_FILE), "rust: rustc 1\n").unwrap();
        fs::write(module(plugin, &built), "old").unwrap();
        let error = compare().unwrap_err();
        assert!(error.contains("DIFFERS") && error.contains("made with rustc 1, now rustc 2"));
        fs::write(module(plugin, &built), "new").unwrap();
        assert!(compare().unwrap().contains("the same"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
