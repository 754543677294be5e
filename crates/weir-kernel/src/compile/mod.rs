//! From rules to programs. A program looks what it has before it is (`parse`), finds the rules that
//! may hold for the source (`lookup`, in what `sources` and `table` prepared), and goes through
//! them in order (`steps`, `bucket`). Nothing here asks the kernel for anything but maps.

mod bucket;
mod frame;
mod lookup;
mod parse;
#[cfg(test)]
mod penalty_tests;
#[cfg(test)]
mod property_tests;
mod sources;
mod steer;
mod steps;
mod table;
#[cfg(test)]
mod tests;

use std::os::fd::RawFd;

use crate::asm::{Alu, Assembler, Label, Program, Reg};
use crate::error::KernelError;
use crate::policy::{Key, Limit, Policy, Rule};
use crate::state::{DEFAULT_CLASS, State, class_word};
use crate::sys::Mapped;

use bucket::Keys;
use frame::*;
use sources::{Family, Source, Sources, range};
use steps::{Functions, Lines};
use table::Table;

pub(crate) use parse::Hook;

/// What is compiled.
pub(crate) struct Plan<'a> {
    pub(crate) policy: &'a Policy,
    /// The first rules only, as many as there are slots.
    pub(crate) slots: &'a [usize],
    pub(crate) state: &'a State,
    /// The buckets by key, if some rule has such.
    pub(crate) keys: Option<&'a Mapped>,
    pub(crate) goal: Goal,
    pub(crate) instructions_max: usize,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Drops what rules refuse.
    Police,
    /// Finds the class. It counts connections if no other program does.
    Steer {
        /// Whether it counts.
        counts: bool,
    },
}

/// A program, and the tables it reads, which are to live until it is loaded.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) program: Program,
    #[expect(dead_code, reason = "held for its descriptors, which the program names")]
    pub(crate) tables: Vec<Table>,
}

