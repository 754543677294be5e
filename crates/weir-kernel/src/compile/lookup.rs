//! From the source address to the set of rules that hold for it: by comparisons among the
//! instructions where boundaries are few, else by a table in a map.

use super::Goal;
use super::frame::*;
use super::sources::{Family, Sources};
use super::table::{Column, Table};
use crate::asm::{Alu, Assembler, Cond, Label, Reg, Size, Width};
use crate::error::KernelError;
use crate::limits::TREE_BOUNDARIES_MAX;

/// Writes the look-up: it goes to the label of a set. Returns the table that the program reads,
/// which must live until it is loaded.
pub(super) fn lookup(
    asm: &mut Assembler,
    family: Family,
    sources: &Sources,
    sets: &[Label],
    goal: Goal,
) -> Result<Option<Table>, KernelError> {
    if sources.starts.len() <= TREE_BOUNDARIES_MAX {
        asm.load(Size::Double, Reg::R2, Reg::R10, SOURCE_LOW);
        if family == Family::V6 {
            asm.load(Size::Double, Reg::R1, Reg::R10, SOURCE_HIGH);
        }
        tree(asm, family, &sources.starts, sets);
        return Ok(None);
    }
    let table = Table::new(family, &sources.starts)?;
    // Nobody who polices has asked for the time yet.
    let is_saved = goal != Goal::Police;
    if is_saved {
        asm.store(Size::Double, Reg::R10, SAVED, NOW);
    }
    match family {
        Family::V4 => {
            asm.load(Size::Word, Reg::R4, Reg::R10, low_word(SOURCE_LOW));
            search(asm, &table, &table.high);
        }
        Family::V6 => {
            asm.load(Size::Double, Reg::R4, Reg::R10, SOURCE_HIGH);
            search(asm, &table, &table.high);
            search_within(asm, &table);
        }
    }
    if is_saved {
        asm.load(Size::Double, NOW, Reg::R10, SAVED);
    } else {
        asm.mov(NOW, 0);
    }
    dispatch(asm, 0, sets);
    Ok(Some(table))
}

/// Where the lower half of a number on the stack is.
fn low_word(at: i16) -> i16 {
    if cfg!(target_endian = "little") { at } else { at + 4 }
}

/// Halves the boundaries until one is left. The address is in `R1` (its upper half) and `R2`.
fn tree(asm: &mut Assembler, family: Family, starts: &[(u128, u32)], sets: &[Label]) {
    let (left, right) = starts.split_at(starts.len() / 2);
    let Some((boundary, set)) = right.first() else { return };
    if left.is_empty() {
        return asm.goto(sets[*set as usize]);
    }
    let upper = asm.label();
    match family {
        Family::V4 => {
            let boundary = (*boundary as u32).cast_signed();
            asm.jump_of(Width::W32, Cond::GreaterOrEqual, Reg::R2, boundary, upper);
            tree(asm, family, left, sets);
        }
        Family::V6 => {
            let (high, low) = ((boundary >> 64) as u64, *boundary as u64);
            asm.imm64(Reg::R3, high);
            if low == 0 {
                asm.jump(Cond::GreaterOrEqual, Reg::R1, Reg::R3, upper);
            } else {
                let lower = asm.label();
                asm.jump(Cond::Greater, Reg::R1, Reg::R3, upper);
                asm.jump(Cond::Less, Reg::R1, Reg::R3, lower);
                asm.imm64(Reg::R3, low);
                asm.jump(Cond::GreaterOrEqual, Reg::R2, Reg::R3, upper);
                asm.place(lower);
            }
            tree(asm, family, left, sets);
        }
    }
    asm.place(upper);
    tree(asm, family, right, sets);
}

/// Goes to the label of the set whose number is in `R0`, of those from `first` on.
fn dispatch(asm: &mut Assembler, first: usize, sets: &[Label]) {
    let (left, right) = sets.split_at(sets.len() / 2);
    match (left, right) {
        ([], [only]) => asm.goto(*only),
        ([], _) => {}
        _ => {
            let (upper, middle) = (asm.label(), first + left.len());
            asm.jump(Cond::GreaterOrEqual, Reg::R0, middle as i32, upper);
            dispatch(asm, first, left);
            asm.place(upper);
            dispatch(asm, middle, right);
        }
    }
}

