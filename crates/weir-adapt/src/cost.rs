//! What a recipe costs, before it is followed: so that what takes long neither goes before what
//! does not, nor has its first clients wait for it.
//!
//! The figures are rough by design. They were measured on one core of 2026, on 98 KB of HTML and on
//! photographs; another machine has others, in about the same proportions.

use std::time::Duration;

use weir_image::Format;

use crate::adapters::compress::{Coding, Compress};
use crate::adapters::image::Image;
use crate::job::{Recipe, Step};

/// What costs more goes after what costs less.
pub const DEAR: Duration = Duration::from_millis(10);

/// A draft is worth making if it costs no more than this part of what it stands for.
const DRAFT_SHARE: u32 = 4;

/// Nanoseconds for a byte by level, up to and including each.
type Rates = &'static [(u32, u64)];

const GZIP: Rates = &[(4, 6), (6, 10), (9, 25)];
const BROTLI: Rates = &[(4, 20), (6, 43), (9, 200), (11, 2500)];
const ZSTD: Rates = &[(3, 4), (9, 15), (12, 67), (22, 700)];

/// For a byte of a page.
const HTML_NS: u64 = 10;
/// For a byte that a coding stands for.
const DECODE_NS: u64 = 3;

impl Recipe {
    /// Processor time that it takes for an input of so many bytes, roughly.
    #[must_use]
    pub fn cost(&self, input_bytes: u64) -> Duration {
        let rate: u64 = self.steps.iter().map(Step::ns_per_byte).sum();
        Duration::from_nanos(rate.saturating_mul(input_bytes))
    }

    /// What can be had sooner, where that is worth it: the same with less effort. There is one for
    /// recipes that end in a strong compression.
    #[must_use]
    pub fn draft(&self, input_bytes: u64) -> Option<Recipe> {
        let mut draft = self.clone();
        let Some(Step::Compress(compress)) = draft.steps.last_mut() else { return None };
        compress.level = compress.level.min(compress.coding.quick_level());
        let (cost, whole) = (draft.cost(input_bytes), self.cost(input_bytes));
        (whole > DEAR && cost * DRAFT_SHARE <= whole).then_some(draft)
    }
}

impl Step {
    /// Nanoseconds of processor time for a byte of input, roughly.
    #[must_use]
    pub fn ns_per_byte(&self) -> u64 {
        match self {
            Step::Compress(compress) => compress_ns(compress),
            Step::Decode(codings) => DECODE_NS * codings.len() as u64,
            Step::Html(_) => HTML_NS,
            Step::Image(image) => image_ns(image),
        }
    }
}

fn compress_ns(compress: &Compress) -> u64 {
    let rates = match compress.coding {
        Coding::Gzip => GZIP,
        Coding::Brotli => BROTLI,
        Coding::Zstd => ZSTD,
    };
    let rate = rates.iter().find(|(level, _)| compress.level <= *level).or(rates.last());
    rate.map_or(0, |(_, ns)| *ns)
}

/// By what it most likely becomes, for a byte of a photograph as JPEG.
fn image_ns(image: &Image) -> u64 {
    match image.wish.formats.first() {
        Some(Format::Avif) => 3000,
        Some(Format::WebP | Format::Png) => 350,
        _ => 130,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::html::Rewriting;

    fn recipe(coding: Coding, level: u32) -> Recipe {
        Recipe { steps: vec![Step::Compress(Compress { coding, level })] }
    }

    #[test]
    fn what_is_stronger_costs_more() {
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let (least, most) = coding.levels();
            let costs: Vec<_> =
                (least..=most + 1).map(|level| recipe(coding, level).cost(1000)).collect();
            assert!(costs.is_sorted() && costs[0] < costs[costs.len() - 1], "{coding:?}");
        }
        let both = Recipe {
            steps: vec![
                Step::Html(Rewriting::default()),
                Step::Compress(Compress { coding: Coding::Gzip, level: 4 }),
            ],
        };
        assert!(both.cost(1000) > recipe(Coding::Gzip, 4).cost(1000));
        assert_eq!(recipe(Coding::Brotli, 11).cost(u64::MAX), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn drafts_are_for_what_takes_long() {
        for (coding, level, bytes, expected) in [
            (Coding::Brotli, 11, 100_000, Some(4)),
            // Quick enough as it is: small, or of a level that is.
            (Coding::Brotli, 11, 3_000, None),
            (Coding::Brotli, 4, 10_000_000, None),
            (Coding::Brotli, 9, 10_000_000, Some(4)),
            (Coding::Zstd, 19, 100_000, Some(3)),
            (Coding::Gzip, 9, 10_000_000, Some(4)),
            // Less than four times as quick.
            (Coding::Gzip, 6, 10_000_000, None),
        ] {
            let draft = recipe(coding, level).draft(bytes);
            let expected = expected.map(|level| recipe(coding, level));
            assert_eq!(draft, expected, "{coding:?} {level} {bytes}");
        }
        assert_eq!(Recipe { steps: vec![Step::Html(Rewriting::default())] }.draft(1 << 30), None);
    }
}
