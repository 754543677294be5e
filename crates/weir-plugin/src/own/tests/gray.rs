//! The transcoder, in Rust and in C, as modules that are deployed. What it costs is measured by
//! weir-lab.

use std::path::Path;

use super::*;

const MODULES: [&str; 2] = ["gray-rust.wasm", "gray-c.wasm"];

fn transcoder(name: &str) -> Puppet {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/built").join(name);
    let module = std::fs::read(&built).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
    let mut puppet = Puppet::start(module, lenient(), "").unwrap();
    let Some(Lent::Own(head)) = &mut puppet.exchange().response else { unreachable!() };
    head.status = StatusCode::OK;
    head.headers = headers(&[("content-type", "image/x-portable-pixmap"), ("etag", "\"1\"")]);
    puppet
}

/// A picture, and what becomes of it.
fn picture(width: usize, height: usize) -> (Vec<u8>, Vec<u8>) {
    let pixels: Vec<u8> = (0..3 * width * height).map(|i| (i * 31 % 251) as u8).collect();
    let mut grey = vec![0; width * height];
    for (pixel, grey) in pixels.chunks_exact(3).zip(&mut grey) {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        *grey = ((77 * red + 150 * green + 29 * blue) / 256) as u8;
    }
    let header = format!("P6 # by hand\n{width}\t{height}\n# so\n255\n");
    let grey_header = format!("P5\n{width} {height}\n255\n");
    ([header.into_bytes(), pixels].concat(), [grey_header.into_bytes(), grey].concat())
}

/// Sends a body through in pieces of one size, and an end that may come by itself.
fn through(puppet: &mut Puppet, body: &[u8], size: usize, end_alone: bool) -> Vec<u8> {
    puppet.exchange().note = 0;
    puppet.exchange().response_body_offset = 0;
    let pieces: Vec<&[u8]> = body.chunks(size).collect();
    let mut out = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let is_last = index + 1 == pieces.len() && !end_alone;
        out.extend(puppet.piece(piece, is_last).unwrap());
    }
    if end_alone {
        out.extend(puppet.piece(b"", true).unwrap());
    }
    out
}

#[test]
fn the_head_says_that_it_is_grey_now() {
    for module in MODULES {
        let mut puppet = transcoder(module);
        puppet.hook(Phase::ResponseHead).unwrap();
        let exchange = puppet.exchange();
        let expected = headers(&[("content-type", "image/x-portable-graymap")]);
        assert_eq!(exchange.response.as_ref().unwrap().get().headers, expected, "{module}");
        assert_eq!(exchange.wishes.response_body, crate::exchange::Want::Pieces);
        let mut puppet = transcoder(module);
        let Some(Lent::Own(head)) = &mut puppet.exchange().response else { unreachable!() };
        head.headers = headers(&[("content-type", "image/png")]);
        puppet.hook(Phase::ResponseHead).unwrap();
        assert_eq!(puppet.exchange().wishes.response_body, crate::exchange::Want::Nothing);
    }
}

#[test]
fn pictures_become_grey_whatever_the_pieces() {
    let (colour, grey) = picture(37, 23);
    let two = [&colour[..], &colour].concat();
    let two_grey = [&grey[..], &grey].concat();
    for module in MODULES {
        let mut puppet = transcoder(module);
        for size in [1, 2, 3, 4, 5, 7, 16, 47, 48, 49, 50, 1000, 10_000] {
            for end_alone in [false, true] {
                assert_eq!(through(&mut puppet, &colour, size, end_alone), grey, "{module} {size}");
                assert_eq!(
                    through(&mut puppet, &two, size, end_alone),
                    two_grey,
                    "{module} {size}"
                );
            }
        }
    }
}

#[test]
fn what_is_no_picture_is_left_alone() {
    let (colour, grey) = picture(5, 5);
    let bodies = [&b"GIF89a and more"[..], b"P6 1 1 65535\nabcdef", b"P6 1", b"P", b""];
    for module in MODULES {
        let mut puppet = transcoder(module);
        for body in bodies {
            for size in [1, 3, 100] {
                assert_eq!(through(&mut puppet, body, size, true), body, "{module}");
            }
        }
        let tail = [&colour[..], b"the rest"].concat();
        let expected = [&grey[..], b"the rest"].concat();
        assert_eq!(through(&mut puppet, &tail, 1000, false), expected, "{module}");
        // A picture that is cut off ends with its last whole pixel.
        let cut = &colour[..colour.len() - 1];
        assert_eq!(through(&mut puppet, cut, 10, true), grey[..grey.len() - 1], "{module}");
    }
}
