//! The key table's types, and the one table of all keys. Parsing, validation, defaults,
//! suggestions and the reference page all come from it; a key exists by being in it.

use crate::keys;
use crate::value::Kind;

/// A block, which is where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Block {
    /// The file's outermost level.
    File,
    Server,
    Limits,
    Cache,
    Upstream,
    Site,
    Route,
    /// `header` and `request-header`: edits of a header section.
    Header,
    Files,
}

impl Block {
    /// All blocks, in the reference page's order.
    pub(crate) const ALL: [Block; 9] = [
        Block::File,
        Block::Server,
        Block::Limits,
        Block::Cache,
        Block::Upstream,
        Block::Site,
        Block::Route,
        Block::Header,
        Block::Files,
    ];

    /// The block as an error names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Block::File => "the file",
            Block::Server => "server",
            Block::Limits => "limits",
            Block::Cache => "cache",
            Block::Upstream => "upstream",
            Block::Site => "site",
            Block::Route => "route",
            Block::Header => "header",
            Block::Files => "files",
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
    pub(crate) doc: &'static str,
}

/// Whether a value must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    /// An argument given once or more.
    Repeated,
    /// May be left out; the text says what that means.
    Optional(&'static str),
    /// An argument that its line needs; the text says what it means to leave out the whole line.
    Otherwise(&'static str),
    /// May be left out, which means this value. The default of an argument holds where the whole
    /// line is left out.
    Default(&'static str),
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

/// Every key there is.
pub(crate) fn all_keys() -> impl Iterator<Item = &'static Key> {
    [keys::TOP, keys::SERVER, keys::UPSTREAM, keys::SITE, keys::ROUTE].into_iter().flatten()
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
