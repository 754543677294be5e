//! Listings of directories that have no index file: what would be served, by name, as HTML for
//! people or JSON for programs.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, OFlags, Stat};
use rustix::io::Errno;
use serde_json::json;

use super::facts::{Facts, Kind};
use super::path::RelativePath;
use super::root::FileRoot;
use super::{FilesError, LISTING_ENTRIES_MAX, path};

/// Names read of one directory, shown or not, so that a directory full of hidden names ends too.
const NAMES_READ_MAX: usize = 10 * LISTING_ENTRIES_MAX;

/// What stays itself in a path segment: RFC 3986's unreserved characters.
const ESCAPED_IN_HREF: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem;color-scheme:light dark}h1{font-size:1.3rem;overflow-wrap:anywhere}table{width:100%;\
border-collapse:collapse}td,th{text-align:left;padding:.15rem .5rem}td:nth-child(2),th:nth-child(2)\
{text-align:right;white-space:nowrap}td:nth-child(3){white-space:nowrap}td:first-child\
{overflow-wrap:anywhere}";

/// A directory to list, not read yet.
#[derive(Debug)]
pub struct Directory {
    root: FileRoot,
    /// The root's directory at the moment of the lookup.
    directory: Arc<OwnedFd>,
    path: RelativePath,
}

/// A directory's entries: directories first, each group in byte order of the names.
#[derive(Clone, Debug)]
pub struct Listing {
    /// What is shown.
    pub entries: Vec<Entry>,
    /// More was there than is shown (see [`LISTING_ENTRIES_MAX`]).
    pub truncated: bool,
    at_root: bool,
}

/// A file or directory in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name as the file system has it, of any bytes but slash and NUL.
    pub name: Vec<u8>,
    /// Bytes, for a file; `None` for a directory.
    pub size: Option<u64>,
    /// When the content last changed.
    pub modified: SystemTime,
}

/// The form of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingFormat {
    /// A page for people.
    Html,
    /// An object for programs.
    Json,
}

impl Directory {
    pub(super) fn new(root: FileRoot, directory: Arc<OwnedFd>, path: RelativePath) -> Directory {
        Directory { root, directory, path }
    }

    /// Reads the directory: a system call for every entry, so up to tens of milliseconds, or as
    /// long as the disk takes. For a blocking thread.
    ///
    /// # Errors
    /// As a lookup.
    pub fn list(&self) -> Result<Listing, FilesError> {
        self.read_entries(LISTING_ENTRIES_MAX).map_err(|errno| self.root.error(errno, &self.path))
    }

    pub(super) fn read_entries(&self, entries_max: usize) -> Result<Listing, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let file = self.root.open_below(&self.directory, &self.path, flags)?;
        let mut directory = Dir::read_from(&file)?;
        let mut entries = Vec::new();
        let mut truncated = false;
        for names_read in 0.. {
            let Some(next) = directory.read() else { break };
            let next = next?;
            if path::is_hidden(next.file_name().to_bytes()) {
                continue;
            }
            if entries.len() == entries_max || names_read >= NAMES_READ_MAX {
                truncated = true;
                break;
            }
            entries.extend(self.entry(&file, &next));
        }
        entries
            .sort_by(|a: &Entry, b| (a.size.is_some(), &a.name).cmp(&(b.size.is_some(), &b.name)));
        Ok(Listing { entries, truncated, at_root: self.path.is_root() })
    }

    /// `None` for what would not be served: pipes, symlinks out of the root, names that vanished.
    fn entry(&self, directory: &OwnedFd, entry: &DirEntry) -> Option<Entry> {
        let name = entry.file_name().to_bytes();
        let stat = match entry.file_type() {
            FileType::Symlink => self.stat_target(name),
            _ => rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW),
        };
        let stat = stat.ok()?;
        let facts = Facts::new(&stat);
        let size = match Kind::of(&stat) {
            Kind::Regular => Some(facts.size),
            Kind::Directory => None,
            Kind::Other => return None,
        };
        let since_epoch_ns = u64::try_from(facts.modified_ns).unwrap_or(0);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(since_epoch_ns);
        Some(Entry { name: name.to_vec(), size, modified })
    }

    fn stat_target(&self, name: &[u8]) -> Result<Stat, Errno> {
        let target = self.path.child(name);
        let opened = self.root.open_below(&self.directory, &target, OFlags::PATH)?;
        rustix::fs::fstat(opened)
    }
}

