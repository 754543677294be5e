//! The key table's types, and the one table of all keys. Parsing, validation, defaults,
//! suggestions and the reference page all come from it; a key exists by being in it.

use kdl::KdlValue;

use crate::keys;
use crate::value::{Kind, Value};

/// A block, which is where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Block {
    /// The file's outermost level.
    File,
    Server,
    Limits,
    Cache,
    Upstream,
    Plugins,
    Plugin,
    Allow,
    Guard,
    Rule,
    Adapt,
    Icap,
    Site,
    Route,
    /// `header` and `request-header`: edits of a header section.
    Header,
    Files,
    Compress,
    Html,
    Ads,
    Image,
    Forward,
}

impl Block {
    /// All blocks, in the reference page's order.
    pub(crate) const ALL: [Block; 21] = [
        Block::File,
        Block::Server,
        Block::Limits,
        Block::Cache,
        Block::Upstream,
        Block::Plugins,
        Block::Plugin,
        Block::Allow,
        Block::Guard,
        Block::Rule,
        Block::Adapt,
        Block::Icap,
        Block::Site,
        Block::Route,
        Block::Header,
        Block::Files,
        Block::Compress,
        Block::Html,
        Block::Ads,
        Block::Image,
        Block::Forward,
    ];

    /// The block as an error names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Block::File => "the file",
            Block::Server => "server",
            Block::Limits => "limits",
            Block::Cache => "cache",
            Block::Upstream => "upstream",
            Block::Plugins => "plugins",
            Block::Plugin => "plugin",
            Block::Allow => "allow",
            Block::Guard => "guard",
            Block::Rule => "rule",
            Block::Adapt => "adapt",
            Block::Icap => "icap",
            Block::Site => "site",
            Block::Route => "route",
            Block::Header => "header",
            Block::Files => "files",
            Block::Compress => "compress",
            Block::Html => "html",
            Block::Ads => "ads",
            Block::Image => "image",
            Block::Forward => "forward",
        }
    }

    /// The keys that may stand in the block, in the reference page's order.
    pub(crate) fn keys(self) -> impl Iterator<Item = &'static Key> {
        all_keys().filter(move |key| key.block == self)
    }

    /// A key of the block.
    pub(crate) fn key(self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}

/// One key: a line that may stand in a block.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) block: Block,
    pub(crate) name: &'static str,
    /// Values by position. Only the last may repeat.
    pub(crate) arguments: &'static [Slot],
    /// Values by name, after the arguments.
    pub(crate) properties: &'static [Slot],
    /// The block that may follow.
    pub(crate) children: Option<Block>,
    /// May stand more than once in its block.
    pub(crate) repeats: bool,
    /// What it does, in one or two sentences.
    pub(crate) doc: &'static str,
    /// Lines that show it, valid in its block.
    pub(crate) example: &'static str,
}

/// An argument or a property.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    /// What the kind and the key's own description do not say already; may be empty.
    pub(crate) doc: &'static str,
}

