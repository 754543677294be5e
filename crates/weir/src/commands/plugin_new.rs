//! `weir plugin new`: writes the beginnings of a plugin, a project that builds as it is. The
//! templates are files in `plugin_templates`; what they share with the example plugins and the SDK
//! is taken from there, so that it cannot grow old here.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Characters of a plugin's name at most: it becomes part of paths, metrics and log lines.
const NAME_LENGTH_MAX: usize = 64;

/// What stands for the plugin's name in a template.
const PLACEHOLDER: &str = "{{name}}";

/// What stands for this program's version.
const VERSION_PLACEHOLDER: &str = "{{version}}";

/// The languages that there are templates for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lang {
    /// On Weir's own interface: the cheapest calls.
    Rust,
    /// On Weir's own interface, without a C library.
    C,
    /// On proxy-wasm.
    Go,
    /// On proxy-wasm.
    #[value(name = "assemblyscript")]
    AssemblyScript,
}

/// A project that has been written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Project {
    /// Where.
    pub(crate) folder: PathBuf,
    /// The command that builds it, run in its folder.
    pub(crate) build: &'static str,
    /// The module that the command makes, from its folder.
    pub(crate) module: &'static str,
}

/// Writes the project `name` into a new folder of that name in `directory`.
///
/// # Errors
/// Says what is wrong with the name, that the folder exists, or what could not be written.
pub(crate) fn new(name: &str, lang: Lang, directory: &Path) -> Result<Project, String> {
    check_name(name)?;
    let folder = directory.join(name);
    let failed = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
    fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
    // Creating it is also the check: what is there stays as it is.
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} exists; choose another name or remove it", folder.display())
        }
        _ => failed(&folder, error),
    })?;
    for (path, text) in lang.files() {
        let path = folder.join(path);
        let version = env!("CARGO_PKG_VERSION");
        let text = text.replace(PLACEHOLDER, name).replace(VERSION_PLACEHOLDER, version);
        write(&path, &text).map_err(|e| failed(&path, e))?;
    }
    Ok(Project { folder, build: lang.build(), module: lang.module() })
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::File::create_new(path)?.write_all(text.as_bytes())
}

/// What is a name in all four languages' tools, in a path and in a URL.
fn check_name(name: &str) -> Result<(), String> {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if begins_well && name.bytes().all(is_word) && !name.ends_with('-') {
        if name.len() <= NAME_LENGTH_MAX {
            return Ok(());
        }
        return Err(format!("a plugin's name has at most {NAME_LENGTH_MAX} characters"));
    }
    let rule = "lower-case letters, digits and “-”, beginning with a letter";
    Err(format!("“{name}” cannot be a plugin's name: expected {rule}"))
}

/// A file of the project and what is in it.
type File = (&'static str, &'static str);

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../plugin_templates/", $path))
    };
}

/// Files of the repository that a project takes along as they are.
macro_rules! repository {
    ($path:literal) => {
        include_str!(concat!("../../../../", $path))
    };
}

const RUST: &[File] = &[
    (".gitignore", template!("rust/gitignore")),
    ("Cargo.toml", template!("rust/Cargo.toml.template")),
    ("README.md", template!("rust/README.md")),
    ("src/lib.rs", template!("rust/src/lib.rs")),
    ("weir-plugin-sdk/Cargo.toml", template!("rust/sdk.Cargo.toml.template")),
    ("weir-plugin-sdk/src/edits.rs", repository!("crates/weir-plugin-sdk/src/edits.rs")),
    ("weir-plugin-sdk/src/frame.rs", repository!("crates/weir-plugin-sdk/src/frame.rs")),
    ("weir-plugin-sdk/src/hook.rs", repository!("crates/weir-plugin-sdk/src/hook.rs")),
    ("weir-plugin-sdk/src/host.rs", repository!("crates/weir-plugin-sdk/src/host.rs")),
    ("weir-plugin-sdk/src/lib.rs", repository!("crates/weir-plugin-sdk/src/lib.rs")),
    ("weir-plugin-sdk/src/plugin.rs", repository!("crates/weir-plugin-sdk/src/plugin.rs")),
    ("weir-plugin-sdk/src/raw.rs", repository!("crates/weir-plugin-sdk/src/raw.rs")),
    ("weir-plugin-sdk/src/testing.rs", repository!("crates/weir-plugin-sdk/src/testing.rs")),
];

const C: &[File] = &[
    (".gitignore", template!("c/gitignore")),
    ("Makefile", template!("c/Makefile")),
    ("README.md", template!("c/README.md")),
    ("plugin.c", template!("c/plugin.c")),
    ("weir_plugin.h", repository!("plugins/include/weir_plugin.h")),
];

const GO: &[File] = &[
    (".gitignore", template!("go/gitignore")),
    ("README.md", template!("go/README.md")),
    ("go.mod", template!("go/go.mod")),
    ("go.sum", repository!("plugins/hello-go/go.sum")),
    ("main.go", template!("go/main.go")),
];

