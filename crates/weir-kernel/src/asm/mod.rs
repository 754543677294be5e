//! An assembler for eBPF: typed instructions, labels, functions. Jumps too far for their 16 bits
//! become longer ones. It knows the instruction set (RFC 9669) and nothing of packets or rules.

mod insn;
mod show;
#[cfg(test)]
mod tests;

use std::os::fd::RawFd;

pub use insn::{Alu, Atomic, Cond, Insn, Operand, Reg, Size, Width};

use insn::*;

/// A place in a program that jumps and calls go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(usize);

/// A finished program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    insns: Vec<Insn>,
}

/// What cannot be assembled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AsmError {
    /// Something jumps or calls to a label that is nowhere.
    #[error("label {0} is used but was put nowhere")]
    Unplaced(usize),
    /// The program is longer than the caller allows.
    #[error("the program has {found} instructions; at most {max} are loaded")]
    TooLong {
        /// Instructions that it has.
        found: usize,
        /// Instructions that it may have.
        max: usize,
    },
}

/// What was written, before labels are places.
#[derive(Clone, Copy, Debug)]
enum Item {
    Insn(Insn),
    /// A jump: the instruction without its offset, and where it goes.
    Jump(Insn, Label),
    Call(Label),
    Place(Label),
}

/// Writes programs, one instruction a call.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    items: Vec<Item>,
    labels: usize,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    /// A label that is yet to be placed.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Puts a label before the next instruction.
    pub fn place(&mut self, label: Label) {
        self.items.push(Item::Place(label));
    }

    /// Instructions so far; at least, since far jumps take more.
    pub fn len(&self) -> usize {
        self.items.iter().filter(|item| !matches!(item, Item::Place(_))).count()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `to = to op with`, in all 64 bits.
    pub fn alu(&mut self, op: Alu, to: Reg, with: impl Into<Operand>) {
        self.alu_of(Width::W64, op, to, with);
    }

    /// `to = to op with`, in this many bits.
    pub fn alu_of(&mut self, width: Width, op: Alu, to: Reg, with: impl Into<Operand>) {
        let class = match width {
            Width::W32 => CLASS_ALU,
            Width::W64 => CLASS_ALU64,
        };
        let (source, from, imm) = parts(with.into());
        self.put(class | op as u8 | source, to as u8, from, 0, imm);
    }

    /// `to = from`.
    pub fn mov(&mut self, to: Reg, from: impl Into<Operand>) {
        self.alu(Alu::Move, to, from);
    }

    /// `to = number`, by one instruction if 32 bits hold it.
    pub fn imm64(&mut self, to: Reg, number: u64) {
        match i32::try_from(number.cast_signed()) {
            Ok(small) => self.mov(to, small),
            Err(_) => self.load_64(to, 0, number),
        }
    }

    /// Turns the low 16, 32 or 64 bits from network byte order to the machine's, or back, and
    /// clears the others.
    pub fn network_order(&mut self, to: Reg, bits: i32) {
        self.put(CLASS_ALU | OP_BYTE_ORDER | SOURCE_REG, to as u8, 0, 0, bits);
    }

    /// `to = *(base + offset)`.
    pub fn load(&mut self, size: Size, to: Reg, base: Reg, offset: i16) {
        self.put(CLASS_LDX | MODE_MEM | size as u8, to as u8, base as u8, offset, 0);
    }

    /// `*(base + offset) = value`.
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, value: impl Into<Operand>) {
        let (class, from, imm) = match value.into() {
            Operand::Reg(reg) => (CLASS_STX, reg as u8, 0),
            Operand::Imm(imm) => (CLASS_ST, 0, imm),
        };
        self.put(class | MODE_MEM | size as u8, base as u8, from, offset, imm);
    }

    /// An atomic operation on the 64 bits at `base + offset`.
    pub fn atomic(&mut self, op: Atomic, base: Reg, offset: i16, with: Reg) {
        let code = CLASS_STX | MODE_ATOMIC | Size::Double as u8;
        self.put(code, base as u8, with as u8, offset, op as i32);
    }

    /// `R0 =` what the packet has at `offset`, in the machine's byte order; the context must be in
    /// `R6`. Ends the program with 0 if the packet is shorter, and takes `R1` to `R5`.
    pub fn load_packet(&mut self, size: Size, offset: i32) {
        self.put(CLASS_LD | MODE_ABS | size as u8, 0, 0, 0, offset);
    }

    /// As [`Assembler::load_packet`], at a register's value plus `offset`.
    pub fn load_packet_at(&mut self, size: Size, base: Reg, offset: i32) {
        self.put(CLASS_LD | MODE_IND | size as u8, 0, base as u8, 0, offset);
    }

    /// `to =` a map, for functions of the kernel that take one.
    pub fn map(&mut self, to: Reg, fd: RawFd) {
        self.load_64(to, PSEUDO_MAP_FD, u64::from(fd.cast_unsigned()));
    }

    /// `to =` the address of byte `offset` in the only value of an array map.
    pub fn map_value(&mut self, to: Reg, fd: RawFd, offset: u32) {
        let both = u64::from(fd.cast_unsigned()) | u64::from(offset) << 32;
        self.load_64(to, PSEUDO_MAP_VALUE, both);
    }

    /// Jumps in any case.
    pub fn goto(&mut self, to: Label) {
        let jump = Insn::new(CLASS_JMP | OP_JUMP, 0, 0, 0, 0);
        self.items.push(Item::Jump(jump, to));
    }

    /// Jumps if all 64 bits compare so.
    pub fn jump(&mut self, cond: Cond, left: Reg, right: impl Into<Operand>, to: Label) {
        self.jump_of(Width::W64, cond, left, right, to);
    }

    /// Jumps if this many bits compare so.
    pub fn jump_of(
        &mut self,
        width: Width,
        cond: Cond,
        left: Reg,
        right: impl Into<Operand>,
        to: Label,
    ) {
        let class = match width {
            Width::W32 => CLASS_JMP32,
            Width::W64 => CLASS_JMP,
        };
        let (source, from, imm) = parts(right.into());
        let jump = Insn::new(class | cond as u8 | source, left as u8, from, 0, imm);
        self.items.push(Item::Jump(jump, to));
    }

    /// Calls a function of the kernel by its number.
    pub fn call(&mut self, helper: i32) {
        self.put(CLASS_JMP | OP_CALL, 0, 0, 0, helper);
    }

    /// Calls a function of this program, which has a stack and `R6` to `R9` of its own.
    pub fn call_function(&mut self, function: Label) {
        self.items.push(Item::Call(function));
    }

    /// Ends the function, or the program, with `R0`.
    pub fn exit(&mut self) {
        self.put(CLASS_JMP | OP_EXIT, 0, 0, 0, 0);
    }

    /// `R0 = result`, and the end.
    pub fn exit_with(&mut self, result: i32) {
        self.mov(Reg::R0, result);
        self.exit();
    }

    /// The program, if it has at most so many instructions.
    ///
    /// # Errors
    /// A label without a place, or too many instructions.
    pub fn finish(&self, instructions_max: usize) -> Result<Program, AsmError> {
        let reached = self.reached();
        let (sizes, places) = self.layout(&reached);
        let found = sizes.iter().sum();
        if found > instructions_max {
            return Err(AsmError::TooLong { found, max: instructions_max });
        }
        let mut insns: Vec<Insn> = Vec::with_capacity(found);
        for (item, size) in self.items.iter().zip(&sizes) {
            let here = insns.len() as i64;
            let distance = |label: &Label, after: i64| -> Result<i64, AsmError> {
                let place = places[label.0].ok_or(AsmError::Unplaced(label.0))?;
                Ok(place as i64 - here - after)
            };
            match item {
                _ if *size == 0 => {}
                Item::Place(_) => {}
                Item::Insn(insn) => insns.push(*insn),
                Item::Call(label) => {
                    let imm = distance(label, 1)? as i32;
                    insns.push(Insn::new(CLASS_JMP | OP_CALL, 0, PSEUDO_CALL, 0, imm));
                }
                Item::Jump(jump, label) => {
                    let offset = distance(label, *size as i64)?;
                    put_jump(&mut insns, *jump, offset, *size);
                }
            }
        }
        Ok(Program { insns })
    }

    /// Which items are reached from the first. The kernel refuses programs that have others; to
    /// leave them out here is simpler than to know, when something is written, whether it is used.
    fn reached(&self) -> Vec<bool> {
        let mut places = vec![None; self.labels];
        for (at, item) in self.items.iter().enumerate() {
            if let Item::Place(label) = item {
                places[label.0] = Some(at);
            }
        }
        let mut reached = vec![false; self.items.len()];
        let mut open = vec![0];
        while let Some(mut at) = open.pop() {
            while let Some(item) = self.items.get(at).filter(|_| !reached[at]) {
                reached[at] = true;
                at += 1;
                match item {
                    Item::Jump(jump, label) => {
                        open.extend(places[label.0]);
                        if jump.code == CLASS_JMP | OP_JUMP {
                            break;
                        }
                    }
                    Item::Call(label) => open.extend(places[label.0]),
                    Item::Insn(insn) if insn.code == CLASS_JMP | OP_EXIT => break,
                    Item::Insn(_) | Item::Place(_) => {}
                }
            }
        }
        reached
    }

    /// How many instructions each item takes, and where labels come to stand. Jumps begin short;
    /// those that turn out too far grow, until none does. Each round makes one longer for good, so
    /// that there is an end.
    fn layout(&self, reached: &[bool]) -> (Vec<usize>, Vec<Option<usize>>) {
        let items = self.items.iter().zip(reached);
        let size = |(item, reached): (&Item, &bool)| {
            usize::from(*reached && !matches!(item, Item::Place(_)))
        };
        let mut sizes: Vec<usize> = items.map(size).collect();
        let mut places = vec![None; self.labels];
        loop {
            let mut at = 0;
            for (item, size) in self.items.iter().zip(&sizes) {
                if let Item::Place(label) = item {
                    places[label.0] = Some(at);
                }
                at += size;
            }
            let mut grew = false;
            let mut at = 0;
            for (item, size) in self.items.iter().zip(&mut sizes) {
                at += *size;
                let Item::Jump(jump, label) = item else { continue };
                let Some(place) = places[label.0] else { continue };
                let long = if jump.code == CLASS_JMP | OP_JUMP { LONG_JUMP } else { LONG_BRANCH };
                // A jump that always happens has room for the distance as it is.
                let is_far = i16::try_from(place as i64 - at as i64).is_err();
                if is_far && *size > 0 && *size < long {
                    grew = true;
                    *size = long;
                }
            }
            if !grew {
                return (sizes, places);
            }
        }
    }

    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, imm: i32) {
        self.items.push(Item::Insn(Insn::new(code, to, from, offset, imm)));
    }

    fn load_64(&mut self, to: Reg, what: u8, number: u64) {
        self.put(LOAD_64, to as u8, what, 0, (number as u32).cast_signed());
        self.put(0, 0, 0, 0, ((number >> 32) as u32).cast_signed());
    }
}

