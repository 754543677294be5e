//! The request as an origin gets it, and an origin's response as it is passed on.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Uri, Version};
use weir_config::{HostHeader, Pattern};
use weir_http::forward::{
    Client, VIA_PASSES_MAX, add_client, append_via, is_about_client, strip_client,
    strip_hop_by_hop, via_passes,
};
use weir_origin::upstream::{Choice, Extra, HostPolicy, RequestBody, ResponseBody};

use super::Target;
use super::refuse::Refusal;
use super::reply::edit;
use crate::connection::Connection;
use crate::live::{Edit, ProxySource, Route};

/// A request's head for an origin, and how to choose the server.
pub(super) struct Outgoing {
    pub(super) head: Parts,
    pub(super) choice: Choice,
}

/// What origins are told of the client of a connection. Most of its requests have one Host, so that
/// it is the same for all of them.
#[derive(Debug)]
pub(crate) struct Introduction {
    host: Box<str>,
    fields: Extra,
}

impl Introduction {
    fn new(client: &Client<'_>) -> Introduction {
        let mut fields = HeaderMap::new();
        add_client(&mut fields, client);
        let fields = fields.iter().map(|(name, value)| (name.clone(), value.clone()));
        Introduction { host: client.host.into(), fields: Extra::new(fields) }
    }
}

/// Tells the origin who the client is, unless the route has it told otherwise. What does not go
/// into `headers` is returned.
fn introduce(
    connection: &Connection,
    route: &Route,
    target: &Target,
    headers: &mut HeaderMap,
) -> Extra {
    let peer: Option<IpAddr> = connection.client.map(|address| address.ip());
    let client = Client {
        address: peer,
        tls: connection.tls,
        host: &target.authority,
        port: connection.port,
        trust: is_trusted(connection, peer),
    };
    if route.source.forward_proxy().is_some() {
        // Who uses a forward proxy is nobody else's business.
        strip_client(headers);
        return Extra::default();
    }
    let is_edited = |edit: &Edit| match edit {
        Edit::Set(name, _) | Edit::Add(name, _) | Edit::Remove(name) => is_about_client(name),
    };
    if !client.trust && !route.request_edits.iter().any(is_edited) {
        let known = connection.introduction.get_or_init(|| Introduction::new(&client));
        if *known.host == *target.authority {
            strip_client(headers);
            return known.fields.clone();
        }
    }
    add_client(headers, &client);
    Extra::default()
}

/// Makes the head for the origin out of the client's, whose fields `headers` are.
///
/// # Errors
/// [`Refusal::Loop`] if the request has passed here too often.
pub(super) fn outgoing(
    connection: &Connection,
    route: &Route,
    source: &ProxySource,
    head: &Parts,
    mut headers: HeaderMap,
    target: &Target,
) -> Result<Outgoing, Refusal> {
    if via_passes(&headers) > VIA_PASSES_MAX {
        return Err(Refusal::Loop);
    }
    let client = connection.client_of(&headers);
    let hop = strip_hop_by_hop(&mut headers);
    hop.restore(&mut headers, Version::HTTP_11, head.version == Version::HTTP_11);
    if target.undefined_content {
        // Whether the origin reads content that means nothing cannot be known: its connection is
        // not used for another request.
        headers.insert(header::CONNECTION, super::reply::CLOSE);
    }
    let extra = introduce(connection, route, target, &mut headers);
    source.via.append(&mut headers, head.version);
    // An origin is told what its answer is stored for, whichever of many forms the client wrote.
    let asked = target.origin.as_ref().map(|origin| origin.authority());
    let host = match (&source.host, &asked) {
        (HostHeader::Fixed(name), _) => name,
        (HostHeader::Client | HostHeader::Upstream, Some(asked)) => asked,
        (HostHeader::Client | HostHeader::Upstream, None) => &target.authority,
    };
    if !is_only(&headers, &header::HOST, host) {
        match HeaderValue::from_str(host) {
            Ok(value) if !host.is_empty() => headers.insert(header::HOST, value),
            _ => headers.remove(header::HOST),
        };
    }
    edit(&mut headers, &route.request_edits);

    let mut outgoing = Request::new(()).into_parts().0;
    outgoing.method = head.method.clone();
    outgoing.uri = origin_target(route, source, target, &head.uri)?;
    outgoing.version = Version::HTTP_11;
    outgoing.headers = headers;
    let host = match source.host {
        HostHeader::Upstream => HostPolicy::Server,
        HostHeader::Client | HostHeader::Fixed(_) => HostPolicy::Keep,
    };
    Ok(Outgoing { head: outgoing, choice: Choice { client, host, extra } })
}

