//! Forwarded (RFC 7239) and the X-Forwarded-* fields: what an origin learns about the client.

use std::net::IpAddr;

use http::HeaderValue;
use http::header::{self, HeaderMap, HeaderName};

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// Bytes that Forwarded and X-Forwarded-For may have from hops before; longer ones are replaced,
/// so that a loop or a hostile client cannot make them grow.
const CHAIN_LEN_MAX: usize = 2048;

/// The hop from which a request came.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// The peer's address; `None` on a Unix-domain socket.
    pub address: Option<IpAddr>,
    /// Whether the request came over TLS.
    pub tls: bool,
    /// The host the client asked for, as written; empty if none.
    pub host: &'a str,
    /// The port on which the request came in.
    pub port: u16,
    /// Whether what the peer says about hops before it is believed and added to, or replaced.
    pub trust: bool,
}

/// Whether a field tells of the client: one of those that [`add_client`] writes.
pub fn is_about_client(name: &HeaderName) -> bool {
    // Most names begin with another letter.
    matches!(name.as_str().as_bytes()[0], b'f' | b'x') && ABOUT_CLIENT.contains(name)
}

static ABOUT_CLIENT: [HeaderName; 5] =
    [header::FORWARDED, X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT];

/// Removes what a request says of its client already.
pub fn strip_client(headers: &mut HeaderMap) {
    if headers.keys().any(is_about_client) {
        for name in &ABOUT_CLIENT {
            headers.remove(name);
        }
    }
}

/// Writes Forwarded and the X-Forwarded-* fields of a request to be forwarded.
pub fn add_client(headers: &mut HeaderMap, client: &Client<'_>) {
    let proto = if client.tls { "https" } else { "http" };
    let address = client.address.map(|address| address_text(address.to_canonical()));
    let element = forwarded_element(client, address.as_deref(), proto);
    append(headers, header::FORWARDED, &element, client.trust);
    match address {
        Some(address) => append(headers, X_FORWARDED_FOR, &address, client.trust),
        None if !client.trust => {
            headers.remove(X_FORWARDED_FOR);
        }
        None => {}
    }
    // These three have one value, the client's own; a trusted hop before knows it better.
    set(headers, X_FORWARDED_PROTO, client.trust, || HeaderValue::from_static(proto).into());
    set(headers, X_FORWARDED_HOST, client.trust, || HeaderValue::from_str(client.host).ok());
    set(headers, X_FORWARDED_PORT, client.trust, || HeaderValue::from(client.port).into());
}

/// An address as text. Every forwarded request has one, and IPv4's by the formatting machinery
/// costs as much as writing all other fields.
fn address_text(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity(15);
    let mut digits = itoa::Buffer::new();
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        text.push_str(digits.format(octet));
    }
    text
}

fn forwarded_element(client: &Client<'_>, address: Option<&str>, proto: &str) -> String {
    let mut element = String::with_capacity(64 + client.host.len());
    match address {
        // The brackets and colons of an IPv6 address need quotes (RFC 7239 §6).
        Some(address) if address.contains(':') => {
            element.push_str("for=\"[");
            element.push_str(address);
            element.push_str("]\"");
        }
        Some(address) => {
            element.push_str("for=");
            element.push_str(address);
        }
        None => element.push_str("for=unknown"),
    }
    if crate::syntax::is_token(client.host.as_bytes()) {
        element.push_str(";host=");
        element.push_str(client.host);
    } else if !client.host.is_empty() {
        element.push_str(";host=\"");
        for character in client.host.chars() {
            if matches!(character, '"' | '\\') {
                element.push('\\');
            }
            element.push(character);
        }
        element.push('"');
    }
    element.push_str(";proto=");
    element.push_str(proto);
    element
}

/// Adds `element` to what trusted hops wrote, on one line, or replaces it.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &str, trust: bool) {
    let chain = if trust { chain(headers, &name) } else { None };
    let value = match chain {
        Some(mut chain) => {
            chain.extend_from_slice(b", ");
            chain.extend_from_slice(element.as_bytes());
            HeaderValue::from_bytes(&chain)
        }
        None => HeaderValue::from_str(element),
    };
    match value {
        Ok(value) => headers.insert(name, value),
        // Only a host that was never validated can get here; say nothing rather than pass on
        // what the client wrote.
        Err(_) => headers.remove(name),
    };
}

/// The existing elements, if they are few enough and one more can follow them safely: a
/// quoted-string left open would swallow it.
fn chain(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut chain = Vec::new();
    for value in headers.get_all(name) {
        let value = crate::syntax::trim(value.as_bytes());
        if value.is_empty() {
            continue;
        }
        if !chain.is_empty() {
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(value);
        if chain.len() > CHAIN_LEN_MAX {
            return None;
        }
    }
    let sound = *name != header::FORWARDED || parse_forwarded(&chain).is_some();
    (sound && !chain.is_empty()).then_some(chain)
}

fn set(
    headers: &mut HeaderMap,
    name: HeaderName,
    trust: bool,
    value: impl FnOnce() -> Option<HeaderValue>,
) {
    if trust && headers.contains_key(&name) {
        return;
    }
    match value().filter(|value| !value.is_empty()) {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

/// One element of Forwarded: what one proxy told about the hop before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// `for`: the client's node, e.g. `192.0.2.1`, `[2001:db8::1]:4711`, `unknown`, `_hidden`.
    pub client: Option<String>,
    /// `by`: the proxy's own node.
    pub by: Option<String>,
    /// `host`: the Host as received.
    pub host: Option<String>,
    /// `proto`: the scheme.
    pub proto: Option<String>,
}

/// Parses a Forwarded value, all lines joined. `None` if any part of it breaks the grammar of
/// RFC 7239 §4; parameters not known are left out.
pub fn parse_forwarded(value: &[u8]) -> Option<Vec<Element>> {
    crate::syntax::split(value, b',').map(parse_element).collect()
}

fn parse_element(text: &[u8]) -> Option<Element> {
    let mut element = Element::default();
    for pair in crate::syntax::split(text, b';') {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        let value = match crate::syntax::is_token(value) {
            true => value.to_vec(),
            false => crate::syntax::unquote(value)?,
        };
        if !crate::syntax::is_token(name) {
            return None;
        }
        let slot = match name.to_ascii_lowercase().as_slice() {
            b"for" => &mut element.client,
            b"by" => &mut element.by,
            b"host" => &mut element.host,
            b"proto" => &mut element.proto,
            _ => continue,
        };
        // A parameter must not occur twice in an element.
        if slot.replace(String::from_utf8(value).ok()?).is_some() {
            return None;
        }
    }
    Some(element)
}

#[cfg(test)]
#[path = "forwarded_tests.rs"]
mod tests;
