//! The `weir` command: reads the command line and hands over to one module per command.

mod admin_client;
mod cli;
mod commands;
mod logging;
mod privileges;
mod serving;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("weir: {failure}");
            ExitCode::FAILURE
        }
    }
}
