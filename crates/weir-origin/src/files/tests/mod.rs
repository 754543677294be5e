//! Tests of the file source on real directories.

mod beneath;
mod listing;
mod lookup;
mod reading;
mod stamp;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use weir_http::negotiate::Coding;

use super::{Accepted, FileRoot, FilesError, Found, OpenFile};

/// A directory of its own with a root in it: `<temp>/www`, next to `<temp>/secret.txt`.
struct Site {
    _temp: TempDir,
    base: PathBuf,
    www: PathBuf,
}

impl Site {
    fn new() -> Site {
        let temp = TempDir::new().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let www = base.join("www");
        fs::create_dir(&www).unwrap();
        fs::write(base.join("secret.txt"), "secret").unwrap();
        Site { _temp: temp, base, www }
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.www.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn config(&self) -> weir_config::Files {
        weir_config::Files {
            root: self.www.clone(),
            index: vec!["index.html".into(), "index.txt".into()],
            listing: false,
            precompressed: true,
            strip_prefix: false,
            cache_control: None,
        }
    }

    fn root(&self) -> FileRoot {
        FileRoot::open(&self.config()).unwrap()
    }

    fn listing_root(&self) -> FileRoot {
        FileRoot::open(&weir_config::Files { listing: true, ..self.config() }).unwrap()
    }
}

/// A time safely after the window in which files written by now are racy. Lookups take their clock
/// as a parameter, so no test needs to sleep through the window.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_millis(100)
}

fn open(root: &FileRoot, path: &str) -> OpenFile {
    open_as(root, path, &[])
}

fn open_as(root: &FileRoot, path: &str, accepted: &[Coding]) -> OpenFile {
    match root.resolve(path.as_bytes(), false, Accepted::new(accepted), later()) {
        Ok(Found::File(file)) => file,
        other => panic!("{path}: expected a file, got {other:?}"),
    }
}

fn body(file: &OpenFile) -> Vec<u8> {
    let mut body = Vec::new();
    file.read(&mut |piece| {
        body.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    body
}

/// A lookup's outcome in one word, or the file's content.
fn outcome(root: &FileRoot, path: &str) -> String {
    let (relative, slash) = match path.strip_suffix('/') {
        Some(directory) => (directory, true),
        None => (path, false),
    };
    match root.resolve(relative.as_bytes(), slash, Accepted::default(), later()) {
        Ok(Found::File(file)) => String::from_utf8(body(&file)).unwrap(),
        Ok(Found::Redirect) => "redirect".into(),
        Ok(Found::Listing(_)) => "listing".into(),
        Err(FilesError::NotFound) => "not found".into(),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Sets a file's modification time, in seconds and nanoseconds since 1970.
fn set_modified(path: &Path, seconds: u64, nanoseconds: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}
