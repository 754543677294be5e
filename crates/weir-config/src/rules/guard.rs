//! Rules for text values of overload control: names, paths, named values and what buckets are for.

use crate::limits::RULE_TEXT_MAX;
use crate::model::{BucketKey, PathMatch, ValueMatch};
use crate::rules::plugin::is_plugin_name;
use crate::rules::{check_path, header_value, is_token};
use crate::suggest;
use crate::value::{TextKind, Value, Wrong};

/// Bytes of an interface's name: `IFNAMSIZ` of Linux without the zero at its end.
const INTERFACE_NAME_MAX: usize = 15;
/// The prefixes that most networks give to one customer; what is suggested.
const PREFIX_SUGGESTED: &str = "source/24,56";

/// Names of classes, rules and lists label metrics, and stand in URLs of the admin API.
pub(crate) static GUARD_NAME: TextKind = TextKind {
    what: "a name of 1 to 64 letters, digits, '-', '_' and '.' that begins with a letter or digit",
    parse: |text| match is_plugin_name(text) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(Wrong::default()),
    },
};

pub(crate) static INTERFACE_NAME: TextKind = TextKind {
    what: "the name of a network interface such as \"eth0\"",
    parse: |text| {
        // As the kernel's `dev_valid_name`.
        let known = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
        let fits = (1..=INTERFACE_NAME_MAX).contains(&text.len()) && text != "." && text != "..";
        match fits && text.bytes().all(known) {
            true => Ok(Value::Text(text.to_owned())),
            false => Err(Wrong::default()),
        }
    },
};

pub(crate) static PATH_MATCH: TextKind = TextKind {
    what: "a path such as \"/login\", \"/search/*\" for all that begins so, or a pattern such as \"/*.php\"",
    parse: |text| path_match(text).map(Value::Path),
};

pub(crate) static METHOD: TextKind = TextKind {
    what: "a method such as \"GET\"",
    parse: |text| {
        if !is_token(text) {
            return Err(Wrong::default());
        }
        let upper = text.to_ascii_uppercase();
        match text == upper {
            true => Ok(Value::Text(upper)),
            false => Err(Wrong::because("methods are in upper case").suggesting(upper)),
        }
    },
};

pub(crate) static FIELD_NAME: TextKind = TextKind {
    what: "a field name such as \"user-agent\"",
    parse: |text| match is_token(text) {
        true => Ok(Value::Text(text.to_ascii_lowercase())),
        false => Err(Wrong::because("a field name has letters, digits and !#$%&'*+-.^_`|~ only")),
    },
};

pub(crate) static COOKIE_NAME: TextKind = TextKind {
    what: "a cookie's name such as \"session\"",
    parse: |text| match is_token(text) {
        true => Ok(Value::Text(text.to_owned())),
        false => {
            Err(Wrong::because("a cookie's name has letters, digits and !#$%&'*+-.^_`|~ only"))
        }
    },
};

pub(crate) static PARAMETER_NAME: TextKind = TextKind {
    what: "a query parameter's name such as \"page\"",
    parse: |text| match text.is_empty() || text.len() > RULE_TEXT_MAX {
        true => Err(Wrong::because(format!("it has 1 to {RULE_TEXT_MAX} bytes"))),
        false => Ok(Value::Text(text.to_owned())),
    },
};

pub(crate) static FIELD_MATCH: TextKind = TextKind {
    what: "a field's value; `*` in it stands for anything",
    parse: |text| value_match(text, header_value),
};

pub(crate) static FIELD_EXACT: TextKind = TextKind {
    what: "a field's value, in which `*` is a `*`",
    parse: |text| exact(text, header_value),
};

pub(crate) static COOKIE_MATCH: TextKind = TextKind {
    what: "a cookie's value; `*` in it stands for anything",
    parse: |text| value_match(text, cookie_value),
};

pub(crate) static COOKIE_EXACT: TextKind = TextKind {
    what: "a cookie's value, in which `*` is a `*`",
    parse: |text| exact(text, cookie_value),
};

