//! What a queue knows of one class beside who waits in it.

use super::slots::Ends;
use super::{CLASSES_MAX, ClassLimits};

/// A class's limits, its list and what has become of those who waited.
#[derive(Debug)]
pub(super) struct ClassState {
    pub(super) limits: ClassLimits,
    pub(super) ends: Ends,
    pub(super) len: usize,
    /// Somebody has waited for half of the time, or too many in vain, since it was last empty.
    pub(super) stands: bool,
    pub(super) vain: Vain,
    /// Earned by its share, and not taken yet.
    pub(super) credit: u32,
}

impl ClassState {
    fn new(limits: &ClassLimits) -> ClassState {
        let vain = Vain::default();
        ClassState { limits: *limits, ends: Ends::EMPTY, len: 0, stands: false, vain, credit: 0 }
    }

    /// Somebody waits here no longer.
    pub(super) fn leave(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            (self.stands, self.credit) = (false, 0);
        }
    }

    /// At least one, and no more than may be.
    pub(super) fn all(classes: &[ClassLimits]) -> Vec<ClassState> {
        let nobody = [ClassLimits::default()];
        let classes = if classes.is_empty() { &nobody } else { classes };
        classes.iter().take(CLASSES_MAX).map(ClassState::new).collect()
    }
}

/// How many of those who come to the end of their waiting have waited in vain, of
/// [`Vain::WHOLE`]: an exponentially weighted mean over about sixteen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vain(u32);

impl Vain {
    const WHOLE: u32 = 1 << 16;
    const MUCH: u32 = Vain::WHOLE / 8;

    pub(super) fn count(&mut self, is_vain: bool) {
        self.0 -= self.0 / 16;
        self.0 += if is_vain { Vain::WHOLE / 16 } else { 0 };
    }

    pub(super) fn is_much(self) -> bool {
        self.0 >= Vain::MUCH
    }
}
