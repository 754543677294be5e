//! What an experiment leaves behind: every round as it was measured, with the machine and the
//! versions, as JSON. Tables and figures are made from this and can be made again.

mod adapted;
mod groups;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::machine::Machine;
use crate::procfs::Memory;

pub use adapted::{ADAPTED, ENDLESS, HIT, MISS};
pub use groups::{Axis, GroupSample};

/// The result of one experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Id of the experiment: `s1` …
    pub id: String,
    /// What it measured.
    pub title: String,
    /// The command that repeats it.
    pub command: String,
    /// Where and when.
    pub machine: Machine,
    /// How.
    pub settings: Settings,
    /// Name and version of every contender that took part.
    pub contenders: Vec<(String, String)>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// Rounds of throughput.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Rounds of memory.
    #[serde(default)]
    pub memory: Vec<MemorySample>,
    /// Rounds of single things that were timed by themselves.
    #[serde(default)]
    pub timings: Vec<Timing>,
    /// Rounds of the memory that something took at most.
    #[serde(default)]
    pub peaks: Vec<Peak>,
    /// Rounds of groups of clients under overload.
    #[serde(default)]
    pub groups: Vec<GroupSample>,
    /// What was varied with them.
    #[serde(default)]
    pub axis: Option<Axis>,
    /// Pages per second that the application was found to make at best, through the first
    /// contender.
    #[serde(default)]
    pub capacity_per_s: Option<f64>,
}

/// How an experiment was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Seconds of a measured window.
    pub window_s: f64,
    /// Concurrent clients, or connections held.
    pub clients: usize,
    /// Fewer sizes, for a quick look.
    pub quick: bool,
}

/// One contender, one document, one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the contender.
    pub contender: String,
    /// Kind of document: `static`, `cached`, `uncached`.
    pub case: String,
    /// Bytes of the body.
    pub size: usize,
    /// Number of the round, from 0.
    pub round: usize,
    /// Requests due per second; none in a closed loop.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// Correct responses within the window.
    pub requests: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Failed ones, and the first failure in words.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
    /// Bodies compared byte by byte.
    pub bodies_compared: u64,
    /// The window's length.
    pub seconds: f64,
    /// CPU time of all processes of the contender.
    pub server_cpu_ns: u64,
    /// CPU time of the lab, that is of the generator.
    pub load_cpu_ns: u64,
    /// Latency as the clients saw it; in a closed loop of use for comparison only.
    pub latency_p50_us: f64,
    /// The same, 99th percentile.
    pub latency_p99_us: f64,
    /// Share of the machine's time that the hypervisor gave to others.
    pub steal: f64,
    /// Cores that others than contender, application and lab kept busy.
    pub foreign_cores: f64,
}

impl Sample {
    /// Server CPU per request in microseconds; not a number if nothing was served.
    #[must_use]
    pub fn cpu_us(&self) -> f64 {
        if self.requests == 0 {
            return f64::NAN;
        }
        self.server_cpu_ns as f64 / 1e3 / self.requests as f64
    }

    /// Requests per second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Body bandwidth in megabits per second, the original's unit.
    #[must_use]
    pub fn megabits_per_s(&self) -> f64 {
        self.body_bytes as f64 * 8.0 / 1e6 / self.seconds
    }

    /// Body bandwidth that one core's full time would give, in megabits per second.
    #[must_use]
    pub fn megabits_per_cpu_s(&self) -> f64 {
        if self.server_cpu_ns == 0 {
            return f64::NAN;
        }
        self.body_bytes as f64 * 8.0 * 1e3 / self.server_cpu_ns as f64
    }

    /// Originals per second in megabytes, where bodies are made of originals of `size` bytes.
    #[must_use]
    pub fn original_megabytes_per_s(&self) -> f64 {
        self.requests as f64 * self.size as f64 / 1e6 / self.seconds
    }

    /// Bytes of bodies to those of the originals.
    #[must_use]
    pub fn size_share(&self) -> f64 {
        self.body_bytes as f64 / (self.requests as f64 * self.size as f64)
    }

    /// Share of its core that the contender used.
    #[must_use]
    pub fn server_busy(&self) -> f64 {
        self.server_cpu_ns as f64 / 1e9 / self.seconds
    }
}

/// How long one thing took that is no request to a server, in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Whose it is.
    pub contender: String,
    /// What was done.
    pub case: String,
    /// Bytes that it was done to; 0 where that does not matter.
    pub size: usize,
    /// Number of the round, from 0.
    pub round: usize,
    /// Median of the round.
    pub ns: f64,
}

/// Memory of whoever did something, at most, in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Peak {
    /// Whose it is.
    pub contender: String,
    /// What was done.
    pub case: String,
    /// Number of the round, from 0.
    pub round: usize,
    /// Resident, shared memory included.
    pub bytes: u64,
}

