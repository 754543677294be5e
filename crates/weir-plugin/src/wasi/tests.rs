//! Each function of WASI preview 1, with a real guest.

use super::*;
use crate::test_support::{ALLOCATOR, Arg::*, Bench, MEMORY, OUT, Options, logged};

const W: &str = "wasi_snapshot_preview1";

const REAL: &[(&str, &str, &str)] = &[
    (W, "args_get", "ii"),
    (W, "args_sizes_get", "ii"),
    (W, "environ_get", "ii"),
    (W, "environ_sizes_get", "ii"),
    (W, "clock_res_get", "ii"),
    (W, "clock_time_get", "iIi"),
    (W, "random_get", "ii"),
    (W, "sched_yield", ""),
    (W, "fd_write", "iiii"),
    (W, "fd_read", "iiii"),
    (W, "fd_close", "i"),
    (W, "fd_seek", "iIii"),
    (W, "fd_tell", "ii"),
    (W, "fd_fdstat_get", "ii"),
    (W, "fd_fdstat_set_flags", "ii"),
    (W, "fd_filestat_get", "ii"),
    (W, "poll_oneoff", "iiii"),
];

const REFUSED: &[(&str, &str, &str)] = &[
    (W, "fd_advise", "iIIi"),
    (W, "fd_allocate", "iII"),
    (W, "fd_datasync", "i"),
    (W, "fd_fdstat_set_rights", "iII"),
    (W, "fd_filestat_set_size", "iI"),
    (W, "fd_filestat_set_times", "iIIi"),
    (W, "fd_pread", "iiiIi"),
    (W, "fd_prestat_get", "ii"),
    (W, "fd_prestat_dir_name", "iii"),
    (W, "fd_pwrite", "iiiIi"),
    (W, "fd_readdir", "iiiIi"),
    (W, "fd_renumber", "ii"),
    (W, "fd_sync", "i"),
    (W, "path_create_directory", "iii"),
    (W, "path_filestat_get", "iiiii"),
    (W, "path_filestat_set_times", "iiiiIIi"),
    (W, "path_link", "iiiiiii"),
    (W, "path_open", "iiiiiIIii"),
    (W, "path_readlink", "iiiiii"),
    (W, "path_remove_directory", "iii"),
    (W, "path_rename", "iiiiii"),
    (W, "path_symlink", "iiiii"),
    (W, "path_unlink_file", "iii"),
    (W, "sock_accept", "iii"),
    (W, "sock_recv", "iiiiii"),
    (W, "sock_send", "iiiii"),
    (W, "sock_shutdown", "ii"),
];

const SUCCESS: u32 = 0;
const BADF: u32 = 8;
const FAULT: u32 = 21;
const INVAL: u32 = 28;
const NOTSUP: u32 = 58;
const SPIPE: u32 = 70;

fn bench() -> Bench {
    let mut options = Options::default();
    let variables = [("A", "1"), ("LONG", "value")];
    options.policy.allow.environment =
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Bench::with(REAL, ALLOCATOR, options).unwrap()
}

/// A list of parts, as `writev` takes it.
fn parts(bench: &mut Bench, texts: &[&str]) -> u64 {
    let mut list = Vec::new();
    for text in texts {
        list.extend(bench.put(text.as_bytes()).to_le_bytes());
        list.extend((text.len() as u32).to_le_bytes());
    }
    u64::from(bench.put(&list))
}

#[test]
fn output_becomes_lines_of_the_log() {
    let mut bench = bench();
    let lines = logged(|| {
        for (fd, texts, expect) in [
            (1, &["one\ntwo", " and three\n"][..], SUCCESS),
            (2, &["bad\n"], SUCCESS),
            // Ended by the call.
            (2, &["no end"], SUCCESS),
            (0, &["x"], BADF),
            (3, &["x"], BADF),
        ] {
            let list = parts(&mut bench, texts);
            let args = [Num(fd), Num(list), Num(texts.len() as u64), Out(0)];
            assert_eq!(bench.call("fd_write", &args), expect, "{fd}");
            let size: usize = texts.iter().map(|text| text.len()).sum();
            assert!(expect != SUCCESS || bench.number(OUT) as usize == size);
        }
    });
    let expect = ["INFO one", "INFO two and three", "ERROR bad", "ERROR no end"];
    assert_eq!(lines, expect);
}

