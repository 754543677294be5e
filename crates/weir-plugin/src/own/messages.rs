//! Whole messages that plugins write as edit lists: the requests of calls, the responses that they
//! inject into the cache.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};

use super::changes;
use super::edits::{Edit, EditError, Edits};
use super::fields::{self, Section};
use super::ops::Op;
use crate::exchange::RequestHead;

/// A request to an upstream.
pub(crate) struct Request {
    pub(crate) upstream: String,
    pub(crate) head: RequestHead,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A response to store.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Reads a request: UPSTREAM, and then METHOD (else GET), TARGET (else `/`), AUTHORITY (else the
/// upstream's name), SET, ADD, BODY, TRAILER.
///
/// # Errors
/// The first record that is malformed or has no place in a request; or that there is no UPSTREAM.
pub(crate) fn request(edits: Edits<'_>) -> Result<Request, EditError> {
    let mut upstream = None;
    let (mut method, mut target, mut authority) = (Method::GET, String::from("/"), None);
    let (mut headers, mut trailers) = (HeaderMap::new(), HeaderMap::new());
    let mut body = Bytes::new();
    for edit in edits {
        let edit = edit?;
        match edit.op() {
            Op::Upstream => upstream = Some(name(&edit)?),
            Op::Method => method = changes::method(&edit)?,
            Op::Target => target = changes::target(&edit)?,
            Op::Authority => authority = Some(changes::authority(&edit)?),
            Op::Set | Op::Add => line(&mut headers, &edit, Section::RequestHead)?,
            Op::Body => body = changes::joined(body, &edit)?,
            Op::Trailer => line(&mut trailers, &edit, Section::Trailers)?,
            _ => return Err(edit.error("has no place in a call's request")),
        }
    }
    let Some(upstream) = upstream else {
        let mistake = "expected one, so that it is known whom to ask".to_owned();
        return Err(EditError { record: 0, op: "UPSTREAM".to_owned(), mistake });
    };
    let authority = authority.unwrap_or_else(|| upstream.clone());
    let version = Version::HTTP_11;
    let head = RequestHead { method, secure: false, authority, target, version, headers };
    Ok(Request { upstream, head, body, trailers })
}

/// Reads a response: STATUS (else 200), SET, ADD, BODY.
///
/// # Errors
/// The first record that is malformed or has no place in a response.
pub(crate) fn response(edits: Edits<'_>) -> Result<Response, EditError> {
    let mut response =
        Response { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::new() };
    for edit in edits {
        let edit = edit?;
        match edit.op() {
            Op::Status => response.status = changes::status(&edit)?,
            Op::Set | Op::Add => line(&mut response.headers, &edit, Section::ResponseHead)?,
            Op::Body => response.body = changes::joined(response.body, &edit)?,
            _ => return Err(edit.error("has no place in a stored response")),
        }
    }
    Ok(response)
}

fn line(headers: &mut HeaderMap, edit: &Edit<'_>, section: Section) -> Result<(), EditError> {
    fields::count(edit, &mut headers.len())?;
    let (name, value) = fields::line(edit, section)?;
    match edit.op() {
        Op::Set => drop(headers.insert(name, value)),
        _ => drop(headers.append(name, value)),
    }
    Ok(())
}

fn name(edit: &Edit<'_>) -> Result<String, EditError> {
    std::str::from_utf8(edit.bytes())
        .map(str::to_owned)
        .map_err(|_| edit.error("expected an upstream's name, in UTF-8"))
}