pub(crate) static PARAMETER_MATCH: TextKind = TextKind {
    what: "a query parameter's value; `*` in it stands for anything",
    parse: |text| value_match(text, |_| Ok(())),
};

pub(crate) static PARAMETER_EXACT: TextKind = TextKind {
    what: "a query parameter's value, in which `*` is a `*`",
    parse: |text| exact(text, |_| Ok(())),
};

pub(crate) static SERVER_NAME_MATCH: TextKind = TextKind {
    what: "a host name such as \"shop.example\", or \"*.shop.example\" for all below one",
    parse: |text| {
        if text == "*" {
            return Err(Wrong::because("after a `*` stands a dot and a name"));
        }
        crate::address::host_name(text.strip_prefix("*.").unwrap_or(text))?;
        Ok(Value::Text(text.to_ascii_lowercase()))
    },
};

pub(crate) static MEDIA_RANGE: TextKind = TextKind {
    what: "a media type such as \"application/json\", or \"image/*\" for all of a kind",
    parse: |text| {
        if let Some((essence, _)) = text.split_once(';') {
            let wrong = Wrong::because("parameters are not compared");
            return Err(wrong.suggesting(essence.trim_end()));
        }
        let (kind, subtype) = text.split_once('/').ok_or_else(Wrong::default)?;
        let name = |text: &str| is_token(text) && !text.contains('*');
        match name(kind) && (name(subtype) || subtype == "*") {
            true => Ok(Value::Text(text.to_ascii_lowercase())),
            false => Err(Wrong::default()),
        }
    },
};

pub(crate) static VERDICT: TextKind = TextKind {
    what: "a text of 1 to 256 bytes without control characters",
    parse: |text| match (1..=256).contains(&text.len()) && !text.contains(char::is_control) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(Wrong::default()),
    },
};

pub(crate) static BUCKET_KEY: TextKind = TextKind {
    what: "\"rule\", \"source\", a length of prefixes such as \"source/24,56\", \"header:NAME\" or \"cookie:NAME\"",
    parse: |text| bucket_key(text).map(Value::Bucket),
};

pub(crate) static SOURCE_KEY: TextKind = TextKind {
    what: "\"source\" or a length of prefixes such as \"source/32,64\"",
    parse: |text| match bucket_key(text)? {
        key @ (BucketKey::Source | BucketKey::Prefix { .. }) => Ok(Value::Bucket(key)),
        _ => Err(Wrong::because("only sources can be kept out")),
    },
};

fn cookie_value(text: &str) -> Result<(), Wrong> {
    if text.contains(';') {
        return Err(Wrong::because("a `;` ends a cookie's value"));
    }
    header_value(text)
}

fn value_match(text: &str, check: fn(&str) -> Result<(), Wrong>) -> Result<Value, Wrong> {
    checked(text, check)?;
    Ok(Value::Match(match text.contains('*') {
        true => ValueMatch::Glob(text.to_owned()),
        false => ValueMatch::Exact(text.to_owned()),
    }))
}

fn exact(text: &str, check: fn(&str) -> Result<(), Wrong>) -> Result<Value, Wrong> {
    checked(text, check)?;
    Ok(Value::Match(ValueMatch::Exact(text.to_owned())))
}

fn checked(text: &str, check: fn(&str) -> Result<(), Wrong>) -> Result<(), Wrong> {
    if text.len() > RULE_TEXT_MAX {
        return Err(Wrong::because(format!("it has more than {RULE_TEXT_MAX} bytes")));
    }
    check(text)
}

/// A path or a pattern of paths, in the form in which requests' paths are compared.
fn path_match(text: &str) -> Result<PathMatch, Wrong> {
    if text.len() > RULE_TEXT_MAX {
        return Err(Wrong::because(format!("it has more than {RULE_TEXT_MAX} bytes")));
    }
    check_path(text)?;
    if text.contains("**") {
        let mut single = text.to_owned();
        while single.contains("**") {
            single = single.replace("**", "*");
        }
        return Err(Wrong::because("one `*` stands for anything").suggesting(single));
    }
    match text.matches('*').count() {
        0 => normal(text).map(PathMatch::Exact),
        1 if text.ends_with("/*") => normal(&text[..text.len() - 1]).map(PathMatch::Prefix),
        _ => {
            let pattern = normal(text)?;
            // A star that was written as an escape would be one that stands for anything.
            match pattern.matches('*').count() == text.matches('*').count() {
                true => Ok(PathMatch::Glob(pattern)),
                false => {
                    Err(Wrong::because("`%2A` has no meaning beside a `*`, which meets it too"))
                }
            }
        }
    }
}

