//! The beginnings of programs: is it the first packet of a connection, and from where to where?
//! They differ by where the program meets the packet; what follows them does not.

use super::frame::*;
use super::sources::Family;
use crate::asm::{Alu, Assembler, Cond, Label, Reg, Size, Width};

/// Where a program meets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// On a listening socket, where a packet begins with its TCP header. Packets that came in by
    /// the interface of that number, to ports that are judged there, were judged.
    Socket {
        /// 0 if there is none.
        judged_on: u32,
    },
    /// In a test run, where a packet begins with its IP header.
    #[cfg(test)]
    TestRun,
    /// At the traffic control hook of an interface, from the Ethernet header on.
    Tcx,
    /// Before the network stack, from the Ethernet header on.
    Xdp,
}

// TCP flags (RFC 9293 §3.1). A listener takes no other packet for the first of a connection.
const FLAGS_LOOKED_AT: i32 = FIN | SYN | RST | ACK;
const FIN: i32 = 0x01;
const SYN: i32 = 0x02;
const RST: i32 = 0x04;
const ACK: i32 = 0x10;

/// Where a TCP header has the destination's port and its flags, and how long it is at least.
const PORT_AT: i32 = 2;
const FLAGS_AT: i16 = 13;
const TCP_BYTES: i32 = 20;

const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const VLANS: [u16; 2] = [0x8100, 0x88a8];
/// Tags that are looked behind.
const VLANS_MAX: usize = 2;
const ETHERNET_BYTES: i32 = 14;

/// Offsets from here on are from the network header (SKF_NET_OFF).
const NETWORK: i32 = -0x10_0000;

/// Where both addresses are in the headers of IPv4 and IPv6, the source's first.
const V4_AT: i32 = 12;
const V6_AT: i32 = 8;

/// Lengths of IPv4's header, in words of 32 bits (RFC 791 §3.1).
const IPV4_WORDS: std::ops::RangeInclusive<i32> = 5..=15;

const TCP: i32 = 6;
/// IPv6's fragment header (RFC 8200 §4.5).
const FRAGMENT: i32 = 44;

/// Writes the beginning of a policing program. It goes to one of `families` with the addresses on
/// the stack and the ports in their register, or to where packets pass.
pub(super) fn parse(
    asm: &mut Assembler,
    hook: Hook,
    families: &[(Family, Label)],
    ends: Ends,
    ports: &[u16],
    needs: Needs,
) {
    asm.mov(CONTEXT, Reg::R1);
    match hook {
        Hook::Socket { judged_on } => socket(asm, (judged_on, ports), families, ends, needs),
        #[cfg(test)]
        Hook::TestRun => test_run(asm, families, ends, needs),
        Hook::Tcx | Hook::Xdp => link(asm, hook, families, ends, (ports, needs)),
    }
}

/// Sets the registers that decisions begin with.
fn begin(asm: &mut Assembler, to: Label) {
    asm.mov(CLASS, 0);
    asm.mov(NOW, 0);
    asm.goto(to);
}

/// Whatever is no SYN passes after four instructions: this is what each packet of a connection
/// meets that keeps its listener's program.
fn socket(
    asm: &mut Assembler,
    (judged_on, ports): (u32, &[u16]),
    families: &[(Family, Label)],
    ends: Ends,
    needs: Needs,
) {
    unless_first(asm, ends.pass);
    if judged_on != 0 && !ports.is_empty() {
        skip_judged(asm, judged_on, ports, ends);
    }
    if needs.ports {
        asm.load_packet(Size::Word, 0);
        asm.mov(PORTS, Reg::R0);
    }
    addresses(asm, families, ends, needs);
}

/// Goes elsewhere unless a socket's packet is the first of a connection.
pub(super) fn unless_first(asm: &mut Assembler, otherwise: Label) {
    asm.load_packet(Size::Byte, FLAGS_AT.into());
    asm.alu(Alu::And, Reg::R0, FLAGS_LOOKED_AT);
    asm.jump(Cond::NotEqual, Reg::R0, SYN, otherwise);
}

