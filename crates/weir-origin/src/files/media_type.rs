//! A file's name → the media type it is served with.

use http::HeaderValue;
use weir_http::content_type::with_charset;

const UNKNOWN: &str = "application/octet-stream";

/// Types that the library's table lacks, or where it disagrees with the registries of today.
const CORRECTIONS: [(&str, &str); 17] = [
    // RFC 9239 makes text/javascript the one type, modules included.
    ("mjs", "text/javascript"),
    ("cjs", "text/javascript"),
    // The table takes TypeScript and MPEG transport streams (RFC 3555) for a DLNA type.
    ("ts", "video/mp2t"),
    ("mts", "video/mp2t"),
    // Source maps are JSON (ECMA-426).
    ("map", "application/json"),
    ("m4a", "audio/mp4"),
    ("zst", "application/zstd"),
    ("heif", "image/heif"),
    // RFC 8081 registered these in the place of application/font-….
    ("woff", "font/woff"),
    ("otf", "font/otf"),
    // RFC 8216, and the registry for segments.
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4s", "video/iso.segment"),
    // RFC 9512
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("tgz", "application/gzip"),
    ("rpm", "application/x-rpm"),
    ("cur", "image/x-icon"),
];

/// The `Content-Type` for a file of this name; text gets its charset.
pub(super) fn of_name(name: &[u8]) -> HeaderValue {
    with_charset(lookup(name)).unwrap_or(HeaderValue::from_static(UNKNOWN))
}

fn lookup(name: &[u8]) -> &'static str {
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return UNKNOWN;
    };
    let Ok(extension) = std::str::from_utf8(&name[dot + 1..]) else {
        return UNKNOWN;
    };
    let corrected = CORRECTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    if let Some((_, media_type)) = corrected {
        return media_type;
    }
    mime_guess::from_ext(extension).first_raw().unwrap_or(UNKNOWN)
}
