//! `weir adapt`: one adaptation from the command line, by a helper and with the limits that a
//! server has by default; and the helper itself.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_adapt::adapters::html::Rewriting;
use weir_adapt::helper::{self, Confinement};
use weir_adapt::{Job, Limits, Outcome, Pool, PoolSettings, Recipe, Step};
use weir_arena::Arena;
use weir_config::{AdaptPriority, Coding, CompressFormat};

use super::adapt_ads::Lists;
use super::{Failure, print};
use crate::cli::{Adapt, Helper};

/// The largest file that is adapted from the command line.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// What became of a file.
struct Adapted {
    made: Option<weir_adapt::Made>,
    what: String,
    before: usize,
}

/// Adapts a file, and tells what lists of ads would do with a request.
///
/// # Errors
/// What went wrong.
pub(super) fn adapt(command: &Adapt) -> Result<(), Failure> {
    let lists = Lists::load(command)?;
    let adapted = match &command.file {
        Some(file) => Some(adapt_file(command, file, lists.as_ref())?),
        None if command.html.is_some() || command.compress.is_some() => {
            return Err(Failure("there is no file to be changed or coded".to_owned()));
        }
        None => None,
    };
    let told = lists.as_ref().map(Lists::told).unwrap_or_default();
    if command.json {
        let mut answer = adapted.as_ref().map_or_else(|| json!({}), Adapted::to_json);
        for (name, value) in lists.iter().flat_map(Lists::to_json) {
            answer[name] = value;
        }
        return print(&format!("{answer:#}\n"));
    }
    print(&(told + &adapted.as_ref().map(Adapted::told).unwrap_or_default()))
}

impl Adapted {
    fn after(&self) -> usize {
        self.made.as_ref().map_or(self.before, |made| made.body.len())
    }

    fn took_us(&self) -> Option<u64> {
        self.made.as_ref().map(|made| made.took.as_micros() as u64)
    }

    fn to_json(&self) -> Value {
        let bytes = json!({ "before": self.before, "after": self.after() });
        let (adapted, us) = (self.made.is_some(), self.took_us());
        json!({ "adapted": adapted, "what": self.what, "bytes": bytes, "us": us })
    }

    fn told(&self) -> String {
        let (what, before, after) = (&self.what, self.before, self.after());
        let took = self.took_us().map(|us| format!(" in {:.1} ms", us as f64 / 1000.0));
        let percent = 100.0 * after as f64 / before.max(1) as f64;
        let took = took.unwrap_or_default();
        format!("{what}: {before} -> {after} bytes ({percent:.1} %){took}\n")
    }
}

fn adapt_file(command: &Adapt, file: &Path, lists: Option<&Lists>) -> Result<Adapted, Failure> {
    // Whoever has typed it waits for it.
    let settings =
        weir_config::Adapt { priority: AdaptPriority::Normal, ..weir_config::Adapt::default() };
    let arena = Arena::new(2 * FILE_BYTES_MAX).map_err(|error| Failure(error.to_string()))?;
    let input = read(file, &arena)?;
    let (before, original) = (input.len(), input.clone());
    let steps = steps(command, &settings, lists, before as u64)?;
    let tables = lists.and_then(Lists::table).map(|table| stored(&table, &arena));
    let job = Job {
        key: 0,
        input: vec![input],
        tables: tables.into_iter().collect::<Result<_, _>>()?,
        recipe: Recipe { steps },
        limits: Limits { output_bytes: settings.output, time: settings.time },
    };
    let (made, what) = match run(job, arena, &settings)? {
        Outcome::Failed(what) | Outcome::Died(what) => {
            return Err(Failure(format!("{} cannot be adapted: {what}", file.display())));
        }
        Outcome::Original(why) => (None, why.to_owned()),
        Outcome::Made(made) => {
            let what = made.detail.clone();
            (Some(made), what)
        }
    };
    if let Some(output) = &command.output {
        // What a client would be sent.
        let sent = made.as_ref().map_or(&original, |made| &made.body);
        std::fs::write(output, sent)
            .map_err(|error| Failure(format!("{}: {error}", output.display())))?;
    }
    Ok(Adapted { made, what, before })
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

fn run(job: Job, arena: Arena, settings: &weir_config::Adapt) -> Result<Outcome, Failure> {
    let io = |error: std::io::Error| Failure(error.to_string());
    let arguments = weir_server::helper_arguments(settings);
    let program = std::env::current_exe().map_err(io)?;
    let pool =
        Pool::start(PoolSettings { helpers: 1, queue: 1, program, arguments, cgroup: None }, arena);
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(io)?;
    let adapted = runtime.block_on(pool.map_err(io)?.adapt(job, |_| {}));
    adapted.map_err(|refused| Failure(refused.as_str().to_owned()))
}

fn read(file: &Path, arena: &Arena) -> Result<bytes::Bytes, Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure(format!("{}: {what}", file.display()));
    // What is no regular file does not say how long it is.
    let (mut content, opened) = (Vec::new(), File::open(file).map_err(|error| failed(&error))?);
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut content);
    if read.map_err(|error| failed(&error))? as u64 > FILE_BYTES_MAX {
        return Err(failed(&format!("more than {FILE_BYTES_MAX} bytes")));
    }
    stored(&content, arena)
}

