//! The command line. Help texts here are the reference; the manual shows how to use them.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use weir_config::CompressFormat;

use crate::commands::adapt;
use crate::commands::plugin_new::Lang;

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
    /// Deploy plugins into a running server, and look after them.
    #[command(subcommand)]
    Plugin(Plugin),
    /// Ask a running server about its overload control, and change its rules.
    #[command(subcommand)]
    Guard(Guard),
    /// Make the authority of a forward proxy that inspects, or show one.
    #[command(subcommand)]
    Ca(Ca),
    /// Print a line for the file of a forward proxy's users.
    Password(Password),
    /// Adapt a file as a running server adapts responses.
    Adapt(Adapt),
    /// Work for a server, at the other end of standard input.
    #[command(hide = true)]
    Helper(Helper),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ca {
    /// Make an authority: ca.pem for clients, ca.key for the proxy.
    Create(CaCreate),
    /// Show whose a certificate is, and how long it is valid.
    Show(CaShow),
}

#[derive(Debug, Args)]
pub(crate) struct CaCreate {
    /// Where the files are made.
    pub(crate) directory: PathBuf,
    /// Have it speak for this host and the names below it alone; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CaShow {
    /// The certificate.
    pub(crate) file: PathBuf,
}

/// The password is the first line of standard input.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// The user's name.
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("what").args(["html", "image", "ads", "compress"]).required(true).multiple(true)
))]
pub(crate) struct Adapt {
    /// The file; without one, only what lists do with a request is told.
    #[arg(required_unless_present = "url")]
    pub(crate) file: Option<PathBuf>,
    /// Change it, a page of HTML, by a file of lines as they stand in an `html` block.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Make another picture of it, such as "width=800,format=webp"; with "width", "height", "fit",
    /// "format", "quality", "target", "grey" and "animation".
    #[arg(long, value_name = "PARAMETERS", conflicts_with_all = ["html", "ads", "compress"])]
    #[arg(value_parser = adapt::picture)]
    pub(crate) image: Option<String>,
    /// Take out of it, a page of HTML, what a list of ads hides; may be repeated.
    #[arg(long, value_name = "LIST")]
    pub(crate) ads: Vec<PathBuf>,
    /// The page's address; and say what the lists do with a request for it.
    #[arg(long, requires = "ads")]
    pub(crate) url: Option<String>,
    /// A header field of that request, such as "Referer: https://a.example/"; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url")]
    pub(crate) headers: Vec<String>,
    /// Code it: "gzip", "br" or "zstd", with a level if wanted, such as "br:11".
    #[arg(long, value_name = "CODING[:LEVEL]", value_parser = adapt::compress)]
    pub(crate) compress: Option<CompressFormat>,
    /// Where the result goes, or the file as it is, where that is as good; by default nowhere, and
    /// only its size is told.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Helper {
    /// Run only when nothing else wants to.
    #[arg(long)]
    pub(crate) idle: bool,
    /// Memory of its own, in bytes.
    #[arg(long)]
    pub(crate) memory: u64,
    /// The largest result, in bytes.
    #[arg(long)]
    pub(crate) output: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Guard {
    /// Show classes, rules, limits and what the kernel enforces.
    Status(Admin),
    /// Say which rules match a request, and why the others do not; nothing is counted.
    Test(Box<GuardTest>),
    /// Put other rules into force, until the next reload.
    Apply(Apply),
}

#[derive(Debug, Args)]
pub(crate) struct GuardTest {
    /// The request: "GET /x", "/x" or a whole URL.
    pub(crate) request: String,
    /// The client's address, and its port if rules ask for it.
    #[arg(long, value_name = "ADDR")]
    pub(crate) from: Option<String>,
    /// Where it connects to, ADDRESS:PORT; by default the first listener that fits.
    #[arg(long, value_name = "ADDR")]
    pub(crate) to: Option<String>,
    /// The host that is asked for, if the request has none.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// A header field; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// A cookie; may be repeated.
    #[arg(long = "cookie", value_name = "NAME=VALUE")]
    pub(crate) cookies: Vec<String>,
    /// The name asked for in the TLS handshake; by default the host.
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// What plugins make of the request.
    #[arg(long, value_name = "TEXT")]
    pub(crate) verdict: Option<String>,
    /// Say what would be under overload, whether there is any or not.
    #[arg(long)]
    pub(crate) overload: bool,
    /// Ask this configuration file instead of a running server.
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) admin: Admin,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// A file with `rule` blocks as they stand in a `guard` block; all rules in force are replaced.
    pub(crate) file: PathBuf,
    /// The file has no rule on purpose: remove all that are in force.
    #[arg(long)]
    pub(crate) remove_all: bool,
    #[command(flatten)]
    pub(crate) admin: Admin,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Plugin {
    /// Deploy a plugin, or a new version of one: the next request runs it.
    Deploy(Box<Deploy>),
    /// List the plugins.
    List(Admin),
    /// Show one plugin, with its earlier deployments.
    Show(Named),
    /// End a plugin's trial, or go back to its deployment before.
    Rollback(Named),
    /// Remove a plugin.
    Remove(Named),
    /// Write a project that builds a plugin.
    New(New),
}

/// A plugin of a running server.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The plugin's name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) admin: Admin,
}

