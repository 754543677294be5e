//! Luma and chroma, as AV1 has them, to colours (ITU-T H.273 §8.3).

use re_rav1d::dav1d::pixel::{MatrixCoefficients, YUVRange};
use re_rav1d::dav1d::{Picture as Planes, PixelLayout, PlanarImageComponent as Component};

use crate::Error;
use crate::picture::{Layout, Picture, zeroed};

/// What luma and chroma mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    kind: Kind,
    is_full: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The planes are green, blue and red.
    Identity,
    /// By the weights of red and blue in luma.
    Weights(f32, f32),
}

/// Red's and blue's weights by BT.601, which is also what an unknown matrix is taken for.
const BT601: Kind = Kind::Weights(0.299, 0.114);
const BT709: Kind = Kind::Weights(0.2126, 0.0722);
const BT2020: Kind = Kind::Weights(0.2627, 0.0593);
const SMPTE240: Kind = Kind::Weights(0.212, 0.087);
const FCC: Kind = Kind::Weights(0.30, 0.11);

impl Matrix {
    /// By its number in H.273, if it is a usual one.
    pub(super) fn by_number(number: u16, is_full: bool) -> Option<Matrix> {
        let kind = match number {
            0 => Kind::Identity,
            1 => BT709,
            2 | 5 | 6 => BT601,
            4 => FCC,
            7 => SMPTE240,
            9 => BT2020,
            _ => return None,
        };
        Some(Matrix { kind, is_full })
    }

    /// As the picture itself says.
    pub(super) fn of(planes: &Planes) -> Option<Matrix> {
        let number = match planes.matrix_coefficients() {
            MatrixCoefficients::Identity => 0,
            MatrixCoefficients::BT709 => 1,
            MatrixCoefficients::Unspecified => 2,
            MatrixCoefficients::BT470M => 4,
            MatrixCoefficients::BT470BG | MatrixCoefficients::ST170M => 6,
            MatrixCoefficients::ST240M => 7,
            MatrixCoefficients::BT2020NonConstantLuminance => 9,
            _ => return None,
        };
        Matrix::by_number(number, matches!(planes.color_range(), YUVRange::Full))
    }
}

/// One plane: its rows as numbers from 0 to 1 for what is stored from 0 to the largest number.
struct Plane {
    data: re_rav1d::dav1d::Plane,
    stride: usize,
    width: usize,
    height: usize,
    /// 8, 10 or 12.
    bits: usize,
}

impl Plane {
    fn new(planes: &Planes, component: Component) -> Plane {
        let (mut width, mut height) = (planes.width() as usize, planes.height() as usize);
        if component != Component::Y {
            let layout = planes.pixel_layout();
            if matches!(layout, PixelLayout::I420 | PixelLayout::I422) {
                width = width.div_ceil(2);
            }
            if layout == PixelLayout::I420 {
                height = height.div_ceil(2);
            }
        }
        Plane {
            data: planes.plane(component),
            stride: planes.stride(component) as usize,
            width,
            height,
            bits: planes.bit_depth(),
        }
    }

    /// A row, as it is stored; the last one for what lies below.
    fn row(&self, number: usize, to: &mut Vec<f32>) {
        let start = number.min(self.height - 1) * self.stride;
        let row = self.data.get(start..).unwrap_or_default();
        let most = ((1_u32 << self.bits) - 1) as f32;
        to.clear();
        match self.bits {
            8 => to.extend(row.iter().take(self.width).map(|sample| f32::from(*sample) / most)),
            _ => to.extend(
                row.chunks_exact(2)
                    .take(self.width)
                    .map(|pair| f32::from(u16::from_ne_bytes([pair[0], pair[1]])) / most),
            ),
        }
        to.resize(self.width, 0.0);
    }
}

/// A plane of chroma brought to the size of luma: each sample lies between those of luma, and what
/// lies between two of them is mixed, three parts of the nearer and one of the other.
struct Chroma {
    plane: Plane,
    halves: (bool, bool),
    near: Vec<f32>,
    far: Vec<f32>,
    full: Vec<f32>,
}

