//! Which elements of a page are open, as browsers see it: the end tags of many may be left out
//! (WHATWG HTML, section 13.1.2.4), and then what follows ends them (section 13.2.6.4). Elements
//! that neither end others nor hide them are not followed.

/// Elements that are followed, and their names in letters that are small.
macro_rules! tags {
    ($($tag:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Tag { $($tag,)* }

        impl Tag {
            fn of_lower(name: &[u8]) -> Option<Tag> {
                let name = std::str::from_utf8(name).ok()?;
                Some(match name { $($name => Tag::$tag,)* _ => return None })
            }

            /// As it is written.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Tag::$tag => $name,)* }
            }
        }
    };
}

tags! {
    Address "address", Applet "applet", Article "article", Aside "aside", Blockquote "blockquote",
    Body "body", Button "button", Caption "caption", Center "center", Colgroup "colgroup", Dd "dd",
    Desc "desc", Details "details", Dialog "dialog", Dir "dir", Div "div", Dl "dl", Dt "dt", Fieldset "fieldset",
    Figcaption "figcaption", Figure "figure", Footer "footer", ForeignObject "foreignobject",
    Form "form", H1 "h1", H2 "h2",
    H3 "h3", H4 "h4", H5 "h5", H6 "h6", Head "head", Header "header", Hgroup "hgroup", Hr "hr",
    Html "html", Li "li", Listing "listing", Main "main", Marquee "marquee", Math "math", Menu "menu", Nav "nav",
    Object "object", Ol "ol", Optgroup "optgroup", Option "option", P "p", Pre "pre", Rp "rp",
    Rt "rt", Search "search", Section "section", Select "select", Summary "summary", Svg "svg", Table "table",
    Tbody "tbody", Td "td", Template "template", Tfoot "tfoot", Th "th", Thead "thead", Title "title", Tr "tr",
    Ul "ul",
}

/// What a head has in it.
const OF_HEADS: [&str; 11] = [
    "base", "basefont", "bgsound", "head", "link", "meta", "noscript", "script", "style",
    "template", "title",
];

/// Elements that end SVG and MathML which they are not part of (WHATWG HTML, section 13.2.6.5).
const OF_HTML: [&str; 44] = [
    "b",
    "big",
    "blockquote",
    "body",
    "br",
    "center",
    "code",
    "dd",
    "div",
    "dl",
    "dt",
    "em",
    "embed",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "hr",
    "i",
    "img",
    "li",
    "listing",
    "menu",
    "meta",
    "nobr",
    "ol",
    "p",
    "pre",
    "ruby",
    "s",
    "small",
    "span",
    "strike",
    "strong",
    "sub",
    "sup",
    "table",
    "tt",
    "u",
    "ul",
    "var",
];

/// So deep are pages followed.
const DEPTH_MAX: usize = 512;

/// The elements that are open at a place in a page.
#[derive(Debug, Default)]
pub(super) struct Open {
    stack: Vec<Tag>,
    /// It has become too deep: nothing is known any more.
    is_lost: bool,
    begun: Begun,
}

/// What the last element is that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Begun {
    #[default]
    Html,
    /// One of SVG or MathML, which is not followed.
    Foreign,
    /// One that is.
    Followed,
}

/// The elements that end at a place though the page does not say so.
pub(super) type Ended = Vec<Tag>;

impl Tag {
    /// By its name, in letters of any size.
    fn of(name: &[u8]) -> Option<Tag> {
        let mut lower = [0; 13];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        Tag::of_lower(lower)
    }

    /// Whether a paragraph ends before it.
    fn ends_paragraphs(self) -> bool {
        use Tag::{
            Address, Article, Aside, Blockquote, Center, Dd, Details, Dialog, Dir, Div, Dl, Dt,
            Fieldset, Figcaption, Figure, Footer, Form, H1, H2, H3, H4, H5, H6, Header, Hgroup, Hr,
            Li, Listing, Main, Menu, Nav, Ol, P, Pre, Search, Section, Summary, Table, Ul,
        };
        let enders = [
            Address, Article, Aside, Blockquote, Center, Dd, Details, Dialog, Dir, Div, Dl, Dt,
            Fieldset, Figcaption, Figure, Footer, Form, H1, H2, H3, H4, H5, H6, Header, Hgroup, Hr,
            Li, Listing, Main, Menu, Nav, Ol, P, Pre, Search, Section, Summary, Table, Ul,
        ];
        enders.contains(&self)
    }

