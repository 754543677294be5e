//! The two forms of a record. Whatever a client sent is escaped, so that one request is one line
//! and no terminal obeys a header.

use std::io::Write;
use std::time::SystemTime;

use http::Version;
use jiff::Timestamp;
use weir_config::LogFormat;

use super::Entry;

/// Appends one record and its newline.
pub(super) fn append(to: &mut Vec<u8>, format: LogFormat, entry: &Entry<'_>) {
    match format {
        LogFormat::Json => append_json(to, entry),
        LogFormat::Combined => append_combined(to, entry),
    }
    to.push(b'\n');
}

/// Apache's combined format.
fn append_combined(to: &mut Vec<u8>, entry: &Entry<'_>) {
    append_client(to, entry);
    to.extend_from_slice(b" - - [");
    let time = timestamp(entry.at).strftime("%d/%b/%Y:%H:%M:%S +0000");
    // Writing to a `Vec` cannot fail; so throughout this file.
    let _ = write!(to, "{time}] \"");
    match entry.line {
        Some((method, uri, http)) => {
            let _ = write!(to, "{method} ");
            escape(to, uri.to_string().as_bytes());
            let _ = write!(to, " {}", version(http));
        }
        None => to.push(b'-'),
    }
    let _ = write!(to, "\" {} {} \"", entry.status, entry.body_bytes);
    escape(to, entry.referer.unwrap_or(b"-"));
    to.extend_from_slice(b"\" \"");
    escape(to, entry.user_agent.unwrap_or(b"-"));
    to.push(b'"');
}

fn append_json(to: &mut Vec<u8>, entry: &Entry<'_>) {
    let _ = write!(to, "{{\"time\":\"{:.3}\",\"client\":\"", timestamp(entry.at));
    append_client(to, entry);
    to.push(b'"');
    text(to, "site", Some(entry.site.as_bytes()));
    text(to, "route", Some(entry.route.as_bytes()));
    if let Some((method, uri, http)) = entry.line {
        text(to, "method", Some(method.as_str().as_bytes()));
        text(to, "uri", Some(uri.to_string().as_bytes()));
        text(to, "protocol", Some(version(http).as_bytes()));
    }
    text(to, "host", entry.host);
    let _ = write!(
        to,
        ",\"status\":{},\"body_bytes\":{},\"cache\":\"{}\",\"duration_us\":{},\"complete\":{}",
        entry.status,
        entry.body_bytes,
        entry.cache,
        entry.took.as_micros(),
        entry.complete
    );
    text(to, "class", entry.class.map(str::as_bytes));
    text(to, "refused", entry.refused.map(str::as_bytes));
    text(to, "rule", entry.rule.map(str::as_bytes));
    text(to, "dry_run", entry.dry_run.map(str::as_bytes));
    text(to, "referer", entry.referer);
    text(to, "user_agent", entry.user_agent);
    to.push(b'}');
}

fn append_client(to: &mut Vec<u8>, entry: &Entry<'_>) {
    match entry.client {
        Some(address) => {
            let _ = write!(to, "{address}");
        }
        None => to.push(b'-'),
    }
}

/// A JSON member; left out without a value.
fn text(to: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    let Some(value) = value else { return };
    let _ = write!(to, ",\"{name}\":");
    let value = String::from_utf8_lossy(value);
    // A string always serialises.
    let _ = serde_json::to_writer(to, value.as_ref());
}

/// Quotes, backslashes and all that is not printable ASCII as `\xHH`, as Apache does.
fn escape(to: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        match byte {
            b'"' | b'\\' => to.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => to.push(byte),
            _ => {
                let _ = write!(to, "\\x{byte:02x}");
            }
        }
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use http::Method;

    use super::*;

    fn line(format: LogFormat, user_agent: &[u8]) -> String {
        let uri = "/a?b=%22".parse().unwrap();
        let entry = Entry {
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
            client: Some("192.0.2.1".parse().unwrap()),
            site: "shop",
            route: "/*",
            line: Some((&Method::GET, &uri, Version::HTTP_11)),
            host: Some(b"shop"),
            referer: None,
            user_agent: Some(user_agent),
            status: 200,
            body_bytes: 12,
            cache: "hit",
            took: Duration::from_micros(42),
            complete: true,
            class: None,
            refused: None,
            rule: None,
            dry_run: None,
        };
        let mut line = Vec::new();
        append(&mut line, format, &entry);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn combined_is_apaches() {
        assert_eq!(
            line(LogFormat::Combined, b"curl/8"),
            "192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] \"GET /a?b=%22 HTTP/1.1\" 200 12 \"-\" \
             \"curl/8\"\n"
        );
    }

    #[test]
    fn json_parses_and_holds_the_facts() {
        let line = line(LogFormat::Json, b"curl/8");
        let record: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["time"], "2023-11-14T22:13:20.250Z");
        assert_eq!(record["cache"], "hit");
        assert_eq!(record["duration_us"], 42);
        assert_eq!(record["uri"], "/a?b=%22");
        assert!(record.get("referer").is_none());
    }

    #[test]
    fn a_client_cannot_forge_lines_or_break_out() {
        for nasty in [b"\"\n1.2.3.4 - -".as_slice(), b"\\", b"\x1b[2J", b"\xff\xfe", b"\r\n\0"] {
            for format in [LogFormat::Json, LogFormat::Combined] {
                let line = line(format, nasty);
                assert_eq!(line.matches('\n').count(), 1, "{line:?}");
                assert!(!line.contains('\x1b') && !line.contains('\0'), "{line:?}");
                if format == LogFormat::Json {
                    serde_json::from_str::<serde_json::Value>(&line).unwrap();
                }
            }
        }
    }
}
