//! Rules for text values of adaptation: content codings with their levels, and media types.

use crate::model::Coding;
use crate::suggest;
use crate::value::{TextKind, Value, Wrong};

use super::is_token;

pub(crate) static COMPRESS_FORMAT: TextKind = TextKind {
    what: "\"br\", \"zstd\" or \"gzip\", or one with its level, such as \"br:9\"",
    parse: |text| format(text).map(|(coding, level)| Value::Format(coding, level)),
};

pub(crate) static COMPRESSED_TYPE: TextKind = TextKind {
    what: "a media type such as \"application/json\", or \"text/*\" or \"*+json\" for all such",
    parse: media_type,
};

pub(crate) static CGROUP: TextKind = TextKind {
    what: "the absolute path of a directory of cgroup v2, such as \
           \"/sys/fs/cgroup/system.slice/weir.service/helpers\"",
    parse: |text| {
        let is_plain = !text.contains('\0') && !text.split('/').any(|part| part == "..");
        match text.starts_with('/') && text.len() > 1 && is_plain {
            true => Ok(Value::Text(text.to_owned())),
            false => Err(Wrong::default()),
        }
    },
};

/// What codings are called elsewhere.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("brotli", "br"),
    ("zstandard", "zstd"),
    ("zst", "zstd"),
    ("gz", "gzip"),
    ("x-gzip", "gzip"),
    ("deflate", "gzip"),
];

fn format(text: &str) -> Result<(Coding, Option<u32>), Wrong> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    let Some(coding) = Coding::ALL.into_iter().find(|coding| coding.token() == name) else {
        return Err(unknown(name, level));
    };
    let Some(level) = level else { return Ok((coding, None)) };
    let (least, most) = coding.levels();
    let digits = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
    match level.parse::<u32>() {
        Ok(level) if digits && (least..=most).contains(&level) => Ok((coding, Some(level))),
        parsed => {
            let wrong = Wrong::because(format!("levels of {name} go from {least} to {most}"));
            let is_beyond = digits && parsed.map_or(true, |level| level > most);
            Err(if is_beyond { wrong.suggesting(format!("{name}:{most}")) } else { wrong })
        }
    }
}

fn unknown(name: &str, level: Option<&str>) -> Wrong {
    let lower = name.to_ascii_lowercase();
    let known = Coding::ALL.map(Coding::token);
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == lower).map(|(_, name)| *name);
    let wrong = match lower.as_str() {
        "deflate" => {
            Wrong::because("what takes it takes gzip too, and not all mean the same by it")
        }
        "off" | "none" => return Wrong::because("without the line nothing is compressed"),
        "identity" => return Wrong::because("whoever takes no coding gets the original anyway"),
        _ => Wrong::default(),
    };
    match other.or_else(|| suggest::nearest(name, known)) {
        Some(near) => wrong.suggesting(match level {
            Some(level) => format!("{near}:{level}"),
            None => near.to_owned(),
        }),
        None => wrong,
    }
}

/// A media type, in lower case, with at most one `*`.
fn media_type(text: &str) -> Result<Value, Wrong> {
    if let Some((essence, _)) = text.split_once(';') {
        let wrong = Wrong::because("parameters are not compared");
        return Err(wrong.suggesting(essence.trim_end()));
    }
    if matches!(text, "*" | "*/*") {
        let reason = "most of what is no text is compressed already";
        return Err(Wrong::because(reason));
    }
    if text.bytes().filter(|byte| *byte == b'*').count() > 1 {
        return Err(Wrong::because("`*` stands once"));
    }
    // `*` is one of the signs of a token.
    let is_type = match text.split_once('/') {
        Some((kind, subtype)) => is_token(kind) && is_token(subtype) && !kind.contains('*'),
        None => text.starts_with("*+") && text.len() > 2 && is_token(text),
    };
    match is_type {
        true => Ok(Value::Text(text.to_ascii_lowercase())),
        false => Err(Wrong::default()),
    }
}
