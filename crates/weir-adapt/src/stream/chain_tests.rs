use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::adapters::compress::{Coding as Kind, compress_anyway};
use crate::adapters::html::{Action, Host, Html, Images, Rewriting, Rule, Strip};
use crate::adapters::{Adapted, adapt};
use crate::job::{Limits, Recipe};

const ALL: [Kind; 3] = [Kind::Gzip, Kind::Brotli, Kind::Zstd];
const LIMITS: Limits = Limits { output_bytes: 64 << 20, time: Duration::from_secs(60) };

fn html() -> Step {
    let rule = |selector: &str, action| Rule { selector: selector.to_owned(), action };
    let html = Html {
        rules: vec![
            rule("head", Action::Append("<script>1</script>".to_owned())),
            rule(".ad", Action::Remove),
        ],
        hosts: vec![Host { from: "old.example".to_owned(), to: "new.example".to_owned() }],
        images: Images { lazy_after: Some(1), srcset: None },
        strip: Strip { comments: true, space: true },
    };
    Step::Html(Rewriting { html: html.into(), ..Rewriting::default() })
}

fn coded(input: &[u8], codings: &[Kind]) -> Vec<u8> {
    codings.iter().fold(input.to_vec(), |bytes, coding| {
        match compress_anyway(&bytes, &Compress { coding: *coding, level: 3 }, &LIMITS).unwrap() {
            Adapted::Made(bytes, _) => bytes,
            other => panic!("{other:?}"),
        }
    })
}

/// All that comes of it, flushed after each piece if `flushes`; the largest answer, too.
fn streamed(
    steps: &[Step],
    pieces: &[&[u8]],
    flushes: bool,
) -> Result<(Vec<u8>, usize), AdaptError> {
    let mut chain = Chain::new(steps, &[]).unwrap();
    let (mut all, mut largest) = (Vec::new(), 0);
    for (number, piece) in pieces.iter().enumerate() {
        let (piece, is_last) = (Bytes::copy_from_slice(piece), number + 1 == pieces.len());
        // That it is the last is known at times.
        let mut made =
            if is_last && !flushes { chain.code_last(piece)? } else { chain.code(piece)? };
        loop {
            largest = largest.max(made.len());
            all.append(&mut made);
            if !chain.has_more() {
                break;
            }
            made = chain.go_on()?;
        }
        if flushes {
            all.extend(chain.flush()?);
        }
    }
    if !chain.is_finished() {
        all.extend(chain.finish()?);
    }
    Ok((all, largest))
}

/// What a helper would make of it.
fn whole(input: &[u8], steps: Vec<Step>) -> Vec<u8> {
    match adapt(input, &[], &Recipe { steps }, &LIMITS).unwrap() {
        Adapted::Made(bytes, _) => bytes,
        Adapted::Original(_) => input.to_vec(),
    }
}

fn undone(bytes: &[u8], codings: &[Kind]) -> Vec<u8> {
    decode::decode(bytes, codings, &LIMITS).unwrap()
}

fn markup() -> impl Strategy<Value = String> {
    let parts = [
        "<html><head></head><body>",
        "<p class=ad>Buy <b>now</b></p>",
        "<p>Text &amp; more</p>",
        "<!-- a comment -->",
        "<a href=\"https://old.example/x?y=1\">x</a>",
        "<img src=/a.jpg>",
        "<script>if (a < b) { \"<p class=ad>\" }</script>",
        "<div class='ad x'",
        ">\n\n",
        "ünïcödé",
        "</body></html>",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..40).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_stream_is_what_a_helper_makes_whatever_the_pieces(
        page in markup(),
        codings in prop::collection::vec(prop::sample::select(ALL.to_vec()), 0..=2),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        flushes in any::<bool>(),
        last in prop::option::of(prop::sample::select(ALL.to_vec())),
    ) {
        let input = coded(page.as_bytes(), &codings);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]).collect();
        let mut steps = Vec::new();
        if !codings.is_empty() {
            steps.push(Step::Decode(codings));
        }
        steps.push(html());
        steps.extend(last.map(|coding| Step::Compress(Compress { coding, level: 4 })));
        let (made, _) = streamed(&steps, &pieces, flushes).unwrap();
        let made = last.map_or(made.clone(), |coding| undone(&made, &[coding]));
        prop_assert_eq!(made, whole(page.as_bytes(), vec![html()]));
    }

    #[test]
    fn noise_is_an_error_or_nothing(noise in prop::collection::vec(any::<u8>(), 0..2000)) {
        for coding in ALL {
            let _ = streamed(&[Step::Decode(vec![coding]), html()], &[&noise], true);
        }
    }
}

