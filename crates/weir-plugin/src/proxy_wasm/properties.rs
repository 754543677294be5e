//! Properties by Envoy's names: what the exchange knows is told from it, the rest by whoever owns
//! it; and those that plugins set, of which `weir.*` steer.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::fields::View;
use super::maps;
use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::exchange::{Exchange, RequestHead, ResponseHead};
use crate::host::Host;
use crate::limits::VERDICT_BYTES_MAX;
use crate::properties::Value;

/// Parts of a path that are looked at. The longest that is known has five.
const PARTS_MAX: usize = 16;

pub(super) fn get(
    plugin: &mut Plugin<'_>,
    path_data: u32,
    path_size: u32,
    return_data: u32,
    return_size: u32,
) -> Outcome {
    let path = plugin.owned(path_data, path_size)?;
    let context = plugin.context();
    let value = lookup(plugin.host(), context, &path).ok_or(Status::NotFound)?;
    plugin.give(&serialized(&value), return_data, return_size)
}

pub(super) fn set_by_plugin(
    plugin: &mut Plugin<'_>,
    path_data: u32,
    path_size: u32,
    value_data: u32,
    value_size: u32,
) -> Outcome {
    let path = plugin.owned(path_data, path_size)?;
    let value = plugin.owned(value_data, value_size)?;
    let context = plugin.context();
    Ok(set(plugin.host(), context, &path, value).then_some(()).ok_or(Status::NotFound)?)
}

/// The property at a path, whose parts have a zero byte between them, as the context of a request
/// sees it. For other contexts there is only what does not depend on one.
pub(crate) fn lookup(host: &Host, context: u32, path: &[u8]) -> Option<Value> {
    // SDKs differ in whether a zero byte ends the path too.
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let text = std::str::from_utf8(path).ok()?;
    let parts: Vec<&str> = text.split('\0').take(PARTS_MAX).collect();
    let exchange = host.exchanges.get(&context);
    let environment = &host.environment;
    match parts[..] {
        ["plugin_name" | "plugin_vm_id"] => return Some(environment.name.as_str().into()),
        ["plugin_root_id"] => return Some(environment.root_id.as_str().into()),
        // Plugins look at what clients send: "inbound" to Envoy.
        ["listener_direction"] | ["xds", "listener_direction"] => return Some(Value::Int(1)),
        _ => {}
    }
    let parts = match &parts[..] {
        // xDS is where Envoy has it from.
        ["xds", node @ ..] if node.first() == Some(&"node") => node,
        parts => parts,
    };
    // What is so comes before what a plugin says: nobody may tell the others who the client is.
    exchange
        .and_then(|exchange| of_exchange(exchange, parts))
        .or_else(|| environment.services.property(parts))
        .or_else(|| Some(Value::Bytes(exchange?.facts.bag.as_ref()?.value(path)?)))
}

fn of_exchange(exchange: &Exchange, parts: &[&str]) -> Option<Value> {
    let own = match parts {
        ["request", rest @ ..] => {
            let head = exchange.request.as_ref().map(|head| head.get());
            of_request(exchange, head?, rest)
        }
        ["response", rest @ ..] => {
            let head = exchange.response.as_ref().map(|head| head.get());
            of_response(exchange, head, rest)
        }
        ["source", "address"] => exchange.facts.client.map(|client| client.to_string().into()),
        ["source", "port"] => {
            exchange.facts.client.map(|client| Value::Int(i64::from(client.port())))
        }
        _ => None,
    };
    let facts = &exchange.facts;
    own.or_else(|| of_source(exchange, parts))
        .or_else(|| facts.connection.property(parts))
        .or_else(|| facts.route.property(parts))
}

/// What is known of whom the request was sent on to.
fn of_source(exchange: &Exchange, parts: &[&str]) -> Option<Value> {
    exchange.signal.source()?.property(parts)
}

