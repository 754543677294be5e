//! Pictures that are sent in the format, size and quality that fit the client: what is chosen, what
//! is made, what is left as it is.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Cursor;
use std::net::SocketAddr;

use common::client::{Response, ask, get};
use common::origin::{Origin, Received, Step, answer};
use common::server::{Weir, command, front_config};
use common::{PATIENCE, free_address, wait_for};
use image::{ImageFormat, Rgb, RgbImage};
use weir_image::{Limits, Probe, probe};

/// What browsers send for images.
const BROWSER: &str = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";

/// Something like a photograph.
fn drawn(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let (x, y) = (x as f32 / 20.0, y as f32 / 20.0);
        let wave = |at: f32| (127.0 + 90.0 * at.sin() + 30.0 * (7.0 * at).cos()) as u8;
        Rgb([wave(x + y), wave(x - y), wave(y)])
    })
}

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    drawn(width, height).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn moving() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, 256, 192, &[0, 0, 0, 250, 20, 20]).unwrap();
    for number in 0..5_u16 {
        let noise = (0..256 * 192_u32)
            .map(|at| (at.wrapping_mul(at).wrapping_mul(u32::from(number + 3)) / 7 % 2) as u8);
        let buffer = noise.collect::<Vec<u8>>().into();
        let frame = gif::Frame { width: 256, height: 192, delay: 5, buffer, ..Default::default() };
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    bytes
}

fn photo() -> Vec<u8> {
    encoded(640, 480, ImageFormat::Jpeg)
}

/// An origin with a picture for each path, by what its name ends with.
fn served(request: &Received) -> Vec<Step> {
    let path = request.line().split(' ').nth(1).unwrap().to_owned();
    let (content_type, body) = match path.split('?').next().unwrap().rsplit('.').next().unwrap() {
        "jpg" => ("image/jpeg", photo()),
        "png" => ("image/png", encoded(320, 240, ImageFormat::Png)),
        "gif" => ("image/gif", moving()),
        "svg" => ("image/svg+xml", SVG.as_bytes().to_vec()),
        "torn" => ("image/jpeg", photo()[..2000].to_vec()),
        "huge" => ("image/png", claims_too_much()),
        "text" => ("image/jpeg", b"This is no picture at all, whatever its type says.".to_vec()),
        _ => ("text/plain", b"text".to_vec()),
    };
    let fields =
        format!("Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: {content_type}\r\n");
    answer("200 OK", &fields, &body)
}

const SVG: &str = "<?xml version=\"1.0\"?><!DOCTYPE svg [<!ENTITY a \"aaaaaaaaaa\">\
                   <!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]><svg><text>&b;</text></svg>";

/// A PNG whose header says 65,535 × 65,535.
fn claims_too_much() -> Vec<u8> {
    let mut png = encoded(8, 8, ImageFormat::Png);
    png[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let sum = png[12..29].iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }
        })
    });
    png[29..33].copy_from_slice(&(!sum).to_be_bytes());
    png
}

fn front(global: &str, lines: &str) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(served);
    let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
    let (weir, address) = Weir::front(global, &site);
    (origin, weir, address)
}

fn with_admin(admin: SocketAddr) -> String {
    format!("server {{ workers 2; admin \"{admin}\"; }}")
}

fn metrics(admin: SocketAddr) -> String {
    String::from_utf8(get(admin, "localhost", "/metrics").unwrap().body).unwrap()
}

