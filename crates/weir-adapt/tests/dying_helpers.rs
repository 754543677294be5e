//! Helpers that are killed, stage by stage of a job: from before they have begun to after they have
//! told its end. Whatever had been told counts; the rest is done by the next helper, and nothing of
//! a half result gets through.
//!
//! The helper is this very program: the pool starts it for the test [`helper`], with the stage at
//! which the first one kills itself. Those that come after are real ones.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::pin;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::SealFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, getpid, kill_process};
use tempfile::TempDir;
use weir_adapt::adapters::compress::{Coding, Compress};
use weir_adapt::adapters::decode;
use weir_adapt::helper::{Confinement, run as run_helper};
use weir_adapt::{Job, Limits, Outcome, Pool, PoolSettings, Recipe, Refused, Stats, Step};
use weir_arena::Arena;

const LIMITS: Limits = Limits { output_bytes: 1 << 20, time: Duration::from_secs(20) };

/// The file that says that the helper which dies has been started.
const FIRST_HAS_BEEN: &str = "the first one has been";
/// The file that says that all jobs are in the line: without it the stage "between" does not begin.
const ALL_WAIT: &str = "all wait";

/// The longest order.
const ORDER_BYTES_MAX: usize = 128 << 10;
/// A report that the helper has begun, with an empty list.
const READY: &[u8] = &[0, 0];
/// A report on one job: made, in the file, 100,000 bytes, without a word on it.
const MADE: &[u8] = &[1, 1, 0, 1, 0xa0, 0x8d, 0x06, 0];
/// A report on one job: the original is as good, since there was nothing to change.
const UNCHANGED: &[u8] = &[1, 1, 1, 1];

/// What the first helper has in its file.
static RESULT: [u8; 100_000] = [b'x'; 100_000];

/// A pool whose first helper dies at a stage.
fn pool(stage: &str, directory: &TempDir) -> Pool {
    pool_of(stage, directory, 8)
}

fn pool_of(stage: &str, directory: &TempDir, queue: usize) -> Pool {
    let marker = directory.path().join(FIRST_HAS_BEEN);
    // Whatever follows the name of a test is one more name, which none has.
    let words = ["--exact", "--test-threads=1", "helper", stage];
    let arguments = words.into_iter().map(Into::into).chain([marker.into_os_string()]);
    let settings = PoolSettings {
        helpers: 1,
        queue,
        program: std::env::current_exe().unwrap(),
        arguments: arguments.collect(),
        cgroup: None,
    };
    Pool::start(settings, Arena::new(16 << 20).unwrap()).unwrap()
}

/// 100 KB of which three quarters are left when they are compressed: too much to come behind a
/// report.
fn input() -> Bytes {
    let mut random = 1_u32;
    let mut letter = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        b'0' + (random >> 26) as u8
    };
    (0..100_000).map(|_| letter()).collect::<Vec<u8>>().into()
}

fn job(key: u128, input: Bytes) -> Job {
    let compress = Compress { coding: Coding::Gzip, level: 4 };
    let recipe = Recipe { steps: vec![Step::Compress(compress)] };
    Job { key, input: vec![input], tables: Vec::new(), recipe, limits: LIMITS }
}

fn run(pool: &Pool, key: u128) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(pool.adapt(job(key, input()), |_| {})).unwrap()
}

/// Has jobs done that are all in the line before the first helper does anything.
fn run_together(pool: &Pool, directory: &TempDir, jobs: Vec<Job>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let begun = jobs.into_iter().map(|job| pool.adapt(job, |_| {}));
    let mut all = pin!(futures_util::future::join_all(begun));
    let ended = runtime.block_on(async {
        assert!(futures_util::future::poll_immediate(&mut all).await.is_none());
        File::create(directory.path().join(ALL_WAIT)).unwrap();
        all.await
    });
    ended.into_iter().collect::<Result<_, _>>().unwrap()
}

/// Checks that a job was really done.
fn assert_made(outcome: &Outcome, stage: &str) {
    let Outcome::Made(made) = outcome else { panic!("{stage}: {outcome:?}") };
    assert!(made.body.len() > 64 << 10, "{stage}: {} bytes", made.body.len());
    let text = decode::decode(&made.body, &[Coding::Gzip], &LIMITS).unwrap();
    assert!(text == input(), "{stage}: another text");
}

#[test]
fn what_a_helper_has_not_told_the_next_one_does() {
    for stage in ["idle", "told", "half-written", "written", "sealed"] {
        let directory = TempDir::new().unwrap();
        let pool = pool(stage, &directory);
        assert_made(&run(&pool, 1), stage);
        assert_made(&run(&pool, 2), stage);
        let Stats { made, failed, refused, started, died, .. } = pool.stats();
        assert_eq!((made, failed, refused, started, died), (2, 0, 0, 2, 1), "{stage}");
    }
}

#[test]
fn what_a_helper_has_told_counts_though_it_is_dead() {
    let directory = TempDir::new().unwrap();
    let pool = pool("reported", &directory);
    let outcome = run(&pool, 1);
    let Outcome::Made(made) = &outcome else { panic!("{outcome:?}") };
    assert!(*made.body == RESULT);
    assert_eq!((pool.stats().started, pool.stats().died), (1, 0));
    // That it is gone shows with the next job.
    assert_made(&run(&pool, 2), "afterwards");
    assert!(*made.body == RESULT, "it was written again");
    assert_eq!((pool.stats().started, pool.stats().died), (2, 1));
}

