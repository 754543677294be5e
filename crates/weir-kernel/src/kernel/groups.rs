//! Listeners that share an address: a SO_REUSEPORT group, its steering program, and which socket is
//! whose.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use crate::classic::{self, Classic};
use crate::compile::{self, Goal, Plan};
use crate::error::KernelError;
use crate::limits::CLASSES_MAX;
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
    Program(Box<Places>),
    /// By a classic program, which is written anew when members come or go.
    Classic,
}

/// An array of sockets. A socket can be in one array only, so that this one stays while programs
/// come and go.
#[derive(Debug)]
struct Places {
    sockets: SocketArray,
    /// Who is where.
    owners: HashMap<usize, u64>,
    /// Classes by the part of the array that they have, so that a class keeps its own while others
    /// come and go; there is room for two policies.
    lanes: [Option<String>; LANES],
    workers: usize,
}

/// Parts of an array.
const LANES: usize = 2 * CLASSES_MAX;

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
        let policy = plan.policy;
        let mut places = match std::mem::take(&mut self.mode) {
            Mode::Program(places) if places.workers == policy.workers => places,
            _ => Box::new(Places::new(policy.workers)?),
        };
        places.give_lanes(policy);
        for member in &self.members {
            places.put(policy, member)?;
        }
        let compiled = compile::steer(plan, places.sockets.fd(), &places.lanes_of(policy))?;
        let program = LoadedProgram::load(ProgramKind::Steering, &compiled.program)?;
        attach_steering(first.socket.as_fd(), &program)?;
        places.keep_lanes(policy);
        self.mode = Mode::Program(places);
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
        matches!(self.mode, Mode::Program(_))
    }

    /// Adds a listener; a steering program finds it from now on.
    pub(super) fn add(&mut self, policy: &Policy, member: Member) -> Result<(), KernelError> {
        if let Mode::Program(places) = &mut self.mode {
            places.put(policy, &member)?;
        }
        self.members.push(member);
        Ok(())
    }

    /// Removes a listener, before it is closed. The classic program is to be written anew.
    pub(super) fn remove(&mut self, id: u64) -> Option<Member> {
        let index = self.members.iter().position(|member| member.id == id)?;
        if let Mode::Program(places) = &mut self.mode {
            places.remove(|_, owner| owner == id);
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

impl Places {
    fn new(workers: usize) -> Result<Places, KernelError> {
        let sockets = SocketArray::new(LANES * workers)?;
        let lanes = [const { None }; LANES];
        Ok(Places { sockets, owners: HashMap::new(), lanes, workers })
    }

    /// Parts for the classes of a policy, beside those of the one before.
    fn give_lanes(&mut self, policy: &Policy) {
        for class in policy.classes.iter().take(policy.class_count()) {
            if self.lane(class).is_none() {
                let free = self.lanes.iter_mut().find(|lane| lane.is_none());
                free.map(|lane| lane.insert(class.clone()));
            }
        }
    }

    /// Frees the parts of classes that are no more.
    fn keep_lanes(&mut self, policy: &Policy) {
        let is_gone = |class: &String| !policy.classes.contains(class);
        let gone = self.lanes.each_ref().map(|lane| lane.as_ref().is_some_and(is_gone));
        let workers = self.workers;
        self.remove(|place, _| gone[place / workers]);
        self.lanes
            .iter_mut()
            .zip(gone)
            .filter(|(_, gone)| *gone)
            .for_each(|(lane, _)| *lane = None);
    }

    /// The parts of a policy's classes, by their index.
    fn lanes_of(&self, policy: &Policy) -> Vec<usize> {
        let classes = policy.classes.iter().take(policy.class_count());
        classes.filter_map(|class| self.lane(class)).collect()
    }

    fn lane(&self, class: &str) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.as_deref() == Some(class))
    }

    /// Puts a listener into its place, unless it is there. One whose class or worker the policy
    /// does not know gets none.
    fn put(&mut self, policy: &Policy, member: &Member) -> Result<(), KernelError> {
        let known = policy.classes.contains(&member.class) && member.worker < self.workers;
        let Some(lane) = self.lane(&member.class).filter(|_| known) else { return Ok(()) };
        let place = lane * self.workers + member.worker;
        if self.owners.get(&place) == Some(&member.id) {
            return Ok(());
        }
        self.sockets
            .put(place, member.socket.as_fd())
            .map_err(|e| KernelError::bpf("putting a listener into its place", e))?;
        self.owners.insert(place, member.id);
        Ok(())
    }

    /// Empties the places that are meant.
    fn remove(&mut self, is_meant: impl Fn(usize, u64) -> bool) {
        let sockets = &self.sockets;
        self.owners.retain(|place, owner| {
            let goes = is_meant(*place, *owner);
            if goes {
                // A listener that has been closed has left by itself.
                let _gone = sockets.remove(*place);
            }
            !goes
        });
    }
}

/// What steering programs are compiled from.
pub(super) fn goal(has_policing: bool) -> Goal {
    Goal::Steer { counts: !has_policing }
}

/// The classic program of a policy.
pub(super) fn classic(policy: &Policy) -> Classic {
    classic::Classic::new(policy)
}
