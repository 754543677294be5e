//! Hints for images: loaded when they come into view, and in several widths to choose from.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use lol_html::HandlerResult;
use lol_html::send::Settings;

use super::handlers::{Element, on};
use super::rewriter::Counts;
use super::{Images, Srcset};

/// Images that other widths can be made of.
const EXTENSIONS: [&str; 5] = ["jpg", "jpeg", "png", "webp", "avif"];

/// Screens with up to so many pixels for each of CSS are worth an image of their own.
const DENSITY_MAX: u32 = 2;

/// Has images given what they lack.
///
/// # Errors
/// None: the selectors are known.
pub(super) fn add(
    settings: Settings<'static, 'static>,
    images: &Images,
    counts: &Arc<Counts>,
) -> Result<Settings<'static, 'static>, String> {
    if images.lazy_after.is_none() && images.srcset.is_none() {
        return Ok(settings);
    }
    let (images, counts) = (images.clone(), Arc::clone(counts));
    let mut seen = 0_u32;
    let is_elsewhere = Arc::new(AtomicBool::new(false));
    let found = Arc::clone(&is_elsewhere);
    let settings = settings.append_element_content_handler(on("base[href]", move |base| {
        let href = base.get_attribute("href").unwrap_or_default();
        found.fetch_or(has_host(&href), Relaxed);
        HandlerResult::Ok(())
    })?);
    Ok(settings.append_element_content_handler(on("img[src]", move |image| {
        let is_late = images.lazy_after.is_some_and(|eager| seen >= eager);
        seen = seen.saturating_add(1);
        let mut changed = false;
        if is_late && !image.has_attribute("loading") {
            image.set_attribute("loading", "lazy")?;
            changed = true;
        }
        if let Some(srcset) = images.srcset.as_ref().filter(|_| !is_elsewhere.load(Relaxed)) {
            changed |= widths(image, srcset)?;
        }
        if changed {
            counts.changed.fetch_add(1, Relaxed);
        }
        HandlerResult::Ok(())
    })?))
}

fn widths(
    image: &mut Element<'_, '_>,
    srcset: &Srcset,
) -> Result<bool, lol_html::errors::AttributeNameError> {
    if image.has_attribute("srcset") {
        return Ok(false);
    }
    let is_fit = |src: &String| is_own(src) && !asks(src, &srcset.parameter);
    let Some(src) = image.get_attribute("src").filter(is_fit) else { return Ok(false) };
    let shown: Option<u32> = image
        .get_attribute("width")
        .and_then(|width| width.trim().parse().ok())
        .filter(|width| *width > 0);
    let sizes = match (image.has_attribute("sizes"), shown, &srcset.sizes) {
        (true, ..) => None,
        (false, Some(shown), _) => Some(format!("{shown}px")),
        (false, None, Some(sizes)) => Some(sizes.clone()),
        // It would be shown as wide as the window (HTML, 4.8.4.2.1), whatever it is.
        (false, None, None) => return Ok(false),
    };
    let most = shown.map_or(u32::MAX, |shown| shown.saturating_mul(DENSITY_MAX));
    // The first that is wide enough, and all below.
    let enough = srcset.widths.iter().copied().filter(|width| *width >= most).min();
    let wanted = srcset.widths.iter().filter(|width| **width <= enough.unwrap_or(most));
    let candidates: Vec<String> = wanted.map(|width| candidate(&src, srcset, *width)).collect();
    image.set_attribute("srcset", &candidates.join(", "))?;
    if let Some(sizes) = sizes {
        image.set_attribute("sizes", &sizes)?;
    }
    Ok(true)
}

/// Whether the page's own host has it, and other widths can be made of it.
fn is_own(src: &str) -> bool {
    // Where white space and commas stand candidates would end.
    let is_plain = !src.is_empty() && !src.contains([' ', '\t', '\n', '\r', ',', '#', '\\']);
    let path = src.split('?').next().unwrap_or_default();
    let is_relative = !has_host(src);
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    is_plain && is_relative && extension.is_some_and(|extension| EXTENSIONS.contains(&&*extension))
}

/// Whether a URL says by itself whose it is.
fn has_host(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or_default();
    url.starts_with("//") || path.split('/').next().unwrap_or_default().contains(':')
}

/// Whether its URL says how wide it shall be, or is signed as it is.
fn asks(src: &str, parameter: &str) -> bool {
    let query = src.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').map(|pair| pair.strip_prefix("amp;").unwrap_or(pair));
    let mut names = pairs.map(|pair| pair.split('=').next().unwrap_or_default());
    names.any(|name| name == parameter || name == "signature")
}

fn candidate(src: &str, srcset: &Srcset, width: u32) -> String {
    // Attributes are written as they are in the page's text.
    let joint = if src.contains('?') { "&amp;" } else { "?" };
    format!("{src}{joint}{}={width} {width}w", srcset.parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_say_how_wide_are_told_from_others() {
        for (src, expected) in [
            ("/a.jpg", false),
            ("/a.jpg?v=2&other=width", false),
            ("/a.jpg?width=50", true),
            ("/a.jpg?v=2&amp;width=50", true),
            ("/a.jpg?v=2&width", true),
            ("/a.jpg?quality=50&signature=00", true),
        ] {
            assert_eq!(asks(src, "width"), expected, "{src}");
        }
    }

    #[test]
    fn own_images_are_told_from_others() {
        for (src, expected) in [
            ("/a.jpg", true),
            ("pictures/a.PNG?v=2", true),
            ("./a.webp", true),
            ("//cdn.example/a.jpg", false),
            ("https://cdn.example/a.jpg", false),
            ("data:image/png;base64,a.jpg", false),
            ("/a.svg", false),
            ("/a.gif", false),
            ("/a b.jpg", false),
            ("/a,b.jpg", false),
            ("/a.jpg#x", false),
            ("/image", false),
            ("", false),
        ] {
            assert_eq!(is_own(src), expected, "{src}");
        }
    }
}