#[test]
fn what_is_cut_off_or_goes_on_behind_its_end_is_an_error() {
    let text = "Weir serves what is asked for. ".repeat(300).into_bytes();
    for coding in ALL {
        let steps = [Step::Decode(vec![coding])];
        let bytes = coded(&text, &[coding]);
        assert_eq!(streamed(&steps, &[&bytes], false).unwrap().0, text, "{coding:?}");
        for len in [1, bytes.len() / 2, bytes.len() - 1] {
            assert!(streamed(&steps, &[&bytes[..len]], false).is_err(), "{coding:?} {len}");
        }
        let more = streamed(&steps, &[&bytes, b"more", b"\x1f\x8b\x08"], false);
        match coding {
            // Padding.
            Kind::Gzip => assert_eq!(more.unwrap().0, text),
            _ => assert!(more.is_err(), "{coding:?}"),
        }
        // Nothing at all is nothing.
        assert_eq!(streamed(&steps, &[], false).unwrap().0, b"", "{coding:?}");
    }
    // Texts behind each other are one.
    for coding in [Kind::Gzip, Kind::Zstd] {
        let twice = [coded(b"one ", &[coding]), coded(b"two", &[coding])].concat();
        let (made, _) = streamed(&[Step::Decode(vec![coding])], &[&twice], false).unwrap();
        assert_eq!(made, b"one two", "{coding:?}");
    }
}

/// However small a piece is, no more than a turn's work lies in memory.
#[test]
fn bombs_do_not_go_off() {
    let zeroes = vec![0_u8; 24 << 20];
    for coding in ALL {
        let bytes = coded(&zeroes, &[coding]);
        let mut chain = Chain::new(&[Step::Decode(vec![coding])], &[]).unwrap();
        let (mut made, mut error) = (0, None);
        let mut next = chain.code(bytes.into());
        for _ in 0..1000 {
            match next {
                Ok(bytes) if chain.has_more() => {
                    assert!(bytes.len() <= TURN_BYTES + PIECE_BYTES, "{coding:?}: {}", bytes.len());
                    made += bytes.len();
                    next = chain.go_on();
                }
                Ok(bytes) => {
                    made += bytes.len();
                    break;
                }
                Err(bomb) => {
                    error = Some(bomb);
                    break;
                }
            }
        }
        // What gzip can do at most is more than is allowed.
        assert!(matches!(error, Some(AdaptError::Bomb { .. })), "{coding:?}: {made}, {error:?}");
    }
}

#[test]
fn what_has_come_goes_out_when_it_is_asked_for() {
    for coding in ALL {
        let mut chain = Chain::new(&[Step::Decode(vec![Kind::Gzip]), html()], &[]).unwrap();
        let mut encoder = Encoder::new(&Compress { coding: Kind::Gzip, level: 4 }, None).unwrap();
        let mut sent = Vec::new();
        encoder.code(b"<html><head></head><p>First</p><p cl", &mut sent).unwrap();
        encoder.flush(&mut sent).unwrap();
        let mut made = chain.code(sent.into()).unwrap();
        made.extend(chain.flush().unwrap());
        let expected = b"<html><head><script>1</script></head><p>First</p>";
        assert_eq!(made, expected, "{coding:?}: the tag that has not ended stays");
    }
}

#[test]
fn pages_of_other_encodings_pass() {
    let utf16: Vec<u8> =
        "\u{feff}<p class=ad>x</p>".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (made, _) = streamed(&[html()], &[&utf16[..1], &utf16[1..]], true).unwrap();
    assert_eq!(made, utf16);
    let (made, _) = streamed(&[html()], &[b"<"], true).unwrap();
    assert_eq!(made, b"<");
}
