//! Pictures that mean ill, and pictures that are damaged: they end in an error or in the original,
//! at once, without the memory that they claim to need.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod pictures;

use pictures::*;
use weir_image::{Excess, Format, Kept, Limits, Size, Wish, convert};

/// Small enough to be tried a thousand times.
const LIMITS: Limits = Limits {
    source_bytes: 1 << 20,
    pixels: 100_000,
    side: 1000,
    frames: 10,
    decoded_bytes: 4 << 20,
};

fn wish() -> Wish {
    let size = Size { width: Some(16), ..Size::default() };
    Wish { formats: vec![Format::WebP, Format::Png], size, ..Wish::default() }
}

/// Whatever becomes of it, it ends.
fn try_it(input: &[u8]) -> bool {
    convert(input, &wish(), &LIMITS).is_ok()
}

#[test]
fn what_is_cut_off_is_an_error_or_the_original() {
    for (name, whole) in one_of_each() {
        let step = (whole.len() / 40).max(1);
        for len in (0..whole.len()).step_by(step) {
            let cut = &whole[..len];
            if let Ok(weir_image::Converted::Made(made)) = convert(cut, &wish(), &LIMITS) {
                // Only what stands behind the last pixel may be missing.
                assert!(len + 64 > whole.len(), "{name} of {len} bytes: {:?}", made.format);
            }
        }
    }
}

/// Some cameras write bytes that belong to nothing there.
#[test]
fn bytes_before_the_end_of_jpeg_cost_nothing() {
    let jpeg = written(Format::Jpeg, 40, 30);
    let (picture, end) = jpeg.split_at(jpeg.len() - 2);
    assert_eq!(end, [0xff, 0xd9]);
    let padded = [picture, &[0; 7], end].concat();
    assert_eq!(seen(&padded), seen(&jpeg));
    // The same, but for the last pixels.
    let torn = [&picture[..picture.len() - 20], &[0; 7], end].concat();
    assert!(!try_it(&torn));
    assert!(!try_it(&[picture, &[0; 7]].concat()));
}

#[test]
fn flipped_bytes_end_in_something() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % bound
    };
    for (_, whole) in one_of_each() {
        for _ in 0..60 {
            let mut damaged = whole.clone();
            for _ in 0..=below(4) {
                let at = below(damaged.len());
                damaged[at] ^= 1 << below(8);
            }
            // That it ends is what is asked.
            try_it(&damaged);
        }
    }
}

