//! What tests share: policies in few words, and programs that run on packets.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_config::{
    AddressSet, BucketKey, Class, Guard, GuardRule, Match, Penalty, PrefixLengths, Rate, RateUnit,
    RefusalAnswer,
};

use crate::asm::Program;
use crate::clock::Clock;
use crate::compile::{self, Goal, Hook, Plan};
use crate::error::KernelError;
use crate::limits::INSTRUCTIONS_MAX;
use crate::packet::Frame;
use crate::policy::Policy;
use crate::state::{ARRIVAL, DROPPED, OFFERED, OVERLOAD, SPARED, SPARED_ALL, State, table_words};
use crate::sys::{LoadedProgram, Mapped, ProgramKind};

/// A rule that does nothing, but for what `change` says.
pub(crate) fn rule(name: &str, change: impl FnOnce(&mut GuardRule)) -> GuardRule {
    let mut rule = GuardRule {
        name: name.to_owned(),
        on: Match::default(),
        class: None,
        rate: None,
        concurrency: None,
        by: BucketKey::Rule,
        unit: RateUnit::Auto,
        refuse: false,
        pass: false,
        always: true,
        dry_run: false,
        answer: RefusalAnswer::Reset,
        penalty: None,
    };
    change(&mut rule);
    rule
}

/// Rules, and classes in the order of their priority; `default` comes last.
pub(crate) fn guard(classes: &[&str], rules: Vec<GuardRule>) -> Guard {
    let names = classes.iter().copied().chain([weir_config::DEFAULT_CLASS]);
    let class = |(priority, name): (u8, &str)| Class {
        name: name.to_owned(),
        priority,
        ..Class::default()
    };
    Guard { classes: (1..).zip(names).map(class).collect(), rules, keys: 1024, ..Guard::default() }
}

pub(crate) fn set(ranges: &[(&str, &str)]) -> Option<AddressSet> {
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    AddressSet::new(ranges.iter().map(|(first, last)| (ip(first), ip(last))).collect())
}

/// What a rule of requests says of those that it refuses too often.
pub(crate) fn penalty(v4: u8, v6: u8) -> Option<Penalty> {
    let (within, lasts) = (Duration::from_secs(1), Duration::from_secs(600));
    Some(Penalty { after: 1, within, lasts, by: PrefixLengths { v4, v6 } })
}

pub(crate) fn per_hour(count: u32, burst: u32) -> Option<Rate> {
    Some(Rate { count, period: Duration::from_secs(3600), burst })
}

/// Programs of a policy, loaded for test runs.
pub(crate) struct Bench {
    pub(crate) state: State,
    pub(crate) policy: Policy,
    pub(crate) slots: Vec<usize>,
    pub(crate) police: LoadedProgram,
    pub(crate) classify: LoadedProgram,
    keys: Option<Mapped>,
}

impl Bench {
    /// `None`, and a line that says why, without the privilege.
    pub(crate) fn new(policy: Policy) -> Option<Bench> {
        Bench::with_clock(policy, None)
    }

    /// The same by another clock than the machine's cheapest.
    pub(crate) fn with_clock(policy: Policy, clock: Option<Clock>) -> Option<Bench> {
        let state = match State::new() {
            Ok(state) => state.by_clock(clock),
            Err(e @ KernelError::NotPermitted { .. }) => {
                println!("skipped: {e}");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let keys = Some(Mapped::new("weir_keys", table_words(policy.keys)).unwrap());
        let slots: Vec<usize> = (0..policy.rules.len()).map(|slot| slot * 3 + 1).collect();
        for (rule, slot) in policy.rules.iter().zip(&slots) {
            let pace = match rule.limit {
                Some(crate::policy::Limit::Rate(pace, _)) => Some(pace),
                _ => None,
            };
            state.set_rule(*slot, pace, rule.class);
        }
        let default = policy.default_class as u64 + 1;
        state.word(crate::state::DEFAULT_CLASS).store(default, Ordering::Relaxed);
        let load = |compiled: compile::Compiled| {
            LoadedProgram::load(ProgramKind::SocketFilter, &compiled.program).unwrap()
        };
        let plan = |goal| {
            let (policy, slots, keys) = (&policy, &slots[..], keys.as_ref());
            let (state, instructions_max) = (&state, INSTRUCTIONS_MAX);
            Plan { policy, slots, state, keys, goal, instructions_max }
        };
        let police = load(compile::police(&plan(Goal::Police), Hook::TestRun).unwrap());
        let steer = Goal::Steer { counts: false };
        let classify = load(compile::classify(&plan(steer)).unwrap());
        Some(Bench { police, classify, state, slots, keys, policy })
    }

    /// The policing program as it meets packets elsewhere.
    pub(crate) fn program(&self, hook: Hook) -> Program {
        let plan = Plan {
            policy: &self.policy,
            slots: &self.slots,
            state: &self.state,
            keys: self.keys.as_ref(),
            goal: Goal::Police,
            instructions_max: INSTRUCTIONS_MAX,
        };
        compile::police(&plan, hook).unwrap().program
    }

    pub(crate) fn passes(&self, frame: &Frame) -> bool {
        self.police.test(&frame.bytes(), 1).unwrap().result != 0
    }

    /// The class by its index.
    pub(crate) fn class(&self, frame: &Frame) -> usize {
        self.classify.test(&frame.bytes(), 1).unwrap().result as usize - 1
    }

    /// Offered and dropped.
    pub(crate) fn counts(&self, rule: usize) -> (u64, u64) {
        let word = |word| self.state.of_rule(self.slots[rule], word).load(Ordering::Relaxed);
        (word(OFFERED) + word(SPARED_ALL), word(DROPPED))
    }

    /// What would have been dropped.
    pub(crate) fn spared(&self, rule: usize) -> u64 {
        let word = |word| self.state.of_rule(self.slots[rule], word).load(Ordering::Relaxed);
        word(SPARED) + word(SPARED_ALL)
    }

    pub(crate) fn arrival(&self, rule: usize) -> &std::sync::atomic::AtomicU64 {
        self.state.of_rule(self.slots[rule], ARRIVAL)
    }

    pub(crate) fn set_overload(&self, is_overloaded: bool) {
        self.state.word(OVERLOAD).store(is_overloaded.into(), Ordering::Relaxed);
    }
}

/// Runs on a thread that has these capabilities only.
pub(crate) fn within_capabilities<T: Send>(
    capabilities: rustix::thread::CapabilitySet,
    run: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let sets = rustix::thread::CapabilitySets {
                effective: capabilities,
                permitted: capabilities,
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, sets).unwrap();
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
