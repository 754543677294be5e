//! Prints a configuration as KDL that parses to the same configuration: all of the settings of the
//! process, the cache, the upstreams and the plugins, and of adaptation, sites and routes what is
//! not a default.

mod adapt;
mod forward;
mod guard;
mod html;
mod icap;
mod image;
mod plugin;

pub use guard::print_rules;

use std::fmt::{self, Display, Write};
use std::path::Path;
use std::time::Duration;

use crate::address::print_address;
use crate::keys::INDEX_DEFAULT;
use crate::model::*;
use crate::url::server_url;
use crate::value::{print_size, print_time};

/// Prints a configuration as KDL, for `--print-config`.
///
/// Anonymous upstream groups are printed as the URLs that made them.
pub fn print(config: &Config) -> String {
    let mut out = Printer::default();
    out.server(&config.server);
    out.cache(&config.cache);
    for upstream in config.upstreams.iter().filter(|upstream| !is_anonymous(&upstream.name)) {
        out.upstream(upstream);
    }
    out.plugins(config);
    out.guard(&config.guard);
    out.adapt(&config.adapt);
    config.icap.iter().for_each(|icap| out.icap(icap));
    for site in &config.sites {
        out.site(site);
    }
    out.text
}

/// Anonymous groups have the name of their URL, and no name written in a file has a colon.
fn is_anonymous(upstream: &str) -> bool {
    upstream.contains(':')
}

#[derive(Default)]
struct Printer {
    text: String,
    depth: usize,
}

impl Printer {
    fn line(&mut self, line: impl Display) {
        let indent = "    ".repeat(self.depth);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{indent}{line}");
    }

    fn block(&mut self, head: impl Display, inside: impl FnOnce(&mut Self)) {
        self.line(format_args!("{head} {{"));
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line("}");
    }

    fn server(&mut self, server: &Server) {
        self.block("server", |out| {
            match server.workers {
                Some(count) => out.line(format_args!("workers {count}")),
                None => out.line("workers \"auto\""),
            }
            match &server.admin {
                Some(address) => {
                    out.line(format_args!("admin {}{}", address_text(address), remote(address)))
                }
                None => out.line("admin \"off\""),
            }
            if let Some(user) = &server.user {
                let keep = if server.keep_bpf { " keep-bpf=#true" } else { "" };
                out.line(format_args!("user {}{keep}", quote(user)));
            }
            if let Some(group) = &server.group {
                out.line(format_args!("group {}", quote(group)));
            }
            out.line(format_args!("watch {}", switch(server.watch)));
            out.line(format_args!("drain-timeout {}", time(server.drain_timeout)));
            if !server.trusted_proxies.is_empty() {
                let quoted = server.trusted_proxies.iter().map(|prefix| format!("\"{prefix}\""));
                let prefixes = quoted.collect::<Vec<_>>().join(" ");
                out.line(format_args!("trusted-proxies {prefixes}"));
            }
            out.block("limits", |out| out.limits(&server.limits));
        });
    }

    fn limits(&mut self, limits: &Limits) {
        self.line(format_args!("connections {}", limits.connections));
        self.line(format_args!("header-size {}", size(limits.header_size as u64)));
        self.line(format_args!("header-count {}", limits.header_count));
        self.line(format_args!("body-size {}", size(limits.body_size)));
        self.line(format_args!("body-buffer {}", size(limits.body_buffer)));
        self.line(format_args!("body-min-rate {}", size(limits.body_min_rate)));
        self.line(format_args!("header-timeout {}", time(limits.header_timeout)));
        self.line(format_args!("body-timeout {}", time(limits.body_timeout)));
        self.line(format_args!("send-timeout {}", time(limits.send_timeout)));
        self.line(format_args!("idle-timeout {}", time(limits.idle_timeout)));
        self.line(format_args!("http2-streams {}", limits.http2_streams));
    }

    fn cache(&mut self, cache: &Cache) {
        self.block("cache", |out| {
            out.line(format_args!("memory {}", size(cache.memory)));
            out.line(format_args!("object-max {}", size(cache.object_max)));
            let policy = match cache.policy {
                Policy::Gdsf => "gdsf",
                Policy::Lru => "lru",
            };
            out.line(format_args!("policy \"{policy}\""));
        });
    }

