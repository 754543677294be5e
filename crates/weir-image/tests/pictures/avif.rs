//! AVIF as others write it: boxes (ISO/IEC 14496-12, 23008-12) around what rav1e made, and numbers
//! of AV1's sequence header changed.

use weir_image::Format;

/// Item 1 is the primary one.
pub(crate) struct Item {
    pub(crate) kind: &'static [u8; 4],
    pub(crate) data: Vec<u8>,
    pub(crate) properties: Vec<Vec<u8>>,
    /// What it is put together from.
    pub(crate) parts: Vec<u16>,
}

impl Item {
    /// A picture in AV1.
    pub(crate) fn coded(data: Vec<u8>, properties: Vec<Vec<u8>>) -> Item {
        Item { kind: b"av01", data, properties, parts: Vec::new() }
    }
}

/// What AV1 there is in an AVIF as Weir writes it, where it stands last.
pub(crate) fn payload(width: u32, height: u32) -> Vec<u8> {
    let avif = super::written(Format::Avif, width, height);
    let at = avif.windows(4).position(|name| name == b"mdat").unwrap();
    avif[at + 4..].to_vec()
}

pub(crate) fn boxed(name: &[u8; 4], contents: &[&[u8]]) -> Vec<u8> {
    let content = contents.concat();
    let len = u32::try_from(content.len() + 8).unwrap().to_be_bytes();
    [&len, &name[..], &content].concat()
}

/// One with a version, 0, and flags.
fn full(name: &[u8; 4], contents: &[&[u8]]) -> Vec<u8> {
    boxed(name, &[&[0; 4], &contents.concat()])
}

pub(crate) fn sides(width: u32, height: u32) -> Vec<u8> {
    full(b"ispe", &[&width.to_be_bytes(), &height.to_be_bytes()])
}

/// Code points of primaries and transfer; BT.601's matrix, the full range.
pub(crate) fn code_points(primaries: u8, transfer: u8) -> Vec<u8> {
    boxed(b"colr", &[b"nclx", &[0, primaries, 0, transfer, 0, 6, 0x80]])
}

/// A file of items.
pub(crate) fn file(items: &[Item]) -> Vec<u8> {
    let brands = boxed(b"ftyp", &[b"avif", &[0; 4], b"avifmif1miaf"]);
    // Offsets are of one length, whatever they are.
    let before = brands.len() + meta(items, 0).len() + 8;
    let data: Vec<&[u8]> = items.iter().map(|item| &item.data[..]).collect();
    [brands, meta(items, before), boxed(b"mdat", &data)].concat()
}

fn meta(items: &[Item], mut offset: usize) -> Vec<u8> {
    let count = u16::try_from(items.len()).unwrap().to_be_bytes();
    let (mut places, mut infos, mut references) = (Vec::new(), Vec::new(), Vec::new());
    let (mut properties, mut uses, mut used) = (Vec::new(), Vec::new(), 0);
    for (item, number) in items.iter().zip(1_u16..) {
        let number = number.to_be_bytes();
        let place = [offset, item.data.len()].map(|n| u32::try_from(n).unwrap().to_be_bytes());
        places.extend([&number[..], &[0, 0, 0, 1], place.as_flattened()].concat());
        offset += item.data.len();
        let version_2 = [2, 0, 0, 0];
        infos.extend(boxed(b"infe", &[&version_2, &number, &[0, 0], item.kind, b"\0"]));
        if !item.parts.is_empty() {
            let parts: Vec<u8> = item.parts.iter().flat_map(|part| part.to_be_bytes()).collect();
            let count = u16::try_from(item.parts.len()).unwrap().to_be_bytes();
            references.extend(boxed(b"dimg", &[&number, &count, &parts]));
        }
        uses.extend([&number[..], &[item.properties.len() as u8]].concat());
        for property in &item.properties {
            used += 1;
            uses.push(0x80 | used);
            properties.extend_from_slice(property);
        }
    }
    let handler = full(b"hdlr", &[&[0; 4], b"pict", &[0; 13]]);
    let uses = full(b"ipma", &[&u32::from(u16::from_be_bytes(count)).to_be_bytes(), &uses]);
    full(
        b"meta",
        &[
            &handler,
            &full(b"pitm", &[&[0, 1]]),
            &full(b"iloc", &[&[0x44, 0], &count, &places]),
            &full(b"iinf", &[&count, &infos]),
            &full(b"iref", &[&references]),
            &boxed(b"iprp", &[&boxed(b"ipco", &[&properties]), &uses]),
        ],
    )
}

