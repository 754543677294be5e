//! Classes: who goes first, also after a configuration has changed their ranks.

mod ranking;

use std::time::Duration;

use weir_config::{Class, DEFAULT_CLASS};

use self::ranking::Ranking;
pub use self::ranking::{ClassRef, Heir};

/// A class by its rank: 0 goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

/// The classes of a configuration.
#[derive(Clone, Debug)]
pub struct Classes {
    /// By rank.
    names: Box<[ClassInfo]>,
    default: ClassId,
    ranking: Ranking,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassInfo {
    /// Its name.
    pub name: Box<str>,
    /// 1 goes first.
    pub priority: u8,
    /// Requests that may wait for an upstream at a time.
    pub queue: usize,
    /// How long one of them waits at most.
    pub wait: Duration,
    /// So many turns in a hundred are its own while one of its requests waits.
    pub share: u8,
}

impl Classes {
    /// Classes by rising priority number, the default one among them. They come after those
    /// `before`.
    pub fn new(classes: &[Class], before: Option<&Classes>) -> Classes {
        let info = |class: &Class| ClassInfo {
            name: class.name.as_str().into(),
            priority: class.priority,
            queue: class.queue,
            wait: class.wait,
            share: class.share,
        };
        let names: Box<[ClassInfo]> = classes.iter().map(info).collect();
        let default = names.iter().position(|class| *class.name == *DEFAULT_CLASS).unwrap_or(0);
        let first = Ranking::default();
        let classes = Classes { names, default: ClassId(default as u8), ranking: first };
        let ranking = before.map(|before| before.ranking_before(&classes));
        Classes { ranking: ranking.unwrap_or_default(), ..classes }
    }

    /// All of them, by rank.
    pub fn all(&self) -> &[ClassInfo] {
        &self.names
    }

    /// The class of what no rule gives one.
    pub fn default(&self) -> ClassId {
        self.default
    }

    /// A class's name, if there is such a class.
    pub fn name(&self, class: ClassId) -> Option<&str> {
        self.names.get(usize::from(class.0)).map(|class| &*class.name)
    }

    /// A class.
    pub fn info(&self, class: ClassId) -> &ClassInfo {
        &self.names[usize::from(class.0)]
    }

    /// A class by its name.
    pub fn find(&self, name: &str) -> Option<ClassId> {
        let rank = self.names.iter().position(|class| *class.name == *name)?;
        // There are at most eight.
        Some(ClassId(rank as u8))
    }
}
