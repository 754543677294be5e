//! URLs of upstream servers: `http://host:port`, `https://host`, `unix:/path`. Only what a server
//! needs: no user, no query, and a path only where the key allows one.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::address::{host_name, parse_port, unix_path};
use crate::model::{HostHeader, Target, UpstreamServer};
use crate::rules::check_path;
use crate::value::{TextKind, Value, Wrong};

/// The Host of requests to a Unix-domain socket that rewrites it: there is no name to send.
const UNIX_AUTHORITY: &str = "localhost";

/// Longest upstream name: it labels metrics.
const NAME_MAX: usize = 64;

pub(crate) static SERVER_URL: TextKind = TextKind {
    what: "a URL such as \"http://10.0.0.5:8080\", \"https://app.example\" or \"unix:/run/app.sock\"",
    parse: |text| {
        let (origin, path) = parse(text)?;
        if !path.is_empty() {
            let reason = "a server has no path; a path belongs to the URL of `proxy`";
            return Err(Wrong::because(reason).suggesting(origin.name()));
        }
        Ok(Value::Origin(origin))
    },
};

pub(crate) static PROXY_TARGET: TextKind = TextKind {
    what: "a URL such as \"http://10.0.0.5:8080\" or \"unix:/run/app.sock\", or the name of an `upstream`",
    parse: |text| {
        if upstream_name(text).is_ok() {
            return Ok(Value::ProxyTarget(ProxyTarget::Name(text.to_owned())));
        }
        let (origin, path) = parse(text)?;
        Ok(Value::ProxyTarget(ProxyTarget::Url(origin, path)))
    },
};

pub(crate) static UPSTREAM_NAME: TextKind = TextKind {
    what: "a name of 1 to 64 letters, digits, '-', '_' and '.'",
    parse: |text| upstream_name(text).map(|()| Value::Text(text.to_owned())),
};

pub(crate) static HOST_HEADER: TextKind = TextKind {
    what: "\"client\", \"upstream\", or a host name with an optional port",
    parse: |text| match text {
        "client" => Ok(Value::HostHeader(HostHeader::Client)),
        "upstream" => Ok(Value::HostHeader(HostHeader::Upstream)),
        _ => {
            authority(text, 0)?;
            Ok(Value::HostHeader(HostHeader::Fixed(text.to_owned())))
        }
    },
};

pub(crate) static SERVER_NAME: TextKind = TextKind {
    what: "a host name such as \"app.example\"",
    parse: |text| host_name(text).map(|()| Value::Text(text.to_ascii_lowercase())),
};

/// A server as its URL gives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    tls: bool,
    target: Target,
    authority: String,
}

/// What `proxy` names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ProxyTarget {
    /// An `upstream` block.
    Name(String),
    /// A server, and the path put before the request's.
    Url(Origin, String),
}

impl Origin {
    /// The URL without a path: the name of the anonymous group with this one server.
    pub(crate) fn name(&self) -> String {
        server_url(self.tls, &self.target, &self.authority)
    }

    /// The server with a weight.
    pub(crate) fn into_server(self, weight: u32) -> UpstreamServer {
        let Origin { tls, target, authority } = self;
        UpstreamServer { tls, target, authority, weight }
    }
}

/// A server's URL as it is written in a configuration.
pub(crate) fn server_url(tls: bool, target: &Target, authority: &str) -> String {
    match target {
        Target::Unix(path) => format!("unix:{}", path.display()),
        Target::Host(..) if tls => format!("https://{authority}"),
        Target::Host(..) => format!("http://{authority}"),
    }
}

/// Splits a URL into the server and the path without its trailing slash.
pub(crate) fn parse(text: &str) -> Result<(Origin, String), Wrong> {
    if let Some(path) = text.strip_prefix("unix:") {
        let target = Target::Unix(unix_path(path)?);
        let authority = UNIX_AUTHORITY.to_owned();
        return Ok((Origin { tls: false, target, authority }, String::new()));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let guess = text.contains(':') && authority(text, 80).is_ok();
        let wrong = Wrong::because("the scheme is missing");
        return Err(if guess {
            wrong.suggesting(format!("http://{text}"))
        } else {
            Wrong::default()
        });
    };
    let (tls, default_port) = match scheme {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return Err(Wrong::because("the scheme must be http, https or unix")),
    };
    if rest.contains(['?', '#']) {
        return Err(Wrong::because("a server's URL has neither query nor fragment"));
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let target = authority(host, default_port)?;
    if !path.is_empty() {
        check_path(path)?;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    Ok((Origin { tls, target, authority: host.to_ascii_lowercase() }, path.to_owned()))
}

/// Reads `host`, `host:port`, `[ipv6]` or `[ipv6]:port`.
pub(crate) fn authority(text: &str, default_port: u16) -> Result<Target, Wrong> {
    if text.contains('@') {
        return Err(Wrong::because("a user or password has no place in this URL"));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, port) = rest.split_once(']').ok_or_else(Wrong::default)?;
        let ip: Ipv6Addr =
            ip.parse().map_err(|_| Wrong::because("between [ and ] stands an IPv6 address"))?;
        return Ok(Target::Host(ip.to_string(), optional_port(port, default_port)?));
    }
    let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
    host_name(host)?;
    // All digits and dots is an address, and a wrong one would go to the resolver as a name.
    let numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err(Wrong::because("this is no IPv4 address"));
    }
    Ok(Target::Host(host.to_ascii_lowercase(), optional_port(port, default_port)?))
}

fn optional_port(text: &str, default_port: u16) -> Result<u16, Wrong> {
    if text.is_empty() {
        return Ok(default_port);
    }
    let port = text.strip_prefix(':').ok_or_else(Wrong::default)?;
    match parse_port(port)? {
        0 => Err(Wrong::because("port 0 cannot be connected to")),
        port => Ok(port),
    }
}

fn upstream_name(text: &str) -> Result<(), Wrong> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(known) {
        return Err(Wrong::default());
    }
    Ok(())
}