    fn upstream(&mut self, upstream: &Upstream) {
        self.block(format_args!("upstream {}", quote(&upstream.name)), |out| {
            for server in &upstream.servers {
                let url = server_url(server.tls, &server.target, &server.authority);
                out.line(format_args!("server {} weight={}", quote(&url), server.weight));
            }
            out.line(format_args!("balance {}", balance(&upstream.balance)));
            let protocol = match upstream.protocol {
                UpstreamProtocol::Auto => "auto",
                UpstreamProtocol::Http1 => "http1",
                UpstreamProtocol::Http2 => "http2",
            };
            out.line(format_args!("protocol \"{protocol}\""));
            let (count, timeout) = (upstream.keep_alive, time(upstream.keep_alive_timeout));
            out.line(format_args!("keep-alive {count} timeout={timeout}"));
            out.line(format_args!(
                "timeout connect={} first-byte={} idle={}",
                time(upstream.connect_timeout),
                time(upstream.first_byte_timeout),
                time(upstream.idle_timeout)
            ));
            out.line(format_args!("retries {}", upstream.retries));
            out.line(format_args!("max-requests {}", upstream.max_requests));
            match upstream.concurrency {
                Concurrency::Auto => out.line(format_args!("concurrency \"auto\"")),
                Concurrency::Fixed(limit) => out.line(format_args!("concurrency {limit}")),
                Concurrency::Unlimited => out.line(format_args!("concurrency 0")),
            }
            out.health(upstream);
            out.upstream_tls(&upstream.tls);
        });
    }

    fn health(&mut self, upstream: &Upstream) {
        if let Some(check) = &upstream.health_check {
            self.line(format_args!(
                "health-check {} interval={} timeout={} healthy={} unhealthy={} status=\"{}-{}\"",
                quote(&check.path),
                time(check.interval),
                time(check.timeout),
                check.healthy,
                check.unhealthy,
                check.status.0,
                check.status.1
            ));
        }
        let Passive { failures, window, eject } = upstream.passive;
        let (window, eject) = (time(window), time(eject));
        self.line(format_args!("passive-health failures={failures} window={window} eject={eject}"));
    }

    fn upstream_tls(&mut self, tls: &UpstreamTls) {
        if *tls == UpstreamTls::default() {
            return;
        }
        let mut line = "tls".to_owned();
        if let Some(name) = &tls.server_name {
            property(&mut line, "server-name", quote(name));
        }
        if let Some(ca) = &tls.ca {
            property(&mut line, "ca", path(ca));
        }
        if tls.insecure {
            property(&mut line, "insecure", switch(true));
        }
        self.line(line);
    }

    fn site(&mut self, site: &Site) {
        let names: Vec<String> = site.names.iter().map(|name| quote(name)).collect();
        self.block(format_args!("site {}", names.join(" ")), |out| {
            for listener in &site.listeners {
                out.listener(listener);
            }
            for certificate in &site.certificates {
                let (chain, key) = (path(&certificate.chain), path(&certificate.key));
                out.line(format_args!("certificate {chain} key={key}"));
            }
            if let Some(log) = &site.access_log {
                let format = match log.format {
                    LogFormat::Json => "json",
                    LogFormat::Combined => "combined",
                };
                out.line(format_args!("access-log {} format=\"{format}\"", path(&log.path)));
            }
            for plugin in &site.plugins {
                out.line(format_args!("use {}", quote(plugin)));
            }
            for route in &site.routes {
                out.route(route);
            }
        });
    }

    fn listener(&mut self, listener: &Listener) {
        let mut line = format!("listen {}", address_text(&listener.address));
        match listener.tls {
            Some(ListenerTls::Files) => property(&mut line, "tls", quote("auto")),
            Some(ListenerTls::SelfSigned) => property(&mut line, "tls", quote("self-signed")),
            None => {}
        }
        if listener.proxy_protocol {
            property(&mut line, "proxy-protocol", switch(true));
        }
        self.line(line);
    }

    fn route(&mut self, route: &Route) {
        let pattern = match &route.pattern {
            Pattern::Exact(path) => path.clone(),
            Pattern::Prefix(path) => format!("{path}*"),
        };
        self.block(format_args!("route {}", quote(&pattern)), |out| {
            out.source(&route.source);
            out.route_cache(&route.cache);
            out.header_edits("header", &route.response_headers);
            out.header_edits("request-header", &route.request_headers);
            out.route_limits(route);
            out.uses(&route.plugins);
            out.route_adapt(&route.adapt);
            if let Some(icap) = &route.icap {
                out.line(format_args!("icap {}", quote(icap)));
            }
        });
    }

    fn route_limits(&mut self, route: &Route) {
        let limits = [
            ("body-size", route.body_size),
            ("body-buffer", route.body_buffer),
            ("body-min-rate", route.body_min_rate),
        ];
        let mut line = String::from("limits");
        for (name, bytes) in limits {
            if let Some(bytes) = bytes {
                property(&mut line, name, size(bytes));
            }
        }
        if line != "limits" {
            self.line(line);
        }
    }

    fn source(&mut self, source: &Source) {
        match source {
            Source::Files(files) => self.files(files),
            Source::Proxy(proxy) => self.proxy(proxy),
            Source::Forward(forward) => self.forward(forward),
            Source::Redirect { status, location } => {
                self.line(format_args!("redirect {} status={status}", quote(location)));
            }
            Source::Respond { status, body, content_type } => {
                let (body, content_type) = (quote(body), quote(content_type));
                self.line(format_args!(
                    "respond {body} status={status} content-type={content_type}"
                ));
            }
        }
    }