/// Headers of every format that claim the largest picture their numbers can say.
#[test]
fn claims_are_judged_before_memory_is_taken() {
    let jpeg = {
        let mut jpeg = written(Format::Jpeg, 16, 16);
        let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc2]).unwrap();
        jpeg[at + 5..at + 9].fill(0xff);
        jpeg
    };
    let png = {
        let mut header = b"IHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0".to_vec();
        let sum = crc(&header).to_be_bytes();
        header.extend(sum);
        let end = [&[0, 0, 0, 1][..], b"IDAT\0", &crc(b"IDAT\0").to_be_bytes()].concat();
        [b"\x89PNG\r\n\x1a\n\0\0\0\x0d", &header[..], &end].concat()
    };
    let gif = {
        let mut gif = gif(8, 8, 1);
        gif[6..10].fill(0xff);
        gif
    };
    let webp = {
        let mut webp = written(Format::WebP, 64, 48);
        let at = webp.windows(3).position(|start| start == [0x9d, 0x01, 0x2a]).unwrap();
        webp[at + 3..at + 7].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
        webp
    };
    for (name, input) in [
        ("jpeg", jpeg),
        ("png", png),
        ("gif", gif),
        ("webp", webp),
        ("pnm", b"P6 65535 65535 255\n".to_vec()),
        ("pnm", b"P5 4294967295 4294967295 65535\n".to_vec()),
    ] {
        match convert(&input, &wish(), &LIMITS) {
            Ok(weir_image::Converted::Kept(kept)) => {
                assert_eq!(kept, Kept::Excess(Excess::Side), "{name}");
            }
            Ok(_) => panic!("{name} was made"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// A sequential JPEG of one grey, in one scan or in one for each component. Its codes have one bit,
/// and a block is two of them: no difference, and no more coefficients.
fn sequential(width: u16, height: u16, is_interleaved: bool) -> Vec<u8> {
    let segment = |marker: u8, content: &[u8]| {
        let len = (content.len() as u16 + 2).to_be_bytes();
        [&[0xff, marker][..], &len, content].concat()
    };
    let table = |class: u8| {
        let mut codes = [0; 18];
        (codes[0], codes[1]) = (class << 4, 1);
        segment(0xc4, &codes)
    };
    let [(high, low), (wide, narrow)] =
        [height, width].map(|side| (side.to_be_bytes()[0], side.to_be_bytes()[1]));
    let frame = [8, high, low, wide, narrow, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0];
    let blocks = usize::from(width.div_ceil(8)) * usize::from(height.div_ceil(8));
    let scan = |components: &[u8]| {
        let chosen: Vec<u8> = components.iter().flat_map(|number| [*number, 0]).collect();
        let head = [&[components.len() as u8][..], &chosen, &[0, 63, 0]].concat();
        let bits = 2 * blocks * components.len();
        [segment(0xda, &head), vec![0; bits.div_ceil(8)]].concat()
    };
    let scans = match is_interleaved {
        true => scan(&[1, 2, 3]),
        false => [scan(&[1]), scan(&[2]), scan(&[3])].concat(),
    };
    let quantities = [&[0][..], &[1; 64]].concat();
    let tables = [segment(0xdb, &quantities), table(0), table(1)].concat();
    [&[0xff, 0xd8][..], &tables, &segment(0xc0, &frame), &scans, &[0xff, 0xd9]].concat()
}

/// Of what comes in several scans all coefficients are kept, whether it is progressive or not.
#[test]
fn coefficients_of_sequential_scans_count() {
    let decoded = 64 * 48 * 4;
    let coefficients = 2 * 3 * 64 * 48;
    let png = Wish { formats: vec![Format::Png], ..forced(Format::Png) };
    for (is_interleaved, bytes) in [(true, decoded), (false, decoded + coefficients)] {
        let jpeg = sequential(64, 48, is_interleaved);
        let enough = Limits { decoded_bytes: bytes, ..LIMITS };
        let made = convert(&jpeg, &png, &enough).unwrap();
        let weir_image::Converted::Made(made) = made else { panic!("{made:?}") };
        let (width, height, pixels) = pixels(&made.bytes);
        assert_eq!((width, height, pixels[0]), (64, 48, [128, 128, 128, 255]));
        let less = Limits { decoded_bytes: bytes - 1, ..LIMITS };
        assert_eq!(kept_within(&jpeg, &png, &less), Kept::Excess(Excess::Decoded));
    }
}

/// As PNG has it (annex D).
fn crc(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }
        })
    });
    !sum
}

#[test]
fn limits_are_kept() {
    let input = ppm(300, 200);
    let limits = Limits::default();
    for (limits, excess) in [
        (Limits { source_bytes: 1000, ..limits }, Excess::SourceBytes),
        (Limits { pixels: 59_999, ..limits }, Excess::Pixels),
        (Limits { side: 299, ..limits }, Excess::Side),
        (Limits { decoded_bytes: 239_999, ..limits }, Excess::Decoded),
    ] {
        assert_eq!(kept_within(&input, &wish(), &limits), Kept::Excess(excess));
    }
    let moving = gif(32, 32, 5);
    let few = Limits { frames: 4, ..limits };
    assert_eq!(kept_within(&moving, &wish(), &few), Kept::Excess(Excess::Frames));
    let little = Limits { decoded_bytes: 32 * 32 * 4 * 4, ..limits };
    assert_eq!(kept_within(&moving, &wish(), &little), Kept::Excess(Excess::Decoded));
    // A large photograph that is to be small is decoded small, at an eighth of its sides.
    let plain = Wish { formats: vec![Format::Jpeg], ..Wish::default() };
    let photo = made(&ppm(800, 600), &plain).bytes;
    let coefficients = 2 * 3 * 800 * 600;
    let enough = Limits { decoded_bytes: coefficients + 100 * 75 * 4, ..limits };
    let small = Wish { size: wish().size, ..forced(Format::Png) };
    let made = convert(&photo, &small, &enough).unwrap();
    assert!(matches!(made, weir_image::Converted::Made(made) if made.width == 16));
    let less = Limits { decoded_bytes: enough.decoded_bytes - 1, ..limits };
    assert_eq!(kept_within(&photo, &small, &less), Kept::Excess(Excess::Decoded));
}

