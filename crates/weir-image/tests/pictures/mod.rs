//! Pictures drawn by the tests, in every format, and what became of them, read back.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod avif;

use std::io::Cursor;

use weir_image::{Converted, Format, Kept, Limits, Made, Quality, Wish, convert};

/// Something like a photograph: soft, with some detail.
pub(crate) fn ppm(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = format!("P6\n# drawn\n{width} {height}\n255\n").into_bytes();
    for y in 0..height {
        for x in 0..width {
            bytes.extend(colour(x, y));
        }
    }
    bytes
}

fn colour(x: u32, y: u32) -> [u8; 3] {
    let (x, y) = (x as f32 / 24.0, y as f32 / 24.0);
    let wave = |at: f32| (127.5 + 90.0 * at.sin() + 30.0 * (5.0 * at).sin()) as u8;
    [wave(x + y), wave(x - y / 2.0), wave(y + 1.0)]
}

/// The same in shades of grey, as text.
pub(crate) fn pgm_text(width: u32, height: u32) -> Vec<u8> {
    let mut text = format!("P2 {width} {height} 100\n");
    for y in 0..height {
        for x in 0..width {
            text += &format!("{} ", u32::from(colour(x, y)[0]) * 100 / 255);
        }
    }
    text.into_bytes()
}

/// A picture that becomes what is wished, whatever is lost by it.
pub(crate) fn forced(format: Format) -> Wish {
    Wish { formats: vec![format], is_forced: true, ..Wish::default() }
}

/// The picture in another format, without losing what can be kept.
pub(crate) fn written(format: Format, width: u32, height: u32) -> Vec<u8> {
    let quality = Quality { avif: 90, webp: 95, jpeg: 95 };
    made(&ppm(width, height), &Wish { quality, ..forced(format) }).bytes
}

pub(crate) fn made(input: &[u8], wish: &Wish) -> Made {
    match convert(input, wish, &Limits::default()).unwrap() {
        Converted::Made(made) => made,
        Converted::Kept(kept) => panic!("the original is kept: {kept:?}"),
    }
}

pub(crate) fn kept(input: &[u8], wish: &Wish) -> Kept {
    kept_within(input, wish, &Limits::default())
}

pub(crate) fn kept_within(input: &[u8], wish: &Wish, limits: &Limits) -> Kept {
    match convert(input, wish, limits).unwrap() {
        Converted::Made(made) => panic!("{} was made", made.format.name()),
        Converted::Kept(kept) => kept,
    }
}

/// Pixels of a PNG, as red, green, blue and alpha.
pub(crate) fn pixels(png: &[u8]) -> (u32, u32, Vec<[u8; 4]>) {
    let mut decoder = png::Decoder::new(Cursor::new(png));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut buffer = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut buffer).unwrap();
    let pixels = match info.color_type {
        png::ColorType::Grayscale => buffer.iter().map(|g| [*g, *g, *g, 255]).collect(),
        png::ColorType::GrayscaleAlpha => {
            buffer.chunks_exact(2).map(|p| [p[0], p[0], p[0], p[1]]).collect()
        }
        png::ColorType::Rgb => buffer.chunks_exact(3).map(|p| [p[0], p[1], p[2], 255]).collect(),
        _ => buffer.chunks_exact(4).map(|p| [p[0], p[1], p[2], p[3]]).collect(),
    };
    (info.width, info.height, pixels)
}

/// A picture with so much behind it that whatever is made of it is smaller.
pub(crate) fn padded(picture: &[u8]) -> Vec<u8> {
    let len = 1 << 20;
    // Behind an AVIF there may be nothing but boxes.
    let head = [&u32::to_be_bytes(len)[..], b"free"].concat();
    let mut padded = [picture, &head].concat();
    padded.resize(picture.len() + len as usize, 0);
    padded
}

/// What a picture looks like, by way of PNG.
pub(crate) fn seen(input: &[u8]) -> (u32, u32, Vec<[u8; 4]>) {
    pixels(&made(&padded(input), &forced(Format::Png)).bytes)
}