    /// Whether most others are not looked for beyond it.
    fn is_scope(self) -> bool {
        use Tag::{Applet, Caption, Html, Marquee, Object, Table, Td, Template, Th};
        matches!(self, Applet | Caption | Html | Marquee | Object | Table | Td | Template | Th)
            || self.holds_html()
    }

    /// Whether it is an element of SVG that has HTML in it.
    fn holds_html(self) -> bool {
        matches!(self, Tag::Desc | Tag::ForeignObject | Tag::Title)
    }

    fn is_foreign(self) -> bool {
        matches!(self, Tag::Math | Tag::Svg)
    }

    /// Whether an end tag of this one is not for one that lies below `other`.
    fn is_hidden_by(self, other: Tag) -> bool {
        use Tag::{Body, Button, Caption, Colgroup, Head, Html, Li, Ol, P, Table, Tbody, Td};
        use Tag::{Template, Tfoot, Th, Thead, Tr, Ul};
        match self {
            Caption | Colgroup | Table | Tbody | Td | Tfoot | Th | Thead | Tr => {
                matches!(other, Html | Table | Template)
            }
            Body | Head | Html | Template => false,
            Li => other.is_scope() || matches!(other, Ol | Ul),
            P => other.is_scope() || other == Button,
            _ => other.is_scope(),
        }
    }
}

