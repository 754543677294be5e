//! Photographs of camera size made smaller, beside libvips: how long one takes, how much processor
//! time, and how much memory whoever does it had at most. Weir does it in a helper, at the first
//! request for each that is stored; vipsthumbnail one after the other in one process. Both have one
//! core.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Experiment, LineUp, Options, in_turn, start_with};
use crate::contender::adaptation::{Adaptation, Helpers};
use crate::contender::policy::Policy;
use crate::contender::{Contender, Role};
use crate::error::{Doing, Error, Result};
use crate::load::blocking::{self, Answer};
use crate::load::{Ask, Expect};
use crate::photographs::{CAMERA, CAMERA_QUALITY, jpeg, numbered, ppm};
use crate::process::{Running, Site, run_to_end};
use crate::procfs;
use crate::result::{Peak, Record, Timing};

/// Photographs of a round.
const COUNT: u64 = 10;
const COUNT_QUICK: u64 = 3;
/// The other one, of the package libvips-tools.
const VIPS: &str = "/usr/bin/vipsthumbnail";

/// A format that is made.
struct Format {
    name: &'static str,
    /// What a client says that takes it.
    fields: &'static str,
    /// What a response says that has it.
    mark: &'static str,
    /// What vipsthumbnail is told: the same quality, and no metadata.
    suffix: &'static str,
}

const FORMATS: [Format; 2] = [
    Format { name: "jpeg", fields: "", mark: "weir-adapt: jpeg", suffix: "jpg[Q=80,strip]" },
    Format {
        name: "webp",
        fields: "Accept: image/webp\r\n",
        mark: "weir-adapt: webp",
        suffix: "webp[Q=80,strip]",
    },
];

/// What was measured of one way to do it.
struct Measured {
    who: &'static str,
    /// By the clock, for each.
    time_ns: f64,
    cpu_ns: f64,
    peak_bytes: u64,
    made_bytes: u64,
}

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let LineUp { contenders, mut skipped } = experiment.line_up(Role::Pictures, options)?;
    let has_vips = Path::new(VIPS).exists();
    if !has_vips {
        skipped.push("vipsthumbnail is not installed; `apt-get install libvips-tools`".to_owned());
    }
    let site = Site::prepare_origin(std::time::Duration::from_millis(1), options.cores)?;
    let count = if options.quick { COUNT_QUICK } else { COUNT };
    let size = write_all(&site, count)?;
    let mut record = experiment.record(options, 0, skipped);
    (options.progress)(&format!("{count} photographs of {} KB", size / 1024));
    let bench = Bench { options, site: &site, count };
    for round in 0..options.rounds {
        for format in &FORMATS {
            for does in in_turn(&[true, false], round) {
                let measured = match (*does, has_vips) {
                    (true, _) => bench.weir(contenders[0], format, &mut record)?,
                    (false, true) => bench.vips(format)?,
                    (false, false) => continue,
                };
                bench.add(&measured, format, round, &mut record);
            }
        }
    }
    Ok(record)
}

