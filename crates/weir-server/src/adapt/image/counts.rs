//! What becomes of pictures since the start.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use weir_adapt::{Outcome, Recipe, Step};
use weir_image::Format;

/// Counters.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    made: [AtomicU64; Format::ALL.len()],
    saved_bytes: AtomicU64,
    /// Originals that stay as they are, by why; the words are few.
    kept: Mutex<BTreeMap<&'static str, u64>>,
}

impl Pictures {
    /// Takes note of what became of a job, if it is about a picture.
    pub(crate) fn note(&self, recipe: &Recipe, original_bytes: u64, outcome: &Outcome) {
        if !recipe.steps.iter().any(|step| matches!(step, Step::Image(_))) {
            return;
        }
        match outcome {
            Outcome::Made(made) => {
                let name = made.detail.split([';', ',']).next().unwrap_or_default();
                if let Some(at) = Format::ALL.iter().position(|format| format.name() == name) {
                    self.made[at].fetch_add(1, Relaxed);
                }
                let saved = original_bytes.saturating_sub(made.body.len() as u64);
                self.saved_bytes.fetch_add(saved, Relaxed);
            }
            Outcome::Original(why) => *self.kept.lock().entry(why).or_default() += 1,
            Outcome::Failed(_) | Outcome::Died(_) => {
                *self.kept.lock().entry("failed").or_default() += 1
            }
        }
    }

    /// Pictures that were made, by format.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Format::ALL.iter().map(|format| format.name());
        names.zip(self.made.iter().map(|count| count.load(Relaxed)))
    }

    /// Bytes that they are smaller than their originals.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.saved_bytes.load(Relaxed)
    }

    /// Originals that stay as they are, by why.
    pub(crate) fn kept(&self) -> Vec<(&'static str, u64)> {
        self.kept.lock().iter().map(|(why, count)| (*why, *count)).collect()
    }
}
