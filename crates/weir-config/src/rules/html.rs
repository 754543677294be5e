//! Rules for text values of the `html` block: CSS selectors that can be followed while a page
//! streams by, attributes, hosts.

use lol_html::Selector;
use lol_html::errors::SelectorError;

use crate::limits::SELECTOR_MAX;
use crate::value::{TextKind, Value, Wrong};

use super::is_token;

pub(crate) static SELECTOR: TextKind = TextKind {
    what: "a CSS selector such as \"div.banner > a[href]\"",
    parse: |text| selector(text).map(|()| Value::Text(text.to_owned())),
};

pub(crate) static MARKUP: TextKind =
    TextKind { what: "HTML", parse: |text| Ok(Value::Text(text.to_owned())) };

pub(crate) static VALUE: TextKind =
    TextKind { what: "the value of an attribute", parse: |text| Ok(Value::Text(text.to_owned())) };

pub(crate) static ATTRIBUTE: TextKind = TextKind {
    what: "the name of an attribute such as \"rel\"",
    parse: |text| {
        let is_name = |c: char| !c.is_ascii_whitespace() && !c.is_control();
        let plain = !text.is_empty() && text.chars().all(is_name);
        if !plain || text.contains(['"', '\'', '>', '/', '=', '<']) || !text.is_ascii() {
            return Err(Wrong::default());
        }
        Ok(Value::Text(text.to_ascii_lowercase()))
    },
};

pub(crate) static PARAMETER: TextKind = TextKind {
    what: "the name of a query's parameter such as \"width\"",
    parse: |text| match is_token(text) && !text.contains(['%', '&', '\'', '`', '+', '#']) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(Wrong::default()),
    },
};

pub(crate) static HOST_FROM: TextKind = TextKind {
    what: "a host, with its port if it has one, such as \"10.0.0.5:8080\"",
    parse: |text| {
        let lower = text.to_ascii_lowercase();
        if let Some((_, host)) = lower.split_once("//") {
            let wrong = Wrong::because("URLs of any scheme are changed");
            return Err(wrong.suggesting(host.trim_end_matches('/')));
        }
        if let Some((host, _)) = lower.split_once('/') {
            return Err(Wrong::because("paths stay as they are").suggesting(host));
        }
        if text.contains('*') {
            return Err(Wrong::because("each host has a line of its own"));
        }
        authority(&lower).map(|()| Value::Text(lower))
    },
};

pub(crate) static HOST_TO: TextKind = TextKind {
    what: "a host such as \"shop.example\", one with a scheme such as \"https://shop.example\", \
           or \"\"",
    parse: |text| {
        let rest = match text.split_once("//") {
            Some(("" | "http:" | "https:", rest)) => rest,
            Some(_) => return Err(Wrong::because("the scheme is \"http\" or \"https\"")),
            None => text,
        };
        match (text, rest.strip_suffix('/')) {
            ("", _) => Ok(Value::Text(String::new())),
            (_, Some(_)) => {
                Err(Wrong::because("paths stay as they are").suggesting(text.trim_end_matches('/')))
            }
            _ => authority(rest).map(|()| Value::Text(text.to_owned())),
        }
    },
};

fn authority(text: &str) -> Result<(), Wrong> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let is_host = !text.is_empty() && text.bytes().all(known);
    if is_host { Ok(()) } else { Err(Wrong::default()) }
}

/// Pseudo-classes that depend on nothing but what has been seen of a page when an element begins.
const KNOWN: [&str; 5] = ["not", "nth-child", "first-child", "nth-of-type", "first-of-type"];

fn selector(text: &str) -> Result<(), Wrong> {
    if text.len() > SELECTOR_MAX {
        return Err(Wrong::because(format!("it is longer than {SELECTOR_MAX} bytes")));
    }
    let Err(error) = text.parse::<Selector>() else { return Ok(()) };
    let reason = match error {
        SelectorError::UnsupportedPseudoClassOrElement => match unknown(text) {
            Some(name) => format!(
                "`{name}` cannot be told while a page streams by; known are `:not()`, \
                 `:nth-child()`, `:first-child`, `:nth-of-type()` and `:first-of-type`"
            ),
            None => "it has a pseudo-class that cannot be told while a page streams by".to_owned(),
        },
        SelectorError::UnsupportedCombinator(sign) => {
            format!("`{sign}` cannot be told while a page streams by; known are a space and `>`")
        }
        SelectorError::NestedNegation => "`:not()` stands in `:not()`".to_owned(),
        SelectorError::EmptySelector => "it is empty".to_owned(),
        SelectorError::DanglingCombinator => "it ends with what joins two selectors".to_owned(),
        SelectorError::NamespacedSelector => "namespaces are not known".to_owned(),
        SelectorError::InvalidClassName => "`.` stands before no name of a class".to_owned(),
        SelectorError::MissingAttributeName => "`[` stands before no attribute".to_owned(),
        SelectorError::UnexpectedEnd => "it ends too early".to_owned(),
        other => {
            let said = other.to_string();
            format!("it cannot be read: {}", said.trim_end_matches('.').to_lowercase())
        }
    };
    Err(Wrong::because(reason))
}

/// The first pseudo-class or pseudo-element that is not known, as it is written.
fn unknown(text: &str) -> Option<&str> {
    let starts = text.match_indices(':').map(|(at, _)| at);
    starts.filter(|at| !text[..*at].ends_with(':')).find_map(|at| {
        let colons = text[at..].bytes().take_while(|byte| *byte == b':').count();
        let name = &text[at + colons..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let name = &name[..end.unwrap_or(name.len())];
        let is_known = colons == 1 && KNOWN.iter().any(|known| known.eq_ignore_ascii_case(name));
        (!is_known && !name.is_empty()).then(|| &text[at..at + colons + name.len()])
    })
}
