//! What all parts of a program agree on: what is in which register, and where on the stack.

use crate::asm::{Alu, Assembler, Cond, Label, Reg, Size};
use crate::clock::Clock;

/// The context: the packet, to the functions of the kernel.
pub(super) const CONTEXT: Reg = Reg::R6;
/// The class, plus one; 0 as long as no rule has given one.
pub(super) const CLASS: Reg = Reg::R7;
/// Source port in the upper 16 of 32 bits, destination port in the lower, if a rule asks for one.
pub(super) const PORTS: Reg = Reg::R8;
/// Time in nanoseconds of [`Clock`]; 0 as long as nobody has asked.
pub(super) const NOW: Reg = Reg::R9;

/// Addresses, as two numbers each; IPv4 as IPv6 that stands for it, whose upper one is left out.
/// Without CAP_PERFMON, the first write to a place on the stack costs 6 ns (the kernel's guard
/// against speculation past stores), so that there are as few places as can be.
pub(super) const SOURCE_HIGH: i16 = -16;
pub(super) const SOURCE_LOW: i16 = -8;
pub(super) const DESTINATION_HIGH: i16 = -32;
pub(super) const DESTINATION_LOW: i16 = -24;
/// Both addresses as the packet has them, 32 bytes at most.
pub(super) const PACKET: i16 = -64;
/// A key for the functions of the kernel.
pub(super) const KEY: i16 = -72;
/// A register's value, while the register is used for something else.
pub(super) const SAVED: i16 = -80;

/// Where the number of a rule's line is whose bucket gets back what was taken, should a later rule
/// drop the connection.
pub(super) fn paid_at(place: u8) -> i16 {
    SAVED - 8 - 8 * i16::from(place)
}

/// Upper half of the lower number of an IPv4 address (RFC 4291 §2.5.5.2).
pub(super) const MAPPED: u64 = 0xffff_0000_0000;

/// Functions of the kernel, `enum bpf_func_id`.
pub(super) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
pub(super) const SK_SELECT_REUSEPORT: i32 = 82;

/// Fields of `struct __sk_buff`.
pub(super) const SKB_PROTOCOL: i16 = 16;
pub(super) const SKB_INTERFACE: i16 = 40;
pub(super) const SKB_DATA: i16 = 76;
pub(super) const SKB_DATA_END: i16 = 80;

/// What decisions look at besides the source; the rest is not taken out of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) destination: bool,
    pub(super) ports: bool,
}

impl Needs {
    /// How many of both addresses, from the first.
    pub(super) fn addresses(self) -> usize {
        1 + usize::from(self.destination)
    }
}

/// Where programs end: one place each.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// The packet goes on.
    pub(super) pass: Label,
    /// It is dropped.
    pub(super) drop: Label,
}

/// Asks for the time, unless somebody has.
pub(super) fn ask_time(asm: &mut Assembler, clock: Clock) {
    let known = asm.label();
    asm.jump(Cond::NotEqual, NOW, 0, known);
    asm.call(clock.function());
    asm.mov(NOW, Reg::R0);
    asm.place(known);
}

/// Adds one to a word of the map whose address is in `base`; takes `R1`.
pub(super) fn count(asm: &mut Assembler, base: Reg, word: usize) {
    asm.mov(Reg::R1, 1);
    asm.atomic(crate::asm::Atomic::Add, base, (word * 8) as i16, Reg::R1);
}

/// Makes the addresses of an IPv4 packet, which are at `base`, the lower numbers on the stack; the
/// upper ones are 0, and nobody reads them. Takes `R1` and `R3`.
pub(super) fn keep_v4(asm: &mut Assembler, base: Reg, offset: i16, needs: Needs) {
    asm.imm64(Reg::R3, MAPPED);
    for (at, low) in [(0, SOURCE_LOW), (4, DESTINATION_LOW)].into_iter().take(needs.addresses()) {
        asm.load(Size::Word, Reg::R1, base, offset + at);
        asm.network_order(Reg::R1, 32);
        asm.alu(Alu::Or, Reg::R1, Reg::R3);
        asm.store(Size::Double, Reg::R10, low, Reg::R1);
    }
}

/// The same of an IPv6 packet. Takes `R0` and `R1`.
pub(super) fn keep_v6(asm: &mut Assembler, base: Reg, offset: i16, needs: Needs) {
    let places = [SOURCE_HIGH, SOURCE_LOW, DESTINATION_HIGH, DESTINATION_LOW];
    for (at, place) in (0..).step_by(8).zip(places).take(2 * needs.addresses()) {
        if base == Reg::R10 {
            asm.load(Size::Double, Reg::R1, base, offset + at);
            asm.network_order(Reg::R1, 64);
            asm.store(Size::Double, Reg::R10, place, Reg::R1);
            continue;
        }
        // Headers are aligned to 4 bytes, where the kernel does not care to 2.
        asm.load(Size::Word, Reg::R1, base, offset + at);
        asm.load(Size::Word, Reg::R0, base, offset + at + 4);
        asm.network_order(Reg::R1, 32);
        asm.network_order(Reg::R0, 32);
        asm.alu(Alu::ShiftLeft, Reg::R1, 32);
        asm.alu(Alu::Or, Reg::R1, Reg::R0);
        asm.store(Size::Double, Reg::R10, place, Reg::R1);
    }
}