#[test]
fn one_that_dies_before_it_has_begun_fails_one_job() {
    let directory = TempDir::new().unwrap();
    let pool = pool("beginning", &directory);
    let outcome = run(&pool, 1);
    let Outcome::Died(cause) = &outcome else { panic!("{outcome:?}") };
    assert!(cause.starts_with("no helper can be started: "), "{cause}");
    assert_eq!((pool.stats().started, pool.stats().died), (0, 0));
    // It was not the job's fault, as far as anybody knows after one death.
    assert_made(&run(&pool, 1), "afterwards");
}

#[test]
fn of_jobs_told_together_those_that_were_told_count() {
    let directory = TempDir::new().unwrap();
    let pool = pool("between", &directory);
    // Quick ones, so that they are told together when the helper has begun.
    let text = Bytes::from(vec![b'a'; 4096]);
    let jobs = (0..8).map(|key| job(key, text.clone())).collect();
    let ended = run_together(&pool, &directory, jobs);
    let made = ended.iter().filter(|outcome| matches!(outcome, Outcome::Made(_))).count();
    let told = ended.iter().filter(|end| matches!(end, Outcome::Original("unchanged"))).count();
    assert_eq!(made + told, 8, "{ended:?}");
    // Before those that were told together, the first may have been told alone.
    assert!((1..=2).contains(&told), "{ended:?}");
    let Stats { failed, refused, started, died, .. } = pool.stats();
    assert_eq!((failed, refused, started, died), (0, 0, 2, 1));
}

/// What is too small to be read where it is stored goes with the order, which has an end.
#[test]
fn small_jobs_are_told_in_few_orders() {
    let directory = TempDir::new().unwrap();
    // None is to die.
    File::create(directory.path().join(FIRST_HAS_BEEN)).unwrap();
    let pool = pool_of("between", &directory, 64);
    let text = input().slice(..8192);
    let jobs = (0..40).map(|key| job(key, text.clone())).collect();
    let ended = run_together(&pool, &directory, jobs);
    assert!(ended.iter().all(|end| matches!(end, Outcome::Made(_))), "{ended:?}");
    let Stats { orders, started, died, .. } = pool.stats();
    assert_eq!((started, died), (1, 0));
    assert!((4..=10).contains(&orders), "{orders} orders");
}

#[test]
fn whoever_waits_takes_the_place_of_one_that_nobody_waits_for() {
    let directory = TempDir::new().unwrap();
    // None is to die.
    File::create(directory.path().join(FIRST_HAS_BEEN)).unwrap();
    let pool = pool_of("between", &directory, 1);
    let text = input();
    pool.adapt_later(job(1, text.clone()), |_| {}).unwrap();
    let end = Instant::now() + LIMITS.time;
    while pool.stats().waiting > 0 {
        assert!(Instant::now() < end, "nobody takes it");
        sleep(Duration::from_millis(1));
    }
    pool.adapt_later(job(2, text.clone()), |_| {}).unwrap();
    assert_eq!(pool.adapt_later(job(3, text.clone()), |_| {}), Err(Refused::Full));
    pool.adapt_soon(job(4, text.clone()), |_| {}).unwrap();
    assert!(pool.is_pending(4) && !pool.is_pending(2));
    // Nobody goes before one of the same rank.
    assert_eq!(pool.adapt_soon(job(5, text), |_| {}), Err(Refused::Full));
    File::create(directory.path().join(ALL_WAIT)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(pool.join(4));
    assert_eq!((pool.stats().made, pool.stats().refused), (2, 2));
}

/// No test but the helper, which the others start with two words more; without these it is nothing.
#[test]
fn helper() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "helper").skip(1);
    let (Some(stage), Some(marker)) = (arguments.next(), arguments.next()) else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    if stage == "between" {
        wait_for(&Path::new(&marker).with_file_name(ALL_WAIT));
    }
    if File::create_new(marker).is_ok() {
        die_at(&stage, &socket);
    } else {
        let confinement =
            Confinement { is_idle: false, memory_bytes: 1 << 30, output_bytes: 1 << 20 };
        run_helper(&socket, &confinement).unwrap();
    }
}

fn wait_for(file: &Path) {
    let end = Instant::now() + LIMITS.time;
    while !file.exists() {
        assert!(Instant::now() < end, "there is no {}", file.display());
        sleep(Duration::from_millis(1));
    }
}

fn die_at(stage: &str, socket: &OwnedFd) {
    let reaches = |reached: &str| {
        if stage == reached {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    };
    hear(socket);
    reaches("beginning");
    tell(socket, READY);
    reaches("idle");
    let mut jobs = hear(socket);
    while stage == "between" && jobs.count == 1 {
        tell(socket, UNCHANGED);
        jobs = hear(socket);
    }
    reaches("told");
    if stage == "between" {
        tell(socket, UNCHANGED);
        reaches("between");
    }
    let mut file = jobs.file.unwrap();
    file.write_all(&RESULT[..RESULT.len() / 2]).unwrap();
    reaches("half-written");
    file.write_all(&RESULT[RESULT.len() / 2..]).unwrap();
    reaches("written");
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    reaches("sealed");
    tell(socket, MADE);
    reaches("reported");
    panic!("no stage is called {stage}");
}

/// An order, as far as the one who dies reads it.
struct Heard {
    /// Jobs that are told together.
    count: u8,
    file: Option<File>,
}

fn hear(socket: &OwnedFd) -> Heard {
    let mut buffer = vec![0; ORDER_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().map(File::from),
        _ => None,
    });
    // Behind the kind of the order, how many jobs there are.
    Heard { count: buffer[1], file }
}

fn tell(socket: &OwnedFd, report: &[u8]) {
    assert_eq!(send(socket, report, SendFlags::NOSIGNAL).unwrap(), report.len());
}
