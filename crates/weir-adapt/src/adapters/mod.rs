//! What can be done with bytes: functions without any knowledge of where they come from. They run
//! in helpers, or, by `weir adapt`, where that is called.

pub mod compress;
pub mod decode;
pub mod html;
pub mod image;

use crate::job::{Limits, Recipe, Step};
use crate::wire::Why;

/// What has become of an input.
#[derive(Debug)]
pub enum Adapted {
    /// A variant, and what was done.
    Made(Vec<u8>, String),
    /// The original is as good.
    Original(Why),
}

/// Why an input cannot be adapted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// The result would be too large.
    #[error("the result is larger than {limit_bytes} bytes")]
    TooLarge {
        /// What was allowed.
        limit_bytes: u64,
    },
    /// It would be so many times larger than what stands for it that somebody means ill.
    #[error("decoded, it is more than {ratio} times larger")]
    Bomb {
        /// What is allowed.
        ratio: u64,
    },
    /// An encoder does not take what it is given.
    #[error("{what}: {cause}")]
    Codec {
        /// Which.
        what: &'static str,
        /// What it says.
        cause: String,
    },
}

/// Does what a recipe says. `tables` are what its steps look things up in.
///
/// A coding is part of what a result is called: once something has been made, it is applied whether
/// that becomes smaller or not. And to undo a coding alone makes nothing.
///
/// # Errors
/// The first step's that cannot be done.
pub fn adapt(
    input: &[u8],
    tables: &[&[u8]],
    recipe: &Recipe,
    limits: &Limits,
) -> Result<Adapted, AdaptError> {
    let mut bytes: Option<Vec<u8>> = None;
    let mut details: Vec<String> = Vec::new();
    let mut original = Why::NotSmaller;
    for step in &recipe.steps {
        let input = bytes.as_deref().unwrap_or(input);
        let adapted = match step {
            Step::Compress(wish) if details.is_empty() => compress::compress(input, wish, limits)?,
            Step::Compress(wish) => compress::compress_anyway(input, wish, limits)?,
            Step::Decode(codings) => {
                bytes = Some(decode::decode(input, codings, limits)?);
                continue;
            }
            Step::Html(rewriting) => html::rewrite(input, rewriting, tables, limits)?,
            Step::Image(image) => image::convert(input, image, limits)?,
        };
        match adapted {
            Adapted::Made(made, detail) => {
                bytes = Some(made);
                details.push(detail);
            }
            Adapted::Original(why) if why != Why::NotSmaller => original = why,
            Adapted::Original(_) => {}
        }
    }
    // What has only been coded anew is worth it if that makes it smaller.
    let is_worth = |bytes: &Vec<u8>| match &recipe.steps[..] {
        [Step::Decode(_), .., Step::Compress(_)] if details.len() == 1 => bytes.len() < input.len(),
        _ => !details.is_empty(),
    };
    Ok(match bytes.filter(is_worth) {
        Some(bytes) => Adapted::Made(bytes, details.join(", ")),
        None => Adapted::Original(original),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::compress::{Coding, Compress};
    use super::html::{Action, Html, Rewriting, Rule};
    use super::*;

    const LIMITS: Limits = Limits { output_bytes: 1 << 20, time: Duration::from_secs(60) };

    fn removing(selector: &str) -> Step {
        let rule = Rule { selector: selector.to_owned(), action: Action::Remove };
        let html = Html { rules: vec![rule], ..Html::default() };
        Step::Html(Rewriting { html: html.into(), ..Rewriting::default() })
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn made(input: &[u8], steps: Vec<Step>) -> Result<(Vec<u8>, String), Why> {
        match adapt(input, &[], &Recipe { steps }, &LIMITS).unwrap() {
            Adapted::Made(bytes, detail) => Ok((bytes, detail)),
            Adapted::Original(why) => Err(why),
        }
    }

    #[test]
    fn steps_follow_each_other() {
        let page = format!("<i>x</i>{}", "<p>Weir.</p>".repeat(500));
        let coded = Step::Compress(Compress { coding: Coding::Gzip, level: 9 });
        let decode = || Step::Decode(vec![Coding::Gzip]);
        let (bytes, detail) =
            made(&gzip(&page), vec![decode(), removing("i"), coded.clone()]).unwrap();
        assert_eq!(detail, "html;changed=1, gzip;q=9");
        let text = decode::decode(&bytes, &[Coding::Gzip], &LIMITS).unwrap();
        assert_eq!(text, "<p>Weir.</p>".repeat(500).as_bytes());
        let (bytes, detail) = made(&gzip(&page), vec![decode(), removing("i")]).unwrap();
        assert_eq!((bytes, &*detail), (text, "html;changed=1"));
        // Nothing to change: neither what was coded, nor what it stands for.
        for steps in [vec![decode(), removing("b")], vec![decode(), removing("b"), coded.clone()]] {
            assert_eq!(made(&gzip(&page), steps), Err(Why::Unchanged));
        }
        let (_, detail) = made(page.as_bytes(), vec![removing("b"), coded.clone()]).unwrap();
        assert_eq!(detail, "gzip;q=9");
        // A coding that was promised is made, even if it does not pay.
        let (bytes, detail) = made(b"<i></i><p>", vec![removing("i"), coded]).unwrap();
        assert_eq!(detail, "html;changed=1, gzip;q=9");
        assert_eq!(decode::decode(&bytes, &[Coding::Gzip], &LIMITS).unwrap(), b"<p>");
    }
}