/// Asks until it is known what becomes of a picture.
fn settled(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Response {
    let pending = ["original;reason=pending", "original;reason=not-stored"];
    let known = wait_for(PATIENCE, || {
        let response = ask(address, "GET", target, fields);
        let word = response.header("weir-adapt").unwrap_or_default().to_owned();
        (!pending.contains(&&*word)).then_some(response)
    });
    known.unwrap_or_else(|| panic!("nothing becomes of {target}"))
}

fn seen(response: &Response) -> Probe {
    probe(&response.body, &Limits::default()).unwrap().unwrap()
}

#[test]
fn clients_get_the_format_and_the_size_that_fit() {
    let (_origin, _weir, address) = front("", "image max-width=320 formats=\"avif,webp\"");
    let first = ask(address, "GET", "/a.jpg", &[("accept", BROWSER)]);
    assert!(first.body == photo());
    assert_eq!(first.header("weir-adapt"), Some("original;reason=not-stored"));
    assert_eq!(first.header("vary"), Some("Accept"));
    for (accept, content_type, word) in [
        (BROWSER, "image/avif", "avif;q=65;320x240"),
        ("image/webp,*/*", "image/webp", "webp;q=80;320x240"),
        ("*/*", "image/jpeg", "jpeg;q=80;320x240"),
    ] {
        let made = settled(address, "/a.jpg", &[("accept", accept)]);
        assert_eq!(made.header("weir-adapt"), Some(word));
        assert_eq!(made.header("content-type"), Some(content_type));
        assert_eq!(made.header("vary"), Some("Accept"));
        assert!(made.header("etag").unwrap().starts_with("\"v1-image"), "{accept}");
        assert_eq!(made.header("content-length"), Some(&*made.body.len().to_string()));
        let probe = seen(&made);
        assert_eq!((probe.width, probe.height), (320, 240));
        assert!(content_type.ends_with(probe.source.name()));
        assert!(made.body.len() < photo().len() / 2);
        // A client that has it is told so.
        let tag = made.header("etag").unwrap();
        let again = ask(address, "GET", "/a.jpg", &[("accept", accept), ("if-none-match", tag)]);
        assert_eq!(again.status, 304, "{accept}");
    }
}

#[test]
fn hints_of_the_client_count_where_the_route_says_so() {
    let line = "image max-width=100 formats=\"webp\" { quality webp=70; save-data less=30; dpr; }";
    let (_origin, _weir, address) = front("", line);
    ask(address, "GET", "/a.jpg", &[]);
    for (field, word) in [
        (("x", "y"), "webp;q=70;100x75"),
        (("dpr", "1.3"), "webp;q=70;150x113"),
        (("sec-ch-dpr", "3"), "webp;q=70;200x150"),
        (("save-data", "on"), "webp;q=40;100x75"),
    ] {
        let made = settled(address, "/a.jpg", &[("accept", "image/webp"), field]);
        assert_eq!(made.header("weir-adapt"), Some(word), "{field:?}");
        let vary = made.headers.iter().filter(|(name, _)| name == "vary");
        let vary: Vec<&str> = vary.map(|(_, value)| value.as_str()).collect();
        assert_eq!(vary.join(", "), "Accept, Save-Data, Sec-Ch-Dpr, Dpr");
    }
}

#[test]
fn pictures_are_no_wider_than_they_are_shown() {
    let line = "image max-width=400 formats=\"webp\" { width-hint; dpr; save-data; }";
    let (_origin, _weir, address) = front("", line);
    ask(address, "GET", "/a.jpg", &[]);
    for (fields, word) in [
        ([("width", "300"), ("dpr", "1")], "webp;q=80;320x240"),
        ([("sec-ch-width", "150"), ("sec-ch-dpr", "2")], "webp;q=80;160x120"),
        // No wider than the route's pictures are, for such a screen.
        ([("sec-ch-width", "2000"), ("sec-ch-dpr", "1")], "webp;q=80;400x300"),
        ([("sec-ch-width", "600"), ("sec-ch-dpr", "2")], "webp;q=80;640x480"),
        ([("sec-ch-width", "600"), ("save-data", "on")], "webp;q=60;400x300"),
    ] {
        let fields = [&[("accept", "image/webp")], &fields[..]].concat();
        let made = settled(address, "/a.jpg", &fields);
        assert_eq!(made.header("weir-adapt"), Some(word), "{fields:?}");
        let vary = made.headers.iter().filter(|(name, _)| name == "vary");
        let vary: Vec<&str> = vary.map(|(_, value)| value.as_str()).collect();
        assert!(vary.join(", ").ends_with("Sec-Ch-Dpr, Dpr, Sec-Ch-Width, Width"), "{vary:?}");
    }
}

#[test]
fn pictures_that_move_go_on_moving() {
    let (_origin, _weir, address) = front("", "image max-width=32");
    ask(address, "GET", "/a.gif", &[]);
    let made = settled(address, "/a.gif", &[("accept", BROWSER)]);
    assert_eq!(made.header("content-type"), Some("image/webp"));
    assert!(made.header("weir-adapt").unwrap().ends_with(";32x24;frames=5"));
    assert_eq!(seen(&made).frames, 5);
    let kept = settled(address, "/a.gif", &[("accept", "image/png")]);
    assert_eq!(kept.header("weir-adapt"), Some("original;reason=animated"));
    assert!(kept.body == moving());
}

#[test]
fn what_is_damaged_too_large_or_no_picture_is_sent_as_it_is() {
    let limits = "adapt { image pixels=1000000 side=4096; }";
    let admin = free_address();
    let (_origin, weir, address) =
        front(&format!("{limits}\n{}", with_admin(admin)), "image max-width=16");
    for (target, word) in [
        ("/a.torn", Some("original;reason=failed")),
        ("/a.huge", Some("original;reason=side")),
        ("/a.text", Some("original;reason=unknown-format")),
        ("/a.svg", None),
        ("/a.plain", None),
    ] {
        let first = ask(address, "GET", target, &[]).body;
        let kept = settled(address, target, &[("accept", BROWSER)]);
        assert_eq!(kept.header("weir-adapt"), word, "{target}");
        assert!(kept.body == first, "{target}");
    }
    weir.wait_for_log("image: jpeg: ");
    let metrics = metrics(admin);
    assert!(metrics.contains("weir_image_kept_total{reason=\"side\"} 1"), "{metrics}");
    assert!(metrics.contains("weir_image_kept_total{reason=\"failed\"} 1"), "{metrics}");
    assert!(metrics.contains("weir_adapt_helpers_died_total 0"), "{metrics}");
}

#[test]
fn limits_change_with_a_reload_and_helpers_with_a_restart() {
    let admin = free_address();
    let global = |adapt: &str| format!("adapt {{ {adapt}; }}\n{}", with_admin(admin));
    let (origin, weir, address) = front(&global("image pixels=1000"), "image formats=\"webp\"");
    let reload = |adapt: &str| {
        let site =
            format!("route \"/*\" {{ proxy \"{}\"; image formats=\"webp\"; }}", origin.url());
        let config = front_config(address, &global(adapt), &site);
        std::fs::write(weir.directory().join("weir.kdl"), config).unwrap();
        let output = command(weir.directory(), &["reload", "--admin", &admin.to_string()]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    ask(address, "GET", "/a.jpg", &[]);
    let kept = settled(address, "/a.jpg", &[("accept", "image/webp")]);
    assert_eq!(kept.header("weir-adapt"), Some("original;reason=pixels"));
    let (done, said) = reload("image pixels=1000000");
    assert!(done, "{said}");
    let made = settled(address, "/a.jpg", &[("accept", "image/webp")]);
    assert_eq!(made.header("weir-adapt"), Some("webp;q=80;640x480"));
    let (done, said) = reload("helpers 0");
    assert!(!done && said.contains("adapt (but its image) cannot change"), "{said}");
}

#[test]
fn what_is_small_already_stays_and_likeness_is_kept() {
    let admin = free_address();
    let line = "image formats=\"webp,jpeg\" { target 60; }";
    let (_origin, _weir, address) = front(&with_admin(admin), line);
    ask(address, "GET", "/a.jpg", &[]);
    let made = settled(address, "/a.jpg", &[("accept", "image/webp")]);
    let word = made.header("weir-adapt").unwrap();
    let (_, score) = word.split_once(";score=").unwrap();
    assert!(score.parse::<i32>().unwrap() >= 60, "{word}");
    assert_eq!((seen(&made).width, seen(&made).height), (640, 480));
    // A client that takes none of them, where nothing but the format would change.
    let kept = settled(address, "/a.jpg", &[("accept", "image/gif")]);
    assert_eq!(kept.header("weir-adapt"), Some("original;reason=not-accepted"));
    let metrics = metrics(admin);
    assert!(metrics.contains("weir_image_made_total{format=\"webp\"} 1"), "{metrics}");
    assert!(!metrics.contains("weir_image_saved_bytes_total 0"), "{metrics}");
}

#[test]
fn the_command_line_makes_pictures() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.jpg"), photo()).unwrap();
    let run = |arguments: &[&str]| command(directory.path(), arguments);
    let out = run(&["adapt", "a.jpg", "--image", "width=160,format=avif,quality=50", "-o", "b"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.starts_with("avif;q=50;160x120: "), "{out:?}");
    let made = std::fs::read(directory.path().join("b")).unwrap();
    let probe = probe(&made, &Limits::default()).unwrap().unwrap();
    assert_eq!((probe.source.name(), probe.width, probe.height), ("avif", 160, 120));
    // A file's name says what should be in it.
    for (wish, output, format) in
        [("width=160", "c.JPG", "jpeg"), ("width=160", "c", "avif"), ("format=png", "d.jpg", "png")]
    {
        let out = run(&["adapt", "a.jpg", "--image", wish, "-o", output]);
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && said.starts_with(format), "{output}: {said}");
    }
    let out = run(&["adapt", "a.jpg", "--image", "width=0"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("expected a number from 1 to 16383"), "{said}");
}

/// Whatever an encoder does with it, its helper lives.
#[test]
fn pictures_of_all_depths_become_all_formats() {
    let directory = tempfile::tempdir().unwrap();
    let level =
        |x: u32, y: u32| (x.wrapping_mul(x).wrapping_add(y.wrapping_mul(7 * x)) % 256) as u8;
    let pictures: [(&str, image::DynamicImage); 4] = [
        // All of 256 levels: palettes that are sorted.
        ("grey.png", image::GrayImage::from_fn(300, 200, |x, y| [level(x, y)].into()).into()),
        (
            "alpha.png",
            image::GrayAlphaImage::from_fn(300, 200, |x, y| [level(x, y), level(y, x)].into())
                .into(),
        ),
        (
            "few.png",
            RgbImage::from_fn(300, 200, |x, y| Rgb([level(x, y), 255 - level(x, y), 9])).into(),
        ),
        (
            "deep.png",
            image::ImageBuffer::<image::Luma<u16>, _>::from_fn(300, 200, |x, y| {
                image::Luma([u16::from(level(x, y)) << 8 | 77])
            })
            .into(),
        ),
    ];
    for (name, picture) in pictures {
        picture.save(directory.path().join(name)).unwrap();
        for format in ["webp", "avif", "png", "jpeg"] {
            let wish = format!("width=150,format={format}");
            let told = command(directory.path(), &["adapt", name, "--image", &wish, "--json"]);
            let text = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
            assert!(told.status.success(), "{name} {format}: {text}");
        }
    }
}

/// The path and query by which each request came.
fn asked_of(origin: &Origin) -> Vec<String> {
    let requests = origin.take();
    requests.iter().map(|request| request.line().split(' ').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn queries_ask_for_what_is_listed() {
    let line = "image formats=\"webp\" { widths 64 128 1280; query \"listed\"; }";
    let (origin, _weir, address) = front("", line);
    ask(address, "GET", "/a.jpg", &[]);
    for (target, accept, word) in [
        ("/a.jpg?width=64", "image/webp", "webp;q=80;64x48"),
        ("/a.jpg?format=webp&width=128", "*/*", "webp;q=80;128x96"),
        ("/a.jpg?width=128", "*/*", "jpeg;q=80;128x96"),
        // As large as it is, and in the format that is taken or asked for all the same.
        ("/a.jpg?width=1280", "image/webp", "webp;q=80;640x480"),
        ("/a.jpg?format=webp&width=1280", "*/*", "webp;q=80;640x480"),
        ("/a.jpg?width=1280", "*/*", "original;reason=unchanged"),
    ] {
        let made = settled(address, target, &[("accept", accept)]);
        assert_eq!(made.header("weir-adapt"), Some(word), "{target}");
    }
    for (target, why) in [
        ("/a.jpg?width=65", "expected one of 64, 128, 1280"),
        ("/a.jpg?quality=1", "not for everybody"),
        ("/a.jpg?width=64&width=64", "stands twice"),
    ] {
        let refused = ask(address, "GET", target, &[]);
        assert_eq!(refused.status, 400, "{target}");
        assert!(String::from_utf8_lossy(&refused.body).contains(why), "{target}");
    }
    // One picture is stored, and the origin knows nothing of widths; what else is asked stays.
    assert_eq!(ask(address, "GET", "/a.jpg?v=2&width=64", &[]).status, 200);
    assert_eq!(asked_of(&origin), ["/a.jpg", "/a.jpg?v=2"]);
    // What is no question for a picture is the origin's.
    ask(address, "DELETE", "/items?target=7&width=3", &[]);
    assert_eq!(asked_of(&origin), ["/items?target=7&width=3"]);
}

#[test]
fn queries_that_are_signed_may_ask_for_anything() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("image.key");
    std::fs::write(&key, "a key of enough bytes\n").unwrap();
    let line = |otherwise: &str| {
        let key = key.display();
        format!("image {{ query \"signed\" key=\"{key}\" otherwise=\"{otherwise}\"; }}")
    };
    let signed = |target: &str| {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"a key of enough bytes");
        let tag = aws_lc_rs::hmac::sign(&key, target.as_bytes());
        let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{target}&signature={digits}")
    };
    let (_origin, _weir, address) = front("", &line("refuse"));
    ask(address, "GET", "/a.jpg", &[]);
    let target = signed("/a.jpg?width=100&height=100&fit=cover&format=png&grey=1");
    let made = settled(address, &target, &[]);
    assert_eq!(made.header("weir-adapt"), Some("png;100x100"));
    let forged = target.replace("width=100", "width=101");
    for target in ["/a.jpg?width=100", &forged, &signed("/a.jpg?width=0")] {
        let refused = ask(address, "GET", target, &[]);
        let expected = if target.contains("width=0") { 400 } else { 403 };
        assert_eq!(refused.status, expected, "{target}");
    }
    // Where the route does not refuse, its own settings hold.
    let (_origin, _weir, address) = front("", &line("ignore"));
    ask(address, "GET", "/a.jpg", &[]);
    let made = settled(address, "/a.jpg?width=100", &[("accept", "image/webp")]);
    assert_eq!(made.header("weir-adapt"), Some("webp;q=80;640x480"));
}
