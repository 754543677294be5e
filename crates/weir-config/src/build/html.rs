//! The blocks `html` and `ads` of routes.

use std::collections::HashSet;

use crate::check::{Line, Lines};
use crate::limits::{ADS_LISTS_MAX, HTML_RULES_MAX, HTML_TEXTS_MAX, SRCSET_WIDTHS_MAX};
use crate::model::{Ads, Html, HtmlAction, HtmlHost, HtmlRule, Srcset};
use crate::source::Span;

use super::{Build, Expected};

impl Build<'_, '_> {
    pub(super) fn html(&mut self, line: &Line, route: &Line) -> Option<Html> {
        let stream: bool = line.value("stream")?;
        self.check_pages(line, route, stream);
        let html = self.html_lines(&line.lines, line.span)?;
        Some(Html { stream, wait: line.value("wait")?, ..html })
    }

    /// Reports a line that changes pages where there are none that it could change.
    fn check_pages(&mut self, line: &Line, route: &Line, stream: bool) {
        if !stream || route.lines.lacks("proxy") {
            self.check_stored(line, route, "what is stored is changed, and nothing else");
        }
    }

    /// What the lines of a block at `span` say.
    pub(super) fn html_lines(&mut self, lines: &Lines, span: Span) -> Option<Html> {
        let mut html = Html::default();
        for one in lines.iter() {
            match one.key.name {
                "host" => html.hosts.push(self.html_host(one, &html.hosts)?),
                "lazy" => html.lazy_after = Some(one.value("skip")?),
                "srcset" => html.srcset = Some(self.srcset(one)?),
                "strip" => {
                    for (what, _) in one.values::<&str>("what") {
                        html.strip_comments |= what == "comments";
                        html.strip_space |= what == "space";
                    }
                }
                _ => html.rules.push(html_rule(one)?),
            }
        }
        if html.rules.len() + html.hosts.len() > HTML_RULES_MAX {
            self.source.error(span, format!("more than {HTML_RULES_MAX} lines"));
        }
        let rules = html.rules.iter().map(rule_bytes);
        let hosts = html.hosts.iter().map(|host| host.from.len() + host.to.len());
        let texts: usize = rules.chain(hosts).sum();
        if texts > HTML_TEXTS_MAX {
            let message = format!(
                "its selectors, names and texts come to {texts} bytes, of {HTML_TEXTS_MAX} at most"
            );
            self.source.error(span, message);
        }
        if lines.iter().next().is_none() && lines.is_known() {
            let expected = ["append", "remove", "host", "lazy", "strip"];
            self.source.error(span, "it says nothing to do").expect(expected);
        }
        Some(html)
    }

    fn html_host(&mut self, line: &Line, others: &[HtmlHost]) -> Option<HtmlHost> {
        let host = HtmlHost { from: line.value("from")?, to: line.value("to")? };
        if others.iter().any(|other| other.from == host.from) {
            let message = format!("\"{}\" has a line already", host.from);
            self.source.error(line.span_of("from"), message);
        }
        Some(host)
    }

    fn srcset(&mut self, line: &Line) -> Option<Srcset> {
        let widths = self.widths(line, SRCSET_WIDTHS_MAX);
        Some(Srcset { widths, parameter: line.value("parameter")?, sizes: line.value("sizes") })
    }

    pub(super) fn ads(&mut self, line: &Line, route: &Line) -> Option<Ads> {
        let (block, hide): (bool, bool) = (line.value("block")?, line.value("hide")?);
        if !block && !hide {
            self.source.error(line.span, "it neither blocks nor hides");
        }
        let stream: bool = line.value("stream")?;
        if hide && line.is_written("hide") {
            self.check_pages(line, route, stream);
        }
        let Some(lists) = line.lines.one("lists") else {
            if line.lines.lacks("lists") {
                self.source.error(line.span, "it has no lists").expect(["lists \"easylist.txt\""]);
            }
            return None;
        };
        let written = lists.values::<String>("file");
        if written.len() > ADS_LISTS_MAX {
            self.source.error(lists.span, format!("more than {ADS_LISTS_MAX} lists"));
        }
        let mut seen = HashSet::new();
        let paths = written.into_iter().map(|(path, span)| {
            if !seen.insert(path.clone()) {
                self.source.error(span, format!("\"{path}\" is one of its lists already"));
            }
            self.file(&path, "a list of ads and trackers", Expected::File, span)
        });
        let wait = line.value("wait")?;
        Some(Ads { lists: paths.collect(), block, hide, wait, stream })
    }
}

/// Bytes of a rule that a helper is told.
fn rule_bytes(rule: &HtmlRule) -> usize {
    let action = match &rule.action {
        HtmlAction::Set(name, value) => name.len() + value.len(),
        HtmlAction::Unset(name) => name.len(),
        action => action.text().map_or(0, str::len),
    };
    rule.selector.len() + action
}

fn html_rule(line: &Line) -> Option<HtmlRule> {
    let text = || line.value::<String>("html");
    let attribute = || line.value::<String>("attribute");
    let action = match line.key.name {
        "before" => HtmlAction::Before(text()?),
        "after" => HtmlAction::After(text()?),
        "prepend" => HtmlAction::Prepend(text()?),
        "append" => HtmlAction::Append(text()?),
        "replace" => HtmlAction::Replace(text()?),
        "content" => HtmlAction::Content(text()?),
        "remove" => HtmlAction::Remove,
        "unwrap" => HtmlAction::Unwrap,
        "set" => HtmlAction::Set(attribute()?, line.value("value")?),
        _ => HtmlAction::Unset(attribute()?),
    };
    Some(HtmlRule { selector: line.value("selector")?, action })
}
