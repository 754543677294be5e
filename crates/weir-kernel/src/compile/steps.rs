//! Rules as instructions. The rules that may hold for a source stand in a line, each going on to
//! the next; lines that end alike share their ends, so that ten thousand sources with the same
//! general rules have those once.

use std::collections::{BTreeSet, HashMap};

use weir_config::PrefixLengths;

use super::bucket::{self, Keys};
use super::frame::*;
use super::parse::unless_syn;
use super::sources::{Family, range};
use super::{Goal, Plan, Step};
use crate::asm::{Alu, Assembler, Atomic, Cond, Label, Reg, Size, Width};
use crate::limits::{GIVEN_BACK_MAX, RULES_MAX};
use crate::policy::{Key, Limit, Rule};
use crate::state::{
    ARRIVAL, CLASS as CLASS_WORD, DROPPED, INTERVAL, NOBODY, NUMBER, OFFERED, PENALISED,
    PENALTIES_UNTIL, RULE, SPARED, SPARED_ALL, prefix_bits, prefix_mask, rule_id, rule_word,
};

/// Functions that steps call.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) bucket: Label,
    pub(super) keyed: Label,
    pub(super) policed: Label,
}

/// All lines of a program: a graph of steps, each written once.
pub(super) struct Lines<'a> {
    plan: &'a Plan<'a>,
    steps: &'a [Step<'a>],
    ends: Ends,
    /// Where a steering program goes with each class.
    classes: &'a [Label],
    functions: Functions,
    nodes: Vec<Node>,
    known: HashMap<(Option<Family>, u16, Label, u8), Label>,
}

