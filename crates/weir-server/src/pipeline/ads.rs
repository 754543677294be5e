//! Between stages 2 and 3: requests that lists of ads and trackers block are answered with
//! something empty, and nobody else is asked about them.

use http::Response;
use http::request::Parts;
use weir_http::head::{Head, PlainGet};

use super::reply::{self, Answer};
use super::route::Routed;
use super::whole::Whole;
use crate::adapt::{Blocked, Wish, field};
use crate::body::ReplyBody;
use crate::connection::Connection;
use crate::live::Route;
use crate::metrics::CacheResult;
use crate::record::Record;

/// Whether its route's lists block a request.
#[inline]
pub(super) fn judge(connection: &Connection, routed: &Routed<'_>, head: &Parts) -> Option<Blocked> {
    let blocking = routed.route.blocking.as_ref()?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let host = routed.host.as_ref().map_or("", |host| &host.name);
    let is_secure = routed.origin.as_ref().map_or(connection.tls, |origin| origin.tls);
    let wish = Wish { is_secure, host, target, path: head.uri.path() };
    blocking.judge(&wish, |name| field(&head.headers, name))
}

/// Whether they block a plain request. `path` is that of its target, as it came.
#[inline]
pub(super) fn is_blocked(
    connection: &Connection,
    route: &Route,
    head: &Head<'_, '_>,
    request: &PlainGet<'_>,
    path: &str,
) -> bool {
    let Some(blocking) = &route.blocking else { return false };
    let (is_secure, host, target) = (connection.tls, &*request.host.name, request.target);
    let wish = Wish { is_secure, host, target, path };
    let field = |name: &str| head.values(name).next().and_then(|value| str::from_utf8(value).ok());
    blocking.judge(&wish, field).is_some()
}

/// The answer to one that is.
pub(super) fn answer(
    blocked: &Blocked,
    record: Record,
    route: &Route,
    head: &Parts,
) -> Response<ReplyBody> {
    let (status, headers, body) = blocked.answer(&record.connection().worker.shared.metrics.pages);
    let whole = Whole::Bytes(body);
    let (cache, cache_status) = (CacheResult::None, None);
    let answer = Answer { status, headers, whole, cache, cache_status };
    reply::from_source(record, route, head, 0, answer)
}
