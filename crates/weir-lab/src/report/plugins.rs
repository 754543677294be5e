//! The tables of the experiments with plugins: what was timed by itself, what an extension adds to
//! a server, and latency and replies over the rate of requests.

use super::table::{cell, line, row, table};
use super::{label, size_label};
use crate::goal::{duration, keeps_up};
use crate::result::{Record, Sample};
use crate::stats::{differences, median, paired_ratio};

/// The case of a server without an extension.
const PLAIN: &str = "plain";
/// Of what is timed by size, what is compared with what.
pub(super) const COMPARED: [(&str, &str); 4] = [
    ("none", "native"),
    ("isolated", "native"),
    ("client, isolated", "client, none"),
    ("server CPU, isolated", "server CPU, none"),
];

/// What was timed by itself.
pub(super) fn timings(record: &Record, text: &mut String) {
    let series = record.timed_series();
    let alone = series.iter().filter_map(|(contender, case)| {
        let times = record.times(contender, case, 0);
        let least = times.iter().copied().reduce(f64::min)?;
        let greatest = times.iter().copied().reduce(f64::max)?;
        let range = format!("{} to {}", duration(least), duration(greatest));
        Some(vec![case.clone(), cell(median(&times), duration), range])
    });
    let alone: Vec<_> = alone.collect();
    if !alone.is_empty() {
        line(text, "Time:\n");
        let header = ["median", "rounds, least to greatest"].map(str::to_owned);
        table(text, "what", &header, alone);
    }
    by_size(record, text);
}

fn by_size(record: &Record, text: &mut String) {
    let sizes: Vec<usize> = record.sizes();
    let is_sized = |case: &str| sizes.iter().any(|size| !times(record, case, *size).is_empty());
    let series = record.timed_series().into_iter().map(|(_, case)| case);
    let cases: Vec<String> = series.filter(|case| is_sized(case)).collect();
    if cases.is_empty() {
        return;
    }
    line(text, "Time of a picture:\n");
    let rows = sizes.iter().map(|size| {
        row(*size, cases.iter().map(|case| median(&times(record, case, *size))).collect(), duration)
    });
    table(text, "size", &cases, rows.collect());
    let ratios = COMPARED.iter().filter(|(a, b)| is_sized(a) && is_sized(b));
    let ratios: Vec<_> = ratios.collect();
    if ratios.is_empty() {
        return;
    }
    line(text, "Relative to each other:\n");
    let header: Vec<String> = ratios.iter().map(|(a, b)| format!("{a} / {b}")).collect();
    let rows = sizes.iter().map(|size| {
        let ratio = |(a, b): &&(&str, &str)| {
            paired_ratio(&times(record, a, *size), &times(record, b, *size))
        };
        row(*size, ratios.iter().map(ratio).collect(), |value| format!("{value:.3}"))
    });
    table(text, "size", &header, rows.collect());
}

fn times(record: &Record, case: &str, size: usize) -> Vec<f64> {
    let series = record.timed_series().into_iter().find(|(_, other)| other == case);
    series.map_or_else(Vec::new, |(contender, case)| record.times(&contender, &case, size))
}

/// What an extension adds to the server that has it.
pub(super) fn extensions(record: &Record, text: &mut String) {
    let mut rows = Vec::new();
    for (contender, case) in record.series().iter().filter(|(_, case)| case != PLAIN) {
        for size in record.sizes() {
            let of = |case: &str, metric: fn(&Sample) -> f64| {
                record.rounds(contender, case, size, metric)
            };
            let cpu = (of(case, Sample::cpu_us), of(PLAIN, Sample::cpu_us));
            let replies = (of(case, Sample::requests_per_s), of(PLAIN, Sample::requests_per_s));
            if cpu.1.is_empty() {
                continue;
            }
            let ratio = |value| cell(value, |value| format!("{value:.3}"));
            rows.push(vec![
                format!("{}, {}", label(record, contender, case), size_label(size)),
                cell(median(&differences(&cpu.0, &cpu.1)), |value| format!("{value:.2}")),
                ratio(paired_ratio(&cpu.0, &cpu.1)),
                ratio(paired_ratio(&replies.0, &replies.1)),
            ]);
        }
    }
    if rows.is_empty() {
        return;
    }
    line(text, "Compared with the same server without any extension:\n");
    let header =
        ["CPU per request beyond it, µs", "CPU, relative", "requests per second, relative"];
    table(text, "server, extension", &header.map(str::to_owned), rows);
}

