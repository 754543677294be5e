//! One function per command.

pub(crate) mod adapt;
mod adapt_ads;
mod ca;
mod check;
mod demo;
mod guard;
mod guard_status;
mod password;
mod plugin;
pub(crate) mod plugin_new;
mod purge;
mod quick;
mod status;

use std::fmt;

use crate::admin_client::{self, Failure as AdminFailure};
use crate::cli::{Admin, Cli, Command, Run};
use crate::logging;
use crate::serving::{self, Listening, Origin, Settings};

/// Why a command failed, for people.
pub(crate) struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure(text)
    }
}

impl From<weir_server::StartError> for Failure {
    fn from(error: weir_server::StartError) -> Failure {
        Failure(error.to_string())
    }
}

impl From<weir_config::Errors> for Failure {
    fn from(errors: weir_config::Errors) -> Failure {
        Failure(format!("the configuration cannot be used\n{errors}"))
    }
}

impl From<AdminFailure> for Failure {
    fn from(failure: AdminFailure) -> Failure {
        Failure(failure.to_string())
    }
}

/// Runs a command to its end.
///
/// # Errors
/// What to tell the user.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Demo(demo) => demo::demo(&demo),
        Command::Serve(serve) => quick::serve(&serve),
        Command::Proxy(proxy) => quick::proxy(&proxy),
        Command::Run(run) => run_file(run),
        Command::Check(check) => check::check(&check),
        Command::Reload(admin) => reload(&admin),
        Command::Purge(purge) => purge::purge(&purge),
        Command::Status(admin) => status::status(&admin),
        Command::Plugin(command) => plugin::plugin(&command),
        Command::Guard(command) => guard::guard(&command),
        Command::Ca(command) => ca::ca(&command),
        Command::Password(command) => password::password(&command),
        Command::Adapt(command) => adapt::adapt(&command),
        Command::Helper(command) => adapt::helper(&command),
    }
}

fn run_file(run: Run) -> Result<(), Failure> {
    logging::start();
    let config = weir_config::load(&run.file)?;
    let settings = Settings { config, origin: Origin::File(run.file), admin_is_optional: false };
    Ok(serving::serve(settings, log_listening)?)
}

fn log_listening(listening: &Listening) {
    for url in &listening.urls {
        tracing::info!("listening on {url}");
    }
    if let Some(admin) = &listening.admin {
        tracing::info!("admin API on {admin}");
    }
}

fn reload(admin: &Admin) -> Result<(), Failure> {
    let answer = admin_client::post(&admin.admin, "/reload", "{}")?;
    if admin.json {
        return print(&answer);
    }
    let answer: serde_json::Value = admin_client::parse(&answer)?;
    print(&format!("reloaded; this is configuration {}\n", answer["generation"]))
}

/// Writes to standard output; a reader that has left is no failure.
fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure(e.to_string())),
        _ => Ok(()),
    }
}
