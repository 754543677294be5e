//! Pictures of every format, made into every other: what they look like, how large they become,
//! what is lost on the way.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod pictures;

use pictures::*;
use weir_image::{Excess, Fit, Format, Kept, Limits, Quality, Size, Source, Wish, probe};

fn sized(width: Option<u32>, height: Option<u32>, fit: Fit) -> Wish {
    Wish { size: Size { width, height, fit }, ..forced(Format::Png) }
}

#[test]
fn every_format_becomes_every_other_and_looks_the_same() {
    let (width, height) = (60, 44);
    let (_, _, original) = seen(&ppm(width, height));
    for from in Format::ALL {
        let first = written(from, width, height);
        assert_eq!(Source::of(&first).unwrap().name(), from.name());
        for to in Format::ALL {
            let quality = Quality { avif: 90, webp: 95, jpeg: 95 };
            let made = made(&padded(&first), &Wish { quality, ..forced(to) });
            assert_eq!(Source::of(&made.bytes).unwrap().name(), to.name());
            assert_eq!((made.width, made.height, made.frames), (width, height, 1));
            let (_, _, pixels) = seen(&made.bytes);
            let far = difference(&original, &pixels);
            assert!(far < 6.0, "{from:?} to {to:?}: {far}");
        }
    }
}

#[test]
fn grey_text_is_read() {
    let (width, height, pixels) = seen(&pgm_text(30, 20));
    assert_eq!((width, height), (30, 20));
    assert!(pixels.iter().all(|[r, g, b, a]| r == g && g == b && *a == 255));
}

#[test]
fn the_first_format_that_suits_is_taken() {
    let transparent: Vec<[u8; 4]> =
        (0..64 * 64_u32).map(|at| [at as u8, (at / 5) as u8, 7, (at / 16) as u8]).collect();
    let transparent = png_of(64, 64, &transparent);
    let (photo, moving) = (written(Format::Jpeg, 200, 160), padded(&gif(64, 48, 6)));
    use Format::{Avif, Jpeg, Png, WebP};
    for (name, input, formats, expected) in [
        ("photo", &photo, &[WebP, Jpeg][..], Ok(WebP)),
        ("photo", &photo, &[Png, Jpeg], Ok(Jpeg)),
        ("photo", &photo, &[], Err(Kept::Unchanged)),
        ("transparent", &transparent, &[Jpeg, WebP], Ok(WebP)),
        ("transparent", &transparent, &[Jpeg, Png], Ok(Png)),
        ("moving", &moving, &[Avif, WebP], Ok(WebP)),
        ("moving", &moving, &[Avif, Jpeg, Png], Err(Kept::Animated)),
    ] {
        let wish = Wish {
            formats: formats.to_vec(),
            quality: Quality { avif: 40, webp: 40, jpeg: 40 },
            ..Wish::default()
        };
        match expected {
            Ok(format) => assert_eq!(made(input, &wish).format, format, "{name} {formats:?}"),
            Err(why) => assert_eq!(kept(input, &wish), why, "{name} {formats:?}"),
        }
    }
    // Its own format, where that is all that a client takes, and something else changes.
    let size = Size { width: Some(50), ..Size::default() };
    let wish = Wish { formats: Vec::new(), size, ..Wish::default() };
    let made = made(&photo, &wish);
    assert_eq!((made.format, made.width, made.height), (Jpeg, 50, 40));
    assert_eq!(kept(&photo, &Wish { keeps_format: false, ..wish }), Kept::NoFormat);
}

#[test]
fn sizes_are_what_they_are_asked_to_be_and_never_larger() {
    let input = written(Format::Jpeg, 400, 200);
    let input = padded(&input);
    for (width, height, fit, expected) in [
        (Some(100), None, Fit::Inside, (100, 50)),
        (None, Some(50), Fit::Inside, (100, 50)),
        (Some(100), Some(100), Fit::Inside, (100, 50)),
        (Some(100), Some(100), Fit::Cover, (100, 100)),
        (Some(100), Some(100), Fit::Fill, (100, 100)),
        (Some(1000), None, Fit::Inside, (400, 200)),
        (Some(1000), Some(1000), Fit::Cover, (200, 200)),
        (Some(1000), Some(100), Fit::Fill, (400, 100)),
        (Some(1), Some(1), Fit::Inside, (1, 1)),
    ] {
        let made = made(&input, &sized(width, height, fit));
        assert_eq!((made.width, made.height), expected, "{width:?} {height:?} {fit:?}");
    }
}

