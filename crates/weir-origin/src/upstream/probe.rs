//! Active health checks: one request at intervals to every server, on a connection of its own, so
//! that a probe sees what a new connection would see and never waits behind requests.

use std::future::poll_fn;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use tokio::time::Instant;
use weir_config::HealthCheck;

use super::Group;
use super::connect::Fresh;
use super::extra::Extra;
use super::head::{HostPolicy, Job};
use super::request::RequestBody;
use super::stream::Open;
use crate::error::{BoxError, ErrorKind, OriginError};

const AGENT: HeaderValue = HeaderValue::from_static("weir-health-check");

/// Starts a task for every server.
pub(super) fn spawn(group: &Arc<Group>) {
    let Some(check) = &group.config.health_check else { return };
    for server in 0..group.servers.len() {
        tokio::spawn(watch(Arc::downgrade(group), server, check.clone()));
    }
}

async fn watch(group: Weak<Group>, server: usize, check: HealthCheck) {
    // Each server has its own beat, so that many are not probed in the same instant.
    tokio::time::sleep(check.interval.mul_f64(fastrand::f64() * 0.1)).await;
    loop {
        let Some(strong) = group.upgrade() else { return };
        run(&strong, server, &check).await;
        drop(strong);
        tokio::time::sleep(check.interval.max(Duration::from_millis(1))).await;
    }
}

async fn run(group: &Group, index: usize, check: &HealthCheck) {
    let server = &group.servers[index];
    let outcome = tokio::time::timeout(check.timeout, probe(group, index, check)).await;
    let outcome: Result<(), BoxError> = match outcome {
        Ok(Ok(status)) if (check.status.0..=check.status.1).contains(&status.as_u16()) => Ok(()),
        Ok(Ok(status)) => Err(format!("answered {status}").into()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(format!("no answer within {:?}", check.timeout).into()),
    };
    let (upstream, name) = (&*group.config.name, &*server.name);
    if let Err(cause) = &outcome {
        tracing::debug!(upstream, server = name, %cause, "health check failed");
    }
    match (server.probed(outcome.is_ok(), check.healthy, check.unhealthy), outcome) {
        (Some(true), _) => tracing::warn!(upstream, server = name, "upstream server is back"),
        (Some(false), Err(cause)) => {
            tracing::warn!(upstream, server = name, %cause, "upstream server is down");
        }
        _ => {}
    }
}

/// Asks once. The connection ends with the probe.
async fn probe(
    group: &Group,
    index: usize,
    check: &HealthCheck,
) -> Result<StatusCode, OriginError> {
    let server = &group.servers[index];
    let fail = |kind, cause: BoxError| OriginError::new(kind, &*server.name, cause);
    let mut request = Request::new(RequestBody::Empty);
    *request.uri_mut() =
        Uri::try_from(&check.path).map_err(|error| fail(ErrorKind::Config, error.into()))?;
    request.headers_mut().insert(USER_AGENT, AGENT);
    let mut job = Job::new(request, HostPolicy::Server, Extra::default(), &group.config.name)?;
    let open = Open::reserve(&Arc::new(AtomicUsize::new(0)), 1)
        .ok_or_else(|| fail(ErrorKind::Overloaded, "no place for a probe".into()))?;
    let deadline = Instant::now() + check.timeout;
    let resolved = &group.resolved[index];
    let gone = || fail(ErrorKind::Request, "the probe is used up".into());
    let closed = |error: hyper::Error| fail(ErrorKind::ClosedEarly, error.into());
    match group.connector.connect(server, resolved, false, open, deadline).await? {
        Fresh::Http1(mut conn) => {
            let request = job.http1(server, true).ok_or_else(gone)?;
            conn.begin(request);
            match poll_fn(|cx| conn.poll_head(cx, HeaderMap::new)).await {
                Ok(response) => Ok(response.status()),
                Err(failure) => Err(fail(failure.kind, failure.cause)),
            }
        }
        Fresh::Http2(mut conn) => {
            let request = job.http2(server).ok_or_else(gone)??;
            conn.sender
                .send_request(request)
                .await
                .map(|response| response.status())
                .map_err(closed)
        }
    }
}
