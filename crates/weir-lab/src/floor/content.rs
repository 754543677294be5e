//! What the floor serves: heads ready to send, small bodies behind them in one piece, larger ones
//! in a memfd.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::error::{Doing, Error, Result};

/// Bodies up to this size are sent with their head in one call; above, sendfile is cheaper than a
/// copy (measured: about equal at 16 KB).
const INLINE_MAX: usize = 16 << 10;

const OK: &str = "200 OK";

/// Where large bodies are sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// A copy in a memfd: single pages, unless the system is set to make larger ones.
    Memfd,
    /// The file's own pages in the page cache, which file systems keep in larger pieces.
    File,
}

/// A response, ready to send.
#[derive(Debug)]
pub struct Document {
    /// Head, and the body if it is small, for a kept connection.
    pub(super) kept: Vec<u8>,
    /// The same for a connection that closes.
    pub(super) closing: Vec<u8>,
    /// A body that is not small.
    pub(super) file: Option<File>,
}

/// A body that sendfile takes from the start of a descriptor.
#[derive(Debug)]
pub(super) struct File {
    pub(super) pages: OwnedFd,
    pub(super) len: u64,
}

/// Finds the response to a request.
pub trait Content {
    /// The response for a request target (path and query); `None` answers 404.
    fn find(&mut self, target: &[u8]) -> Option<Arc<Document>>;
}

impl Document {
    /// A response of `body` with the given further header fields (each line ended by CRLF).
    ///
    /// # Errors
    /// When the memfd for a large body cannot be made.
    pub fn new(status: &str, fields: &str, body: &[u8]) -> Result<Document> {
        let mut document = Document::head(status, fields, body.len());
        if body.len() <= INLINE_MAX {
            document.kept.extend_from_slice(body);
            document.closing.extend_from_slice(body);
            return Ok(document);
        }
        let memory = memfd_create("weir-lab-document", MemfdFlags::CLOEXEC)
            .doing(|| "memfd_create".to_owned())?;
        let mut file = fs::File::from(memory);
        file.write_all(body).doing(|| "filling a memfd".to_owned())?;
        document.file = Some(File { pages: file.into(), len: body.len() as u64 });
        Ok(document)
    }

    /// A response whose body, if it is not small, is sent from the pages of the file at `path`.
    fn of_file(path: &Path, body: &[u8]) -> Result<Document> {
        if body.len() <= INLINE_MAX {
            return Document::new(OK, "", body);
        }
        let file = fs::File::open(path).doing(|| format!("opening {}", path.display()))?;
        let mut document = Document::head(OK, "", body.len());
        document.file = Some(File { pages: file.into(), len: body.len() as u64 });
        Ok(document)
    }

    fn head(status: &str, fields: &str, len: usize) -> Document {
        let head = |connection: &str| {
            format!(
                "HTTP/1.1 {status}\r\nServer: floor\r\nContent-Type: text/html\r\n\
                 Content-Length: {len}\r\n{fields}{connection}\r\n"
            )
            .into_bytes()
        };
        let (kept, closing) = (head(""), head("Connection: close\r\n"));
        Document { kept, closing, file: None }
    }
}

/// All files below a folder, loaded once.
pub struct Folder {
    documents: HashMap<Vec<u8>, Arc<Document>>,
}

impl Folder {
    /// Loads `root/*/*`, two levels as the lab lays documents out.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn load(root: &Path, pages: Pages) -> Result<Folder> {
        let mut documents = HashMap::new();
        for folder in entries(root)? {
            for file in entries(&folder)? {
                let body = fs::read(&file).doing(|| format!("reading {}", file.display()))?;
                let below = file.strip_prefix(root).unwrap_or(&file);
                let target = format!("/{}", below.display()).into_bytes();
                let document = match pages {
                    Pages::Memfd => Document::new(OK, "", &body)?,
                    Pages::File => Document::of_file(&file, &body)?,
                };
                documents.insert(target, Arc::new(document));
            }
        }
        if documents.is_empty() {
            return Err(Error::Usage(format!("no documents below {}", root.display())));
        }
        Ok(Folder { documents })
    }
}

impl Content for Folder {
    fn find(&mut self, target: &[u8]) -> Option<Arc<Document>> {
        self.documents.get(target).cloned()
    }
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let list = fs::read_dir(folder).doing(|| format!("listing {}", folder.display()))?;
    Ok(list.flatten().map(|entry| entry.path()).collect())
}