#[test]
fn a_line_without_end_is_cut() {
    let mut bench = bench();
    let text = "x".repeat(20_000);
    let list = parts(&mut bench, &[&text]);
    let lines = logged(|| {
        assert_eq!(bench.call("fd_write", &[Num(1), Num(list), Num(1), Out(0)]), SUCCESS);
    });
    assert!(lines.iter().all(|line| line.len() <= 8192 + 5), "{}", lines.len());
}

#[test]
fn the_environment_is_the_policys() {
    let mut bench = bench();
    assert_eq!(bench.call("environ_sizes_get", &[Out(0), Out(1)]), SUCCESS);
    assert_eq!((bench.number(OUT), bench.number(OUT + 4)), (2, 4 + 11));
    assert_eq!(bench.call("environ_get", &[Out(0), Num(600)]), SUCCESS);
    assert_eq!((bench.number(OUT), bench.number(OUT + 4)), (600, 604));
    bench.memory(|memory| assert_eq!(&memory[600..615], b"A=1\0LONG=value\0"));
    bench.memory(|memory| memory[512..520].fill(9));
    assert_eq!(bench.call("args_sizes_get", &[Out(0), Out(1)]), SUCCESS);
    assert_eq!((bench.number(OUT), bench.number(OUT + 4)), (0, 0));
    assert_eq!(bench.call("args_get", &[Out(0), Out(1)]), SUCCESS);
}

#[test]
fn clocks_run_and_randomness_differs() {
    let mut bench = bench();
    for (clock, expect) in [(0, SUCCESS), (1, SUCCESS), (2, NOTSUP), (99, NOTSUP)] {
        let mut read = || {
            assert_eq!(bench.call("clock_time_get", &[Num(clock), Num(0), Out(0)]), expect);
            u64::from(bench.number(OUT)) | u64::from(bench.number(OUT + 4)) << 32
        };
        let (first, second) = (read(), read());
        assert!(first <= second && (expect != SUCCESS || first > 0));
        assert_eq!(bench.call("clock_res_get", &[Num(clock), Out(0)]), expect);
    }
    let mut random = || {
        assert_eq!(bench.call("random_get", &[Num(600), Num(32)]), SUCCESS);
        bench.memory(|memory| memory[600..632].to_vec())
    };
    assert_ne!(random(), random());
    assert_eq!(bench.call("random_get", &[Num(0), Num(2 << 20)]), INVAL);
    assert_eq!(bench.call("sched_yield", &[]), SUCCESS);
}

#[test]
fn standard_streams_are_terminals_that_are_at_their_end() {
    let mut bench = bench();
    for fd in 0..4 {
        let known = |errno| if fd < 3 { errno } else { BADF };
        assert_eq!(bench.call("fd_fdstat_get", &[Num(fd), Out(0)]), known(SUCCESS));
        assert!(fd == 3 || bench.number(OUT) == 2);
        assert_eq!(bench.call("fd_fdstat_set_flags", &[Num(fd), Num(0)]), known(SUCCESS));
        assert_eq!(bench.call("fd_filestat_get", &[Num(fd), Out(0)]), known(SUCCESS));
        assert_eq!(bench.call("fd_seek", &[Num(fd), Num(0), Num(0), Out(0)]), known(SPIPE));
        assert_eq!(bench.call("fd_tell", &[Num(fd), Out(0)]), known(SPIPE));
        assert_eq!(bench.call("fd_close", &[Num(fd)]), known(SUCCESS));
        let list = parts(&mut bench, &["room"]);
        let expect = if fd == 0 { SUCCESS } else { BADF };
        assert_eq!(bench.call("fd_read", &[Num(fd), Num(list), Num(1), Out(0)]), expect);
        assert!(fd != 0 || bench.number(OUT) == 0);
    }
}

