//! The repository's own chores, run as `cargo xtask NAME`. Today that is tidy, the style check that
//! `cargo test` runs as well. No dependencies, so that a check costs no build of anything else.

use std::io::{self, Write};
use std::process::ExitCode;

mod tidy;

const HELP: &str = "\
cargo xtask COMMAND

  tidy   check the house style of every file under version control
  help   print this
";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_else(|| "help".into());
    match command.as_str() {
        "tidy" => run_tidy(),
        "help" | "--help" | "-h" => print(&mut io::stdout(), HELP, ExitCode::SUCCESS),
        other => {
            let text = format!("unknown command “{other}”\n\n{HELP}");
            print(&mut io::stderr(), &text, ExitCode::from(2))
        }
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
