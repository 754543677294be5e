//! The control group that helpers run in, where the operator has named one: a directory of cgroup
//! v2 that the server may write to (Linux, Documentation/admin-guide/cgroup-v2.rst).
//!
//! A group has a share of the processor of its own, whatever its members' priority, so that helpers
//! in one that is as good as the server's would take half of it: what cannot be made idle is not
//! joined.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{Access, access, statfs};

/// What statfs(2) says of cgroup v2.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// The controllers that have something to say of helpers.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The least share that a group may have (cpu.weight).
const WEIGHT_MIN: u64 = 1;

/// What the members of a group may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Memory in bytes: their own and all of the results that were made there, which are charged to
    /// it as long as they are stored.
    pub memory_bytes: u64,
    /// Processes. More than that may be put there, and none of them forks.
    pub processes: usize,
    /// They are to run only when nothing beside the group wants to.
    pub is_idle: bool,
}

/// A group that helpers are put in.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Opened at the beginning: who opened it is who moves processes by it, also once the server
    /// has become another user.
    members: File,
    holds: Vec<String>,
    outside: AtomicU64,
}

/// Why a group cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cgroup {}: {why}", path.display())]
pub struct CgroupError {
    /// The directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl Cgroup {
    /// Makes the group if only its directory is missing, limits it, and is ready to put helpers in
    /// it. Limits that somebody has set stay.
    ///
    /// # Errors
    /// If it is none, or would have a share of the processor that helpers must not have.
    pub fn open(path: &Path, bounds: &Bounds) -> Result<Cgroup, CgroupError> {
        let failed = |why: String| CgroupError { path: path.to_owned(), why };
        check(path)?;
        if !path.exists() {
            fs::create_dir(path).map_err(|cause| failed(format!("it cannot be made: {cause}")))?;
            hand_down(path);
        }
        let said = fs::read_to_string(path.join("cgroup.procs"));
        let own = std::process::id().to_string();
        if said.unwrap_or_default().lines().any(|member| member == own) {
            return Err(failed("the server itself is in it".to_owned()));
        }
        let holds = limit(path, bounds).map_err(failed)?;
        let members = OpenOptions::new()
            .write(true)
            .open(path.join("cgroup.procs"))
            .map_err(|cause| failed(format!("cgroup.procs cannot be written: {cause}")))?;
        Ok(Cgroup { path: path.to_owned(), members, holds, outside: AtomicU64::new(0) })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What holds of it, as the kernel's files have it: `cpu.idle=1`, `memory.max=4294967296`.
    /// Nothing if it has no controllers: then it tells what helpers take, and limits nothing.
    #[must_use]
    pub fn holds(&self) -> &[String] {
        &self.holds
    }

    /// Processes that could not be put in it.
    pub fn outside(&self) -> u64 {
        self.outside.load(Relaxed)
    }

    /// Puts a process in it. One that is not taken works outside as well, and has its other limits.
    pub(crate) fn take(&self, pid: u32) {
        if let Err(cause) = (&self.members).write_all(pid.to_string().as_bytes()) {
            self.outside.fetch_add(1, Relaxed);
            tracing::warn!(path = %self.path.display(), %cause, "a helper is not in its cgroup");
        }
    }
}

/// Whether a group could be used, without changing anything.
///
/// # Errors
/// What is wrong with it.
pub fn check(path: &Path) -> Result<(), CgroupError> {
    judge(path).map_err(|why| CgroupError { path: path.to_owned(), why })
}

fn judge(path: &Path) -> Result<(), String> {
    let is_there = path.is_dir();
    let known = if is_there { path } else { path.parent().unwrap_or(path) };
    if !known.is_dir() {
        return Err(format!("there is no directory {}", known.display()));
    }
    // The type differs between architectures; the value is the same.
    let magic = statfs(known).map_err(|cause| cause.to_string())?.f_type as u64;
    if magic != CGROUP2_MAGIC {
        return Err(format!("{} is not in a file system of cgroup v2", known.display()));
    }
    let may = |path: &Path, what: &str| {
        access(path, Access::WRITE_OK).map_err(|cause| format!("{what}: {cause}"))
    };
    if !is_there {
        return may(known, "it is not there and cannot be made");
    }
    // Only the root of the tree has no type.
    if !path.join("cgroup.type").exists() {
        return Err("it is the root of all groups".to_owned());
    }
    let below = fs::read_dir(path).map_err(|cause| cause.to_string())?;
    if let Some(below) = below.flatten().find(|entry| entry.path().is_dir()) {
        return Err(format!(
            "helpers need one without groups below it, and it has {:?}",
            below.file_name()
        ));
    }
    may(&path.join("cgroup.procs"), "cgroup.procs cannot be written")
}

/// Has the group that this one was made in hand its controllers down. It cannot while it has
/// processes of its own ("no internal processes"): then there are none to limit helpers by.
fn hand_down(path: &Path) {
    let Some(parent) = path.parent() else { return };
    for controller in CONTROLLERS {
        let handed = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
        if let Err(cause) = handed {
            tracing::debug!(%cause, controller, parent = %parent.display(), "not handed down");
        }
    }
}

/// Limits a group by what controllers it has, and returns what holds.
///
/// # Errors
/// If it has a share of the processor and keeps it.
fn limit(path: &Path, bounds: &Bounds) -> Result<Vec<String>, String> {
    let mut holds = Vec::new();
    let read = |name: &str| fs::read_to_string(path.join(name)).map(|text| text.trim().to_owned());
    let mut note = |name: &str| {
        if let Ok(value) = read(name) {
            holds.push(format!("{name}={value}"));
        }
    };
    if bounds.is_idle && path.join("cpu.weight").exists() {
        let is_set = |name: &str, value: u64| {
            // Who may not write it may find it as it should be.
            let _ = fs::write(path.join(name), value.to_string());
            read(name).is_ok_and(|found| found == value.to_string())
        };
        match () {
            () if is_set("cpu.idle", 1) => note("cpu.idle"),
            () if is_set("cpu.weight", WEIGHT_MIN) => note("cpu.weight"),
            () => {
                let mut why = "it would give helpers a share of the processor: ".to_owned();
                let weight = read("cpu.weight").unwrap_or_default();
                let _ = write!(why, "cpu.weight is {weight}, and cpu.idle cannot be set to 1");
                return Err(why);
            }
        }
    }
    for (name, most) in [("memory.max", bounds.memory_bytes), ("pids.max", bounds.processes as u64)]
    {
        // What somebody has set is how he wants it.
        if read(name).is_ok_and(|found| found == "max") {
            let _ = fs::write(path.join(name), most.to_string());
        }
        note(name);
    }
    Ok(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { memory_bytes: 1 << 30, processes: 2, is_idle: true };

    /// A directory with the files of a group, and what holds of it then.
    fn limited(files: &[(&str, &str)], bounds: &Bounds) -> Result<Vec<String>, String> {
        let group = tempfile::TempDir::new().unwrap();
        for (name, value) in files {
            match *value {
                // What nobody can write.
                "" => fs::create_dir(group.path().join(name)).unwrap(),
                value => fs::write(group.path().join(name), format!("{value}\n")).unwrap(),
            }
        }
        limit(group.path(), bounds)
    }

    #[test]
    fn what_there_is_is_limited() {
        let all =
            [("cpu.weight", "100"), ("cpu.idle", "0"), ("memory.max", "max"), ("pids.max", "max")];
        let held = ["cpu.idle=1", "memory.max=1073741824", "pids.max=2"];
        assert_eq!(limited(&all, &BOUNDS).unwrap(), held);
        assert_eq!(limited(&[], &BOUNDS).unwrap(), [""; 0]);
        assert_eq!(limited(&all[2..], &BOUNDS).unwrap(), held[1..]);
        // What somebody has set stays.
        let set = [("memory.max", "4096"), ("pids.max", "7")];
        assert_eq!(limited(&set, &BOUNDS).unwrap(), ["memory.max=4096", "pids.max=7"]);
        let normal = Bounds { is_idle: false, ..BOUNDS };
        assert_eq!(limited(&all, &normal).unwrap(), held[1..]);
    }

    #[test]
    fn a_group_with_a_share_of_the_processor_is_none_for_helpers() {
        let old = [("cpu.weight", "100"), ("cpu.idle", "")];
        assert_eq!(limited(&old, &BOUNDS).unwrap(), ["cpu.weight=1"]);
        let kept = limited(&[("cpu.weight", ""), ("cpu.idle", "")], &BOUNDS).unwrap_err();
        assert!(kept.contains("it would give helpers a share"), "{kept}");
    }

    #[test]
    fn what_is_no_group_is_said() {
        let why = |path: &str| check(Path::new(path)).unwrap_err().to_string();
        assert_eq!(
            why("/nowhere/at/all"),
            "cgroup /nowhere/at/all: there is no directory /nowhere/at"
        );
        assert!(why("/proc").ends_with("/proc is not in a file system of cgroup v2"));
    }
}
