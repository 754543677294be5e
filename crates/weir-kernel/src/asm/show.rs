//! Programs as text, one instruction a line, in the notation of the kernel's verifier, so that its
//! complaints and our listings can be laid side by side.

use std::fmt;

use super::insn::*;
use super::{Insn, Program};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut halves = self.insns.iter().enumerate();
        while let Some((at, insn)) = halves.next() {
            write!(f, "{at}: ")?;
            if insn.code == LOAD_64 {
                let high = halves.next().map_or(0, |(_, half)| half.imm);
                show_load_64(f, *insn, high)?;
            } else {
                show(f, *insn)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn show(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    let (to, from, imm) = (insn.to(), insn.from(), insn.imm);
    let (size, offset) = (size_name(insn.code), insn.offset);
    match insn.code & 7 {
        CLASS_ALU => show_alu(f, insn, 'w'),
        CLASS_ALU64 => show_alu(f, insn, 'r'),
        CLASS_JMP => show_jump(f, insn, 'r'),
        CLASS_JMP32 => show_jump(f, insn, 'w'),
        CLASS_LDX => write!(f, "r{to} = *({size} *)(r{from} {offset:+})"),
        CLASS_ST => write!(f, "*({size} *)(r{to} {offset:+}) = {imm}"),
        CLASS_STX if insn.code & 0xe0 == MODE_ATOMIC => show_atomic(f, insn),
        CLASS_STX => write!(f, "*({size} *)(r{to} {offset:+}) = r{from}"),
        _ if insn.code & 0xe0 == MODE_IND => write!(f, "r0 = *({size} *)skb[r{from} {imm:+}]"),
        _ => write!(f, "r0 = *({size} *)skb[{imm}]"),
    }
}

fn show_alu(f: &mut fmt::Formatter<'_>, insn: Insn, prefix: char) -> fmt::Result {
    let to = insn.to();
    let op = match insn.code & 0xf0 {
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        0x30 => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        0x90 => "%=",
        0xa0 => "^=",
        0xb0 => "=",
        0xc0 => "s>>=",
        OP_BYTE_ORDER => return write!(f, "r{to} = be{} r{to}", insn.imm),
        _ => "?=",
    };
    write!(f, "{prefix}{to} {op} ")?;
    show_operand(f, insn, prefix)
}

fn show_jump(f: &mut fmt::Formatter<'_>, insn: Insn, prefix: char) -> fmt::Result {
    let condition = match insn.code & 0xf0 {
        OP_JUMP if prefix == 'w' => return write!(f, "gotol {:+}", insn.imm),
        OP_JUMP => return write!(f, "goto {:+}", insn.offset),
        OP_CALL if insn.from() == PSEUDO_CALL => return write!(f, "call pc{:+}", insn.imm),
        OP_CALL => return write!(f, "call {}", insn.imm),
        OP_EXIT => return f.write_str("exit"),
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0x60 => "s>",
        0x70 => "s>=",
        0xa0 => "<",
        0xb0 => "<=",
        0xc0 => "s<",
        0xd0 => "s<=",
        _ => "?",
    };
    write!(f, "if {prefix}{} {condition} ", insn.to())?;
    show_operand(f, insn, prefix)?;
    write!(f, " goto {:+}", insn.offset)
}

fn show_operand(f: &mut fmt::Formatter<'_>, insn: Insn, prefix: char) -> fmt::Result {
    if insn.code & SOURCE_REG != 0 {
        write!(f, "{prefix}{}", insn.from())
    } else {
        write!(f, "{}", insn.imm)
    }
}

fn show_atomic(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    let (to, from, offset) = (insn.to(), insn.from(), insn.offset);
    match insn.imm {
        0x00 => write!(f, "lock *(u64 *)(r{to} {offset:+}) += r{from}"),
        0x01 => write!(f, "r{from} = fetch_add(r{to} {offset:+}, r{from})"),
        0xe1 => write!(f, "r{from} = exchange(r{to} {offset:+}, r{from})"),
        0xf1 => write!(f, "r0 = compare_exchange(r{to} {offset:+}, r0, r{from})"),
        other => write!(f, "atomic {other:#x}"),
    }
}

fn show_load_64(f: &mut fmt::Formatter<'_>, insn: Insn, high: i32) -> fmt::Result {
    let (to, low) = (insn.to(), insn.imm);
    match insn.from() {
        PSEUDO_MAP_FD => write!(f, "r{to} = map {low}"),
        PSEUDO_MAP_VALUE => write!(f, "r{to} = map {low} value {high:+}"),
        _ => {
            let number = u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32;
            write!(f, "r{to} = {number:#x}")
        }
    }
}

fn size_name(code: u8) -> &'static str {
    match code & 0x18 {
        0x00 => "u32",
        0x08 => "u16",
        0x10 => "u8",
        _ => "u64",
    }
}
