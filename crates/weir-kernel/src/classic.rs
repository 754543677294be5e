//! Steering without privilege: a classic BPF program gives the index of a socket in its group. It
//! knows source ranges of IPv4, and of IPv6 those that its first 32 bits tell, and nothing else;
//! the first rule that needs more ends what it takes account of.

use std::net::IpAddr;

use crate::limits::{CLASSES_MAX, CLASSIC_INSTRUCTIONS_MAX};
use crate::policy::{Policy, Rule};
use crate::sys::ClassicInsn;

/// What a classic program decides by.
#[derive(Debug)]
pub(crate) struct Classic {
    /// Ranges in order, and the class of the first that an address is in; no class is the default.
    ranges: Vec<(IpAddr, IpAddr, Option<usize>)>,
    classes: Vec<String>,
    default_class: usize,
    /// The first rules that are taken account of.
    pub(crate) rules: usize,
}

// Codes of classic BPF (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const MODULO: u16 = 0x94;
const MULTIPLY: u16 = 0x24;
const SHIFT_RIGHT: u16 = 0x74;
const XOR_X: u16 = 0xac;
const TO_X: u16 = 0x07;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

/// Offsets from here on are from the network header (SKF_NET_OFF): what a group's program is given
/// begins behind the TCP header.
const NETWORK: u32 = 0xfff0_0000;
/// The protocol of the packet (SKF_AD_OFF + SKF_AD_PROTOCOL).
const PROTOCOL: u32 = 0xffff_f000;

const ETHERTYPE_V4: u32 = 0x0800;

/// Instructions of one range at most.
const RANGE_INSTRUCTIONS: usize = 4;

/// Instructions that choose among the sockets of a class, per class, and those around them.
const CHOICE_INSTRUCTIONS: usize = 14;

impl Classic {
    /// What can be said of a policy's rules.
    pub(crate) fn new(policy: &Policy) -> Classic {
        let mut classic = Classic {
            ranges: Vec::new(),
            classes: policy.classes.clone(),
            default_class: policy.default_class,
            rules: 0,
        };
        let exempt = policy.exempt.iter().flat_map(|set| set.ranges());
        classic.ranges.extend(exempt.map(|(first, last)| (*first, *last, None)));
        for rule in &policy.rules {
            if !classic.take(rule) {
                break;
            }
            classic.rules += 1;
        }
        classic
    }

    /// Takes account of a rule, if it can be said and there is room.
    fn take(&mut self, rule: &Rule) -> bool {
        if rule.class.is_none() && !rule.pass {
            return true;
        }
        let Some(from) = rule.from.as_ref().filter(|_| rule.is_of_source()) else { return false };
        let room = CLASSIC_INSTRUCTIONS_MAX / 2 / RANGE_INSTRUCTIONS;
        let is_sayable = |(first, last): &(IpAddr, IpAddr)| match (first, last) {
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                first.to_bits() as u64 == 0
                    && last.to_bits() as u64 == u64::MAX
                    && (first.to_bits() >> 64) as u32 == 0
                    && (last.to_bits() >> 64) as u32 == u32::MAX
            }
            _ => true,
        };
        if self.ranges.len() + from.ranges().len() > room || !from.ranges().iter().all(is_sayable) {
            return false;
        }
        let class = rule.class;
        self.ranges.extend(from.ranges().iter().map(|(first, last)| (*first, *last, class)));
        true
    }

    /// The program for sockets of these classes and workers, by their index in the group.
    pub(crate) fn program(&self, members: &[(&str, usize)]) -> Vec<ClassicInsn> {
        let classes = self.classes.len().min(CLASSES_MAX);
        let mut program = vec![
            insn(LOAD_WORD, PROTOCOL),
            jump(JUMP_EQUAL, ETHERTYPE_V4, 1, 0),
            // Over the part for IPv4, whose length is known later.
            insn(JUMP, 0),
        ];
        let mut fixes = Vec::new();
        self.part(&mut program, &mut fixes, true);
        let v6 = program.len();
        program[2].value = (v6 - 3) as u32;
        self.part(&mut program, &mut fixes, false);
        let mut starts = Vec::with_capacity(classes);
        for class in self.classes.iter().take(classes) {
            starts.push(program.len());
            choose(&mut program, class, members);
        }
        for (at, class) in fixes {
            let to = starts[class.unwrap_or(self.default_class).min(classes - 1)];
            program[at].value = (to - at - 1) as u32;
        }
        program
    }

    /// Compares the source with the ranges of one family.
    fn part(
        &self,
        program: &mut Vec<ClassicInsn>,
        fixes: &mut Vec<(usize, Option<usize>)>,
        is_v4: bool,
    ) {
        // The first 32 bits of the address.
        program.push(insn(LOAD_WORD, NETWORK + if is_v4 { 12 } else { 8 }));
        for (first, last, class) in &self.ranges {
            let (first, last) = match (first, last) {
                (IpAddr::V4(first), IpAddr::V4(last)) if is_v4 => (first.to_bits(), last.to_bits()),
                (IpAddr::V6(first), IpAddr::V6(last)) if !is_v4 => {
                    ((first.to_bits() >> 96) as u32, (last.to_bits() >> 96) as u32)
                }
                _ => continue,
            };
            program.push(jump(JUMP_GREATER_OR_EQUAL, first, 0, 2));
            program.push(jump(JUMP_GREATER, last, 1, 0));
            fixes.push((program.len(), *class));
            program.push(insn(JUMP, 0));
        }
        fixes.push((program.len(), None));
        program.push(insn(JUMP, 0));
    }
}

/// Chooses among the sockets of a class by a hash of source and ports.
fn choose(program: &mut Vec<ClassicInsn>, class: &str, members: &[(&str, usize)]) {
    let own = members.iter().enumerate().filter(|(_, (of, _))| *of == class);
    let own: Vec<u32> = own.map(|(index, _)| index as u32).collect();
    if own.is_empty() {
        // An index that no socket has: the kernel chooses by itself.
        return program.push(insn(RETURN, u32::MAX));
    }
    // The last bits of an IPv4 source, and ports where there are no options; any bits would do.
    program.extend([
        insn(LOAD_WORD, NETWORK + 12),
        insn(TO_X, 0),
        insn(LOAD_WORD, NETWORK + 20),
        insn(XOR_X, 0),
        insn(MULTIPLY, 0x9e37_79b1),
        insn(SHIFT_RIGHT, 16),
        insn(MODULO, own.len() as u32),
    ]);
    let room = (CLASSIC_INSTRUCTIONS_MAX / 2 / CLASSES_MAX - CHOICE_INSTRUCTIONS) / 2;
    for (number, index) in own.iter().enumerate().take(room) {
        program.push(jump(JUMP_EQUAL, number as u32, 0, 1));
        program.push(insn(RETURN, *index));
    }
    program.push(insn(RETURN, own[0]));
}

fn insn(code: u16, value: u32) -> ClassicInsn {
    ClassicInsn { code, if_true: 0, if_false: 0, value }
}

fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> ClassicInsn {
    ClassicInsn { code, if_true, if_false, value }
}
