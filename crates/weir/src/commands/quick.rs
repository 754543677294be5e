//! `weir demo`, `weir serve` and `weir proxy`: servers without a configuration file. They do
//! exactly what a file with one site would, and print it on request.

use std::net::SocketAddr;

use weir_config::{Address, Config, Source};

use super::{Failure, log_listening, print};
use crate::cli::{Demo, Proxy, Quick, Serve};
use crate::logging;
use crate::serving::{self, Origin, Settings};

/// Serves a directory.
///
/// # Errors
/// Why the server cannot start.
pub(super) fn serve(serve: &Serve) -> Result<(), Failure> {
    let listen = weir_config::parse_listen(&serve.quick.listen)?;
    let mut config = weir_config::serve_dir(&serve.directory, listen, workers(&serve.quick));
    for route in config.sites.iter_mut().flat_map(|site| &mut site.routes) {
        if let Source::Files(files) = &mut route.source {
            files.listing = serve.listing;
        }
    }
    run(config, &serve.quick)
}

/// Caches an origin.
///
/// # Errors
/// Why the server cannot start.
pub(super) fn proxy(proxy: &Proxy) -> Result<(), Failure> {
    let listen = weir_config::parse_listen(&proxy.quick.listen)?;
    run(weir_config::proxy_url(&proxy.url, listen, workers(&proxy.quick))?, &proxy.quick)
}

/// Runs the demo's origin and Weir in front of it.
///
/// # Errors
/// Why the two cannot start.
pub(super) fn demo(demo: &Demo) -> Result<(), Failure> {
    logging::start();
    let listen = weir_config::parse_listen(&demo.listen)?;
    let origin = start_origin().map_err(|e| format!("cannot start the demo's origin: {e}"))?;
    let mut config = weir_config::proxy_url(&format!("http://{origin}"), listen, None)?;
    config.server.admin = admin(&demo.admin)?;
    let settings = Settings { origin: command_line(&config), config, admin_is_optional: false };
    Ok(serving::serve(settings, |listening| {
        let front = listening.urls.first().map_or("", String::as_str);
        let admin = listening.admin.as_deref().unwrap_or("127.0.0.1:9900");
        // A terminal that is gone needs no banner.
        let _ = print(&weir::demo::banner(front, admin));
    })?)
}

/// Starts the demo's origin on a thread of its own and a port of the kernel's choice.
fn start_origin() -> std::io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("demo-origin".to_owned()).spawn(move || {
        runtime.block_on(async {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => match weir::demo::serve(listener).await {},
                Err(cause) => tracing::error!(%cause, "the demo's origin cannot listen"),
            }
        });
    })?;
    Ok(address)
}

fn run(mut config: Config, quick: &Quick) -> Result<(), Failure> {
    if let Some(address) = &quick.admin {
        config.server.admin = admin(address)?;
    }
    if quick.print_config {
        return print(&weir_config::print(&config));
    }
    logging::start();
    weir_config::check_files(&config)?;
    let settings = Settings {
        origin: command_line(&config),
        config,
        admin_is_optional: quick.admin.is_none(),
    };
    Ok(serving::serve(settings, log_listening)?)
}

fn command_line(config: &Config) -> Origin {
    Origin::CommandLine(Box::new(config.clone()))
}

fn workers(quick: &Quick) -> Option<usize> {
    quick.workers.map(usize::from)
}

/// An admin address from the command line: loopback, a Unix-domain socket, or none.
fn admin(text: &str) -> Result<Option<Address>, Failure> {
    if text == "off" {
        return Ok(None);
    }
    match weir_config::parse_listen(text)? {
        Address::Tcp(address) if !address.ip().is_loopback() => Err(Failure::from(format!(
            "the admin API does not listen on {address} without a configuration file that says \
             allow-remote; use a loopback address or unix:PATH"
        ))),
        address => Ok(Some(address)),
    }
}
