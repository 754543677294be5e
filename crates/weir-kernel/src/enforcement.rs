//! What is enforced where, for people: the log at start, and `weir status`.

use std::fmt;

/// Where rules for connections are enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// Rules for connections there are.
    pub rules: usize,
    /// How many of them, from the first, are enforced by the policing program. The others are for
    /// user space.
    pub policed: usize,
    /// Classes that connections are steered to.
    pub steered: usize,
    /// By what.
    pub steering: Steering,
    /// A program that polices on a network interface, too: its name, and the kind of program.
    pub interface: Option<(String, &'static str)>,
    /// Why not more is done by the kernel, a line each.
    pub reasons: Vec<String>,
}

/// What puts a connection into its class's accept queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// A program that knows all conditions of rules for connections.
    Program,
    /// A classic program: source prefixes as far as they can be said, from so many first rules.
    Classic {
        /// The first rules that are taken account of.
        rules: usize,
    },
    /// Nothing: the kernel spreads connections over all sockets alike.
    #[default]
    None,
}

impl Enforcement {
    /// One fact a line, without a final newline each.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        let mut kernel = Vec::new();
        if self.policed > 0 {
            kernel.push(format!("policing {}", count(self.policed, "rule")));
        }
        match self.steering {
            Steering::Program => kernel.push(format!("steering {}", classes(self.steered))),
            Steering::Classic { rules } => {
                let by = count(rules, "rule");
                kernel.push(format!("steering {} (classic BPF, {by})", classes(self.steered)));
            }
            Steering::None => {}
        }
        if !kernel.is_empty() {
            facts.push(format!("kernel: {}", kernel.join(", ")));
        }
        if let Some((name, kind)) = &self.interface {
            facts.push(format!("interface {name}: {kind}"));
        }
        if self.policed < self.rules {
            let left = count(self.rules - self.policed, "rule");
            facts.push(format!("user space: {left} after accept"));
        }
        facts.extend(self.reasons.iter().cloned());
        facts
    }
}

impl fmt::Display for Enforcement {
    /// All facts on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.facts().join("; "))
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn classes(number: usize) -> String {
    format!("{number} class{}", if number == 1 { "" } else { "es" })
}