fn of_request(exchange: &Exchange, head: &RequestHead, parts: &[&str]) -> Option<Value> {
    let of_head = |name: &'static str| text(head.headers.get(name));
    let path_len = head.target.find('?').unwrap_or(head.target.len());
    Some(match *parts {
        ["path"] => head.target.as_str().into(),
        ["url_path"] => head.target[..path_len].into(),
        ["query"] => head.target.get(path_len + 1..).unwrap_or_default().into(),
        ["host"] => head.authority.as_str().into(),
        ["scheme"] => if head.secure { "https" } else { "http" }.into(),
        ["method"] => head.method.as_str().into(),
        ["protocol"] => protocol(head.version)?.into(),
        ["referer"] => of_head("referer")?,
        ["useragent"] => of_head("user-agent")?,
        ["id"] => of_head("x-request-id")?,
        ["time"] => Value::Time(SystemTime::now() - exchange.facts.started.elapsed()),
        ["duration"] => Value::Duration(exchange.facts.started.elapsed()),
        ["size"] => Value::Int(request_size(exchange, head)),
        ["total_size"] => Value::Int(
            request_size(exchange, head)
                + size(&head.headers)
                + size(&exchange.request_trailers)
                + signed(head.target.len() + head.authority.len() + head.method.as_str().len()),
        ),
        ["headers"] => fields(View::of_request(head)),
        ["headers", name] => field(View::of_request(head), &head.headers, name)?,
        _ => return None,
    })
}

fn of_response(exchange: &Exchange, head: Option<&ResponseHead>, parts: &[&str]) -> Option<Value> {
    let response_size = signed_64(exchange.response_body_offset)
        .saturating_add(signed(exchange.response_body.len()));
    Some(match *parts {
        ["code"] => Value::Int(i64::from(head?.status.as_u16())),
        ["headers"] => fields(View::of_response(head?)),
        ["headers", name] => field(View::of_response(head?), &head?.headers, name)?,
        ["trailers"] => fields(View::of_fields(&exchange.response_trailers)),
        ["trailers", name] => joined(&exchange.response_trailers, name)?,
        ["size"] => Value::Int(response_size),
        ["total_size"] => {
            Value::Int(response_size + size(&head?.headers) + size(&exchange.response_trailers))
        }
        ["grpc_status"] => {
            let status = exchange.response_trailers.get("grpc-status");
            let status = status.or_else(|| head?.headers.get("grpc-status"))?;
            Value::Int(status.to_str().ok()?.parse().ok()?)
        }
        // Nothing went wrong that Envoy has a flag for, unless the source says so.
        ["flags"] => of_source(exchange, &["response", "flags"]).unwrap_or(Value::Int(0)),
        ["code_details"] => {
            let details = of_source(exchange, &["response", "code_details"]);
            details.unwrap_or_else(|| "direct_response".into())
        }
        _ => return None,
    })
}

fn protocol(version: Version) -> Option<&'static str> {
    Some(match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => return None,
    })
}

/// As the request says; else what came so far.
fn request_size(exchange: &Exchange, head: &RequestHead) -> i64 {
    let declared = head.headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok());
    declared.and_then(|len| len.parse().ok()).unwrap_or_else(|| {
        let before = signed_64(exchange.request_body_offset);
        before.saturating_add(signed(exchange.request_body.len()))
    })
}

fn size(fields: &HeaderMap) -> i64 {
    signed(fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum())
}

fn signed(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

fn signed_64(len: u64) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

fn text(value: Option<&HeaderValue>) -> Option<Value> {
    value.map(|value| Value::Bytes(Bytes::copy_from_slice(value.as_bytes())))
}

/// A section by names, each with all of its values.
fn fields(view: View<'_>) -> Value {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in view.iter() {
        // The values of a name stand together.
        match pairs.last_mut().filter(|(last, _)| last.as_bytes() == name) {
            Some((_, values)) => *values = format!("{values},{}", text(value)),
            None => pairs.push((text(name), text(value))),
        }
    }
    Value::Map(pairs)
}

/// A field, or a pseudo-field.
fn field(view: View<'_>, headers: &HeaderMap, name: &str) -> Option<Value> {
    joined(headers, name).or_else(|| {
        let value = view.value(name.as_bytes())?;
        Some(Value::Bytes(Bytes::copy_from_slice(value)))
    })
}

/// All values of a name.
fn joined(headers: &HeaderMap, name: &str) -> Option<Value> {
    let name = HeaderName::try_from(name).ok()?;
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| Value::Bytes(values.join(&b',').into()))
}