impl Program {
    /// Its instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }
}

/// Instructions of a far jump without a condition: the one that keeps the distance in 32 bits.
const LONG_JUMP: usize = 1;

/// Instructions of a far jump with a condition.
const LONG_BRANCH: usize = 3;

/// Writes a jump of `size` instructions over a distance that is counted from their end.
fn put_jump(insns: &mut Vec<Insn>, jump: Insn, distance: i64, size: usize) {
    // RFC 9669 §4.3: of class JMP32, the jump without a condition takes 32 bits.
    let far = Insn::new(CLASS_JMP32 | OP_JUMP, 0, 0, 0, distance as i32);
    if size == LONG_BRANCH {
        insns.push(Insn { offset: 1, ..jump });
        insns.push(Insn::new(CLASS_JMP | OP_JUMP, 0, 0, 1, 0));
        insns.push(far);
    } else if let Ok(offset) = i16::try_from(distance) {
        insns.push(Insn { offset, ..jump });
    } else {
        insns.push(far);
    }
}

/// The bit that tells registers from numbers, the register and the number.
fn parts(operand: Operand) -> (u8, u8, i32) {
    match operand {
        Operand::Reg(reg) => (SOURCE_REG, reg as u8, 0),
        Operand::Imm(imm) => (0, 0, imm),
    }
}
