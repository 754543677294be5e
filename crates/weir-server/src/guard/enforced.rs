//! Where how many of the rules in force are enforced, as the status and the metrics say it.

use serde::Serialize;
use weir_kernel::Steering;

use super::Guard;

/// How many rules hold where, and which programs do their part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Enforced {
    /// Rules for connections that the kernel enforces.
    pub(crate) kernel: usize,
    /// Those that are enforced after connections are accepted.
    pub(crate) accept: usize,
    /// Rules for requests.
    pub(crate) request: usize,
    /// A program drops at listeners what rules refuse.
    pub(crate) policing: bool,
    /// A program puts connections into their class's queue.
    pub(crate) steering: bool,
    /// A program drops at a network interface what rules refuse.
    pub(crate) interface: bool,
}

impl Guard {
    /// What is enforced where at the moment.
    pub(crate) fn enforced(&self) -> Enforced {
        let in_force = self.in_force();
        let rules = &in_force.guard.rules;
        let of_connections = rules.iter().filter(|rule| rule.is_of_connections()).count();
        let mut enforced = Enforced {
            accept: of_connections,
            request: rules.len() - of_connections,
            ..Enforced::default()
        };
        if let Some(kernel) = self.kernel() {
            let facts = kernel.enforcement();
            enforced.kernel = facts.policed.min(of_connections);
            enforced.accept = of_connections - enforced.kernel;
            enforced.policing = facts.policed > 0;
            enforced.steering = facts.steering != Steering::None;
            enforced.interface = facts.interface.is_some();
        }
        enforced
    }
}
