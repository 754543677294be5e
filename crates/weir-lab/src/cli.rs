//! Arguments, and the commands behind them.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use socket2::{Domain, SockAddr, Socket, Type};

use weir_lab::agent;
use weir_lab::app::Application;
use weir_lab::contender;
use weir_lab::costly::{self, Capacity};
use weir_lab::error::{Doing, Error, Result};
use weir_lab::experiment::{self, Experiment, Options};
use weir_lab::floor::{Folder, Pages, serve};
use weir_lab::machine::Cores;
use weir_lab::origin;
use weir_lab::report;
use weir_lab::result::Record;

/// Connections that may wait to be accepted, as configured for the peers.
const BACKLOG: i32 = 4_096;
/// Rounds and window of a quick look.
const QUICK: (usize, f64) = (3, 1.0);
/// Rounds and window otherwise; five rounds are the least that a quoted figure needs.
const FULL: (usize, f64) = (5, 3.0);

/// Measures Weir against its peers.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run experiments: s1, s2, … or all.
    Run(Box<Run>),
    /// List experiments and contenders.
    List {
        /// Weir's binary.
        #[arg(long, default_value = "target/release/weir")]
        weir: PathBuf,
    },
    /// Make tables and figures again from results; prints Markdown.
    Report {
        /// Where results are.
        #[arg(long, default_value = "lab-results")]
        out: PathBuf,
        /// Also write the figures into docs/figures.
        #[arg(long)]
        publish: bool,
    },
    /// The bare epoll and sendfile server that contenders are measured against.
    Floor {
        /// Port on 127.0.0.1.
        #[arg(long)]
        port: u16,
        /// Document root, two levels deep, read once.
        #[arg(long)]
        root: PathBuf,
        /// Send large bodies from the files' own pages instead of a copy in a memfd.
        #[arg(long)]
        from_files: bool,
    },
    /// The application of S3: bodies of ?size=N under /cached/ and /uncached/. With --servers that
    /// of the G experiments: expensive pages. With --think that of the A experiments.
    App {
        /// Unix socket to listen on.
        #[arg(long)]
        unix: PathBuf,
        /// Pages that can be made at a time; more of them waste time.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        servers: Option<u16>,
        /// Time that a page takes.
        #[arg(long, value_parser = parse_duration, default_value = "16ms")]
        work: Duration,
        /// Time that it thinks about a page.
        #[arg(long, value_parser = parse_duration, conflicts_with = "servers")]
        think: Option<Duration>,
    },
    /// The agent of P3, which HAProxy asks about every request.
    Agent {
        /// Unix socket to listen on.
        #[arg(long)]
        unix: PathBuf,
    },
}

#[derive(Args)]
struct Run {
    /// Ids of experiments, or `all`.
    #[arg(required = true)]
    experiments: Vec<String>,
    /// Interleaved rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// Measured window, such as 3s or 500ms.
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Load before each window.
    #[arg(long, value_parser = parse_duration, default_value = "300ms")]
    warm_up: Duration,
    /// Contenders instead of the experiment's own.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Sizes in bytes instead of the experiment's own.
    #[arg(long, value_delimiter = ',')]
    sizes: Option<Vec<usize>>,
    /// Requests per second instead of the experiment's own, ascending.
    #[arg(long, value_delimiter = ',')]
    rates: Option<Vec<f64>>,
    /// Clients instead of the experiment's own number.
    #[arg(long)]
    clients: Option<usize>,
    /// Fewer sizes, three rounds of a second: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Where results go, a folder for each experiment.
    #[arg(long, default_value = "lab-results")]
    out: PathBuf,
    /// Also write the figures into docs/figures.
    #[arg(long)]
    publish: bool,
    /// Weir's binary.
    #[arg(long, default_value = "target/release/weir")]
    weir: PathBuf,
    /// Measure with wrk as well, as a check on the lab's own generator.
    #[arg(long)]
    cross_check: bool,
    /// Install peers that are missing (apt-get, as root; Envoy by pip, into ~/.cache/weir-lab).
    #[arg(long)]
    install: bool,
}

pub(crate) fn run() -> Result<()> {
    match Cli::parse().command {
        Command::Run(run) => run.run(),
        Command::List { weir } => {
            list(&weir);
            Ok(())
        }
        Command::Report { out, publish } => report_all(&out, publish),
        Command::Floor { port, root, from_files } => {
            run_floor(port, &root, if from_files { Pages::File } else { Pages::Memfd })
        }
        Command::App { unix, think: Some(think), .. } => origin::serve(&unix, think),
        Command::App { unix, servers: None, .. } => run_app(&unix),
        Command::App { unix, servers: Some(servers), work, .. } => {
            costly::serve(&unix, Capacity { servers: servers.into(), work })
        }
        Command::Agent { unix } => agent::serve(&unix),
    }
}

impl Run {
    fn run(&self) -> Result<()> {
        let experiments: Vec<&Experiment> = if self.experiments == ["all"] {
            experiment::ALL.iter().collect()
        } else {
            let ids = self.experiments.iter();
            ids.map(|id| Experiment::with_id(id)).collect::<Result<_>>()?
        };
        let options = self.options()?;
        for experiment in experiments {
            complain(&format!("{}: {}", experiment.id, experiment.title));
            let record = match experiment.run(&options) {
                Err(Error::Unavailable(reason)) => {
                    complain(&format!("skipped: {}: {reason}", experiment.id));
                    continue;
                }
                run => run?,
            };
            let folder = result_folder(&self.out, experiment.id)?;
            record.write(&folder)?;
            report::write(&record, &folder)?;
            if self.publish {
                report::write_figures(&record, Path::new("docs/figures"))?;
            }
            say(&report::markdown(&record));
            complain(&format!("written to {}", folder.display()));
        }
        Ok(())
    }

