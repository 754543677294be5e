//! How threads of plugins begin: whoever serves may have them give up what plugins have no business
//! to have.

use std::sync::OnceLock;

static BEGIN: OnceLock<fn()> = OnceLock::new();

/// Every thread that plugins get from now on calls this before it does anything. The first call
/// counts.
pub fn begin_threads_with(begin: fn()) {
    BEGIN.get_or_init(|| begin);
}

/// To be called first on each thread of this crate.
pub(crate) fn begin() {
    if let Some(begin) = BEGIN.get() {
        begin();
    }
}
