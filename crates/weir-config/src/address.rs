//! Addresses to listen on and host names, as text. Nothing is resolved here.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::model::Address;
use crate::value::{TextKind, Value, Wrong};

/// The longest path that fits in `sockaddr_un` with its terminating zero (unix(7)).
const UNIX_PATH_MAX: usize = 107;
/// The longest host name, and the longest part between two dots (RFC 1035, section 2.3.4).
const HOST_MAX: usize = 253;
const LABEL_MAX: usize = 63;

pub(crate) static LISTEN_ADDRESS: TextKind = TextKind {
    what: "an address such as \":8080\", \"127.0.0.1:8080\", \"[::1]:8080\" or \"unix:/run/weir.sock\"",
    parse: |text| parse_address(text).map(Value::Address),
};

pub(crate) static ADMIN_ADDRESS: TextKind = TextKind {
    what: "an address such as \"127.0.0.1:9900\" or \"unix:/run/weir/admin.sock\", or \"off\"",
    parse: |text| match text {
        "off" => Ok(Value::Word("off")),
        _ => parse_address(text).map(Value::Address),
    },
};

pub(crate) static SITE_NAME: TextKind = TextKind {
    what: "a host name such as \"shop.example\", a wildcard such as \"*.shop.example\", or \"*\" for any",
    parse: |text| site_name(text).map(Value::Text),
};

/// `ip:port`, `:port` (all interfaces, IPv6 and IPv4), or `unix:/path`.
pub(crate) fn parse_address(text: &str) -> Result<Address, Wrong> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix_path(path).map(Address::Unix);
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = parse_port(port)?;
        return Ok(Address::Tcp(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Address::Tcp(address));
    }
    Err(explain_address(text))
}

fn explain_address(text: &str) -> Wrong {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        return Wrong::because(
            "a port alone does not say on which interfaces; a colon before it means all",
        )
        .suggesting(format!(":{text}"));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Wrong::because("the port is missing")
            .suggesting(SocketAddr::new(ip, 80).to_string());
    }
    if let Some(port) = text.strip_prefix("*:").or_else(|| text.strip_prefix("localhost:")) {
        let host = if text.starts_with('*') { "" } else { "127.0.0.1" };
        return Wrong::because("an address has numbers, no names")
            .suggesting(format!("{host}:{port}"));
    }
    if text.starts_with('/') {
        return Wrong::because("a socket's path needs its scheme")
            .suggesting(format!("unix:{text}"));
    }
    if text.contains("://") {
        return Wrong::because("a listener is an address, not a URL");
    }
    match text.rsplit_once(':') {
        Some((_, port)) if parse_port(port).is_err() => {
            Wrong::because("a port is a number from 0 to 65535")
        }
        _ => Wrong::default(),
    }
}

/// A decimal port; 0 lets the system choose.
pub(crate) fn parse_port(text: &str) -> Result<u16, Wrong> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { text.parse().ok() } else { None };
    port.ok_or_else(|| Wrong::because("a port is a number from 0 to 65535"))
}

/// The path of a Unix-domain socket: absolute, so that it means the same to every process.
pub(crate) fn unix_path(path: &str) -> Result<PathBuf, Wrong> {
    if !path.starts_with('/') {
        return Err(Wrong::because("the path of a socket must be absolute"));
    }
    if path.len() > UNIX_PATH_MAX || path.contains('\0') {
        let reason = format!("the path of a socket has at most {UNIX_PATH_MAX} bytes, none zero");
        return Err(Wrong::because(reason));
    }
    Ok(Path::new(path).to_owned())
}

/// An address as it is written in a configuration.
pub(crate) fn print_address(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// A site's name in lower case.
fn site_name(text: &str) -> Result<String, Wrong> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    if text.contains("://") || text.contains('/') {
        return Err(Wrong::because("a site's name has neither scheme nor path"));
    }
    if text.starts_with('[') {
        let ip = text.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let ip: Option<Ipv6Addr> = ip.and_then(|ip| ip.parse().ok());
        return ip.map(|ip| format!("[{ip}]")).ok_or_else(Wrong::default);
    }
    if let Some((host, _)) = text.split_once(':') {
        let reason = "a site's name has no port; ports belong to `listen`";
        return Err(Wrong::because(reason).suggesting(host));
    }
    let host = text.strip_prefix("*.").unwrap_or(text);
    host_name(host)?;
    Ok(text.to_ascii_lowercase())
}

/// Checks a host name: letters, digits, hyphens and (seen in the wild) underscores in labels.
pub(crate) fn host_name(host: &str) -> Result<(), Wrong> {
    if host.is_empty() || host.len() > HOST_MAX {
        return Err(Wrong::because(format!("a host name has 1 to {HOST_MAX} characters")));
    }
    if !host.is_ascii() {
        return Err(Wrong::because("international names are written in their xn-- form"));
    }
    if host.contains('*') {
        return Err(Wrong::because("`*` may only stand alone or as the whole first label"));
    }
    for label in host.split('.') {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if label.is_empty() || label.len() > LABEL_MAX {
            let reason = format!("between two dots stand 1 to {LABEL_MAX} characters");
            return Err(Wrong::because(reason));
        }
        if let Some(byte) = label.bytes().find(|&byte| !known(byte)) {
            let reason = format!("'{}' may not stand in a host name", char::from(byte));
            return Err(Wrong::because(reason));
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(Wrong::because("no part of a host name starts or ends with a hyphen"));
        }
    }
    Ok(())
}
