//! AVIF as others write it: turned, mirrored, of several parts, moving, of high dynamic range, and
//! with headers that lie.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod pictures;

use pictures::avif::*;
use pictures::*;
use weir_image::{Converted, Excess, Format, Kept, Limits, Wish, convert, probe};

const SIDES: (u32, u32) = (48, 32);

fn coded() -> Vec<u8> {
    payload(SIDES.0, SIDES.1)
}

fn picture(properties: &[Vec<u8>]) -> Vec<u8> {
    let properties = [&[sides(SIDES.0, SIDES.1)], properties].concat();
    file(&[Item::coded(coded(), properties)])
}

fn to_webp() -> Wish {
    Wish { formats: vec![Format::WebP, Format::Png], ..Wish::default() }
}

#[test]
fn turns_and_mirrors_are_applied_in_their_order() {
    let (width, height, plain) = seen(&picture(&[]));
    assert_eq!((width, height), SIDES);
    let at = |x: u32, y: u32| plain[(y * SIDES.0 + x) as usize];
    let (right, bottom) = (SIDES.0 - 1, SIDES.1 - 1);
    let turn = |quarters: u8| boxed(b"irot", &[&[quarters]]);
    let mirror = |axis: u8| boxed(b"imir", &[&[axis]]);
    // Upper left and upper right, as they are seen. Quarters go against the clock; axis 0 exchanges
    // top and bottom, and 1 left and right.
    for (properties, width, corners) in [
        (vec![turn(0)], SIDES.0, [at(0, 0), at(right, 0)]),
        (vec![turn(1)], SIDES.1, [at(right, 0), at(right, bottom)]),
        (vec![turn(2)], SIDES.0, [at(right, bottom), at(0, bottom)]),
        (vec![turn(3)], SIDES.1, [at(0, bottom), at(0, 0)]),
        (vec![mirror(0)], SIDES.0, [at(0, bottom), at(right, bottom)]),
        (vec![mirror(1)], SIDES.0, [at(right, 0), at(0, 0)]),
        (vec![turn(1), mirror(0)], SIDES.1, [at(0, 0), at(0, bottom)]),
        (vec![turn(1), mirror(1)], SIDES.1, [at(right, bottom), at(right, 0)]),
    ] {
        let (seen_width, _, pixels) = seen(&picture(&properties));
        assert_eq!(seen_width, width, "{properties:?}");
        assert_eq!([pixels[0], pixels[width as usize - 1]], corners, "{properties:?}");
    }
}

#[test]
fn pictures_of_several_parts_are_left_as_they_are() {
    let part = || Item::coded(coded(), vec![sides(SIDES.0, SIDES.1)]);
    let grid = Item {
        kind: b"grid",
        data: vec![0, 0, 0, 1, 0, 96, 0, 32],
        properties: vec![sides(96, 32)],
        parts: vec![2, 3],
    };
    let grid = file(&[grid, part(), part()]);
    assert_eq!(kept(&grid, &to_webp()), Kept::Unsupported);
    assert_eq!(kept(&grid, &forced(Format::Png)), Kept::Unsupported);
    // A part of a picture, likewise: 24 × 16 of its middle.
    let fractions = [24_u32, 1, 16, 1, 0, 1, 0, 1].map(u32::to_be_bytes);
    let cut = picture(&[boxed(b"clap", &[fractions.as_flattened()])]);
    assert_eq!(kept(&cut, &to_webp()), Kept::Unsupported);
    // And one of its layers.
    assert_eq!(kept(&picture(&[boxed(b"lsel", &[&[0, 1]])]), &to_webp()), Kept::Unsupported);
}

#[test]
fn sequences_stay_as_they_are_but_for_their_first_frame() {
    let moving = padded(&sequence(&coded(), 5));
    let probe = probe(&moving, &Limits::default()).unwrap().unwrap();
    assert_eq!((probe.width, probe.height, probe.frames), (SIDES.0, SIDES.1, 5));
    assert_eq!(kept(&moving, &to_webp()), Kept::Animated);
    let few = Limits { frames: 4, ..Limits::default() };
    assert_eq!(kept_within(&moving, &to_webp(), &few), Kept::Excess(Excess::Frames));
    let still = made(&moving, &Wish { still: true, ..to_webp() });
    assert_eq!((still.width, still.height, still.frames), (SIDES.0, SIDES.1, 1));
}

#[test]
fn high_dynamic_ranges_are_left_as_they_are() {
    // BT.2020 by PQ and HLG.
    for transfer in [16, 18] {
        assert_eq!(kept(&picture(&[code_points(9, transfer)]), &to_webp()), Kept::Hdr);
        // Where the container says nothing, what AV1 says holds.
        let own = Item::coded(transferring(&coded(), transfer), vec![sides(SIDES.0, SIDES.1)]);
        assert_eq!(kept(&padded(&file(&[own])), &to_webp()), Kept::Hdr);
    }
    let plain = made(&padded(&picture(&[code_points(1, 13)])), &to_webp());
    assert_eq!((plain.width, plain.height), SIDES);
}

#[test]
fn claims_are_judged_before_memory_is_taken() {
    let huge = claiming(&coded(), (65_535, 65_535));
    for container in [sides(SIDES.0, SIDES.1), sides(65_535, 65_535)] {
        let bomb = file(&[Item::coded(huge.clone(), vec![container])]);
        assert_eq!(kept(&bomb, &to_webp()), Kept::Excess(Excess::Side));
        let wide = Limits { side: 65_535, ..Limits::default() };
        assert_eq!(kept_within(&bomb, &to_webp(), &wide), Kept::Excess(Excess::Pixels));
    }
    // What only the container claims is not believed.
    let boast = file(&[Item::coded(coded(), vec![sides(65_535, 65_535)])]);
    assert_eq!(made(&padded(&boast), &to_webp()).width, SIDES.0);
    // Pixels that are not there are an error, not a wait.
    let more = claiming(&coded(), (960, 640));
    let more = padded(&file(&[Item::coded(more, vec![sides(960, 640)])]));
    assert!(!matches!(convert(&more, &to_webp(), &Limits::default()), Ok(Converted::Made(_))));
}
