//! What programs and process share: counters, buckets and the words that switch things. One map of
//! fixed size, mapped into the process, that lives as long as the [`Kernel`](crate::Kernel) does
//! while programs come and go; so a bucket is kept by keeping its rule's slot.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_config::PrefixLengths;

use crate::clock::{Clock, Jiffies};
use crate::error::KernelError;
use crate::limits::{CLASSES_MAX, PENALTIES_MAX, RULES_MAX, WAYS};
use crate::policy::Pace;
use crate::sys::Mapped;

/// Words of a cache line. What different processors write is kept on lines of its own.
const LINE: usize = 8;

/// Whether limits that are not for always hold.
pub(crate) const OVERLOAD: usize = 0;
/// Until when some source is policed; programs look no source up after that.
pub(crate) const PENALTIES_UNTIL: usize = 1;
/// The class of what no rule gives another, plus one.
pub(crate) const DEFAULT_CLASS: usize = 2;
/// The secret numbers, two words. Programs read them from here, so that they are in no listing, and
/// so that no hash is a constant to the verifier.
pub(crate) const SEEDS: usize = 3;
/// Connections dropped because their source is policed.
pub(crate) const PENALISED: usize = LINE;
/// Buckets that were forgotten while they still held something, for want of room.
pub(crate) const FORGOTTEN: usize = LINE + 1;
/// Connections dropped because other processors kept changing their bucket.
pub(crate) const CONTENDED: usize = LINE + 2;
/// Connections whose class had no socket on any worker tried.
pub(crate) const UNSTEERED: usize = LINE + 3;
/// Connections by class, a line each.
const CLASSES: usize = 2 * LINE;
/// Rules, two lines each.
const RULES: usize = CLASSES + CLASSES_MAX * LINE;
const WORDS: usize = RULES + RULES_MAX * RULE;
/// A rule's line that is nobody's: all its words stay 0.
pub(crate) const NOBODY: usize = 0;

// Words of a rule's line.
/// Theoretical arrival time of the rule's own bucket.
pub(crate) const ARRIVAL: usize = 0;
pub(crate) const INTERVAL: usize = 1;
pub(crate) const TOLERANCE: usize = 2;
/// Connections that the rule means, but for those of [`SPARED_ALL`].
pub(crate) const OFFERED: usize = 3;
/// Those of them that it dropped.
pub(crate) const DROPPED: usize = 4;
/// The class it gives, plus one; read from here, so that the verifier need not follow every class
/// apart.
pub(crate) const CLASS: usize = 5;
/// Those that it would have dropped, were there overload; it means them besides.
pub(crate) const SPARED: usize = 6;
/// The same of a rule that would have dropped all, so that one count does for both.
pub(crate) const SPARED_ALL: usize = 7;
/// A bucket of what would be dropped, in [`Jiffies`](crate::clock::Jiffies): kept while nothing is.
pub(crate) const SPARE_ARRIVAL: usize = LINE;
pub(crate) const SPARE_INTERVAL: usize = LINE + 1;
pub(crate) const SPARE_TOLERANCE: usize = LINE + 2;
/// The line's own number, from here for the same reason as the class.
pub(crate) const NUMBER: usize = LINE + 3;
/// Words of a rule: a line for what each connection meets, another for the rest.
pub(crate) const RULE: usize = 2 * LINE;

/// What a table of keys has for each: the fingerprint of the key and a time. An entry whose time is
/// past says nothing, and is as good as none.
const ENTRY_WORDS: usize = 2;

/// The shared memory.
#[derive(Debug)]
pub(crate) struct State {
    shared: Mapped,
    penalties: Mapped,
    seeds: Seeds,
    clock: Clock,
}

/// Secret numbers of a process, so that nobody can choose sources that share a line of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(pub(crate) [u64; 2]);

/// What a hash multiplies by: odd, of no pattern; from the finaliser of SplitMix64 (Steele, Lea and
/// Flood 2014).
pub(crate) const MULTIPLIERS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

