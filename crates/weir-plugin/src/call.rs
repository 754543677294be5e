//! HTTP calls of plugins to upstreams: sent on the worker's connections, answered by a callback on
//! the instance's own thread.

use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};

use crate::body::BodyBuffer;
use crate::exchange::{RequestHead, ResponseHead};
use crate::host::Host;
use crate::limits::{CALL_TIMEOUT_MAX, HELD_BYTES_MAX};
use crate::services::{CallBody, Calling};

/// What became of a call.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) id: u32,
    /// The answer, or why there is none.
    pub(crate) answer: Result<CallAnswer, String>,
}

/// An upstream's answer, complete.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    pub(crate) head: ResponseHead,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A call to make.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) upstream: String,
    pub(crate) head: RequestHead,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    pub(crate) timeout: Duration,
}

/// Makes a call. The answer comes as [`crate::instance::Instance::called`], never before this
/// returns. Whether the plugin may call the upstream has been checked.
///
/// # Errors
/// If there cannot be such a request.
pub(crate) fn start(host: &mut Host, id: u32, call: Call) -> Result<(), String> {
    let Call { upstream, head, body, trailers, timeout } = call;
    let request = request(head, boxed(body, trailers))?;
    let timeout = timeout.min(CALL_TIMEOUT_MAX);
    let services = host.environment.services.clone();
    let home = host.home.clone();
    let worker = home.worker;
    home.worker_loop.clone().spawn(async move {
        let calling = services.call(worker, &upstream, request);
        let answer = answer(calling, timeout).await;
        home.deliver(move |instance| instance.called(CallResult { id, answer }));
    });
    Ok(())
}

async fn answer(calling: Calling, timeout: Duration) -> Result<CallAnswer, String> {
    let collected = async { collect(calling.await?).await };
    match tokio::time::timeout(timeout, collected).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} ms", timeout.as_millis())),
    }
}

/// A request to an upstream.
///
/// # Errors
/// If its target or authority cannot be one.
pub(crate) fn request(head: RequestHead, body: CallBody) -> Result<Request<CallBody>, String> {
    let uri: Uri = head.target.parse().map_err(|cause| format!("{:?}: {cause}", head.target))?;
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = head.headers;
    if !head.authority.is_empty() {
        let host = HeaderValue::from_str(&head.authority)
            .map_err(|_| format!("{:?} is no authority", head.authority))?;
        request.headers_mut().insert(HOST, host);
    }
    Ok(request)
}

fn boxed(body: Bytes, trailers: HeaderMap) -> CallBody {
    if trailers.is_empty() {
        return Full::new(body).map_err(|never| match never {}).boxed_unsync();
    }
    let frames = [Frame::data(body), Frame::trailers(trailers)];
    StreamBody::new(futures_util::stream::iter(frames.map(Ok))).boxed_unsync()
}

async fn collect(response: http::Response<CallBody>) -> Result<CallAnswer, String> {
    let (parts, mut body) = response.into_parts();
    let mut content = BodyBuffer::default();
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        match frame.map_err(|cause| cause.to_string())?.into_data() {
            Ok(data) => content.push(data),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
        if content.len() > HELD_BYTES_MAX {
            return Err(format!("the answer is larger than {HELD_BYTES_MAX} bytes"));
        }
    }
    let head = ResponseHead { status: parts.status, headers: parts.headers };
    Ok(CallAnswer { head, body: content.flatten(), trailers })
}