/// Searches a column for the last boundary at or below the number in `R4`, and leaves what belongs
/// to it in `R0`. Takes `R1` to `R5` and the register of the time.
fn search(asm: &mut Assembler, table: &Table, column: &Column) {
    let (inside, found) = (asm.label(), asm.label());
    let index = &column.index;
    // Below the first boundary but 0 there is one answer, and beyond the last another.
    // They are in the table, too: without CAP_PERFMON the verifier wants a number that is added to
    // an address to be known on all ways or on none.
    let outside = asm.label();
    asm.map_value(Reg::R1, table.fd(), index.outside_at as u32);
    asm.imm64(Reg::R3, index.first);
    asm.jump(Cond::Less, Reg::R4, Reg::R3, outside);
    asm.alu(Alu::Add, Reg::R1, 4);
    asm.imm64(Reg::R3, index.last);
    asm.jump(Cond::Less, Reg::R4, Reg::R3, inside);
    asm.place(outside);
    asm.load(Size::Word, Reg::R2, Reg::R1, 0);
    asm.goto(found);
    asm.place(inside);
    asm.imm64(Reg::R3, index.first);
    asm.mov(Reg::R5, Reg::R4);
    asm.alu(Alu::Sub, Reg::R5, Reg::R3);
    asm.alu(Alu::ShiftRight, Reg::R5, index.shift as i32);
    // The verifier does not follow subtractions; the mask changes nothing.
    asm.alu(Alu::And, Reg::R5, (index.slots.next_power_of_two() - 1) as i32);
    asm.alu(Alu::ShiftLeft, Reg::R5, 2);
    asm.map_value(Reg::R1, table.fd(), index.at as u32);
    asm.alu(Alu::Add, Reg::R1, Reg::R5);
    asm.load(Size::Word, Reg::R2, Reg::R1, 0);
    asm.load(Size::Word, Reg::R3, Reg::R1, 4);
    asm.alu(Alu::Sub, Reg::R3, Reg::R2);
    asm.alu(Alu::Add, Reg::R3, 1);
    asm.map_value(Reg::R1, table.fd(), column.keys_at as u32);
    halve(asm, column, found);
    asm.place(found);
    take(asm, table, column);
}

/// Searches within the addresses whose upper half is the same, if the answer for that upper half
/// is that they differ.
fn search_within(asm: &mut Assembler, table: &Table) {
    let Some(low) = &table.low else { return };
    let (found, decided, never) = (asm.label(), asm.label(), asm.label());
    asm.jump_of(Width::W32, Cond::Less, Reg::R0, Table::WITHIN.cast_signed(), decided);
    asm.alu_of(Width::W32, Alu::And, Reg::R0, !Table::WITHIN.cast_signed());
    bound(asm, Reg::R0, low.runs, never);
    asm.alu(Alu::ShiftLeft, Reg::R0, 2);
    asm.map_value(Reg::R1, table.fd(), low.index_at as u32);
    asm.alu(Alu::Add, Reg::R1, Reg::R0);
    asm.load(Size::Word, Reg::R2, Reg::R1, 0);
    asm.load(Size::Word, Reg::R3, Reg::R1, 4);
    asm.alu(Alu::Sub, Reg::R3, Reg::R2);
    asm.load(Size::Double, Reg::R4, Reg::R10, SOURCE_LOW);
    asm.map_value(Reg::R1, table.fd(), low.column.keys_at as u32);
    halve(asm, &low.column, found);
    asm.place(found);
    take(asm, table, &low.column);
    asm.goto(decided);
    asm.place(never);
    asm.mov(Reg::R0, 0);
    asm.place(decided);
}

/// Halves `R3` candidates from place `R2` on until one is left. No branch depends on what is
/// compared: those would be mispredicted every other time, and the verifier would follow each way.
fn halve(asm: &mut Assembler, column: &Column, found: Label) {
    for _ in 0..column.halvings {
        asm.jump(Cond::LessOrEqual, Reg::R3, 1, found);
        asm.mov(Reg::R5, Reg::R3);
        asm.alu(Alu::ShiftRight, Reg::R5, 1);
        asm.alu(Alu::Sub, Reg::R3, Reg::R5);
        // The one in the middle.
        asm.mov(Reg::R0, Reg::R2);
        asm.alu(Alu::Add, Reg::R0, Reg::R5);
        bound(asm, Reg::R0, column.count, found);
        asm.alu(Alu::ShiftLeft, Reg::R0, 3);
        asm.alu(Alu::Add, Reg::R0, Reg::R1);
        asm.load(Size::Double, Reg::R0, Reg::R0, 0);
        // All bits where it is above the number, by what a subtraction borrows:
        // x ^ ((x ^ y) | ((x - y) ^ y)), of which the highest bit counts.
        asm.mov(NOW, Reg::R4);
        asm.alu(Alu::Sub, NOW, Reg::R0);
        asm.alu(Alu::Xor, NOW, Reg::R0);
        asm.alu(Alu::Xor, Reg::R0, Reg::R4);
        asm.alu(Alu::Or, NOW, Reg::R0);
        asm.alu(Alu::Xor, NOW, Reg::R4);
        asm.alu(Alu::ShiftRightSigned, NOW, 63);
        // No step where it is above, else that many.
        asm.alu(Alu::Xor, NOW, -1);
        asm.alu(Alu::And, Reg::R5, NOW);
        asm.alu(Alu::Add, Reg::R2, Reg::R5);
    }
}

/// What belongs to place `R2`, into `R0`.
fn take(asm: &mut Assembler, table: &Table, column: &Column) {
    let within = asm.label();
    asm.mov(Reg::R0, 0);
    bound(asm, Reg::R2, column.count, within);
    asm.alu(Alu::ShiftLeft, Reg::R2, 2);
    asm.map_value(Reg::R1, table.fd(), column.values_at as u32);
    asm.alu(Alu::Add, Reg::R1, Reg::R2);
    asm.load(Size::Word, Reg::R0, Reg::R1, 0);
    asm.place(within);
}

/// Tells the verifier what is so: a place is within its column.
fn bound(asm: &mut Assembler, place: Reg, count: usize, otherwise: Label) {
    asm.jump(Cond::GreaterOrEqual, place, count as i32, otherwise);
}