impl State {
    pub(crate) fn new() -> Result<State, KernelError> {
        let shared = Mapped::new("weir_state", WORDS)?;
        let penalties = Mapped::new("weir_penalties", PENALTIES_MAX * ENTRY_WORDS)?;
        let seeds = Seeds::random();
        for (word, seed) in (SEEDS..).zip(seeds.0) {
            shared.words()[word].store(seed, Ordering::Relaxed);
        }
        let clock = Clock::known();
        Ok(State { shared, penalties, seeds, clock })
    }

    /// The same by another clock.
    #[cfg(test)]
    pub(crate) fn by_clock(self, clock: Option<Clock>) -> State {
        State { clock: clock.unwrap_or(self.clock), ..self }
    }

    /// The clock of programs.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.shared.fd()
    }

    pub(crate) fn penalties_fd(&self) -> RawFd {
        self.penalties.fd()
    }

    /// What programs measure time by where they only count, if there is such a thing.
    pub(crate) fn jiffies(&self) -> Option<Jiffies> {
        self.clock.jiffies()
    }

    /// A word that all rules share.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.shared.words()[index]
    }

    /// A word of a rule.
    pub(crate) fn of_rule(&self, slot: usize, word: usize) -> &AtomicU64 {
        &self.shared.words()[rule_word(slot, word)]
    }

    /// Connections of a class.
    pub(crate) fn of_class(&self, class: usize) -> &AtomicU64 {
        &self.shared.words()[class_word(class)]
    }

    /// Makes a slot a rule's that has none: an idle bucket, and nothing counted.
    pub(crate) fn clear_rule(&self, slot: usize) {
        for word in 0..RULE {
            self.of_rule(slot, word).store(0, Ordering::Relaxed);
        }
    }

    /// Sets what programs find of a rule; those that run take it from the next packet on.
    pub(crate) fn set_rule(&self, slot: usize, pace: Option<Pace>, class: Option<usize>) {
        if let Some(pace) = pace {
            self.of_rule(slot, INTERVAL).store(pace.interval_ns, Ordering::Relaxed);
            let tolerance_ns = pace.tolerance_ns.max(self.clock.tick_ns());
            self.of_rule(slot, TOLERANCE).store(tolerance_ns, Ordering::Relaxed);
            if let Some(jiffies) = self.jiffies() {
                let [interval, tolerance] =
                    [pace.interval_ns, tolerance_ns].map(|ns| jiffies.of_ns(ns));
                self.of_rule(slot, SPARE_INTERVAL).store(interval, Ordering::Relaxed);
                self.of_rule(slot, SPARE_TOLERANCE).store(tolerance, Ordering::Relaxed);
            }
        }
        self.of_rule(slot, NUMBER).store(slot as u64, Ordering::Relaxed);
        let class = class.map_or(0, |class| class as u64 + 1);
        self.of_rule(slot, CLASS).store(class, Ordering::Relaxed);
    }

    /// Connections that a bucket lets through now: that of a rule, or of a key in a table.
    pub(crate) fn tokens_left(&self, slot: usize, key: Option<(&Mapped, u64)>) -> u64 {
        let word = |word| self.of_rule(slot, word).load(Ordering::Relaxed);
        let arrival = match key {
            None => word(ARRIVAL),
            // One that is not known has used nothing.
            Some((table, mark)) => entries(table, mark)
                .find(|pair| pair[0].load(Ordering::Relaxed) == mark)
                .map_or(0, |pair| pair[1].load(Ordering::Relaxed)),
        };
        let (interval, tolerance) = (word(INTERVAL).max(1), word(TOLERANCE));
        let ahead = arrival.saturating_sub(self.clock.now_ns());
        tolerance.checked_sub(ahead).map_or(0, |room| room / interval + 1)
    }

    /// What a table knows a rule's bucket for a source by.
    pub(crate) fn mark(&self, rule: &str, source: IpAddr, by: PrefixLengths) -> u64 {
        let (high, low) = halves(source);
        let (high_mask, low_mask) = prefix_mask(prefix_bits(source.is_ipv4(), by));
        fingerprint(self.seeds, rule_id(rule), high & high_mask, low & low_mask)
    }

    /// Polices a source's prefix until a time of the monotonic clock. A table's line that is full
    /// lets go of the one whose time is up first.
    pub(crate) fn penalise(&self, source: IpAddr, by: PrefixLengths, until_ns: u64) {
        let bits = prefix_bits(source.is_ipv4(), by);
        let (high, low) = halves(source);
        let (high_mask, low_mask) = prefix_mask(bits);
        // Prefixes of different lengths are different, whatever their bits.
        let mark = fingerprint(self.seeds, bits.into(), high & high_mask, low & low_mask);
        let mut pairs = entries(&self.penalties, mark);
        let known = pairs.clone().find(|pair| pair[0].load(Ordering::Relaxed) == mark);
        let first_up = || pairs.by_ref().min_by_key(|pair| pair[1].load(Ordering::Relaxed));
        let Some(entry) = known.or_else(first_up) else { return };
        if entry[0].swap(mark, Ordering::Relaxed) == mark {
            entry[1].fetch_max(until_ns, Ordering::Relaxed);
        } else {
            entry[1].store(until_ns, Ordering::Relaxed);
        }
        self.word(PENALTIES_UNTIL).fetch_max(until_ns, Ordering::Release);
    }
}