/// The largest difference of two pictures of one size, in any channel, apart from so many pixels.
pub(crate) fn difference(one: &[[u8; 4]], other: &[[u8; 4]]) -> f64 {
    assert_eq!(one.len(), other.len());
    let channels = one.iter().flatten().zip(other.iter().flatten());
    let sum: f64 = channels.map(|(one, other)| f64::from(one.abs_diff(*other))).sum();
    sum / (one.len() * 4) as f64
}

/// A PNG of pixels.
pub(crate) fn png_of(width: u32, height: u32, pixels: &[[u8; 4]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_compression(png::Compression::NoCompression);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(pixels.as_flattened()).unwrap();
    writer.finish().unwrap();
    bytes
}

/// A GIF that moves: a square of a colour of its own goes over a transparent ground.
pub(crate) fn gif(width: u16, height: u16, frames: u16) -> Vec<u8> {
    let palette = [0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255];
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, width, height, &palette).unwrap();
    encoder.set_repeat(gif::Repeat::Finite(2)).unwrap();
    for number in 0..frames {
        let side = 8.min(width).min(height);
        let frame = gif::Frame {
            width: side,
            height: side,
            left: number * 3 % (width - side + 1),
            top: number * 5 % (height - side + 1),
            delay: 7,
            transparent: Some(0),
            dispose: gif::DisposalMethod::Background,
            buffer: vec![1 + (number % 3) as u8; usize::from(side) * usize::from(side)].into(),
            ..gif::Frame::default()
        };
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    bytes
}

/// A PNG that moves: red, then blue over its right half.
pub(crate) fn apng() -> Vec<u8> {
    let (width, height) = (16, 12);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::NoCompression);
    encoder.set_animated(2, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    writer.set_frame_delay(1, 4).unwrap();
    writer.write_image_data(&[255, 0, 0].repeat(16 * 12)).unwrap();
    writer.set_frame_dimension(8, 12).unwrap();
    writer.set_frame_position(8, 0).unwrap();
    writer.write_image_data(&[0, 0, 255].repeat(8 * 12)).unwrap();
    writer.finish().unwrap();
    bytes
}

/// A JPEG with a segment put in behind its first marker.
pub(crate) fn with_segment(jpeg: &[u8], marker: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], &[0xff, marker], &len, content, &jpeg[2..]].concat()
}

/// Exif that says how a picture is turned.
pub(crate) fn exif(orientation: u8) -> Vec<u8> {
    let entry = [1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0];
    [&b"Exif\0\0MM\0*\0\0\0\x08\0\x01"[..], &entry, &[0; 4]].concat()
}

/// A WebP of chunks (RFC 9649 §2.4), behind one that says what there is on a canvas of such sides.
pub(crate) fn webp(flags: u8, (width, height): (u32, u32), chunks: &[u8]) -> Vec<u8> {
    let sides = [width, height].map(|side| (side - 1).to_le_bytes());
    let extended = [&[flags, 0, 0, 0], &sides[0][..3], &sides[1][..3]].concat();
    let content = [b"WEBP", &chunk(b"VP8X", &extended)[..], chunks].concat();
    chunk(b"RIFF", &content)
}

pub(crate) fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap().to_le_bytes();
    let even = if content.len() % 2 == 1 { &[0][..] } else { &[] };
    [name, &len[..], content, even].concat()
}

/// A file for each format, small.
pub(crate) fn one_of_each() -> Vec<(&'static str, Vec<u8>)> {
    let plain: Vec<[u8; 4]> =
        (0..40 * 30_u32).map(|at| [at as u8, 9, (at / 7) as u8, 255]).collect();
    vec![
        ("jpeg", written(Format::Jpeg, 40, 30)),
        ("progressive", with_segment(&written(Format::Jpeg, 33, 17), 0xe1, &exif(6))),
        ("png", png_of(40, 30, &plain)),
        ("apng", apng()),
        ("gif", gif(40, 30, 3)),
        ("webp", written(Format::WebP, 40, 30)),
        ("avif", written(Format::Avif, 40, 30)),
        ("ppm", ppm(20, 10)),
        ("pgm", pgm_text(12, 10)),
    ]
}
