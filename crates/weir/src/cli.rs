//! The command line. Help texts here are the reference; the manual shows how to use them.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A web server and caching proxy.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a small origin with Weir in front of it, and say what to try.
    Demo(Demo),
    /// Serve the files of a directory.
    Serve(Serve),
    /// Put a cache in front of an origin.
    Proxy(Proxy),
    /// Run a configuration file.
    Run(Run),
    /// Check a configuration file and the files it names.
    Check(Check),
    /// Make a running server read its configuration again.
    Reload(Admin),
    /// Remove stored responses from a running server's cache.
    Purge(Purge),
    /// Show what a running server is doing.
    Status(Admin),
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// Where the admin API listens.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9900")]
    pub(crate) admin: String,
}

/// What `serve` and `proxy` have in common.
#[derive(Debug, Args)]
pub(crate) struct Quick {
    /// Where to listen: ADDRESS:PORT, :PORT for all interfaces, or unix:PATH.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// Worker threads; one per core by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Where the admin API listens, or "off" [default: 127.0.0.1:9900, if it is free].
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<String>,
    /// Print the configuration file that does the same, and end.
    #[arg(long)]
    pub(crate) print_config: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory.
    pub(crate) directory: PathBuf,
    /// List directories that have no index file.
    #[arg(long)]
    pub(crate) listing: bool,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// The origin: http://HOST[:PORT][/PATH], https://…, or unix:PATH.
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The configuration file.
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file.
    pub(crate) file: PathBuf,
    /// Print the errors as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to reach a running server.
#[derive(Debug, Args)]
pub(crate) struct Admin {
    /// The server's admin address: ADDRESS:PORT or unix:PATH.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9900")]
    pub(crate) admin: String,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["url", "site", "all"])]
pub(crate) struct Purge {
    /// The URL whose stored responses go, e.g. http://shop.example/a.png
    pub(crate) url: Option<String>,
    /// Purge everything of this site.
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,
    /// Purge everything.
    #[arg(long)]
    pub(crate) all: bool,
    /// Make stale instead of removing.
    #[arg(long)]
    pub(crate) soft: bool,
    #[command(flatten)]
    pub(crate) admin: Admin,
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Commands, and the options of each, as `docs/manual/command-line.md` has them: a heading for
    /// each command, and in the table below it a row for each option.
    #[test]
    fn the_manual_has_every_command_and_option() {
        let mut listed = BTreeMap::new();
        let mut options = &mut BTreeSet::new();
        for line in include_str!("../../../docs/manual/command-line.md").lines() {
            if let Some(name) = line.strip_prefix("## `weir ") {
                options = listed.entry(name.trim_end_matches('`').to_owned()).or_default();
            } else if let Some(row) = line.strip_prefix("| `--") {
                let end = row.find([' ', '`']).unwrap_or(row.len());
                options.insert(row[..end].to_owned());
            }
        }
        let of = |command: &clap::Command| -> BTreeSet<String> {
            command.get_arguments().filter_map(|a| a.get_long()).map(str::to_owned).collect()
        };
        let command = Cli::command();
        let known: BTreeMap<String, BTreeSet<String>> =
            command.get_subcommands().map(|c| (c.get_name().to_owned(), of(c))).collect();
        assert_eq!(listed, known);
    }
}
