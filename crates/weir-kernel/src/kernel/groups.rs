//! Listeners that share an address: a SO_REUSEPORT group, its steering program, and which socket is
//! whose.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use crate::classic::{self, Classic};
use crate::compile::{self, Goal, Plan};
use crate::error::KernelError;
use crate::policy::Policy;
use crate::sys::{
    LoadedProgram, ProgramKind, SocketArray, attach_classic, attach_steering, detach_steering,
};

/// A listener that is attached.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    pub(super) class: String,
    pub(super) worker: usize,
}

/// Listeners of one address, in the order in which they began to listen.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<Member>,
    mode: Mode,
}

/// How a group is steered.
#[derive(Debug, Default)]
enum Mode {
    /// Not at all.
    #[default]
    None,
    /// By a program that chooses from the array; who is in which place.
    Program { sockets: SocketArray, places: HashMap<usize, u64> },
    /// By a classic program, which is written anew when members come or go.
    Classic,
}

impl Group {
    /// Begins to steer, or exchanges the program: for the sockets it makes no difference which one
    /// a packet meets. On error there is no steering.
    pub(super) fn steer(&mut self, plan: &Plan<'_>) -> Result<(), KernelError> {
        let result = self.try_steer(plan);
        if result.is_err() {
            self.stop();
        }
        result
    }

    fn try_steer(&mut self, plan: &Plan<'_>) -> Result<(), KernelError> {
        let Some(first) = self.members.first() else { return Ok(()) };
        let sockets = SocketArray::new(plan.policy.class_count() * plan.policy.workers)?;
        let compiled = compile::steer(plan, &sockets)?;
        let program = LoadedProgram::load(ProgramKind::Steering, &compiled.program)?;
        let mut places = HashMap::new();
        for member in &self.members {
            put(&sockets, &mut places, plan.policy, member)?;
        }
        attach_steering(first.socket.as_fd(), &program)?;
        self.mode = Mode::Program { sockets, places };
        Ok(())
    }

    /// Steers as well as a classic program can.
    pub(super) fn steer_classic(&mut self, classic: &Classic) -> Result<(), KernelError> {
        let Some(first) = self.members.first() else { return Ok(()) };
        let members: Vec<(&str, usize)> =
            self.members.iter().map(|member| (member.class.as_str(), member.worker)).collect();
        attach_classic(first.socket.as_fd(), &classic.program(&members))?;
        self.mode = Mode::Classic;
        Ok(())
    }

    /// Whether a new member needs no more than a place.
    pub(super) fn is_steered_by_program(&self) -> bool {
        matches!(self.mode, Mode::Program { .. })
    }

    /// Adds a listener; a steering program finds it from now on.
    pub(super) fn add(&mut self, policy: &Policy, member: Member) -> Result<(), KernelError> {
        if let Mode::Program { sockets, places } = &mut self.mode {
            put(sockets, places, policy, &member)?;
        }
        self.members.push(member);
        Ok(())
    }

    /// Removes a listener, before it is closed. The classic program is to be written anew.
    pub(super) fn remove(&mut self, id: u64) -> Option<Member> {
        let index = self.members.iter().position(|member| member.id == id)?;
        if let Mode::Program { sockets, places } = &mut self.mode {
            places.retain(|place, owner| {
                if *owner == id {
                    // One that has been closed has left the array by itself.
                    let _gone = sockets.remove(*place);
                }
                *owner != id
            });
        }
        // The kernel does the same with its own list when a socket closes.
        Some(self.members.swap_remove(index))
    }

    /// Lets the kernel spread connections over all sockets.
    pub(super) fn stop(&mut self) {
        if let Some(first) = self.members.first() {
            // Kernels before 5.3 cannot; the program then goes with the last socket.
            let _stays = detach_steering(first.socket.as_fd());
        }
        self.mode = Mode::None;
    }

    pub(super) fn is_classic(&self) -> bool {
        matches!(self.mode, Mode::Classic)
    }
}

/// Puts a listener into its place. One whose class or worker the policy does not know gets none.
fn put(
    sockets: &SocketArray,
    places: &mut HashMap<usize, u64>,
    policy: &Policy,
    member: &Member,
) -> Result<(), KernelError> {
    let class = policy.classes.iter().position(|class| *class == member.class);
    let class = class.filter(|class| *class < policy.class_count());
    let Some(class) = class.filter(|_| member.worker < policy.workers) else { return Ok(()) };
    let place = class * policy.workers + member.worker;
    sockets
        .put(place, member.socket.as_fd())
        .map_err(|e| KernelError::bpf("putting a listener into its place", e))?;
    places.insert(place, member.id);
    Ok(())
}

/// What steering programs are compiled from.
pub(super) fn goal(has_policing: bool) -> Goal {
    Goal::Steer { counts: !has_policing }
}

/// The classic program of a policy.
pub(super) fn classic(policy: &Policy) -> Classic {
    classic::Classic::new(policy)
}