/// A step that is followed by another.
struct Node {
    label: Label,
    family: Option<Family>,
    step: u16,
    next: Label,
    /// Of a step that may drop: so many before it have taken of a bucket that all share.
    payers: u8,
    /// It is such a one itself, and a later step may drop.
    is_payer: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(
        plan: &'a Plan<'a>,
        steps: &'a [Step<'a>],
        ends: Ends,
        classes: &'a [Label],
        functions: Functions,
    ) -> Lines<'a> {
        let (nodes, known) = (Vec::new(), HashMap::new());
        Lines { plan, steps, ends, classes, functions, nodes, known }
    }

    /// Where the line of these steps begins.
    pub(super) fn line(&mut self, asm: &mut Assembler, family: Family, set: &[u16]) -> Label {
        let mut before = set.iter().filter(|step| self.is_shared(**step)).count();
        let line = set.iter().rev().fold((self.ends.pass, false), |(next, may_drop), step| {
            let (is_shared, drops) = (self.is_shared(*step), self.drops(*step));
            before -= usize::from(is_shared);
            let payers = if drops { before.min(GIVEN_BACK_MAX) as u8 } else { 0 };
            let is_payer = is_shared && may_drop && before < GIVEN_BACK_MAX;
            let depends = match &self.steps[usize::from(*step)] {
                Step::Exempt(_) => false,
                Step::Penalty => true,
                Step::Rule(_, rule) => rule.to.is_some() || self.is_keyed(rule),
            };
            let family = depends.then_some(family);
            let label = self.known.entry((family, *step, next, payers)).or_insert_with(|| {
                let label = asm.label();
                self.nodes.push(Node { label, family, step: *step, next, payers, is_payer });
                label
            });
            (*label, may_drop || drops)
        });
        line.0
    }

    /// The limit of a step that drops what it refuses.
    fn limit(&self, step: u16) -> Option<Limit> {
        match &self.steps[usize::from(step)] {
            Step::Rule(_, rule) if self.plan.goal == Goal::Police => rule.limit,
            _ => None,
        }
    }

    fn drops(&self, step: u16) -> bool {
        self.limit(step).is_some()
    }

    /// Whether a step takes of a bucket that others share.
    fn is_shared(&self, step: u16) -> bool {
        matches!(self.limit(step), Some(Limit::Rate(_, Key::Rule)))
    }

    fn is_keyed(&self, rule: &Rule) -> bool {
        self.plan.goal == Goal::Police
            && matches!(rule.limit, Some(Limit::Rate(_, Key::Prefix { .. })))
    }

    /// Writes all steps. Those that others lead to were made first and come last, so that there is
    /// no jump back.
    pub(super) fn write(&self, asm: &mut Assembler) {
        for node in self.nodes.iter().rev() {
            asm.place(node.label);
            match &self.steps[usize::from(node.step)] {
                Step::Exempt(_) => asm.goto(self.ends.pass),
                Step::Penalty => self.penalty(asm, node),
                Step::Rule(slot, rule) => {
                    // One that is met in any case pays, or nothing comes after it.
                    let pays_or_ends = rule.always && rule.is_of_source() && !rule.dry_run;
                    if node.is_payer && !pays_or_ends {
                        self.note_paid(asm, node, NOBODY);
                    }
                    self.conditions(asm, node, rule);
                    match self.plan.goal {
                        Goal::Police => self.police(asm, node, *slot, rule),
                        Goal::Steer { .. } => self.steer(asm, node, *slot, rule),
                    }
                }
            }
        }
    }

    /// Drops a source one of whose prefixes is policed. Each length is a look-up by a masked key:
    /// with the clock 12 to 16 ns, however many are policed. The kernel's own map of prefixes
    /// (BPF_MAP_TYPE_LPM_TRIE) took 6 more with one entry and 18 more with a thousand, and takes a
    /// system call for each change.
    fn penalty(&self, asm: &mut Assembler, node: &Node) {
        let (next, dropped) = (node.next, asm.label());
        let state = self.plan.state.fd();
        let until = |asm: &mut Assembler| {
            asm.map_value(Reg::R1, state, (PENALTIES_UNTIL * 8) as u32);
            asm.load(Size::Double, Reg::R1, Reg::R1, 0);
        };
        until(asm);
        asm.jump(Cond::Equal, Reg::R1, 0, next);
        ask_time(asm, self.plan.state.clock());
        until(asm);
        asm.jump(Cond::LessOrEqual, Reg::R1, NOW, next);
        let is_v4 = node.family != Some(Family::V6);
        let lengths = self.plan.policy.penalties.iter();
        let lengths: BTreeSet<u32> = lengths.map(|by| prefix_bits(is_v4, *by)).collect();
        for bits in lengths {
            prefix(asm, is_v4, bits);
            asm.mov(Reg::R3, bits as i32);
            asm.call_function(self.functions.policed);
            asm.jump(Cond::Greater, Reg::R0, NOW, dropped);
        }
        asm.goto(next);
        asm.place(dropped);
        asm.map_value(Reg::R2, state, 0);
        count(asm, Reg::R2, PENALISED);
        asm.goto(self.ends.drop);
    }

    /// Goes on to the next step unless the rule's other conditions hold.
    fn conditions(&self, asm: &mut Assembler, node: &Node, rule: &Rule) {
        if !rule.ports.is_empty() {
            asm.mov(Reg::R1, PORTS);
            asm.alu(Alu::And, Reg::R1, 0xffff);
            ports(asm, &rule.ports, node.next);
        }
        if !rule.from_ports.is_empty() {
            asm.mov(Reg::R1, PORTS);
            asm.alu(Alu::ShiftRight, Reg::R1, 16);
            ports(asm, &rule.from_ports, node.next);
        }
        if let (Some(to), Some(family)) = (&rule.to, node.family) {
            let ranges = to.ranges().iter();
            let ranges: Vec<_> =
                ranges.filter_map(|(first, last)| range(family, *first, *last)).collect();
            destination(asm, family, &ranges, node.next);
        }
    }

    /// What a rule does whose conditions hold.
    fn police(&self, asm: &mut Assembler, node: &Node, slot: usize, rule: &Rule) {
        let state = self.plan.state.fd();
        let after = if rule.pass { self.ends.pass } else { node.next };
        self.rule_line(asm, slot);
        let spares_all = rule.limit == Some(Limit::Refuse) && !rule.always;
        if !spares_all {
            count(asm, Reg::R2, OFFERED);
        }
        if rule.class.is_some() {
            let given = asm.label();
            asm.jump(Cond::NotEqual, CLASS, 0, given);
            asm.load(Size::Double, CLASS, Reg::R2, (CLASS_WORD * 8) as i16);
            asm.place(given);
        }
        let Some(limit) = rule.limit else { return asm.goto(after) };
        if !rule.always {
            let holds = asm.label();
            bucket::overload(asm, state);
            asm.jump(Cond::NotEqual, Reg::R0, 0, holds);
            self.spare(asm, slot, limit, after);
            asm.place(holds);
            if spares_all {
                count(asm, Reg::R2, OFFERED);
            }
        }
        if let Limit::Rate(_, key) = limit {
            ask_time(asm, self.plan.state.clock());
            self.ask_bucket(asm, node.family, slot, rule, key);
            if node.is_payer {
                let dropped = asm.label();
                asm.jump(Cond::Equal, Reg::R0, 0, dropped);
                self.note_paid(asm, node, slot);
                asm.goto(after);
                asm.place(dropped);
            } else {
                asm.jump(Cond::NotEqual, Reg::R0, 0, after);
            }
        }
        if rule.dry_run {
            self.rule_line(asm, slot);
            count(asm, Reg::R2, DROPPED);
            return asm.goto(after);
        }
        (0..node.payers).for_each(|payer| self.give_back(asm, payer));
        self.rule_line(asm, slot);
        count(asm, Reg::R2, DROPPED);
        asm.goto(self.ends.drop);
    }

    /// Notes whose bucket a step has taken of.
    fn note_paid(&self, asm: &mut Assembler, node: &Node, slot: usize) {
        self.rule_line(asm, slot);
        asm.load(Size::Double, Reg::R1, Reg::R2, (NUMBER * 8) as i16);
        asm.store(Size::Double, Reg::R10, paid_at(node.payers), Reg::R1);
    }

    /// Gives back what an earlier step took: nothing to nobody. The verifier is told what is so,
    /// that lines are as many as there are.
    fn give_back(&self, asm: &mut Assembler, payer: u8) {
        asm.load(Size::Double, Reg::R1, Reg::R10, paid_at(payer));
        asm.alu(Alu::And, Reg::R1, RULES_MAX as i32 - 1);
        asm.alu(Alu::Mul, Reg::R1, (RULE * 8) as i32);
        self.rule_line(asm, 0);
        asm.alu(Alu::Add, Reg::R2, Reg::R1);
        asm.load(Size::Double, Reg::R3, Reg::R2, (INTERVAL * 8) as i16);
        asm.mov(Reg::R1, 0);
        asm.alu(Alu::Sub, Reg::R1, Reg::R3);
        asm.atomic(Atomic::Add, Reg::R2, (ARRIVAL * 8) as i16, Reg::R1);
    }

    /// The address of a rule's line into `R2`.
    fn rule_line(&self, asm: &mut Assembler, slot: usize) {
        asm.map_value(Reg::R2, self.plan.state.fd(), (rule_word(slot, 0) * 8) as u32);
    }

    /// Goes on after a rule that does not hold, and counts what it would have dropped if that is to
    /// be had for next to nothing: a look at a bucket of its own, without the precision and the
    /// compare-and-swap of one that decides. (The buckets of sources are in a table; to find one
    /// takes ten times as long.) The rule's line is in `R2`.
    fn spare(&self, asm: &mut Assembler, slot: usize, limit: Limit, after: Label) {
        match limit {
            Limit::Refuse => count(asm, Reg::R2, SPARED_ALL),
            Limit::Rate(_, Key::Rule) if self.plan.state.jiffies().is_some() => {
                let spared = asm.label();
                let line = |asm: &mut Assembler| self.rule_line(asm, slot);
                bucket::spare(asm, line, spared, after);
                asm.place(spared);
                count(asm, Reg::R2, SPARED);
            }
            Limit::Rate(..) => {}
        }
        asm.goto(after);
    }

    /// Whether a rule's bucket has room, into `R0`.
    fn ask_bucket(
        &self,
        asm: &mut Assembler,
        family: Option<Family>,
        slot: usize,
        rule: &Rule,
        key: Key,
    ) {
        let line = (rule_word(slot, 0) * 8) as u32;
        let Key::Prefix { v4, v6 } = key else {
            asm.map_value(Reg::R2, self.plan.state.fd(), line);
            asm.map_value(Reg::R1, self.plan.state.fd(), line + (ARRIVAL * 8) as u32);
            asm.mov(Reg::R3, NOW);
            return asm.call_function(self.functions.bucket);
        };
        let is_v4 = family != Some(Family::V6);
        prefix(asm, is_v4, prefix_bits(is_v4, PrefixLengths { v4, v6 }));
        asm.imm64(Reg::R3, rule_id(&rule.name));
        asm.mov(Reg::R4, NOW);
        asm.map_value(Reg::R5, self.plan.state.fd(), line);
        asm.call_function(self.functions.keyed);
    }

    /// Where a steering program goes with a rule whose conditions hold.
    fn steer(&self, asm: &mut Assembler, node: &Node, slot: usize, rule: &Rule) {
        if self.plan.goal == (Goal::Steer { counts: true }) {
            let no_syn = asm.label();
            unless_syn(asm, no_syn);
            self.rule_line(asm, slot);
            count(asm, Reg::R2, OFFERED);
            asm.place(no_syn);
        }
        match rule.class {
            Some(class) => asm.goto(self.classes[class]),
            None if rule.pass => asm.goto(self.ends.pass),
            None => asm.goto(node.next),
        }
    }
}

