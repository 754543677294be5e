//! Header and trailer sections as proxy-wasm shows them: names and values in one map, with the
//! request's line and the response's status as pseudo-fields before them.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::status::Status;
use crate::exchange::{Exchange, RequestHead, ResponseHead};
use crate::host::Host;
use crate::limits::FIELDS_MAX;

/// proxy-wasm's `proxy_map_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    RequestHeaders,
    RequestTrailers,
    ResponseHeaders,
    ResponseTrailers,
    GrpcInitialMetadata,
    GrpcTrailingMetadata,
    CallHeaders,
    CallTrailers,
}

impl Map {
    /// By number.
    pub(crate) fn new(number: u32) -> Result<Map, Status> {
        const ALL: [Map; 8] = [
            Map::RequestHeaders,
            Map::RequestTrailers,
            Map::ResponseHeaders,
            Map::ResponseTrailers,
            Map::GrpcInitialMetadata,
            Map::GrpcTrailingMetadata,
            Map::CallHeaders,
            Map::CallTrailers,
        ];
        ALL.get(number as usize).copied().ok_or(Status::BadArgument)
    }
}

/// A map to look at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pseudo: [(&'static str, &'a [u8]); 4],
    pseudo_count: usize,
    headers: &'a HeaderMap,
}

impl<'a> View<'a> {
    pub(crate) fn of_fields(headers: &'a HeaderMap) -> View<'a> {
        View { pseudo: [("", b""); 4], pseudo_count: 0, headers }
    }

    pub(crate) fn of_request(head: &'a RequestHead) -> View<'a> {
        let scheme = if head.secure { "https" } else { "http" };
        let mut view = View::of_fields(&head.headers);
        view.pseudo = [
            (":method", head.method.as_str().as_bytes()),
            (":path", head.target.as_bytes()),
            (":scheme", scheme.as_bytes()),
            (":authority", head.authority.as_bytes()),
        ];
        // HTTP/1.0 may have none.
        view.pseudo_count = if head.authority.is_empty() { 3 } else { 4 };
        view
    }

    pub(crate) fn of_response(head: &'a ResponseHead) -> View<'a> {
        let mut view = View::of_fields(&head.headers);
        view.pseudo[0] = (":status", head.status.as_str().as_bytes());
        view.pseudo_count = 1;
        view
    }

    /// How many fields there are.
    pub(crate) fn len(&self) -> usize {
        self.pseudo_count + self.headers.len()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let View { pseudo, pseudo_count, headers } = *self;
        let pseudo = pseudo.into_iter().take(pseudo_count);
        let pseudo = pseudo.map(|(name, value)| (name.as_bytes(), value));
        pseudo
            .chain(headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())))
    }

    /// The first value of a name, as Envoy has it.
    pub(crate) fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        let of_request = self.pseudo_count > 1;
        // Host is `:authority` under its old name.
        let name =
            if of_request && name.eq_ignore_ascii_case(b"host") { b":authority" } else { name };
        if name.first() == Some(&b':') {
            let mut pseudo = self.pseudo[..self.pseudo_count].iter();
            return pseudo.find(|(known, _)| known.as_bytes() == name).map(|(_, value)| *value);
        }
        let name = HeaderName::from_bytes(name).ok()?;
        self.headers.get(name).map(HeaderValue::as_bytes)
    }
}

/// The map that the context of a request, or the plugin's own (if `exchange` is none), sees.
pub(crate) fn view(host: &Host, context: u32, map: Map) -> Option<View<'_>> {
    let exchange = host.exchanges.get(&context);
    let state = &host.proxy_wasm;
    match map {
        Map::RequestHeaders => exchange?.request.as_ref().map(|head| View::of_request(head.get())),
        Map::RequestTrailers => Some(View::of_fields(&exchange?.request_trailers)),
        Map::ResponseHeaders => {
            exchange?.response.as_ref().map(|head| View::of_response(head.get()))
        }
        Map::ResponseTrailers => Some(View::of_fields(&exchange?.response_trailers)),
        Map::GrpcInitialMetadata => state.grpc_initial.as_ref().map(View::of_fields),
        Map::GrpcTrailingMetadata => state.grpc_trailing.as_ref().map(View::of_fields),
        Map::CallHeaders => state.answer.as_ref().map(|answer| View::of_response(&answer.head)),
        Map::CallTrailers => state.answer.as_ref().map(|answer| View::of_fields(&answer.trailers)),
    }
}

/// A map to change.
pub(crate) enum Section<'a> {
    Request(&'a mut RequestHead),
    Response(&'a mut ResponseHead),
    Fields(&'a mut HeaderMap),
}

/// The map of a request, if it is there and may be changed. Changes that come too late change what
/// later callbacks read, and nothing else.
pub(crate) fn section(exchange: &mut Exchange, map: Map) -> Option<Section<'_>> {
    match map {
        Map::RequestHeaders => {
            exchange.request.as_mut().map(|head| Section::Request(head.to_mut()))
        }
        Map::RequestTrailers => Some(Section::Fields(&mut exchange.request_trailers)),
        Map::ResponseHeaders => {
            exchange.response.as_mut().map(|head| Section::Response(head.to_mut()))
        }
        Map::ResponseTrailers => Some(Section::Fields(&mut exchange.response_trailers)),
        _ => None,
    }
}

/// What becomes of the values that a name has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    Stay,
    Go,
}