impl Open {
    /// An element begins; what ends before it.
    pub(super) fn start(&mut self, name: &[u8]) -> Ended {
        let mut ended = Ended::new();
        self.begun = Begun::Html;
        if self.is_foreign() && !self.start_foreign(name, &mut ended) {
            return ended;
        }
        let is_of_head = || OF_HEADS.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name));
        if self.top_is(&[Tag::Head]) && !is_of_head() {
            self.close(self.stack.len() - 1, &mut ended);
        }
        let tag = Tag::of(name).filter(|tag| !self.is_lost && !tag.holds_html());
        let Some(tag) = tag else { return ended };
        let has_place = self.end_alike(tag, &mut ended);
        if tag.ends_paragraphs()
            && let Some(at) = self.find(Tag::P)
        {
            self.close(at, &mut ended);
        }
        if has_place && tag != Tag::Hr {
            self.push(tag);
        }
        if tag.is_foreign() {
            self.begun = Begun::Followed;
        }
        ended
    }

    /// What the last element is that has begun.
    pub(super) fn begun(&self) -> Begun {
        self.begun
    }

    fn push(&mut self, tag: Tag) {
        if self.stack.len() >= DEPTH_MAX {
            self.is_lost = true;
            self.stack.clear();
        }
        if !self.is_lost {
            self.stack.push(tag);
        }
    }

    /// Whether what begins here is of SVG or MathML, or text in one of them.
    pub(super) fn is_foreign(&self) -> bool {
        let inner = self.stack.iter().rev().find(|tag| tag.is_foreign() || tag.is_scope());
        inner.is_some_and(|tag| tag.is_foreign())
    }

    /// An element begins in SVG or MathML. Whether it is of HTML, and ends them.
    fn start_foreign(&mut self, name: &[u8], ended: &mut Ended) -> bool {
        let is_of_html = OF_HTML.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name));
        if is_of_html {
            while self.is_foreign() {
                self.close(self.stack.len() - 1, ended);
            }
        } else {
            let tag = Tag::of(name).filter(|tag| tag.is_foreign() || tag.holds_html());
            self.begun = if tag.is_some() { Begun::Followed } else { Begun::Foreign };
            tag.into_iter().for_each(|tag| self.push(tag));
        }
        is_of_html
    }

    /// The element of SVG or MathML that has just begun has no content.
    pub(super) fn end_empty(&mut self) {
        if self.begun == Begun::Followed {
            self.stack.pop();
        }
    }

    /// There is the end tag of an element; what ends before it.
    pub(super) fn end(&mut self, name: &[u8]) -> Ended {
        let mut ended = Ended::new();
        let Some(tag) = Tag::of(name) else { return ended };
        if let Some(at) = self.find(tag) {
            self.close(at + 1, &mut ended);
            self.stack.pop();
        } else if tag == Tag::Html
            && let Some(at) = self.find(Tag::Body)
        {
            self.close(at, &mut ended);
        }
        ended
    }

    /// The page ends, and with it all that is open.
    pub(super) fn finish(&mut self) -> Ended {
        let mut ended = Ended::new();
        self.close(0, &mut ended);
        ended
    }

    /// Ends what an element ends by being another of its kind. Whether it has a place here.
    fn end_alike(&mut self, tag: Tag, ended: &mut Ended) -> bool {
        match tag {
            Tag::Li => self.end_item(&[Tag::Li], ended),
            Tag::Dd | Tag::Dt => self.end_item(&[Tag::Dd, Tag::Dt], ended),
            Tag::Option => self.end_top(&[Tag::Option], ended),
            Tag::Optgroup | Tag::Hr => {
                self.end_top(&[Tag::Option], ended);
                self.end_top(&[Tag::Optgroup], ended);
            }
            Tag::Rp | Tag::Rt => self.end_top(&[Tag::Rp, Tag::Rt], ended),
            Tag::Td | Tag::Th => return self.clear_table(&[Tag::Tr], ended),
            Tag::Tr => return self.clear_table(&[Tag::Tbody, Tag::Thead, Tag::Tfoot], ended),
            Tag::Tbody | Tag::Thead | Tag::Tfoot | Tag::Caption | Tag::Colgroup => {
                return self.clear_table(&[], ended);
            }
            _ => {}
        }
        true
    }

    fn close(&mut self, at: usize, ended: &mut Ended) {
        ended.extend(self.stack.drain(at..).rev());
    }

    fn top_is(&self, tags: &[Tag]) -> bool {
        self.stack.last().is_some_and(|top| tags.contains(top))
    }

    fn end_top(&mut self, tags: &[Tag], ended: &mut Ended) {
        if self.top_is(tags) {
            self.close(self.stack.len() - 1, ended);
        }
    }

    /// An item of a list ends the one before.
    fn end_item(&mut self, items: &[Tag], ended: &mut Ended) {
        use Tag::{Address, Dialog, Div, Optgroup, Option, P, Rp, Rt};
        let is_passed =
            |tag: Tag| matches!(tag, Address | Dialog | Div | Optgroup | Option | P | Rp | Rt);
        let bound = self.stack.iter().rposition(|tag| items.contains(tag) || !is_passed(*tag));
        if let Some(at) = bound.filter(|at| items.contains(&self.stack[*at])) {
            self.close(at, ended);
        }
    }

    /// A part of a table ends those before, up to one of `bounds`. Outside of tables it is nothing.
    fn clear_table(&mut self, bounds: &[Tag], ended: &mut Ended) -> bool {
        let is_table = |tag: &Tag| matches!(tag, Tag::Table | Tag::Template);
        let Some(table) = self.stack.iter().rposition(is_table) else { return false };
        let bound = self.stack[table + 1..].iter().rposition(|tag| bounds.contains(tag));
        self.close(table + 1 + bound.map_or(0, |at| at + 1), ended);
        true
    }

    /// Where an element lies that an end tag is for.
    fn find(&self, tag: Tag) -> Option<usize> {
        for (at, other) in self.stack.iter().enumerate().rev() {
            if *other == tag {
                return Some(at);
            }
            if tag.is_hidden_by(*other) {
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
        assert_eq!(Tag::of(b"TBODY"), Some(Tag::Tbody));
        assert_eq!(Tag::of(b"span"), None);
        assert_eq!(Tag::of(b"figcaptions"), None);
        assert_eq!(Tag::Figcaption.name(), "figcaption");
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
