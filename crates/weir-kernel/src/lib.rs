//! Rules in the kernel: an assembler for eBPF, the programs that are made of rules for connections,
//! and everything that loads, attaches and reads them. All calls of bpf(2) are here.