#[test]
fn exif_turns_pictures_and_is_gone() {
    let upright = written(Format::Jpeg, 48, 32);
    let (_, _, plain) = seen(&upright);
    for orientation in 1..=8 {
        let turned = with_segment(&upright, 0xe1, &exif(orientation));
        let (width, height, pixels) = seen(&turned);
        let at = |x: u32, y: u32| plain[(y * 48 + x) as usize];
        let corner = match orientation {
            1 => at(0, 0),
            2 => at(47, 0),
            3 => at(47, 31),
            4 => at(0, 31),
            5 => at(0, 0),
            6 => at(0, 31),
            7 => at(47, 31),
            _ => at(47, 0),
        };
        assert_eq!(pixels[0], corner, "{orientation}");
        let expected = if orientation < 5 { (48, 32) } else { (32, 48) };
        assert_eq!((width, height), expected, "{orientation}");
        let size = Size { width: Some(16), ..Size::default() };
        let made = made(&turned, &Wish { size, ..forced(Format::Jpeg) });
        assert_eq!(made.width, 16, "{orientation}");
        assert!(!made.bytes.windows(4).any(|window| window == b"Exif"));
    }
}

#[test]
fn exif_is_read_in_webp_too() {
    let upright = written(Format::WebP, 48, 32);
    let (_, _, plain) = seen(&upright);
    let at = |x: u32, y: u32| plain[(y * 48 + x) as usize];
    for (orientation, sides, corner) in [
        (2, (48, 32), at(47, 0)),
        (4, (48, 32), at(0, 31)),
        (5, (32, 48), at(0, 0)),
        (7, (32, 48), at(47, 31)),
    ] {
        let chunks = [&upright[12..], &chunk(b"EXIF", &exif(orientation)[6..])].concat();
        let (width, height, pixels) = seen(&webp(8, (48, 32), &chunks));
        assert_eq!(((width, height), pixels[0]), (sides, corner), "{orientation}");
    }
}

#[test]
fn profiles_are_brought_to_srgb() {
    let red: Vec<u8> = [200, 30, 30].repeat(32 * 32);
    let ppm = [b"P6 32 32 255\n", &red[..]].concat();
    let quality = Quality { jpeg: 100, ..Quality::default() };
    let jpeg = made(&ppm, &Wish { quality, ..forced(Format::Jpeg) }).bytes;
    let profile = moxcms::ColorProfile::new_display_p3().encode().unwrap();
    let segment = [b"ICC_PROFILE\0\x01\x01", &profile[..]].concat();
    let (_, _, plain) = seen(&jpeg);
    let (_, _, wide) = seen(&with_segment(&jpeg, 0xe2, &segment));
    // Display P3's red lies farther out than sRGB's.
    assert!(wide[0][0] > plain[0][0] + 8 && wide[0][1] < plain[0][1], "{:?}", (wide[0], plain[0]));
    // One that knows no colours says nothing of these.
    let grey = moxcms::ColorProfile::new_gray_with_gamma(1.0).encode().unwrap();
    let segment = [b"ICC_PROFILE\0\x01\x01", &grey[..]].concat();
    assert_eq!(seen(&with_segment(&jpeg, 0xe2, &segment)).2, plain);
    // What is no profile changes nothing.
    let (_, _, same) = seen(&with_segment(&jpeg, 0xe2, b"ICC_PROFILE\0\x01\x01nonsense"));
    assert_eq!(same, plain);
}

