//! Helpers that have fallen to what they worked on, or are none: the pool ends them, nobody waits
//! for ever, and nothing of what they say gets through. They are shell scripts here, whose standard
//! input is the socket.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::ffi::OsString;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_adapt::adapters::compress::{Coding, Compress};
use weir_adapt::{Job, Limits, Outcome, Pool, PoolSettings, Recipe, Refused, Stats, Step};
use weir_arena::Arena;

/// Goes on without a word, as the very process that can be ended.
const SILENCE: &str = "exec /bin/sleep 60";
/// What a helper says that has begun: a report of the first kind, with an empty list.
const READY: &str = "printf '\\000\\000' >&0; ";

/// Processor time of a job; by the clock thirty times that: enough for a busy machine.
const TIME: Duration = Duration::from_millis(500);
/// That of one whose helper is silent until then.
const LITTLE_TIME: Duration = Duration::from_millis(20);

fn pool(script: &str) -> Pool {
    let arguments = ["-c", script].map(OsString::from).to_vec();
    let settings =
        PoolSettings { helpers: 1, queue: 4, program: "/bin/sh".into(), arguments, cgroup: None };
    Pool::start(settings, Arena::new(16 << 20).unwrap()).unwrap()
}

fn job(key: u128, time: Duration) -> Job {
    let compress = Compress { coding: Coding::Gzip, level: 4 };
    Job {
        key,
        input: vec![Bytes::from_static(&[b'a'; 4096])],
        tables: Vec::new(),
        recipe: Recipe { steps: vec![Step::Compress(compress)] },
        limits: Limits { output_bytes: 1 << 20, time },
    }
}

fn run(pool: &Pool, key: u128) -> Result<Outcome, Refused> {
    run_for(pool, key, TIME)
}

fn run_for(pool: &Pool, key: u128, time: Duration) -> Result<Outcome, Refused> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(pool.adapt(job(key, time), |_| {}))
}

/// What becomes of a job, and of those who did it.
fn check(script: &str, expect: &str) -> Stats {
    let (pool, began) = (pool(script), Instant::now());
    let outcome = run(&pool, 1);
    let Ok(Outcome::Failed(cause) | Outcome::Died(cause)) = outcome else {
        panic!("{script}: {outcome:?}")
    };
    assert!(cause.contains(expect), "{script}: {cause}");
    assert!(began.elapsed() < Duration::from_secs(30), "{script}");
    pool.stats()
}

#[test]
fn what_is_no_helper_is_not_started_twice_for_a_job() {
    for (script, expect) in [
        ("exit 0", "no helper can be started"),
        ("printf 'nonsense' >&0; exec /bin/sleep 60", "no helper can be started: not a message"),
        // A report on work that nobody has ordered: on no jobs.
        ("printf '\\001\\000' >&0; exec /bin/sleep 60", "no helper can be started: unexpected"),
    ] {
        let stats = check(script, expect);
        assert_eq!((stats.failed, stats.started), (1, 0), "{script}");
    }
}

#[test]
fn a_helper_that_dies_speaks_nonsense_or_is_silent_is_replaced_once() {
    // A byte of each packet is as good as all of it.
    let hear = "/usr/bin/head -c 1 >/dev/null; ";
    for (script, expect) in [
        (format!("{hear}{READY}{hear}exit 1"), "its helper died of it"),
        (format!("{READY}printf 'nonsense' >&0; {SILENCE}"), "not a message"),
        (format!("{READY}{READY}{SILENCE}"), "unexpected: Ready"),
        (format!("{READY}printf '\\001\\000' >&0; {SILENCE}"), "the ends of 0 jobs, of 1"),
        // Two ends, both of a job without result.
        (format!("{READY}printf '\\001\\002\\001\\000\\001\\000' >&0; {SILENCE}"), "2 jobs, of 1"),
        // Made, of 100 bytes behind the report, of which three came.
        (
            format!("{READY}printf '\\001\\001\\000\\000\\144\\000abc' >&0; {SILENCE}"),
            "of which 3 came",
        ),
        (format!("{READY}{SILENCE}"), "it took longer than"),
    ] {
        let pool = pool(&script);
        let time = if expect.contains("longer") { LITTLE_TIME } else { TIME };
        let outcome = run_for(&pool, 1, time);
        let Ok(Outcome::Died(cause)) = outcome else { panic!("{script}: {outcome:?}") };
        assert!(cause.contains(expect), "{script}: {cause}");
        let stats = pool.stats();
        assert_eq!((stats.started, stats.died, stats.failed), (2, 2, 1), "{script}");
        // Not again for a while; others are tried.
        assert_eq!(run(&pool, 1).unwrap_err(), Refused::Deadly, "{script}");
        assert!(matches!(run_for(&pool, 2, time), Ok(Outcome::Died(_))), "{script}");
    }
}

#[test]
fn a_result_that_is_none_is_not_taken() {
    // Made, of so many bytes, in a file that has none and is not sealed.
    for (len, expect) in [
        ("\\144", "a file for 100 bytes"),
        ("\\240\\215\\006", "not sealed"), // 100,000
        ("\\200\\200\\200\\001", "2097152 bytes, of 1048576 allowed"), // 2 MiB
        ("\\377\\377\\377\\377\\377\\377\\377\\377\\377\\001", "of 1048576 allowed"), // all there are
    ] {
        let script = format!("{READY}printf '\\001\\001\\000\\001{len}\\000' >&0; {SILENCE}");
        let stats = check(&script, expect);
        assert_eq!((stats.failed, stats.made, stats.died), (1, 0, 0), "{script}");
    }
}

/// Each helper does one job, and dies of what it is told next, be it one job or several.
#[test]
fn those_who_were_told_together_are_tried_one_by_one() {
    let hear = "/usr/bin/head -c 1 >/dev/null; ";
    let script = format!("{hear}{READY}{hear}printf '\\001\\001\\001\\001' >&0; {hear}exit 1");
    let pool = pool(&script);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ended: Vec<_> = runtime.block_on(async {
        let begun: Vec<_> = (0..4)
            .map(|key| {
                let pool = pool.clone();
                async move { pool.adapt(job(key, LITTLE_TIME), |_| {}).await }
            })
            .collect();
        futures_util::future::join_all(begun).await
    });
    for outcome in ended {
        assert!(matches!(outcome, Ok(Outcome::Original("unchanged"))), "{outcome:?}");
    }
    let stats = pool.stats();
    assert_eq!((stats.original, stats.failed, stats.refused), (4, 0, 0));
    assert!(stats.died >= 1, "{stats:?}");
}

/// It has none, and says that another job has used it.
#[test]
fn a_file_is_not_asked_for_without_end() {
    let script = format!("{READY}printf '\\001\\001\\003' >&0; {SILENCE}");
    let stats = check(&script, "there is no file");
    assert_eq!((stats.failed, stats.made, stats.died), (1, 0, 0));
}

#[test]
fn what_it_says_is_cut_to_plain_text() {
    // Failed, with 5 bytes of which two would begin a line of their own in a log or a head.
    let script = format!("{READY}printf '\\001\\001\\002\\005a\\r\\nbc' >&0; {SILENCE}");
    let pool = pool(&script);
    let outcome = run(&pool, 1);
    let Ok(Outcome::Failed(cause)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(cause, "abc");
}
