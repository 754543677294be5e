//! How a module is made from its source, the same bytes wherever the repository lies: no paths, no
//! symbols, no time. One function a language.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::list::{Plugin, Source};
use super::rustc::WRAPPER;
use super::tools::Tools;

/// What a C compiler is told. Bulk memory, so that copies need no library; warnings are errors.
const CLANG_FLAGS: &[&str] = &[
    "--target=wasm32",
    "-std=c17",
    "-O2",
    "-mbulk-memory",
    "-ffreestanding",
    "-nostdlib",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// What the linker is told. The stack first, so that overflowing it traps instead of writing over
/// data.
const LINK_FLAGS: &[&str] =
    &["--no-entry", "--strip-all", "--gc-sections", "--stack-first", "-z", "stack-size=65536"];

/// Builds `plugins` into `out`, as `NAME.wasm`.
///
/// # Errors
/// The command that failed; it has said why itself.
pub(super) fn build(
    plugins: &[&Plugin],
    tools: &Tools,
    folder: &Path,
    out: &Path,
) -> Result<(), String> {
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let of_rust: Vec<&str> =
        plugins.iter().filter(|p| p.source == Source::Rust).map(|p| p.name).collect();
    if !of_rust.is_empty() {
        rust(&of_rust, folder, out)?;
    }
    for plugin in plugins {
        let module = out.join(plugin.name).with_extension("wasm");
        let source = folder.join(plugin.name);
        match plugin.source {
            Source::Rust => {}
            Source::C(file) => c(&source.join(file), tools, folder, &module)?,
            Source::Go => go(&source, &module)?,
            Source::AssemblyScript => assembly_script(&source, &module)?,
        }
        write_anew(&module).map_err(|e| format!("{}: {e}", module.display()))?;
    }
    Ok(())
}

/// Linkers mark what they make as executable, which a module is not.
fn write_anew(module: &Path) -> std::io::Result<()> {
    let bytes = fs::read(module)?;
    fs::remove_file(module)?;
    fs::write(module, bytes)
}

fn rust(names: &[&str], folder: &Path, out: &Path) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Not that of others: cargo does not build anew what another wrapper has built.
    let target = folder.join("target/modules");
    let wrapper = env::current_exe().map_err(|e| format!("this program: {e}"))?;
    // First, because its folders below are to be renamed.
    run(Command::new(&cargo).current_dir(folder).args(["fetch", "--quiet", "--locked"]))?;
    let flags = remapped(folder)?;
    for name in names {
        let mut build = Command::new(&cargo);
        build.current_dir(folder).args(["rustc", "--quiet", "--locked", "--release", "--package"]);
        // Where a package is also a library for others, cargo would not optimise the whole; and
        // where it has a profile of its own, cargo would forget to strip it. The names that would
        // stay depend on where the repository lies.
        build.arg(name).args(["--crate-type=cdylib", "--target=wasm32-unknown-unknown"]);
        build.arg("--target-dir").arg(&target).args(["--", "-Cstrip=symbols"]);
        build.env("CARGO_ENCODED_RUSTFLAGS", &flags).env_remove("RUSTFLAGS");
        build.env("RUSTC_WRAPPER", &wrapper).env(WRAPPER, "1");
        run(&mut build)?;
        let built = target.join("wasm32-unknown-unknown/release").join(name.replace('-', "_"));
        let module = out.join(name).with_extension("wasm");
        fs::copy(built.with_extension("wasm"), &module)
            .map_err(|e| format!("{}: {e}", module.display()))?;
    }
    Ok(())
}

/// Flags that take this machine's folders out of panic messages: the repository, the packages
/// downloaded, the standard library's source. Separated as cargo wants them.
fn remapped(folder: &Path) -> Result<OsString, String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = env::var_os("HOME").or_else(|| env::var_os("USERPROFILE"))?;
        Some(Path::new(&home).join(".cargo"))
    });
    let sources = home.ok_or("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let registries = fs::read_dir(&sources).into_iter().flatten().flatten().map(|e| e.path());
    let sysroot = Command::new("rustc").args(["--print=sysroot"]).output();
    let sysroot = sysroot.map_err(|e| format!("rustc: {e}"))?.stdout;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot).trim());
    let root = folder.parent().unwrap_or(folder).to_owned();
    let mut flags = OsString::new();
    let folders = registries.map(|path| (path, "registry"));
    let own = [(sysroot.join("lib/rustlib/src/rust"), "rust"), (root, "weir")];
    for (from, to) in folders.chain(own) {
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    Ok(flags)
}

fn c(source: &Path, tools: &Tools, folder: &Path, module: &Path) -> Result<(), String> {
    let object = module.with_extension("o");
    let mut compile = Command::new(&tools.clang);
    compile.args(CLANG_FLAGS).arg("-I").arg(folder.join("include"));
    run(compile.arg("-c").arg(source).arg("-o").arg(&object))?;
    let linked =
        run(Command::new(&tools.wasm_ld).args(LINK_FLAGS).arg(&object).arg("-o").arg(module));
    fs::remove_file(&object).map_err(|e| format!("{}: {e}", object.display()))?;
    linked
}

fn go(source: &Path, module: &Path) -> Result<(), String> {
    let mut build = Command::new("go");
    build.current_dir(source).env("GOOS", "wasip1").env("GOARCH", "wasm").env("GOFLAGS", "");
    build.args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid="]);
    run(build.args(["-buildmode=c-shared", "-o"]).arg(module).arg("."))
}

fn assembly_script(source: &Path, module: &Path) -> Result<(), String> {
    let compiler = source.join("node_modules/assemblyscript/bin/asc.js");
    // Kept as npm's own record of what it installed.
    let installed = source.join("node_modules/.package-lock.json");
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    if !compiler.exists() || time(&installed) < time(&source.join("package-lock.json")) {
        let mut install = Command::new("npm");
        run(install.current_dir(source).args(["ci", "--silent", "--no-audit", "--no-fund"]))?;
    }
    let mut build = Command::new("node");
    build.current_dir(source).arg(compiler).args(["assembly/index.ts", "--target", "release"]);
    run(build.arg("--outFile").arg(module))
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    if status.success() {
        return Ok(());
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    Err(format!("`{name} {}`: {status}", arguments.join(" ")))
}