#[test]
fn inks_become_colours() {
    let inks: Vec<u8> = [255, 128, 255, 255].repeat(24 * 16);
    let image = turbojpeg::Image {
        pixels: &inks[..],
        width: 24,
        pitch: 24 * 4,
        height: 16,
        format: turbojpeg::PixelFormat::CMYK,
    };
    let mut compressor = turbojpeg::Compressor::new().unwrap();
    compressor.set_quality(100).unwrap();
    let jpeg = compressor.compress_to_vec(image).unwrap();
    let (_, _, pixels) = seen(&jpeg);
    let [red, green, blue, _] = pixels[100];
    // Adobe's way round: half of magenta, and nothing else.
    assert!(red > 245 && blue > 245 && green.abs_diff(128) < 8, "{:?}", pixels[100]);
}

#[test]
fn animations_stay_animations() {
    let input = gif(64, 48, 6);
    let moving = Wish { formats: vec![Format::WebP], ..Wish::default() };
    let made = made(&padded(&input), &moving);
    assert_eq!((made.format, made.frames), (Format::WebP, 6));
    let probe = probe(&made.bytes, &Limits::default()).unwrap().unwrap();
    assert_eq!((probe.frames, probe.loops), (6, 3));
    // And back through every frame, smaller.
    let size = Size { width: Some(32), ..Size::default() };
    let padded = padded(&made.bytes);
    let smaller = pictures::made(&padded, &Wish { size, ..Wish::default() });
    assert_eq!((smaller.width, smaller.height, smaller.frames), (32, 24, 6));
    // The first frame alone, where that is asked for.
    let still = Wish { still: true, formats: vec![Format::WebP], ..Wish::default() };
    assert_eq!(pictures::made(&padded, &still).frames, 1);
    let (_, _, pixels) = seen(&input);
    assert_eq!((pixels[0], pixels[63]), ([255, 0, 0, 255], [0, 0, 0, 0]));
}

#[test]
fn frames_of_png_are_put_together() {
    let made = made(&padded(&apng()), &Wish { formats: vec![Format::WebP], ..Wish::default() });
    assert_eq!(made.frames, 2);
    let mut decoder = webpx::AnimationDecoder::new(&made.bytes).unwrap();
    let frames = decoder.decode_all().unwrap();
    assert_eq!(frames[0].duration_ms, 250);
    let second = &frames[1].data;
    let near = |pixel: &[u8], to: [u8; 3]| pixel.iter().zip(to).all(|(a, b)| a.abs_diff(b) < 24);
    assert!(near(&second[..3], [255, 0, 0]), "{:?}", &second[..4]);
    assert!(near(&second[60..63], [0, 0, 255]), "{:?}", &second[60..64]);
}

#[test]
fn colours_can_be_left_out() {
    let wish = Wish { grey: true, ..forced(Format::Png) };
    let (_, _, pixels) = pixels(&made(&ppm(64, 48), &wish).bytes);
    assert!(pixels.iter().all(|[r, g, b, _]| r == g && g == b));
    let grey = made(&ppm(200, 200), &Wish { grey: true, ..forced(Format::Jpeg) }).bytes;
    assert!(grey.len() < made(&ppm(200, 200), &forced(Format::Jpeg)).bytes.len());
}

#[test]
fn drawings_lose_nothing() {
    let drawn: Vec<[u8; 4]> =
        (0..64 * 64_u32).map(|at| [(at / 64 % 9) as u8 * 20, 0, (at % 7) as u8, 255]).collect();
    let input = png_of(64, 64, &drawn);
    for format in [Format::WebP, Format::Png] {
        let made = made(&input, &Wish { formats: vec![format], ..Wish::default() });
        assert_eq!((made.format, made.quality), (format, None));
        assert_eq!(seen(&made.bytes).2, drawn, "{format:?}");
    }
    // Photographs do, whatever they came in, and though they have no colours.
    for grey in [false, true] {
        let photo = made(&ppm(64, 64), &Wish { grey, ..forced(Format::Png) }).bytes;
        let webp = Wish { formats: vec![Format::WebP], ..Wish::default() };
        assert_eq!(made(&padded(&photo), &webp).quality, Some(Quality::default().webp));
    }
    // What is drawn without colours, with edges that are smooth.
    let disc: Vec<[u8; 4]> = (0..128 * 128_i32)
        .map(|at| {
            let from_middle = f64::hypot(f64::from(at % 128 - 64), f64::from(at / 128 - 64));
            let grey = ((from_middle - 40.0) * 255.0).clamp(0.0, 255.0) as u8;
            [grey, grey, grey, 255]
        })
        .collect();
    let input = padded(&png_of(128, 128, &disc));
    let made = made(&input, &Wish { formats: vec![Format::WebP], ..Wish::default() });
    assert_eq!((made.quality, seen(&made.bytes).2), (None, disc));
}