/// Memory of one contender, before and while connections are held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemorySample {
    /// Name of the contender.
    pub contender: String,
    /// What the clients hold.
    pub case: String,
    /// Number of the round, from 0.
    pub round: usize,
    /// Connections held.
    pub clients: usize,
    /// The server's memory after a first client and before the others.
    pub before: Memory,
    /// With all connections held.
    pub held: Memory,
    /// Bytes of all TCP buffers of the machine, before.
    pub tcp_before: u64,
    /// The same, with all connections held.
    pub tcp_held: u64,
    /// Connections whose response was read to its end afterwards, and was right.
    pub verified: usize,
}

impl MemorySample {
    /// Growth of the server's own memory per client in bytes: heap, stacks, mapped files, and
    /// shared memory whether mapped or not, each page once.
    #[must_use]
    pub fn bytes_per_client(&self) -> f64 {
        let all = |memory: &Memory| (memory.anonymous + memory.file + memory.shared) as f64;
        (all(&self.held) - all(&self.before)) / self.clients as f64
    }

    /// Growth of the kernel's TCP buffers per client in bytes, both ends of the connection.
    #[must_use]
    pub fn tcp_bytes_per_client(&self) -> f64 {
        (self.tcp_held as f64 - self.tcp_before as f64) / self.clients as f64
    }
}

impl Record {
    /// File name of a result within its experiment's folder.
    pub const FILE: &'static str = "results.json";

    /// Writes the record into `folder`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(Self::FILE);
        let text = serde_json::to_string_pretty(self)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        fs::create_dir_all(folder).doing(|| format!("creating {}", folder.display()))?;
        fs::write(&path, text + "\n").doing(|| format!("writing {}", path.display()))
    }

    /// Reads the record of an experiment.
    ///
    /// # Errors
    /// When there is none, or it is not one.
    pub fn read(folder: &Path) -> Result<Record> {
        let path = folder.join(Self::FILE);
        let text = fs::read(&path).doing(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).map_err(|source| Error::Json { path, source })
    }

    /// `metric` of each round of a series, in the order of the rounds.
    #[must_use]
    pub fn rounds(
        &self,
        contender: &str,
        case: &str,
        size: usize,
        metric: impl Fn(&Sample) -> f64,
    ) -> Vec<f64> {
        let mut rounds: Vec<(usize, f64)> = self
            .samples
            .iter()
            .filter(|s| s.contender == contender && s.case == case && s.size == size)
            .map(|sample| (sample.round, metric(sample)))
            .collect();
        rounds.sort_by_key(|(round, _)| *round);
        rounds.into_iter().map(|(_, value)| value).collect()
    }

    /// Nanoseconds of each round of something timed, in the order of the rounds.
    #[must_use]
    pub fn times(&self, contender: &str, case: &str, size: usize) -> Vec<f64> {
        let mut rounds: Vec<(usize, f64)> = self
            .timings
            .iter()
            .filter(|t| t.contender == contender && t.case == case && t.size == size)
            .map(|timing| (timing.round, timing.ns))
            .collect();
        rounds.sort_by_key(|(round, _)| *round);
        rounds.into_iter().map(|(_, ns)| ns).collect()
    }

    /// `metric` of each round of a series at a rate of requests, in the order of the rounds.
    #[must_use]
    pub fn rounds_at(
        &self,
        contender: &str,
        case: &str,
        rate_per_s: f64,
        metric: impl Fn(&Sample) -> f64,
    ) -> Vec<f64> {
        let mut rounds: Vec<(usize, f64)> = self
            .samples
            .iter()
            .filter(|s| s.contender == contender && s.case == case)
            .filter(|s| s.rate_per_s == Some(rate_per_s))
            .map(|sample| (sample.round, metric(sample)))
            .collect();
        rounds.sort_by_key(|(round, _)| *round);
        rounds.into_iter().map(|(_, value)| value).collect()
    }

    /// All rates of requests, ascending.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = self.samples.iter().filter_map(|s| s.rate_per_s).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        rates
    }

    /// All sizes, ascending.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let timed = self.timings.iter().map(|timing| timing.size).filter(|size| *size > 0);
        let mut sizes: Vec<usize> =
            self.samples.iter().map(|sample| sample.size).chain(timed).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// All series (contender and case), in the order they were first measured.
    #[must_use]
    pub fn series(&self) -> Vec<(String, String)> {
        let mut series: Vec<(String, String)> = Vec::new();
        let samples = self.samples.iter().map(|s| (&s.contender, &s.case));
        for (contender, case) in samples.chain(self.memory.iter().map(|s| (&s.contender, &s.case)))
        {
            if !series.iter().any(|(a, b)| a == contender && b == case) {
                series.push((contender.clone(), case.clone()));
            }
        }
        series
    }

    /// All series of what was timed by itself.
    #[must_use]
    pub fn timed_series(&self) -> Vec<(String, String)> {
        let mut series: Vec<(String, String)> = Vec::new();
        for timing in &self.timings {
            if !series.iter().any(|(a, b)| *a == timing.contender && *b == timing.case) {
                series.push((timing.contender.clone(), timing.case.clone()));
            }
        }
        series
    }
}