    fn options(&self) -> Result<Options> {
        let (rounds, seconds) = if self.quick { QUICK } else { FULL };
        let rounds = self.rounds.unwrap_or(rounds);
        if rounds == 0 {
            return Err(Error::Usage("--rounds must be at least 1".to_owned()));
        }
        if self.sizes.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::Usage("--sizes must name at least one size".to_owned()));
        }
        let is_rate = |rate: &f64| rate.is_finite() && *rate >= 1.0;
        if self.rates.as_ref().is_some_and(|rates| rates.is_empty() || !rates.iter().all(is_rate)) {
            return Err(Error::Usage(
                "--rates must name rates of at least 1 per second".to_owned(),
            ));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Children are started from other folders.
        let weir = fs::canonicalize(&self.weir).unwrap_or_else(|_| self.weir.clone());
        Ok(Options {
            rounds,
            window: self.duration.unwrap_or(Duration::from_secs_f64(seconds)),
            warm_up: self.warm_up,
            contenders: self.contenders.clone(),
            quick: self.quick,
            sizes: self.sizes.clone(),
            rates: self.rates.clone(),
            clients: self.clients,
            weir,
            cross_check: self.cross_check,
            install: self.install,
            cores: Cores::choose(cores),
            command: command_line(),
            progress: complain,
        })
    }
}

/// The folder of an experiment's results. They describe a machine, not the project: git ignores
/// them, whatever the folder is called.
fn result_folder(out: &Path, id: &str) -> Result<PathBuf> {
    let folder = out.join(id);
    fs::create_dir_all(&folder).doing(|| format!("creating {}", folder.display()))?;
    let ignore = out.join(".gitignore");
    fs::write(&ignore, "*\n").doing(|| format!("writing {}", ignore.display()))?;
    Ok(folder)
}

/// The command that repeats this run from the project's root.
fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --release -p weir-lab -- {}", arguments.join(" "))
}

fn list(weir: &Path) {
    say("Experiments:\n");
    for experiment in &experiment::ALL {
        say(&format!("  {:<5} {}\n", experiment.id, experiment.title));
        say(&format!("        contenders: {}\n", experiment.contenders.join(", ")));
    }
    say("Contenders:\n");
    for contender in &contender::ALL {
        let state = match contender.program(weir) {
            Ok(program) => format!("{} ({})", contender.version(&program), program.display()),
            Err(error) => error.to_string(),
        };
        say(&format!("  {:<9} {state}\n", contender.name));
    }
}

fn report_all(out: &Path, publish: bool) -> Result<()> {
    let mut found = false;
    for experiment in &experiment::ALL {
        let folder = out.join(experiment.id);
        if !folder.join(Record::FILE).is_file() {
            continue;
        }
        found = true;
        let record = Record::read(&folder)?;
        report::write(&record, &folder)?;
        if publish {
            report::write_figures(&record, Path::new("docs/figures"))?;
        }
        say(&report::markdown(&record));
    }
    if found { Ok(()) } else { Err(Error::Usage(format!("no results in {}", out.display()))) }
}

fn run_floor(port: u16, root: &Path, pages: Pages) -> Result<()> {
    let mut content = Folder::load(root, pages)?;
    let address = SockAddr::from(std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let listener = listen(Domain::IPV4, &address, &format!("port {port}"))?;
    serve(&listener, &mut content)
}

fn run_app(path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let address = SockAddr::unix(path).doing(|| name.clone())?;
    let listener = listen(Domain::UNIX, &address, &name)?;
    serve(&listener, &mut Application::default())
}

fn listen(domain: Domain, address: &SockAddr, name: &str) -> Result<OwnedFd> {
    let attempt = || -> std::io::Result<Socket> {
        let socket = Socket::new(domain, Type::STREAM, None)?;
        if domain == Domain::IPV4 {
            socket.set_reuse_address(true)?;
            // Inherited by accepted connections: a head under MSG_MORE and the last, short segment
            // of a body must not wait for an acknowledgement.
            socket.set_tcp_nodelay(true)?;
        }
        socket.bind(address)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    attempt().map(OwnedFd::from).doing(|| format!("listening on {name}"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value * unit_s <= 3_600.0 => {
            Ok(Duration::from_secs_f64(value * unit_s))
        }
        _ => Err(format!("expected a time such as 3s or 500ms, up to an hour, not {text:?}")),
    }
}

/// Results go to standard output. Nobody there to read them is no reason to stop measuring.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Everything else goes to standard error.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text, expect: Option<u64>| {
            assert_eq!(parse_duration(text).ok().map(|d| d.as_millis() as u64), expect, "{text}");
        };
        check("3s", Some(3_000));
        check("2", Some(2_000));
        check("500ms", Some(500));
        check("0.5s", Some(500));
        check("0s", None);
        check("-1s", None);
        check("3h", None);
        check("4000s", None);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
