//! `weir adapt`: one adaptation from the command line, by a helper as a server has it; and the
//! helper itself.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use weir_adapt::adapters::compress::{Coding, Compress};
use weir_adapt::helper::{self, Confinement};
use weir_adapt::{Job, Limits, Outcome, Pool, PoolSettings, Recipe, Step};
use weir_arena::Arena;
use weir_config::ImageLimits;

use super::{Failure, print};
use crate::cli::{Adapt, Helper};

/// The largest file that is adapted from the command line.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Memory that its helper may have of its own.
const MEMORY_BYTES: u64 = 4 << 30;

/// What a picture may cost: what there is.
const IMAGE_LIMITS: ImageLimits = ImageLimits {
    source_bytes: FILE_BYTES_MAX,
    pixels: 500_000_000,
    side: 65_535,
    frames: 100_000,
    decoded: 2 << 30,
};

/// How long it may take.
const TIME: Duration = Duration::from_secs(120);

/// Adapts a file.
///
/// # Errors
/// What went wrong.
pub(super) fn adapt(command: &Adapt) -> Result<(), Failure> {
    let steps = steps(command)?;
    let arena = Arena::new(2 * FILE_BYTES_MAX).map_err(|error| Failure(error.to_string()))?;
    let input = read(&command.file, &arena)?;
    let before = input.len();
    let job = Job {
        key: 0,
        input: vec![input],
        tables: Vec::new(),
        recipe: Recipe { steps },
        limits: Limits { output_bytes: FILE_BYTES_MAX, time: TIME },
    };
    let outcome = run(job, arena)?;
    let (made, what) = match outcome {
        Outcome::Failed(what) | Outcome::Died(what) => {
            let file = command.file.display();
            return Err(Failure(format!("{file} cannot be adapted: {what}")));
        }
        Outcome::Original(why) => (None, why.to_owned()),
        Outcome::Made(made) => {
            let what = made.detail.clone();
            (Some(made), what)
        }
    };
    if let (Some(made), Some(output)) = (&made, &command.output) {
        std::fs::write(output, &made.body)
            .map_err(|error| Failure(format!("{}: {error}", output.display())))?;
    }
    let after = made.as_ref().map_or(before, |made| made.body.len());
    let took_us = made.as_ref().map(|made| made.took.as_micros() as u64);
    if command.json {
        let bytes = json!({ "before": before, "after": after });
        let answer =
            json!({ "adapted": made.is_some(), "what": what, "bytes": bytes, "us": took_us });
        return print(&format!("{answer:#}\n"));
    }
    let took = took_us.map_or_else(String::new, |us| format!(" in {:.1} ms", us as f64 / 1000.0));
    let percent = 100.0 * after as f64 / before.max(1) as f64;
    print(&format!("{what}: {before} -> {after} bytes ({percent:.1} %){took}\n"))
}

/// Works for a server.
///
/// # Errors
/// What ended it, but for the end of the server.
pub(super) fn helper(command: &Helper) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    let failed = |error: std::io::Error| Failure(format!("a helper ends: {error}"));
    let socket = stdin.as_fd().try_clone_to_owned().map_err(failed)?;
    let confinement = Confinement {
        is_idle: command.idle,
        memory_bytes: command.memory,
        output_bytes: command.output,
    };
    helper::run(&socket, &confinement).map_err(failed)
}

fn run(job: Job, arena: Arena) -> Result<Outcome, Failure> {
    let io = |error: std::io::Error| Failure(error.to_string());
    let arguments = ["helper", "--memory", &MEMORY_BYTES.to_string(), "--output"];
    let mut arguments: Vec<OsString> = arguments.map(OsString::from).to_vec();
    arguments.push(FILE_BYTES_MAX.to_string().into());
    let program = std::env::current_exe().map_err(io)?;
    let pool =
        Pool::start(PoolSettings { helpers: 1, queue: 1, program, arguments, cgroup: None }, arena);
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(io)?;
    let adapted = runtime.block_on(pool.map_err(io)?.adapt(job, |_| {}));
    adapted.map_err(|refused| Failure(refused.as_str().to_owned()))
}

fn read(file: &Path, arena: &Arena) -> Result<bytes::Bytes, Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure(format!("{}: {what}", file.display()));
    let len = std::fs::metadata(file).map_err(|error| failed(&error))?.len();
    if len > FILE_BYTES_MAX {
        return Err(failed(&format!("{len} bytes, of {FILE_BYTES_MAX} at most")));
    }
    let content = std::fs::read(file).map_err(|error| failed(&error))?;
    let mut extent = arena.reserve(content.len()).map_err(|error| failed(&error))?;
    extent.write(&content).map_err(|error| failed(&error))?;
    Ok(extent.freeze())
}

/// What is asked for, in the order in which a server would do it.
fn steps(command: &Adapt) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    if let Some(text) = &command.image {
        let step = weir_server::image_step(text, &IMAGE_LIMITS);
        steps.push(step.map_err(|error| Failure(format!("`--image`: {error}")))?);
    }
    if let Some(file) = &command.html {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| Failure(format!("{name}: {error}")))?;
        let html = weir_config::parse_html(&name, &text);
        let html = html.map_err(|errors| Failure(errors.to_string()))?;
        steps.push(Step::Html(weir_server::html_rewriting(&html)));
    }
    if let Some(text) = &command.compress {
        steps.push(Step::Compress(compress(text)?));
    }
    Ok(steps)
}

fn compress(text: &str) -> Result<Compress, Failure> {
    let (name, level) =
        text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    let coding = match name {
        "gzip" | "gz" => Coding::Gzip,
        "br" | "brotli" => Coding::Brotli,
        "zstd" | "zst" => Coding::Zstd,
        _ => {
            let expected = "expected \"gzip\", \"br\" or \"zstd\"";
            return Err(Failure(format!("`--compress` cannot be {name:?}: {expected}")));
        }
    };
    let (least, most) = coding.levels();
    let level = match level {
        None => most,
        Some(level) => {
            level.parse().ok().filter(|level| (least..=most).contains(level)).ok_or_else(|| {
                let expected = format!("expected a number from {least} to {most}");
                Failure(format!("`--compress`: a level of {name} cannot be {level:?}: {expected}"))
            })?
        }
    };
    Ok(Compress { coding, level })
}