/// Bytes where helpers can read them.
fn stored(bytes: &[u8], arena: &Arena) -> Result<Bytes, Failure> {
    let mut extent = arena.reserve(bytes.len()).map_err(|error| Failure(error.to_string()))?;
    extent.write(bytes).map_err(|error| Failure(error.to_string()))?;
    Ok(extent.freeze())
}

/// What is asked for of a file of so many bytes, in the order in which a server would do it.
fn steps(
    command: &Adapt,
    settings: &weir_config::Adapt,
    lists: Option<&Lists>,
    bytes: u64,
) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    if let Some(text) = &command.image {
        let text = with_format(text, command.output.as_deref());
        let step = weir_server::image_step(&text, &settings.image);
        steps.push(step.map_err(|error| Failure(format!("`--image`: {error}")))?);
    }
    let rules = command.html.as_deref().map(rules).transpose()?;
    if rules.is_some() || lists.is_some() {
        let hide = lists.map(Lists::hide);
        steps.push(Step::Html(Rewriting { hide, ..rules.unwrap_or_default() }));
    }
    steps.extend(command.compress.map(|format| weir_server::compress_step(&format, bytes)));
    Ok(steps)
}

/// What is asked for of a picture, with the format that its file's name says unless it is told.
fn with_format(text: &str, output: Option<&Path>) -> String {
    let is_told = text.split(',').any(|part| part.trim_start().starts_with("format"));
    let extension = output.and_then(|path| path.extension()?.to_str()).unwrap_or_default();
    let format = match &*extension.to_ascii_lowercase() {
        "jpg" | "jpeg" => "jpeg",
        "png" => "png",
        "webp" => "webp",
        "avif" => "avif",
        _ => "",
    };
    match is_told || format.is_empty() {
        true => text.to_owned(),
        false => format!("{text},format={format}"),
    }
}

/// The rules of a file.
fn rules(file: &Path) -> Result<Rewriting, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure(format!("{name}: {error}")))?;
    let html = weir_config::parse_html(&name, &text);
    let html = html.map_err(|errors| Failure(errors.to_string()))?;
    Ok(weir_server::html_rewriting(&html))
}

/// Reads `--image`, for nothing but its errors: it depends on `--output`, too.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn picture(text: &str) -> Result<String, String> {
    let settings = weir_config::Adapt::default();
    weir_server::image_step(text, &settings.image).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Reads `--compress`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn compress(text: &str) -> Result<CompressFormat, String> {
    let (name, level) =
        text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    let coding = match name {
        "gzip" | "gz" => Coding::Gzip,
        "br" | "brotli" => Coding::Brotli,
        "zstd" | "zst" => Coding::Zstd,
        _ => return Err("expected \"gzip\", \"br\" or \"zstd\"".to_owned()),
    };
    let Some(level) = level else { return Ok(CompressFormat::new(coding)) };
    let (least, most) = coding.levels();
    let within = level.parse().ok().filter(|level| (least..=most).contains(level));
    let level = within.ok_or_else(|| {
        format!("a level of {name} cannot be {level:?}: expected {least} to {most}")
    })?;
    Ok(CompressFormat { coding, level, level_large: level })
}
