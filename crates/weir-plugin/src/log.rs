//! Plugins' lines in the server's log, no more than their budget a second.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::host::Environment;

/// Bytes of a line that are logged.
const LINE_BYTES_MAX: usize = 8192;

/// Lines a second, over all instances of a plugin.
#[derive(Debug)]
pub(crate) struct LogBudget {
    per_second: u32,
    began: Instant,
    /// The second that is counted, in the upper half, and its lines, in the lower.
    second_and_lines: AtomicU64,
    unsaid: AtomicU64,
}

impl LogBudget {
    pub(crate) fn new(per_second: u32) -> LogBudget {
        LogBudget {
            per_second,
            began: Instant::now(),
            second_and_lines: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
        }
    }

    /// Whether one more line may be said; if so, how many were not since the last.
    pub(crate) fn take(&self) -> Option<u64> {
        let second = self.began.elapsed().as_secs() << 32;
        let mut lines = 0;
        let spent = self.second_and_lines.fetch_update(Relaxed, Relaxed, |seen| {
            lines = if seen & !0xffff_ffff == second { seen & 0xffff_ffff } else { 0 };
            Some(second | (lines + 1).min(0xffff_ffff))
        });
        if spent.is_err() || lines >= u64::from(self.per_second) {
            self.unsaid.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.unsaid.swap(0, Relaxed))
    }
}

/// A level of proxy-wasm, which Weir's own interface shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Critical,
}

impl Level {
    /// By number.
    pub(crate) fn new(number: u32) -> Option<Level> {
        let all =
            [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error, Level::Critical];
        all.get(number as usize).copied()
    }

    /// The lowest level that is logged.
    pub(crate) fn enabled() -> Level {
        match tracing::level_filters::LevelFilter::current().into_level() {
            Some(tracing::Level::TRACE) => Level::Trace,
            Some(tracing::Level::DEBUG) => Level::Debug,
            Some(tracing::Level::INFO) => Level::Info,
            Some(tracing::Level::WARN) => Level::Warn,
            Some(tracing::Level::ERROR) | None => Level::Error,
        }
    }
}

/// Logs what a plugin says.
pub(crate) fn say(environment: &Environment, level: Level, text: &[u8]) {
    if !environment.policy.allow.log || level < Level::enabled() {
        return;
    }
    let Some(unsaid) = environment.log.take() else { return };
    let cut = &text[..text.len().min(LINE_BYTES_MAX)];
    let text = String::from_utf8_lossy(cut);
    let text = visible(text.trim_end_matches('\n'));
    let (plugin, generation) = (environment.name.as_str(), environment.generation);
    // A field only where there is something to tell.
    let unsaid = (unsaid > 0).then_some(unsaid);
    match level {
        Level::Trace => tracing::trace!(plugin, generation, unsaid, "{text}"),
        Level::Debug => tracing::debug!(plugin, generation, unsaid, "{text}"),
        Level::Info => tracing::info!(plugin, generation, unsaid, "{text}"),
        Level::Warn => tracing::warn!(plugin, generation, unsaid, "{text}"),
        Level::Error | Level::Critical => tracing::error!(plugin, generation, unsaid, "{text}"),
    }
}

/// One line, that no terminal obeys: plugins log what clients sent.
fn visible(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c == '\t' || !c.is_control();
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_plain(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_default()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_logs_is_one_line() {
        for (text, expect) in [
            ("a\tb \u{e4}", "a\tb \u{e4}"),
            ("one\nERROR forged", "one\\nERROR forged"),
            ("\r\u{1b}[2J\u{9b}", "\\r\\u{1b}[2J\\u{9b}"),
        ] {
            assert_eq!(visible(text), expect, "{text:?}");
        }
    }
}
