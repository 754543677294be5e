//! What a page's rules have the parser look for, and what is done with what it finds.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lol_html::html_content::ContentType::Html as Markup;
use lol_html::send::{ElementContentHandlers, Settings};
use lol_html::{HandlerResult, HandlerTypes, MemorySettings, Selector};

use super::rewriter::{Counts, MEMORY_BYTES_MAX};
use super::{Action, Hidden, Rewriting, hide, hosts, images, strip};

/// An element, as handlers see it.
pub(super) type Element<'r, 't> = lol_html::send::Element<'r, 't>;

/// All that is done to a page.
///
/// # Errors
/// A selector that the parser does not know.
pub(super) fn settings(
    rewriting: &Rewriting,
    hidden: Option<Hidden>,
    counts: &Arc<Counts>,
) -> Result<Settings<'static, 'static>, String> {
    let (html, nonce) = (&rewriting.html, rewriting.nonce.as_deref());
    let mut settings = nothing();
    for rule in &html.rules {
        let action = rule.action.clone().with_nonce(nonce.unwrap_or_default());
        let counts = Arc::clone(counts);
        settings = settings.append_element_content_handler(on(&rule.selector, move |element| {
            if element.removed() {
                // A line before has taken it out.
                return HandlerResult::Ok(());
            }
            counts.changed.fetch_add(1, Relaxed);
            act(element, &action)
        })?);
    }
    if let Some(hide) = &rewriting.hide {
        settings = hide::add(settings, hide, nonce, hidden, counts)?;
    }
    if !html.hosts.is_empty() {
        settings = hosts::add(settings, &html.hosts, counts)?;
    }
    settings = images::add(settings, &html.images, counts)?;
    Ok(strip::comments(settings, html.strip, counts))
}

/// A parser with limits, and nothing to do.
pub(super) fn nothing() -> Settings<'static, 'static> {
    let memory = MemorySettings::new()
        .with_max_allowed_memory_usage(MEMORY_BYTES_MAX)
        .with_graceful_bail_out_on_memory_limit_exceeded(true);
    Settings::new_send()
        .with_strict(false)
        .with_memory_settings(memory)
        .with_graceful_bail_out_on_content_handler_error(true)
}

/// A handler and what it waits for.
pub(super) fn on(
    selector: &str,
    handler: impl FnMut(&mut Element<'_, '_>) -> HandlerResult + Send + 'static,
) -> Result<(Cow<'static, Selector>, ElementContentHandlers<'static>), String> {
    let parsed: Selector =
        selector.parse().map_err(|error| format!("the selector {selector:?}: {error}"))?;
    Ok((Cow::Owned(parsed), ElementContentHandlers::default().element(typed(handler))))
}

/// Tells the compiler what kind of closure it has before it.
fn typed<F>(handler: F) -> F
where
    F: FnMut(&mut Element<'_, '_>) -> HandlerResult + Send + 'static,
{
    handler
}

fn act<H: HandlerTypes>(
    element: &mut lol_html::html_content::Element<'_, '_, H>,
    action: &Action,
) -> HandlerResult {
    match action {
        Action::Before(text) => element.before(text, Markup),
        Action::After(text) => element.after(text, Markup),
        Action::Prepend(text) => element.prepend(text, Markup),
        Action::Append(text) => element.append(text, Markup),
        Action::Replace(text) => element.replace(text, Markup),
        Action::Content(text) => element.set_inner_content(text, Markup),
        Action::Remove => element.remove(),
        Action::Unwrap => element.remove_and_keep_content(),
        Action::Set(name, value) => element.set_attribute(name, value)?,
        Action::Unset(name) => element.remove_attribute(name),
    }
    Ok(())
}
