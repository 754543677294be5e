//! What is remembered of a deployment: enough to make it again. A store keeps it as JSON.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_config::{At, Pattern, PluginPolicy};

use crate::limits::HISTORY_MAX;
use crate::module::Compiled;

/// One deployment.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its generation.
    pub(crate) generation: u64,
    /// SHA-256 of the module, in hexadecimal.
    pub(crate) digest: String,
    /// Bytes of the module.
    pub(crate) bytes: usize,
    pub(crate) abi: String,
    pub(crate) config: String,
    pub(crate) vm_config: String,
    /// What a proxy-wasm module registers by; its name if there is none.
    #[serde(default)]
    pub(crate) root_id: Option<String>,
    pub(crate) policy: PluginPolicy,
    /// The routes that were named.
    pub(crate) routes: Option<Vec<Attachment>>,
    pub(crate) deployed_unix_ms: u64,
    pub(crate) from: From,
    /// How its code was had, this time.
    #[serde(skip)]
    pub(crate) code: Code,
    /// The code, where there is no store to find it in again.
    #[serde(skip)]
    pub(crate) compiled: Option<Arc<Compiled>>,
}

/// Who deployed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum From {
    /// The configuration file.
    Configuration,
    /// Somebody, at run time.
    Deployment,
}

/// How code was had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// It was compiled.
    #[default]
    Compiled,
    /// The store had it.
    Loaded,
    /// Another deployment of the same module had it in memory.
    Shared,
}

/// What is known of a plugin beside what runs.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Page {
    /// Fingerprint of its block in the configuration, if it has one.
    pub(crate) configured: Option<String>,
    /// The deployment in force.
    pub(crate) active: Option<Record>,
    /// Those before it, the oldest first.
    pub(crate) history: Vec<Record>,
}

impl Page {
    /// A deployment comes into force; the one before becomes history. `code` is that one's, if it
    /// is to be kept in memory.
    pub(crate) fn replace(&mut self, record: Record, code: Option<Arc<Compiled>>) {
        if let Some(before) = self.active.replace(record) {
            self.history.push(Record { compiled: code, ..before });
        }
        let excess = self.history.len().saturating_sub(HISTORY_MAX);
        self.history.drain(..excess);
    }

    /// Every deployment that it needs the module of.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.active.iter().chain(&self.history)
    }
}

/// A route that a plugin was deployed on: by site and pattern as the configuration has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// One of the site's names; every site if there is none.
    pub site: Option<String>,
    /// The route's pattern, such as `/images/*`; every route if there is none.
    pub pattern: Option<String>,
    /// Where the plugin sees responses.
    #[serde(with = "at_text")]
    pub at: At,
}

impl Attachment {
    /// Whether a route is meant.
    pub fn covers(&self, site_names: &[String], pattern: &Pattern) -> bool {
        self.covers_text(site_names, &pattern_text(pattern))
    }

    pub(crate) fn covers_text(&self, site_names: &[String], pattern: &str) -> bool {
        self.site.as_ref().is_none_or(|site| site_names.contains(site))
            && self.pattern.as_ref().is_none_or(|wanted| wanted == pattern)
    }
}

/// As the configuration writes it.
pub(crate) fn pattern_text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Exact(path) => path.clone(),
        Pattern::Prefix(prefix) => format!("{prefix}*"),
    }
}

/// `[SITE][/PATTERN]`, delivered.
impl FromStr for Attachment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Attachment, Self::Err> {
        if text.is_empty() {
            return Err("expected [SITE]/PATTERN, such as shop.example/images/* or /images/*");
        }
        let (site, pattern) = text.split_at(text.find('/').unwrap_or(text.len()));
        let some = |part: &str| (!part.is_empty()).then(|| part.to_owned());
        Ok(Attachment { site: some(site), pattern: some(pattern), at: At::default() })
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.site, &self.pattern) {
            (None, None) => f.write_str("every route"),
            (site, pattern) => {
                f.write_str(site.as_deref().unwrap_or_default())?;
                f.write_str(pattern.as_deref().unwrap_or_default())
            }
        }
    }
}

/// As the configuration writes it.
pub(crate) fn at_name(at: At) -> &'static str {
    match at {
        At::Delivery => "delivery",
        At::Fill => "fill",
    }
}

mod at_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use weir_config::At;

    pub(super) fn serialize<S: Serializer>(at: &At, to: S) -> Result<S::Ok, S::Error> {
        super::at_name(*at).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<At, D::Error> {
        match &*String::deserialize(from)? {
            "delivery" => Ok(At::Delivery),
            "fill" => Ok(At::Fill),
            other => {
                Err(D::Error::custom(format!("\"at\" is \"delivery\" or \"fill\", not {other:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_named_by_site_and_pattern() {
        let check = |text: &str, site: Option<&str>, pattern: Option<&str>| {
            let attachment: Attachment = text.parse().unwrap();
            assert_eq!(attachment.site.as_deref(), site, "{text}");
            assert_eq!(attachment.pattern.as_deref(), pattern, "{text}");
            assert_eq!(attachment.to_string(), text);
        };
        check("/images/*", None, Some("/images/*"));
        check("shop.example/images/*", Some("shop.example"), Some("/images/*"));
        check("shop.example", Some("shop.example"), None);
        check("*/", Some("*"), Some("/"));
        assert!("".parse::<Attachment>().is_err());
    }

    #[test]
    fn a_route_is_covered_by_its_own_pattern_only() {
        let names = ["a.example".to_owned(), "b.example".to_owned()];
        let prefix = Pattern::Prefix("/images/".to_owned());
        for (text, covered) in [
            ("/images/*", true),
            ("b.example/images/*", true),
            ("b.example", true),
            ("c.example", false),
            ("/images/", false),
            ("/*", false),
        ] {
            let attachment: Attachment = text.parse().unwrap();
            assert_eq!(attachment.covers(&names, &prefix), covered, "{text}");
        }
        assert!(Attachment::default().covers(&names, &prefix));
    }
}