#[test]
fn few_greys_take_few_bits() {
    let mut random = 1_u32;
    let noise: Vec<[u8; 4]> = (0..256 * 256)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let grey = if random >> 31 == 0 { 0 } else { 255 };
            [grey, grey, grey, 255]
        })
        .collect();
    let made = made(&png_of(256, 256, &noise), &forced(Format::Png));
    assert_eq!(seen(&made.bytes).2, noise);
    assert!(made.bytes.len() < 256 * 256 / 8 + 400, "{}", made.bytes.len());
}

#[test]
fn transparency_is_kept_or_becomes_white() {
    let half: Vec<[u8; 4]> = (0..32 * 32_u32)
        .map(|at| if at % 32 < 16 { [0, 0, 200, 255] } else { [0, 0, 0, 0] })
        .collect();
    let input = png_of(32, 32, &half);
    for format in [Format::Avif, Format::WebP] {
        let made = made(&input, &forced(format));
        let (_, _, pixels) = seen(&made.bytes);
        assert!(pixels[0][3] > 250 && pixels[31][3] < 5, "{format:?}: {:?}", pixels[31]);
    }
    let (_, _, pixels) = seen(&made(&input, &forced(Format::Jpeg)).bytes);
    assert!(pixels[31].iter().all(|channel| *channel > 245), "{:?}", pixels[31]);
}

#[test]
fn what_would_not_become_smaller_is_kept() {
    let small = written(Format::Jpeg, 300, 200);
    let better = Quality { avif: 100, webp: 100, jpeg: 100 };
    let wish = Wish { quality: better, formats: vec![Format::Jpeg], ..Wish::default() };
    assert_eq!(kept(&small, &wish), Kept::NotSmaller);
    // But for what is asked for.
    let asked = made(&small, &forced(Format::Png));
    assert!(asked.format == Format::Png && asked.bytes.len() > small.len());
}

#[test]
fn no_format_is_made_of_more_than_it_may_even_if_it_is_asked_for() {
    let grey = |width: u32, height: u32| {
        let head = format!("P5 {width} {height} 255\n").into_bytes();
        [head, vec![9; (width * height) as usize]].concat()
    };
    let (large, long) = (grey(2001, 2000), grey(16_384, 8));
    assert_eq!(kept(&large, &forced(Format::Avif)), Kept::Excess(Excess::Pixels));
    assert_eq!(kept(&long, &forced(Format::WebP)), Kept::Excess(Excess::Side));
    assert_eq!(made(&long, &forced(Format::Png)).width, 16_384);
}

#[test]
fn a_quality_is_found_for_a_likeness() {
    let input = ppm(160, 120);
    for format in [Format::WebP, Format::Jpeg] {
        let with = |score: u8| {
            let quality = Quality { avif: 95, webp: 95, jpeg: 95 };
            made(&input, &Wish { score: Some(score), quality, ..forced(format) })
        };
        let (good, fair) = (with(85), with(50));
        assert!(good.score >= Some(85) && fair.score >= Some(50), "{format:?}");
        assert!(good.quality > fair.quality, "{format:?} {:?} {:?}", good.quality, fair.quality);
        assert!(good.bytes.len() > fair.bytes.len(), "{format:?}");
    }
}
