//! What a helper gives up before its first job: priority, files, network, system calls.

use std::collections::BTreeMap;
use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
    Scope,
};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Descriptors: the socket, the arena, a result, and those of the standard streams.
const DESCRIPTORS_MAX: u64 = 16;

/// prctl(2).
const PR_SET_VMA: u64 = 0x5356_4d41;

/// The least of priorities but SCHED_IDLE.
const NICE_MAX: i32 = 19;

/// How far a helper is confined.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// Runs only when nothing else wants to (SCHED_IDLE), or like anything else.
    pub is_idle: bool,
    /// Memory of its own that it may have, in bytes; what it reads of the arena does not count.
    pub memory_bytes: u64,
    /// The largest result.
    pub output_bytes: u64,
}

/// Gives everything up. What the kernel does not know how to take is said in words.
///
/// # Errors
/// What the system says about what any kernel can take.
pub(super) fn enter(confinement: &Confinement) -> io::Result<Vec<String>> {
    let mut lacks = Vec::new();
    // The server's end of the socket would say so, too, but not to one that computes.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if confinement.is_idle && !go_idle() {
        rustix::process::setpriority_process(None, NICE_MAX)?;
        lacks.push("SCHED_IDLE (nice 19 instead)".to_owned());
    }
    limit(Resource::Data, confinement.memory_bytes)?;
    limit(Resource::Fsize, confinement.output_bytes)?;
    limit(Resource::Nofile, DESCRIPTORS_MAX)?;
    limit(Resource::Core, 0)?;
    rustix::thread::set_no_new_privs(true)?;
    // Those of whoever has started the server, perhaps all.
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    lacks.extend(forbid_files().map_err(io::Error::other)?);
    forbid_calls().map_err(io::Error::other)?;
    Ok(lacks)
}

fn go_idle() -> bool {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    Ok(setrlimit(resource, limit)?)
}

/// No file, no port, no signal or abstract socket of others (Landlock).
fn forbid_files() -> Result<Option<String>, landlock::RulesetError> {
    let abi = ABI::V6;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => None,
        RulesetStatus::PartiallyEnforced => Some("a part of Landlock".to_owned()),
        RulesetStatus::NotEnforced => Some("Landlock".to_owned()),
    })
}

/// Nothing but computing, memory that is never run, and the descriptors it has (seccomp).
fn forbid_calls() -> Result<(), seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let never_run = |protection: u8| -> Result<Vec<SeccompRule>, seccompiler::Error> {
        let op = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        let condition = SeccompCondition::new(protection, SeccompCmpArgLen::Dword, op, 0)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    };
    let always = |calls: &[i64]| -> BTreeMap<_, _> {
        calls.iter().map(|call| (*call, Vec::new())).collect()
    };
    let mut rules = always(CALLS);
    rules.extend(always(ANSWERED));
    // Allocators name their memory.
    let (length, op) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
    let names = SeccompCondition::new(0, length, op, PR_SET_VMA)?;
    rules.insert(libc::SYS_prctl, vec![SeccompRule::new(vec![names])?]);
    rules.insert(libc::SYS_mmap, never_run(2)?);
    rules.insert(libc::SYS_mprotect, never_run(2)?);
    let (kill, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let known: BpfProgram = SeccompFilter::new(rules, kill, allow, arch)?.try_into()?;
    // Of two filters the stricter goes.
    let (refuse, allow) = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
    let refused = SeccompFilter::new(always(ANSWERED), allow, refuse, arch)?;
    let refused: BpfProgram = refused.try_into()?;
    seccompiler::apply_filter(&refused)?;
    seccompiler::apply_filter(&known)
}

/// Calls by which C libraries ask about the machine before they do without: refused, and no reason
/// to die. Landlock would refuse those of files as well.
const ANSWERED: &[i64] = &[
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getrusage,
    libc::SYS_ioctl,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_prlimit64,
    libc::SYS_readlinkat,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_statx,
    libc::SYS_uname,
];

/// Calls of the allocator, of the standard library's locks and clocks, and of the work itself.
const CALLS: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sigaltstack,
    // Sorting asks how much memory there is.
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];