const ASSEMBLY_SCRIPT: &[File] = &[
    (".gitignore", template!("assemblyscript/gitignore")),
    ("README.md", template!("assemblyscript/README.md")),
    ("asconfig.json", template!("assemblyscript/asconfig.json")),
    ("assembly/abort.ts", repository!("plugins/canonical-query/assembly/abort.ts")),
    ("assembly/index.ts", template!("assemblyscript/assembly/index.ts")),
    ("assembly/proxy.ts", repository!("plugins/canonical-query/assembly/proxy.ts")),
    ("package.json", template!("assemblyscript/package.json")),
];

impl Lang {
    fn files(self) -> &'static [File] {
        match self {
            Lang::Rust => RUST,
            Lang::C => C,
            Lang::Go => GO,
            Lang::AssemblyScript => ASSEMBLY_SCRIPT,
        }
    }

    fn build(self) -> &'static str {
        match self {
            Lang::Rust => "cargo build --release --target wasm32-unknown-unknown",
            Lang::C => "make",
            Lang::Go => {
                r#"GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags="-s -w" -buildmode=c-shared -o plugin.wasm ."#
            }
            Lang::AssemblyScript => "npm install && npm run build",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Lang::Rust => "target/wasm32-unknown-unknown/release/plugin.wasm",
            Lang::C | Lang::Go | Lang::AssemblyScript => "plugin.wasm",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const LANGS: [Lang; 4] = [Lang::Rust, Lang::C, Lang::Go, Lang::AssemblyScript];

    #[test]
    fn projects_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        for lang in LANGS {
            let directory = directory.path().join(format!("not/yet/there/{lang:?}"));
            let project = new("my-plugin", lang, &directory).unwrap();
            assert_eq!(project.folder, directory.join("my-plugin"));
            let read = |path: &str| fs::read_to_string(project.folder.join(path)).unwrap();
            for (path, _) in lang.files() {
                assert!(!read(path).contains(PLACEHOLDER), "{lang:?}: {path}");
                assert!(!read(path).contains(VERSION_PLACEHOLDER), "{lang:?}: {path}");
            }
            // What a person is told is what the project itself says.
            let readme = read("README.md");
            assert!(readme.starts_with("# my-plugin\n"), "{lang:?}");
            assert!(readme.contains(project.build), "{lang:?}");
            let deploy = format!("weir plugin deploy my-plugin {}", project.module);
            assert!(readme.contains(&deploy), "{lang:?}");
        }
    }

    #[test]
    fn the_sdk_is_taken_along_whole() {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-plugin-sdk/src");
        for entry in fs::read_dir(sdk).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("weir-plugin-sdk/src/{name}");
            assert!(RUST.iter().any(|(known, _)| *known == path), "{path} is not taken along");
        }
    }

    #[test]
    fn nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "precious").unwrap();
        fs::create_dir(directory.path().join("folder")).unwrap();
        for name in ["file", "folder"] {
            let failure = new(name, Lang::C, directory.path()).unwrap_err();
            assert!(failure.contains("exists"), "{failure}");
        }
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(directory.path().join("folder")).unwrap().count(), 0);
    }

    #[test]
    fn names() {
        let longest = "a".repeat(NAME_LENGTH_MAX);
        for name in ["a", "a-b2", "test", &longest] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let longer = "a".repeat(NAME_LENGTH_MAX + 1);
        for name in ["", "A", "2a", "-a", "a-", "a_b", "a b", "a/b", "..", "a.b", "é", &longer] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    /// The two that need nothing but compilers; the others fetch packages.
    #[test]
    fn projects_on_the_own_interface_build() {
        let directory = tempfile::tempdir().unwrap();
        for lang in [Lang::Rust, Lang::C] {
            if let Some(what) = missing(lang) {
                println!("skipped: {lang:?} for want of {what}");
                continue;
            }
            let project = new(&format!("in-{lang:?}").to_lowercase(), lang, directory.path());
            let project = project.unwrap();
            let mut build = Command::new("sh");
            build.current_dir(&project.folder).args(["-c", project.build]);
            // That of the tests themselves would put the module elsewhere.
            let output = build.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("warning"), "{lang:?}: {said}");
            let module = fs::read(project.folder.join(project.module)).unwrap();
            assert!(module.starts_with(b"\0asm"), "{lang:?}");
        }
    }

    fn missing(lang: Lang) -> Option<&'static str> {
        let works = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output();
            output.is_ok_and(|output| output.status.success())
        };
        match lang {
            Lang::Rust => {
                let libraries = "rustc --print target-libdir --target wasm32-unknown-unknown";
                (!works(&format!("ls $({libraries})"))).then_some("Rust's wasm32-unknown-unknown")
            }
            _ => {
                // As the project's Makefile looks for it.
                let clangs = "clang clang-22 clang-21 clang-20 clang-19 clang-18 clang-17 clang-16";
                let compiles = "$c --print-targets 2>/dev/null | grep -q wasm32 && exit 0";
                let found = format!("make -v && for c in {clangs}; do {compiles}; done; exit 1");
                (!works(&found)).then_some("make, clang and wasm-ld")
            }
        }
    }
}
