//! Where a result was measured, so that a reader can judge it, and whether the machine was quiet.

use std::fs;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};

/// A description of the machine, written into every result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// When, in UTC.
    pub date: String,
    /// Kernel release.
    pub kernel: String,
    /// Model of the first core.
    pub cpu: String,
    /// Cores that are online.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// True under a hypervisor: absolute figures then say little about bare metal.
    pub virtualised: bool,
}

impl Machine {
    /// Describes this machine, now.
    #[must_use]
    pub fn describe() -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Machine {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: core_count(&cpuinfo),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            virtualised: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

/// Counted here and not asked of the scheduler, which knows only those this thread is pinned to.
fn core_count(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// First value of `name : value` in a file of such lines.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The core of the contenders and the core of the load generator (and of a local application).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Where contenders run.
    pub server: usize,
    /// Where everything else runs.
    pub load: usize,
}

impl Cores {
    /// Core 0 for contenders, core 1 for load; a machine with a single core shares it, and its
    /// results are worth little.
    #[must_use]
    pub fn choose(cores: usize) -> Cores {
        Cores { server: 0, load: usize::from(cores > 1) }
    }
}

/// Pins the calling thread, and whatever it starts from now on, to one core.
///
/// # Errors
/// When the core does not exist or is not allowed to this process.
pub fn pin_to_core(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).doing(|| format!("pinning to core {core}"))
}

/// Raises the limit on open descriptors to the hard limit, for this process and those it starts.
///
/// # Errors
/// When the hard limit is below `wanted`.
pub fn raise_descriptor_limit(wanted: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Some(limit) = maximum.filter(|limit| *limit < wanted) {
        return Err(Error::Usage(format!(
            "needs {wanted} open files, and the hard limit is {limit}; see `ulimit -Hn`"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .doing(|| "raising the limit on open files".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_cpuinfo() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.5: GHz\nflags : fpu hypervisor\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2.5: GHz"));
        assert_eq!(field(text, "bogus"), None);
        assert_eq!(core_count(text), 1);
        assert_eq!(core_count("processor : 0\n\nprocessor : 1\n"), 2);
    }

    #[test]
    fn load_shares_the_core_only_if_it_must() {
        assert_eq!(Cores::choose(1), Cores { server: 0, load: 0 });
        assert_eq!(Cores::choose(2), Cores { server: 0, load: 1 });
    }
}
