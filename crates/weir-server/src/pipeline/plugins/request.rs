//! A request as it is passed from plugin to plugin, and what they may change of it.

use std::sync::Arc;
use std::time::Instant;

use http::Uri;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use weir_plugin::{
    CallBody, Content as Shown, Failure, FailureKind, Passed, RequestHead, Stream, Wishes,
};

use super::super::client_body::ClientBody;
use super::super::content::Content;
use super::Shower;
use super::framing::{self, FRAMING, Held, keep};
use crate::adapt::Accepts;
use crate::connection::Connection;
use crate::live::Route;

/// The request as it is passed from plugin to plugin.
pub(super) struct Request<'a> {
    pub(super) head: &'a mut Parts,
    pub(super) authority: String,
    pub(super) content: &'a mut Option<Content>,
    pub(super) started: Instant,
    /// Its content broke off while a plugin was judging it.
    pub(super) is_torn: bool,
}

impl Request<'_> {
    /// Shows the request to a plugin and takes over what it changed.
    pub(super) async fn show(
        &mut self,
        connection: &Arc<Connection>,
        route: &Route,
        stream: &Stream,
    ) -> Result<Wishes, Failure> {
        let head = self.lent(connection.tls);
        let shown = match self.content.take() {
            Some(content) if content.is_end_stream() => {
                *self.content = Some(content);
                Shown::None
            }
            None => Shown::None,
            Some(content) if !stream.hooks().sees_request_bodies() => {
                *self.content = Some(content);
                Shown::Unseen
            }
            Some(Content::Client(body)) => {
                let (body, verdict) = ClientBody::new(body, &connection.socket, route);
                *self.content = Some(Content::Seen(Mutex::new(empty()), verdict));
                Shown::Shown(BodyExt::boxed_unsync(body))
            }
            Some(Content::Seen(body, verdict)) => {
                *self.content = Some(Content::Seen(Mutex::new(empty()), verdict));
                Shown::Shown(body.into_inner())
            }
        };
        let is_shown = matches!(shown, Shown::Shown(_));
        let mut passed = stream.request(Arc::new(Shower(head)), shown).await;
        let Some(Content::Seen(seen, _)) = self.content.as_mut().filter(|_| is_shown) else {
            return self.take(passed);
        };
        let mut body = passed.body.take().unwrap_or_else(empty);
        let mut length = framing::length(&self.head.headers);
        if passed.is_seen {
            if let Some(changed) = &mut passed.head {
                length = framing::take_length(stream, &mut changed.headers);
            }
            let known = hyper::body::Body::size_hint(&body).exact();
            // proxy-wasm leaves the length as it is, unless the plugin takes it away.
            length = known.or(length.filter(|_| stream.hooks().keeps_lengths()));
            if let Some(length) = length {
                body = Held::over(body, length, stream);
            }
        }
        *seen = Mutex::new(body);
        let taken = self.take(passed);
        framing::declare_content(self.head, length);
        taken
    }

    /// Takes over what a plugin changed.
    pub(super) fn take(&mut self, passed: Passed<RequestHead>) -> Result<Wishes, Failure> {
        self.is_torn |= passed.is_torn;
        if let Some(failure) = passed.failure {
            return Err(failure);
        }
        if let Some(changed) = passed.head {
            self.change(changed)?;
        }
        Ok(passed.wishes)
    }

    /// The head as plugins see it now.
    pub(super) fn lent(&self, secure: bool) -> RequestHead {
        lent(self.head, &self.authority, secure)
    }

    /// Takes a head over that a plugin changed.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) fn change(&mut self, changed: RequestHead) -> Result<(), Failure> {
        self.authority = change(self.head, changed)?;
        Ok(())
    }
}

/// A head as plugins see it.
pub(super) fn lent(head: &Parts, authority: &str, secure: bool) -> RequestHead {
    let mut headers = head.headers.clone();
    headers.remove(header::HOST);
    RequestHead {
        method: head.method.clone(),
        secure,
        authority: authority.to_owned(),
        target: head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned(),
        version: head.version,
        headers,
    }
}

/// Makes a head what a plugin has made of it; returns its authority. One that cannot be changes
/// nothing.
///
/// # Errors
/// If the changed one cannot be.
pub(super) fn change(head: &mut Parts, changed: RequestHead) -> Result<String, Failure> {
    let invalid =
        |what| Failure::new(FailureKind::Protocol, format!("it made the request's {what} invalid"));
    let target: PathAndQuery = changed.target.parse().map_err(|_| invalid("target"))?;
    let mut parts = head.uri.clone().into_parts();
    if parts.authority.is_some() {
        let authority = Authority::try_from(changed.authority.as_str());
        parts.authority = Some(authority.map_err(|_| invalid("authority"))?);
    }
    parts.path_and_query = Some(target);
    let uri = Uri::from_parts(parts).map_err(|_| invalid("target"))?;
    let mut headers = changed.headers;
    keep(&FRAMING, &head.headers, &mut headers);
    if !changed.authority.is_empty() {
        let host = HeaderValue::from_str(&changed.authority).map_err(|_| invalid("authority"))?;
        headers.insert(header::HOST, host);
    }
    Accepts::keep(head, &headers);
    head.uri = uri;
    head.method = changed.method;
    head.headers = headers;
    Ok(changed.authority)
}

fn empty() -> CallBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}
