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

/// A body in a memfd of its own.
#[derive(Debug)]
pub(super) struct File {
    pub(super) memory: OwnedFd,
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
        let head = |connection: &str| {
            format!(
                "HTTP/1.1 {status}\r\nServer: floor\r\nContent-Type: text/html\r\n\
                 Content-Length: {}\r\n{fields}{connection}\r\n",
                body.len()
            )
            .into_bytes()
        };
        let (mut kept, mut closing) = (head(""), head("Connection: close\r\n"));
        if body.len() <= INLINE_MAX {
            kept.extend_from_slice(body);
            closing.extend_from_slice(body);
            return Ok(Document { kept, closing, file: None });
        }
        let memory = memfd_create("weir-lab-document", MemfdFlags::CLOEXEC)
            .doing(|| "memfd_create".to_owned())?;
        let mut file = fs::File::from(memory);
        file.write_all(body).doing(|| "filling a memfd".to_owned())?;
        let file = File { memory: file.into(), len: body.len() as u64 };
        Ok(Document { kept, closing, file: Some(file) })
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
    pub fn load(root: &Path) -> Result<Folder> {
        let mut documents = HashMap::new();
        for folder in entries(root)? {
            for file in entries(&folder)? {
                let body = fs::read(&file).doing(|| format!("reading {}", file.display()))?;
                let below = file.strip_prefix(root).unwrap_or(&file);
                let target = format!("/{}", below.display()).into_bytes();
                documents.insert(target, Arc::new(Document::new("200 OK", "", &body)?));
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
