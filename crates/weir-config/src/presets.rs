//! The configurations of `weir serve DIR` and `weir proxy URL`: what a file with one site says.

use std::path::Path;

use crate::address;
use crate::error::{ConfigError, Errors};
use crate::keys::INDEX_DEFAULT;
use crate::model::{
    Address, Config, Files, HostHeader, Listener, Pattern, Proxy, Route, RouteAdapt, RouteCache,
    Server, Site, Source, Upstream,
};
use crate::url;
use crate::value::Wrong;

/// Reads a listener's address as `listen` and `--listen` take it: `:8080`, `127.0.0.1:8080`,
/// `[::1]:8080`, `unix:/path`.
///
/// # Errors
/// Says what an address looks like, and what was probably meant.
pub fn parse_listen(text: &str) -> Result<Address, String> {
    address::parse_address(text)
        .map_err(|wrong| explain(text, wrong, address::LISTEN_ADDRESS.what).to_string())
}

/// The configuration of `weir serve DIR`. `workers`: `None` is one per core. The directory is
/// made absolute; whether it exists is [`crate::check_files`]'s to say.
pub fn serve_dir(directory: &Path, listen: Address, workers: Option<usize>) -> Config {
    let root = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let files = Files {
        root,
        index: vec![INDEX_DEFAULT.to_owned()],
        listing: false,
        precompressed: true,
        strip_prefix: false,
        cache_control: None,
    };
    one_site(Source::Files(files), Vec::new(), listen, workers)
}

/// The configuration of `weir proxy URL`. `workers`: `None` is one per core.
///
/// # Errors
/// What is wrong with the URL.
pub fn proxy_url(url: &str, listen: Address, workers: Option<usize>) -> Result<Config, Errors> {
    let (origin, path_prefix) =
        url::parse(url).map_err(|wrong| explain(url, wrong, url::SERVER_URL.what))?;
    let upstream = origin.name();
    let group = Upstream::new(upstream.clone(), vec![origin.into_server(1)]);
    let proxy = Proxy { upstream, strip_prefix: false, path_prefix, host: HostHeader::Client };
    Ok(one_site(Source::Proxy(proxy), vec![group], listen, workers))
}

fn one_site(
    source: Source,
    upstreams: Vec<Upstream>,
    listen: Address,
    workers: Option<usize>,
) -> Config {
    let route = Route {
        pattern: Pattern::Prefix("/".to_owned()),
        source,
        cache: RouteCache::default(),
        response_headers: Vec::new(),
        request_headers: Vec::new(),
        body_size: None,
        body_buffer: None,
        body_min_rate: None,
        plugins: Vec::new(),
        adapt: RouteAdapt::default(),
        icap: None,
    };
    let site = Site {
        names: vec!["*".to_owned()],
        listeners: vec![Listener { address: listen, tls: None, proxy_protocol: false }],
        certificates: Vec::new(),
        access_log: None,
        plugins: Vec::new(),
        routes: vec![route],
    };
    Config {
        server: Server { workers, ..Server::default() },
        upstreams,
        sites: vec![site],
        ..Config::default()
    }
}

fn explain(given: &str, wrong: Wrong, what: &str) -> ConfigError {
    let reason = wrong.reason.unwrap_or_else(|| "this is not understood".to_owned());
    let mut error = ConfigError::whole(given, reason);
    error.suggest(wrong.suggestion).expect([what]);
    error
}
