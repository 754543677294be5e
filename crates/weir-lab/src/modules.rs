//! The plugins of the experiments: empty ones, which the lab keeps as text, and the transcoder,
//! which `cargo xtask plugins` builds.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, Result};

/// An empty plugin on Weir's own interface that looks at nothing.
pub const OWN: &str = include_str!("../peers/own.wat");
/// The same, for which all of the request is laid out.
pub const OWN_ALL: &str = include_str!("../peers/own-all.wat");
/// An empty plugin on proxy-wasm, with all callbacks for heads.
pub const PROXY_WASM: &str = include_str!("../peers/proxy-wasm.wat");

/// Writes the empty plugins of servers into `folder`.
///
/// # Errors
/// When a file cannot be written.
pub fn write_all(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).doing(|| format!("creating {}", folder.display()))?;
    for (name, text) in [("own.wasm", OWN), ("proxy-wasm.wasm", PROXY_WASM)] {
        let path = folder.join(name);
        fs::write(&path, assemble(text)?).doing(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// A module from its text form.
///
/// # Errors
/// When the text is none.
pub fn assemble(text: &str) -> Result<Vec<u8>> {
    wat::parse_str(text).map_err(|error| Error::Answer(format!("a plugin of the lab: {error}")))
}

/// The transcoder, as it was built last.
///
/// # Errors
/// When it was never built.
pub fn transcoder() -> Result<Vec<u8>> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "plugins", "built", "gray-rust.wasm"]
            .iter()
            .collect();
    fs::read(&path).map_err(|error| {
        let path = path.display();
        Error::Usage(format!("{path}: {error}; build it with `cargo xtask plugins gray-rust`"))
    })
}

/// The same module with a remark of its own, so that it has never been compiled before.
#[must_use]
pub fn remarked(module: &[u8], remark: u32) -> Vec<u8> {
    const NAME: &[u8] = b"lab";
    let mut marked = module.to_vec();
    // A custom section: 0, its size, its name and whatever comes after that.
    marked.extend_from_slice(&[0, 1 + NAME.len() as u8 + 4, NAME.len() as u8]);
    marked.extend_from_slice(NAME);
    marked.extend_from_slice(&remark.to_le_bytes());
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_plugins_are_modules() {
        for text in [OWN, OWN_ALL, PROXY_WASM] {
            assert_eq!(assemble(text).unwrap()[..4], *b"\0asm");
        }
        assert!(assemble("(module").is_err());
    }

    #[test]
    fn remarks_make_modules_differ_and_stay_modules() {
        let module = assemble(OWN).unwrap();
        let (one, other) = (remarked(&module, 1), remarked(&module, 2));
        assert_ne!(one, other);
        let (section, payload) = (&one[module.len()..], 1_u32.to_le_bytes());
        assert_eq!(usize::from(section[1]), section.len() - 2, "the section ends where it should");
        assert!(section.ends_with(&payload));
    }
}
