//! Rules for text values of plugins: names, configurations, environment variables.

use crate::limits::PLUGIN_CONFIG_MAX;
use crate::url::UPSTREAM_NAME;
use crate::value::{TextKind, Value, Wrong, print_size};

/// What stands for all names.
pub(crate) const ALL: &str = "*";

/// Characters of a plugin's name: it names files and metrics, and a part of a URL's path.
const NAME_MAX: usize = 64;
/// Bytes of a root id. Proxy-wasm sets no limit; it is a name in a module's source.
const ROOT_ID_MAX: usize = 256;
/// Bytes of the name of shared data. Proxy-wasm sets no limit; these are names, not contents.
const SHARED_NAME_MAX: usize = 256;

pub(crate) static PLUGIN_NAME: TextKind = TextKind {
    what: "a name of 1 to 64 letters, digits, '-', '_' and '.' that begins with a letter or digit",
    parse: |text| match is_plugin_name(text) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(Wrong::default()),
    },
};

pub(crate) static PLUGIN_CONFIG: TextKind = TextKind {
    what: "any text of at most 1MiB",
    parse: |text| {
        if text.len() > PLUGIN_CONFIG_MAX {
            let size = print_size(PLUGIN_CONFIG_MAX as u64);
            return Err(Wrong::because(format!("it is larger than {size}")));
        }
        Ok(Value::Text(text.to_owned()))
    },
};

pub(crate) static ROOT_ID: TextKind = TextKind {
    what: "text of at most 256 bytes without control characters",
    parse: |text| match is_root_id(text) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(Wrong::default()),
    },
};

/// Whether a text can be what a proxy-wasm module registers by. Empty ones can.
pub fn is_root_id(text: &str) -> bool {
    text.len() <= ROOT_ID_MAX && !text.contains(char::is_control)
}

pub(crate) static ALLOWED_UPSTREAM: TextKind = TextKind {
    what: "an upstream's name, or \"*\" for all",
    parse: |text| match text {
        ALL => Ok(Value::Text(text.to_owned())),
        _ => (UPSTREAM_NAME.parse)(text),
    },
};

pub(crate) static SHARED_NAME: TextKind = TextKind {
    what: "a name of 1 to 256 bytes without control characters, or \"*\" for all",
    parse: |text| {
        if text.is_empty() || text.len() > SHARED_NAME_MAX || text.contains(char::is_control) {
            return Err(Wrong::default());
        }
        Ok(Value::Text(text.to_owned()))
    },
};

pub(crate) static VARIABLE_NAME: TextKind = TextKind {
    what: "a variable's name such as \"LANG\"",
    parse: |text| {
        // `environ_get` of WASI passes NAME=value with a NUL at the end.
        if text.is_empty() || text.contains(['=', '\0']) {
            return Err(Wrong::because("a name is not empty and has neither `=` nor NUL"));
        }
        Ok(Value::Text(text.to_owned()))
    },
};

pub(crate) static VARIABLE_VALUE: TextKind = TextKind {
    what: "a text without NUL",
    parse: |text| match text.contains('\0') {
        true => Err(Wrong::default()),
        false => Ok(Value::Text(text.to_owned())),
    },
};

/// Whether a plugin may have this name: 1 to 64 ASCII letters, digits, `-`, `_` and `.`, the first
/// a letter or digit. Holds for names in a file and for those deployed at run time.
pub fn is_plugin_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= NAME_MAX
        && name.bytes().all(known)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_plugins() {
        for (name, expected) in [
            ("a", true),
            ("Gray_2.0-rc", true),
            ("7", true),
            (&*"n".repeat(64), true),
            (&*"n".repeat(65), false),
            ("", false),
            (".", false),
            ("..", false),
            ("-a", false),
            ("_a", false),
            ("a/b", false),
            ("a b", false),
            ("a:b", false),
            ("é", false),
        ] {
            assert_eq!(is_plugin_name(name), expected, "{name:?}");
        }
    }
}
