//! From the bytes of one picture to those of another.

use fast_image_resize::Resizer;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::colour::{self, Colour};
use crate::decode::{self, Frames};
use crate::encode::{self, Animation, Coding};
use crate::format::{Format, Source};
use crate::likeness;
use crate::limits::{Excess, Limits};
use crate::picture::{Frame, Layout, Picture};
use crate::probe::{Probe, Unsupported, probe};
use crate::resize::resize;
use crate::size::Geometry;
use crate::wish::Wish;

/// AVIF is not made of more pixels: it would take longer than a job may, by default.
const AVIF_PIXELS_MAX: u64 = 4_000_000;

/// A decoder makes a picture smaller by 2, 4 or 8 itself as long as it is this many times larger
/// than it is to be: what is left is enough for a good filter.
const SHRINK_SPARE: u32 = 2;

/// What has become of a picture.
#[derive(Debug)]
pub enum Converted {
    /// Another one.
    Made(Made),
    /// The original is sent.
    Kept(Kept),
}

/// A picture that was made.
#[derive(Debug)]
pub struct Made {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its format.
    pub format: Format,
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Frames that it has.
    pub frames: u32,
    /// The quality it was made with; `None` if nothing was lost.
    pub quality: Option<u8>,
    /// How alike it looks to what it was made of, where that was asked.
    pub score: Option<i32>,
}

/// Why an original is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// It is in no format that is read.
    Unknown,
    /// It is more than may be worked on.
    Excess(Excess),
    /// What was made is not smaller.
    NotSmaller,
    /// There is nothing to change.
    Unchanged,
    /// It moves, and what is asked for cannot.
    Animated,
    /// It has a high dynamic range.
    Hdr,
    /// It is of a kind that nobody here can work on.
    Unsupported,
    /// None of the formats suits it.
    NoFormat,
}

impl Kept {
    /// A word for header field and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kept::Unknown => "unknown-format",
            Kept::Excess(excess) => excess.as_str(),
            Kept::NotSmaller => "not-smaller",
            Kept::Unchanged => "unchanged",
            Kept::Animated => "animated",
            Kept::Hdr => "hdr",
            Kept::Unsupported => "unsupported",
            Kept::NoFormat => "no-format",
        }
    }
}

/// Makes of a picture what is wished, within limits that are judged before memory is taken for it.
/// What comes of it has no metadata, is in sRGB and upright, and is smaller than `input` unless its
/// format is forced.
///
/// # Errors
/// What is wrong with the picture, or what a codec says.
pub fn convert(input: &[u8], wish: &Wish, limits: &Limits) -> Result<Converted, Error> {
    if input.len() as u64 > limits.source_bytes {
        return Ok(Converted::Kept(Kept::Excess(Excess::SourceBytes)));
    }
    let Some(probe) = probe(input, limits)? else {
        return Ok(Converted::Kept(Kept::Unknown));
    };
    let geometry = Geometry::new((probe.width, probe.height), probe.orientation, &wish.size);
    let shrink = shrink(&probe, &geometry);
    if let Some(excess) = limits.excess(&probe, decoded_bytes(&probe, shrink)) {
        return Ok(Converted::Kept(Kept::Excess(excess)));
    }
    match probe.unsupported {
        Some(Unsupported::Hdr) => return Ok(Converted::Kept(Kept::Hdr)),
        Some(Unsupported::Kind) => return Ok(Converted::Kept(Kept::Unsupported)),
        None => {}
    }
    let mut work = Work { wish, probe: &probe, geometry, colour: None, resizer: Resizer::new() };
    // Whether it is transparent is known later; what can be done in neither case, now.
    if let Err(kept) = work.formats(true).or_else(|_| work.formats(false)) {
        return Ok(Converted::Kept(kept));
    }
    let frames = match decode::open(input, &probe, shrink, limits) {
        Err(Error::Hdr) => return Ok(Converted::Kept(Kept::Hdr)),
        frames => frames?,
    };
    work.colour = frames.colour();
    let converted = work.run(frames)?;
    Ok(match converted {
        // A format that is asked for is what is wanted, not fewer bytes.
        Converted::Made(made) if made.bytes.len() >= input.len() && !wish.is_forced => {
            Converted::Kept(Kept::NotSmaller)
        }
        converted => converted,
    })
}

/// By what a decoder may make a picture smaller: a power of two up to 8, which only JPEG's can.
fn shrink(probe: &Probe, geometry: &Geometry) -> u32 {
    if probe.source != Source::Jpeg {
        return 1;
    }
    let by_width = geometry.part_width / f64::from(geometry.width);
    let by_height = geometry.part_height / f64::from(geometry.height);
    let by = by_width.min(by_height) / f64::from(SHRINK_SPARE);
    [8, 4, 2].into_iter().find(|shrink| by >= f64::from(*shrink)).unwrap_or(1)
}

/// Bytes that a picture comes to, decoded.
fn decoded_bytes(probe: &Probe, shrink: u32) -> u64 {
    let side = |side: u32| u64::from(side.div_ceil(shrink));
    let frame = (side(probe.width) * side(probe.height)).saturating_mul(4);
    frame.saturating_mul(u64::from(probe.frames)).saturating_add(probe.beside_bytes)
}

