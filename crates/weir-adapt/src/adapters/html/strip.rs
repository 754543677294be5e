//! What a page can do without: comments, and white space beyond what separates words.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use lol_html::html_content::{Comment, EndTag, TextChunk, TextType};
use lol_html::send::{DocumentContentHandlers, Settings};
use lol_html::{HandlerResult, end_tag};

use super::Strip;
use super::handlers::on;
use super::rewriter::Counts;

/// Beginnings of comments that somebody evaluates: browsers of old, edge servers, scripts.
const MEANT: [&str; 5] = ["[if", "[endif", "#", "esi", "<![endif"];

/// Has a page's comments taken out, if that is wished.
pub(super) fn comments(
    settings: Settings<'static, 'static>,
    strip: Strip,
    counts: &Arc<Counts>,
) -> Settings<'static, 'static> {
    if !strip.comments {
        return settings;
    }
    let counts = Arc::clone(counts);
    let handler = move |comment: &mut Comment<'_>| {
        let text = comment.text();
        let text = text.trim_ascii_start();
        if !MEANT.iter().any(|word| text.starts_with(word)) {
            counts.changed.fetch_add(1, Relaxed);
            comment.remove();
        }
        HandlerResult::Ok(())
    };
    settings.append_document_content_handler(DocumentContentHandlers::default().comments(handler))
}

/// Has a page's white space made thin.
///
/// # Errors
/// None: the selectors are known.
pub(super) fn space(
    settings: Settings<'static, 'static>,
) -> Result<Settings<'static, 'static>, String> {
    // Elements that are open in which white space is shown as it is.
    let kept = Arc::new(AtomicU32::new(0));
    let open = Arc::clone(&kept);
    // In SVG scripts and styles are elements like others, and not text (HTML, section 13.2.6.5).
    let kept_as_they_are = "pre, listing, svg script, svg style";
    let settings = settings.append_element_content_handler(on(kept_as_they_are, move |element| {
        // One that never ends keeps the rest of the page as it is.
        open.fetch_add(1, Relaxed);
        let open = Arc::clone(&open);
        element.on_end_tag(end_tag!(move |_: &mut EndTag<'_>| {
            open.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).ok();
            Ok(())
        }))
    })?);
    let mut ends_in_space = false;
    let handler = move |text: &mut TextChunk<'_>| {
        let is_last = text.last_in_text_node();
        if text.text_type() == TextType::Data
            && kept.load(Relaxed) == 0
            && let Cow::Owned(collapsed) = collapse(text.as_str(), &mut ends_in_space)
        {
            text.set_str(collapsed);
        }
        if is_last {
            ends_in_space = false;
        }
        HandlerResult::Ok(())
    };
    Ok(settings.append_document_content_handler(DocumentContentHandlers::default().text(handler)))
}

/// Each run of white space becomes one character of it, a line's end if there is one in it.
fn collapse<'a>(text: &'a str, ends_in_space: &mut bool) -> Cow<'a, str> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
    let bytes = text.as_bytes();
    let is_thin = |pair: &[u8]| !(is_space(&pair[0]) && is_space(&pair[1]));
    let begins_thin = !(*ends_in_space && bytes.first().is_some_and(is_space));
    if begins_thin && bytes.windows(2).all(is_thin) {
        *ends_in_space = bytes.last().map_or(*ends_in_space, is_space);
        return Cow::Borrowed(text);
    }
    let mut collapsed = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.bytes().position(|byte| is_space(&byte)).unwrap_or(rest.len());
        collapsed.push_str(&rest[..word]);
        let after = &rest[word..];
        let run = after.bytes().position(|byte| !is_space(&byte)).unwrap_or(after.len());
        let continues = word == 0 && *ends_in_space;
        if run > 0 && !continues {
            collapsed.push(if after[..run].contains('\n') { '\n' } else { ' ' });
        }
        *ends_in_space = run > 0;
        rest = &after[run..];
    }
    Cow::Owned(collapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_white_space_become_one() {
        let check = |pieces: &[&str], expected: &str| {
            let mut ends = false;
            let joined: String = pieces.iter().map(|piece| collapse(piece, &mut ends)).collect();
            assert_eq!(joined, expected, "{pieces:?}");
        };
        check(&["a b"], "a b");
        check(&["  a \t b  "], " a b ");
        check(&["a \n\n  b"], "a\nb");
        check(&["a ", " b", " ", " ", "c"], "a b c");
        check(&["", "\u{a0}\u{a0} ü  ö"], "\u{a0}\u{a0} ü ö");
    }
}
