//! What the demo shows of plugins: the module of the example `plugins/gray-rust`, the route that it
//! is deployed on, and what it made of a picture there.

/// Makes pictures grey.
pub const GRAY: &[u8] = include_bytes!("../../../../plugins/built/gray-rust.wasm");

/// The route that has the pictures once more, for the plugin.
pub const GRAY_PREFIX: &str = "/gray/";

/// That route as deployments name it.
pub const GRAY_PATTERN: &str = "/gray/*";

/// A picture there.
pub const GRAY_PICTURE: &str = "/gray/landscape-480.ppm";

/// A picture before and after the plugin was deployed.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its media type and bytes before.
    pub before: (String, usize),
    /// The same after.
    pub after: (String, usize),
    /// Milliseconds from the command to the answer that it is in force.
    pub deployed_ms: u128,
}

impl Shown {
    /// For people: the lines of the banner.
    pub(super) fn lines(&self) -> String {
        let line = |when: &str, (media_type, bytes): &(String, usize)| {
            format!("    {when:8} {bytes:>7} bytes  {media_type}")
        };
        format!("{}\n{}", line("before", &self.before), line("after", &self.after))
    }
}
