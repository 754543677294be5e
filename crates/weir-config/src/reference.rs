//! The reference of all keys, in Markdown, made from the key table.

use std::fmt::Write;

use crate::table::{Block, Key, Presence, Slot};

/// The reference of all keys, in Markdown: the second part of `docs/manual/configuration.md`.
pub fn reference() -> String {
    let mut out = String::new();
    for block in Block::ALL {
        heading(&mut out, block);
        for key in block.keys() {
            describe(&mut out, key);
        }
    }
    out
}

// Writing to a String cannot fail, so the results of `write!` are dropped below.

fn heading(out: &mut String, block: Block) {
    let title = match block {
        Block::File => "The file".to_owned(),
        Block::Server
        | Block::Cache
        | Block::Upstream
        | Block::Plugins
        | Block::Plugin
        | Block::Guard
        | Block::Adapt
        | Block::Icap
        | Block::Site => {
            format!("In `{}`", block.name())
        }
        Block::Limits => "In `server { limits { … } }`".to_owned(),
        Block::Allow => "In `plugin { allow { … } }`".to_owned(),
        Block::Rule => "In `guard { rule { … } }`".to_owned(),
        Block::Route => "In `site { route { … } }`".to_owned(),
        Block::Header => "In `header { … }` and `request-header { … }` of a route".to_owned(),
        Block::Files => "In `files … { … }` of a route".to_owned(),
        Block::Compress => "In `compress … { … }` of a route".to_owned(),
        Block::Forward => "In `forward { … }` of a route".to_owned(),
        Block::Html => "In `html { … }` of a route".to_owned(),
        Block::Ads => "In `ads { … }` of a route".to_owned(),
        Block::Image => "In `image … { … }` of a route".to_owned(),
    };
    let _ = writeln!(out, "### {title}\n");
}

fn describe(out: &mut String, key: &Key) {
    let _ = writeln!(out, "#### `{}`\n\n{}", key.name, key.doc);
    if key.repeats {
        let _ = writeln!(out, "May stand more than once.");
    }
    let _ = writeln!(out);
    for slot in key.arguments {
        let _ = writeln!(out, "- *{}*: {}", slot.name, describe_slot(slot));
    }
    for slot in key.properties {
        let _ = writeln!(out, "- `{}=`: {}", slot.name, describe_slot(slot));
    }
    if key.slots().next().is_some() {
        let _ = writeln!(out);
    }
    let _ = writeln!(out, "```kdl\n{}\n```\n", key.example);
}

fn describe_slot(slot: &Slot) -> String {
    let presence = match slot.presence {
        Presence::Required => String::new(),
        Presence::Repeated => "One or more.".to_owned(),
        Presence::AnyNumber(meaning) => format!("Any number of them. None: {meaning}."),
        Presence::Optional(meaning) | Presence::Otherwise(meaning) => {
            format!("Left out: {meaning}.")
        }
        Presence::Default(value) | Presence::Within(value)
            if value.starts_with('#') || value.parse::<u64>().is_ok() =>
        {
            format!("Default: `{value}`.")
        }
        Presence::Default(value) | Presence::Within(value) => format!("Default: `\"{value}\"`."),
    };
    let kind = format!("{}.", slot.kind.describe());
    let parts = [kind.as_str(), slot.doc, &presence];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
