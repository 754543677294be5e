//! How large a picture becomes, and what part of it is taken.

use crate::orientation::Orientation;
use crate::wish::{Fit, Size};

/// A part of a picture, and the size that it is brought to; as it is stored, not as it is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Geometry {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) part_width: f64,
    pub(crate) part_height: f64,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Geometry {
    /// What a size means for a picture that is stored with these sides.
    pub(crate) fn new(stored: (u32, u32), orientation: Orientation, size: &Size) -> Geometry {
        let (width, height) = match orientation.transpose {
            true => (size.height, size.width),
            false => (size.width, size.height),
        };
        let (from_width, from_height) = (f64::from(stored.0), f64::from(stored.1));
        let whole = Geometry {
            left: 0.0,
            top: 0.0,
            part_width: from_width,
            part_height: from_height,
            width: stored.0,
            height: stored.1,
        };
        let ratio = |wanted: Option<u32>, from: f64| wanted.map(|wanted| f64::from(wanted) / from);
        let (by_width, by_height) = (ratio(width, from_width), ratio(height, from_height));
        let scaled = |by: f64| Geometry {
            width: pixels(from_width * by),
            height: pixels(from_height * by),
            ..whole
        };
        match (by_width, by_height) {
            (None, None) => whole,
            (Some(by), None) | (None, Some(by)) => scaled(by.min(1.0)),
            (Some(by_width), Some(by_height)) => match size.fit {
                Fit::Inside => scaled(by_width.min(by_height).min(1.0)),
                Fit::Fill => Geometry {
                    width: pixels(from_width * by_width.min(1.0)),
                    height: pixels(from_height * by_height.min(1.0)),
                    ..whole
                },
                Fit::Cover => whole.covering(from_width * by_width, from_height * by_height),
            },
        }
    }

    /// Fills a box, or, if the picture is too small for that, one of the same shape.
    fn covering(self, box_width: f64, box_height: f64) -> Geometry {
        let by = (box_width / self.part_width).max(box_height / self.part_height);
        let shrunk = if by > 1.0 { by } else { 1.0 };
        let (width, height) = (box_width / shrunk, box_height / shrunk);
        let by = by.min(1.0);
        let part_width = (width / by).min(self.part_width);
        let part_height = (height / by).min(self.part_height);
        Geometry {
            left: (self.part_width - part_width) / 2.0,
            top: (self.part_height - part_height) / 2.0,
            part_width,
            part_height,
            width: pixels(width),
            height: pixels(height),
        }
    }

    /// Whether the picture stays as large as it is.
    pub(crate) fn is_whole(&self, stored: (u32, u32)) -> bool {
        (self.width, self.height) == stored
    }
}

/// A side has a pixel at least.
fn pixels(side: f64) -> u32 {
    side.round().max(1.0) as u32
}
