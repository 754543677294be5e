//! The Markdown section of an experiment: how it was measured, the figures, the goals.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{adapted, groups, label, plugins, size_label};
use crate::goal::{Unit, Verdict, duration, evaluate};
use crate::result::{MemorySample, Record, Sample};
use crate::stats::{median, paired_ratio, spread};

/// Contenders that others are compared with.
const BASELINES: [&str; 2] = ["nginx", "floor"];
/// Experiments in which bodies are made of originals of the size that is varied.
const MADE: [&str; 2] = ["compression", "rewriting"];
/// More steal than this share of the machine, in any round, and the run is called noisy.
const STEAL_MAX: f64 = 0.02;
/// More than this share of a core taken by unrelated programs, in the median round, likewise.
const FOREIGN_CORES_MAX: f64 = 0.05;
/// A spread of a series' rounds above this share of its median, in the median series, likewise.
const SPREAD_MAX: f64 = 0.10;

/// The whole section.
#[must_use]
pub fn markdown(record: &Record) -> String {
    let mut text = String::new();
    preamble(record, &mut text);
    plugins::timings(record, &mut text);
    if !record.samples.is_empty() {
        if record.rates().is_empty() {
            throughput_tables(record, &mut text);
            plugins::extensions(record, &mut text);
        } else {
            plugins::rates(record, &mut text);
        }
        text.push_str(&noise_line(record));
    }
    if !record.groups.is_empty() {
        groups::tables(record, &mut text);
        adapted::tables(record, &mut text);
    }
    adapted::peaks(record, &mut text);
    if !record.memory.is_empty() {
        memory_table(record, &mut text);
    }
    goal_table(record, &mut text);
    for reason in &record.skipped {
        let reason = reason.lines().next().unwrap_or_default();
        let reason = reason.split("; the end of its output").next().unwrap_or_default();
        line(&mut text, &format!("Left out: {reason}.\n"));
    }
    text
}

fn preamble(record: &Record, text: &mut String) {
    let machine = &record.machine;
    let settings = &record.settings;
    line(text, &format!("### {}: {}\n", record.id.to_uppercase(), record.title));
    line(text, &format!("`{}`, {}.", record.command, machine.date));
    line(
        text,
        &format!(
            "{}, {} cores{}, {} MiB, Linux {}.",
            machine.cpu,
            machine.cores,
            if machine.virtualised { ", virtual machine" } else { "" },
            machine.memory_mib,
            machine.kernel
        ),
    );
    line(
        text,
        &format!(
            "{} round{}{}{}. Medians; ratios are medians of the rounds' ratios.",
            settings.rounds,
            if settings.rounds == 1 { "" } else { "s" },
            if record.samples.is_empty() && record.groups.is_empty() {
                String::new()
            } else {
                format!(" of {} s, interleaved", settings.window_s)
            },
            match settings.clients {
                0 => String::new(),
                clients => format!(", {clients} clients"),
            }
        ),
    );
    let versions: Vec<String> =
        record.contenders.iter().map(|(name, version)| format!("{name}: {version}")).collect();
    line(text, &format!("{}.\n", versions.join("; ")));
}

fn throughput_tables(record: &Record, text: &mut String) {
    line(text, "Server CPU per request, µs:\n");
    per_size(record, text, |values| format!("{values:.2}"), Sample::cpu_us);
    for baseline in BASELINES {
        ratio_table(record, baseline, text);
    }
    line(text, "Requests per second:\n");
    per_size(record, text, |value| format!("{value:.0}"), Sample::requests_per_s);
    line(text, "Body bandwidth, Mbit/s:\n");
    per_size(record, text, |value| format!("{value:.0}"), Sample::megabits_per_s);
    if MADE.contains(&record.id.as_str()) {
        line(text, "Originals, MB/s:\n");
        let metric = Sample::original_megabytes_per_s;
        per_size(record, text, |value| format!("{value:.1}"), metric);
        line(text, "Bytes sent, relative to the originals':\n");
        per_size(record, text, |value| format!("{value:.3}"), Sample::size_share);
    }
    line(text, "Share of its core that the server used (below 1 the generator was the limit):\n");
    per_size(record, text, |value| format!("{value:.2}"), Sample::server_busy);
}

/// A row for each size, a column for each series.
fn per_size(
    record: &Record,
    text: &mut String,
    show: fn(f64) -> String,
    metric: fn(&Sample) -> f64,
) {
    let series = record.series();
    let header: Vec<String> =
        series.iter().map(|(contender, case)| label(record, contender, case)).collect();
    let rows = record.sizes().into_iter().map(|size| {
        let cells = series
            .iter()
            .map(|(contender, case)| median(&record.rounds(contender, case, size, metric)));
        row(size, cells.collect(), show)
    });
    table(text, "size", &header, rows.collect());
}