/// The entries of a table among which a mark can be: pairs of a mark and a time.
fn entries(table: &Mapped, mark: u64) -> std::slice::ChunksExact<'_, AtomicU64> {
    let lines = table.len() / (WAYS * ENTRY_WORDS);
    let line = (mark as usize & (lines - 1)) * WAYS * ENTRY_WORDS;
    table.words()[line..line + WAYS * ENTRY_WORDS].chunks_exact(ENTRY_WORDS)
}

/// Where a rule's word is in the shared map.
pub(crate) fn rule_word(slot: usize, word: usize) -> usize {
    RULES + slot * RULE + word
}

/// Where a class is counted in the shared map.
pub(crate) fn class_word(class: usize) -> usize {
    CLASSES + class * LINE
}

/// Words of a table for so many keys.
pub(crate) fn table_words(keys: usize) -> usize {
    keys * ENTRY_WORDS
}

impl Seeds {
    fn random() -> Seeds {
        use std::hash::{BuildHasher, RandomState};
        // The standard library's hasher is keyed with random numbers of the system.
        let secret = RandomState::new();
        Seeds([secret.hash_one(1_u64), secret.hash_one(2_u64)])
    }
}

/// An address as two numbers; an IPv4 address as the IPv6 address that stands for it (RFC 4291
/// §2.5.5.2).
pub(crate) fn halves(address: IpAddr) -> (u64, u64) {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    ((bits >> 64) as u64, bits as u64)
}

/// How many bits of an address as [`halves`] has it are its prefix.
pub(crate) fn prefix_bits(is_v4: bool, by: PrefixLengths) -> u32 {
    if is_v4 { 96 + u32::from(by.v4.min(32)) } else { u32::from(by.v6.min(128)) }
}

/// Those bits of both halves.
pub(crate) fn prefix_mask(bits: u32) -> (u64, u64) {
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    ((mask >> 64) as u64, mask as u64)
}

/// What a table knows a key by: never 0, which is an empty entry. The same is computed by programs.
pub(crate) fn fingerprint(seeds: Seeds, id: u64, high: u64, low: u64) -> u64 {
    let mix = |value: u64, multiplier: u64| {
        let product = value.wrapping_mul(multiplier);
        product ^ product >> 32
    };
    let [first, second] = MULTIPLIERS;
    let mut hash = mix(high ^ seeds.0[0], first);
    hash = mix((hash ^ low).wrapping_add(seeds.0[1]), second);
    hash = mix(hash ^ id, first);
    hash | 1 << 63
}

/// What a rule's keys are told apart by from those of others: a hash of its name, so that they are
/// found again after a reload (FNV-1a).
pub(crate) fn rule_id(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