impl Section<'_> {
    fn headers(&mut self) -> &mut HeaderMap {
        match self {
            Section::Request(head) => &mut head.headers,
            Section::Response(head) => &mut head.headers,
            Section::Fields(headers) => headers,
        }
    }

    /// Adds a field, or replaces what a name has.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8], others: Others) -> Result<(), Status> {
        let of_request = matches!(self, Section::Request(_));
        if name.first() == Some(&b':') || (of_request && name.eq_ignore_ascii_case(b"host")) {
            return self.set_pseudo(name, value);
        }
        let name = HeaderName::from_bytes(name).map_err(|_| Status::BadArgument)?;
        let value = HeaderValue::from_bytes(value).map_err(|_| Status::BadArgument)?;
        let headers = self.headers();
        if headers.len() >= FIELDS_MAX && !(others == Others::Go && headers.contains_key(&name)) {
            return Err(Status::BadArgument);
        }
        let done = match others {
            Others::Stay => headers.try_append(name, value).is_ok(),
            Others::Go => headers.try_insert(name, value).is_ok(),
        };
        if done { Ok(()) } else { Err(Status::BadArgument) }
    }

    /// Removes every value of a name. What a head cannot be without stays.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Result<(), Status> {
        if name.first() == Some(&b':') {
            let known = [&b":method"[..], b":path", b":scheme", b":authority", b":status"];
            return if known.contains(&name) { Err(Status::BadArgument) } else { Ok(()) };
        }
        if let Ok(name) = HeaderName::from_bytes(name) {
            self.headers().remove(name);
        }
        Ok(())
    }

    /// Replaces all fields. Pseudo-fields that `pairs` does not name stay.
    pub(crate) fn replace<'p>(
        &mut self,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<(), Status> {
        let before = std::mem::take(self.headers());
        for (name, value) in pairs {
            if let Err(status) = self.set(name, value, Others::Stay) {
                *self.headers() = before;
                return Err(status);
            }
        }
        Ok(())
    }

    fn set_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Status> {
        let bad = Status::BadArgument;
        match (self, name) {
            (Section::Request(head), b":method") => {
                head.method = Method::from_bytes(value).map_err(|_| bad)?;
            }
            (Section::Request(head), b":path") => head.target = target(value).ok_or(bad)?,
            (Section::Request(head), b":scheme") => match value {
                b"http" => head.secure = false,
                b"https" => head.secure = true,
                _ => return Err(bad),
            },
            (Section::Request(head), _) if name == b":authority" || name[0] != b':' => {
                head.authority = authority(value).ok_or(bad)?;
            }
            (Section::Response(head), b":status") => head.status = status(value).ok_or(bad)?,
            _ => return Err(bad),
        }
        Ok(())
    }
}

/// A request's target: path and query, or `*`.
pub(crate) fn target(value: &[u8]) -> Option<String> {
    let parsed = http::uri::PathAndQuery::try_from(value).ok()?;
    let fits = value.first() == Some(&b'/') || value == b"*";
    // What the parser left out, a fragment, is not sent.
    fits.then(|| parsed.as_str().to_owned())
}

/// Host and port.
pub(crate) fn authority(value: &[u8]) -> Option<String> {
    let parsed = http::uri::Authority::try_from(value).ok()?;
    (!parsed.as_str().contains('@')).then(|| parsed.as_str().to_owned())
}

/// A final response's status.
pub(crate) fn status(value: &[u8]) -> Option<StatusCode> {
    StatusCode::from_bytes(value).ok().filter(|status| !status.is_informational())
}

/// The fields of a section that is made anew, as far as HTTP allows them. What it does not allow,
/// and pseudo-fields, which have no meaning there, are left out; `drop` is told of the former.
pub(crate) fn collect_valid<'p>(
    pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
    mut drop: impl FnMut(&'p [u8]),
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.filter(|(name, _)| name.first() != Some(&b':')) {
        if Section::Fields(&mut headers).set(name, value, Others::Stay).is_err() {
            drop(name);
        }
    }
    headers
}

/// Reads fields of a section that is made anew; pseudo-fields are given to `pseudo`.
pub(crate) fn collect<'p>(
    pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
    mut pseudo: impl FnMut(&'p [u8], &'p [u8]) -> Result<(), Status>,
) -> Result<HeaderMap, Status> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        match name.first() {
            Some(b':') => pseudo(name, value)?,
            _ => Section::Fields(&mut headers).set(name, value, Others::Stay)?,
        }
    }
    Ok(headers)
}