    fn files(&mut self, files: &Files) {
        let mut line = format!("files {}", path(&files.root));
        for (name, value, default) in [
            ("listing", files.listing, false),
            ("precompressed", files.precompressed, true),
            ("strip-prefix", files.strip_prefix, false),
        ] {
            if value != default {
                property(&mut line, name, switch(value));
            }
        }
        if let Some(value) = &files.cache_control {
            property(&mut line, "cache-control", quote(value));
        }
        if files.index == [INDEX_DEFAULT] {
            return self.line(line);
        }
        let names: Vec<String> = files.index.iter().map(|name| quote(name)).collect();
        self.block(line, |out| out.line(format_args!("index {}", names.join(" "))));
    }

    fn proxy(&mut self, proxy: &Proxy) {
        let is_anonymous = is_anonymous(&proxy.upstream);
        // A socket's URL has no room for a path.
        let in_url = is_anonymous && !proxy.upstream.starts_with("unix:");
        let prefix = &proxy.path_prefix;
        let mut line = match in_url {
            true => format!("proxy {}", quote(&format!("{}{prefix}", proxy.upstream))),
            false => format!("proxy {}", quote(&proxy.upstream)),
        };
        if proxy.strip_prefix {
            property(&mut line, "strip-prefix", switch(true));
        }
        if !in_url && !prefix.is_empty() {
            property(&mut line, "path-prefix", quote(prefix));
        }
        match &proxy.host {
            HostHeader::Client => {}
            HostHeader::Upstream => property(&mut line, "host", quote("upstream")),
            HostHeader::Fixed(host) => property(&mut line, "host", quote(host)),
        }
        self.line(line);
    }

    fn route_cache(&mut self, cache: &RouteCache) {
        if !cache.enabled {
            return self.line("cache \"off\"");
        }
        let mut line = "cache".to_owned();
        for (name, value) in [
            ("ttl", cache.ttl),
            ("default-ttl", cache.default_ttl),
            ("stale-while-revalidate", cache.stale_while_revalidate),
            ("stale-if-error", cache.stale_if_error),
        ] {
            if let Some(value) = value {
                property(&mut line, name, time(value));
            }
        }
        if cache.collapse_timeout != RouteCache::default().collapse_timeout {
            property(&mut line, "collapse-timeout", time(cache.collapse_timeout));
        }
        if line != "cache" {
            self.line(line);
        }
    }

    fn header_edits(&mut self, key: &str, edits: &[HeaderEdit]) {
        if edits.is_empty() {
            return;
        }
        self.block(key, |out| {
            for edit in edits {
                match edit {
                    HeaderEdit::Set(name, value) => {
                        out.line(format_args!("set {} {}", quote(name), quote(value)));
                    }
                    HeaderEdit::Add(name, value) => {
                        out.line(format_args!("add {} {}", quote(name), quote(value)));
                    }
                    HeaderEdit::Remove(name) => out.line(format_args!("remove {}", quote(name))),
                }
            }
        });
    }
}

fn property(line: &mut String, name: &str, value: impl Display) {
    // Writing to a String cannot fail.
    let _ = write!(line, " {name}={value}");
}

fn balance(balance: &Balance) -> String {
    let key = match balance {
        Balance::RoundRobin => return quote("round-robin"),
        Balance::LeastConnections => return quote("least-connections"),
        Balance::TwoChoices => return quote("two-choices"),
        Balance::Hash(HashKey::Path) => "path".to_owned(),
        Balance::Hash(HashKey::Client) => "client".to_owned(),
        Balance::Hash(HashKey::Header(name)) => format!("header:{name}"),
        Balance::Hash(HashKey::Cookie(name)) => format!("cookie:{name}"),
    };
    format!("\"hash\" key={}", quote(&key))
}

/// The consent that an admin address which is not loopback must have been given.
fn remote(address: &Address) -> &'static str {
    match address {
        Address::Tcp(address) if !address.ip().to_canonical().is_loopback() => {
            " allow-remote=#true"
        }
        _ => "",
    }
}

fn address_text(address: &Address) -> String {
    quote(&print_address(address))
}

fn path(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

fn switch(on: bool) -> &'static str {
    if on { "#true" } else { "#false" }
}

fn size(bytes: u64) -> String {
    quote(&print_size(bytes))
}

fn time(time: Duration) -> String {
    quote(&print_time(time))
}

/// A KDL string. Everything outside of printable ASCII that is not plainly a letter is escaped:
/// line ends and controls may not stand in a string, and invisible characters should be seen.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(c),
            _ if c.is_alphanumeric() => quoted.push(c),
            _ => {
                let escape: fmt::Arguments<'_> = format_args!("\\u{{{:x}}}", c as u32);
                let _ = quoted.write_fmt(escape);
            }
        }
    }
    quoted.push('"');
    quoted
}