/// CPU of every series relative to the baseline's with the same kind of document.
fn ratio_table(record: &Record, baseline: &str, text: &mut String) {
    let series = record.series();
    let others: Vec<_> =
        series.iter().filter(|(contender, _)| contender != baseline).cloned().collect();
    if others.len() == series.len() || others.is_empty() {
        return;
    }
    let header: Vec<String> =
        others.iter().map(|(contender, case)| label(record, contender, case)).collect();
    let rows = record.sizes().into_iter().map(|size| {
        let cells = others.iter().map(|(contender, case)| {
            let of = |name| record.rounds(name, case, size, Sample::cpu_us);
            paired_ratio(&of(contender), &of(baseline))
        });
        row(size, cells.collect(), |value| format!("{value:.2}"))
    });
    line(text, &format!("CPU per request relative to {baseline}:\n"));
    table(text, "size", &header, rows.collect());
}

fn memory_table(record: &Record, text: &mut String) {
    line(text, "Memory per connection, KB:\n");
    let header = [
        "server, beyond the kernel's sockets",
        "rounds, least to greatest",
        "kernel TCP buffers, both ends",
        "connections checked afterwards",
    ];
    let rows = record.series().into_iter().map(|(contender, case)| {
        let samples: Vec<&MemorySample> = record
            .memory
            .iter()
            .filter(|sample| sample.contender == contender && sample.case == case)
            .collect();
        let kilobytes = |metric: fn(&MemorySample) -> f64| -> Vec<f64> {
            samples.iter().map(|sample| metric(sample) / 1024.0).collect()
        };
        let own = kilobytes(MemorySample::bytes_per_client);
        let least = own.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let tcp = median(&kilobytes(MemorySample::tcp_bytes_per_client));
        vec![
            label(record, &contender, &case),
            cell(median(&own), |value| format!("{value:.2}")),
            format!("{least:.2} to {greatest:.2}"),
            cell(tcp, |value| format!("{value:.1}")),
            samples.iter().map(|sample| sample.verified).sum::<usize>().to_string(),
        ]
    });
    table(text, "contender", &header.map(str::to_owned), rows.collect());
}

/// A row for each goal, a column for each size it may hold for.
fn goal_table(record: &Record, text: &mut String) {
    let verdicts = evaluate(record);
    let mut goals: Vec<&str> = Vec::new();
    let mut sizes: Vec<Option<usize>> = Vec::new();
    for verdict in &verdicts {
        if !goals.contains(&verdict.goal.as_str()) {
            goals.push(&verdict.goal);
        }
        if !sizes.contains(&verdict.size) {
            sizes.push(verdict.size);
        }
    }
    if verdicts.is_empty() {
        return;
    }
    sizes.sort_unstable();
    let header: Vec<String> =
        sizes.iter().map(|size| size.map_or_else(|| "measured".to_owned(), size_label)).collect();
    let rows = goals.iter().map(|goal| {
        let cells = sizes.iter().map(|size| {
            let verdict = verdicts.iter().find(|v| v.goal == *goal && v.size == *size);
            verdict.map_or_else(String::new, verdict_cell)
        });
        std::iter::once((*goal).to_owned()).chain(cells).collect()
    });
    line(
        text,
        "Goals (in bold: not met; –: not measured; in brackets what the ratio lies within with \
         95 % confidence):\n",
    );
    table(text, "goal", &header, rows.collect());
    let count = |met| verdicts.iter().filter(|verdict| verdict.met == met).count();
    let (met, missed, open) = (count(Some(true)), count(Some(false)), count(None));
    line(text, &format!("{met} met, {missed} not met, {open} not measured.\n"));
}

fn verdict_cell(verdict: &Verdict) -> String {
    let Some(value) = verdict.measured else { return "–".to_owned() };
    let mut shown = match verdict.unit {
        Unit::Ratio => format!("{value:.3}"),
        Unit::Bytes => format!("{:.2} KB", value / 1024.0),
        Unit::Nanoseconds => duration(value),
        Unit::PerSecond => format!("{value:.0}/s"),
    };
    if let Some((low, high)) = verdict.interval {
        shown.push_str(&format!(" ({low:.3}–{high:.3})"));
    }
    if verdict.met == Some(true) { shown } else { format!("**{shown}**") }
}

