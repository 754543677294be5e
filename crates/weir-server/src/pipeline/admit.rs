//! Stage 2: may the request run? Rules give it a class and say what is refused; under overload the
//! lowest class goes first; the size of its content and its method are the route's business.

use std::sync::Arc;
use std::time::Instant;

use http::Method;
use http::request::Parts;
use weir_config::RefusalAnswer;
use weir_guard::Count;
use weir_http::head::{Head, PlainGet};
use weir_http::path::{self, Normalised};
use weir_http::request::Framing;

use super::refuse::{METHODS, Refusal, Turned};
use super::route::Routed;
use crate::connection::Connection;
use crate::guard::{Asked, Decided, HeadFields, MapFields};
use crate::live::{Route, SiteInfo};
use crate::record::Record;

/// Decides about a request by its head, once.
pub(super) fn decide(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &Parts,
    started: Instant,
) -> Decided {
    let guard = &connection.worker.shared.guard;
    let (path, fields) = (guard.seen(routed.path.as_str()), MapFields(&head.headers));
    let asked = asked(routed, &path, head, &fields);
    guard.decide(connection, &asked, started)
}

/// The same about one that no route answers, or that opens a tunnel. Whoever tries what is not
/// there, or has no form, costs the least when he is refused; rules see what he asked for as it
/// came.
///
/// # Errors
/// The refusal to answer with instead of the one that he would get.
pub(super) fn admit_unrouted(
    site: &SiteInfo,
    head: &Parts,
    started: Instant,
    record: &mut Record,
) -> Result<(), Refusal> {
    let connection = Arc::clone(record.connection());
    let guard = &connection.worker.shared.guard;
    let target = match head.uri.path() {
        // CONNECT has none.
        "" => "/",
        path => path,
    };
    let normalised = path::normalise(target);
    let path = normalised.as_ref().map_or(target, Normalised::as_str);
    let (path, fields) = (guard.seen(path), MapFields(&head.headers));
    let asked = Asked {
        site: &site.name,
        path: &path,
        query: head.uri.query(),
        method: head.method.as_str(),
        verdict: "",
        fields: &fields,
        is_upstream_overloaded: false,
        forwarding: Some(&head.headers),
    };
    let decided = guard.decide(&connection, &asked, started);
    let turned = turned_away(&decided, record);
    record.set_decided(decided);
    turned.map_or(Ok(()), |turned| Err(Refusal::Turned(turned)))
}

/// The same for a plain request: site, path and query are what it asks for.
pub(super) fn decide_plain(
    connection: &Connection,
    head: &Head<'_, '_>,
    request: &PlainGet<'_>,
    route: &Route,
    (path, query): (&str, Option<&str>),
    started: Instant,
) -> Decided {
    let guard = &connection.worker.shared.guard;
    let (path, fields) = (guard.seen(path), HeadFields(head));
    let asked = Asked {
        site: &route.site.name,
        path: &path,
        query,
        method: Method::GET.as_str(),
        verdict: "",
        fields: &fields,
        is_upstream_overloaded: route.source.is_overloaded(),
        forwarding: Some(&request.forwarding),
    };
    guard.decide(connection, &asked, started)
}

/// Admits a request or refuses it.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn admit(
    route: &Route,
    method: &Method,
    framing: Framing,
    decided: Decided,
    record: &mut Record,
) -> Result<(), Refusal> {
    let turned = turned_away(&decided, record);
    record.set_decided(decided);
    if let Some(turned) = turned {
        return Err(Refusal::Turned(turned));
    }
    if let Framing::Length(length) = framing
        && length > route.body_size_max
    {
        return Err(Refusal::BodyTooLarge);
    }
    if *method == Method::TRACE {
        // RFC 9110 §9.3.8: echoing a request's fields tells scripts what they must not know.
        return Err(Refusal::MethodNotAllowed(METHODS));
    }
    Ok(())
}

/// Goes on with what plugins have made of a request, if they have.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn judge(
    routed: &Routed<'_>,
    head: &Parts,
    verdict: Option<&str>,
    record: &mut Record,
) -> Result<(), Refusal> {
    let Some(verdict) = verdict else { return Ok(()) };
    let Some(mut decided) = record.take_decided() else { return Ok(()) };
    let connection = Arc::clone(record.connection());
    let guard = &connection.worker.shared.guard;
    let (path, fields) = (guard.seen(routed.path.as_str()), MapFields(&head.headers));
    let asked = Asked { verdict, ..asked(routed, &path, head, &fields) };
    guard.judge(&connection, &asked, &mut decided);
    let turned = turned_away(&decided, record);
    record.set_decided(decided);
    turned.map_or(Ok(()), |turned| Err(Refusal::Turned(turned)))
}

fn asked<'a>(
    routed: &'a Routed<'_>,
    path: &'a str,
    head: &'a Parts,
    fields: &'a MapFields<'a>,
) -> Asked<'a> {
    Asked {
        site: &routed.route.site.name,
        path,
        query: head.uri.query(),
        method: head.method.as_str(),
        verdict: "",
        fields,
        is_upstream_overloaded: routed.route.source.is_overloaded(),
        forwarding: Some(&head.headers),
    }
}

fn turned_away(decided: &Decided, record: &Record) -> Option<Turned> {
    /// What is not known better: when overload has passed, most likely.
    const RETRY_S: u64 = 1;
    let refused = decided.0.refusal()?;
    let rules = record.connection().worker.shared.guard.rules();
    let retry_s = match refused.banned {
        Some(ban) => ban.lasts.as_secs().max(1),
        None => refused.retry_ns.div_ceil(1_000_000_000).max(RETRY_S),
    };
    let why = match refused.reason {
        Count::Rate => "rate",
        Count::Concurrency => "concurrency",
        _ => "rule",
    };
    // Rules may have been replaced meanwhile.
    let answer = rules.answer(refused.rule).unwrap_or(RefusalAnswer::Status(503));
    Some(Turned { answer, retry_s, why })
}