/// Both halves of a source's prefix into `R1` and `R2`; takes `R3`.
fn prefix(asm: &mut Assembler, is_v4: bool, bits: u32) {
    let (high, low) = prefix_mask(bits);
    // The upper half of an IPv4 address is 0 (RFC 4291 §2.5.5.2).
    let high = if is_v4 { 0 } else { high };
    for (reg, at, mask) in [(Reg::R1, SOURCE_HIGH, high), (Reg::R2, SOURCE_LOW, low)] {
        if mask == 0 {
            asm.mov(reg, 0);
            continue;
        }
        asm.load(Size::Double, reg, Reg::R10, at);
        if mask != u64::MAX {
            asm.imm64(Reg::R3, mask);
            asm.alu(Alu::And, reg, Reg::R3);
        }
    }
}

/// Goes elsewhere unless the port in `R1` is in one of the ranges.
fn ports(asm: &mut Assembler, ranges: &[(u16, u16)], otherwise: Label) {
    let holds = asm.label();
    for (first, last) in ranges {
        let (first, last) = (i32::from(*first), i32::from(*last));
        if first == last {
            asm.jump(Cond::Equal, Reg::R1, first, holds);
            continue;
        }
        let next = asm.label();
        asm.jump(Cond::Less, Reg::R1, first, next);
        asm.jump(Cond::LessOrEqual, Reg::R1, last, holds);
        asm.place(next);
    }
    asm.goto(otherwise);
    asm.place(holds);
}

