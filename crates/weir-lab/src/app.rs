//! The separate application of S3: answers `/cached/…?size=N` with a body of N bytes that may be
//! cached and `/uncached/…?size=N` with one that may not. It is made as cheap as the floor, because
//! it is not what the experiment measures.

use std::collections::HashMap;
use std::sync::Arc;

use crate::documents::document;
use crate::floor::{Content, Document};

/// Largest body it makes.
const SIZE_MAX: usize = 64 << 20;
/// Different targets it remembers.
const TARGETS_MAX: usize = 1_024;

/// Documents made when first asked for.
#[derive(Default)]
pub struct Application {
    documents: HashMap<Vec<u8>, Arc<Document>>,
}

impl Content for Application {
    fn find(&mut self, target: &[u8]) -> Option<Arc<Document>> {
        if let Some(document) = self.documents.get(target) {
            return Some(document.clone());
        }
        let (size, fields) = parse_target(std::str::from_utf8(target).ok()?)?;
        let made = Arc::new(Document::new("200 OK", fields, &document(size)).ok()?);
        if self.documents.len() < TARGETS_MAX {
            self.documents.insert(target.to_owned(), made.clone());
        }
        Some(made)
    }
}

/// Path and query of a document of the application.
#[must_use]
pub fn target(cached: bool, size: usize) -> String {
    let folder = if cached { "cached" } else { "uncached" };
    format!("/{folder}/document?size={size}")
}

fn parse_target(target: &str) -> Option<(usize, &'static str)> {
    let (path, query) = target.split_once('?')?;
    let size = query.strip_prefix("size=")?.parse().ok().filter(|size| *size <= SIZE_MAX)?;
    if path.starts_with("/cached/") {
        Some((size, "Cache-Control: public, max-age=3600\r\n"))
    } else if path.starts_with("/uncached/") {
        Some((size, "Cache-Control: no-store\r\n"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let check = |target: &str, expect: Option<usize>| {
            assert_eq!(parse_target(target).map(|(size, _)| size), expect, "{target}");
        };
        check(&target(true, 1_024), Some(1_024));
        check(&target(false, 0), Some(0));
        check("/cached/document", None);
        check("/cached/document?size=-1", None);
        check("/cached/document?size=99999999999", None);
        check("/other?size=1", None);
    }

    #[test]
    fn only_one_of_the_two_may_be_stored() {
        assert!(
            parse_target(&target(true, 1)).is_some_and(|(_, fields)| fields.contains("max-age"))
        );
        assert!(
            parse_target(&target(false, 1)).is_some_and(|(_, fields)| fields.contains("no-store"))
        );
    }
}