/// A value as Envoy writes it: numbers in eight bytes, moments and spans in nanoseconds.
pub(crate) fn serialized(value: &Value) -> Vec<u8> {
    let nanoseconds = |span: u128| i64::try_from(span).unwrap_or(i64::MAX).to_le_bytes().to_vec();
    match value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Int(number) => number.to_le_bytes().to_vec(),
        Value::Uint(number) => number.to_le_bytes().to_vec(),
        Value::Bool(yes) => vec![u8::from(*yes)],
        Value::Time(time) => {
            let since: SystemTime = *time;
            nanoseconds(since.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos())
        }
        Value::Duration(span) => nanoseconds(span.as_nanos()),
        Value::Map(pairs) => {
            maps::written(|| pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
        }
    }
}

/// Sets a property of a request: for its plugins to read, or a wish. False if there is no such
/// request, no such wish, or it may not be had.
pub(crate) fn set(host: &mut Host, context: u32, path: &[u8], value: Bytes) -> bool {
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let Host { exchanges, environment, .. } = host;
    let Some(exchange) = exchanges.get_mut(&context) else { return false };
    let dotted = String::from_utf8_lossy(path).replace('\0', ".");
    if !dotted.starts_with("weir.") {
        return exchange.facts.bag.get_or_insert_default().set(path, value);
    }
    let wishes = &mut exchange.wishes;
    match &dotted[..] {
        "weir.cache.key" => wishes.cache.key = Some(value.to_vec()),
        "weir.cache.pass" => wishes.cache.pass = is_yes(&value),
        "weir.cache.validate" => wishes.cache.validate = is_yes(&value),
        "weir.cache.no_store" => wishes.cache.no_store = is_yes(&value),
        "weir.cache.ttl_ms" => match number(&value) {
            Some(ttl_ms) => wishes.cache.ttl_ms = Some(ttl_ms),
            None => return false,
        },
        "weir.guard.verdict" => match String::from_utf8(value.to_vec()) {
            Ok(verdict) if verdict.len() <= VERDICT_BYTES_MAX => wishes.verdict = Some(verdict),
            _ => return false,
        },
        "weir.reroute" => wishes.reroute = is_yes(&value),
        "weir.upstream" => {
            let name = String::from_utf8_lossy(&value);
            let may = environment.policy.allow.upstreams.contains(&name);
            if !may || !environment.services.has_upstream(&name) {
                return false;
            }
            wishes.upstream = Some(name.into_owned());
        }
        _ => return false,
    }
    true
}

/// As SDKs write a truth: one byte, a number, or a word. Nothing at all is no.
fn is_yes(value: &[u8]) -> bool {
    !matches!(value, b"false" | b"no" | b"off")
        && value.iter().any(|byte| !matches!(byte, 0 | b'0'))
}

/// A number in eight bytes, as Envoy writes them, or in decimal.
fn number(value: &[u8]) -> Option<u64> {
    let decimal = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    decimal.or_else(|| value.try_into().ok().map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_are_written_as_envoy_does() {
        for (value, expect) in [
            (Value::from("text"), &b"text"[..]),
            (Value::Int(-2), &(-2_i64).to_le_bytes()),
            (Value::Uint(7), &7_u64.to_le_bytes()),
            (Value::Bool(true), &[1]),
            (Value::Duration(Duration::from_micros(3)), &3000_u64.to_le_bytes()),
            (Value::Time(UNIX_EPOCH + Duration::from_secs(1)), &1_000_000_000_u64.to_le_bytes()),
            (
                Value::Map(vec![("a".to_owned(), "1".to_owned())]),
                b"\x01\0\0\0\x01\0\0\0\x01\0\0\0a\x001\0",
            ),
        ] {
            assert_eq!(serialized(&value), expect, "{value:?}");
        }
    }

    #[test]
    fn truths_and_numbers_have_several_forms() {
        for (value, expect) in
            [(&b"1"[..], true), (b"true", true), (&[1], true), (b"", false), (b"0", false)]
        {
            assert_eq!(is_yes(value), expect, "{value:?}");
        }
        assert!(!is_yes(b"false"));
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(&12_u64.to_le_bytes()), Some(12));
        assert_eq!(number(b"twelve"), None);
    }
}
