//! What is sent in place of what is blocked: something empty of each type, made for Weir, under the
//! names that lists give such things.

use adblock::resources::{MimeType, PermissionMask, Resource, ResourceType};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// A neutral body.
#[derive(Debug, PartialEq, Eq)]
pub struct Neutral {
    /// As `redirect=` in lists has it.
    pub name: &'static str,
    aliases: &'static [&'static str],
    /// Content-Type.
    pub media_type: &'static str,
    /// What is sent.
    pub body: &'static [u8],
}

/// All there are. Names are those that lists use.
pub static NEUTRAL: [Neutral; 11] = [
    Neutral {
        name: "1x1.gif",
        aliases: &["1x1-transparent.gif", "abp-resource:1x1-transparent-gif"],
        media_type: "image/gif",
        body: GIF,
    },
    Neutral {
        name: "2x2.png",
        aliases: &["2x2-transparent.png", "abp-resource:2x2-transparent-png"],
        media_type: "image/png",
        body: PNG_2,
    },
    Neutral {
        name: "3x2.png",
        aliases: &["3x2-transparent.png", "abp-resource:3x2-transparent-png"],
        media_type: "image/png",
        body: PNG_3,
    },
    Neutral {
        name: "32x32.png",
        aliases: &["32x32-transparent.png", "abp-resource:32x32-transparent-png"],
        media_type: "image/png",
        body: PNG_32,
    },
    Neutral {
        name: "noop.js",
        aliases: &["noopjs", "abp-resource:blank-js"],
        media_type: "text/javascript",
        body: b"// Nothing.\n",
    },
    Neutral {
        name: "noop.css",
        aliases: &["noopcss", "abp-resource:blank-css"],
        media_type: "text/css",
        body: b"/* Nothing. */\n",
    },
    Neutral {
        name: "noop.html",
        aliases: &["noopframe", "noop-frame", "abp-resource:blank-html"],
        media_type: "text/html",
        body: b"<!DOCTYPE html><title></title>\n",
    },
    Neutral {
        name: "noop.json",
        aliases: &["noopjson"],
        media_type: "application/json",
        body: b"{}",
    },
    Neutral {
        name: "noop.txt",
        aliases: &["nooptext", "noop", "abp-resource:blank-text"],
        media_type: "text/plain",
        body: b"\n",
    },
    Neutral {
        name: "noop-vast2.xml",
        aliases: &["noopvast-2.0"],
        media_type: "text/xml",
        body: b"<VAST version=\"2.0\"></VAST>",
    },
    Neutral {
        name: "noop-vmap1.xml",
        aliases: &["noopvmap-1.0"],
        media_type: "text/xml",
        body: b"<vmap:VMAP xmlns:vmap=\"http://www.iab.net/videosuite/vmap\" version=\"1.0\"/>",
    },
];

const GIF: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\
      \x02\x02D\x01\0;";

const PNG_2: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x02\x08\x06\0\0\0r\xb6\r$\0\0\0\x0bIDATx\xda\
      c`@\x07\0\0\x12\0\x01\xe4U\x8d\xe7\0\0\0\0IEND\xaeB`\x82";

const PNG_3: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x03\0\0\0\x02\x08\x06\0\0\0\x9dtf\x1a\0\0\0\x0bIDATx\
      \xdac`\xc0\x05\0\0\x1a\0\x01/\x98\x97\xa6\0\0\0\0IEND\xaeB`\x82";

const PNG_32: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0 \0\0\0 \x08\x06\0\0\0szz\xf4\0\0\0\x1aIDATx\xda\xed\
      \xc1\x01\x01\0\0\0\x82 \xff\xafnH@\x01\0\0\0\xef\x06\x10 \0\x01\xc9\xb5\xc3\xb1\0\0\0\0IEN\
      D\xaeB`\x82";

impl Neutral {
    fn kind(&self) -> MimeType {
        match self.media_type {
            "image/gif" => MimeType::ImageGif,
            "image/png" => MimeType::ImagePng,
            "text/javascript" => MimeType::ApplicationJavascript,
            "text/css" => MimeType::TextCss,
            "text/html" => MimeType::TextHtml,
            "application/json" => MimeType::ApplicationJson,
            "text/xml" => MimeType::TextXml,
            _ => MimeType::TextPlain,
        }
    }

    fn encoded(&self) -> String {
        BASE64_STANDARD.encode(self.body)
    }
}

/// The same, as the engine takes them.
pub(super) fn resources() -> impl Iterator<Item = Resource> {
    NEUTRAL.iter().map(|neutral| Resource {
        name: neutral.name.to_owned(),
        aliases: neutral.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        kind: ResourceType::Mime(neutral.kind()),
        content: neutral.encoded(),
        dependencies: Vec::new(),
        permission: PermissionMask::default(),
    })
}

/// Which one the engine means, by the `data:` URL that it gives.
pub(super) fn of_url(url: &str) -> Option<usize> {
    let (_, encoded) = url.split_once(";base64,")?;
    NEUTRAL.iter().position(|neutral| neutral.encoded() == encoded)
}

/// A neutral body by its name.
pub(super) fn by_name(name: &str) -> Option<&'static Neutral> {
    NEUTRAL.iter().find(|neutral| neutral.name == name || neutral.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_body_is_its_own() {
        for (at, neutral) in NEUTRAL.iter().enumerate() {
            assert_eq!(of_url(&format!("data:x/y;base64,{}", neutral.encoded())), Some(at));
            for name in neutral.aliases.iter().chain([&neutral.name]) {
                assert_eq!(by_name(name), Some(neutral), "{name}");
            }
        }
        assert_eq!(of_url("data:text/plain;base64,bm90IG91cnM="), None);
    }
}
