//! Rules for text values of pictures: lists of formats.

use crate::model::ImageFormat;
use crate::suggest;
use crate::value::{TextKind, Value, Wrong};

pub(crate) static IMAGE_FORMATS: TextKind = TextKind {
    what: "formats separated by commas, of avif, webp, jpeg and png, such as \"avif,webp\"",
    parse: formats,
};

/// Formats in their one form: names in lower case, separated by commas.
fn formats(text: &str) -> Result<Value, Wrong> {
    let mut names: Vec<&str> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some(format) = ImageFormat::parse(name) else { return Err(unknown(name)) };
        if names.contains(&format.name()) {
            return Err(Wrong::because(format!("{} stands twice", format.name())));
        }
        names.push(format.name());
    }
    Ok(Value::Text(names.join(",")))
}

fn unknown(name: &str) -> Wrong {
    match name {
        "" => return Wrong::because("a name is missing"),
        "gif" => return Wrong::because("what moves becomes WebP, and what does not, PNG"),
        "svg" => return Wrong::because("it has no pixels, and is compressed by `compress`"),
        _ => {}
    }
    let wrong = Wrong::because(format!("{name} is none of them"));
    let known = ImageFormat::ALL.map(ImageFormat::name);
    let near = if name == "jpg" { Some("jpeg") } else { suggest::nearest(name, known) };
    match near {
        Some(near) => wrong.suggesting(near),
        None => wrong,
    }
}
