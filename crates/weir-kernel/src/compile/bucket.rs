//! The functions of programs that keep buckets: GCRA (ITU-T I.371) in one word with
//! compare-and-swap, since programs on sockets may take no lock; and a table of such words by key.
//!
//! When other processors change a bucket again and again while it is looked at, the connection is
//! dropped: a bucket never lets through more than its rate, and its client tries again.

use std::os::fd::RawFd;

use super::frame::count;
use crate::asm::{Alu, Assembler, Atomic, Cond, Label, Reg, Size};
use crate::clock::Jiffies;
use crate::limits::{BUCKET_ATTEMPTS, WAYS};
use crate::state::{
    CONTENDED, FORGOTTEN, INTERVAL, MULTIPLIERS, OVERLOAD, SEEDS, SPARE_ARRIVAL, SPARE_INTERVAL,
    SPARE_TOLERANCE, TOLERANCE,
};

/// Bytes of a table's entry and line.
const ENTRY: i32 = 16;
const LINE: i32 = ENTRY * WAYS as i32;

/// Writes the function `bucket(R1: its word, R2: the rule's line, R3: now)`, which says in `R0`
/// whether a connection conforms (1) or not (0).
pub(super) fn bucket(asm: &mut Assembler, function: Label, state: RawFd) {
    let (over, taken, full) = (asm.label(), asm.label(), asm.label());
    asm.place(function);
    asm.load(Size::Double, Reg::R4, Reg::R2, (TOLERANCE * 8) as i16);
    asm.load(Size::Double, Reg::R2, Reg::R2, (INTERVAL * 8) as i16);
    asm.load(Size::Double, Reg::R0, Reg::R1, 0);
    for _ in 0..BUCKET_ATTEMPTS {
        let ahead = asm.label();
        // How far the bucket is ahead of time; one that is behind is idle.
        asm.mov(Reg::R5, 0);
        asm.jump(Cond::LessOrEqual, Reg::R0, Reg::R3, ahead);
        asm.mov(Reg::R5, Reg::R0);
        asm.alu(Alu::Sub, Reg::R5, Reg::R3);
        asm.jump(Cond::Greater, Reg::R5, Reg::R4, over);
        asm.place(ahead);
        asm.alu(Alu::Add, Reg::R5, Reg::R3);
        asm.alu(Alu::Add, Reg::R5, Reg::R2);
        asm.mov(Reg::R6, Reg::R0);
        asm.atomic(Atomic::CompareExchange, Reg::R1, 0, Reg::R5);
        asm.jump(Cond::Equal, Reg::R0, Reg::R6, taken);
    }
    asm.map_value(Reg::R2, state, 0);
    count(asm, Reg::R2, CONTENDED);
    asm.exit_with(0);
    asm.place(taken);
    asm.exit_with(1);
    // One that is farther ahead than any connection can put it (its rate was changed, or the clock
    // is another's) is put where a full one is, so that it is not shut for longer than that.
    asm.place(over);
    asm.alu(Alu::Add, Reg::R4, Reg::R2);
    asm.jump(Cond::LessOrEqual, Reg::R5, Reg::R4, full);
    asm.alu(Alu::Add, Reg::R4, Reg::R3);
    asm.store(Size::Double, Reg::R1, 0, Reg::R4);
    asm.place(full);
    asm.exit_with(0);
}

/// A table of keys, as programs know it.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) fd: RawFd,
    pub(super) count: usize,
}

/// Writes the function `keyed(R1, R2: both halves of the key, R3: the rule's number, R4: now, R5:
/// the rule's line)`: finds the key's bucket, or takes the one of its line that is the least ahead
/// of time, and asks that. Two keys that take the same one at once share it for one connection.
pub(super) fn keyed(asm: &mut Assembler, function: Label, bucket: Label, keys: Keys, state: RawFd) {
    let (found, idle) = (asm.label(), asm.label());
    asm.place(function);
    asm.mov(Reg::R6, Reg::R5);
    asm.mov(Reg::R7, Reg::R4);
    line(asm, keys, state);
    let ways: Vec<Label> = (0..WAYS).map(|_| asm.label()).collect();
    for (at, way) in (0..).step_by(ENTRY as usize).zip(&ways) {
        asm.load(Size::Double, Reg::R2, Reg::R8, at);
        asm.jump(Cond::Equal, Reg::R2, Reg::R0, *way);
    }
    // From here on `R1` is the address of an entry's time. It is made at once: without CAP_PERFMON
    // the verifier takes no sum of an address that was another on another way.
    asm.mov(Reg::R1, Reg::R8);
    asm.alu(Alu::Add, Reg::R1, 8);
    asm.load(Size::Double, Reg::R2, Reg::R8, 8);
    for at in (0..).step_by(ENTRY as usize).take(WAYS).skip(1) {
        let next = asm.label();
        asm.load(Size::Double, Reg::R3, Reg::R8, at + 8);
        asm.jump(Cond::GreaterOrEqual, Reg::R3, Reg::R2, next);
        asm.mov(Reg::R2, Reg::R3);
        asm.mov(Reg::R1, Reg::R8);
        asm.alu(Alu::Add, Reg::R1, i32::from(at) + 8);
        asm.place(next);
    }
    asm.jump(Cond::LessOrEqual, Reg::R2, Reg::R7, idle);
    asm.mov(Reg::R4, Reg::R1);
    asm.map_value(Reg::R2, state, 0);
    count(asm, Reg::R2, FORGOTTEN);
    asm.mov(Reg::R1, Reg::R4);
    asm.place(idle);
    asm.store(Size::Double, Reg::R1, 0, 0);
    asm.store(Size::Double, Reg::R1, -8, Reg::R0);
    asm.goto(found);
    for (at, way) in (0..).step_by(ENTRY as usize).zip(&ways) {
        asm.place(*way);
        asm.mov(Reg::R1, Reg::R8);
        asm.alu(Alu::Add, Reg::R1, at + 8);
        asm.goto(found);
    }
    asm.place(found);
    asm.mov(Reg::R2, Reg::R6);
    asm.mov(Reg::R3, Reg::R7);
    asm.call_function(bucket);
    asm.exit();
}

