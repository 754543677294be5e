//! Instructions of eBPF as the kernel takes them (RFC 9669 §3): the words, and the names of their
//! parts. Which instructions follow one another is the assembler's business.

/// A register. `R0` holds results, `R1` to `R5` arguments, `R6` to `R9` survive calls, and `R10`
/// is the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "registers are their own names")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How much is loaded or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// 32 bits.
    Word = 0x00,
    /// 16 bits.
    Half = 0x08,
    /// 8 bits.
    Byte = 0x10,
    /// 64 bits.
    Double = 0x18,
}

/// Whether an operation takes all 64 bits of its registers, or 32 and clears the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

/// An arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "operations are their own names")]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
    /// Shifts right and keeps the sign.
    ShiftRightSigned = 0xc0,
}

/// A condition of a jump. Comparisons without `Signed` are of unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "conditions are their own names")]
pub enum Cond {
    Equal = 0x10,
    Greater = 0x20,
    GreaterOrEqual = 0x30,
    /// Some bit is set in both.
    AnyBit = 0x40,
    NotEqual = 0x50,
    GreaterSigned = 0x60,
    GreaterOrEqualSigned = 0x70,
    Less = 0xa0,
    LessOrEqual = 0xb0,
    LessSigned = 0xc0,
    LessOrEqualSigned = 0xd0,
}

/// An atomic operation on memory (RFC 9669 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Atomic {
    /// Adds.
    Add = 0x00,
    /// Adds, and leaves in the source register what was there.
    FetchAdd = 0x01,
    /// Puts the source register there, and leaves in it what was there.
    Exchange = 0xe1,
    /// Puts the source register there if `R0` is there, and leaves in `R0` what was there.
    CompareExchange = 0xf1,
}

/// The second operand: a register, or a number that is sign-extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A number.
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Operand {
        Operand::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Operand {
        Operand::Imm(number)
    }
}

pub(crate) const CLASS_LD: u8 = 0x00;
pub(crate) const CLASS_LDX: u8 = 0x01;
pub(crate) const CLASS_ST: u8 = 0x02;
pub(crate) const CLASS_STX: u8 = 0x03;
pub(crate) const CLASS_ALU: u8 = 0x04;
pub(crate) const CLASS_JMP: u8 = 0x05;
pub(crate) const CLASS_JMP32: u8 = 0x06;
pub(crate) const CLASS_ALU64: u8 = 0x07;

pub(crate) const MODE_ABS: u8 = 0x20;
pub(crate) const MODE_IND: u8 = 0x40;
pub(crate) const MODE_MEM: u8 = 0x60;
pub(crate) const MODE_ATOMIC: u8 = 0xc0;

/// The source operand is a register.
pub(crate) const SOURCE_REG: u8 = 0x08;

/// Conversion of the byte order, to big-endian with [`SOURCE_REG`].
pub(crate) const OP_BYTE_ORDER: u8 = 0xd0;
pub(crate) const OP_JUMP: u8 = 0x00;
pub(crate) const OP_CALL: u8 = 0x80;
pub(crate) const OP_EXIT: u8 = 0x90;

/// Two words that load a number of 64 bits, a map or an address in a map's value.
pub(crate) const LOAD_64: u8 = CLASS_LD | Size::Double as u8;

/// What [`LOAD_64`] loads, in the place of its source register (RFC 9669 §5.4).
pub(crate) const PSEUDO_MAP_FD: u8 = 1;
pub(crate) const PSEUDO_MAP_VALUE: u8 = 2;

/// A call of a function of the program, in the place of its source register.
pub(crate) const PSEUDO_CALL: u8 = 1;

/// One instruction, or one half of a load of 64 bits. As `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    pub(crate) code: u8,
    pub(super) registers: u8,
    pub(crate) offset: i16,
    pub(crate) imm: i32,
}

impl Insn {
    pub(crate) fn new(code: u8, to: u8, from: u8, offset: i16, imm: i32) -> Insn {
        // Bit-fields of C: the destination is in the low bits where the low byte comes first.
        let registers =
            if cfg!(target_endian = "little") { to | from << 4 } else { from | to << 4 };
        Insn { code, registers, offset, imm }
    }

    pub(crate) fn to(self) -> u8 {
        if cfg!(target_endian = "little") { self.registers & 15 } else { self.registers >> 4 }
    }

    pub(crate) fn from(self) -> u8 {
        if cfg!(target_endian = "little") { self.registers >> 4 } else { self.registers & 15 }
    }
}