/// Whether a value must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    /// An argument given once or more.
    Repeated,
    /// An argument given any number of times; the text says what it means to give none.
    AnyNumber(&'static str),
    /// May be left out; the text says what that means.
    Optional(&'static str),
    /// An argument that its line needs; the text says what it means to leave out the whole line.
    Otherwise(&'static str),
    /// May be left out, which means this value. The default of an argument holds where the whole
    /// line is left out.
    Default(&'static str),
    /// A property of a line that does something by being there: without it, it means this value.
    Within(&'static str),
}

impl Key {
    /// True if leaving the line out means the same as a line of defaults.
    pub(crate) fn has_defaults(&self) -> bool {
        let implied =
            |slot: &Slot| matches!(slot.presence, Presence::Default(_) | Presence::Optional(_));
        let any = self.children.is_some()
            || self.slots().any(|slot| matches!(slot.presence, Presence::Default(_)));
        !self.repeats && any && self.slots().all(implied)
    }

    /// Arguments and properties.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot> {
        self.arguments.iter().chain(self.properties)
    }
}

impl Slot {
    /// True for an argument that may be given more than once.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self.presence, Presence::Repeated | Presence::AnyNumber(_))
    }

    /// The default, for a slot that has one.
    pub(crate) fn default_value(&self) -> Option<Value> {
        let (Presence::Default(text) | Presence::Within(text)) = self.presence else { return None };
        let value = match (self.kind, text.parse::<i128>()) {
            (Kind::Switch, _) => KdlValue::Bool(text == "#true"),
            (_, Ok(number)) => KdlValue::Integer(number),
            (_, Err(_)) => KdlValue::String(text.to_owned()),
        };
        // A test parses every default of the table.
        self.kind.parse(&value).ok()
    }
}

/// Every key there is.
pub(crate) fn all_keys() -> impl Iterator<Item = &'static Key> {
    [
        keys::TOP,
        keys::SERVER,
        keys::UPSTREAM,
        keys::SITE,
        keys::ROUTE,
        keys::PLUGIN,
        keys::GUARD,
        keys::RULE,
        keys::ADAPT,
        keys::HTML,
        keys::IMAGE,
        keys::FORWARD,
        keys::ICAP,
    ]
    .into_iter()
    .flatten()
}

/// A line of a block, for the tables: with nothing on it, and once. What else it has is said around
/// this.
pub(crate) const fn key(
    block: Block,
    name: &'static str,
    doc: &'static str,
    example: &'static str,
) -> Key {
    Key {
        block,
        name,
        arguments: &[],
        properties: &[],
        children: None,
        repeats: false,
        doc,
        example,
    }
}

/// A slot, for the tables.
pub(crate) const fn slot(
    name: &'static str,
    kind: Kind,
    presence: Presence,
    doc: &'static str,
) -> Slot {
    Slot { name, kind, presence, doc }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The site that examples of rules name.
    const SHOP: &str =
        "site \"shop.example\" { listen \":80\"; route \"/*\" { files \"/srv\"; }; }";

    /// A configuration in which lines of a block stand where they belong, with all that a valid
    /// file needs and that the lines do not give themselves.
    fn around(key: &Key) -> String {
        let lines = key.example;
        let lacks = |name: &str| !lines.lines().any(|line| line.starts_with(name));
        let unless = |name: &str, line: &'static str| if lacks(name) { line } else { "" };
        let route = |inside: &str| {
            let app = "upstream \"app\" { server \"http://a.example\"; }";
            let icap = "icap \"scanner\" { reqmod \"icap://127.0.0.1/reqmod\"; }";
            format!(
                "{app}\n{icap}\nsite \"z.example\" {{ listen \":80\"; route \"/z/*\" {{\n{inside}\n}}; }}"
            )
        };
        let proxy = |inside: &str| {
            let listen = "listen \"127.0.0.1:3128\"";
            format!("site \"*\" {{ {listen}; route \"/*\" {{\n{inside}\n}}; }}")
        };
        let site = "site \"z.example\" { listen \":80\"; route \"/*\" { files \"/srv\"; }; }";
        let inside = |block: &str| format!("{block} {{\n{lines}\n}}\n{site}");
        match key.block {
            Block::File => format!("{lines}\n{}", unless("site", site)),
            Block::Server => inside("server"),
            Block::Cache => inside("cache"),
            Block::Adapt => inside("adapt"),
            Block::Icap => {
                let shown = unless("reqmod", "reqmod \"icap://127.0.0.1/reqmod\"");
                format!("icap \"scanner\" {{\n{lines}\n{shown}\n}}\n{site}")
            }
            Block::Limits => format!("server {{ limits {{\n{lines}\n}}; }}\n{site}"),
            Block::Upstream => {
                let server = unless("server", "server \"http://a.example\"");
                format!("upstream \"app\" {{\n{lines}\n{server}\n}}\n{site}")
            }
            Block::Plugins => inside("plugins"),
            Block::Plugin => {
                let source = unless("source", "source \"a.wasm\"");
                format!("plugin \"a\" {{\n{lines}\n{source}\n}}\n{site}")
            }
            Block::Allow => {
                let app = "upstream \"app\" { server \"http://a.example\"; }";
                let plugin = format!("plugin \"a\" {{ source \"a\"; allow {{\n{lines}\n}}; }}");
                format!("{app}\n{plugin}\n{site}")
            }
            Block::Guard => {
                let class = unless("class", "class \"gold\" priority=1");
                let list = unless("list", "list \"crawlers\" \"a.txt\"");
                format!("guard {{\n{lines}\n{class}\n{list}\n}}\n{SHOP}")
            }
            Block::Rule => {
                let declared = "class \"gold\" priority=1; list \"crawlers\" \"a.txt\"";
                let acts = ["class", "rate", "concurrency", "refuse", "pass"];
                let act = if acts.iter().all(|act| lacks(act)) { "class \"gold\"" } else { "" };
                format!("guard {{ {declared}; rule \"a\" {{\n{lines}\n{act}\n}}; }}\n{SHOP}")
            }
            Block::Site => {
                let listen = unless("listen", "listen \":80\"");
                let answer = unless("route", "route \"/*\" { respond \"\"; }");
                format!("site \"z.example\" {{\n{lines}\n{listen}\n{answer}\n}}")
            }
            Block::Route => {
                let sources = ["files", "proxy", "redirect", "respond", "forward"];
                let has_source = sources.iter().any(|source| !lacks(source));
                if !lacks("forward") {
                    return proxy(lines);
                }
                route(&format!("{lines}\n{}", if has_source { "" } else { "proxy \"app\"" }))
            }
            Block::Header => route(&format!("respond \"\"; header {{\n{lines}\n}}")),
            Block::Files => route(&format!("files \"/srv\" {{\n{lines}\n}}")),
            Block::Compress => route(&format!("proxy \"app\"; compress {{\n{lines}\n}}")),
            Block::Html => route(&format!("proxy \"app\"; html {{\n{lines}\n}}")),
            Block::Ads => route(&format!("proxy \"app\"; ads {{\n{lines}\n}}")),
            Block::Image => route(&format!("proxy \"app\"; image max-width=9 {{\n{lines}\n}}")),
            Block::Forward => proxy(&format!("forward {{\n{lines}\n}}")),
        }
    }

    #[test]
    fn every_example_parses_and_shows_its_key() {
        for key in all_keys() {
            let text = around(key);
            assert!(key.example.contains(key.name), "{}", key.example);
            if let Err(errors) = crate::parse("example.kdl", &text) {
                panic!("{errors}\n\nin:\n{text}");
            }
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for slot in all_keys().flat_map(Key::slots) {
            let has_default = matches!(slot.presence, Presence::Default(_) | Presence::Within(_));
            assert_eq!(slot.default_value().is_some(), has_default, "{}", slot.name);
        }
    }

    #[test]
    fn every_key_is_documented_once() {
        for (number, key) in all_keys().enumerate() {
            assert!(key.doc.ends_with('.') && !key.example.is_empty(), "{}", key.name);
            let is_documented = |slot: &Slot| slot.doc.is_empty() || slot.doc.ends_with('.');
            assert!(key.slots().all(is_documented), "{}", key.name);
            let same = |other: &&Key| other.name == key.name && other.block == key.block;
            assert_eq!(all_keys().position(|other| same(&other)), Some(number), "{}", key.name);
        }
    }

    #[test]
    fn only_the_last_argument_repeats() {
        for key in all_keys() {
            let fixed = key.arguments.split_last().map_or(&[][..], |(_, before)| before);
            assert!(fixed.iter().all(|slot| !slot.repeats()), "{}", key.name);
        }
    }
}
