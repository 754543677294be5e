//! Prints how long decisions take in the kernel here. The time is the kernel's, so that a debug
//! build will do: `cargo run -p weir-kernel --example decisions`. Needs the privilege to load
//! programs.

use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = stdout().lock();
    writeln!(out, "| decision | ns | instructions | loaded in ms |")?;
    writeln!(out, "|---|---|---|---|")?;
    for measured in weir_kernel::measure(1_000_000)? {
        let (name, ns) = (measured.name, measured.decision.as_nanos());
        let load_ms = measured.load.as_secs_f64() * 1e3;
        writeln!(out, "| {name} | {ns} | {} | {load_ms:.1} |", measured.instructions)?;
    }
    Ok(())
}
