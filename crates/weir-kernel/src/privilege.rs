//! What a thread needs to load programs, and how those that load none are rid of it.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The capabilities without which a thread cannot exchange programs: the least, found by trying
/// (`life_tests.rs`), from Linux 5.8 on.
pub fn needed(with_interface: bool) -> CapabilitySet {
    match with_interface {
        true => CapabilitySet::BPF | CapabilitySet::NET_ADMIN,
        false => CapabilitySet::BPF,
    }
}

/// Has the calling thread, and those that it starts from now on, load no programs any more. What
/// else it may do stays as it is.
///
/// # Errors
/// What the system says; the thread then is as it was.
pub fn forgo() -> std::io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    // CAP_SYS_ADMIN stands for all that was split off from it.
    let gone = needed(true) | CapabilitySet::SYS_ADMIN;
    if !(effective | permitted | inheritable).intersects(gone) {
        return Ok(());
    }
    let sets = CapabilitySets {
        effective: effective.difference(gone),
        permitted: permitted.difference(gone),
        inheritable: inheritable.difference(gone),
    };
    Ok(set_capabilities(None, sets)?)
}
