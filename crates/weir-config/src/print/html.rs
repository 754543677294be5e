//! Prints the blocks `html` and `ads` of routes.

use std::time::Duration;

use crate::model::{Ads, Html, HtmlAction, HtmlRule};

use super::{Printer, property, quote, time};

impl Printer {
    pub(super) fn html(&mut self, html: &Html) {
        let mut line = "html".to_owned();
        if html.wait != Duration::ZERO {
            property(&mut line, "wait", time(html.wait));
        }
        if !html.stream {
            property(&mut line, "stream", "#false".to_owned());
        }
        self.block(line, |out| {
            for rule in &html.rules {
                out.line(rule_line(rule));
            }
            for host in &html.hosts {
                out.line(format_args!("host {} {}", quote(&host.from), quote(&host.to)));
            }
            match html.lazy_after {
                Some(0) => out.line("lazy"),
                Some(skip) => out.line(format_args!("lazy skip={skip}")),
                None => {}
            }
            if let Some(srcset) = &html.srcset {
                let widths: Vec<String> = srcset.widths.iter().map(u32::to_string).collect();
                let mut line = format!("srcset {}", widths.join(" "));
                property(&mut line, "parameter", quote(&srcset.parameter));
                if let Some(sizes) = &srcset.sizes {
                    property(&mut line, "sizes", quote(sizes));
                }
                out.line(line);
            }
            match (html.strip_comments, html.strip_space) {
                (true, true) => out.line("strip \"comments\" \"space\""),
                (true, false) => out.line("strip \"comments\""),
                (false, true) => out.line("strip \"space\""),
                (false, false) => {}
            }
        });
    }

    pub(super) fn ads(&mut self, ads: &Ads) {
        let mut line = "ads".to_owned();
        for (name, is_on) in [("block", ads.block), ("hide", ads.hide), ("stream", ads.stream)] {
            if !is_on {
                property(&mut line, name, "#false".to_owned());
            }
        }
        if ads.wait != Duration::ZERO {
            property(&mut line, "wait", time(ads.wait));
        }
        let lists: Vec<String> =
            ads.lists.iter().map(|path| quote(&path.display().to_string())).collect();
        self.block(line, |out| out.line(format_args!("lists {}", lists.join(" "))));
    }
}

fn rule_line(rule: &HtmlRule) -> String {
    let selector = quote(&rule.selector);
    let with = |name: &str, text: &str| format!("{name} {selector} {}", quote(text));
    match &rule.action {
        HtmlAction::Before(text) => with("before", text),
        HtmlAction::After(text) => with("after", text),
        HtmlAction::Prepend(text) => with("prepend", text),
        HtmlAction::Append(text) => with("append", text),
        HtmlAction::Replace(text) => with("replace", text),
        HtmlAction::Content(text) => with("content", text),
        HtmlAction::Remove => format!("remove {selector}"),
        HtmlAction::Unwrap => format!("unwrap {selector}"),
        HtmlAction::Set(name, value) => {
            format!("set {selector} {} {}", quote(name), quote(value))
        }
        HtmlAction::Unset(name) => with("unset", name),
    }
}
