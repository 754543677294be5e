//! The plugins that are built, as data. A new one is a line here and a folder in `plugins/`.

/// A plugin: what it is called and how it is built.
pub(super) struct Plugin {
    /// Its folder in `plugins/`, and its module's name in `plugins/built/`.
    pub(super) name: &'static str,
    pub(super) source: Source,
    /// Whether its module is under version control. Those of Go are too large, with their runtime.
    pub(super) is_committed: bool,
}

/// What a plugin is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A package of this name in the workspace `plugins/Cargo.toml`.
    Rust,
    /// One file of this name in the folder, compiled with `plugins/include`.
    C(&'static str),
    /// A Go module.
    Go,
    /// An npm package with the target `release` in its `asconfig.json`.
    AssemblyScript,
}

/// All plugins, by name.
pub(super) const PLUGINS: &[Plugin] = &[
    committed("ab-routing", Source::Rust),
    committed("body-replace", Source::Rust),
    committed("canonical-query", Source::AssemblyScript),
    committed("gray-c", Source::C("gray.c")),
    committed("gray-rust", Source::Rust),
    committed("header-rewrite", Source::Rust),
    Plugin { name: "hello-go", source: Source::Go, is_committed: false },
    committed("maintenance-c", Source::C("maintenance.c")),
    committed("token-check", Source::Rust),
];

const fn committed(name: &'static str, source: Source) -> Plugin {
    Plugin { name, source, is_committed: true }
}
