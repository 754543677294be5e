//! Every limit on the size of a configuration, in one place. They are far above any real file and
//! exist so that a wrong file (a core dump, an endless pipe) is refused instead of endured.

/// Bytes of a configuration file.
pub const FILE_SIZE_MAX: usize = 4 << 20;
/// Blocks inside blocks. The grammar needs four (`site`, `route`, `files`, and one to spare for
/// an error message about what does not belong there); the parser recurses once per level.
pub const NESTING_MAX: usize = 8;
/// Errors reported for one file; the rest are counted. More than a screen or two helps nobody.
pub const ERRORS_MAX: usize = 50;
/// `site` blocks in a file.
pub const SITES_MAX: usize = 10_000;
/// `route` blocks in a site.
pub const ROUTES_MAX: usize = 10_000;
/// Names of a site.
pub const NAMES_MAX: usize = 1_000;
/// `listen` and `certificate` lines in a site.
pub const LISTENERS_MAX: usize = 1_000;
/// Upstream groups in a file, anonymous ones included.
pub const UPSTREAMS_MAX: usize = 10_000;
/// Servers of an upstream group.
pub const SERVERS_MAX: usize = 1_000;
/// Header edits in one block.
pub const HEADER_EDITS_MAX: usize = 1_000;
/// `plugin` blocks in a file.
pub const PLUGINS_MAX: usize = 1_000;
/// `use` lines in a route.
pub const USES_MAX: usize = 64;
/// Bytes of a plugin's `config`, `config-file` or `vm-config`.
pub const PLUGIN_CONFIG_MAX: usize = 1 << 20;
/// Names in one line of a plugin's `allow`, and `environment` lines in it.
pub const ALLOWED_MAX: usize = 1_000;
