//! What takes long to make has a draft: the same with less effort, which clients get until the
//! whole is there.

use http::header::HeaderValue;
use weir_cache::{Cache, Head, Key, Object};

use crate::pipeline::WEIR_ADAPT;

/// How much effort went into a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// As much as a client should have to wait for; what its route asks for follows.
    Draft,
    Whole,
}

/// Ends what `Weir-Adapt` says of a draft.
const DRAFT: &str = ";draft";

impl Effort {
    /// What it adds to `Weir-Adapt`.
    pub(super) const fn mark(self) -> &'static str {
        match self {
            Effort::Draft => DRAFT,
            Effort::Whole => "",
        }
    }
}

/// Whether a stored variant stands for one that is still to be made.
pub(crate) fn is_draft(variant: &Object) -> bool {
    let said = variant.headers().get(WEIR_ADAPT);
    said.is_some_and(|said| said.as_bytes().ends_with(DRAFT.as_bytes()))
}

/// Stores a draft anew as all that there will be of its variant.
pub(super) fn settle(cache: &Cache, key: &Key, original: &Object, draft: &Object) {
    let mut headers = draft.headers().clone();
    let said = headers.get(WEIR_ADAPT).map(HeaderValue::as_bytes);
    let said = said.and_then(|said| said.strip_suffix(DRAFT.as_bytes()));
    if let Some(said) = said.and_then(|said| HeaderValue::from_bytes(said).ok()) {
        headers.insert(WEIR_ADAPT, said);
    }
    let head = Head {
        derived_from: draft.derived_from(),
        selectors: draft.selectors().clone(),
        ..Head::new(draft.status(), headers, draft.freshness())
    };
    cache.insert_derived(&key.borrow(), head, draft.body().clone(), original);
}
