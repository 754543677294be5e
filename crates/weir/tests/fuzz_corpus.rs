//! Runs the fuzz targets' checks on the committed corpus and on mutations of it: a moment of
//! fuzzing that is the same every time. `cargo +nightly fuzz run NAME` looks further.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

#[expect(unreachable_pub, reason = "the file is the library of the fuzz crate")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

/// How long a target may take: mutation stops early on a slow machine, so that the test does not.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Mutations of a target's corpus: a second or less for most, without optimisation.
const MUTATIONS: usize = 20_000;

/// Longest input that mutation grows.
const INPUT_LEN_MAX: usize = 2048;

#[test]
fn accept_encoding() {
    replay_and_mutate("accept_encoding");
}

#[test]
fn cache_control() {
    replay_and_mutate("cache_control");
}

#[test]
fn conditional() {
    replay_and_mutate("conditional");
}

#[test]
fn config() {
    replay_and_mutate("config");
}

#[test]
fn decode() {
    replay_and_mutate("decode");
}

#[test]
fn head() {
    replay_and_mutate("head");
}

#[test]
fn helper_order() {
    replay_and_mutate("helper_order");
}

#[test]
fn helper_report() {
    replay_and_mutate("helper_report");
}

#[test]
fn host() {
    replay_and_mutate("host");
}

#[test]
fn html() {
    replay_and_mutate("html");
}

#[test]
fn icap() {
    replay_and_mutate("icap");
}

#[test]
fn image() {
    replay_and_mutate("image");
}

#[test]
fn path() {
    replay_and_mutate("path");
}

#[test]
fn proxy_protocol() {
    replay_and_mutate("proxy_protocol");
}

#[test]
fn range() {
    replay_and_mutate("range");
}

#[test]
fn request() {
    replay_and_mutate("request");
}

#[test]
fn users() {
    replay_and_mutate("users");
}

/// A target added without a test here would go unnoticed.
#[test]
fn every_target_is_tested() {
    let source = include_str!("fuzz_corpus.rs");
    for (name, _) in targets::TARGETS {
        assert!(source.contains(&format!("replay_and_mutate(\"{name}\")")), "no test of {name}");
    }
}

/// What would make a target useless: that it cannot fail.
#[test]
fn a_broken_promise_is_reported_with_its_input() {
    let broken: targets::Target = |data| assert!(!data.starts_with(b"\xffa"), "broken");
    run(broken, "broken", b"fine");
    let failure = catch_unwind(|| run(broken, "broken", b"\xffa")).unwrap_err();
    let message = failure.downcast_ref::<String>().unwrap();
    assert_eq!(message, "target broken fails on b\"\\xffa\"");
}

fn replay_and_mutate(name: &str) {
    let (_, target) = *targets::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(corpus.len() >= 5, "a corpus of {} for {name}", corpus.len());
    corpus.iter().for_each(|input| run(target, name, input));

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let start = Instant::now();
    for _ in (0..MUTATIONS).take_while(|_| start.elapsed() < TIME_MAX) {
        run(target, name, &mutated(&corpus, &mut random));
    }
}

fn run(target: targets::Target, name: &str, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(outcome.is_ok(), "target {name} fails on b\"{}\"", input.escape_ascii());
}

/// An input of the corpus with one to four changes, each the kind of mistake a peer makes: a byte
/// changed, inserted or repeated, a piece missing, doubled or taken from another input.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TELLING: &[u8] = b"\0\r\n\t \"%,-./0129:;=[]_~\x7f\x80\xff";
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let start = random.below(input.len() + 1);
        let end = (start + random.below(16)).min(input.len());
        let byte = match random.below(3) {
            0 => random.below(256) as u8,
            _ => TELLING[random.below(TELLING.len())],
        };
        match random.below(6) {
            0 if start < input.len() => input[start] = byte,
            1 if start < input.len() => input[start] ^= 1 << random.below(8),
            2 => drop(input.drain(start..end)),
            3 => {
                let piece = input[start..end].to_vec();
                input.splice(start..start, piece);
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(start);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.insert(start, byte),
        }
        input.truncate(INPUT_LEN_MAX);
    }
    input
}

/// xorshift64*: the same sequence on every machine.
struct Random(u64);

impl Random {
    /// A number less than `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        high as usize % bound
    }
}