/// The normal form of a path (RFC 3986, section 6.2.2), as it is made of requests' paths: escapes
/// of what may stand in a path are resolved, all others are in upper case.
fn normal(path: &str) -> Result<String, Wrong> {
    let mut normal = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        normal.push_str(before);
        // `check_path` has seen two digits after each `%`.
        let (digits, after) = after.split_at(after.len().min(2));
        let byte = u8::from_str_radix(digits, 16).map_err(|_| Wrong::default())?;
        match byte {
            0 => return Err(Wrong::because("no path has a NUL")),
            b'/' | b'%' => normal.push_str(&format!("%{byte:02X}")),
            _ if crate::rules::is_path_byte(byte) => normal.push(char::from(byte)),
            _ => normal.push_str(&format!("%{byte:02X}")),
        }
        rest = after;
    }
    normal.push_str(rest);
    // Escapes may have hidden dots.
    check_path(&normal)?;
    Ok(normal)
}

/// A path or pattern as it is written in a configuration.
pub(crate) fn print_path(path: &PathMatch) -> String {
    let without_stars = |path: &str| path.replace('*', "%2A");
    match path {
        PathMatch::Exact(path) => without_stars(path),
        PathMatch::Prefix(path) => format!("{}*", without_stars(path)),
        PathMatch::Glob(pattern) => pattern.clone(),
    }
}

fn bucket_key(text: &str) -> Result<BucketKey, Wrong> {
    if let Some(bits) = text.strip_prefix("source/") {
        return prefix_key(bits);
    }
    match text.split_once(':') {
        None if text == "rule" => Ok(BucketKey::Rule),
        None if text == "source" => Ok(BucketKey::Source),
        Some(("header", name)) if is_token(name) => {
            Ok(BucketKey::Header(name.to_ascii_lowercase()))
        }
        Some(("cookie", name)) if is_token(name) => Ok(BucketKey::Cookie(name.to_owned())),
        Some(("header" | "cookie", _)) => {
            Err(Wrong::because("after the colon stands a field's or cookie's name"))
        }
        _ => {
            let near = suggest::nearest(text, ["rule", "source"]);
            Err(Wrong { reason: None, suggestion: near.map(str::to_owned) })
        }
    }
}

/// The two lengths after `source/`.
fn prefix_key(bits: &str) -> Result<BucketKey, Wrong> {
    let number = |text: &str, max: u8| -> Option<u8> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|bits| digits && (1..=max).contains(bits))
    };
    let Some((v4, v6)) = bits.split_once(',') else {
        let reason = "after `source/` stand the bits of IPv4 and of IPv6 prefixes";
        let suggestion = number(bits, 32).map(|v4| format!("source/{v4},56"));
        let suggestion = suggestion.unwrap_or_else(|| PREFIX_SUGGESTED.to_owned());
        return Err(Wrong::because(reason).suggesting(suggestion));
    };
    match (number(v4, 32), number(v6, 128)) {
        (Some(v4), Some(v6)) => Ok(BucketKey::Prefix { v4, v6 }),
        _ => Err(Wrong::because("IPv4 prefixes have 1 to 32 bits, IPv6 prefixes 1 to 128")),
    }
}

/// What buckets are for, as it is written in a configuration.
pub(crate) fn print_bucket_key(key: &BucketKey) -> String {
    match key {
        BucketKey::Rule => "rule".to_owned(),
        BucketKey::Source => "source".to_owned(),
        BucketKey::Prefix { v4, v6 } => format!("source/{v4},{v6}"),
        BucketKey::Header(name) => format!("header:{name}"),
        BucketKey::Cookie(name) => format!("cookie:{name}"),
    }
}
