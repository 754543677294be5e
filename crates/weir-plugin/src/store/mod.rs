//! Deployments on disk, so that a restart needs neither network nor compiler:
//!
//! ```text
//! DIRECTORY/               0700, the server's own; locked by the process that uses it
//!   deployments.json       what is in force and what was before; replaced as a whole
//!   modules/DIGEST.wasm    modules as they were given, by SHA-256
//!   code/DIGEST-COMPAT.cwasm   their compiled code, for engines with that compatibility
//!   lock
//! ```
//!
//! Compiled code runs unchecked, so it is only taken from files that nobody but the server's user
//! can have written, and whose digest is that in `deployments.json`.

mod directory;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weir_config::is_plugin_name;

use self::directory::Directory;
use crate::engine::Engine;
use crate::limits::{CODE_BYTES_MAX, MANIFEST_BYTES_MAX, MODULE_BYTES_MAX};
use crate::module::{Compiled, Digest};
use crate::problem::PluginError;
use crate::record::{Page, Record};

const MANIFEST: &str = "deployments.json";

/// The form of the manifest. One with another number is of another Weir.
const VERSION: u32 = 1;

/// What is in force, and what was.
#[derive(Clone, Default)]
pub(crate) struct Manifest {
    pub(crate) last_generation: u64,
    pub(crate) plugins: BTreeMap<String, Page>,
}

/// The manifest as a file.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    last_generation: u64,
    plugins: BTreeMap<String, Page>,
    /// Digests of the files of compiled code, by their names.
    code: BTreeMap<String, String>,
}

/// An open store.
pub(crate) struct Store {
    root: Directory,
    modules: Directory,
    code: Directory,
    last_generation: u64,
    /// Digests of the files of compiled code.
    code_digests: BTreeMap<String, String>,
    /// What was in force before the restart and is not yet again.
    pending: BTreeMap<String, Page>,
    /// That of the engine, once there is one.
    compatibility: Option<u64>,
    /// The manifest is not what is in force: it could not be written.
    is_behind: bool,
    /// Locks the store until it is closed.
    _lock: OwnedFd,
}

impl Store {
    /// Opens a store, or makes one.
    ///
    /// # Errors
    /// If others could have written it, another process uses it, or its manifest cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Store, PluginError> {
        let root = Directory::open_or_make(path)?;
        let lock = root.lock()?;
        let (modules, code) = (root.sub("modules")?, root.sub("code")?);
        let file = match root.read(MANIFEST, MANIFEST_BYTES_MAX)? {
            Some(text) => read_manifest(&root, &text)?,
            None => File {
                version: VERSION,
                last_generation: 0,
                plugins: BTreeMap::new(),
                code: BTreeMap::new(),
            },
        };
        Ok(Store {
            root,
            modules,
            code,
            last_generation: file.last_generation,
            code_digests: file.code,
            pending: file.plugins,
            compatibility: None,
            is_behind: false,
            _lock: lock,
        })
    }

    /// The last generation before the restart.
    pub(crate) fn last_generation(&self) -> u64 {
        self.last_generation
    }

    /// Whether the manifest is not what is in force.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Something changed and could not be written.
    pub(crate) fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    /// What was in force before the restart and is not yet again.
    pub(crate) fn pending(&self) -> &BTreeMap<String, Page> {
        &self.pending
    }

    /// Sets what is to come into force again; returns what was.
    pub(crate) fn set_pending(
        &mut self,
        pending: BTreeMap<String, Page>,
    ) -> BTreeMap<String, Page> {
        std::mem::replace(&mut self.pending, pending)
    }

    /// A module.
    ///
    /// # Errors
    /// If it is not there, or damaged: only whoever deployed it has it.
    pub(crate) fn module(&self, digest: &str) -> Result<Bytes, PluginError> {
        let name = module_name(digest);
        let wrong = |cause: &str| self.modules.wrong(&name, cause);
        let module = self.modules.read(&name, MODULE_BYTES_MAX as u64)?;
        let module = module.ok_or_else(|| wrong("the module is gone: deploy it again"))?;
        match Digest::of(&module).to_string() == digest {
            true => Ok(module.into()),
            false => {
                Err(wrong("the module is damaged, its SHA-256 is not its name: deploy it again"))
            }
        }
    }

    /// The code that was compiled from a module, if it is there and as it was. `None` if it has to
    /// be compiled anew.
    pub(crate) fn code(&mut self, engine: &Engine, digest: &str, given: &[u8]) -> Option<Compiled> {
        let compatibility = engine.compatibility();
        self.compatibility = Some(compatibility);
        let name = code_name(digest, compatibility);
        let expected = self.code_digests.get(&name)?;
        let unusable = |cause: &dyn std::fmt::Display| {
            let path = self.code.path(&name);
            tracing::warn!(%cause, path = %path.display(), "compiled code cannot be used again");
        };
        let code = match self.code.read(&name, CODE_BYTES_MAX) {
            Ok(Some(code)) => code,
            Ok(None) => return None,
            Err(cause) => {
                unusable(&cause);
                return None;
            }
        };
        if Digest::of(&code).to_string() != *expected {
            unusable(&"it is damaged");
            return None;
        }
        #[allow(unsafe_code, reason = "code from the store is not compiled again")]
        // SAFETY: `code` is what `Compiled::code` gave to `Store::keep` for this module and for an
        // engine with this compatibility: its name says so, and its digest is the one that was
        // noted then. Only the server's own user can have written the file, its directory or the
        // manifest: owner and mode of each are checked when it is opened, and files are opened
        // relative to the directory that was checked. Tests: `tests/kept.rs`.
        let loaded = unsafe { Compiled::load(engine, given, &code) };
        loaded.map_err(|cause| unusable(&cause)).ok()
    }

    /// Keeps a module and its code, unless both are there and as they should be. What the next
    /// [`Store::write`] does not name is removed again then.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn keep(
        &mut self,
        engine: &Engine,
        given: &[u8],
        compiled: &Compiled,
    ) -> Result<(), PluginError> {
        let digest = compiled.digest().to_string();
        let compatibility = engine.compatibility();
        self.compatibility = Some(compatibility);
        if self.module(&digest).is_err() {
            self.modules.write(&module_name(&digest), given)?;
        }
        let name = code_name(&digest, compatibility);
        if self.has_code(&name) {
            return Ok(());
        }
        let code = match compiled.code() {
            Ok(code) if code.len() as u64 <= CODE_BYTES_MAX => code,
            // Then it is compiled again after a restart.
            _ => return Ok(()),
        };
        self.code.write(&name, &code)?;
        self.code_digests.insert(name, Digest::of(&code).to_string());
        Ok(())
    }

    fn has_code(&self, name: &str) -> bool {
        let Some(expected) = self.code_digests.get(name) else { return false };
        let found = self.code.read(name, CODE_BYTES_MAX).ok().flatten();
        found.is_some_and(|code| Digest::of(&code).to_string() == *expected)
    }

    /// Writes down what is in force, and removes what nothing refers to any more: neither that, nor
    /// a trial, whose modules are `on_trial`.
    ///
    /// # Errors
    /// If it cannot be written; then the file before stays.
    pub(crate) fn write(
        &mut self,
        manifest: Manifest,
        on_trial: &[String],
    ) -> Result<(), PluginError> {
        let records = manifest.plugins.values().flat_map(Page::records);
        let mut needed: BTreeSet<String> = records.map(|record| record.digest.clone()).collect();
        needed.extend(on_trial.iter().cloned());
        self.code_digests.retain(|name, _| is_needed_code(name, &needed, self.compatibility));
        let file = File {
            version: VERSION,
            last_generation: manifest.last_generation,
            plugins: manifest.plugins,
            code: self.code_digests.clone(),
        };
        // Strings, numbers and maps of them always serialise.
        let text = serde_json::to_vec_pretty(&file).unwrap_or_default();
        self.root.write(MANIFEST, &text)?;
        self.last_generation = file.last_generation;
        self.is_behind = false;
        self.remove_garbage(&needed);
        Ok(())
    }

    /// What cannot be removed now will be next time.
    fn remove_garbage(&self, needed: &BTreeSet<String>) {
        self.modules.retain(|name| {
            name.strip_suffix(".wasm").is_some_and(|digest| needed.contains(digest))
        });
        self.code.retain(|name| self.code_digests.contains_key(name));
    }
}