/// Whether the peer is one of the proxies whose word on the client is taken.
fn is_trusted(connection: &Connection, peer: Option<IpAddr>) -> bool {
    let live = connection.worker.shared.live.load();
    let trusted = &live.config.server.trusted_proxies;
    peer.is_some_and(|peer| trusted.iter().any(|prefix| prefix.contains(peer)))
}

impl Outgoing {
    /// The request with its body.
    pub(super) fn with(self, body: RequestBody) -> (Request<RequestBody>, Choice) {
        (Request::from_parts(self.head, body), self.choice)
    }
}

/// Whether the one field of this name has this value already.
fn is_only(headers: &HeaderMap, name: &HeaderName, value: &str) -> bool {
    let mut lines = headers.get_all(name).iter();
    !value.is_empty() && lines.next().is_some_and(|line| line == value) && lines.next().is_none()
}

/// Path and query at the origin. `asked` is what the client asked for, shared where it is the same.
fn origin_target(
    route: &Route,
    source: &ProxySource,
    target: &Target,
    asked: &Uri,
) -> Result<Uri, Refusal> {
    if asked.path() == "*" && source.path_prefix.is_empty() {
        // OPTIONS for the server as a whole.
        return Ok(Uri::from(PathAndQuery::from_static("*")));
    }
    let mut path = target.forward.as_str();
    if source.strip_prefix
        && let Pattern::Prefix(prefix) = &route.pattern
    {
        // The prefix ends in the slash that the rest begins with.
        path = path.strip_prefix(prefix.trim_end_matches('/')).unwrap_or(path);
    }
    if source.path_prefix.is_empty()
        && path.starts_with('/')
        && let Some(asked) = asked.path_and_query().filter(|asked| asked.as_str() == path)
    {
        return Ok(Uri::from(asked.clone()));
    }
    let text = format!("{}{path}", source.path_prefix);
    let text = if text.starts_with('/') { text } else { format!("/{text}") };
    let path = PathAndQuery::try_from(text)
        .map_err(|_| Refusal::Malformed(weir_http::Malformed::Target))?;
    Ok(Uri::from(path))
}

/// Makes a response's head fit to be passed on: without what concerned only the hop before.
pub(super) fn incoming(response: &mut Response<ResponseBody>) {
    let version = response.version();
    let headers = response.headers_mut();
    strip_hop_by_hop(headers);
    append_via(headers, version);
}

/// Fields that tell this request's own conditions and ranges, which a shared response cannot
/// depend on.
pub(super) fn remove_conditions(headers: &mut HeaderMap) {
    weir_cache::policy::make_conditional(&HeaderMap::new(), headers);
}

/// The fields of a 101 response that a tunnel needs and that are otherwise hop-by-hop.
pub(super) fn upgrade_fields(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = vec![(header::CONNECTION, HeaderValue::from_static("upgrade"))];
    if let Some(protocol) = headers.get(header::UPGRADE) {
        fields.push((header::UPGRADE, protocol.clone()));
    }
    fields
}

/// Whether a request may be answered from, and its response shared with, others: only plain reads.
pub(super) fn is_shareable(method: &Method, has_body: bool) -> bool {
    matches!(*method, Method::GET) && !has_body
}
