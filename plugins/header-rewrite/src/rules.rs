//! The rules: read from JSON, checked once, applied to any set of fields. Knows no proxy.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Everything the plugin is configured with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What happens to requests.
    pub request: Rules,
    /// What happens to responses.
    pub response: Rules,
}

/// What happens to one direction's fields, in the order of these members.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Old name → new name; all values move.
    rename: BTreeMap<String, String>,
    /// Names that go away.
    remove: Vec<String>,
    /// Name → the only value afterwards.
    set: BTreeMap<String, String>,
    /// Name → value beside those that are there.
    add: BTreeMap<String, String>,
    /// Name → value where there is none.
    default: BTreeMap<String, String>,
}

/// The fields of one message.
pub trait Fields {
    /// All values of the field `name`, in order.
    fn values(&self, name: &str) -> Vec<Vec<u8>>;
    /// Takes the field away, however many values it has.
    fn remove(&mut self, name: &str);
    /// Makes `value` the field's only value.
    fn set(&mut self, name: &str, value: &[u8]);
    /// Adds one value.
    fn add(&mut self, name: &str, value: &[u8]);
}

/// Fields that frame the message or belong to the connection (RFC 9110, 7.6.1): they are the
/// server's, which knows the message's real length.
const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Config {
    /// Reads and checks a configuration; none at all changes nothing.
    ///
    /// # Errors
    /// What is wrong and where, for people.
    pub fn parse(json: &[u8]) -> Result<Config, String> {
        if json.trim_ascii().is_empty() {
            return Ok(Config::default());
        }
        let mut config: Config = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        config.request.check("request")?;
        config.response.check("response")?;
        Ok(config)
    }
}

impl Rules {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rename.is_empty()
            && self.remove.is_empty()
            && [&self.set, &self.add, &self.default].iter().all(|rules| rules.is_empty())
    }

    /// Changes `fields` as the rules say.
    pub fn apply(&self, fields: &mut impl Fields) {
        for (old, new) in &self.rename {
            let values = fields.values(old);
            fields.remove(old);
            for value in values {
                fields.add(new, &value);
            }
        }
        for name in &self.remove {
            fields.remove(name);
        }
        for (name, value) in &self.set {
            fields.set(name, value.as_bytes());
        }
        for (name, value) in &self.add {
            fields.add(name, value.as_bytes());
        }
        for (name, value) in &self.default {
            if fields.values(name).is_empty() {
                fields.set(name, value.as_bytes());
            }
        }
    }

    fn check(&mut self, direction: &str) -> Result<(), String> {
        self.remove.iter_mut().try_for_each(check_name).map_err(|e| format!("{direction}: {e}"))?;
        for rules in [&mut self.set, &mut self.add, &mut self.default] {
            let checked = std::mem::take(rules).into_iter().map(|(mut name, value)| {
                check_name(&mut name)?;
                check_value(&name, &value)?;
                Ok((name, value))
            });
            *rules = checked
                .collect::<Result<_, _>>()
                .map_err(|e: String| format!("{direction}: {e}"))?;
        }
        let renamed = std::mem::take(&mut self.rename).into_iter().map(|(mut old, mut new)| {
            check_name(&mut old)?;
            check_name(&mut new)?;
            Ok((old, new))
        });
        self.rename =
            renamed.collect::<Result<_, _>>().map_err(|e: String| format!("{direction}: {e}"))?;
        Ok(())
    }
}

/// Lower case, and a token (RFC 9110, 5.6.2).
fn check_name(name: &mut String) -> Result<(), String> {
    name.make_ascii_lowercase();
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("“{name}” is no name of a header field"));
    }
    if FRAMING.contains(&name.as_str()) {
        return Err(format!("“{name}” belongs to the server and cannot be rewritten"));
    }
    Ok(())
}

/// Visible characters, spaces and tabs (RFC 9110, 5.5): above all no line break.
fn check_value(name: &str, value: &str) -> Result<(), String> {
    let is_bad = |b: u8| b == 0x7f || (b < 0x20 && b != b'\t');
    if value.bytes().any(is_bad) {
        return Err(format!("the value of “{name}” holds a control character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Fields for Vec<(String, Vec<u8>)> {
        fn values(&self, name: &str) -> Vec<Vec<u8>> {
            self.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect()
        }
        fn remove(&mut self, name: &str) {
            self.retain(|(n, _)| n != name);
        }
        fn set(&mut self, name: &str, value: &[u8]) {
            Fields::remove(self, name);
            self.add(name, value);
        }
        fn add(&mut self, name: &str, value: &[u8]) {
            self.push((name.into(), value.into()));
        }
    }

    #[track_caller]
    fn check(rules: &str, fields: &[(&str, &str)], expect: &[(&str, &str)]) {
        let config = Config::parse(format!("{{\"request\": {rules}}}").as_bytes()).unwrap();
        let own = |list: &[(&str, &str)]| -> Vec<(String, Vec<u8>)> {
            list.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect()
        };
        let mut fields = own(fields);
        config.request.apply(&mut fields);
        assert_eq!(fields, own(expect), "{rules}");
    }

    #[test]
    fn rules_change_fields() {
        check("{}", &[("a", "1")], &[("a", "1")]);
        check(r#"{"remove": ["A"]}"#, &[("a", "1"), ("b", "2"), ("a", "3")], &[("b", "2")]);
        check(r#"{"set": {"a": "9"}}"#, &[("a", "1"), ("a", "2")], &[("a", "9")]);
        check(r#"{"add": {"a": "9"}}"#, &[("a", "1")], &[("a", "1"), ("a", "9")]);
        check(r#"{"default": {"a": "9", "b": "8"}}"#, &[("a", "1")], &[("a", "1"), ("b", "8")]);
        let two = [("old", "1"), ("x", "y"), ("old", "2")];
        check(r#"{"rename": {"Old": "New"}}"#, &two, &[("x", "y"), ("new", "1"), ("new", "2")]);
        check(r#"{"rename": {"gone": "new"}}"#, &[("x", "y")], &[("x", "y")]);
    }

    #[test]
    fn rules_run_in_order() {
        let rules = r#"{"default": {"d": "x"}, "add": {"a": "2"}, "set": {"a": "1"},
                        "remove": ["new", "d"], "rename": {"old": "new"}}"#;
        let fields = [("old", "0"), ("d", "0")];
        check(rules, &fields, &[("a", "1"), ("a", "2"), ("d", "x")]);
    }

    #[track_caller]
    fn refuses(json: &str, expect: &str) {
        let error = Config::parse(json.as_bytes()).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(Config::parse(b" ").unwrap().request.is_empty());
        assert!(Config::parse(b"{}").unwrap().response.is_empty());
        assert!(!Config::parse(br#"{"request": {"remove": ["a"]}}"#).unwrap().request.is_empty());
        refuses("{", "EOF");
        refuses(r#"{"requests": {}}"#, "requests");
        refuses(r#"{"request": {"drop": []}}"#, "drop");
        refuses(r#"{"request": {"set": {"a b": "c"}}}"#, "request: “a b”");
        refuses(r#"{"response": {"remove": [""]}}"#, "response: “”");
        refuses(r#"{"response": {"set": {":status": "200"}}}"#, ":status");
        refuses(r#"{"response": {"set": {"Content-Length": "0"}}}"#, "belongs to the server");
        refuses(r#"{"response": {"rename": {"x": "transfer-encoding"}}}"#, "belongs to the server");
        refuses(r#"{"response": {"add": {"x": "a\r\nb: c"}}}"#, "control character");
    }
}
