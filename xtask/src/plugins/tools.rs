//! The compilers: which are there, which versions, and what to install where one is not.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::list::{Plugin, Source};

/// Versions of clang and wasm-ld that are looked for under their numbered names, newest first.
const LLVM_VERSIONS: std::ops::RangeInclusive<u32> = 15..=24;

/// Go compiles to a module without `main` since 1.24.
const GO_MIN: (u32, u32) = (1, 24);

/// The tools that some plugins need.
#[derive(Default)]
pub(super) struct Tools {
    /// Commands, once found.
    pub(super) clang: String,
    pub(super) wasm_ld: String,
    /// What each tool says its version is, by tool: the same tools make the same modules.
    pub(super) versions: BTreeMap<&'static str, String>,
    /// What is missing, each with how to get it.
    pub(super) missing: Vec<String>,
}

impl Tools {
    /// Looks for what `plugins` need, and for nothing else.
    pub(super) fn find(plugins: &[&Plugin], folder: &Path) -> Tools {
        let mut tools = Tools::default();
        let needs = |is_meant: fn(Source) -> bool| plugins.iter().any(|p| is_meant(p.source));
        if needs(|source| source == Source::Rust) {
            tools.find_rust();
        }
        if needs(|source| matches!(source, Source::C(_))) {
            tools.find_clang();
        }
        if needs(|source| source == Source::Go) {
            tools.find_go();
        }
        if needs(|source| source == Source::AssemblyScript) {
            tools.find_node(folder, plugins);
        }
        tools
    }

    fn find_rust(&mut self) {
        let version = output(Command::new("rustc").arg("--version"));
        let target = output(
            Command::new("rustc")
                .args(["--print=target-libdir", "--target=wasm32-unknown-unknown"]),
        );
        if target.is_none_or(|folder| !Path::new(folder.trim()).is_dir()) {
            self.missing.push(
                "Rust's target wasm32-unknown-unknown: `rustup target add wasm32-unknown-unknown`"
                    .into(),
            );
        }
        self.versions.extend(version.map(|version| ("rust", first_line(&version))));
    }

    fn find_clang(&mut self) {
        let compiles = |clang: &String| {
            let targets = output(Command::new(clang).arg("--print-targets"));
            targets.is_some_and(|targets| targets.contains("wasm32"))
        };
        let links = |linker: &String| output(Command::new(linker).arg("--version")).is_some();
        match names("clang").find(compiles) {
            Some(clang) => {
                // “Debian clang version 19.1.7 (3~deb12u1)”, then target and folders.
                let version = output(Command::new(&clang).arg("--version")).unwrap_or_default();
                self.versions.insert("clang", first_line(&version));
                self.clang = clang;
            }
            None => {
                self.missing.push("clang with the target wasm32: `apt-get install clang-19`".into())
            }
        }
        // The one of clang's own version first.
        let suffix = self.clang.strip_prefix("clang").unwrap_or_default();
        let own = std::iter::once(format!("wasm-ld{suffix}"));
        match own.chain(names("wasm-ld")).find(links) {
            Some(linker) => {
                let version = output(Command::new(&linker).arg("--version")).unwrap_or_default();
                self.versions.insert("wasm-ld", first_line(&version));
                self.wasm_ld = linker;
            }
            None => self.missing.push("wasm-ld: `apt-get install lld-19`".into()),
        }
    }

    fn find_go(&mut self) {
        let version = output(Command::new("go").args(["env", "GOVERSION"])).unwrap_or_default();
        if go_version(&version).is_none_or(|version| version < GO_MIN) {
            self.missing.push("Go 1.24 or newer".into());
        }
        self.versions.insert("go", first_line(&version));
    }

    fn find_node(&mut self, folder: &Path, plugins: &[&Plugin]) {
        for tool in ["node", "npm"] {
            if output(Command::new(tool).arg("--version")).is_none() {
                self.missing.push(format!("{tool}: Node.js 20 or newer"));
            }
        }
        // The compiler is an npm package: its version is the one that the plugin's lock file names.
        for plugin in plugins.iter().filter(|plugin| plugin.source == Source::AssemblyScript) {
            let manifest = folder.join(plugin.name).join("package.json");
            let manifest = std::fs::read_to_string(manifest).unwrap_or_default();
            let line = manifest.lines().find(|line| line.contains("\"assemblyscript\":"));
            let version = line.and_then(|line| line.split('"').nth(3)).unwrap_or("?");
            self.versions.insert("assemblyscript", version.to_owned());
        }
    }
}

/// `tool`, then `tool-24`, `tool-23`, …
fn names(tool: &str) -> impl Iterator<Item = String> {
    let numbered = LLVM_VERSIONS.rev().map(move |version| format!("{tool}-{version}"));
    std::iter::once(tool.to_owned()).chain(numbered)
}

/// What a command prints; `None` where it is not there or fails.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Of “go1.26.8”: (1, 26).
fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().strip_prefix("go")?.split(['.', 'r', 'b', '-', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go() {
        assert_eq!(go_version("go1.26.8\n"), Some((1, 26)));
        assert_eq!(go_version("go1.24rc1"), Some((1, 24)));
        assert_eq!(go_version("go1.9"), Some((1, 9)));
        assert_eq!(go_version("devel go1.27-abc"), None);
        assert_eq!(go_version(""), None);
    }

    #[test]
    fn numbered_names() {
        let names: Vec<String> = names("clang").collect();
        assert_eq!(names[..2], ["clang", "clang-24"]);
        assert_eq!(names.last().map(String::as_str), Some("clang-15"));
    }
}