/// One picture on its way.
struct Work<'a> {
    wish: &'a Wish,
    probe: &'a Probe,
    geometry: Geometry,
    /// What colours mean, where the probe could not know.
    colour: Option<Colour>,
    resizer: Resizer,
}

impl Work<'_> {
    fn moves(&self) -> bool {
        let first = self.wish.formats.first();
        let can_move = !self.wish.is_forced || first == Some(&Format::WebP);
        self.probe.frames > 1 && !self.wish.still && can_move
    }

    /// The format that suits a picture with or without transparency.
    fn formats(&self, has_alpha: bool) -> Result<Format, Kept> {
        let source = self.probe.source;
        if self.moves() && source == Source::Avif {
            return Err(Kept::Animated);
        }
        if self.wish.is_forced {
            let format = self.wish.formats.first().copied().ok_or(Kept::NoFormat)?;
            return self.excess(format).map_or(Ok(format), |excess| Err(Kept::Excess(excess)));
        }
        let holds = |format: &Format| match format {
            Format::WebP => true,
            _ if self.moves() => false,
            Format::Jpeg => !has_alpha,
            Format::Avif | Format::Png => true,
        };
        let fits = |format: &Format| holds(format) && self.excess(*format).is_none();
        let mut suiting = self.wish.formats.iter().filter(|format| format.suits(source));
        if let Some(format) = suiting.find(|format| fits(format)) {
            return Ok(*format);
        }
        let own = source.own();
        match (self.wish.keeps_format && fits(&own), self.moves()) {
            (true, _) if self.changes() => Ok(own),
            (true, _) => Err(Kept::Unchanged),
            (false, true) => Err(Kept::Animated),
            (false, false) => Err(Kept::NoFormat),
        }
    }

    /// What of the picture is more than a format is made of.
    fn excess(&self, format: Format) -> Option<Excess> {
        let (width, height) = (self.geometry.width, self.geometry.height);
        let pixels = u64::from(width) * u64::from(height);
        if width.max(height) > format.side_max() {
            Some(Excess::Side)
        } else if format == Format::Avif && pixels > AVIF_PIXELS_MAX {
            Some(Excess::Pixels)
        } else {
            None
        }
    }

    /// Whether anything but the format is to be another.
    fn changes(&self) -> bool {
        let is_whole = self.geometry.is_whole((self.probe.width, self.probe.height));
        !is_whole || self.wish.grey || (self.wish.still && self.probe.frames > 1)
    }

    fn run(&mut self, mut frames: Box<dyn Frames + '_>) -> Result<Converted, Error> {
        let empty = || Error::codec(self.probe.source.name(), "there is no picture in it");
        let first = frames.next()?.ok_or_else(empty)?;
        let first = Frame { picture: self.prepared(first.picture)?, ..first };
        if self.moves() {
            return self.animation(first, frames);
        }
        let picture = first.picture.without_idle_alpha();
        let format = match self.formats(picture.layout == Layout::Rgba) {
            Ok(format) => format,
            Err(kept) => return Ok(Converted::Kept(kept)),
        };
        let picture = if format == Format::Jpeg { picture.over([255; 3]) } else { picture };
        self.still(&picture, format).map(Converted::Made)
    }

    /// A frame, as it is to be seen but for its format.
    fn prepared(&mut self, picture: Picture) -> Result<Picture, Error> {
        let stored = (self.probe.width, self.probe.height);
        let picture = resize(&mut self.resizer, picture, stored, &self.geometry)?;
        let picture = colour::to_srgb(picture, self.colour.as_ref().unwrap_or(&self.probe.colour))?;
        let mut picture = self.probe.orientation.apply(picture)?;
        if self.wish.grey {
            picture.desaturate();
        }
        Ok(picture)
    }

    fn still(&self, picture: &Picture, format: Format) -> Result<Made, Error> {
        let quality = self.wish.quality.of(format);
        let is_drawn = self.probe.source.is_lossless();
        let mut coding = Coding { format, quality, is_drawn, is_trial: false };
        let loses_nothing = coding.loses_nothing(picture);
        let wanted = self.wish.score.filter(|_| !loses_nothing);
        let found = wanted.map(|score| likeness::find(picture, &coding, score)).transpose()?;
        if let Some(found) = found {
            coding.quality = found.quality;
        }
        Ok(Made {
            bytes: encode::encode(picture, &coding)?,
            format,
            width: picture.width,
            height: picture.height,
            frames: 1,
            quality: (!loses_nothing).then_some(coding.quality),
            score: found.map(|found| found.score),
        })
    }

    /// WebP is what moves. How alike frames look is not asked: nobody sees one for long.
    fn animation(
        &mut self,
        first: Frame,
        mut frames: Box<dyn Frames + '_>,
    ) -> Result<Converted, Error> {
        let (width, height) = (first.picture.width, first.picture.height);
        let quality = self.wish.quality.of(Format::WebP);
        let mut animation = Animation::new((width, height), quality, self.probe.loops)?;
        animation.add(&first)?;
        drop(first);
        let mut count = 1;
        while let Some(frame) = frames.next()? {
            let picture = self.prepared(frame.picture)?;
            animation.add(&Frame { picture, ..frame })?;
            count += 1;
        }
        Ok(Converted::Made(Made {
            bytes: animation.finish()?,
            format: Format::WebP,
            width,
            height,
            frames: count,
            quality: Some(quality),
            score: None,
        }))
    }
}