impl Listing {
    /// The body in the given form. `shown_path` is the request's decoded path, for the heading.
    /// Listings carry no validator: their answer is for `Cache-Control: no-cache` and, as the form
    /// depends on it, `Vary: Accept`.
    pub fn render(&self, format: ListingFormat, shown_path: &str) -> Bytes {
        match format {
            ListingFormat::Html => self.html(shown_path).into(),
            ListingFormat::Json => self.json(shown_path).into(),
        }
    }

    fn html(&self, shown_path: &str) -> String {
        let title = escape(shown_path);
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head>\
             <body><h1>{title}</h1><table><tr><th>Name</th><th>Bytes</th><th>Modified</th></tr>\n"
        );
        if !self.at_root {
            page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
        }
        for entry in &self.entries {
            let slash = if entry.size.is_none() { "/" } else { "" };
            let size = entry.size.map_or_else(String::new, |bytes| bytes.to_string());
            // Writing to a String cannot fail.
            let _ = writeln!(
                page,
                "<tr><td><a href=\"{}\">{}{slash}</a></td><td>{size}</td><td>{}</td></tr>",
                entry.href(),
                escape(&String::from_utf8_lossy(&entry.name)),
                modified(entry, "%Y-%m-%d %H:%M UTC"),
            );
        }
        page.push_str("</table>");
        if self.truncated {
            let _ = write!(page, "<p>Only {} entries are shown.</p>", self.entries.len());
        }
        page.push_str("</body></html>\n");
        page
    }

    fn json(&self, shown_path: &str) -> String {
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                json!({
                    "name": String::from_utf8_lossy(&entry.name),
                    "type": if entry.size.is_some() { "file" } else { "directory" },
                    "size": entry.size,
                    "modified": modified(entry, "%Y-%m-%dT%H:%M:%SZ"),
                    "href": entry.href(),
                })
            })
            .collect();
        json!({ "path": shown_path, "truncated": self.truncated, "entries": entries }).to_string()
    }
}

impl Entry {
    /// A relative reference: `./` keeps a name with a colon from being read as a scheme.
    fn href(&self) -> String {
        let slash = if self.size.is_none() { "/" } else { "" };
        format!("./{}{slash}", percent_encode(&self.name, ESCAPED_IN_HREF))
    }
}

impl ListingFormat {
    /// JSON if the `Accept` field (all its lines joined by commas) prefers it to HTML.
    pub fn from_accept(accept: &[u8]) -> ListingFormat {
        let accept = String::from_utf8_lossy(accept);
        if quality(&accept, "application/json") > quality(&accept, "text/html") {
            return ListingFormat::Json;
        }
        ListingFormat::Html
    }

    /// For `Content-Type`.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            ListingFormat::Html => "text/html; charset=utf-8",
            ListingFormat::Json => "application/json",
        })
    }
}

/// The weight of a media type in thousandths; the most specific range that covers it decides (RFC
/// 9110 §12.5.1). A range with a malformed weight counts as absent.
fn quality(accept: &str, media_type: &str) -> u32 {
    let mut best = (0, 0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let specificity = match name.strip_suffix('*') {
            _ if name == media_type => 3,
            Some(kind) if kind.len() > 2 && media_type.starts_with(kind) => 2,
            Some("*/") => 1,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")).unwrap_or("1");
        let Ok(weight) = weight.parse::<f32>() else { continue };
        best = best.max((specificity, (weight.clamp(0.0, 1.0) * 1000.0) as u32));
    }
    best.1
}

fn modified(entry: &Entry, format: &str) -> String {
    jiff::Timestamp::try_from(entry.modified)
        .map(|time| time.strftime(format).to_string())
        .unwrap_or_default()
}

/// Text for HTML, between tags or in a double-quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A line break or a control character in a name must not fake a row.
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