/// Passes what the program of an interface has judged: to its ports, IPv4, and IPv6 whose TCP
/// header follows at once. (Reassembled packets look so, too; there it judges first fragments.)
fn skip_judged(asm: &mut Assembler, interface: u32, ports: &[u16], ends: Ends) {
    let (there, here) = (asm.label(), asm.label());
    asm.load(Size::Word, Reg::R0, CONTEXT, SKB_INTERFACE);
    asm.jump_of(Width::W32, Cond::NotEqual, Reg::R0, interface.cast_signed(), here);
    asm.load_packet(Size::Half, PORT_AT);
    ports.iter().for_each(|port| asm.jump(Cond::Equal, Reg::R0, i32::from(*port), there));
    asm.goto(here);
    asm.place(there);
    asm.load(Size::Word, Reg::R0, CONTEXT, SKB_PROTOCOL);
    asm.jump(Cond::Equal, Reg::R0, ethertype(ETHERTYPE_V4), ends.pass);
    asm.load_packet(Size::Byte, NETWORK + 6);
    asm.jump(Cond::Equal, Reg::R0, TCP, ends.pass);
    asm.place(here);
}

/// As [`socket`], but the TCP header is yet to be found.
#[cfg(test)]
fn test_run(asm: &mut Assembler, families: &[(Family, Label)], ends: Ends, needs: Needs) {
    let (v6, found) = (asm.label(), asm.label());
    asm.load(Size::Word, Reg::R0, CONTEXT, SKB_PROTOCOL);
    asm.jump(Cond::Equal, Reg::R0, ethertype(ETHERTYPE_V6), v6);
    asm.jump(Cond::NotEqual, Reg::R0, ethertype(ETHERTYPE_V4), ends.pass);
    asm.load_packet(Size::Byte, 9);
    asm.jump(Cond::NotEqual, Reg::R0, TCP, ends.pass);
    asm.load_packet(Size::Byte, 0);
    asm.mov(PORTS, Reg::R0);
    asm.alu(Alu::And, PORTS, 15);
    asm.alu(Alu::ShiftLeft, PORTS, 2);
    asm.goto(found);
    asm.place(v6);
    asm.load_packet(Size::Byte, 6);
    asm.jump(Cond::NotEqual, Reg::R0, TCP, ends.pass);
    asm.mov(PORTS, 40);
    asm.place(found);
    asm.load_packet_at(Size::Byte, PORTS, FLAGS_AT.into());
    asm.alu(Alu::And, Reg::R0, FLAGS_LOOKED_AT);
    asm.jump(Cond::NotEqual, Reg::R0, SYN, ends.pass);
    asm.load_packet_at(Size::Word, PORTS, 0);
    asm.mov(PORTS, Reg::R0);
    addresses(asm, families, ends, needs);
}

/// Writes the beginning of a steering program, whose context is a `struct sk_reuseport_md` and
/// whose packets begin with the TCP header.
pub(super) fn steering(
    asm: &mut Assembler,
    families: &[(Family, Label)],
    ends: Ends,
    needs: Needs,
) {
    const ETH_PROTOCOL: i16 = 20;
    asm.mov(CONTEXT, Reg::R1);
    asm.load(Size::Double, Reg::R2, CONTEXT, 0);
    asm.load(Size::Double, Reg::R3, CONTEXT, 8);
    asm.mov(Reg::R1, Reg::R2);
    asm.alu(Alu::Add, Reg::R1, TCP_BYTES);
    asm.jump(Cond::Greater, Reg::R1, Reg::R3, ends.pass);
    asm.load(Size::Word, PORTS, Reg::R2, 0);
    asm.network_order(PORTS, 32);
    // Whether it is a SYN, in the register of the time, which steering does not ask for.
    asm.load(Size::Byte, NOW, Reg::R2, FLAGS_AT);
    asm.alu(Alu::And, NOW, FLAGS_LOOKED_AT);
    asm.load(Size::Word, Reg::R0, CONTEXT, ETH_PROTOCOL);
    for (family, to) in families {
        let other = unless_of(asm, *family);
        copy_addresses(asm, *family, ends, needs);
        asm.goto(*to);
        asm.place(other);
    }
    asm.goto(ends.pass);
}

/// Whether the packet that is steered is a SYN: jumps if not.
pub(super) fn unless_syn(asm: &mut Assembler, to: Label) {
    asm.jump(Cond::NotEqual, NOW, SYN, to);
}

