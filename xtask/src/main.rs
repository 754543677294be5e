//! The repository's own chores, run as `cargo xtask NAME`: tidy, the style check that `cargo test`
//! runs as well, and the modules of the example plugins. No dependencies, so that a chore costs no
//! build of anything else.

use std::io::{self, Write};
use std::process::ExitCode;

mod plugins;
mod tidy;

const HELP: &str = "\
cargo xtask COMMAND

  tidy                      check the house style of every file under version control
  plugins [NAME…]           build the example plugins into plugins/built/
  plugins --check [NAME…]   say whether those there are what the sources make
  help                      print this
";

/// The folder of the repository, by what cargo says now: two checkouts with one target folder share
/// the program, and it may have been compiled in the other.
fn root() -> std::path::PathBuf {
    let compiled_in = || env!("CARGO_MANIFEST_DIR").into();
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(compiled_in);
    std::path::Path::new(&own).join("..")
}

fn main() -> ExitCode {
    if std::env::var_os(plugins::rustc::WRAPPER).is_some() {
        let ran = plugins::rustc::run(std::env::args_os().skip(1).collect());
        return ran
            .unwrap_or_else(|e| print(&mut io::stderr(), &format!("{e}\n"), ExitCode::FAILURE));
    }
    let command = std::env::args().nth(1).unwrap_or_else(|| "help".into());
    match command.as_str() {
        "tidy" => run_tidy(),
        "plugins" => run_plugins(),
        "help" | "--help" | "-h" => print(&mut io::stdout(), HELP, ExitCode::SUCCESS),
        other => {
            let text = format!("unknown command “{other}”\n\n{HELP}");
            print(&mut io::stderr(), &text, ExitCode::from(2))
        }
    }
}

fn run_plugins() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match plugins::run(&arguments) {
        Ok(report) => print(&mut io::stdout(), &report, ExitCode::SUCCESS),
        Err(error) => print(&mut io::stderr(), &format!("{error}\n"), ExitCode::FAILURE),
    }
}

fn run_tidy() -> ExitCode {
    let tree = match tidy::Tree::of_repository() {
        Ok(tree) => tree,
        Err(error) => return print(&mut io::stderr(), &format!("{error}\n"), ExitCode::from(2)),
    };
    let problems = tidy::check(&tree);
    let mut report: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    if problems.is_empty() {
        report = format!("{} files, nothing to tidy\n", tree.files.len());
        return print(&mut io::stdout(), &report, ExitCode::SUCCESS);
    }
    report += &format!("{} problems\n", problems.len());
    print(&mut io::stderr(), &report, ExitCode::FAILURE)
}

/// A reader that went away (`cargo xtask tidy | head`) is no failure of the check.
fn print(to: &mut dyn Write, text: &str, code: ExitCode) -> ExitCode {
    let _ = to.write_all(text.as_bytes());
    code
}
