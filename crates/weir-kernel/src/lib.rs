//! Rules in the kernel: an assembler for eBPF, the programs that are made of rules for connections,
//! and everything that loads, attaches and reads them. All calls of bpf(2) are here.
//!
//! Begin at [`Kernel`], whose module tells its life; [`Policy`] is what goes in, [`Enforcement`]
//! and [`Counters`] what comes out. What rules mean is `weir-config`'s to say; what is not enforced
//! here is left to user space.

pub mod asm;
mod classic;
mod clock;
mod compile;
mod counters;
mod enforcement;
mod error;
mod kernel;
pub mod limits;
mod measure;
mod packet;
mod policy;
pub mod privilege;
mod refusal;
mod state;
mod sys;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testnet;

pub use counters::{Counters, RuleCounters};
pub use enforcement::{Enforcement, Steering};
pub use error::KernelError;
pub use kernel::{Attachment, Kernel, detach_accepted};
pub use measure::{Measurement, measure};
pub use policy::Policy;
pub use refusal::Refusal;