/// Takes addresses out of a packet of a socket, and goes on with its family.
fn addresses(asm: &mut Assembler, families: &[(Family, Label)], ends: Ends, needs: Needs) {
    asm.load(Size::Word, Reg::R0, CONTEXT, SKB_PROTOCOL);
    for (family, to) in families {
        let other = unless_of(asm, *family);
        if *family == Family::V4 && !needs.destination {
            // Four bytes are to be had without a copy of them. They are there: the network layer
            // has looked at them.
            asm.load_packet(Size::Word, NETWORK + V4_AT);
            asm.imm64(Reg::R3, MAPPED);
            asm.alu(Alu::Or, Reg::R0, Reg::R3);
            asm.store(Size::Double, Reg::R10, SOURCE_LOW, Reg::R0);
        } else {
            copy_addresses(asm, *family, ends, needs);
        }
        begin(asm, *to);
        asm.place(other);
    }
    asm.goto(ends.pass);
}

/// Where to go on if the type of the packet, which is in `R0`, is not this family's.
fn unless_of(asm: &mut Assembler, family: Family) -> Label {
    let other = asm.label();
    let kind = match family {
        Family::V4 => ETHERTYPE_V4,
        Family::V6 => ETHERTYPE_V6,
    };
    asm.jump(Cond::NotEqual, Reg::R0, ethertype(kind), other);
    other
}

/// Copies addresses from the network header to the stack, and makes them numbers.
fn copy_addresses(asm: &mut Assembler, family: Family, ends: Ends, needs: Needs) {
    let (at, bytes) = match family {
        Family::V4 => (V4_AT, 4),
        Family::V6 => (V6_AT, 16),
    };
    asm.mov(Reg::R1, CONTEXT);
    asm.mov(Reg::R2, at);
    asm.mov(Reg::R3, Reg::R10);
    asm.alu(Alu::Add, Reg::R3, i32::from(PACKET));
    asm.mov(Reg::R4, bytes * needs.addresses() as i32);
    // BPF_HDR_START_NET: real packets and those of test runs agree there.
    asm.mov(Reg::R5, 1);
    asm.call(SKB_LOAD_BYTES_RELATIVE);
    asm.jump(Cond::NotEqual, Reg::R0, 0, ends.pass);
    match family {
        Family::V4 => keep_v4(asm, Reg::R10, PACKET, needs),
        Family::V6 => keep_v6(asm, Reg::R10, PACKET, needs),
    }
}

/// A type of Ethernet frames as it is in memory.
fn ethertype(number: u16) -> i32 {
    number.to_be().into()
}

/// Writes the beginning of a program on an interface. `R2` is the header that is looked at, `R3`
/// the end of the packet.
fn link(
    asm: &mut Assembler,
    hook: Hook,
    families: &[(Family, Label)],
    ends: Ends,
    (ports, needs): (&[u16], Needs),
) {
    let (data, data_end) = if hook == Hook::Xdp { (0, 4) } else { (SKB_DATA, SKB_DATA_END) };
    asm.load(Size::Word, Reg::R2, CONTEXT, data);
    asm.load(Size::Word, Reg::R3, CONTEXT, data_end);
    need(asm, Reg::R2, ETHERNET_BYTES, ends.pass);
    asm.load(Size::Half, Reg::R4, Reg::R2, 12);
    for _ in 0..VLANS_MAX {
        let (tagged, plain) = (asm.label(), asm.label());
        VLANS.iter().for_each(|tag| asm.jump(Cond::Equal, Reg::R4, ethertype(*tag), tagged));
        asm.goto(plain);
        asm.place(tagged);
        asm.alu(Alu::Add, Reg::R2, 4);
        need(asm, Reg::R2, ETHERNET_BYTES, ends.pass);
        asm.load(Size::Half, Reg::R4, Reg::R2, 12);
        asm.place(plain);
    }
    asm.alu(Alu::Add, Reg::R2, ETHERNET_BYTES);
    for (family, to) in families {
        let other = asm.label();
        match family {
            Family::V4 => {
                asm.jump(Cond::NotEqual, Reg::R4, ethertype(ETHERTYPE_V4), other);
                link_v4(asm, ends);
                link_tcp(asm, ports, ends);
                keep_v4(asm, Reg::R2, V4_AT as i16, needs);
            }
            Family::V6 => {
                asm.jump(Cond::NotEqual, Reg::R4, ethertype(ETHERTYPE_V6), other);
                link_v6(asm, ends);
                link_tcp(asm, ports, ends);
                keep_v6(asm, Reg::R2, V6_AT as i16, needs);
            }
        }
        begin(asm, *to);
        asm.place(other);
    }
    asm.goto(ends.pass);
}

