//! Pictures drawn by formula, so that the demo has real images of real sizes without anyone's
//! licence: a landscape, a plasma and a part of the Mandelbrot set. Encoding is the `image`
//! crate's.

use bytes::Bytes;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ImageError, Rgb, RgbImage};
use tokio::sync::OnceCell;

/// Iterations after which a point counts as part of the Mandelbrot set; at the magnification shown,
/// more would not change a visible pixel.
const ITERATIONS_MAX: u32 = 160;

const JPEG_QUALITY: u8 = 88;

/// A picture at one size, drawn when it is first asked for.
pub(super) struct Picture {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    drawing: Drawing,
    width: u32,
    encoded: OnceCell<Bytes>,
}

#[derive(Clone, Copy)]
enum Drawing {
    Landscape,
    Plasma,
    Mandelbrot,
}

/// Every picture of the demo, all 16 wide to 10 high, from 20 KB to nearly 2 MB.
pub(super) fn all() -> Vec<Picture> {
    use Drawing::{Landscape, Mandelbrot, Plasma};
    let (jpeg, png) = ("image/jpeg", "image/png");
    [
        ("/pictures/landscape-480.jpg", jpeg, Landscape, 480),
        ("/pictures/landscape-960.jpg", jpeg, Landscape, 960),
        ("/pictures/landscape-1920.jpg", jpeg, Landscape, 1920),
        ("/pictures/landscape-480.ppm", "image/x-portable-pixmap", Landscape, 480),
        ("/pictures/plasma-480.jpg", jpeg, Plasma, 480),
        ("/pictures/plasma-960.png", png, Plasma, 960),
        ("/pictures/mandelbrot-480.png", png, Mandelbrot, 480),
        ("/pictures/mandelbrot-960.png", png, Mandelbrot, 960),
        ("/pictures/mandelbrot-1920.png", png, Mandelbrot, 1920),
        ("/paper/valley.jpg", jpeg, Landscape, 960),
        ("/paper/river.jpg", jpeg, Plasma, 960),
    ]
    .into_iter()
    .map(|(path, content_type, drawing, width)| Picture {
        path,
        content_type,
        drawing,
        width,
        encoded: OnceCell::new(),
    })
    .collect()
}

impl Picture {
    /// The encoded picture. The first caller draws it, on a blocking thread, and others wait.
    pub(super) async fn bytes(&self) -> Result<Bytes, ImageError> {
        let (drawing, width, content_type) = (self.drawing, self.width, self.content_type);
        let draw = || async move {
            tokio::task::spawn_blocking(move || encode(&draw(drawing, width), content_type))
                .await
                .map_err(|lost| ImageError::IoError(lost.into()))?
        };
        self.encoded.get_or_try_init(draw).await.cloned()
    }
}

fn encode(picture: &RgbImage, content_type: &str) -> Result<Bytes, ImageError> {
    let mut encoded = Vec::new();
    match content_type {
        "image/jpeg" => {
            picture
                .write_with_encoder(JpegEncoder::new_with_quality(&mut encoded, JPEG_QUALITY))?;
        }
        "image/png" => picture.write_with_encoder(PngEncoder::new(&mut encoded))?,
        // Portable pixmap: a line of text, and the pixels as they are.
        _ => {
            let (width, height) = picture.dimensions();
            encoded.extend_from_slice(format!("P6\n{width} {height}\n255\n").as_bytes());
            encoded.extend_from_slice(picture.as_raw());
        }
    }
    Ok(encoded.into())
}

fn draw(drawing: Drawing, width: u32) -> RgbImage {
    let height = width * 10 / 16;
    RgbImage::from_fn(width, height, |x, y| {
        // Both in 0..1, so that every size shows the same picture.
        let (u, v) = (x as f32 / width as f32, y as f32 / height as f32);
        Rgb(match drawing {
            Drawing::Landscape => landscape(u, v),
            Drawing::Plasma => plasma(u, v),
            Drawing::Mandelbrot => mandelbrot(u, v),
        })
    })
}

