//! The kernel's part of Guard, from start to end.
//!
//! | step | call | what happens |
//! |---|---|---|
//! | start | [`Kernel::start`] | maps are made, the policing program is compiled and loaded |
//! | attach | [`Kernel::attach`] | a listener gets the program, and its place in its group |
//! | run | [`Kernel::set_overload`], [`Kernel::penalise`], [`Kernel::counters`] | words in memory shared with the programs: no system call |
//! | replace | [`Kernel::replace`] | new programs take the place of the old ones, socket by socket |
//! | drain | drop of an [`Attachment`] | the listener has no program and no place any more |
//! | end | drop of the [`Kernel`], or of the process | nothing is left: descriptors hold everything |
//!
//! Nothing that goes wrong here stops the server: whatever the kernel does not enforce,
//! [`Kernel::enforcement`] says so and why, and user space does it after accept.
//!
//! # Privileges
//!
//! To load programs and to put them on interfaces takes CAP_BPF and CAP_NET_ADMIN (found by trying
//! on Linux 6.18: a policing program and its maps need CAP_BPF, a steering program and links
//! CAP_NET_ADMIN, too; `tests::privileges`). All else works after they were dropped: attaching
//! loaded programs to sockets, detaching them, putting sockets into places of an array, and whatever
//! goes through shared memory. (Linux 5.8 to 5.18 refuse the places of an array, too, where
//! `kernel.unprivileged_bpf_disabled` is set.) [`Kernel::replace`] needs them unless rules differ in
//! their rates only; a process that has dropped them continues in user space, and says so.

mod groups;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use weir_config::{Interface, InterfaceHook, KernelUse};

use crate::compile::{self, Goal, Hook, Plan};
use crate::counters::Counters;
use crate::enforcement::{Enforcement, Steering};
use crate::error::KernelError;
use crate::limits::{GROUPS_MAX, INSTRUCTIONS_MAX, INSTRUCTIONS_NEAR_MAX};
use crate::policy::{Key, Limit, Policy};
use crate::state::{self, State};
use crate::sys::{
    Link, LoadedProgram, Mapped, ProgramKind, attach_filter, detach_filter, interface_index,
};

use groups::{Group, Member};
use slots::Slots;

