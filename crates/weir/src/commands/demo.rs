//! `weir demo`: the demo's origin, Weir in front of it, and a plugin that is deployed into that as
//! anybody could, with a picture before and after.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use weir::demo::{
    ADAPTED_ROUTES, ADS_LIST, Front, GRAY, GRAY_PATTERN, GRAY_PICTURE, GRAY_PREFIX, GUARD, GUARDED,
    SALE_PLACES, Shown, UNGUARDED,
};
use weir_config::{Concurrency, Config, Pattern, Source};

use super::quick::{admin, command_line};
use super::{Failure, print};
use crate::admin_client;
use crate::cli::Demo;
use crate::logging;
use crate::serving::{self, Settings};

/// The demo's own requests go over loopback to what was started a moment ago.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the demo's origin and Weir in front of it.
///
/// # Errors
/// Why the two cannot start.
pub(super) fn demo(demo: &Demo) -> Result<(), Failure> {
    logging::start();
    let listen = weir_config::parse_listen(&demo.listen)?;
    let crowds_to = Front::default();
    let origin = start_origin(Front::clone(&crowds_to))
        .map_err(|e| format!("cannot start the demo's origin: {e}"))?;
    let mut config = weir_config::proxy_url(&format!("http://{origin}"), listen, None)?;
    config.server.admin = admin(&demo.admin)?;
    add_route_for_plugin(&mut config);
    // Reloads read it again: it is there until the end.
    let _list = add_adapted_routes(&mut config, origin)?;
    add_routes_for_guard(&mut config)?;
    let settings = Settings { origin: command_line(&config), config, admin_is_optional: false };
    Ok(serving::serve(settings, |listening| {
        let front = listening.urls.first().cloned().unwrap_or_default();
        if let Some(address) = here(&front) {
            let _first = crowds_to.set(address);
        }
        let admin = listening.admin.clone();
        // On a thread: the admin API answers only once this has returned.
        let told = std::thread::Builder::new().name("demo".to_owned()).spawn(move || {
            let plugin = match &admin {
                Some(admin) => show_plugin(&front, admin),
                None => Err("there is no admin API".to_owned()),
            };
            let admin = admin.as_deref().unwrap_or("127.0.0.1:9900");
            // A terminal that is gone needs no banner.
            let _ = print(&weir::demo::banner(&front, admin, &plugin));
        });
        if let Err(cause) = told {
            tracing::error!(%cause, "no thread for the demo's banner");
        }
    })?)
}

/// The pictures once more, under a path of their own.
fn add_route_for_plugin(config: &mut Config) {
    for site in &mut config.sites {
        let Some(mut route) = site.routes.first().cloned() else { continue };
        route.pattern = Pattern::Prefix(GRAY_PREFIX.to_owned());
        if let Source::Proxy(proxy) = &mut route.source {
            proxy.strip_prefix = true;
            proxy.path_prefix = "/pictures".to_owned();
        }
        site.routes.push(route);
    }
}

/// Routes that adapt, and the list of ads that they name, which is a file in memory: the demo
/// writes nothing to disk.
fn add_adapted_routes(config: &mut Config, origin: SocketAddr) -> Result<File, Failure> {
    let failed = |cause| Failure(format!("no file for the demo's list of ads: {cause}"));
    let list = memfd_create("weir-demo-ads", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut list = File::from(list);
    list.write_all(ADS_LIST.as_bytes()).map_err(failed)?;
    let routes = ADAPTED_ROUTES
        .replace("{origin}", &format!("http://{origin}"))
        .replace("{list}", &format!("/proc/self/fd/{}", list.as_raw_fd()));
    let site = format!("site \"demo\" {{\nlisten \"127.0.0.1:1\"\n{routes}}}\n");
    let adapted = weir_config::parse("demo", &site)?;
    let routes: Vec<_> = adapted.sites.into_iter().flat_map(|site| site.routes).collect();
    for site in &mut config.sites {
        site.routes.extend_from_slice(&routes);
    }
    Ok(list)
}

/// One page behind two upstreams: one without a limit, and one that lets as many requests through
/// at a time as the application behind it works on.
fn add_routes_for_guard(config: &mut Config) -> Result<(), Failure> {
    config.guard = weir_config::parse_guard("demo", GUARD, config)?;
    let limits = [(UNGUARDED, Concurrency::Unlimited), (GUARDED, Concurrency::Fixed(SALE_PLACES))];
    for (path, concurrency) in limits {
        let Some(mut upstream) = config.upstreams.first().cloned() else { continue };
        upstream.name = path.trim_start_matches('/').replace('/', "-");
        upstream.concurrency = concurrency;
        for site in &mut config.sites {
            let Some(mut route) = site.routes.first().cloned() else { continue };
            route.pattern = Pattern::Exact(path.to_owned());
            route.cache.enabled = false;
            if let Source::Proxy(proxy) = &mut route.source {
                proxy.upstream.clone_from(&upstream.name);
            }
            site.routes.push(route);
        }
        config.upstreams.push(upstream);
    }
    Ok(())
}

/// Where a listener of this machine is reached from this machine.
fn here(url: &str) -> Option<SocketAddr> {
    let mut address: SocketAddr =
        url.strip_prefix("http://")?.trim_end_matches('/').parse().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Some(address)
}

/// Fetches a picture, deploys the plugin, and fetches the picture again.
fn show_plugin(front: &str, admin: &str) -> Result<Shown, String> {
    let before = fetch(front)?;
    let begin = Instant::now();
    let path = format!("/plugins/gray?at=fill&route={GRAY_PATTERN}");
    admin_client::upload(admin, &path, "application/wasm", GRAY.to_vec())
        .map_err(|failure| failure.to_string())?;
    let deployed_ms = begin.elapsed().as_millis();
    Ok(Shown { before, after: fetch(front)?, deployed_ms })
}

/// Media type and bytes of the picture as it is served now.
fn fetch(front: &str) -> Result<(String, usize), String> {
    let failed = |cause: std::io::Error| format!("the picture cannot be had: {cause}");
    let address = front.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let address = address.ok_or_else(|| format!("{front} is not an address to fetch it from"))?;
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(FETCH_TIMEOUT)).map_err(failed)?;
    let request = format!("GET {GRAY_PICTURE} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    media_type_and_bytes(&answer).ok_or_else(|| "the answer is no picture".to_owned())
}

fn media_type_and_bytes(answer: &[u8]) -> Option<(String, usize)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let media_type = head.lines().find_map(|line| line.strip_prefix("content-type: "))?;
    Some((media_type.to_owned(), answer.len() - end - 4))
}

/// Starts the demo's origin on a thread of its own and a port of the kernel's choice.
fn start_origin(front: Front) -> std::io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("demo-origin".to_owned()).spawn(move || {
        runtime.block_on(async {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => match weir::demo::serve(listener, front).await {},
                Err(cause) => tracing::error!(%cause, "the demo's origin cannot listen"),
            }
        });
    })?;
    Ok(address)
}