/// Hills in haze under an evening sun, with a river in front.
fn landscape(u: f32, v: f32) -> [u8; 3] {
    const RIDGES: u32 = 6;
    /// No ridge reaches above this.
    const OPEN_SKY: f32 = 0.32;
    const SHORE: f32 = 0.86;
    if v < OPEN_SKY {
        return to_rgb(sky(u, v));
    }
    if v > SHORE {
        let ripple = 0.5 + 0.5 * ((v * v * 900.0).sin() * (u * 60.0 + v * 200.0).sin());
        return to_rgb(mix(sky(u, 1.0 - v), [0.12, 0.20, 0.30], 0.35 + 0.3 * ripple));
    }
    // The nearest ridge hides those behind it.
    for ridge in (0..RIDGES).rev() {
        let near = ridge as f32 / (RIDGES - 1) as f32;
        let height = 0.42 + 0.34 * near - (0.10 - 0.05 * near) * ridge_line(u, ridge);
        if v > height {
            // Distance turns hills to the colour of the sky; ripples stand for trees.
            let trees = 0.05 * near * (u * 900.0 + (v * 700.0).sin() * 3.0).sin();
            let hill = [0.10 + trees, 0.22 + trees, 0.20];
            return to_rgb(mix([0.93, 0.63, 0.45], hill, 0.25 + 0.75 * near));
        }
    }
    to_rgb(sky(u, v))
}

fn sky(u: f32, v: f32) -> [f32; 3] {
    let (x, y) = ((u - 0.68) * 1.6, v - 0.36);
    let glow = (-(x * x + y * y) * 18.0).exp();
    let sun = if x * x + y * y < 0.0022 { 1.0 } else { 0.0 };
    let base = mix([0.16, 0.27, 0.52], [0.98, 0.66, 0.42], (v * 2.0).min(1.0));
    mix(base, [1.0, 0.93, 0.72], (glow * 0.8 + sun).min(1.0))
}

/// The outline of one ridge, between -1 and 1: a few waves, shifted so that no two ridges agree.
fn ridge_line(u: f32, ridge: u32) -> f32 {
    let shift = ridge as f32 * 1.7;
    let wave = |frequency: f32, weight: f32| weight * (u * frequency + shift * frequency).sin();
    wave(4.0, 0.5) + wave(11.0, 0.25) + wave(27.0, 0.12) + wave(71.0, 0.06) + wave(190.0, 0.03)
}

/// Waves that run into each other.
fn plasma(u: f32, v: f32) -> [u8; 3] {
    let (x, y) = (u * 16.0, v * 10.0);
    let waves = x.sin()
        + (y * 1.3 + x * 0.5).sin()
        + ((x * x + y * y).sqrt() * 1.7).sin()
        + (x * 0.7 - (y * 2.1).cos() * 1.5).sin();
    let tone = |shift: f32| 0.5 + 0.5 * (waves * 1.6 + shift).sin();
    to_rgb([tone(0.0), tone(2.1), tone(4.2)])
}

/// The valley between the set's head and body, coloured by how fast a point escapes.
fn mandelbrot(u: f32, v: f32) -> [u8; 3] {
    let (real, imaginary) = (-0.7595 + (u - 0.5) * 0.036, 0.105 + (v - 0.5) * 0.0225);
    let (mut x, mut y) = (0.0_f32, 0.0_f32);
    for iteration in 0..ITERATIONS_MAX {
        let squares = x * x + y * y;
        if squares > 64.0 {
            // Smooth between whole iterations.
            let escape = iteration as f32 + 1.0 - squares.ln().ln() / std::f32::consts::LN_2;
            let tone = |shift: f32| 0.5 + 0.5 * (escape * 0.16 + shift).cos();
            return to_rgb([tone(3.4), tone(2.7), tone(1.9)]);
        }
        (x, y) = (x * x - y * y + real, 2.0 * x * y + imaginary);
    }
    [8, 10, 24]
}

fn mix(from: [f32; 3], to: [f32; 3], share: f32) -> [f32; 3] {
    [0, 1, 2].map(|channel| from[channel] + (to[channel] - from[channel]) * share)
}

fn to_rgb(colour: [f32; 3]) -> [u8; 3] {
    colour.map(|channel| (channel.clamp(0.0, 1.0) * 255.0) as u8)
}