#[test]
fn waiting_is_over_at_once() {
    for (module, size) in MODULES.into_iter().zip([48, 56]) {
        let mut bench = Bench::new(&[(module, "poll_oneoff", "iiii")], ALLOCATOR);
        // A clock, standard output, and a file.
        let mut wanted = vec![0; 3 * size];
        for (index, (kind, fd)) in [(0, 0), (2, 1), (1, 7)].into_iter().enumerate() {
            let wanted = &mut wanted[index * size..];
            (wanted[0], wanted[8], wanted[16]) = (index as u8 + 1, kind, fd);
        }
        let args = |count| [Num(0), Num(1200), Num(count), Out(0)];
        bench.memory(|memory| memory[..wanted.len()].copy_from_slice(&wanted));
        assert_eq!(bench.call("poll_oneoff", &args(3)), SUCCESS);
        assert_eq!(bench.number(OUT), 3);
        let events = bench.memory(|memory| memory[1200..1200 + 96].to_vec());
        let events: Vec<_> =
            events.chunks(32).map(|event| (event[0], event[8], event[10])).collect();
        assert_eq!(events, [(1, 0, 0), (2, 0, 2), (3, BADF as u8, 1)]);
        assert_eq!(bench.call("poll_oneoff", &args(0)), INVAL);
        assert_eq!(bench.call("poll_oneoff", &args(1 << 30)), INVAL);
    }
}

#[test]
fn files_and_sockets_do_not_exist() {
    for module in MODULES {
        let functions: Vec<_> =
            REFUSED.iter().map(|(_, name, params)| (module, *name, *params)).collect();
        let bench = Bench::new(&functions, ALLOCATOR);
        for (_, name, params) in REFUSED {
            assert_eq!(bench.raw(name, &vec![3; params.len()]).unwrap(), BADF, "{name}");
        }
    }
}

#[test]
fn pointers_outside_of_memory_are_faults() {
    let mut bench = bench();
    let list = parts(&mut bench, &["text"]);
    let bad_list = u64::from(bench.put(&[0xff; 8]));
    let (end, max) = (u64::from(MEMORY - 3), u64::from(u32::MAX));
    for (name, args) in [
        ("args_sizes_get", vec![512, end]),
        ("args_sizes_get", vec![end, 512]),
        ("environ_sizes_get", vec![512, max]),
        ("environ_sizes_get", vec![end, 512]),
        ("environ_get", vec![end, 512]),
        ("environ_get", vec![512, end]),
        ("environ_get", vec![max, max]),
        ("clock_res_get", vec![0, end]),
        ("clock_time_get", vec![0, 0, end]),
        ("random_get", vec![end, 4]),
        ("random_get", vec![max, 1]),
        ("fd_write", vec![1, end, 1, 512]),
        ("fd_write", vec![1, list, 1, end]),
        ("fd_write", vec![1, bad_list, 1, 512]),
        ("fd_read", vec![0, max, 1, 512]),
        ("fd_read", vec![0, list, 1, max]),
        ("fd_fdstat_get", vec![1, end]),
        ("fd_filestat_get", vec![1, end]),
        ("poll_oneoff", vec![end, 512, 1, 516]),
        ("poll_oneoff", vec![512, end, 1, 516]),
        ("poll_oneoff", vec![512, 600, 1, max]),
    ] {
        assert_eq!(bench.raw(name, &args).unwrap(), FAULT, "{name} {args:x?}");
    }
    assert_eq!(bench.raw("fd_write", &[1, 0, max, 512]).unwrap(), INVAL);
}

#[test]
fn exit_ends_the_call_and_the_instance() {
    let exits = |code: u32, callback: &str| {
        format!(
            "(module (import \"{W}\" \"proc_exit\" (func $exit (param i32)))
              (import \"{W}\" \"proc_raise\" (func (param i32) (result i32)))
              (func (export \"proxy_abi_version_0_2_1\")) (memory (export \"memory\") 1)
              (func (export {callback} (call $exit (i32.const {code})) unreachable))"
        )
    };
    let kind = |wat: &str| Bench::of(wat, Options::default()).err().map(|failure| failure.kind);
    let start = "\"_start\")";
    assert_eq!(kind(&exits(1, start)), Some(FailureKind::Exit));
    // Some runtimes end their main function so.
    assert_eq!(kind(&exits(0, start)), None);
    assert_eq!(kind(&exits(0, "\"_initialize\")")), Some(FailureKind::Exit));
    let bench = Bench::of(exits(0, "\"proxy_on_tick\") (param i32)"), Options::default()).unwrap();
    let failure = bench.slot.call_now(|instance| instance.tick()).unwrap().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Exit);
    assert!(failure.message.contains("exit(0)"));
    assert!(!bench.slot.is_filled());
}