/// Goes elsewhere unless so many bytes follow `base`. Takes `R0`.
fn need(asm: &mut Assembler, base: Reg, bytes: i32, otherwise: Label) {
    asm.mov(Reg::R0, base);
    asm.alu(Alu::Add, Reg::R0, bytes);
    asm.jump(Cond::Greater, Reg::R0, Reg::R3, otherwise);
}

/// Finds the TCP header behind that of IPv4 at `R2`, and leaves it in `R5`.
fn link_v4(asm: &mut Assembler, ends: Ends) {
    need(asm, Reg::R2, 20, ends.pass);
    asm.load(Size::Byte, Reg::R0, Reg::R2, 9);
    asm.jump(Cond::NotEqual, Reg::R0, TCP, ends.pass);
    // Only the first fragment has the TCP header (RFC 791 §3.1).
    asm.load(Size::Half, Reg::R0, Reg::R2, 6);
    asm.jump(Cond::AnyBit, Reg::R0, i32::from(0x1fff_u16.to_be()), ends.pass);
    asm.load(Size::Byte, Reg::R0, Reg::R2, 0);
    asm.alu(Alu::And, Reg::R0, 15);
    // Each length has its own way: without CAP_PERFMON the verifier wants what is added to the
    // address of a packet to be a constant. Hardly any header has options, so that one is tried.
    asm.mov(Reg::R5, Reg::R2);
    let found = asm.label();
    for words in IPV4_WORDS {
        let longer = asm.label();
        asm.jump(Cond::NotEqual, Reg::R0, words, longer);
        asm.alu(Alu::Add, Reg::R5, words * 4);
        asm.goto(found);
        asm.place(longer);
    }
    asm.goto(ends.pass);
    asm.place(found);
}

/// The same behind the header of IPv6. Behind other headers than that of fragments, listeners
/// judge for themselves.
fn link_v6(asm: &mut Assembler, ends: Ends) {
    let found = asm.label();
    need(asm, Reg::R2, 40, ends.pass);
    asm.mov(Reg::R5, Reg::R2);
    asm.alu(Alu::Add, Reg::R5, 40);
    asm.load(Size::Byte, Reg::R0, Reg::R2, 6);
    asm.jump(Cond::Equal, Reg::R0, TCP, found);
    asm.jump(Cond::NotEqual, Reg::R0, FRAGMENT, ends.pass);
    need(asm, Reg::R5, 8, ends.pass);
    asm.load(Size::Byte, Reg::R0, Reg::R5, 0);
    asm.jump(Cond::NotEqual, Reg::R0, TCP, ends.pass);
    asm.load(Size::Half, Reg::R0, Reg::R5, 2);
    asm.jump(Cond::AnyBit, Reg::R0, i32::from(0xfff8_u16.to_be()), ends.pass);
    asm.alu(Alu::Add, Reg::R5, 8);
    asm.place(found);
}

/// Looks at the TCP header in `R5`. One that is cut is of a fragment made to hide the flags, and
/// dropped (RFC 1858 §3).
fn link_tcp(asm: &mut Assembler, ports: &[u16], ends: Ends) {
    let ours = asm.label();
    need(asm, Reg::R5, TCP_BYTES, ends.drop);
    asm.load(Size::Byte, Reg::R0, Reg::R5, FLAGS_AT);
    asm.alu(Alu::And, Reg::R0, FLAGS_LOOKED_AT);
    asm.jump(Cond::NotEqual, Reg::R0, SYN, ends.pass);
    asm.load(Size::Word, PORTS, Reg::R5, 0);
    asm.network_order(PORTS, 32);
    asm.mov(Reg::R0, PORTS);
    asm.alu(Alu::And, Reg::R0, 0xffff);
    ports.iter().for_each(|port| asm.jump(Cond::Equal, Reg::R0, i32::from(*port), ours));
    asm.goto(ends.pass);
    asm.place(ours);
}
