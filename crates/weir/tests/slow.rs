//! Slow clients by slowhttptest: a thousand connections that dribble heads, dribble bodies or read
//! next to nothing, while ordinary requests must be answered as if they were not there.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]
#![allow(clippy::print_stdout, reason = "the latencies are what a reader of the run wants to see")]

mod common;

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::origin::{self, Origin};
use common::server::Weir;
use common::{client, free_address, tools};

/// How long an attack lasts, in seconds.
const ATTACK_S: u32 = 4;

/// What slowhttptest itself calls unavailable; attacker and server share the machine.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Half of the ordinary requests must be answered faster. They take a millisecond otherwise.
const MEDIAN_MAX: Duration = Duration::from_millis(100);

/// One attack at a time: a thousand connections each are enough for one machine.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn slow_headers() {
    stays_available(&["-H", "-i", "1"], "/");
}

#[test]
fn slow_bodies() {
    stays_available(&["-B", "-i", "1", "-s", "8192", "-x", "24"], "/upload");
}

#[test]
fn slow_reads() {
    // A window of a few bytes, read five bytes a second, of an answer that no socket buffer holds.
    stays_available(&["-X", "-w", "16", "-y", "32", "-n", "1", "-z", "5", "-k", "3"], "/large");
}

fn stays_available(attack: &[&str], target: &str) {
    let Some(slowhttptest) = tools::find_or_skip("slowhttptest") else { return };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let address = free_address();
    let files = tempfile::TempDir::new().unwrap();
    std::fs::write(files.path().join("large"), vec![b'x'; 8 << 20]).unwrap();
    let origin = Origin::start(|_| origin::ok("thanks"));
    let upload = origin.url();
    let config = format!(
        r#"
        server {{ workers 2; admin "off"; }}
        site "*" {{
            listen "{address}"
            route "/small" {{ respond "small"; }}
            route "/upload" {{ proxy "{upload}"; }}
            route "/*" {{ files "{}"; }}
        }}
        "#,
        files.path().display()
    );
    let mut weir = Weir::run(&config, &[address]);

    let mut attacker = Command::new(slowhttptest)
        .args(attack)
        .args(["-c", "1000", "-r", "1000", "-p", "3", "-l", &ATTACK_S.to_string()])
        .args(["-u", &format!("http://{address}{target}")])
        .current_dir(weir.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let mut times = Vec::new();
    let mut open_most = 0;
    while attacker.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(u64::from(ATTACK_S) * 5) {
            attacker.kill().unwrap();
            attacker.wait().unwrap();
            panic!("slowhttptest does not end");
        }
        let asked = Instant::now();
        let answer = client::get(address, "site.example", "/small").expect("an answer");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"small"[..]));
        times.push(asked.elapsed());
        open_most = open_most.max(open_connections(weir.pid()));
        std::thread::sleep(Duration::from_millis(20));
    }
    times.sort();
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{} answers: median {median:?}, slowest {slowest:?}", times.len());
    assert!(median < MEDIAN_MAX && slowest < ANSWER_MAX, "median {median:?}, slowest {slowest:?}");
    assert!(times.len() > 20, "only {} requests fitted into the attack", times.len());
    // Without this the test would pass if the attack never took place.
    assert!(open_most > 500, "never more than {open_most} connections were open");
    assert!(weir.is_running());
}

/// Sockets that a process holds.
fn open_connections(pid: u32) -> usize {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let targets = descriptors.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}
