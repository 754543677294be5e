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
//! To load programs takes CAP_BPF; to put one on an interface takes CAP_NET_ADMIN, too (found by
//! trying on Linux 6.18, see `life_tests.rs`; kernels before 5.8 ask for CAP_SYS_ADMIN). With
//! CAP_PERFMON besides, the kernel leaves its guards against speculation out of programs, and the
//! verifier takes larger ones. All else works after privileges were dropped: attaching loaded
//! programs to sockets, detaching them, and whatever goes through shared memory; a listener's place
//! in its group's array is given by bpf(2), which Linux before 5.19 refuses where
//! `kernel.unprivileged_bpf_disabled` is set. A group whose first listener is attached later needs
//! a program of its own. [`Kernel::replace`] needs the privilege unless rules differ in their rates
//! only; without it, user space takes over, and `enforcement` says so.
//!
//! # Cost
//!
//! Accepted connections inherit their listener's program. It takes 5 ns for a packet that is no SYN
//! (`examples/decisions.rs`), and with what the kernel does around it 40 ns of the 3.6 µs that a
//! small message over loopback takes. [`detach_accepted`] takes it off for one system call of a
//! quarter of a microsecond and a little work later on: connections that receive twenty packets or
//! more have that back.

mod groups;
mod inner;
#[cfg(test)]
mod life_tests;
mod slots;
#[cfg(test)]
mod traffic_tests;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use weir_config::{KernelUse, PrefixLengths};

use crate::counters::Counters;
use crate::enforcement::{Enforcement, Steering};
use crate::error::KernelError;
use crate::policy::{Key, Limit, Policy};
use crate::state::{self, State};
use crate::sys::detach_filter;

use groups::Member;
use inner::{Inner, Known};
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
    /// How that stood after its last change: whoever serves clients does not wait for the next,
    /// which takes as long as programs take to load.
    known: Mutex<Arc<Known>>,
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
        let mut inner = Inner::new(policy.clone());
        inner.load(state.as_ref(), reasons);
        let known = Mutex::new(inner.known());
        Kernel { shared: Arc::new(Shared { state, inner: Mutex::new(inner), known }) }
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
        let id = self.shared.change(|inner, state| -> Result<u64, KernelError> {
            let id = inner.attached;
            let member = Member { id, socket, class: class.to_owned(), worker };
            inner.attach(state, address, member)?;
            inner.attached += 1;
            Ok(id)
        })?;
        Ok(Attachment { shared: Arc::clone(&self.shared), address, id })
    }

    /// Enforces another policy from now on. Rules of the same name keep buckets and counters. If
    /// rules differ in their rates only, so much is written into shared memory, and nothing loaded.
    /// Else each socket changes from the old program to the new one at once; what cannot be loaded
    /// is user space's from now on, as [`Kernel::enforcement`] says.
    pub fn replace(&self, policy: &Policy) {
        self.shared.change(|inner, state| {
            let same = inner.is_same_code(policy);
            if let Some(state) = state {
                inner.carry_classes(policy, state);
            }
            inner.policy = Arc::new(policy.clone());
            match state {
                Some(state) if same => Slots::write(&inner.policy.rules, &inner.assigned, state),
                _ => inner.reload(state),
            }
        });
    }

    /// Whether limits hold that are not for always.
    pub fn set_overload(&self, is_overloaded: bool) {
        if let Some(state) = &self.shared.state {
            state.word(state::OVERLOAD).store(is_overloaded.into(), Ordering::Relaxed);
        }
    }

    /// Drops new connections of a source's prefix for a time, on all listeners that are attached.
    /// Tells whether the kernel does so; it knows prefixes of the lengths that its policy has.
    pub fn penalise(&self, source: IpAddr, by: PrefixLengths, lasts: Duration) -> bool {
        let Some(state) = &self.shared.state else { return false };
        let known = self.shared.known();
        if !known.is_policing || !known.policy.penalties.contains(&by) {
            return false;
        }
        let lasts = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let until = state.clock().now_ns().saturating_add(lasts).min(i64::MAX.cast_unsigned());
        state.penalise(source.to_canonical(), by, until);
        true
    }

    /// What programs have counted since the start; of rules, since they have their name.
    pub fn counters(&self) -> Counters {
        let known = self.shared.known();
        let Some(state) = &self.shared.state else { return Counters::default() };
        Counters::read(state, &known.policy, &known.assigned)
    }

    /// Whether listeners that are attached get what is of their class. As long as the policy has no
    /// classes, or is to stay out of the kernel, nothing speaks against that.
    pub fn steers(&self) -> bool {
        let known = self.shared.known();
        let is_wanted = known.policy.class_count() > 1 && known.policy.kernel == KernelUse::Auto;
        !is_wanted || known.enforcement.steering != Steering::None
    }

    /// What is enforced where.
    pub fn enforcement(&self) -> Enforcement {
        self.shared.known().enforcement.clone()
    }

    /// Connections that the bucket of a rule has room for now, where the kernel keeps it: for this
    /// source, if the rule has one for each. `None` if it keeps none. Takes nothing from it.
    pub fn tokens_left(&self, rule: &str, source: Option<IpAddr>) -> Option<u64> {
        let state = self.shared.state.as_ref()?;
        let known = self.shared.known();
        let policed =
            known.policy.rules.iter().zip(&known.assigned).take(known.enforcement.policed);
        let (found, slot) = policed.into_iter().find(|(one, _)| one.name == rule)?;
        match found.limit? {
            Limit::Refuse => None,
            Limit::Rate(_, Key::Rule) => Some(state.tokens_left(*slot, None)),
            Limit::Rate(_, Key::Prefix { v4, v6 }) => {
                let by = PrefixLengths { v4, v6 };
                let mark = state.mark(rule, source?.to_canonical(), by);
                Some(state.tokens_left(*slot, Some((known.keys.as_deref()?, mark))))
            }
        }
    }

    /// Whether connections that come by attached listeners were judged by this rule already.
    pub fn polices(&self, rule: &str) -> bool {
        let known = self.shared.known();
        known.policy.rules().take(known.enforcement.policed).any(|name| name == rule)
    }
}

impl Shared {
    /// Does something that others do not meet half done.
    fn change<R>(&self, act: impl FnOnce(&mut Inner, Option<&State>) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = act(&mut inner, self.state.as_ref());
        *self.known.lock() = inner.known();
        result
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.lock())
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

/// Takes the policing program off an accepted connection, which inherited it.
///
/// # Errors
/// What the system says; the connection then keeps it, which does no harm.
pub fn detach_accepted(connection: BorrowedFd<'_>) -> Result<(), KernelError> {
    detach_filter(connection)
}
