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
    Details "details", Dialog "dialog", Dir "dir", Div "div", Dl "dl", Dt "dt", Fieldset "fieldset",
    Figcaption "figcaption", Figure "figure", Footer "footer", Form "form", H1 "h1", H2 "h2",
    H3 "h3", H4 "h4", H5 "h5", H6 "h6", Head "head", Header "header", Hgroup "hgroup", Hr "hr",
    Html "html", Li "li", Listing "listing", Main "main", Marquee "marquee", Menu "menu", Nav "nav",
    Object "object", Ol "ol", Optgroup "optgroup", Option "option", P "p", Pre "pre", Rp "rp",
    Rt "rt", Search "search", Section "section", Select "select", Summary "summary", Table "table",
    Tbody "tbody", Td "td", Template "template", Tfoot "tfoot", Th "th", Thead "thead", Tr "tr",
    Ul "ul",
}

/// What a head has in it.
const OF_HEADS: [&str; 11] = [
    "base", "basefont", "bgsound", "head", "link", "meta", "noscript", "script", "style",
    "template", "title",
];

/// So deep are pages followed.
const DEPTH_MAX: usize = 256;

/// The elements that are open at a place in a page.
#[derive(Debug, Default)]
pub(super) struct Open {
    stack: Vec<Tag>,
    /// It has become too deep: nothing is known any more.
    is_lost: bool,
}

/// The elements that end at a place though the page does not say so.
pub(super) type Ended = Vec<Tag>;

impl Tag {
    /// By its name, in letters of any size.
    fn of(name: &[u8]) -> Option<Tag> {
        let mut lower = [0; 10];
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
        let is_of_head = || OF_HEADS.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name));
        if self.top_is(&[Tag::Head]) && !is_of_head() {
            self.close(self.stack.len() - 1, &mut ended);
        }
        let Some(tag) = Tag::of(name).filter(|_| !self.is_lost) else { return ended };
        let has_place = self.end_alike(tag, &mut ended);
        if tag.ends_paragraphs()
            && let Some(at) = self.find(Tag::P)
        {
            self.close(at, &mut ended);
        }
        if self.stack.len() >= DEPTH_MAX {
            self.is_lost = true;
            self.stack.clear();
        }
        if has_place && !self.is_lost && tag != Tag::Hr {
            self.stack.push(tag);
        }
        ended
    }

    /// There is the end tag of an element; what ends before it.
    pub(super) fn end(&mut self, name: &[u8]) -> Ended {
        let mut ended = Ended::new();
        if let Some(at) = Tag::of(name).and_then(|tag| self.find(tag)) {
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

    /// Ends what an element ends by being another of its kind. Whether it has a place here.
    fn end_alike(&mut self, tag: Tag, ended: &mut Ended) -> bool {
        match tag {
            Tag::Li => self.end_item(&[Tag::Li], ended),
            Tag::Dd | Tag::Dt => self.end_item(&[Tag::Dd, Tag::Dt], ended),
            Tag::Option => self.end_top(&[Tag::Option], ended),
            Tag::Optgroup => {
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
