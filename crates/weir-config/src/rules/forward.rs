//! Rules for text values of the `forward` block: where requests may go.

use crate::address::host_name;
use crate::model::Destination;
use crate::prefix::parse_prefix;
use crate::value::{TextKind, Value, Wrong};

pub(crate) static DESTINATION: TextKind = TextKind {
    what: "a host name such as \"shop.example\", a wildcard such as \"*.shop.example\", an address \
           or a prefix such as \"10.0.0.0/8\", or \"*\" for any",
    parse: |text| destination(text).map(Value::Destination),
};

pub(crate) static REALM: TextKind = TextKind {
    what: "a text of printable ASCII without quotes and backslashes",
    parse: |text| {
        let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        match text.bytes().all(plain) && text.len() <= REALM_MAX {
            true => Ok(Value::Text(text.to_owned())),
            false => Err(Wrong::default()),
        }
    },
};

/// Longest realm, in bytes.
const REALM_MAX: usize = 100;

pub(crate) static NAMED: TextKind = TextKind {
    what: "a host name such as \"shop.example\" or a wildcard such as \"*.shop.example\"",
    parse: |text| match destination(text)? {
        Destination::Any => Err(Wrong::because("each host is named, or the domain it is in")),
        Destination::Prefix(_) => Err(Wrong::because("only hosts with a name can be inspected")),
        named => Ok(Value::Destination(named)),
    },
};

fn destination(text: &str) -> Result<Destination, Wrong> {
    if text == "*" {
        return Ok(Destination::Any);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split('/').next().unwrap_or_default();
        return Err(Wrong::because("it is a host, without scheme and path").suggesting(host));
    }
    let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    if is_address || text.contains('/') {
        return parse_prefix(bare).map(Destination::Prefix);
    }
    if let Some((host, _)) = text.rsplit_once(':') {
        return Err(Wrong::because("a port stands beside it: port=…").suggesting(host));
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    host_name(name)?;
    if ends_in_number(name) {
        // Resolvers take such names for addresses, in ways of their own.
        return Err(Wrong::because("an IPv4 address has four numbers"));
    }
    let name = name.to_ascii_lowercase();
    Ok(match text.strip_prefix('*') {
        Some(_) => Destination::Suffix(format!(".{name}")),
        None => Destination::Host(name),
    })
}

fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit())
}
