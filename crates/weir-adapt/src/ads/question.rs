//! What a request says of what it asks for, and for which page.

/// What is asked for, as lists tell types apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A page of its own.
    Document,
    /// A page in a page.
    Frame,
    /// JavaScript.
    Script,
    /// CSS.
    Style,
    /// A picture.
    Image,
    /// Letters.
    Font,
    /// Sound or film.
    Media,
    /// What a script asks for.
    Fetch,
    /// What nobody looks at the answer of.
    Ping,
    /// A connection for messages both ways.
    WebSocket,
    /// A plugin's.
    Object,
    /// It cannot be told.
    Other,
}

impl Kind {
    /// As lists call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Document => "document",
            Kind::Frame => "subdocument",
            Kind::Script => "script",
            Kind::Style => "stylesheet",
            Kind::Image => "image",
            Kind::Font => "font",
            Kind::Media => "media",
            Kind::Fetch => "xmlhttprequest",
            Kind::Ping => "ping",
            Kind::WebSocket => "websocket",
            Kind::Object => "object",
            Kind::Other => "other",
        }
    }

    /// The name of what is sent in its place; `None` for nothing (204).
    pub const fn empty(self) -> Option<&'static str> {
        match self {
            Kind::Document | Kind::Frame => Some("noop.html"),
            Kind::Script => Some("noop.js"),
            Kind::Style => Some("noop.css"),
            Kind::Image => Some("1x1.gif"),
            Kind::Font
            | Kind::Media
            | Kind::Fetch
            | Kind::Ping
            | Kind::WebSocket
            | Kind::Object
            | Kind::Other => None,
        }
    }

    /// By `Sec-Fetch-Dest` (Fetch Metadata), which browsers send and pages cannot; by the path's
    /// extension, then by `Accept` where that is missing.
    pub fn of(destination: Option<&str>, accept: Option<&str>, path: &str) -> Kind {
        if let Some(kind) = destination.and_then(of_destination) {
            return kind;
        }
        if let Some(kind) = of_extension(path.as_bytes()) {
            return kind;
        }
        let first = accept.unwrap_or_default().split([',', ';']).next().unwrap_or_default().trim();
        match first {
            "text/html" => Kind::Document,
            "text/css" => Kind::Style,
            "application/json" => Kind::Fetch,
            other if other.starts_with("image/") => Kind::Image,
            other if other.contains("javascript") => Kind::Script,
            _ => Kind::Other,
        }
    }
}

fn of_destination(destination: &str) -> Option<Kind> {
    Some(match destination {
        "document" => Kind::Document,
        "frame" | "iframe" | "fencedframe" => Kind::Frame,
        "script" | "worker" | "sharedworker" | "serviceworker" | "audioworklet"
        | "paintworklet" => Kind::Script,
        "style" => Kind::Style,
        "image" => Kind::Image,
        "font" => Kind::Font,
        "audio" | "video" | "track" => Kind::Media,
        "object" | "embed" => Kind::Object,
        "report" => Kind::Ping,
        "websocket" => Kind::WebSocket,
        "empty" => Kind::Fetch,
        _ => return None,
    })
}

/// By the letters behind the last dot of a path's last name.
fn of_extension(path: &[u8]) -> Option<Kind> {
    // The longest that is known has 5 letters.
    let tail = &path[path.len().saturating_sub(6)..];
    let dot = tail.iter().rposition(|byte| *byte == b'.')?;
    let extension = &tail[dot + 1..];
    let mut lower = [0; 5];
    let lower = &mut lower[..extension.len()];
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    Some(match &*lower {
        b"js" | b"mjs" => Kind::Script,
        b"css" => Kind::Style,
        b"gif" | b"png" | b"jpg" | b"jpeg" | b"webp" | b"avif" | b"svg" | b"ico" | b"bmp" => {
            Kind::Image
        }
        b"woff" | b"woff2" | b"ttf" | b"otf" => Kind::Font,
        b"mp4" | b"webm" | b"mp3" | b"m4a" | b"ogg" | b"m3u8" => Kind::Media,
        b"htm" | b"html" => Kind::Document,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told() {
        for (destination, accept, path, expected) in [
            (Some("script"), Some("*/*"), "/a.css", Kind::Script),
            (Some("empty"), Some("*/*"), "/a", Kind::Fetch),
            (Some("nonsense"), None, "/a.JPEG", Kind::Image),
            (None, Some("*/*"), "/x/a.min.js", Kind::Script),
            (None, Some("text/html,*/*"), "/a", Kind::Document),
            (None, Some("image/avif,image/webp,*/*;q=0.8"), "/pixel", Kind::Image),
            (None, Some("text/css,*/*;q=0.1"), "/theme", Kind::Style),
            (None, None, "/a.b/c", Kind::Other),
            (None, None, "/a.longextension", Kind::Other),
            (None, Some("*/*"), "/", Kind::Other),
        ] {
            assert_eq!(Kind::of(destination, accept, path), expected, "{path}");
        }
    }
}
