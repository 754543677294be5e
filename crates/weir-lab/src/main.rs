//! The command line of weir-lab; what it does is in the library.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::complain(&format!("weir-lab: {error}"));
            ExitCode::FAILURE
        }
    }
}