/// Latency, replies and CPU, a row for each rate of requests.
pub(super) fn rates(record: &Record, text: &mut String) {
    line(text, "Median latency from the moment a request was due, µs (–: did not keep up):\n");
    per_rate(record, text, true, |value| format!("{value:.0}"), |sample| sample.latency_p50_us);
    line(text, "The same, 99th percentile:\n");
    per_rate(record, text, true, |value| format!("{value:.0}"), |sample| sample.latency_p99_us);
    line(text, "Replies per second (–: not asked, having failed to keep up with less):\n");
    per_rate(record, text, false, |value| format!("{value:.0}"), Sample::requests_per_s);
    line(text, "Server CPU per request, µs:\n");
    per_rate(record, text, false, |value| format!("{value:.2}"), Sample::cpu_us);
}

fn per_rate(
    record: &Record,
    text: &mut String,
    only_kept: bool,
    show: fn(f64) -> String,
    metric: fn(&Sample) -> f64,
) {
    let series = record.series();
    let header: Vec<String> =
        series.iter().map(|(contender, case)| label(record, contender, case)).collect();
    let rows = record.rates().into_iter().map(|rate| {
        let mut row = vec![format!("{rate:.0}/s")];
        row.extend(series.iter().map(|(contender, case)| {
            let is_shown = !only_kept || keeps_up(record, (contender, case), rate);
            let rounds = record.rounds_at(contender, case, rate, metric);
            cell(median(&rounds).filter(|_| is_shown), show)
        }));
        row
    });
    table(text, "requests due", &header, rows.collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{record, sample};
    use crate::result::Timing;

    fn timing(case: &str, size: usize, round: usize, ns: f64) -> Timing {
        Timing { contender: "weir".to_owned(), case: case.to_owned(), size, round, ns }
    }

    #[test]
    fn times_alone_and_by_size_have_tables_of_their_own() {
        let mut record = record("p4");
        for (round, ns) in [50.0, 40.0, 60.0].into_iter().enumerate() {
            record.timings.push(timing("a call", 0, round, ns));
            record.timings.push(timing("native", 9_216, round, 1_000.0));
            record.timings.push(timing("isolated", 9_216, round, 1_000.0 + ns));
        }
        let mut text = String::new();
        timings(&record, &mut text);
        assert!(text.contains("| a call | 50 ns | 40 ns to 60 ns |"), "{text}");
        assert!(text.contains("| size | native | isolated |"), "{text}");
        assert!(text.contains("| 9 KB | 1.00 µs | 1.05 µs |"), "{text}");
        assert!(text.contains("| size | isolated / native |"), "{text}");
        assert!(text.contains("| 9 KB | 1.050 |"), "{text}");
    }

    #[test]
    fn an_extension_is_compared_with_its_own_server() {
        let mut record = record("p1");
        for (contender, case, cpu_us) in
            [("weir", "plain", 10), ("weir", "own", 11), ("envoy", "proxy-wasm", 90)]
        {
            let one = Sample { case: case.to_owned(), ..sample(contender, 500, 0, cpu_us) };
            record.samples.push(one);
        }
        let mut text = String::new();
        extensions(&record, &mut text);
        assert!(text.contains("| weir own, 500 B | 1.00 | 1.100 | 1.000 |"), "{text}");
        assert!(!text.contains("envoy"), "there is none without: {text}");
    }

    #[test]
    fn latencies_of_a_server_that_falls_behind_are_not_shown() {
        let mut record = record("p3");
        for (rate, requests) in [(1_000.0, 1_000), (2_000.0, 1_500)] {
            let one = Sample { rate_per_s: Some(rate), requests, ..sample("weir", 500, 0, 1) };
            record.samples.push(one);
        }
        let mut text = String::new();
        rates(&record, &mut text);
        assert!(text.contains("| 1000/s | 1 |\n| 2000/s | – |"), "{text}");
        assert!(text.contains("| 1000/s | 1000 |\n| 2000/s | 1500 |"), "{text}");
    }
}
