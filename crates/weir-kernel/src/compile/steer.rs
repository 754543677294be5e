//! Steering programs: the class that rules give a connection, and a socket of that class.

use std::os::fd::RawFd;

use super::frame::*;
use super::sources::Family;
use super::steps::Functions;
use super::{Compiled, Goal, Plan, count, decide, parse};
use crate::asm::{Alu, Assembler, Cond, Label, Reg, Size, Width};
use crate::error::KernelError;
use crate::state::{UNSTEERED, class_word};

/// What becomes of the class.
pub(super) enum Choice<'a> {
    /// One of its sockets is chosen.
    Sockets { array: RawFd, lanes: &'a [usize] },
    /// Its index plus one is the program's result.
    #[cfg(test)]
    Result,
}

/// Workers that are tried when sockets are missing, as while listeners come and go.
const WORKERS_TRIED: usize = 4;

/// Field of `struct sk_reuseport_md`: a hash of addresses and ports.
const HASH: i16 = 32;

/// The end of a steering program: the packet goes on, with the socket that was chosen, or else with
/// one that the kernel chooses by itself.
const SK_PASS: i32 = 1;

pub(super) fn steer(plan: &Plan<'_>, choice: Choice<'_>) -> Result<Compiled, KernelError> {
    let mut asm = Assembler::new();
    let ends = Ends { pass: asm.label(), drop: asm.label() };
    let classes: Vec<Label> = (0..plan.policy.class_count()).map(|_| asm.label()).collect();
    let default = classes.get(plan.policy.default_class).copied().unwrap_or(ends.pass);
    let (v4, v6) = (asm.label(), asm.label());
    let families = [(Family::V4, v4), (Family::V6, v6)];
    match choice {
        Choice::Sockets { .. } => parse::steering(&mut asm, &families, ends, plan.needs()),
        #[cfg(test)]
        Choice::Result => {
            let needs = plan.needs();
            parse::parse(&mut asm, parse::Hook::TestRun, &families, ends, &[], needs);
        }
    }
    let functions = Functions { bucket: asm.label(), keyed: asm.label(), policed: asm.label() };
    // The default class is what is left at the end of a line.
    let line_ends = Ends { pass: default, drop: ends.drop };
    let tables = decide(&mut asm, plan, &families, line_ends, &classes, functions)?;
    for (class, label) in classes.iter().enumerate() {
        asm.place(*label);
        match choice {
            Choice::Sockets { array, lanes } => {
                if let Some(lane) = lanes.get(class) {
                    count_steered(&mut asm, plan, class);
                    select(&mut asm, plan, array, *lane, ends.pass);
                } else {
                    asm.goto(ends.pass);
                }
            }
            #[cfg(test)]
            Choice::Result => asm.exit_with(class as i32 + 1),
        }
    }
    asm.place(ends.pass);
    asm.exit_with(SK_PASS);
    Ok(Compiled { program: asm.finish(plan.instructions_max)?, tables })
}

/// Counts a connection for its class, if policing does not.
fn count_steered(asm: &mut Assembler, plan: &Plan<'_>, class: usize) {
    if plan.goal == (Goal::Steer { counts: true }) {
        let no_syn = asm.label();
        parse::unless_syn(asm, no_syn);
        asm.map_value(Reg::R2, plan.state.fd(), (class_word(class) * 8) as u32);
        count(asm, Reg::R2, 0);
        asm.place(no_syn);
    }
}

/// Chooses the socket of a class on the worker that the connection's hash says, or on one of the
/// next workers.
fn select(asm: &mut Assembler, plan: &Plan<'_>, sockets: RawFd, lane: usize, pass: Label) {
    let workers = plan.policy.workers;
    asm.load(Size::Word, Reg::R7, CONTEXT, HASH);
    asm.alu_of(Width::W32, Alu::Mod, Reg::R7, workers as i32);
    for tried in 0..WORKERS_TRIED.min(workers) {
        if tried > 0 {
            let wrapped = asm.label();
            asm.alu(Alu::Add, Reg::R7, 1);
            asm.jump(Cond::Less, Reg::R7, workers as i32, wrapped);
            asm.mov(Reg::R7, 0);
            asm.place(wrapped);
        }
        asm.mov(Reg::R1, Reg::R7);
        asm.alu(Alu::Add, Reg::R1, (lane * workers) as i32);
        asm.store(Size::Word, Reg::R10, KEY, Reg::R1);
        asm.mov(Reg::R1, CONTEXT);
        asm.map(Reg::R2, sockets);
        asm.mov(Reg::R3, Reg::R10);
        asm.alu(Alu::Add, Reg::R3, i32::from(KEY));
        asm.mov(Reg::R4, 0);
        asm.call(SK_SELECT_REUSEPORT);
        asm.jump(Cond::Equal, Reg::R0, 0, pass);
    }
    asm.map_value(Reg::R2, plan.state.fd(), 0);
    count(asm, Reg::R2, UNSTEERED);
    asm.goto(pass);
}
