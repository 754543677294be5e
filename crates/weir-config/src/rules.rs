//! Rules for text values of HTTP: path patterns, header fields, redirect targets, status ranges,
//! hash keys, and for names of users and files. Those for plugins are in [`plugin`], those for
//! overload control in [`guard`], those for adaptation in [`adapt`], [`html`] and [`image`], those
//! for forward proxies in [`forward`].

pub(crate) mod adapt;
pub(crate) mod forward;
pub(crate) mod guard;
pub(crate) mod html;
pub(crate) mod icap;
pub(crate) mod image;
pub(crate) mod plugin;

use crate::model::{HashKey, Pattern};
use crate::suggest;
use crate::value::{TextKind, Value, Wrong};

pub(crate) static PATTERN: TextKind = TextKind {
    what: "a path such as \"/about\" or, for all that begins with it, \"/images/*\"",
    parse: |text| pattern(text).map(Value::Pattern),
};

pub(crate) static REQUEST_TARGET: TextKind = TextKind {
    what: "a path with an optional query, such as \"/healthz\"",
    parse: |text| {
        let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
        check_path(path)?;
        if !query.bytes().all(|byte| is_path_byte(byte) || byte == b'?') {
            return Err(Wrong::because("its query has characters that must be percent-encoded"));
        }
        Ok(Value::Text(text.to_owned()))
    },
};

pub(crate) static PATH_PREFIX: TextKind = TextKind {
    what: "a path such as \"/api\"",
    parse: |text| {
        check_path(text)?;
        Ok(Value::Text(text.strip_suffix('/').unwrap_or(text).to_owned()))
    },
};

pub(crate) static HEADER_NAME: TextKind = TextKind {
    what: "a field name such as \"X-Frame-Options\"",
    parse: |text| header_name(text).map(Value::Text),
};

pub(crate) static HEADER_VALUE: TextKind = TextKind {
    what: "a field value of visible ASCII characters, spaces and tabs",
    parse: |text| header_value(text).map(|()| Value::Text(text.to_owned())),
};

pub(crate) static MEDIA_TYPE: TextKind = TextKind {
    what: "a media type such as \"text/plain; charset=utf-8\"",
    parse: |text| {
        let essence = text.split(';').next().unwrap_or_default().trim_end();
        let (kind, subtype) = essence.split_once('/').ok_or_else(Wrong::default)?;
        if !is_token(kind) || !is_token(subtype) {
            return Err(Wrong::default());
        }
        header_value(text).map(|()| Value::Text(text.to_owned()))
    },
};

pub(crate) static LOCATION: TextKind = TextKind {
    what: "a URL or path such as \"https://example.com{uri}\"",
    parse: |text| location(text).map(|()| Value::Text(text.to_owned())),
};

pub(crate) static STATUSES: TextKind = TextKind {
    what: "a status code or a range such as \"200-399\"",
    parse: |text| {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let code = |text: &str| -> Option<u16> {
            let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|code| digits && (100..=599).contains(code))
        };
        match (code(low), code(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Value::Range((low, high))),
            _ => Err(Wrong::because("codes go from 100 to 599, the lower one first")),
        }
    },
};

pub(crate) static HASH_KEY: TextKind = TextKind {
    what: "\"path\", \"client\", \"header:NAME\" or \"cookie:NAME\"",
    parse: |text| hash_key(text).map(Value::HashKey),
};

pub(crate) static ACCOUNT: TextKind = TextKind {
    what: "a name or number of an account",
    parse: |text| {
        // What passwd(5) cannot hold cannot be an account's name; the rest is the system's to say.
        let known = |c: char| !c.is_whitespace() && !c.is_control() && c != ':' && c != '/';
        let usable = !text.is_empty() && text.len() <= 64 && text.chars().all(known);
        if usable { Ok(Value::Text(text.to_owned())) } else { Err(Wrong::default()) }
    },
};

pub(crate) static PATH: TextKind =
    TextKind { what: "a path, absolute or relative to this file's directory", parse: file_path };

pub(crate) static LOG_PATH: TextKind =
    TextKind { what: "a file's path, or \"-\" for standard output", parse: file_path };

pub(crate) static FILE_NAME: TextKind = TextKind {
    what: "a file name such as \"index.html\"",
    parse: |text| {
        let plain = !text.contains(['/', '\0']) && !text.is_empty();
        // Dot files are never served, as an index neither.
        if plain && !text.starts_with('.') {
            return Ok(Value::Text(text.to_owned()));
        }
        Err(Wrong::because(
            "it names a file in the directory itself, and hidden files are not served",
        ))
    },
};

pub(crate) static BODY: TextKind =
    TextKind { what: "the text of the body", parse: |text| Ok(Value::Text(text.to_owned())) };

fn file_path(text: &str) -> Result<Value, Wrong> {
    if text.is_empty() || text.contains('\0') {
        return Err(Wrong::default());
    }
    if text.starts_with("~/") {
        return Err(Wrong::because("`~` is the shell's; write the whole path"));
    }
    Ok(Value::Text(text.to_owned()))
}

