//! How long a decision takes, by test runs of programs in the kernel. The lab prints the figures;
//! nothing in the server calls this.
//!
//! What runs is the program of sockets, which expects a packet to begin with its TCP header; test
//! runs give it the IP header. So source addresses are chosen whose second byte (of IPv6, the
//! sixth) reads as the flags of a SYN: then each instruction is one that real packets meet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use weir_config::{AddressSet, PrefixLengths};

use crate::asm::{Assembler, Program};
use crate::compile::{self, Goal, Hook, Plan};
use crate::error::KernelError;
use crate::limits::INSTRUCTIONS_MAX;
use crate::packet::Frame;
use crate::policy::{Key, Limit, Pace, Policy, Rule};
use crate::state::{DEFAULT_CLASS, NOBODY, State, table_words};
use crate::sys::{LoadedProgram, Mapped, ProgramKind};

/// The time of a decision.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// What was decided.
    pub name: &'static str,
    /// One decision, without what a test run takes by itself. The least of several rounds: what
    /// else the machine does only adds to it.
    pub decision: Duration,
    /// Instructions of the program.
    pub instructions: usize,
    /// How long it took to load it.
    pub load: Duration,
}

/// Rounds of which the fastest counts.
const ROUNDS: usize = 7;

/// Measures decisions, each by so many test runs a round. Takes about a second for 100,000.
///
/// # Errors
/// If programs cannot be loaded here.
pub fn measure(repeat: u32) -> Result<Vec<Measurement>, KernelError> {
    let state = State::new()?;
    let keys = Mapped::new("weir_keys", table_words(KEYS))?;
    let empty = {
        let mut asm = Assembler::new();
        asm.exit_with(-1);
        let program = LoadedProgram::load(ProgramKind::SocketFilter, &asm.finish(2)?)?;
        fastest(&program, &[syn_v4()], repeat)?
    };
    state.word(DEFAULT_CLASS).store(1, std::sync::atomic::Ordering::Relaxed);
    for number in 0..PENALISED {
        state.penalise(IpAddr::V4((0xc000_0000 + number).into()), PENALTY, u64::MAX >> 1);
    }
    let mut measured = Vec::new();
    for case in cases() {
        let slots: Vec<usize> = (NOBODY + 1..).take(case.rules.len()).collect();
        for (rule, slot) in case.rules.iter().zip(&slots) {
            let pace = match rule.limit {
                Some(Limit::Rate(pace, _)) => Some(pace),
                Some(Limit::Refuse) | None => None,
            };
            state.set_rule(*slot, pace, rule.class);
        }
        let penalties = case.penalties;
        let policy = Policy { rules: case.rules, keys: KEYS, penalties, ..policy() };
        let plan = Plan {
            policy: &policy,
            slots: &slots,
            state: &state,
            keys: Some(&keys),
            goal: Goal::Police,
            instructions_max: INSTRUCTIONS_MAX,
        };
        let compiled = compile::police(&plan, Hook::Socket { judged_on: 0 })?;
        let began = std::time::Instant::now();
        let program = LoadedProgram::load(ProgramKind::SocketFilter, &compiled.program)?;
        let load = began.elapsed();
        let decision = fastest(&program, &case.frames, repeat)?.saturating_sub(empty);
        let instructions = length(&compiled.program);
        measured.push(Measurement { name: case.name, decision, instructions, load });
    }
    Ok(measured)
}

/// What is measured.
struct Case {
    name: &'static str,
    rules: Vec<Rule>,
    /// Of several, the mean is taken, so that no one path is measured whose branches are all known.
    frames: Vec<Frame>,
    /// What rules have policed for a while, and there is somebody who is.
    penalties: Vec<PrefixLengths>,
}

const KEYS: usize = 1 << 20;

/// Sources under a penalty, of whom none is measured.
const PENALISED: u32 = 1000;
const PENALTY: PrefixLengths = PrefixLengths { v4: 32, v6: 64 };

