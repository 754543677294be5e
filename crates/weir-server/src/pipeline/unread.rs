//! Content that an answer does not need. In HTTP/2 the answer waits until the request is over, so
//! that a client that errs at its end hears of the error, not of a success; in HTTP/1 it does not,
//! since a client may be waiting to be told to go on or to stop.

use std::time::Duration;

use http::{Response, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::body::ReplyBody;
use crate::connection::Reply;

/// Content read for nothing: what is in flight when an answer is ready, but no upload.
const BYTES_MAX: usize = 64 << 10;

/// How long an answer waits for the request's end. Clients send it with the rest.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Whether the request has not ended, and an answer that does not need the rest should wait for it.
/// The first check costs nothing and settles it for almost every request; the last takes a lock.
pub(super) fn is_open(version: Version, body: &Incoming) -> bool {
    version == Version::HTTP_2 && body.size_hint().exact() != Some(0) && !body.is_end_stream()
}

/// Replies when the request is over.
pub(super) fn reply(
    response: Response<ReplyBody>,
    version: Version,
    body: Option<Incoming>,
) -> Reply {
    let Some(body) = body.filter(|body| is_open(version, body)) else {
        return Reply::Now(Some(response));
    };
    Reply::Later(Box::pin(async move {
        read(body).await;
        response
    }))
}

/// Reads content until it ends or fails, or is more than anybody should wait for.
pub(super) async fn read(mut body: Incoming) {
    let mut left = BYTES_MAX;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, bytes::Bytes::len);
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // Too slow is as good as too long: the answer goes out early.
    let _ = tokio::time::timeout(TIME_MAX, reading).await;
}
