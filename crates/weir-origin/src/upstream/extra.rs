//! Fields that many requests have in common, put into their form once.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::http1::write_field;

/// Fields that a request gets behind its own. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Extra(Option<Arc<Forms>>);

#[derive(Debug)]
struct Forms {
    fields: Vec<(HeaderName, HeaderValue)>,
    /// As HTTP/1.1 has them.
    lines: Vec<u8>,
}

impl Extra {
    /// Makes the forms of `fields`. A request that gets them must have none of these names itself.
    pub fn new(fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Extra {
        let fields: Vec<_> = fields.into_iter().collect();
        let mut lines = Vec::new();
        for (name, value) in &fields {
            write_field(&mut lines, name, value.as_bytes());
        }
        Extra(Some(Arc::new(Forms { fields, lines })))
    }

    /// Field lines.
    pub(super) fn lines(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |forms| &forms.lines)
    }

    /// Puts the fields among a request's own. Again does no harm.
    pub(super) fn join(&self, headers: &mut HeaderMap) {
        for (name, value) in self.0.iter().flat_map(|forms| &forms.fields) {
            headers.insert(name, value.clone());
        }
    }
}
