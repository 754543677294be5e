//! What the kernel says about processes and the machine: CPU time, memory, children, stolen time.
//! Parsers take text and are tested on text; the functions that read `/proc` only join them.
//!
//! CPU time is `sum_exec_runtime` from `task/*/schedstat`, in nanoseconds. On a kernel that does
//! not account interrupts separately (`CONFIG_IRQ_TIME_ACCOUNTING` off, as in most virtual
//! machines) it contains the soft interrupts that ran while the thread did. On loopback a send
//! runs the receiver's half of the network stack too, so each side pays for delivery to the other.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Process identifiers.
pub type Pid = u32;

/// The kernel's clock ticks per second in `/proc/stat`: fixed for user space on Linux.
pub const TICKS_PER_SECOND: u64 = 100;

/// Parent of a process, from `/proc/PID/stat`. The name may hold blanks and parentheses, so
/// fields are counted from the last `)`.
#[must_use]
pub fn parent_of(stat: &str) -> Option<Pid> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Nanoseconds on a CPU, from `schedstat`.
#[must_use]
pub fn schedstat_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

/// The processes of `parents` (pid, parent) that are `root` or descend from it, in no order.
#[must_use]
pub fn family(root: Pid, parents: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for &(pid, parent) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let mut members = vec![root];
    let mut next = 0;
    while next < members.len() {
        // A pid occurs once as a key, so removing it also ends a (made-up) cycle.
        members.extend(children.remove(&members[next]).unwrap_or_default());
        next += 1;
    }
    members
}

/// `root` and all its living descendants.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![root] };
    let parents: Vec<(Pid, Pid)> = entries
        .flatten()
        .filter_map(|entry| {
            let pid: Pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, parent_of(&stat)?))
        })
        .collect();
    family(root, &parents)
}

/// Nanoseconds of CPU that the living threads of `pids` have used. Threads that ended take their
/// share with them; contenders keep theirs for the length of a run.
#[must_use]
pub fn cpu_ns(pids: &[Pid]) -> u64 {
    pids.iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok())
        .flat_map(|tasks| tasks.flatten())
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| schedstat_ns(&text))
        .sum()
}

/// Time of the whole machine since it started, in ticks, summed over cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTicks {
    /// Doing anything: user, nice, system, interrupts.
    pub busy: u64,
    /// Taken by the hypervisor for other guests.
    pub steal: u64,
    /// Everything, idle and steal included.
    pub total: u64,
}

/// Parses the `cpu` line of `/proc/stat`.
#[must_use]
pub fn machine_ticks(stat: &str) -> Option<MachineTicks> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    Some(MachineTicks { busy, steal, total: busy + idle + iowait + steal })
}

/// The same of one core.
#[must_use]
pub fn core_ticks(stat: &str, core: usize) -> Option<MachineTicks> {
    let name = format!("cpu{core} ");
    let line = stat.lines().find(|line| line.starts_with(&name))?;
    machine_ticks(&line.replacen(&name, "cpu ", 1))
}

/// Reads [`core_ticks`]; zeros if the kernel does not tell.
#[must_use]
pub fn read_core_ticks(core: usize) -> MachineTicks {
    let stat = fs::read_to_string("/proc/stat").ok();
    stat.and_then(|text| core_ticks(&text, core)).unwrap_or_default()
}

/// Reads [`MachineTicks`]; zeros if the kernel does not tell.
#[must_use]
pub fn read_machine_ticks() -> MachineTicks {
    fs::read_to_string("/proc/stat").ok().and_then(|text| machine_ticks(&text)).unwrap_or_default()
}

/// Unit of `st_blocks` (stat(2)).
const BLOCK_SIZE: u64 = 512;

/// User memory of a group of processes, in bytes. Pages that they share count once
/// (proportional set size).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident set sizes, shared pages counted in each.
    pub rss: u64,
    /// Heap, stacks and other anonymous memory.
    pub anonymous: u64,
    /// Mapped files.
    pub file: u64,
    /// Shared memory: what is mapped of it, or all pages of the memfds that are open, whichever is
    /// more. Bodies that only the kernel ever touches are in memfds and mapped nowhere.
    pub shared: u64,
}

/// Parses `/proc/PID/smaps_rollup`. Kernels before 5.9 do not split the sum: then all of it counts
/// as anonymous.
#[must_use]
pub fn smaps_rollup(text: &str) -> Memory {
    let field = |name| kilobytes(text, name).map(|size| size * 1024);
    let rss = field("Rss:").unwrap_or(0);
    let whole = field("Pss:").unwrap_or(0);
    let file = field("Pss_File:").unwrap_or(0);
    let shared = field("Pss_Shmem:").unwrap_or(0);
    Memory { rss, anonymous: field("Pss_Anon:").unwrap_or(whole), file, shared }
}

/// Memory of `pids` together.
#[must_use]
pub fn memory(pids: &[Pid]) -> Memory {
    let mapped = mapped_memory(pids);
    Memory { shared: mapped.shared.max(memfd_bytes(pids)), ..mapped }
}

/// Bytes of the pages of all memfds that `pids` have open, each memfd once.
fn memfd_bytes(pids: &[Pid]) -> u64 {
    let files: HashSet<(u64, u64)> = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok())
        .flat_map(|entries| entries.flatten())
        .filter(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            target.to_string_lossy().starts_with("/memfd:")
        })
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|file| (file.ino(), file.blocks() * BLOCK_SIZE))
        .collect();
    files.iter().map(|(_, bytes)| bytes).sum()
}

