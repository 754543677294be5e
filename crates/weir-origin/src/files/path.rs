//! A path below the root, checked once: no empty, dot or parent segment, no NUL, no hidden
//! name.

use super::{FilesError, PATH_BYTES_MAX};

/// The one dot directory that is served: RFC 8615 puts certificates' challenges and the like there.
const WELL_KNOWN: &[u8] = b".well-known";

/// Segments joined by slashes; empty for the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelativePath {
    joined: Vec<u8>,
}

impl RelativePath {
    /// Checks a percent-decoded path. Every refusal is "not found": a client learns nothing about
    /// names that are never served.
    pub(super) fn parse(path: &[u8]) -> Result<RelativePath, FilesError> {
        let served = |name: &[u8]| !name.is_empty() && !name.contains(&0) && !is_hidden(name);
        let valid = path.is_empty() || path.split(|&byte| byte == b'/').all(served);
        if !valid || path.len() > PATH_BYTES_MAX {
            return Err(FilesError::NotFound);
        }
        Ok(RelativePath { joined: path.to_vec() })
    }

    /// This path with a name of the operator's (an index file) below it.
    pub(super) fn child(&self, name: &[u8]) -> RelativePath {
        let mut joined = self.joined.clone();
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
        RelativePath { joined }
    }

    /// This path with an ending put to its last name.
    pub(super) fn with_suffix(&self, suffix: &str) -> RelativePath {
        RelativePath { joined: [&self.joined, suffix.as_bytes()].concat() }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.joined
    }

    pub(super) fn is_root(&self) -> bool {
        self.joined.is_empty()
    }

    /// The last name; empty for the root.
    pub(super) fn name(&self) -> &[u8] {
        self.joined.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }
}

/// Dot names, `.` and `..` among them, are never served.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != WELL_KNOWN
}