/// The photographs, by their paths in requests. Returns the size of one.
fn write_all(site: &Site, count: u64) -> Result<usize> {
    let photograph = jpeg(&ppm(CAMERA), CAMERA_QUALITY)?;
    for format in &FORMATS {
        let folder = site.root().join("photo").join(format.name);
        fs::create_dir_all(&folder).doing(|| format!("creating {}", folder.display()))?;
        for number in 0..count {
            let path = folder.join(format!("{number}.jpg"));
            let bytes = numbered(&photograph, number);
            fs::write(&path, bytes).doing(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(photograph.len())
}

struct Bench<'a> {
    options: &'a Options,
    site: &'a Site,
    count: u64,
}

impl Bench<'_> {
    /// A server of its own, which has the photographs stored.
    fn weir(
        &self,
        contender: &'static Contender,
        format: &Format,
        record: &mut Record,
    ) -> Result<Measured> {
        let adaptation = Adaptation { helpers: Helpers::Idle, ..Adaptation::default() };
        let policy = Policy { adaptation, ..Policy::default() };
        let (role, start) = (Role::Pictures, "/page/600/start.html");
        let running = start_with(contender, role, &policy, self.site, start, self.options, record)?;
        let running = running.ok_or_else(|| Error::Usage("Weir is left out".to_owned()))?;
        let answer = Error::Answer;
        let mut stream =
            blocking::open(running.address, blocking::Options::default()).map_err(answer)?;
        let mut ask = |number: u64| {
            let target = format!("/photo/{}/{number}.jpg", format.name);
            let ask = Ask { target, fields: format.fields, expect: Expect::Any };
            let request = ask.render(running.address, true);
            blocking::exchange(&mut stream, &request).map_err(Error::Answer)
        };
        for number in 0..self.count {
            ask(number)?;
        }
        let (began, cpu) = (Instant::now(), procfs::cpu_ns(&running.family()));
        let (mut made_bytes, mut peak_bytes) = (0, 0);
        for number in 0..self.count {
            let Answer { status, head, body } = ask(number)?;
            let head = String::from_utf8_lossy(&head);
            if status != 200 || !head.contains(format.mark) {
                return Err(Error::Answer(format!("no {}: {head}", format.name)));
            }
            made_bytes += body.len() as u64;
            peak_bytes = peak_bytes.max(peak_of_helpers(&running));
        }
        let time_ns = began.elapsed().as_nanos() as f64 / self.count as f64;
        let cpu_ns = procfs::cpu_ns(&running.family()).saturating_sub(cpu) as f64;
        let cpu_ns = cpu_ns / self.count as f64;
        Ok(Measured { who: "weir", time_ns, cpu_ns, peak_bytes, made_bytes })
    }

    fn vips(&self, format: &Format) -> Result<Measured> {
        let folder = self.site.root().join("photo").join(format.name);
        let made = self.site.root().join("made").join(format.name);
        fs::create_dir_all(&made).doing(|| format!("creating {}", made.display()))?;
        let file = |number: u64| folder.join(format!("{number}.jpg")).display().to_string();
        let output = format!("{}/%s.{}", made.display(), format.suffix);
        let options = ["--size", "512x512", "--vips-concurrency=1", "-o", &output];
        let mut arguments: Vec<String> = options.map(str::to_owned).to_vec();
        arguments.extend((0..self.count).map(file));
        let log = self.site.root().join("vips.log");
        let ended = run_to_end(Path::new(VIPS), &arguments, &log, self.options.cores)?;
        let count = self.count as f64;
        Ok(Measured {
            who: "vips",
            time_ns: ended.elapsed.as_nanos() as f64 / count,
            cpu_ns: ended.cpu.as_nanos() as f64 / count,
            peak_bytes: ended.peak_bytes,
            made_bytes: bytes_in(&made)?,
        })
    }

    fn add(&self, measured: &Measured, format: &Format, round: usize, record: &mut Record) {
        let Measured { who, time_ns, cpu_ns, peak_bytes, made_bytes } = measured;
        (self.options.progress)(&format!(
            "round {}  {who:<5} {:<5} {:>7.1} ms  {:>7.1} ms CPU  {:>6.1} MB at most  to {} KB",
            round + 1,
            format.name,
            time_ns / 1e6,
            cpu_ns / 1e6,
            *peak_bytes as f64 / 1e6,
            made_bytes / self.count / 1024,
        ));
        for (what, ns) in [("a photograph", *time_ns), ("CPU of it", *cpu_ns)] {
            let (contender, case) = ((*who).to_owned(), format!("{who}, {}: {what}", format.name));
            record.timings.push(Timing { contender, case, size: 0, round, ns });
        }
        let (contender, case) = ((*who).to_owned(), format!("{who}, {}", format.name));
        record.peaks.push(Peak { contender, case, round, bytes: *peak_bytes });
    }
}

/// What the server's helpers have had at most.
fn peak_of_helpers(running: &Running) -> u64 {
    let helpers = running.family();
    let helpers = helpers.iter().filter(|pid| !running.pids.contains(pid));
    helpers.map(|pid| procfs::peak_bytes(*pid)).max().unwrap_or_default()
}

/// Bytes of all files of a folder.
fn bytes_in(folder: &Path) -> Result<u64> {
    let list = fs::read_dir(folder).doing(|| format!("listing {}", folder.display()))?;
    let paths = list.flatten().map(|entry| entry.path());
    let size = |path: PathBuf| fs::metadata(&path).map_or(0, |file| file.len());
    Ok(paths.map(size).sum())
}