/// What is left out stays as it is in the deployment before.
#[derive(Debug, Args)]
pub(crate) struct Deploy {
    /// The plugin's name.
    pub(crate) name: String,
    /// The module: Wasm, or WAT text.
    pub(crate) file: PathBuf,
    /// Run on this route; may be repeated. Without it the plugin runs on the routes that `use` it
    /// in the configuration, or on every route if none does.
    #[arg(long = "route", value_name = "[SITE]/PATTERN")]
    pub(crate) routes: Vec<String>,
    /// Where it sees responses on these routes: "delivery" (each time) or "fill" (once, before they
    /// are stored).
    #[arg(long, value_name = "WHERE", requires = "routes")]
    pub(crate) at: Option<String>,
    /// What it is configured with, JSON by custom.
    #[arg(long, value_name = "TEXT", conflicts_with = "config_file")]
    pub(crate) config: Option<String>,
    /// The same, from a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    /// proxy-wasm's configuration of the virtual machine.
    #[arg(long, value_name = "TEXT")]
    pub(crate) vm_config: Option<String>,
    /// What a proxy-wasm module registers by, in place of the plugin's name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) root_id: Option<String>,
    /// Try it out on this share of the requests first.
    #[arg(long, value_name = "5%", requires = "duration")]
    pub(crate) canary: Option<String>,
    /// For so long; then it is promoted, unless it did worse than the one before.
    #[arg(id = "duration", long = "for", value_name = "60s", requires = "canary")]
    pub(crate) duration: Option<String>,
    /// CPU time of one call.
    #[arg(long, value_name = "TIME")]
    pub(crate) cpu: Option<String>,
    /// Memory of one instance.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Elements of all tables of one instance.
    #[arg(long, value_name = "N")]
    pub(crate) tables: Option<String>,
    /// Calls expected to take longer leave the worker.
    #[arg(long, value_name = "TIME")]
    pub(crate) long: Option<String>,
    /// Lines a second that it may log.
    #[arg(long, value_name = "N")]
    pub(crate) log: Option<String>,
    /// What becomes of a request on which it fails: "pass" or "fail".
    #[arg(long, value_name = "POLICY")]
    pub(crate) on_failure: Option<String>,
    /// An upstream that it may call, "*" for all; may be repeated.
    #[arg(long = "allow-upstream", value_name = "NAME")]
    pub(crate) allow_upstreams: Vec<String>,
    /// Shared data of others that it may use, "*" for all; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_shared: Vec<String>,
    /// Whether it may manage stored content: "true" or "false".
    #[arg(long, value_name = "BOOL")]
    pub(crate) allow_cache: Option<String>,
    /// Whether it may see bodies of requests: "true" or "false".
    #[arg(long, value_name = "BOOL")]
    pub(crate) allow_request_body: Option<String>,
    /// Whether it may see bodies of responses: "true" or "false".
    #[arg(long, value_name = "BOOL")]
    pub(crate) allow_response_body: Option<String>,
    #[command(flatten)]
    pub(crate) admin: Admin,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// The plugin's name, and its folder's.
    pub(crate) name: String,
    /// The language.
    #[arg(long)]
    pub(crate) lang: Lang,
    /// Where the folder is made.
    #[arg(long = "dir", value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
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
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // What the server alone calls is not for people.
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            if !command.has_subcommands() {
                known.insert(name.to_owned(), of(command));
            }
            for part in command.get_subcommands() {
                known.insert(format!("{name} {}", part.get_name()), of(part));
            }
        }
        assert_eq!(listed, known);
    }
}
