//! Header edits and the like, as the `http` types have them.

use http::{HeaderName, HeaderValue, StatusCode};
use weir_config as config;

use crate::error::StartError;

/// A parsed header edit.
pub(crate) enum Edit {
    Set(HeaderName, HeaderValue),
    Add(HeaderName, HeaderValue),
    Remove(HeaderName),
}

pub(super) fn edits(edits: &[config::HeaderEdit]) -> Result<Vec<Edit>, StartError> {
    let parse = |edit: &config::HeaderEdit| {
        Ok(match edit {
            config::HeaderEdit::Set(n, v) => Edit::Set(header_name(n)?, header_value(v)?),
            config::HeaderEdit::Add(n, v) => Edit::Add(header_name(n)?, header_value(v)?),
            config::HeaderEdit::Remove(n) => Edit::Remove(header_name(n)?),
        })
    };
    edits.iter().map(parse).collect()
}

pub(super) fn header_value(value: &str) -> Result<HeaderValue, StartError> {
    HeaderValue::from_str(value).map_err(|_| StartError::Header { text: value.to_owned() })
}

pub(super) fn status_code(status: u16) -> Result<StatusCode, StartError> {
    StatusCode::from_u16(status).map_err(|_| StartError::Header { text: status.to_string() })
}

fn header_name(name: &str) -> Result<HeaderName, StartError> {
    name.parse().map_err(|_| StartError::Header { text: name.to_owned() })
}