/// Rules for connections in the kernel. Shared by all workers; see the module's head.
#[derive(Clone, Debug)]
pub struct Kernel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` where the kernel has no eBPF for us.
    state: Option<State>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    policy: Policy,
    slots: Slots,
    /// Lines of the policy's first rules.
    assigned: Vec<usize>,
    /// Buckets by key; kept as long as their number is.
    keys: Option<Mapped>,
    policing: Option<LoadedProgram>,
    link: Option<(Interface, Link)>,
    groups: HashMap<SocketAddr, Group>,
    attached: u64,
    enforcement: Enforcement,
}

/// A listener that the kernel polices and steers to; detached when it is dropped, which is to be
/// before the listener is closed.
#[derive(Debug)]
#[must_use = "a listener is detached when this is dropped"]
pub struct Attachment {
    shared: Arc<Shared>,
    address: SocketAddr,
    id: u64,
}

impl Kernel {
    /// Makes maps and programs for a policy, as far as kernel and privileges allow.
    pub fn start(policy: &Policy) -> Kernel {
        let mut reasons = Vec::new();
        let state = match policy.kernel {
            KernelUse::Off => Err(KernelError::Off),
            KernelUse::Auto => State::new(),
        };
        let state = state.map_err(|e| reasons.push(e.to_string())).ok();
        let mut inner = Inner {
            policy: policy.clone(),
            slots: Slots::default(),
            assigned: Vec::new(),
            keys: None,
            policing: None,
            link: None,
            groups: HashMap::new(),
            attached: 0,
            enforcement: Enforcement::default(),
        };
        inner.load(state.as_ref(), reasons);
        Kernel { shared: Arc::new(Shared { state, inner: Mutex::new(inner) }) }
    }

    /// Polices what comes to a listener, and steers to it what is of its class and worker. It is
    /// bound with SO_REUSEPORT and listens already; where there is no privilege, it is attached
    /// right after it began to listen, since classic programs know sockets by that order.
    ///
    /// # Errors
    /// If it is no TCP listener, there are too many addresses, or its socket takes no program; it
    /// then is as it was, and user space is to enforce for it.
    pub fn attach(
        &self,
        listener: BorrowedFd<'_>,
        class: &str,
        worker: usize,
    ) -> Result<Attachment, KernelError> {
        let socket_error = |option| move |source| KernelError::Socket { option, source };
        let address = rustix::net::getsockname(listener)
            .map_err(|e| socket_error("getsockname")(e.into()))?;
        let address = SocketAddr::try_from(address)
            .map_err(|e| socket_error("getsockname")(std::io::Error::from(e)))?;
        let socket = listener.try_clone_to_owned().map_err(socket_error("F_DUPFD_CLOEXEC"))?;
        let inner = &mut *self.shared.inner.lock();
        let id = inner.attached;
        let member = Member { id, socket, class: class.to_owned(), worker };
        inner.attach(self.shared.state.as_ref(), address, member)?;
        inner.attached += 1;
        Ok(Attachment { shared: Arc::clone(&self.shared), address, id })
    }

    /// Enforces another policy from now on. Rules of the same name keep buckets and counters. If
    /// rules differ in their rates only, so much is written into shared memory, and nothing loaded.
    /// Else each socket changes from the old program to the new one at once; what cannot be loaded
    /// is user space's from now on, as [`Kernel::enforcement`] says.
    pub fn replace(&self, policy: &Policy) {
        let inner = &mut *self.shared.inner.lock();
        let state = self.shared.state.as_ref();
        let same = inner.is_same_code(policy);
        inner.policy = policy.clone();
        match state {
            Some(state) if same => Slots::write(&inner.policy.rules, &inner.assigned, state),
            _ => inner.reload(state),
        }
    }

    /// Whether limits hold that are not for always.
    pub fn set_overload(&self, is_overloaded: bool) {
        if let Some(state) = &self.shared.state {
            state.word(state::OVERLOAD).store(is_overloaded.into(), Ordering::Relaxed);
        }
    }

    /// Drops new connections of a source for a time, on all listeners that are attached. Tells
    /// whether the kernel does so.
    pub fn penalise(&self, source: IpAddr, lasts: Duration) -> bool {
        let Some(state) = &self.shared.state else { return false };
        if self.shared.inner.lock().policing.is_none() {
            return false;
        }
        let lasts = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let until = now_ns().saturating_add(lasts).min(i64::MAX.cast_unsigned());
        state.penalise(source.to_canonical(), until);
        true
    }

    /// What programs have counted since the start; of rules, since they have their name.
    pub fn counters(&self) -> Counters {
        let inner = self.shared.inner.lock();
        let Some(state) = &self.shared.state else { return Counters::default() };
        Counters::read(state, &inner.policy, &inner.assigned)
    }

    /// What is enforced where.
    pub fn enforcement(&self) -> Enforcement {
        self.shared.inner.lock().enforcement.clone()
    }

    /// Whether connections that come by attached listeners were judged by this rule already.
    pub fn polices(&self, rule: &str) -> bool {
        let inner = self.shared.inner.lock();
        let policed = inner.enforcement.policed;
        inner.policy.rules().take(policed).any(|name| name == rule)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let inner = &mut *self.shared.inner.lock();
        let Some(group) = inner.groups.get_mut(&self.address) else { return };
        if let Some(member) = group.remove(self.id) {
            // The listener may live on without us. Failing that it goes with its program.
            let _stays = detach_filter(member.socket.as_fd());
        }
        if group.members.is_empty() {
            inner.groups.remove(&self.address);
        } else if group.is_classic() {
            let classic = groups::classic(&inner.policy);
            // On error the last program stands: its indices lead to other sockets of the group.
            let _stays = group.steer_classic(&classic);
        }
    }
}

impl Inner {
    /// Compiles and loads what polices.
    fn load(&mut self, state: Option<&State>, mut reasons: Vec<String>) {
        let rules = self.policy.rules.len();
        self.policing = None;
        self.assigned.clear();
        self.enforcement = Enforcement { rules, ..Enforcement::default() };
        if let Some(state) = state.filter(|_| self.policy.kernel == KernelUse::Auto) {
            let expressible = self.policy.expressible();
            if let Some(rule) = self.policy.rules.get(expressible) {
                let name = &rule.name;
                reasons.push(format!("rule {name:?} has too many ranges of ports or destinations"));
            }
            self.assigned = self.slots.assign(&self.policy.rules[..expressible], state);
            Slots::write(&self.policy.rules, &self.assigned, state);
            if let Err(e) = self.load_policing(state) {
                reasons.push(e.to_string());
                self.assigned.clear();
            } else {
                self.enforcement.policed = self.assigned.len();
                if self.assigned.len() < expressible {
                    let (fit, all) = (self.assigned.len(), expressible);
                    reasons.push(format!("of {all} rules, the first {fit} fit into the kernel"));
                }
            }
            self.load_link(state, &mut reasons);
        } else {
            self.link = None;
        }
        self.slots.keep(&self.policy.rules);
        self.enforcement.reasons = reasons;
    }

    /// Loads the policing program, with as many rules as fit.
    fn load_policing(&mut self, state: &State) -> Result<(), KernelError> {
        if self.assigned.is_empty() && !self.policy.has_penalties {
            return Ok(());
        }
        let limits_of_keys = self
            .policy
            .rules
            .iter()
            .take(self.assigned.len())
            .any(|rule| matches!(rule.limit, Some(Limit::Rate(_, Key::Prefix { .. }))));
        let words = state::table_words(self.policy.keys);
        if !limits_of_keys {
            self.keys = None;
        } else if self.keys.as_ref().is_none_or(|keys| keys.len() != words) {
            self.keys = Some(Mapped::new("weir_keys", words)?);
        }
        let judged_on = match &self.policy.interface {
            Some(interface) => interface_index(&interface.name).unwrap_or(0),
            None => 0,
        };
        let mut instructions_max = INSTRUCTIONS_MAX;
        loop {
            let fit = self.fitting(state, instructions_max);
            self.assigned.truncate(fit);
            // A packet is judged once: on the interface, if its program is loaded, or here.
            let plan = self.plan(state, Goal::Police, instructions_max);
            let compiled = compile::police(&plan, Hook::Socket { judged_on })?;
            let is_long = compiled.program.insns().len() > INSTRUCTIONS_NEAR_MAX;
            match LoadedProgram::load(ProgramKind::SocketFilter, &compiled.program) {
                Ok(program) => {
                    self.policing = Some(program);
                    return Ok(());
                }
                // Far jumps are new, and a verifier has limits of its own.
                Err(KernelError::Refused { .. }) if is_long => {
                    instructions_max = INSTRUCTIONS_NEAR_MAX;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// How many of the assigned rules, from the first, make a program that is not too long.
    fn fitting(&self, state: &State, instructions_max: usize) -> usize {
        let fits = |rules: usize| {
            let slots = &self.assigned[..rules];
            let plan = Plan { slots, ..self.plan(state, Goal::Police, instructions_max) };
            compile::police(&plan, Hook::Socket { judged_on: 0 }).is_ok()
        };
        let (mut low, mut high) = (0, self.assigned.len());
        if fits(high) {
            return high;
        }
        while low + 1 < high {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }

    fn plan<'a>(&'a self, state: &'a State, goal: Goal, instructions_max: usize) -> Plan<'a> {
        let (policy, slots, keys) = (&self.policy, &self.assigned[..], self.keys.as_ref());
        Plan { policy, slots, state, keys, goal, instructions_max }
    }

    /// Puts the same program on the interface that the policy names, or in the place of the old.
    fn load_link(&mut self, state: &State, reasons: &mut Vec<String>) {
        let wanted = self.policy.interface.clone().filter(|_| self.policing.is_some());
        let Some(interface) = wanted else {
            self.link = None;
            return;
        };
        match self.try_load_link(state, &interface) {
            Ok(kind) => self.enforcement.interface = Some((interface.name, kind)),
            Err(e) => {
                self.link = None;
                reasons.push(e.to_string());
                // Nothing is judged there, so that sockets must judge all.
                if let Err(e) = self.load_policing_everywhere(state) {
                    reasons.push(e.to_string());
                }
            }
        }
    }

    fn try_load_link(
        &mut self,
        state: &State,
        interface: &Interface,
    ) -> Result<&'static str, KernelError> {
        let (hook, kind) = match interface.hook {
            InterfaceHook::Xdp => (Hook::Xdp, ProgramKind::Xdp),
            InterfaceHook::Tcx => (Hook::Tcx, ProgramKind::Tcx),
        };
        let index = interface_index(&interface.name)?;
        let compiled = compile::police(&self.plan(state, Goal::Police, INSTRUCTIONS_MAX), hook)?;
        let program = LoadedProgram::load(kind, &compiled.program)?;
        if let Some((_, link)) = self.link.as_ref().filter(|(known, _)| known == interface) {
            link.replace(&program)?;
        } else {
            // Of two programs at once, each packet would be charged twice.
            self.link = None;
            let link = match interface.hook {
                InterfaceHook::Xdp => Link::xdp(&program, index)?.0,
                InterfaceHook::Tcx => Link::tcx(&program, index)?,
            };
            self.link = Some((interface.clone(), link));
        }
        Ok(if hook == Hook::Xdp { "XDP" } else { "tcx" })
    }

    fn load_policing_everywhere(&mut self, state: &State) -> Result<(), KernelError> {
        let plan = self.plan(state, Goal::Police, INSTRUCTIONS_MAX);
        let compiled = compile::police(&plan, Hook::Socket { judged_on: 0 })?;
        self.policing = Some(LoadedProgram::load(ProgramKind::SocketFilter, &compiled.program)?);
        Ok(())
    }

    /// Loads anew, and has every socket and group change over.
    fn reload(&mut self, state: Option<&State>) {
        let reasons = match (state, self.policy.kernel) {
            (_, KernelUse::Off) => vec![KernelError::Off.to_string()],
            (None, KernelUse::Auto) => self.enforcement.reasons.clone(),
            (Some(_), KernelUse::Auto) => Vec::new(),
        };
        self.load(state, reasons);
        let mut groups = std::mem::take(&mut self.groups);
        for group in groups.values_mut() {
            for member in &group.members {
                if let Err(e) = self.police(member.socket.as_fd()) {
                    self.complain(&e);
                }
            }
            self.steer(state, group);
        }
        self.groups = groups;
    }

    fn attach(
        &mut self,
        state: Option<&State>,
        address: SocketAddr,
        member: Member,
    ) -> Result<(), KernelError> {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&address) {
            let (what, found) = ("addresses with listeners", GROUPS_MAX + 1);
            return Err(KernelError::TooMany { what, found, max: GROUPS_MAX });
        }
        if self.policing.is_some() {
            self.police(member.socket.as_fd())?;
        }
        let mut group = self.groups.remove(&address).unwrap_or_default();
        let result = group.add(&self.policy, member);
        if result.is_ok() && !group.is_steered_by_program() {
            self.steer(state, &mut group);
        }
        if !group.members.is_empty() {
            self.groups.insert(address, group);
        }
        result
    }

    /// Gives a socket the program there is, or takes away the one it has.
    fn police(&self, socket: BorrowedFd<'_>) -> Result<(), KernelError> {
        match &self.policing {
            Some(program) => attach_filter(socket, program),
            None => detach_filter(socket),
        }
    }

    /// Steers a group as well as it goes, and takes note of how that is.
    fn steer(&mut self, state: Option<&State>, group: &mut Group) {
        if self.policy.class_count() < 2 || self.policy.kernel == KernelUse::Off {
            return group.stop();
        }
        if let Some(state) = state {
            let goal = groups::goal(self.policing.is_some());
            match group.steer(&self.plan(state, goal, INSTRUCTIONS_MAX)) {
                Ok(()) => {
                    self.enforcement.steering = Steering::Program;
                    self.enforcement.steered = self.policy.class_count();
                    return;
                }
                Err(e) => self.complain(&e),
            }
        }
        let classic = groups::classic(&self.policy);
        match group.steer_classic(&classic) {
            Ok(()) => {
                self.enforcement.steering = Steering::Classic { rules: classic.rules };
                self.enforcement.steered = self.policy.class_count();
            }
            Err(e) => self.complain(&e),
        }
    }

    /// Takes note of why something is not enforced, once.
    fn complain(&mut self, error: &KernelError) {
        let reason = error.to_string();
        if !self.enforcement.reasons.contains(&reason) {
            self.enforcement.reasons.push(reason);
        }
    }

    /// Whether the programs that run would do for a policy, rates aside.
    fn is_same_code(&self, policy: &Policy) -> bool {
        let old = &self.policy;
        let rules = old.rules.iter().zip(&policy.rules);
        self.policing.is_some()
            && self.enforcement.policed == old.rules.len()
            && old.rules.len() == policy.rules.len()
            && rules.into_iter().all(|(old, new)| old.is_same_code(new))
            && (&old.classes, old.default_class) == (&policy.classes, policy.default_class)
            && (old.workers, old.keys) == (policy.workers, policy.keys)
            && (&old.exempt, &old.ports) == (&policy.exempt, &policy.ports)
            && (&old.interface, old.kernel) == (&policy.interface, policy.kernel)
    }
}

/// The clock of programs: bpf_ktime_get_ns reads CLOCK_MONOTONIC.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