fn pattern(text: &str) -> Result<Pattern, Wrong> {
    if !text.starts_with('/') {
        return Err(Wrong::because("a path begins with `/`").suggesting(format!("/{text}")));
    }
    let Some(star) = text.find('*') else {
        return check_path(text).map(|()| Pattern::Exact(text.to_owned()));
    };
    let prefix = &text[..star];
    if star + 1 != text.len() {
        return Err(Wrong::because("`*` may only stand at the end"));
    }
    if !prefix.ends_with('/') {
        let wrong = Wrong::because("`*` stands for whole parts of a path, after a `/`");
        return Err(wrong.suggesting(format!("{prefix}/*")));
    }
    check_path(prefix).map(|()| Pattern::Prefix(prefix.to_owned()))
}

/// Checks an absolute path in the normal form requests are matched in (RFC 3986, section 6.2.2).
pub(crate) fn check_path(path: &str) -> Result<(), Wrong> {
    if !path.starts_with('/') {
        let wrong = Wrong::because("a path begins with `/`");
        return Err(wrong.suggesting(format!("/{path}")));
    }
    if path.contains('?') || path.contains('#') {
        return Err(Wrong::because("it is compared with the path only, which has no `?` or `#`"));
    }
    if !path.bytes().all(is_path_byte) {
        return Err(Wrong::because("it has characters that must be percent-encoded"));
    }
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        if part == "." || part == ".." {
            return Err(Wrong::because("`.` and `..` are resolved before a path is compared"));
        }
        if part.is_empty() && parts.peek().is_some() {
            return Err(Wrong::because("it has two slashes in a row"));
        }
    }
    check_escapes(path)
}

fn check_escapes(path: &str) -> Result<(), Wrong> {
    for (at, _) in path.match_indices('%') {
        let digits = path.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() != 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Wrong::because("after `%` stand two hexadecimal digits"));
        }
    }
    Ok(())
}

/// `pchar` of RFC 3986, section 3.3, with `/` and the `%` of an escape.
pub(crate) fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte)
}

/// Fields that belong to one connection or frame the message (RFC 9110, section 7.6.1; RFC 9112,
/// section 6). Weir sets them itself; edits would break the connection or open it to smuggling.
const OWN_FIELDS: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A field name in lower case.
fn header_name(text: &str) -> Result<String, Wrong> {
    if !is_token(text) {
        let reason = "a field name has letters, digits and !#$%&'*+-.^_`|~ only";
        return Err(Wrong::because(reason));
    }
    let name = text.to_ascii_lowercase();
    if OWN_FIELDS.contains(&name.as_str()) {
        let reason = "this field belongs to the connection and is Weir's own to set";
        return Err(Wrong::because(reason));
    }
    Ok(name)
}

/// `token` of RFC 9110, section 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// `field-value` of RFC 9110, section 5.5, without the obsolete bytes beyond ASCII.
pub(crate) fn header_value(text: &str) -> Result<(), Wrong> {
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return Err(Wrong::because("it has a line break, a control or a character beyond ASCII"));
    }
    if text.trim() != text {
        return Err(Wrong::because("white space at its start or end would be lost"));
    }
    Ok(())
}

/// What a redirect's location may take from the request.
const PLACEHOLDERS: [&str; 4] = ["path", "query", "host", "uri"];

fn location(text: &str) -> Result<(), Wrong> {
    let absolute = text.starts_with("http://") || text.starts_with("https://");
    if !absolute
        && !text.starts_with('/')
        && !text.starts_with("{uri}")
        && !text.starts_with("{path}")
    {
        return Err(Wrong::because("a redirect leads to http://, https:// or a path"));
    }
    if !text.bytes().all(|byte| matches!(byte, b'!'..=b'~')) || text.contains(['"', '<', '>', '\\'])
    {
        return Err(Wrong::because("it has characters that must be percent-encoded"));
    }
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let inside = rest[at..].strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let Some((name, after)) = inside else {
            return Err(Wrong::because("`{` and `}` stand around a name"));
        };
        if !PLACEHOLDERS.contains(&name) {
            let wrong = Wrong::because("the names are {path}, {query}, {host} and {uri}");
            let near = suggest::nearest(name, PLACEHOLDERS);
            return Err(match near {
                Some(near) => {
                    wrong.suggesting(text.replace(&format!("{{{name}}}"), &format!("{{{near}}}")))
                }
                None => wrong,
            });
        }
        rest = after;
    }
    Ok(())
}

fn hash_key(text: &str) -> Result<HashKey, Wrong> {
    match text.split_once(':') {
        None if text == "path" => Ok(HashKey::Path),
        None if text == "client" => Ok(HashKey::Client),
        Some(("header", name)) if is_token(name) => Ok(HashKey::Header(name.to_ascii_lowercase())),
        Some(("cookie", name)) if is_token(name) => Ok(HashKey::Cookie(name.to_owned())),
        Some(("header" | "cookie", _)) => {
            Err(Wrong::because("after the colon stands a field's or cookie's name"))
        }
        _ => {
            let near = suggest::nearest(text, ["path", "client"]);
            Err(Wrong { reason: None, suggestion: near.map(str::to_owned) })
        }
    }
}
