//! The lab as a user runs it, for a fraction of a second: contenders start, are measured and are
//! stopped, and the results can be read. Peers that are not installed are left out, and said so.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Output};

use weir_lab::contender::{ALL, Contender, Origin, Role};
use weir_lab::result::Record;

fn lab(out: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-lab"))
        .args(arguments)
        .arg("--out")
        .arg(out)
        .output()
        .expect("cargo builds the program before its tests")
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The floor and every installed peer that plays `role`.
fn present(role: Role) -> Vec<&'static str> {
    let usable = |contender: &&Contender| match contender.origin {
        Origin::Lab => contender.plays(role),
        // Not built when tests are.
        Origin::Weir => false,
        Origin::Debian { .. } | Origin::Python { .. } => {
            let installed = contender.program(Path::new("")).map(|_| ());
            if let Err(error) = &installed {
                eprintln!("skipped: {error}");
            }
            contender.plays(role) && installed.is_ok()
        }
    };
    ALL.iter().filter(usable).map(|contender| contender.name).collect()
}

#[test]
fn peers_and_floor_serve_the_documents() {
    let out = tempfile::tempdir().unwrap();
    let names = present(Role::Files);
    for id in ["s1", "s2"] {
        let arguments = [
            "run",
            id,
            "--rounds",
            "1",
            "--duration",
            "1s",
            "--warm-up",
            "100ms",
            "--sizes",
            "1024,65536",
            "--contenders",
            &names.join(","),
        ];
        let output = lab(out.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output));
        let record = Record::read(&out.path().join(id)).unwrap();
        assert_eq!(record.samples.len(), names.len() * 2, "{}", text(&output));
        for sample in &record.samples {
            assert!(sample.requests > 0 && sample.errors == 0, "{sample:?}");
            assert!(sample.server_cpu_ns > 0, "{sample:?}");
            assert_eq!(sample.body_bytes, sample.requests * sample.size as u64);
        }
        for file in ["table.md", &format!("{id}-cpu.svg"), &format!("{id}-bandwidth.svg")] {
            assert!(out.path().join(id).join(file).is_file(), "{file}");
        }
    }
    let report = lab(out.path(), &["report"]);
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("### S1") && report.contains("### S2"), "{report}");
}

#[test]
fn proxies_serve_the_application() {
    let out = tempfile::tempdir().unwrap();
    let names = present(Role::Proxy);
    if names.is_empty() {
        eprintln!("skipped: no proxy is installed");
        return;
    }
    let arguments = [
        "run",
        "s3",
        "--rounds",
        "1",
        "--duration",
        "300ms",
        "--warm-up",
        "100ms",
        "--sizes",
        "1024",
        "--contenders",
        &names.join(","),
    ];
    let output = lab(out.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output));
    let record = Record::read(&out.path().join("s3")).unwrap();
    for name in names {
        let cases = record.samples.iter().filter(|sample| sample.contender == name);
        assert!(cases.clone().count() >= 2, "cached and uncached: {}", text(&output));
        assert!(cases.clone().all(|sample| sample.requests > 0 && sample.errors == 0));
    }
}

#[test]
fn extensions_are_measured_in_an_open_loop() {
    let out = tempfile::tempdir().unwrap();
    let names = present(Role::Extended);
    if names.is_empty() {
        eprintln!("skipped: no peer with an extension is installed");
        return;
    }
    let arguments = [
        "run",
        "p3",
        "--rounds",
        "1",
        "--duration",
        "300ms",
        "--warm-up",
        "100ms",
        "--rates",
        "100,200",
        "--contenders",
        &names.join(","),
    ];
    let output = lab(out.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output));
    let record = Record::read(&out.path().join("p3")).unwrap();
    for name in names {
        let samples = record.samples.iter().filter(|sample| sample.contender == name);
        let cases: HashSet<&str> = samples.clone().map(|sample| sample.case.as_str()).collect();
        assert_eq!(cases.len(), 2, "with and without: {}", text(&output));
        assert!(samples.clone().all(|sample| sample.requests > 0 && sample.errors == 0));
        let rates = samples.filter_map(|sample| sample.rate_per_s);
        assert!(rates.clone().any(|rate| rate == 100.0), "{}", text(&output));
    }
    for file in ["p3-latency.svg", "p3-replies.svg", "table.md"] {
        assert!(out.path().join("p3").join(file).is_file(), "{file}");
    }
}

#[test]
fn what_is_made_anew_for_every_request_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let names = present(Role::Adapted);
    if !names.contains(&"nginx") {
        eprintln!("skipped: nginx is not installed");
        return;
    }
    for id in ["compression", "rewriting"] {
        let arguments = [
            "run",
            id,
            "--rounds",
            "1",
            "--duration",
            "300ms",
            "--warm-up",
            "100ms",
            "--sizes",
            "8192",
            "--contenders",
            "nginx",
        ];
        let output = lab(out.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output));
        let record = Record::read(&out.path().join(id)).unwrap();
        // Of a file, and of what passes.
        assert_eq!(record.samples.len(), 2, "{}", text(&output));
        for sample in &record.samples {
            assert!(sample.requests > 0 && sample.errors == 0, "{sample:?}");
            // Text becomes less, in chunks; a page becomes more by what is put in.
            assert_eq!(sample.size_share() < 1.0, id == "compression", "{sample:?}");
            assert_ne!(sample.size_share(), 1.0, "{sample:?}");
        }
        let table = std::fs::read_to_string(out.path().join(id).join("table.md")).unwrap();
        assert!(table.contains("Originals, MB/s:"), "{table}");
    }
}

#[test]
fn memory_is_measured_and_responses_arrive_afterwards() {
    let out = tempfile::tempdir().unwrap();
    for (id, clients) in [("s5", "20"), ("idle", "200")] {
        let arguments = ["run", id, "--rounds", "1", "--clients", clients, "--contenders", "floor"];
        let output = lab(out.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output));
        let record = Record::read(&out.path().join(id)).unwrap();
        assert_eq!(record.memory.len(), 1);
        assert_eq!(record.memory[0].verified, 20);
        // The floor keeps a few hundred bytes; a body held in memory would be a megabyte.
        assert!(record.memory[0].bytes_per_client() < 32_768.0, "{:?}", record.memory[0]);
    }
}

#[test]
fn mistakes_are_explained() {
    let out = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], expect: &str| {
        let output = lab(out.path(), arguments);
        assert!(!output.status.success());
        assert!(text(&output).contains(expect), "{}", text(&output));
    };
    check(&["run", "s99"], "no experiment \"s99\"; known are s1, s2");
    check(&["run", "s1", "--contenders", "ngnix"], "no contender \"ngnix\"");
    check(
        &["run", "s1", "--contenders", "weir", "--weir", "/none"],
        "cargo build --release -p weir",
    );
    check(&["run", "s1", "--rounds", "0"], "--rounds must be at least 1");
    check(&["run", "p3", "--rates", "0"], "--rates must name rates of at least 1");
    check(&["report"], "no results in");
}
