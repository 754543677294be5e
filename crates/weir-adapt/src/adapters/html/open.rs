//! Which elements of a page are open, as browsers see it: the end tags of many may be left out
//! (WHATWG HTML, section 13.1.2.4), and then what follows ends them (section 13.2.6.4). Elements
//! that neither end others nor hide them are not followed.

/// Elements that are followed; in order.
const KNOWN: [&str; 60] = [
    "address",
    "applet",
    "article",
    "aside",
    "blockquote",
    "body",
    "button",
    "caption",
    "center",
    "colgroup",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hgroup",
    "hr",
    "html",
    "li",
    "listing",
    "main",
    "marquee",
    "menu",
    "nav",
    "object",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "rp",
    "rt",
    "search",
    "section",
    "select",
    "summary",
    "table",
    "tbody",
    "td",
    "template",
    "tfoot",
    "th",
    "thead",
    "tr",
    "ul",
];

/// Those before which a paragraph ends.
const END_PARAGRAPHS: [&str; 39] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hgroup",
    "hr",
    "li",
    "listing",
    "main",
    "menu",
    "nav",
    "ol",
    "p",
    "pre",
    "search",
    "section",
    "summary",
    "table",
    "ul",
];

/// What a head has in it.
const OF_HEADS: [&str; 11] = [
    "base", "basefont", "bgsound", "head", "link", "meta", "noscript", "script", "style",
    "template", "title",
];

/// Those that most others are not looked for beyond.
const SCOPES: [&str; 9] =
    ["applet", "caption", "html", "marquee", "object", "table", "td", "template", "th"];

/// So deep are pages followed.
const DEPTH_MAX: usize = 256;

/// The elements that are open at a place in a page.
#[derive(Debug, Default)]
pub(super) struct Open {
    stack: Vec<&'static str>,
    /// It has become too deep: nothing is known any more.
    is_lost: bool,
}

/// The elements that end at a place though the page does not say so.
pub(super) type Ended = Vec<&'static str>;

/// The name of an element that is followed.
fn known(name: &[u8]) -> Option<&'static str> {
    let mut lower = [0; 10];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let at = KNOWN.binary_search_by(|known| known.as_bytes().cmp(lower)).ok()?;
    Some(KNOWN[at])
}

impl Open {
    /// An element begins; what ends before it.
    pub(super) fn start(&mut self, name: &[u8]) -> Ended {
        let mut ended = Ended::new();
        let is_of_head = || OF_HEADS.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name));
        if self.top_is(&["head"]) && !is_of_head() {
            self.close(self.stack.len() - 1, &mut ended);
        }
        let Some(name) = known(name).filter(|_| !self.is_lost) else { return ended };
        let has_place = match name {
            "li" => self.end_item(&["li"], &mut ended),
            "dd" | "dt" => self.end_item(&["dd", "dt"], &mut ended),
            "option" => self.end_top(&["option"], &mut ended),
            "optgroup" => {
                self.end_top(&["option"], &mut ended);
                self.end_top(&["optgroup"], &mut ended)
            }
            "rp" | "rt" => self.end_top(&["rp", "rt"], &mut ended),
            "td" | "th" => self.clear_table(&["tr"], &mut ended),
            "tr" => self.clear_table(&["tbody", "thead", "tfoot"], &mut ended),
            "tbody" | "thead" | "tfoot" | "caption" | "colgroup" => {
                self.clear_table(&[], &mut ended)
            }
            _ => true,
        };
        if END_PARAGRAPHS.binary_search(&name).is_ok()
            && let Some(at) = self.find("p")
        {
            self.close(at, &mut ended);
        }
        if self.stack.len() >= DEPTH_MAX {
            self.is_lost = true;
            self.stack.clear();
        }
        if has_place && !self.is_lost && name != "hr" {
            self.stack.push(name);
        }
        ended
    }

    /// There is the end tag of an element; what ends before it.
    pub(super) fn end(&mut self, name: &[u8]) -> Ended {
        let mut ended = Ended::new();
        if let Some(at) = known(name).and_then(|name| self.find(name)) {
            self.close(at + 1, &mut ended);
            self.stack.pop();
        }
        ended
    }

    /// The page ends, and with it all that is open.
    pub(super) fn finish(&mut self) -> Ended {
        let mut ended = Ended::new();
        self.close(0, &mut ended);
        ended
    }

    fn close(&mut self, at: usize, ended: &mut Ended) {
        ended.extend(self.stack.drain(at..).rev());
    }

    fn top_is(&self, names: &[&str]) -> bool {
        self.stack.last().is_some_and(|top| names.contains(top))
    }

    fn end_top(&mut self, names: &[&str], ended: &mut Ended) -> bool {
        if self.top_is(names) {
            self.close(self.stack.len() - 1, ended);
        }
        true
    }

    /// An item of a list ends the one before.
    fn end_item(&mut self, names: &[&str], ended: &mut Ended) -> bool {
        const PASSED: [&str; 7] = ["address", "dialog", "div", "optgroup", "option", "p", "rt"];
        let is_bound = |name: &str| names.contains(&name) || !PASSED.contains(&name);
        let at = self.stack.iter().rposition(|name| is_bound(name));
        if let Some(at) = at.filter(|at| names.contains(&self.stack[*at])) {
            self.close(at, ended);
        }
        true
    }

    /// A part of a table ends those before, up to one of `bounds`. Outside of tables it is nothing.
    fn clear_table(&mut self, bounds: &[&str], ended: &mut Ended) -> bool {
        let is_table = |name: &&'static str| matches!(*name, "table" | "template");
        let Some(table) = self.stack.iter().rposition(is_table) else { return false };
        let inside = &self.stack[table + 1..];
        let bound = inside.iter().rposition(|name| bounds.contains(name));
        self.close(table + 1 + bound.map_or(0, |at| at + 1), ended);
        true
    }

    /// Where an element lies that an end tag is for.
    fn find(&self, name: &str) -> Option<usize> {
        let hides = |other: &str| match name {
            "caption" | "colgroup" | "table" | "tbody" | "td" | "tfoot" | "th" | "thead" | "tr" => {
                matches!(other, "html" | "table" | "template")
            }
            "body" | "head" | "html" | "template" => false,
            "li" => SCOPES.contains(&other) || matches!(other, "ol" | "ul"),
            "p" => SCOPES.contains(&other) || other == "button",
            _ => SCOPES.contains(&other),
        };
        for (at, other) in self.stack.iter().enumerate().rev() {
            if *other == name {
                return Some(at);
            }
            if hides(other) {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert!(KNOWN.is_sorted() && END_PARAGRAPHS.is_sorted());
        assert_eq!(known(b"TBODY"), Some("tbody"));
        assert_eq!(known(b"span"), None);
        assert_eq!(known(b"figcaptions"), None);
    }

    #[test]
    fn what_is_too_deep_is_not_followed() {
        let mut open = Open::default();
        for _ in 0..DEPTH_MAX {
            assert_eq!(open.start(b"div"), Ended::new());
        }
        assert_eq!(open.start(b"div"), Ended::new());
        assert_eq!(open.finish(), Ended::new());
    }
}
