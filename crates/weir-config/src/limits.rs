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
/// Classes of requests, the default class included. Each has a listener on every worker.
pub const CLASSES_MAX: usize = 8;
/// Turns in a hundred that classes may have for their own, all of them together: with more, it is
/// not priorities that decide.
pub const SHARES_MAX: u64 = 50;
/// `rule` blocks in a `guard` block.
pub const RULES_MAX: usize = 20_000;
/// Bytes of all patterns with a `*` in all rules: what finds them takes about 12 times as much
/// memory, or twice that where they have several parts, and 50 MiB for the moment in which it is
/// made (measured with 10,000 of 100 bytes, in 0.4 s).
pub const PATTERNS_SIZE_MAX: usize = 1 << 20;
/// Values of all conditions of a rule; a list counts as one.
pub const CONDITIONS_MAX: usize = 1_000;
/// `list` lines in a `guard` block.
pub const LISTS_MAX: usize = 1_000;
/// Bytes of a file of addresses.
pub const LIST_SIZE_MAX: usize = 64 << 20;
/// Entries of a file of addresses.
pub const LIST_ENTRIES_MAX: usize = 1_000_000;
/// Ranges of all lists, and of all rules that put lists together with other addresses: one takes
/// 34 bytes.
pub const ADDRESS_RANGES_MAX: usize = 4_000_000;
/// Wrong lines reported for one file of addresses; the rest are left out.
pub const LIST_ERRORS_MAX: usize = 5;
/// Bytes of a path, a value or a parameter's name in a rule.
pub const RULE_TEXT_MAX: usize = 4_096;
/// `icap` blocks in a file.
pub const ICAP_MAX: usize = 100;
/// Lines of an `html` block about elements and hosts. Each is looked for at every element.
pub const HTML_RULES_MAX: usize = 200;
/// Bytes of all selectors, names and texts of an `html` block: they go to a helper with each job.
pub const HTML_TEXTS_MAX: usize = 48 << 10;
/// Bytes of a CSS selector.
pub const SELECTOR_MAX: usize = 1_024;
/// Widths of a `srcset` line. Each may become a variant of every image.
pub const SRCSET_WIDTHS_MAX: usize = 16;
/// Widths that queries of pictures may ask for. Each may become a variant of every picture.
pub const IMAGE_WIDTHS_MAX: usize = 32;
/// Pixels of a side that pictures may be asked for: WebP has no number for more.
pub const IMAGE_SIDE_MAX: u32 = 16_383;
/// Lists of an `ads` block.
pub const ADS_LISTS_MAX: usize = 100;
/// Media types that a route adapts. Each is compared with every response of the route.
pub const TYPES_MAX: usize = 100;
/// Destinations of all `allow` and `deny` lines of a `forward` block. They are looked at one after
/// the other, at every request.
pub const FORWARD_RULES_MAX: usize = 1_000;
/// Ranges of addresses, and of ports, in one line of a `forward` block.
pub const FORWARD_RANGES_MAX: usize = 1_000;
