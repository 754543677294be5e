//! What a [`Kernel`](super::Kernel) has loaded and attached, and how that changes with its policy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_config::{Interface, InterfaceHook, KernelUse};

use super::groups::{self, Group, Member};
use super::slots::Slots;
use crate::compile::{self, Goal, Hook, Plan};
use crate::enforcement::{Enforcement, Steering};
use crate::error::KernelError;
use crate::limits::{GROUPS_MAX, INSTRUCTIONS_MAX, INSTRUCTIONS_NEAR_MAX};
use crate::policy::{Key, Limit, Policy};
use crate::state::{self, State};
use crate::sys::{
    Link, LoadedProgram, Mapped, ProgramKind, attach_filter, detach_filter, interface_index,
};

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) policy: Arc<Policy>,
    pub(super) slots: Slots,
    /// Lines of the policy's first rules.
    pub(super) assigned: Vec<usize>,
    /// Buckets by key; kept as long as their number is.
    pub(super) keys: Option<Arc<Mapped>>,
    pub(super) policing: Option<LoadedProgram>,
    pub(super) link: Option<(Interface, Link)>,
    pub(super) groups: HashMap<SocketAddr, Group>,
    pub(super) attached: u64,
    pub(super) enforcement: Enforcement,
}

/// What can be asked of it at any time.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) policy: Arc<Policy>,
    pub(super) assigned: Vec<usize>,
    pub(super) keys: Option<Arc<Mapped>>,
    pub(super) is_policing: bool,
    pub(super) enforcement: Enforcement,
}

impl Inner {
    /// How it stands now.
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::new(Known {
            policy: Arc::clone(&self.policy),
            assigned: self.assigned.clone(),
            keys: self.keys.clone(),
            is_policing: self.policing.is_some(),
            enforcement: self.enforcement.clone(),
        })
    }

    /// For a policy of which nothing is loaded yet.
    pub(super) fn new(policy: Policy) -> Inner {
        Inner {
            policy: Arc::new(policy),
            slots: Slots::default(),
            assigned: Vec::new(),
            keys: None,
            policing: None,
            link: None,
            groups: HashMap::new(),
            attached: 0,
            enforcement: Enforcement::default(),
        }
    }

    /// Compiles and loads what polices.
    pub(super) fn load(&mut self, state: Option<&State>, mut reasons: Vec<String>) {
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
            let default = self.policy.default_class as u64 + 1;
            state.word(state::DEFAULT_CLASS).store(default, Ordering::Relaxed);
            self.assigned = self.slots.assign(&self.policy.rules[..expressible], state);
            Slots::write(&self.policy.rules, &self.assigned, state);
            match self.load_policing(state) {
                Ok(refusal) => {
                    self.enforcement.policed = self.assigned.len();
                    if self.assigned.len() < expressible {
                        let fit = self.assigned.len();
                        reasons.push(format!(
                            "of {expressible} rules, the first {fit} fit into the kernel"
                        ));
                    }
                    reasons.extend(refusal.map(|e| e.to_string()));
                }
                Err(e) => {
                    reasons.push(e.to_string());
                    self.assigned.clear();
                }
            }
            self.load_link(state, &mut reasons);
        } else {
            self.link = None;
        }
        self.slots.keep(&self.policy.rules);
        self.enforcement.reasons = reasons;
    }

    /// Loads the policing program, with as many rules as fit. Tells what the verifier did not like
    /// about more.
    fn load_policing(&mut self, state: &State) -> Result<Option<KernelError>, KernelError> {
        if self.assigned.is_empty() && self.policy.penalties.is_empty() {
            return Ok(None);
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
            self.keys = Some(Arc::new(Mapped::new("weir_keys", words)?));
        }
        let judged_on = match self.policy.interface() {
            Some(interface) => interface_index(&interface.name).unwrap_or(0),
            None => 0,
        };
        let mut instructions_max = INSTRUCTIONS_MAX;
        let mut refusal = None;
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
                    return Ok(refusal);
                }
                // Far jumps are new, and a verifier has limits of its own.
                Err(KernelError::Refused { .. }) if is_long => {
                    instructions_max = INSTRUCTIONS_NEAR_MAX;
                }
                Err(e @ KernelError::Refused { .. }) if self.assigned.len() > 1 => {
                    refusal = Some(e);
                    self.assigned.truncate(self.assigned.len() / 2);
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
        let (policy, slots, keys) = (&*self.policy, &self.assigned[..], self.keys.as_deref());
        Plan { policy, slots, state, keys, goal, instructions_max }
    }

    /// Puts the same program on the interface that the policy names, or in the place of the old.
    fn load_link(&mut self, state: &State, reasons: &mut Vec<String>) {
        let wanted = self.policy.interface().cloned().filter(|_| self.policing.is_some());
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
    pub(super) fn reload(&mut self, state: Option<&State>) {
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

    pub(super) fn attach(
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

    /// Moves counters of classes to where the next policy has the classes of these names.
    pub(super) fn carry_classes(&self, next: &Policy, state: &State) {
        if self.policy.classes == next.classes {
            return;
        }
        let old = &self.policy.classes;
        let counts = (0..self.policy.class_count())
            .map(|class| state.of_class(class).load(Ordering::Relaxed))
            .collect::<Vec<u64>>();
        for (class, name) in next.classes.iter().take(next.class_count()).enumerate() {
            let count = old.iter().position(|known| known == name);
            let count = count.and_then(|known| counts.get(known)).copied().unwrap_or(0);
            state.of_class(class).store(count, Ordering::Relaxed);
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
    pub(super) fn is_same_code(&self, policy: &Policy) -> bool {
        let old = &self.policy;
        let rules = old.rules.iter().zip(&policy.rules);
        self.policing.is_some()
            && self.enforcement.policed == old.rules.len()
            && old.rules.len() == policy.rules.len()
            && rules.into_iter().all(|(old, new)| old.is_same_code(new))
            && (&old.classes, old.default_class) == (&policy.classes, policy.default_class)
            && (&old.penalties, &old.spared) == (&policy.penalties, &policy.spared)
            && (old.workers, old.keys) == (policy.workers, policy.keys)
            && (&old.exempt, &old.ports) == (&policy.exempt, &policy.ports)
            && (&old.interface, old.kernel) == (&policy.interface, policy.kernel)
    }
}