/// Goes elsewhere unless the destination is in one of the ranges.
fn destination(asm: &mut Assembler, family: Family, ranges: &[(u128, u128)], otherwise: Label) {
    let holds = asm.label();
    if family == Family::V6 {
        asm.load(Size::Double, Reg::R1, Reg::R10, DESTINATION_HIGH);
    }
    asm.load(Size::Double, Reg::R2, Reg::R10, DESTINATION_LOW);
    for (first, last) in ranges {
        let next = asm.label();
        match family {
            Family::V4 => {
                let (first, last) = ((*first as u32).cast_signed(), (*last as u32).cast_signed());
                asm.jump_of(Width::W32, Cond::Less, Reg::R2, first, next);
                asm.jump_of(Width::W32, Cond::LessOrEqual, Reg::R2, last, holds);
            }
            Family::V6 => {
                let inside = asm.label();
                let split = |number: u128| ((number >> 64) as u64, number as u64);
                let ((first, first_low), (last, last_low)) = (split(*first), split(*last));
                asm.imm64(Reg::R3, first);
                asm.jump(Cond::Less, Reg::R1, Reg::R3, next);
                asm.jump(Cond::Greater, Reg::R1, Reg::R3, inside);
                asm.imm64(Reg::R3, first_low);
                asm.jump(Cond::Less, Reg::R2, Reg::R3, next);
                asm.place(inside);
                asm.imm64(Reg::R3, last);
                asm.jump(Cond::Less, Reg::R1, Reg::R3, holds);
                asm.jump(Cond::Greater, Reg::R1, Reg::R3, next);
                asm.imm64(Reg::R3, last_low);
                asm.jump(Cond::LessOrEqual, Reg::R2, Reg::R3, holds);
            }
        }
        asm.place(next);
    }
    asm.goto(otherwise);
    asm.place(holds);
}

/// A table of penalties, as programs know it.
pub(super) fn penalties(plan: &Plan<'_>) -> Keys {
    Keys { fd: plan.state.penalties_fd(), count: crate::limits::PENALTIES_MAX }
}
