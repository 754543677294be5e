//! What does AVIF cost, by the size of a picture? Each format is given in seconds of a processor,
//! as a ratio to the floor, which is JPEG of the same picture, and in bytes. A job may take ten
//! seconds (`adapt { time }`); with `--features assembler` it is what rav1e and rav1d can do.

#![allow(clippy::print_stdout, reason = "a benchmark's report")]

use weir_image::{Converted, Format, Limits, Wish, convert};

/// The last is the largest that AVIF is made of.
const SIZES: [(u32, u32); 4] = [(600, 400), (1200, 800), (1732, 1155), (2448, 1632)];

/// Octaves of detail: from shapes of 256 pixels down to those of two, and grain.
const OCTAVES: u32 = 8;

/// How much weaker each is than the one before: what photographs with fine detail have.
const WEAKER: f32 = 0.75;

fn main() {
    println!("{:>11} {:12} {:>8} {:>7} {:>9}", "", "", "s", "ratio", "bytes");
    for (width, height) in SIZES {
        let picture = photograph(width, height);
        let mut floor_s = None;
        for (name, format, score) in [
            ("jpeg", Format::Jpeg, None),
            ("webp", Format::WebP, None),
            ("avif", Format::Avif, None),
            ("avif for 70", Format::Avif, Some(70)),
        ] {
            let wish = Wish { formats: vec![format], is_forced: true, score, ..Wish::default() };
            let start_s = processor_s();
            let made = convert(&picture, &wish, &Limits::default());
            let took_s = processor_s() - start_s;
            let floor_s = *floor_s.get_or_insert(took_s);
            let bytes = match made {
                Ok(Converted::Made(made)) => made.bytes.len(),
                other => panic!("{name}: {other:?}"),
            };
            let ratio = took_s / floor_s;
            println!("{width:>5}×{height:<5} {name:12} {took_s:8.3} {ratio:7.1} {bytes:9}");
        }
    }
}

/// Time that this thread has run: others may want the machine, too.
fn processor_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.expect("Linux tells how long a thread has run") / 1e9
}

/// A PPM of clouds in every size, which codecs find about as hard as a photograph with leaves.
fn photograph(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = format!("P6 {width} {height} 255\n").into_bytes();
    for y in 0..height {
        for x in 0..width {
            let light = ((clouds(x, y) - 0.5) * 2.4 + 0.5).clamp(0.0, 1.0);
            let tint = |number: u32| noise(x as f32 / 90.0, y as f32 / 90.0, number) - 0.5;
            for (number, strength) in [(100, 0.4), (101, 0.2), (102, 0.4)] {
                bytes.push(((light + strength * tint(number)) * 230.0) as u8);
            }
        }
    }
    bytes
}

/// Around a half.
fn clouds(x: u32, y: u32) -> f32 {
    let (mut sum, mut most, mut strength, mut per_pixel) = (0.0, 0.0, 1.0, 1.0 / 256.0);
    for octave in 0..OCTAVES {
        sum += strength * noise(x as f32 * per_pixel, y as f32 * per_pixel, octave);
        most += strength;
        strength *= WEAKER;
        per_pixel *= 2.0;
    }
    sum / most
}

/// From 0 to 1: random at whole numbers, and smooth between them.
fn noise(x: f32, y: f32, number: u32) -> f32 {
    let smooth = |at: f32| at.fract() * at.fract() * (3.0 - 2.0 * at.fract());
    let (left, top) = (x as u32, y as u32);
    let mix = |from: f32, to: f32, by: f32| from + (to - from) * by;
    let row = |y: u32| mix(random(left, y, number), random(left + 1, y, number), smooth(x));
    mix(row(top), row(top + 1), smooth(y))
}

fn random(x: u32, y: u32, number: u32) -> f32 {
    let mut bits = x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca77);
    bits ^= number.wrapping_mul(0xc2b2_ae3d);
    for _ in 0..2 {
        bits ^= bits >> 15;
        bits = bits.wrapping_mul(0x2c1b_3c6d);
    }
    (bits >> 16) as f32 / 65_535.0
}
