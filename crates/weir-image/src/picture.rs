//! Pixels in memory: eight bits a channel, rows without gaps.

use std::collections::HashMap;

use crate::Error;

/// What a pixel consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Rgb,
    Rgba,
}

/// A picture. There are as many pixels as its sides say, and no side is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) layout: Layout,
    pub(crate) pixels: Vec<u8>,
}

/// A picture of an animation, whole.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) picture: Picture,
    pub(crate) delay_ms: u32,
}

/// Colours that a picture has, and for each pixel which.
pub(crate) struct Palette {
    pub(crate) colours: Vec<[u8; 4]>,
    pub(crate) indices: Vec<u8>,
}

impl Palette {
    /// Whether sixteen of the colours make up nine tenths of the picture: surfaces and their edges.
    pub(crate) fn is_flat(&self) -> bool {
        let mut counts = [0_usize; 256];
        for index in &self.indices {
            counts[usize::from(*index)] += 1;
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let most: usize = counts[..16].iter().sum();
        most * 10 >= self.indices.len() * 9
    }
}

impl Layout {
    pub(crate) const fn channels(self) -> usize {
        match self {
            Layout::Rgb => 3,
            Layout::Rgba => 4,
        }
    }
}

/// Bytes that are 0, if there is memory for them.
///
/// # Errors
/// [`Error::Memory`]
pub(crate) fn zeroed(bytes: usize) -> Result<Vec<u8>, Error> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).map_err(|_| Error::Memory { bytes })?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}

impl Picture {
    /// A black one, or one that is transparent.
    ///
    /// # Errors
    /// [`Error::Memory`]
    pub(crate) fn blank(width: u32, height: u32, layout: Layout) -> Result<Picture, Error> {
        let pixels = u64::from(width) * u64::from(height);
        let bytes = usize::try_from(pixels * layout.channels() as u64);
        let pixels = zeroed(bytes.map_err(|_| Error::Memory { bytes: usize::MAX })?)?;
        Ok(Picture { width, height, layout, pixels })
    }

    /// Bytes of a row.
    pub(crate) fn pitch(&self) -> usize {
        self.width as usize * self.layout.channels()
    }

    /// Leaves out a transparency that there is none of.
    pub(crate) fn without_idle_alpha(self) -> Picture {
        match self.layout == Layout::Rgba && self.pixels.chunks_exact(4).all(|p| p[3] == 255) {
            true => self.over([0; 3]),
            false => self,
        }
    }

    /// The picture before a background.
    pub(crate) fn over(self, background: [u8; 3]) -> Picture {
        if self.layout == Layout::Rgb {
            return self;
        }
        let mix = |below: u8, above: u8, alpha: u8| {
            let (below, above, alpha) = (u32::from(below), u32::from(above), u32::from(alpha));
            ((above * alpha + below * (255 - alpha) + 127) / 255) as u8
        };
        let pixels = self.pixels.chunks_exact(4).flat_map(|pixel| {
            std::array::from_fn::<u8, 3, _>(|at| mix(background[at], pixel[at], pixel[3]))
        });
        Picture { layout: Layout::Rgb, pixels: pixels.collect(), ..self }
    }

    /// Takes the colours out: what is left is luminance, by the weights of BT.709.
    pub(crate) fn desaturate(&mut self) {
        for pixel in self.pixels.chunks_exact_mut(self.layout.channels()) {
            let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
            let grey = (red * 2126 + green * 7152 + blue * 722 + 5000) / 10_000;
            pixel[..3].fill(grey as u8);
        }
    }

    /// Whether it has no colours but black, white and what lies between.
    pub(crate) fn is_grey(&self) -> bool {
        let mut pixels = self.pixels.chunks_exact(self.layout.channels());
        pixels.all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2])
    }

    /// The picture by a palette, if it has no more than 256 colours.
    pub(crate) fn palette(&self) -> Option<Palette> {
        let mut known: HashMap<[u8; 4], u8> = HashMap::new();
        let mut palette = Palette { colours: Vec::new(), indices: Vec::new() };
        let mut last = None;
        for pixel in self.pixels.chunks_exact(self.layout.channels()) {
            let alpha = pixel.get(3).copied().unwrap_or(255);
            let colour = [pixel[0], pixel[1], pixel[2], alpha];
            let index = match last {
                Some((same, index)) if same == colour => index,
                _ => match known.get(&colour) {
                    Some(index) => *index,
                    None => {
                        let index = u8::try_from(palette.colours.len()).ok()?;
                        known.insert(colour, index);
                        palette.colours.push(colour);
                        index
                    }
                },
            };
            last = Some((colour, index));
            palette.indices.push(index);
        }
        Some(palette)
    }
}