impl Chroma {
    fn new(planes: &Planes, component: Component) -> Chroma {
        let layout = planes.pixel_layout();
        let halves =
            (matches!(layout, PixelLayout::I420 | PixelLayout::I422), layout == PixelLayout::I420);
        let plane = Plane::new(planes, component);
        Chroma { plane, halves, near: Vec::new(), far: Vec::new(), full: Vec::new() }
    }

    fn row(&mut self, number: usize, width: usize) -> &[f32] {
        let beside =
            |at: usize| if at.is_multiple_of(2) { (at / 2).saturating_sub(1) } else { at / 2 + 1 };
        let (near, far) = (&mut self.near, &mut self.far);
        if self.halves.1 {
            self.plane.row(number / 2, near);
            self.plane.row(beside(number), far);
            near.iter_mut().zip(far).for_each(|(near, far)| *near = 0.75 * *near + 0.25 * *far);
        } else {
            self.plane.row(number, near);
        }
        if !self.halves.0 {
            return &self.near;
        }
        let (near, last) = (&self.near, self.plane.width - 1);
        self.full.clear();
        let mixed = (0..width).map(|at| 0.75 * near[at / 2] + 0.25 * near[beside(at).min(last)]);
        self.full.extend(mixed);
        &self.full
    }
}

/// A decoded picture as colours.
///
/// # Errors
/// [`Error::Memory`]
pub(super) fn picture(planes: &Planes, matrix: &Matrix) -> Result<Picture, Error> {
    let mut picture = Picture::blank(planes.width(), planes.height(), Layout::Rgb)?;
    let (width, pitch) = (picture.width as usize, picture.pitch());
    let luma = Plane::new(planes, Component::Y);
    let is_grey = planes.pixel_layout() == PixelLayout::I400;
    let mut chroma =
        (!is_grey).then(|| [Component::U, Component::V].map(|plane| Chroma::new(planes, plane)));
    let (mut y, flat) = (Vec::new(), vec![0.5; width]);
    for (number, row) in picture.pixels.chunks_exact_mut(pitch).enumerate() {
        luma.row(number, &mut y);
        let (u, v) = match &mut chroma {
            Some([u, v]) => (u.row(number, width), v.row(number, width)),
            None => (&flat[..], &flat[..]),
        };
        for (at, pixel) in row.chunks_exact_mut(3).enumerate() {
            let colour = matrix.colour(y[at], u[at], v[at], is_grey);
            for (channel, value) in pixel.iter_mut().zip(colour) {
                *channel = (value * 255.0 + 0.5).clamp(0.0, 255.0) as u8;
            }
        }
    }
    Ok(picture)
}

impl Matrix {
    fn colour(&self, y: f32, u: f32, v: f32, is_grey: bool) -> [f32; 3] {
        // Of 255, luma has 16 to 235 and chroma 16 to 240 where the range is not full.
        let wide = |value: f32| match self.is_full {
            true => value,
            false => (value * 255.0 - 16.0) / 219.0,
        };
        let (red_weight, blue_weight) = match self.kind {
            Kind::Identity if is_grey => return [wide(y); 3],
            Kind::Identity => return [wide(v), wide(y), wide(u)],
            Kind::Weights(red, blue) => (red, blue),
        };
        let swing = if self.is_full { 1.0 } else { 255.0 / 224.0 };
        let centre = |value: f32| (value - 128.0 / 255.0) * swing;
        let (y, u, v) = (wide(y), centre(u), centre(v));
        if is_grey {
            return [y; 3];
        }
        let red = y + 2.0 * (1.0 - red_weight) * v;
        let blue = y + 2.0 * (1.0 - blue_weight) * u;
        let green_weight = 1.0 - red_weight - blue_weight;
        [red, (y - red_weight * red - blue_weight * blue) / green_weight, blue]
    }
}

/// Luma alone, with 8 bits and in its full range: what transparency is stored as.
///
/// # Errors
/// [`Error::Memory`]
pub(super) fn luma(planes: &Planes) -> Result<Vec<u8>, Error> {
    let plane = Plane::new(planes, Component::Y);
    let mut alpha = zeroed(plane.width * plane.height)?;
    let mut row = Vec::new();
    for (number, to) in alpha.chunks_exact_mut(plane.width).enumerate() {
        plane.row(number, &mut row);
        to.iter_mut().zip(&row).for_each(|(to, value)| *to = (value * 255.0 + 0.5) as u8);
    }
    Ok(alpha)
}