/// How quiet the machine was, and a warning if it was not.
fn noise_line(record: &Record) -> String {
    let samples = &record.samples;
    let steal = samples.iter().map(|sample| sample.steal).fold(0.0, f64::max);
    let foreign: Vec<f64> = samples.iter().map(|sample| sample.foreign_cores).collect();
    let foreign = median(&foreign).unwrap_or(0.0);
    let spreads = spreads(samples);
    let middle = median(&spreads).unwrap_or(0.0);
    let widest = spreads.iter().copied().fold(0.0, f64::max);
    let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
    let noisy = steal > STEAL_MAX || foreign > FOREIGN_CORES_MAX || middle > SPREAD_MAX;
    let has_intervals = evaluate(record).iter().any(|verdict| verdict.interval.is_some());
    let advice = match (noisy, has_intervals) {
        (false, _) => "",
        (true, false) => " **The machine was too noisy; do not quote these figures.**",
        (true, true) => {
            " **The machine was too noisy for absolute figures; quote ratios only, with their \
             intervals.**"
        }
    };
    format!(
        "Noise: rounds of a series spread {:.1} % of their median (median series; widest {:.1} %); \
         steal at most {:.1} %; other programs used {:.2} cores (median round); {errors} failed \
         requests.{}\n\n",
        middle * 100.0,
        widest * 100.0,
        steal * 100.0,
        foreign,
        advice
    )
}

/// How far the rounds of each series, size and rate spread.
fn spreads(samples: &[Sample]) -> Vec<f64> {
    let mut points: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        let rate = sample.rate_per_s.map(f64::to_bits);
        let point = (&sample.contender, &sample.case, sample.size, rate);
        points.entry(point).or_default().push(sample.cpu_us());
    }
    points.values().filter_map(|rounds| spread(rounds)).collect()
}

pub(super) fn row(size: usize, cells: Vec<Option<f64>>, show: fn(f64) -> String) -> Vec<String> {
    let mut row = vec![size_label(size)];
    row.extend(cells.into_iter().map(|value| cell(value, show)));
    row
}

pub(super) fn cell(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// A Markdown table; the first column is left-aligned, the others right.
pub(super) fn table(text: &mut String, corner: &str, header: &[String], rows: Vec<Vec<String>>) {
    line(text, &format!("| {corner} | {} |", header.join(" | ")));
    line(text, &format!("|---|{}", "--:|".repeat(header.len())));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        line(text, &format!("| {} |", cells.join(" | ")));
    }
    line(text, "");
}

pub(super) fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{record, sample};

    #[test]
    fn ratios_and_goals_are_computed() {
        let mut record = record("s1");
        for round in 0..5 {
            record.samples.push(sample("weir", 1_024, round, 60));
            record.samples.push(sample("nginx", 1_024, round, 120));
        }
        let text = markdown(&record);
        assert!(text.contains("| 1 KB | 60.00 | 120.00 |"), "{text}");
        assert!(text.contains("relative to nginx:\n\n| size | weir |"), "{text}");
        assert!(text.contains("of nginx static | 0.500 |"), "{text}");
        assert!(text.contains("of apache static | – |"), "{text}");
        assert!(text.contains("1 met, 0 not met, 4 not measured."), "{text}");
        assert!(!text.contains("too noisy"), "{text}");
    }

    #[test]
    fn enough_rounds_tell_how_sure_a_ratio_is() {
        let mut record = record("s1");
        for round in 0..6 {
            record.samples.push(sample("weir", 1_024, round, 60 + round as u64));
            record.samples.push(sample("nginx", 1_024, round, 100));
        }
        let text = markdown(&record);
        assert!(text.contains("of nginx static | **0.625 (0.600–0.650)** |"), "{text}");
        for sample in &mut record.samples {
            sample.steal = 0.1;
        }
        let text = markdown(&record);
        assert!(text.contains("too noisy for absolute figures; quote ratios only"), "{text}");
    }

    #[test]
    fn a_noisy_machine_is_called_noisy() {
        let check = |change: fn(&mut Sample, usize)| {
            let mut record = record("s2");
            for round in 0..5 {
                let mut one = sample("weir", 1_024, round, 100);
                change(&mut one, round);
                record.samples.push(one);
            }
            assert!(markdown(&record).contains("too noisy"));
        };
        check(|sample, round| sample.steal = if round == 3 { 0.05 } else { 0.0 });
        check(|sample, _| sample.foreign_cores = 0.3);
        check(|sample, round| sample.server_cpu_ns += round as u64 * 10_000_000);
    }

    #[test]
    fn a_table_survives_a_bar_in_a_cell() {
        let mut text = String::new();
        table(&mut text, "a", &["b".to_owned()], vec![vec!["x|y".to_owned(), "1".to_owned()]]);
        assert_eq!(text, "| a | b |\n|---|--:|\n| x\\|y | 1 |\n\n");
    }
}
