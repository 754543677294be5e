//! `weir serve` and `weir proxy`: servers without a configuration file. They do exactly what a file
//! with one site would, and print it on request.

use weir_config::{Address, Config, Source};

use super::{Failure, log_listening, print};
use crate::cli::{Proxy, Quick, Serve};
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

pub(super) fn command_line(config: &Config) -> Origin {
    Origin::CommandLine(Box::new(config.clone()))
}

fn workers(quick: &Quick) -> Option<usize> {
    quick.workers.map(usize::from)
}

/// An admin address from the command line: loopback, a Unix-domain socket, or none.
pub(super) fn admin(text: &str) -> Result<Option<Address>, Failure> {
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
