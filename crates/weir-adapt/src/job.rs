//! What is to be done to a stored response, and what has become of it.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::adapters::compress::{Coding, Compress};
use crate::adapters::html::Rewriting;
use crate::adapters::image::Image;

/// One thing to do with bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Step {
    /// A content coding.
    Compress(Compress),
    /// Content codings undone, given in the order in which they were applied.
    Decode(Vec<Coding>),
    /// HTML rewritten.
    Html(Rewriting),
    /// A picture made into another.
    Image(Image),
}

/// What is done, one step after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recipe {
    /// Never empty.
    pub steps: Vec<Step>,
}

/// What a job may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of the result.
    pub output_bytes: u64,
    /// Processor time; by the clock a job may take thirty times as long, if others have the
    /// processor.
    pub time: Duration,
}

/// A part of a job's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// In the arena whose reading end helpers have.
    Stored {
        /// Of the first byte, in the arena's file.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Behind the order, after the pieces before it.
    Behind {
        /// Bytes.
        len: u64,
    },
}

/// Something to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// What all who ask for the same have in common: the original's identity and the variant's.
    pub key: u128,
    /// The stored body; kept until the job is over.
    pub input: Vec<Bytes>,
    /// What steps look things up in, stored like the body.
    pub tables: Vec<Bytes>,
    /// What to do with it.
    pub recipe: Recipe,
    /// What that may take.
    pub limits: Limits,
}

impl Job {
    /// Bytes of the stored body.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.input.iter().map(|part| part.len() as u64).sum()
    }
}

/// The end of a job.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// There is a variant.
    Made(Made),
    /// The original is as good: the word says why.
    Original(&'static str),
    /// It could not be done: what happened.
    Failed(String),
    /// No helper lived to the end of it, or none could be started. Whether it may be tried again
    /// is known to the pool, which refuses it for a while.
    Died(String),
}

/// A variant.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its bytes.
    pub body: Bytes,
    /// What was done, for the header field that tells so.
    pub detail: String,
    /// How long a helper worked on it.
    pub took: Duration,
}
