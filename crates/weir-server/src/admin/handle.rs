//! The admin API's resources.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;

use super::{Reload, guard, plugins, purge, status};
use crate::Server;
use crate::metrics::render;

/// Bytes of a request body.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

pub(super) type Reply = Response<Full<Bytes>>;

/// Answers one request. `local` says that the connection came by a Unix-domain socket.
pub(super) async fn handle(
    server: &Server,
    reload: &Reload,
    local: bool,
    request: Request<Incoming>,
) -> Reply {
    if let Err(why) = check_host(request.headers(), local) {
        return error(StatusCode::FORBIDDEN, why);
    }
    let path = request.uri().path().to_owned();
    if plugins::is_ours(&path) {
        return plugins::handle(server, request).await;
    }
    if guard::is_ours(&path) {
        return guard::handle(server, request).await;
    }
    if let Err(why) = check_type(request.method(), request.headers()) {
        return error(StatusCode::FORBIDDEN, why);
    }
    match (request.method(), path.as_str()) {
        (&Method::GET, "/healthz") => health(server),
        (&Method::GET, "/metrics") => {
            reply(StatusCode::OK, render::CONTENT_TYPE, render::render(server.shared()))
        }
        (&Method::GET, "/status") => json(StatusCode::OK, &status::status(server)),
        (&Method::GET, "/config") => {
            let config = server.shared().guard.config(&server.config());
            reply(StatusCode::OK, TEXT, weir_config::print(&config))
        }
        (&Method::POST, "/reload") => take_reload(server, reload),
        (&Method::POST, "/purge") => take_purge(server, request).await,
        (_, "/healthz" | "/metrics" | "/status" | "/config" | "/reload" | "/purge") => {
            error(StatusCode::METHOD_NOT_ALLOWED, "GET to read, POST to change")
        }
        _ => error(
            StatusCode::NOT_FOUND,
            "there are /healthz, /metrics, /status, /config, /reload, /purge, /plugins and /guard",
        ),
    }
}

/// A web page must not be able to reach the API through its visitor's browser: not under a name of
/// its own that it points here (DNS rebinding) …
fn check_host(headers: &HeaderMap, local: bool) -> Result<(), &'static str> {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let host = weir_http::host::parse(host).map_err(|_| "the request needs a valid Host")?;
    let name = host.name.trim_matches(['[', ']']);
    if !local && name != "localhost" && name.parse::<IpAddr>().is_err() {
        return Err("Host must be an IP address or localhost");
    }
    Ok(())
}

/// … nor by a form.
fn check_type(method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    if method == Method::POST && !has_type(headers, &[JSON]) {
        return Err("POST needs Content-Type: application/json");
    }
    Ok(())
}

/// Where what is sent is not JSON, which pages may not send elsewhere unasked, it is told by what
/// browsers say of the page, in every request that changes something (Fetch, "Origin header"; Fetch
/// Metadata).
pub(super) fn check_page(headers: &HeaderMap) -> Result<(), &'static str> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return Err("a page of another site must not use the admin API");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let own = headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    match origin.as_bytes().strip_prefix(b"http://") == Some(own) {
        true => Ok(()),
        false => Err("a page of another origin must not use the admin API"),
    }
}

/// Whether the body is of one of these media types.
pub(super) fn has_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media_type = value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    types.iter().any(|known| media_type.eq_ignore_ascii_case(known.as_bytes()))
}

fn health(server: &Server) -> Reply {
    if server.shared().is_draining() {
        return reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n");
    }
    reply(StatusCode::OK, TEXT, "ok\n")
}

#[derive(Serialize)]
struct Reloaded {
    generation: u64,
}

fn take_reload(server: &Server, reload: &Reload) -> Reply {
    match reload() {
        Ok(()) => {
            let generation = server.shared().live.load().generation;
            json(StatusCode::OK, &Reloaded { generation })
        }
        Err(why) => error(StatusCode::UNPROCESSABLE_ENTITY, &why),
    }
}

async fn take_purge(server: &Server, request: Request<Incoming>) -> Reply {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    let Ok(body) = body else {
        return error(StatusCode::BAD_REQUEST, "the body did not arrive or is too large");
    };
    let wanted: purge::Purge = match serde_json::from_slice(&body.to_bytes()) {
        Ok(wanted) => wanted,
        Err(cause) => return error(StatusCode::BAD_REQUEST, &cause.to_string()),
    };
    match purge::purge(server, &wanted) {
        Ok(purged) => json(StatusCode::OK, &purged),
        Err(why) => error(StatusCode::NOT_FOUND, &why),
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    error: &'a str,
}

pub(super) fn error(status: StatusCode, why: &str) -> Reply {
    json(status, &Failure { error: why })
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // Strings, numbers and maps of them always serialise.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    reply(status, JSON, text)
}

pub(super) fn reply(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<String>,
) -> Reply {
    let mut reply = Response::new(Full::from(text.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_strangers_cannot_use_the_api() {
        let check = |method: Method, host: &str, content_type: Option<&str>, allowed: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(content_type) = content_type {
                headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            }
            let result = check_host(&headers, false).and_then(|()| check_type(&method, &headers));
            assert_eq!(result.is_ok(), allowed, "{method} {host} {content_type:?}: {result:?}");
        };
        check(Method::GET, "127.0.0.1:9900", None, true);
        check(Method::GET, "[::1]:9900", None, true);
        check(Method::GET, "localhost:9900", None, true);
        check(Method::GET, "evil.example", None, false);
        check(Method::GET, "127.0.0.1.evil.example", None, false);
        check(Method::POST, "127.0.0.1", Some(JSON), true);
        check(Method::POST, "127.0.0.1", Some("Application/JSON; charset=utf-8"), true);
        check(Method::POST, "127.0.0.1", Some("text/plain; application/json"), false);
        check(Method::POST, "127.0.0.1", None, false);
        check(Method::POST, "127.0.0.1", Some("text/plain"), false);
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let check = |fields: &[(&'static str, &str)], allowed: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:9900"));
            for (name, value) in fields {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(check_page(&headers).is_ok(), allowed, "{fields:?}");
        };
        check(&[], true);
        check(&[("origin", "http://127.0.0.1:9900")], true);
        check(&[("origin", "http://127.0.0.1:8080")], false);
        check(&[("origin", "https://evil.example")], false);
        check(&[("origin", "null")], false);
        check(&[("origin", "")], false);
        check(&[("sec-fetch-site", "same-origin")], true);
        check(&[("sec-fetch-site", "none")], true);
        check(&[("sec-fetch-site", "cross-site")], false);
        check(&[("sec-fetch-site", "same-site")], false);
        check(&[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")], false);
    }
}