fn cases() -> Vec<Case> {
    let of = |name, rules, frames| Case { name, rules, frames, penalties: Vec::new() };
    let penalties = |case| Case { penalties: vec![PENALTY], ..case };
    let prefixes = |count| vec![Rule { from: spread_v4(count), ..rate(Key::Rule) }];
    let v4 = || (0..64).map(|n| from_v4(((n * 0x03fd_1b2d) & !0xff_0000) | 0x02_0000)).collect();
    let v6 = || (0..64).map(|n| from_v6(n * 0x600 + 2)).collect();
    let source = Key::Prefix { v4: 32, v6: 128 };
    let many = || (0..64).map(one_of_many).collect::<Vec<Rule>>();
    vec![
        of("no SYN", vec![rate(Key::Rule)], vec![from_v4(0x0a10_0005)]),
        of("no rule", Vec::new(), vec![syn_v4()]),
        of("1 rule, class", vec![Rule { class: Some(0), ..rule() }], vec![syn_v4()]),
        of("1 rule, bucket", vec![rate(Key::Rule)], vec![syn_v4()]),
        of("1 rule, bucket, IPv6", vec![rate(Key::Rule)], vec![from_v6(2)]),
        of("3 rules by source, bucket", (0..3).map(one_of_many).collect(), vec![from_many(1)]),
        of("64 rules by source, bucket", many(), (0..64).map(from_many).collect()),
        of("1,000 prefixes, bucket", prefixes(1000), v4()),
        of("100,000 prefixes, bucket", prefixes(100_000), v4()),
        of(
            "100,000 prefixes of IPv6, bucket",
            vec![Rule { from: spread_v6(100_000), ..rate(Key::Rule) }],
            v6(),
        ),
        of("bucket by source, known", vec![rate(source)], vec![syn_v4()]),
        of("bucket by source, 64 known", vec![rate(source)], v4()),
        of("bucket of all, and one by source", vec![rate(Key::Rule), rate(source)], vec![syn_v4()]),
        of("1 rule, bucket under overload only", vec![spare(Key::Rule)], vec![syn_v4()]),
        of("1 rule, refused under overload", vec![refuse_under_overload()], vec![syn_v4()]),
        penalties(of("no rule, others under penalties", Vec::new(), v4())),
        penalties(of("no rule, others under penalties, IPv6", Vec::new(), v6())),
    ]
}

/// A rule that matches everything and does nothing.
fn rule() -> Rule {
    Rule {
        name: "measured".to_owned(),
        from: None,
        from_ports: Vec::new(),
        to: None,
        ports: Vec::new(),
        class: None,
        limit: None,
        pass: false,
        always: true,
        dry_run: false,
    }
}

/// A rate that is never reached: a bucket that is asked and lets through.
fn rate(key: Key) -> Rule {
    let pace = Pace::new(u32::MAX, Duration::from_secs(1), u32::MAX);
    Rule { limit: Some(Limit::Rate(pace, key)), ..rule() }
}

/// The same, but only under overload, which there is not: it is counted what it would drop.
fn spare(key: Key) -> Rule {
    Rule { always: false, ..rate(key) }
}

fn refuse_under_overload() -> Rule {
    Rule { limit: Some(Limit::Refuse), always: false, ..rule() }
}

/// One of rules for a /24 each, with a class and a rate.
fn one_of_many(number: u32) -> Rule {
    let first = 0x0a02_0000 + (number << 8);
    let range = (IpAddr::V4(first.into()), IpAddr::V4((first | 0xff).into()));
    Rule { from: AddressSet::new(vec![range]), class: Some(0), ..rate(Key::Rule) }
}

fn from_many(number: u32) -> Frame {
    from_v4(0x0a02_0000 + (number << 8) + 5)
}

/// Ranges in even distances, which cover half of all addresses.
fn spread_v4(count: u32) -> Option<AddressSet> {
    let step = u32::MAX / count;
    let ranges = (0..count).map(|number| {
        let first = number * step;
        (Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(first + step / 2).into())
    });
    AddressSet::new(ranges.collect())
}

/// Prefixes of 48 bits below 2001::/16, with gaps as large.
fn spread_v6(count: u128) -> Option<AddressSet> {
    let ranges = (0..count).map(|number| {
        let first = (0x2001 << 112) + (number << 81);
        let last = first | ((1 << 80) - 1);
        (Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(last).into())
    });
    AddressSet::new(ranges.collect())
}

fn policy() -> Policy {
    Policy::new(&weir_config::Guard::default(), 2)
}

fn syn_v4() -> Frame {
    from_v4(0x0a02_0005)
}

fn from_v4(source: u32) -> Frame {
    let to = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 80));
    Frame { tcp_options: 20, ..Frame::syn((Ipv4Addr::from_bits(source), 40_000).into(), to) }
}

fn from_v6(number: u128) -> Frame {
    let to = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
    let source = Ipv6Addr::from_bits((0x2001 << 112) + (number << 80) + 1);
    Frame { tcp_options: 20, ..Frame::syn((source, 40_000).into(), to) }
}

/// The time of a run: of each frame the fastest round, and the mean of those.
fn fastest(
    program: &LoadedProgram,
    frames: &[Frame],
    repeat: u32,
) -> Result<Duration, KernelError> {
    let repeat = (repeat / frames.len() as u32).max(1);
    let mut sum = Duration::ZERO;
    for frame in frames {
        let bytes = frame.bytes();
        let mut least = Duration::MAX;
        for _ in 0..ROUNDS {
            let run = program.test(&bytes, repeat);
            let run = run.map_err(|e| KernelError::bpf("running a program", e))?;
            least = least.min(run.each);
        }
        sum += least;
    }
    Ok(sum / frames.len() as u32)
}

fn length(program: &Program) -> usize {
    program.insns().len()
}