fn mapped_memory(pids: &[Pid]) -> Memory {
    pids.iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok())
        .map(|text| smaps_rollup(&text))
        .fold(Memory::default(), |sum, one| Memory {
            rss: sum.rss + one.rss,
            anonymous: sum.anonymous + one.anonymous,
            file: sum.file + one.file,
            shared: sum.shared + one.shared,
        })
}

/// The most memory that a process has had resident, shared memory included; 0 if it is gone.
#[must_use]
pub fn peak_bytes(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kilobytes(&status, "VmHWM:").unwrap_or(0) * 1024
}

/// Processor time that a process has used, from `/proc/PID/stat`, and whether it has ended without
/// having been waited for yet: its threads' time is in it, whether they have ended or not.
#[must_use]
pub fn used(stat: &str) -> Option<(Duration, bool)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let (user, system) = (ticks(11)?, ticks(12)?);
    let time = Duration::from_secs_f64((user + system) as f64 / TICKS_PER_SECOND as f64);
    Some((time, *fields.first()? == "Z"))
}

/// Pages of the buffers of all TCP sockets, from `/proc/net/sockstat`.
#[must_use]
pub fn tcp_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    line.split_once("mem ")?.1.trim().parse().ok()
}

/// Bytes of the buffers of all TCP sockets of the machine, both ends of loopback connections.
#[must_use]
pub fn tcp_bytes() -> u64 {
    let sockstat = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    tcp_pages(&sockstat).unwrap_or(0) * rustix::param::page_size() as u64
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_survives_odd_names() {
        let check = |stat, expect| assert_eq!(parent_of(stat), expect, "{stat}");
        check("17 (nginx) S 16 17 17 0 -1", Some(16));
        check("17 (a) b (c) R 2 17", Some(2));
        check("17 nginx S 16", None);
        check("", None);
    }

    #[test]
    fn processor_time_is_known_until_somebody_waits() {
        let stat = "17 (a (b) Z 16 17 17 0 -1 4 1 0 0 0 250 50 0 0 20 0 1 0";
        assert_eq!(used(stat), Some((Duration::from_secs(3), true)));
        assert_eq!(used("17 (a) S 16 17"), None);
        assert!(peak_bytes(std::process::id()) > 0);
        assert_eq!(peak_bytes(u32::MAX), 0);
    }

    #[test]
    fn schedstat_is_the_first_number() {
        assert_eq!(schedstat_ns("87566 12 1\n"), Some(87_566));
        assert_eq!(schedstat_ns(""), None);
    }

    #[test]
    fn family_follows_grandchildren_and_ends_on_a_cycle() {
        let parents = [(2, 1), (3, 2), (4, 3), (9, 8), (5, 2)];
        let mut members = family(2, &parents);
        members.sort_unstable();
        assert_eq!(members, [2, 3, 4, 5]);
        assert_eq!(family(7, &parents), [7]);
        assert_eq!(family(1, &[(2, 1), (1, 2)]).len(), 3);
    }

    #[test]
    fn machine_line() {
        let text = "cpu  100 5 20 1000 10 1 4 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let expect = MachineTicks { busy: 130, steal: 7, total: 1_147 };
        assert_eq!(machine_ticks(text), Some(expect));
        assert_eq!(core_ticks(text, 0).map(|ticks| (ticks.busy, ticks.total)), Some((5, 8)));
        assert_eq!(core_ticks(text, 1), None);
        assert_eq!(machine_ticks("cpu  1 2 3\n"), None);
    }

    #[test]
    fn rollup_new_and_old() {
        let new = "00400000-7ffc [rollup]\nRss:  100 kB\nPss:  60 kB\nPss_Dirty: 1 kB\n\
                   Pss_Anon:  30 kB\nPss_File:  20 kB\nPss_Shmem:  10 kB\n";
        let expect = Memory { rss: 102_400, anonymous: 30_720, file: 20_480, shared: 10_240 };
        assert_eq!(smaps_rollup(new), expect);
        assert_eq!(smaps_rollup("Rss: 8 kB\nPss: 4 kB\n").anonymous, 4_096);
        assert_eq!(smaps_rollup(""), Memory::default());
    }

    #[test]
    fn tcp_buffers() {
        let sockstat = "sockets: used 19\nTCP: inuse 2 orphan 0 tw 0 alloc 2 mem 131\nUDP: mem 3\n";
        assert_eq!(tcp_pages(sockstat), Some(131));
        assert_eq!(tcp_pages(""), None);
    }

    #[test]
    fn memfds_count_by_their_pages_mapped_or_not() {
        let pids = [std::process::id()];
        let before = memfd_bytes(&pids);
        let name = "weir-lab-test";
        let memfd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = fs::File::from(memfd);
        std::io::Write::write_all(&mut file, &[1; 1 << 20]).unwrap();
        let twice = file.try_clone().unwrap();
        assert_eq!(memfd_bytes(&pids) - before, 1 << 20, "once, though it is open twice");
        drop((file, twice));
        assert_eq!(memfd_bytes(&pids), before);
    }

    #[test]
    fn this_process_is_visible() {
        let pid = std::process::id();
        assert!(descendants(pid).contains(&pid));
        assert!(cpu_ns(&[pid]) > 0);
        assert!(memory(&[pid]).anonymous > 0);
        assert!(read_machine_ticks().total > 0);
    }
}