/// Writes the function `policed(R1, R2: both halves of a prefix, R3: its length)`, which says in
/// `R0` until when the prefix is policed, or 0.
pub(super) fn policed(asm: &mut Assembler, function: Label, penalties: Keys, state: RawFd) {
    asm.place(function);
    line(asm, penalties, state);
    for at in (0..).step_by(ENTRY as usize).take(WAYS) {
        let next = asm.label();
        asm.load(Size::Double, Reg::R2, Reg::R8, at);
        asm.jump(Cond::NotEqual, Reg::R2, Reg::R0, next);
        asm.load(Size::Double, Reg::R0, Reg::R8, at + 8);
        asm.exit();
        asm.place(next);
    }
    asm.exit_with(0);
}

/// The fingerprint of a key into `R0` and the address of its line into `R8`; as
/// [`fingerprint`](crate::state::fingerprint) has it. Takes `R1` to `R3`.
fn line(asm: &mut Assembler, keys: Keys, state: RawFd) {
    let [first, second] = MULTIPLIERS;
    let mix = |asm: &mut Assembler, multiplier: u64| {
        asm.imm64(Reg::R8, multiplier);
        asm.alu(Alu::Mul, Reg::R0, Reg::R8);
        asm.mov(Reg::R8, Reg::R0);
        asm.alu(Alu::ShiftRight, Reg::R8, 32);
        asm.alu(Alu::Xor, Reg::R0, Reg::R8);
    };
    asm.map_value(Reg::R8, state, (SEEDS * 8) as u32);
    asm.load(Size::Double, Reg::R0, Reg::R8, 0);
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
    mix(asm, first);
    asm.alu(Alu::Xor, Reg::R0, Reg::R2);
    asm.map_value(Reg::R8, state, (SEEDS * 8 + 8) as u32);
    asm.load(Size::Double, Reg::R8, Reg::R8, 0);
    asm.alu(Alu::Add, Reg::R0, Reg::R8);
    mix(asm, second);
    asm.alu(Alu::Xor, Reg::R0, Reg::R3);
    mix(asm, first);
    asm.imm64(Reg::R8, 1 << 63);
    asm.alu(Alu::Or, Reg::R0, Reg::R8);
    asm.mov(Reg::R1, Reg::R0);
    asm.alu(Alu::And, Reg::R1, (keys.count / WAYS - 1) as i32);
    asm.alu(Alu::Mul, Reg::R1, LINE);
    asm.map_value(Reg::R8, keys.fd, 0);
    asm.alu(Alu::Add, Reg::R8, Reg::R1);
}

/// Whether there is overload, into `R0`.
pub(super) fn overload(asm: &mut Assembler, state: RawFd) {
    asm.map_value(Reg::R1, state, (OVERLOAD * 8) as u32);
    asm.load(Size::Double, Reg::R0, Reg::R1, 0);
}

/// Takes from the bucket of what would be dropped, of the rule whose line `line` puts into `R2`,
/// and goes on to `after`; to `spared` if there is nothing, which may follow. Processors that meet
/// here may lose a connection, which is one more that would have got through. Takes `R0` to `R5`.
pub(super) fn spare(
    asm: &mut Assembler,
    line: impl Fn(&mut Assembler),
    spared: Label,
    after: Label,
) {
    let (behind, full) = (asm.label(), asm.label());
    let word = |word: usize| (word * 8) as i16;
    asm.call(Jiffies::FUNCTION);
    line(asm);
    asm.alu(Alu::ShiftLeft, Reg::R0, Jiffies::PART_BITS);
    asm.load(Size::Double, Reg::R1, Reg::R2, word(SPARE_ARRIVAL));
    asm.load(Size::Double, Reg::R3, Reg::R2, word(SPARE_INTERVAL));
    asm.jump(Cond::LessOrEqual, Reg::R1, Reg::R0, behind);
    asm.mov(Reg::R4, Reg::R1);
    asm.alu(Alu::Sub, Reg::R4, Reg::R0);
    asm.load(Size::Double, Reg::R5, Reg::R2, word(SPARE_TOLERANCE));
    asm.jump(Cond::Greater, Reg::R4, Reg::R5, full);
    asm.mov(Reg::R0, Reg::R1);
    asm.place(behind);
    asm.alu(Alu::Add, Reg::R0, Reg::R3);
    asm.store(Size::Double, Reg::R2, word(SPARE_ARRIVAL), Reg::R0);
    asm.goto(after);
    // As in a bucket that decides, one that is too far ahead is put where a full one is.
    asm.place(full);
    asm.alu(Alu::Add, Reg::R5, Reg::R3);
    asm.jump(Cond::LessOrEqual, Reg::R4, Reg::R5, spared);
    asm.alu(Alu::Add, Reg::R0, Reg::R5);
    asm.store(Size::Double, Reg::R2, word(SPARE_ARRIVAL), Reg::R0);
}
