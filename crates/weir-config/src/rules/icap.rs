//! Rules for the URLs of ICAP services.

use crate::model::{IcapUrl, Target};
use crate::url::authority;
use crate::value::{TextKind, Value, Wrong};

/// RFC 3507 §4.2.
const PORT_DEFAULT: u16 = 1344;

pub(crate) static ICAP_URL: TextKind = TextKind {
    what: "a URL such as \"icap://127.0.0.1:1344/respmod\"",
    parse: |text| icap_url(text).map(|_| Value::Text(text.to_owned())),
};

/// Reads `icap://host:port/path?query`.
pub(crate) fn icap_url(text: &str) -> Result<IcapUrl, Wrong> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(Wrong::because("the scheme is missing"));
    };
    match scheme {
        "icap" => {}
        "icaps" => {
            return Err(Wrong::because("ICAP over TLS is not there; put a tunnel before it"));
        }
        _ => return Err(Wrong::because("the scheme must be icap")),
    }
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let Target::Host(host, port) = authority(host, PORT_DEFAULT)? else {
        return Err(Wrong::default());
    };
    if path.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
        return Err(Wrong::because("what follows the host is printable ASCII without \"#\""));
    }
    let path = match path.strip_prefix('/') {
        Some(_) => path.to_owned(),
        None => format!("/{path}"),
    };
    Ok(IcapUrl { host, port, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        for (text, expect) in [
            ("icap://127.0.0.1/respmod", Some(("127.0.0.1", 1344, "/respmod"))),
            ("icap://Scan.example:11344", Some(("scan.example", 11344, "/"))),
            ("icap://[::1]:1344/a/b?c=d", Some(("::1", 1344, "/a/b?c=d"))),
            ("icap://scan?x", Some(("scan", 1344, "/?x"))),
            ("icap://scan/a b", None),
            ("icap://scan/#a", None),
            ("icap://", None),
            ("icap://user@scan/", None),
            ("http://scan/", None),
            ("icaps://scan/", None),
            ("scan:1344", None),
        ] {
            let read = icap_url(text).ok();
            let read = read.as_ref().map(|url| (&*url.host, url.port, &*url.path));
            assert_eq!(read, expect, "{text}");
        }
    }
}