/// Ten million pixels of nothing, in a few thousand bytes.
#[test]
fn bombs_do_not_go_off() {
    let mut bomb = Vec::new();
    let mut encoder = png::Encoder::new(&mut bomb, 10_000, 1000);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![0; 10_000_000]).unwrap();
    writer.finish().unwrap();
    assert!(bomb.len() < 20_000, "{}", bomb.len());
    assert_eq!(kept_within(&bomb, &wish(), &LIMITS), Kept::Excess(Excess::Side));
    let wide = Limits { side: 16_384, ..LIMITS };
    assert_eq!(kept_within(&bomb, &wish(), &wide), Kept::Excess(Excess::Pixels));
    // A thousand frames of nothing.
    let many = gif(8, 8, 1000);
    assert_eq!(kept_within(&many, &wish(), &LIMITS), Kept::Excess(Excess::Frames));
    // Each scan of a progressive JPEG costs as much as the whole.
    let scans = {
        let jpeg = written(Format::Jpeg, 64, 64);
        let start = jpeg.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let end = jpeg.len() - 2;
        let mut scans = jpeg[..end].to_vec();
        for _ in 0..500 {
            scans.extend_from_slice(&jpeg[start..end]);
        }
        [&scans[..], &jpeg[end..]].concat()
    };
    assert!(!try_it(&scans), "five hundred scans were decoded");
}

/// Frames of nothing on a large canvas, in a few bytes each.
#[test]
fn bombs_of_webp_do_not_go_off() {
    let still = written(Format::WebP, 16, 16);
    // At the upper left, 16 × 16 pixels, for 10 ms.
    let place = [0, 0, 0, 0, 0, 0, 15, 0, 0, 15, 0, 0, 10, 0, 0, 0];
    let frame = chunk(b"ANMF", &[&place, &still[12..]].concat());
    let moving = |side: u32, before: usize, frames: usize| {
        let before = chunk(b"junk", b"").repeat(before);
        let chunks = [chunk(b"ANIM", &[0; 6]), before, frame.repeat(frames)].concat();
        webp(2, (side, side), &chunks)
    };
    let honest = made(&padded(&moving(300, 3, 5)), &wish());
    assert_eq!((honest.width, honest.frames), (16, 5));
    assert_eq!(kept_within(&moving(16, 0, 1000), &wish(), &LIMITS), Kept::Excess(Excess::Frames));
    assert_eq!(kept_within(&moving(65_000, 0, 5), &wish(), &LIMITS), Kept::Excess(Excess::Side));
    assert_eq!(kept_within(&moving(400, 0, 5), &wish(), &LIMITS), Kept::Excess(Excess::Pixels));
    let little = Limits { decoded_bytes: 1 << 20, ..LIMITS };
    assert_eq!(kept_within(&moving(300, 0, 9), &wish(), &little), Kept::Excess(Excess::Decoded));
    // Behind what nobody reads so far, frames are not counted, and not decoded either.
    assert!(!try_it(&moving(300, 300, 1000)));
}

#[test]
fn what_is_no_picture_is_left_alone() {
    for text in [
        &b""[..],
        b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
        b"<?xml version=\"1.0\"?><!DOCTYPE svg [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><svg/>",
        b"BM\x36\0\0\0",
        b"II*\0",
        b"\xff\xd8",
        b"P4 8 8\n",
    ] {
        assert_eq!(kept(text, &wish()), Kept::Unknown);
    }
}
