//! The replacements: read from JSON, checked once, applied to bytes. Knows no proxy.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Bytes of a body that is rewritten at most, unless configured.
const BODY_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// Media types that are rewritten unless configured.
const TYPES_DEFAULT: &[&str] = &["text/html", "text/css", "text/plain", "application/javascript"];

/// Everything the plugin is configured with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// What to find → what to put there. Where two match at one place, the longer one counts.
    replace: BTreeMap<String, String>,
    /// Media types of the responses that are rewritten.
    #[serde(default = "default_types")]
    types: Vec<String>,
    /// Larger bodies pass as they are.
    #[serde(default = "default_body_bytes_max")]
    pub max_bytes: usize,
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(json: &[u8]) -> Result<Config, String> {
        let mut config: Config = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if config.replace.is_empty() {
            return Err("“replace” must name at least one string".into());
        }
        if config.replace.contains_key("") {
            return Err("“replace”: an empty string is everywhere and cannot be replaced".into());
        }
        if config.max_bytes == 0 {
            return Err("“max-bytes” must be at least 1".into());
        }
        config.types.iter_mut().for_each(|kind| kind.make_ascii_lowercase());
        Ok(config)
    }

    /// Whether a response is rewritten: its media type is one of those configured, it is complete
    /// (RFC 9110, 15.3.7: a part's offsets are those of the original) and its bytes are text.
    pub fn concerns(&self, status: &str, content_type: &str, encoding: Option<&str>) -> bool {
        let has_body = !status.starts_with('1') && !["204", "206", "304"].contains(&status);
        let is_plain = encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case("identity"));
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        has_body && is_plain && self.types.contains(&kind)
    }

    /// `body` with everything replaced in one pass: what was put in is not searched again. `None`:
    /// there is nothing to replace.
    pub fn apply(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut firsts = [false; 256];
        for find in self.replace.keys() {
            firsts[usize::from(find.as_bytes()[0])] = true;
        }
        let mut out = Vec::new();
        let mut copied = 0;
        let mut at = 0;
        while at < body.len() {
            let rest = &body[at..];
            // A longer string sorts behind each of its prefixes.
            let found = firsts[usize::from(rest[0])]
                .then(|| self.replace.iter().rev().find(|(f, _)| rest.starts_with(f.as_bytes())))
                .flatten();
            let Some((find, with)) = found else {
                at += 1;
                continue;
            };
            out.extend_from_slice(&body[copied..at]);
            out.extend_from_slice(with.as_bytes());
            at += find.len();
            copied = at;
        }
        if copied == 0 {
            return None;
        }
        out.extend_from_slice(&body[copied..]);
        Some(out)
    }
}

/// The validator of the rewritten response: no longer that of the same bytes (RFC 9110, 8.8.1).
pub fn weak(etag: &str) -> String {
    if etag.starts_with("W/") { etag.to_owned() } else { format!("W/{etag}") }
}

fn default_types() -> Vec<String> {
    TYPES_DEFAULT.iter().map(|kind| kind.to_string()).collect()
}

fn default_body_bytes_max() -> usize {
    BODY_BYTES_MAX_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(replace: &str, body: &str, expect: Option<&str>) {
        let config = Config::parse(format!("{{\"replace\": {replace}}}").as_bytes()).unwrap();
        let found = config.apply(body.as_bytes());
        assert_eq!(found.as_deref(), expect.map(str::as_bytes), "{replace} in {body}");
    }

    #[test]
    fn strings_are_replaced() {
        check(r#"{"cat": "dog"}"#, "a cat, a cat", Some("a dog, a dog"));
        check(r#"{"cat": "dog"}"#, "a ca", None);
        check(r#"{"cat": "dog"}"#, "", None);
        check(r#"{"cat": "dog"}"#, "cat", Some("dog"));
        check(r#"{"cat": ""}"#, "catcat", Some(""));
        check(r#"{"aa": "b"}"#, "aaa", Some("ba"));
        check(r#"{"ü": "ue"}"#, "für", Some("fuer"));
    }

    #[test]
    fn the_longest_counts_and_nothing_is_replaced_twice() {
        check(
            r#"{"http:": "https:", "http://a": "//b"}"#,
            "http://a http://c",
            Some("//b https://c"),
        );
        check(r#"{"a": "b", "b": "a"}"#, "ab", Some("ba"));
        check(r#"{"ab": "1", "abc": "2", "abcd": "3"}"#, "abcx ab abcd", Some("2x 1 3"));
    }

    #[test]
    fn responses_that_concern() {
        let config = Config::parse(br#"{"replace": {"a": "b"}, "types": ["Text/HTML"]}"#).unwrap();
        assert!(config.concerns("200", "text/html", None));
        assert!(config.concerns("404", "TEXT/html; charset=utf-8", Some("identity")));
        assert!(!config.concerns("200", "text/htmlx", None));
        assert!(!config.concerns("200", "", None));
        assert!(!config.concerns("200", "text/html", Some("gzip")));
        assert!(!config.concerns("206", "text/html", None));
        assert!(!config.concerns("304", "text/html", None));
    }

    #[test]
    fn validators_become_weak() {
        assert_eq!(weak("\"x\""), "W/\"x\"");
        assert_eq!(weak("W/\"x\""), "W/\"x\"");
    }

    #[test]
    fn mistakes_are_named() {
        let refuses = |json: &str, expect: &str| {
            let error = Config::parse(json.as_bytes()).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        refuses("{}", "replace");
        refuses(r#"{"replace": {}}"#, "at least one");
        refuses(r#"{"replace": {"": "x"}}"#, "everywhere");
        refuses(r#"{"replace": {"a": "x"}, "max-bytes": 0}"#, "at least 1");
        refuses(r#"{"replace": {"a": "x"}, "type": []}"#, "type");
    }
}
