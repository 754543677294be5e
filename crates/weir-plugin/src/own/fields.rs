//! Field lines that plugins write: names and values that may be written, and where.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, EXPECT, HOST, HeaderName, HeaderValue, MAX_FORWARDS, RANGE, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::edits::{Edit, EditError};
use crate::limits::FIELDS_MAX;

/// Where a line is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    RequestHead,
    ResponseHead,
    Trailers,
}

/// Fields of the connection, not of the message (RFC 9110, sections 7.6.1 and 7.8; RFC 9112,
/// section 6), by which messages are told apart: only the server writes them.
fn is_the_servers(name: &HeaderName) -> bool {
    [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || ["keep-alive", "proxy-connection", "http2-settings"].contains(&name.as_str())
}

/// Fields that must not come after a body (RFC 9110, section 6.5.1): routing, authentication,
/// controls, and what says how to read the body.
fn belongs_in_heads(name: &HeaderName) -> bool {
    let heads_only = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_RANGE,
        CONTENT_TYPE,
        EXPECT,
        HOST,
        MAX_FORWARDS,
        RANGE,
        SET_COOKIE,
    ];
    heads_only.contains(name)
}

/// Whether a field may stand in trailers.
pub(crate) fn may_be_trailer(name: &HeaderName) -> bool {
    !is_the_servers(name) && !belongs_in_heads(name)
}

/// The name of a field that may be changed in `section`.
pub(crate) fn name(edit: &Edit<'_>, section: Section) -> Result<HeaderName, EditError> {
    let name = HeaderName::from_bytes(edit.name)
        .map_err(|_| edit.error(format!("{} is no field name", edit.name.escape_ascii())))?;
    // Trailers that a response announces are what the server cannot know.
    let announces = name == TRAILER && section == Section::ResponseHead;
    if is_the_servers(&name) && !announces {
        return Err(edit.error(format!("{name} is written by the server alone")));
    }
    match section {
        Section::RequestHead if name == HOST => {
            Err(edit.error("expected AUTHORITY in place of the field host"))
        }
        Section::Trailers if belongs_in_heads(&name) => {
            Err(edit.error(format!("{name} may not stand in trailers")))
        }
        _ => Ok(name),
    }
}

/// A field's value; white space around it is not part of it (RFC 9110, section 5.5).
pub(crate) fn value(edit: &Edit<'_>) -> Result<HeaderValue, EditError> {
    let value = edit.bytes().trim_ascii();
    HeaderValue::from_bytes(value).map_err(|_| {
        let cut = &value[..value.len().min(80)];
        edit.error(format!("{:?} cannot be a field's value", cut.escape_ascii().to_string()))
    })
}

/// Name and value.
pub(crate) fn line(
    edit: &Edit<'_>,
    section: Section,
) -> Result<(HeaderName, HeaderValue), EditError> {
    Ok((name(edit, section)?, value(edit)?))
}

/// One more line among `already`.
pub(crate) fn count(edit: &Edit<'_>, already: &mut usize) -> Result<(), EditError> {
    *already += 1;
    match *already > FIELDS_MAX {
        true => Err(edit.error(format!("a section has at most {FIELDS_MAX} lines"))),
        false => Ok(()),
    }
}
