//! What was made of a response while it was sent, kept as the variant that it is: nobody has to
//! make it again.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use weir_adapt::Step;
use weir_cache::{Body, Cache, Object};

use super::effort::Effort;
use super::work::{Chosen, Work};
use super::{Adaptation, Streamed, Variant, Wanted};

/// What is larger is not gathered: helpers make that, whose memory it is then. Pages seldom are.
const BYTES_MAX: usize = 1 << 20;

/// What has been sent so far.
#[derive(Default)]
pub(crate) struct Gathered {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Gathered {
    /// Takes the next piece, which is not copied.
    pub(crate) fn take(&mut self, piece: &Bytes) {
        self.bytes += piece.len();
        match self.is_whole() {
            true => self.pieces.push(piece.clone()),
            false => self.pieces.clear(),
        }
    }

    fn is_whole(&self) -> bool {
        self.bytes <= BYTES_MAX
    }

    /// Whether it is what the client would have had anyway.
    fn is_like(&self, original: &Object) -> bool {
        let (body, mut at) = (original.body(), 0);
        let is_next = |piece: &Bytes| {
            let (start, mut left) = (at, &piece[..]);
            at += piece.len() as u64;
            body.slices(start..at).all(|part| {
                let (first, rest) = left.split_at(part.len());
                left = rest;
                first == part
            })
        };
        self.bytes as u64 == body.len() && self.pieces.iter().all(is_next)
    }

    fn copied(&self, cache: &Cache) -> Option<Body> {
        let mut destination = cache.destination(self.bytes as u64).ok()?;
        self.pieces.iter().try_for_each(|piece| destination.write(piece)).ok()?;
        Some(destination.freeze())
    }
}

impl Adaptation {
    /// Keeps what was made of an original while it was sent. `page` says what has become of it as a
    /// page, if it is one that could be read.
    pub(crate) fn keep(
        &self,
        cache: &Cache,
        wanted: &Wanted<'_>,
        streamed: &Streamed,
        gathered: &Gathered,
        page: Option<&str>,
    ) {
        let Wanted { original, variant, .. } = wanted;
        let Some(effort) = variant.effort_of(streamed).filter(|_| gathered.is_whole()) else {
            return;
        };
        let Some(detail) = streamed.result(page) else { return };
        if !streamed.changes_pages() && gathered.bytes as u64 >= original.body().len() {
            // With more effort it may yet be worth it.
            return;
        }
        if variant.is_uncoded() && gathered.is_like(original) {
            return self.declined.add(wanted.job_key(), "unchanged");
        }
        if let Some(body) = gathered.copied(cache) {
            self.counts.kept.fetch_add(1, Relaxed);
            self.counts.drafts.fetch_add(u64::from(effort == Effort::Draft), Relaxed);
            variant.store(cache, &wanted.key.to_key(), original, (body, &detail), effort);
        }
    }
}

impl Variant {
    /// How much effort went into this, if it is what was made while it was sent.
    fn effort_of(&self, streamed: &Streamed) -> Option<Effort> {
        let both = || self.chosen.iter().zip(&streamed.chosen);
        let is_it = self.chosen.len() == streamed.chosen.len()
            && both().all(|(stored, sent)| stored.is_like(sent));
        let is_whole = || both().all(|(stored, sent)| stored.level() == sent.level());
        is_it.then(|| if is_whole() { Effort::Whole } else { Effort::Draft })
    }

    fn is_uncoded(&self) -> bool {
        self.chosen.iter().all(|one| one.coding().is_none())
    }
}

impl Chosen {
    /// Whether another makes the same of the same, but for the effort.
    fn is_like(&self, other: &Chosen) -> bool {
        let is_same = match (&self.work, &other.work) {
            (Work::Page(_), Work::Page(_)) => self.key == other.key,
            (Work::Compress(_), Work::Compress(_)) => true,
            _ => false,
        };
        is_same && self.coding() == other.coding()
    }

    fn level(&self) -> Option<u32> {
        match &self.work {
            Work::Compress(compress) => Some(compress.level),
            Work::Page(page) => page.again.map(|compress| compress.level),
            Work::Image(_) => None,
        }
    }
}

impl Streamed {
    /// What was done, as a helper says it; `None` if it was not.
    fn result(&self, page: Option<&str>) -> Option<String> {
        let words = self.steps.iter().filter_map(|step| match step {
            Step::Html(_) => Some(page.map(str::to_owned)),
            Step::Compress(one) => Some(Some(format!("{};q={}", one.coding.token(), one.level))),
            _ => None,
        });
        words.collect::<Option<Vec<_>>>().map(|words| words.join(", "))
    }
}
