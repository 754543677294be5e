//! Instructions as text, and as words where the kernel's headers say what those are.

use super::Reg::*;
use super::*;

const MAX: usize = 100_000;

fn listing(write: impl FnOnce(&mut Assembler)) -> String {
    let mut asm = Assembler::new();
    write(&mut asm);
    asm.finish(MAX).unwrap().to_string()
}

#[test]
fn every_kind_of_instruction_as_text() {
    let shown = listing(|asm| {
        let (end, function) = (asm.label(), asm.label());
        asm.mov(R6, R1);
        asm.alu(Alu::Add, R1, -8);
        asm.alu(Alu::Sub, R1, R2);
        asm.alu_of(Width::W32, Alu::And, R3, 0xff);
        asm.alu(Alu::ShiftRightSigned, R3, 63);
        asm.network_order(R3, 32);
        asm.imm64(R4, u64::MAX);
        asm.imm64(R4, 0x1234_5678_9abc_def0);
        asm.map(R1, 7);
        asm.map_value(R2, 8, 64);
        asm.load(Size::Half, R0, R2, 2);
        asm.store(Size::Double, R10, -16, R0);
        asm.store(Size::Word, R10, -8, 5);
        asm.atomic(Atomic::Add, R2, 24, R0);
        asm.atomic(Atomic::FetchAdd, R2, 0, R3);
        asm.atomic(Atomic::Exchange, R2, 0, R3);
        asm.atomic(Atomic::CompareExchange, R2, 0, R3);
        asm.load_packet(Size::Byte, 13);
        asm.load_packet_at(Size::Word, R7, 4);
        asm.jump(Cond::Greater, R0, 5, end);
        asm.jump_of(Width::W32, Cond::AnyBit, R0, R1, end);
        asm.call(5);
        asm.call_function(function);
        asm.goto(end);
        asm.place(end);
        asm.exit();
        asm.place(function);
        asm.exit_with(1);
    });
    let expected = "\
0: r6 = r1
1: r1 += -8
2: r1 -= r2
3: w3 &= 255
4: r3 s>>= 63
5: r3 = be32 r3
6: r4 = -1
7: r4 = 0x123456789abcdef0
9: r1 = map 7
11: r2 = map 8 value +64
13: r0 = *(u16 *)(r2 +2)
14: *(u64 *)(r10 -16) = r0
15: *(u32 *)(r10 -8) = 5
16: lock *(u64 *)(r2 +24) += r0
17: r3 = fetch_add(r2 +0, r3)
18: r3 = exchange(r2 +0, r3)
19: r0 = compare_exchange(r2 +0, r0, r3)
20: r0 = *(u8 *)skb[13]
21: r0 = *(u32 *)skb[r7 +4]
22: if r0 > 5 goto +4
23: if w0 & w1 goto +3
24: call 5
25: call pc+2
26: goto +0
27: exit
28: r0 = 1
29: exit
";
    assert_eq!(shown, expected);
}

#[test]
fn words_are_those_of_the_kernel() {
    // As macros of the kernel's own selftests expand them: BPF_MOV64_IMM(BPF_REG_0, 1),
    // BPF_LDX_MEM(BPF_DW, BPF_REG_1, BPF_REG_10, -8), BPF_ATOMIC_OP(BPF_DW, BPF_CMPXCHG, …).
    for (write, code, registers, offset, imm) in [
        ((|asm| asm.mov(R0, 1)) as fn(&mut Assembler), 0xb7, 0x00, 0, 1),
        (|asm| asm.load(Size::Double, R1, R10, -8), 0x79, 0xa1, -8, 0),
        (|asm| asm.store(Size::Word, R10, -4, 7), 0x62, 0x0a, -4, 7),
        (|asm| asm.atomic(Atomic::CompareExchange, R1, 8, R2), 0xdb, 0x21, 8, 0xf1),
        (|asm| asm.network_order(R3, 16), 0xdc, 0x03, 0, 16),
        (|asm| asm.load_packet(Size::Byte, 13), 0x30, 0x00, 0, 13),
        (|asm| asm.alu_of(Width::W32, Alu::Xor, R1, R2), 0xac, 0x21, 0, 0),
        (|asm| asm.call(5), 0x85, 0x00, 0, 5),
        (|asm| asm.exit(), 0x95, 0x00, 0, 0),
    ] {
        let mut asm = Assembler::new();
        write(&mut asm);
        let program = asm.finish(MAX).unwrap();
        let insn = program.insns()[0];
        let swapped = insn.to() | insn.from() << 4;
        assert_eq!((insn.code, swapped, insn.offset, insn.imm), (code, registers, offset, imm));
    }
}

/// Jumps over `distance` instructions.
fn over(distance: usize) -> Vec<String> {
    let shown = listing(|asm| {
        let (end, filling) = (asm.label(), asm.label());
        asm.jump(Cond::Equal, R1, 0, end);
        asm.jump(Cond::Equal, R1, 1, filling);
        asm.goto(end);
        asm.place(filling);
        for _ in 0..distance {
            asm.mov(R0, 0);
        }
        asm.place(end);
        asm.exit();
    });
    shown.lines().filter(|line| line.contains("goto")).map(str::to_owned).collect()
}

#[test]
fn jumps_grow_where_sixteen_bits_are_too_few() {
    let near = ["0: if r1 == 0 goto +32767", "1: if r1 == 1 goto +1", "2: goto +32765"];
    assert_eq!(over(32_765), near);
    // One more, and the branch goes over a far jump; that the other does not need.
    let far = ["0: if r1 == 0 goto +1", "1: goto +1", "2: gotol +32768"];
    assert_eq!(over(32_766)[..3], far);
    assert_eq!(over(32_766)[3..], ["3: if r1 == 1 goto +1", "4: goto +32766"]);
    let both = ["2: gotol +40002", "3: if r1 == 1 goto +1", "4: gotol +40000"];
    assert_eq!(over(40_000)[2..], both);
}

#[test]
fn what_is_not_reached_is_left_out() {
    let shown = listing(|asm| {
        let (end, nobody) = (asm.label(), asm.label());
        asm.goto(end);
        asm.mov(R0, 5);
        asm.place(nobody);
        asm.exit();
        asm.place(end);
        asm.exit_with(1);
        asm.goto(nobody);
    });
    assert_eq!(shown, "0: goto +0\n1: r0 = 1\n2: exit\n");
}

#[test]
fn jumps_go_back_as_far() {
    let shown = listing(|asm| {
        let start = asm.label();
        asm.place(start);
        (0..33_000).for_each(|_| asm.mov(R0, 0));
        asm.jump(Cond::Less, R0, 1, start);
    });
    assert!(shown.ends_with("33000: if r0 < 1 goto +1\n33001: goto +1\n33002: gotol -33003\n"));
}

#[test]
fn what_cannot_be_assembled_is_said() {
    let mut asm = Assembler::new();
    let nowhere = asm.label();
    asm.goto(nowhere);
    assert_eq!(asm.finish(MAX), Err(AsmError::Unplaced(0)));
    asm.place(nowhere);
    asm.exit();
    assert_eq!(asm.finish(1), Err(AsmError::TooLong { found: 2, max: 1 }));
    assert!(asm.finish(2).is_ok());
}
