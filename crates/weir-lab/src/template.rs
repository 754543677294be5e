//! Fills in `{{name}}` in the peers' configuration files. Nothing else is a template language.

use crate::error::{Error, Result};

/// Replaces every `{{name}}` in `text` by its value. A value that is not used is no error: one set
/// of values serves all templates.
///
/// # Errors
/// [`Error::Template`] for a name without a value.
pub fn render(template: &'static str, text: &str, values: &[(&str, String)]) -> Result<String> {
    let mut rendered = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, tail)) = after.split_once("}}") else {
            return Err(Error::Template { template, name: after.chars().take(20).collect() });
        };
        let Some((_, value)) = values.iter().find(|(known, _)| *known == name) else {
            return Err(Error::Template { template, name: name.to_owned() });
        };
        rendered.push_str(before);
        rendered.push_str(value);
        rest = tail;
    }
    rendered.push_str(rest);
    Ok(rendered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let values = [("port", "8080".to_owned()), ("root", "/srv".to_owned())];
        let got = render("t.conf", text, &values).map_err(|error| error.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), expect, "{text}");
    }

    #[test]
    fn values_are_filled_in() {
        check("", Ok(""));
        check("no braces { }", Ok("no braces { }"));
        check("listen {{port}}; root {{root}};", Ok("listen 8080; root /srv;"));
        check("{{port}}{{port}}", Ok("80808080"));
    }

    #[test]
    fn unknown_names_are_refused() {
        check("listen {{prot}};", Err("template t.conf: no value for {{prot}}"));
        check("listen {{port;", Err("template t.conf: no value for {{port;}}"));
    }
}
