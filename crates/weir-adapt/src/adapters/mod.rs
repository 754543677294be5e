//! What can be done with bytes: functions without any knowledge of where they come from. They run
//! in helpers, or, by `weir adapt`, where that is called.

pub mod compress;

use crate::job::{Limits, Recipe, Step};
use crate::wire::Why;

/// What has become of an input.
#[derive(Debug)]
pub enum Adapted {
    /// A variant, and what was done.
    Made(Vec<u8>, String),
    /// The original is as good.
    Original(Why),
}

/// Why an input cannot be adapted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// The result would be too large.
    #[error("the result is larger than {limit_bytes} bytes")]
    TooLarge {
        /// What was allowed.
        limit_bytes: u64,
    },
    /// An encoder does not take what it is given.
    #[error("{what}: {cause}")]
    Codec {
        /// Which.
        what: &'static str,
        /// What it says.
        cause: String,
    },
}

/// Does what a recipe says.
///
/// # Errors
/// The first step's that cannot be done.
pub fn adapt(input: &[u8], recipe: &Recipe, limits: &Limits) -> Result<Adapted, AdaptError> {
    let mut made: Option<Vec<u8>> = None;
    let mut details: Vec<String> = Vec::new();
    for step in &recipe.steps {
        let input = made.as_deref().unwrap_or(input);
        let adapted = match step {
            Step::Compress(compress) => compress::compress(input, compress, limits)?,
        };
        if let Adapted::Made(bytes, detail) = adapted {
            made = Some(bytes);
            details.push(detail);
        }
    }
    Ok(match made {
        Some(bytes) => Adapted::Made(bytes, details.join(", ")),
        None => Adapted::Original(Why::NotSmaller),
    })
}