/// What is done about a packet, in order.
pub(super) enum Step<'a> {
    /// Sources that are left alone.
    Exempt(&'a weir_config::AddressSet),
    /// Prefixes that are policed for a while.
    Penalty,
    /// A rule and its slot.
    Rule(usize, &'a Rule),
}

/// What a policing program ends with, by what it is attached to.
struct Verdicts {
    pass: i32,
    drop: i32,
}

impl Hook {
    fn verdicts(self) -> Verdicts {
        match self {
            // As many bytes as are kept: all or none.
            Hook::Socket { .. } => Verdicts { pass: -1, drop: 0 },
            #[cfg(test)]
            Hook::TestRun => Verdicts { pass: -1, drop: 0 },
            // TCX_NEXT and TCX_DROP.
            Hook::Tcx => Verdicts { pass: -1, drop: 2 },
            // XDP_PASS and XDP_DROP.
            Hook::Xdp => Verdicts { pass: 2, drop: 1 },
        }
    }
}

/// Compiles the program that polices.
pub(crate) fn police(plan: &Plan<'_>, hook: Hook) -> Result<Compiled, KernelError> {
    let mut asm = Assembler::new();
    let ends = Ends { pass: asm.label(), drop: asm.label() };
    let accept = Ends { pass: asm.label(), drop: ends.drop };
    let (v4, v6) = (asm.label(), asm.label());
    let families = [(Family::V4, v4), (Family::V6, v6)];
    parse::parse(&mut asm, hook, &families, ends, &plan.policy.ports, plan.needs());
    let functions = Functions { bucket: asm.label(), keyed: asm.label(), policed: asm.label() };
    let tables = decide(&mut asm, plan, &families, accept, &[], functions)?;
    // A connection that gets through is counted for its class.
    asm.place(accept.pass);
    count_class(&mut asm, plan);
    asm.place(ends.pass);
    let verdicts = hook.verdicts();
    asm.exit_with(verdicts.pass);
    asm.place(ends.drop);
    asm.exit_with(verdicts.drop);
    write_functions(&mut asm, plan, functions);
    Ok(Compiled { program: asm.finish(plan.instructions_max)?, tables })
}

/// Compiles the program that chooses a socket of an array, which has a part with a socket for each
/// worker for each class; `lanes` says which.
pub(crate) fn steer(
    plan: &Plan<'_>,
    sockets: RawFd,
    lanes: &[usize],
) -> Result<Compiled, KernelError> {
    steer::steer(plan, steer::Choice::Sockets { array: sockets, lanes })
}

/// The same choice of a class, as the result of a policing program: the index plus one. There are
/// no test runs of steering programs.
#[cfg(test)]
pub(crate) fn classify(plan: &Plan<'_>) -> Result<Compiled, KernelError> {
    steer::steer(plan, steer::Choice::Result)
}

/// Compiles what a listener gets that is about to be closed: no connection begins.
pub(crate) fn refuse() -> Result<Program, KernelError> {
    let mut asm = Assembler::new();
    let pass = asm.label();
    asm.mov(CONTEXT, Reg::R1);
    parse::unless_first(&mut asm, pass);
    let verdicts = Hook::Socket { judged_on: 0 }.verdicts();
    asm.exit_with(verdicts.drop);
    asm.place(pass);
    asm.exit_with(verdicts.pass);
    Ok(asm.finish(crate::limits::INSTRUCTIONS_MAX)?)
}

/// Writes look-ups and lines of both families.
fn decide(
    asm: &mut Assembler,
    plan: &Plan<'_>,
    families: &[(Family, Label)],
    ends: Ends,
    classes: &[Label],
    functions: Functions,
) -> Result<Vec<Table>, KernelError> {
    let steps = plan.steps();
    let rules: Vec<Source<'_>> = steps.iter().map(|step| plan.source(step)).collect();
    let mut lines = Lines::new(plan, &steps, ends, classes, functions);
    let mut tables = Vec::new();
    for (family, place) in families {
        let applies = |index: usize| may_hold(&steps[index], *family);
        let sources = Sources::new(*family, &rules, applies)?;
        let sets: Vec<Label> =
            sources.sets.iter().map(|set| lines.line(asm, *family, set)).collect();
        asm.place(*place);
        tables.extend(lookup::lookup(asm, *family, &sources, &sets, plan.goal)?);
    }
    lines.write(asm);
    Ok(tables)
}

/// Counts a connection for the class in its register; none given is the default class.
fn count_class(asm: &mut Assembler, plan: &Plan<'_>) {
    let known = asm.label();
    asm.jump(crate::asm::Cond::NotEqual, CLASS, 0, known);
    asm.map_value(Reg::R1, plan.state.fd(), (DEFAULT_CLASS * 8) as u32);
    asm.load(crate::asm::Size::Double, CLASS, Reg::R1, 0);
    asm.place(known);
    asm.alu(Alu::Sub, CLASS, 1);
    // The verifier is told what is so: there are at most eight classes.
    asm.alu(Alu::And, CLASS, crate::limits::CLASSES_MAX as i32 - 1);
    asm.alu(Alu::ShiftLeft, CLASS, 6);
    asm.map_value(Reg::R2, plan.state.fd(), (class_word(0) * 8) as u32);
    asm.alu(Alu::Add, Reg::R2, CLASS);
    count(asm, Reg::R2, 0);
}

/// Writes the functions that steps call; the verifier refuses those that nobody calls.
fn write_functions(asm: &mut Assembler, plan: &Plan<'_>, functions: Functions) {
    let state = plan.state.fd();
    let has = |wanted: fn(&Key) -> bool| {
        plan.rules().any(|rule| match &rule.limit {
            Some(Limit::Rate(_, key)) => wanted(key),
            Some(Limit::Refuse) | None => false,
        })
    };
    let is_keyed = plan.keys.filter(|_| has(|key| *key != Key::Rule));
    if let Some(keys) = is_keyed {
        let keys = Keys { fd: keys.fd(), count: plan.policy.keys };
        bucket::keyed(asm, functions.keyed, functions.bucket, keys, state);
    }
    if is_keyed.is_some() || has(|key| *key == Key::Rule) {
        bucket::bucket(asm, functions.bucket, state);
    }
    if !plan.policy.penalties.is_empty() {
        bucket::policed(asm, functions.policed, steps::penalties(plan), state);
    }
}

impl<'a> Plan<'a> {
    /// The rules that are compiled.
    fn rules(&self) -> impl Iterator<Item = &'a Rule> {
        self.policy.rules.iter().take(self.slots.len())
    }

    fn needs(&self) -> Needs {
        Needs {
            destination: self.rules().any(|rule| rule.to.is_some()),
            ports: self.rules().any(|rule| !rule.ports.is_empty() || !rule.from_ports.is_empty()),
        }
    }

    fn steps(&self) -> Vec<Step<'a>> {
        let exempt = self.policy.exempt.as_ref().map(Step::Exempt);
        let has_penalties = self.goal == Goal::Police && !self.policy.penalties.is_empty();
        let penalty = has_penalties.then_some(Step::Penalty);
        // What says nothing about the class is nothing to a steering program that does not count.
        let is_of_use = |rule: &Rule| match self.goal {
            Goal::Police | Goal::Steer { counts: true } => true,
            Goal::Steer { counts: false } => rule.class.is_some() || rule.pass,
        };
        let rules = self.slots.iter().zip(self.rules());
        let rules = rules.filter(|(_, rule)| is_of_use(rule));
        let rules = rules.map(|(slot, rule)| Step::Rule(*slot, rule));
        exempt.into_iter().chain(penalty).chain(rules).collect()
    }

    fn source<'b>(&self, step: &'b Step<'_>) -> Source<'b>
    where
        'a: 'b,
    {
        match step {
            Step::Exempt(set) => Source { from: Some(set), inverted: false, ends: true },
            Step::Penalty => {
                Source { from: self.policy.spared.as_ref(), inverted: true, ends: false }
            }
            Step::Rule(_, rule) => {
                let decides = self.goal != Goal::Police && rule.class.is_some();
                let ends = rule.is_of_source() && (rule.pass || decides);
                Source { from: rule.from.as_ref(), inverted: false, ends }
            }
        }
    }
}

/// Whether a step's conditions can hold for addresses of a family.
fn may_hold(step: &Step<'_>, family: Family) -> bool {
    let Step::Rule(_, Rule { to: Some(to), .. }) = step else { return true };
    to.ranges().iter().any(|(first, last)| range(family, *first, *last).is_some())
}