fn read_manifest(root: &Directory, text: &[u8]) -> Result<File, PluginError> {
    let file: File = serde_json::from_slice(text)
        .map_err(|cause| foreign(root, &format!("it cannot be read: {cause}")))?;
    if file.version != VERSION {
        let cause = format!("it has version {}; this Weir reads {VERSION}", file.version);
        return Err(foreign(root, &cause));
    }
    if let Some(name) = file.plugins.keys().find(|name| !is_plugin_name(name)) {
        return Err(foreign(root, &format!("{name:?} is no name of a plugin")));
    }
    // Digests become names of files.
    let is_digest = |record: &Record| {
        record.digest.len() == 64
            && record.digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    for record in file.plugins.values().flat_map(Page::records) {
        if !is_digest(record) {
            return Err(foreign(root, &format!("{:?} is no SHA-256 digest", record.digest)));
        }
    }
    Ok(file)
}

/// A manifest that this Weir has not written as it is: nothing is guessed from it.
fn foreign(root: &Directory, cause: &str) -> PluginError {
    let cause = format!("{cause}; move the file away to start without what was deployed");
    root.wrong(MANIFEST, &cause)
}

fn module_name(digest: &str) -> String {
    format!("{digest}.wasm")
}

fn code_name(digest: &str, compatibility: u64) -> String {
    format!("{digest}-{compatibility:016x}.cwasm")
}

/// Code of another engine, of the Weir before an update, is of no use any more.
fn is_needed_code(name: &str, needed: &BTreeSet<String>, compatibility: Option<u64>) -> bool {
    let Some((digest, rest)) = name.split_once('-') else { return false };
    let is_ours =
        compatibility.is_none_or(|compatibility| rest == format!("{compatibility:016x}.cwasm"));
    needed.contains(digest) && is_ours
}

impl Directory {
    /// Something is wrong with a file of it.
    fn wrong(&self, name: &str, cause: &str) -> PluginError {
        PluginError::Store { path: self.path(name), cause: cause.to_owned() }
    }

    fn failed(&self, name: &str, cause: io::Error) -> PluginError {
        self.wrong(name, &cause.to_string())
    }
}