/// A sequence without a primary item, which shows one picture so many times.
pub(crate) fn sequence(payload: &[u8], frames: u32) -> Vec<u8> {
    let brands = boxed(b"ftyp", &[b"avis", &[0; 4], b"avisavifmsf1"]);
    let len = u32::try_from(payload.len()).unwrap();
    let movie = |offset: u32| {
        let number = |number: u32| number.to_be_bytes();
        let table = boxed(
            b"stbl",
            &[
                &full(b"stts", &[&number(1), &number(frames), &number(100)]),
                &full(b"stsc", &[&number(1), &number(1), &number(1), &number(1)]),
                &full(b"stsz", &[&number(len), &number(frames)]),
                &full(b"stco", &[&number(frames), &number(offset).repeat(frames as usize)]),
            ],
        );
        let header = full(b"mdhd", &[&[0; 8], &number(1000), &number(100 * frames), &[0; 4]]);
        let handler = full(b"hdlr", &[&[0; 4], b"pict", &[0; 13]]);
        let media = boxed(b"mdia", &[&header, &handler, &boxed(b"minf", &[&table])]);
        boxed(b"moov", &[&boxed(b"trak", &[&media])])
    };
    let offset = u32::try_from(brands.len() + movie(0).len() + 8).unwrap();
    [brands, movie(offset), boxed(b"mdat", &[payload])].concat()
}

/// AV1 whose sequence header claims a width and a height (AV1 §5.5.1, of a still picture).
pub(crate) fn claiming(payload: &[u8], (width, height): (u16, u16)) -> Vec<u8> {
    changed_header(payload, |bits| {
        let number =
            |at: usize| bits[at..at + 4].iter().fold(0, |n, bit| n << 1 | usize::from(*bit));
        let after = 18 + number(10) + 1 + number(14) + 1;
        let sides = [width - 1, height - 1].map(u16::to_be_bytes);
        let sixteen_each = [&[0xff][..], sides.as_flattened()].concat();
        [&bits[..10], &to_bits(&sixteen_each), &bits[after..]].concat()
    })
}

/// AV1 that says another transfer function (AV1 §5.5.2) than sRGB's.
pub(crate) fn transferring(payload: &[u8], transfer: u8) -> Vec<u8> {
    changed_header(payload, |bits| {
        let (srgb, other) = (to_bits(&[1, 13, 6]), to_bits(&[1, transfer, 6]));
        let at = bits.windows(24).position(|window| window == srgb).unwrap();
        [&bits[..at], &other, &bits[at + 24..]].concat()
    })
}

/// Its units (AV1 §5.3) with another sequence header.
fn changed_header(payload: &[u8], change: impl Fn(&[bool]) -> Vec<bool>) -> Vec<u8> {
    let (mut changed, mut rest) = (Vec::new(), payload);
    while let [head, len, after @ ..] = rest {
        // What is longer than 127 bytes comes behind it.
        if head >> 3 & 15 != 1 {
            let unit = if *len < 128 { 2 + usize::from(*len) } else { rest.len() };
            changed.extend_from_slice(&rest[..unit]);
            rest = &rest[unit..];
            continue;
        }
        let (header, others) = after.split_at(usize::from(*len));
        let bits = change(&to_bits(header));
        let bytes = bits.chunks(8).map(|bits| {
            bits.iter().enumerate().fold(0, |byte, (at, bit)| byte | u8::from(*bit) << (7 - at))
        });
        let bytes: Vec<u8> = bytes.collect();
        changed.extend([&[*head, bytes.len() as u8], &bytes[..]].concat());
        rest = others;
    }
    changed
}

fn to_bits(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
}
