//! Where the frames of an animation are put together, as GIF and APNG have them: a part that
//! changes, drawn over or in the place of what is there, and what becomes of it before the next.

use crate::Error;
use crate::picture::{Layout, Picture};

/// A part of a canvas. It may go beyond the canvas's sides, where nothing is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// How pixels are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// In the place of what is there, transparency and all.
    Instead,
    /// Over it.
    Over,
}

/// What becomes of a part before the next is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Keep,
    /// It becomes transparent.
    Clear,
    /// It becomes what it was before.
    Restore,
}

/// What is seen of an animation at a time.
pub(crate) struct Canvas {
    picture: Picture,
    /// What is to be done before the next frame, and what was there where that is to come back.
    then: Option<(Part, Then)>,
    before: Option<Picture>,
}

impl Canvas {
    /// One that is transparent.
    ///
    /// # Errors
    /// [`Error::Memory`]
    pub(crate) fn new(width: u32, height: u32) -> Result<Canvas, Error> {
        let picture = Picture::blank(width, height, Layout::Rgba)?;
        Ok(Canvas { picture, then: None, before: None })
    }

    /// Draws a frame. `pixels` has four bytes each, rows of `pitch` bytes. Returns what is seen.
    pub(crate) fn draw(
        &mut self,
        part: Part,
        (pixels, pitch): (&[u8], usize),
        draw: Draw,
        then: Then,
    ) -> Picture {
        match self.then.take() {
            Some((last, Then::Clear)) => self.rows(last, |_, row| row.fill(0)),
            Some((_, Then::Restore)) => {
                if let Some(before) = self.before.take() {
                    self.picture = before;
                }
            }
            _ => {}
        }
        if then == Then::Restore {
            self.before = Some(self.picture.clone());
        }
        self.rows(part, |number, row| {
            let drawn = pixels.get(number * pitch..).unwrap_or_default();
            for (below, above) in row.chunks_exact_mut(4).zip(drawn.chunks_exact(4)) {
                match (draw, above[3]) {
                    (Draw::Instead, _) | (Draw::Over, 255) => below.copy_from_slice(above),
                    (Draw::Over, 0) => {}
                    (Draw::Over, _) => blend(below, above),
                }
            }
        });
        self.then = Some((part, then));
        self.picture.clone()
    }

    /// Calls `each` with the number of a part's row and its pixels, as far as they lie within.
    fn rows(&mut self, part: Part, mut each: impl FnMut(usize, &mut [u8])) {
        let (width, pitch) = (self.picture.width, self.picture.pitch());
        let left = part.left.min(width) as usize * 4;
        let right = part.left.saturating_add(part.width).min(width) as usize * 4;
        let rows = self.picture.pixels.chunks_exact_mut(pitch).skip(part.top as usize);
        for (number, row) in rows.take(part.height as usize).enumerate() {
            each(number, &mut row[left..right]);
        }
    }
}

/// One pixel over another (W3C PNG §13.16).
fn blend(below: &mut [u8], above: &[u8]) {
    let (over, under) = (u32::from(above[3]), u32::from(below[3]));
    let seen = under * (255 - over);
    let alpha = over * 255 + seen;
    if alpha == 0 {
        return;
    }
    for (below, above) in below[..3].iter_mut().zip(above) {
        let mixed = u32::from(*above) * over * 255 + u32::from(*below) * seen;
        *below = ((mixed + alpha / 2) / alpha) as u8;
    }
    below[3] = ((alpha + 127) / 255) as u8;
}
