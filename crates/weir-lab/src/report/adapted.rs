//! Tables and figures of the A experiments beyond those of all groups.

use super::groups::{of_group, over_axis};
use super::table::{cell, line, table};
use crate::result::{ADAPTED, ENDLESS, GroupSample, HIT, MISS, Record};
use crate::stats::median;

/// Who had the core alone is called so, after whom it is compared with.
const ALONE: &str = ", alone";

/// Whether a record is of an A experiment.
pub(super) fn is_one(record: &Record) -> bool {
    record.id.starts_with('a') && !record.groups.is_empty()
}

/// CPU of requests, and what was adapted of what could be.
pub(super) fn tables(record: &Record, text: &mut String) {
    if !is_one(record) {
        return;
    }
    line(text, "Server CPU per request of any group, µs:\n");
    let cpu = |series: (&str, &str), x| record.cpu_per_request_us(series, x);
    over_axis(record, None, cpu, |value| format!("{value:.2}"), text);
    let series = record.group_series();
    let rows = series.iter().filter_map(|(contender, case)| {
        let alone = format!("{case}{ALONE}");
        let rounds = record.of_idle((contender, case), (contender, &alone), ENDLESS);
        let middle = median(&rounds)?;
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = format!("{least:.3} to {greatest:.3}");
        Some(vec![case.clone(), cell(Some(middle), |value| format!("{value:.3}")), range])
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        line(text, "Adapted under endless demand, relative to what idle CPU allows:\n");
        let header = ["median", "rounds, least to greatest"].map(str::to_owned);
        table(text, "helpers", &header, rows);
    }
}

/// The memory that things took at most.
pub(super) fn peaks(record: &Record, text: &mut String) {
    let mut cases: Vec<&str> = Vec::new();
    for peak in &record.peaks {
        if !cases.contains(&peak.case.as_str()) {
            cases.push(&peak.case);
        }
    }
    let rows = cases.into_iter().map(|case| {
        let peaks = record.peaks.iter().filter(|peak| peak.case == case);
        let megabytes: Vec<f64> = peaks.map(|peak| peak.bytes as f64 / 1e6).collect();
        let greatest = megabytes.iter().copied().fold(0.0, f64::max);
        let show = |value| format!("{value:.1}");
        vec![case.to_owned(), cell(median(&megabytes), show), show(greatest)]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        line(text, "Memory of the process that does it at most, MB:\n");
        table(text, "what", &["median", "greatest"].map(str::to_owned), rows);
    }
}

/// Latency of the background, and what was adapted.
pub(super) fn figures(record: &Record) -> Vec<(String, String)> {
    type Metric = fn(&GroupSample) -> f64;
    let p50: Metric = |sample| sample.latency_p50_us / 1e3;
    let p99: Metric = |sample| sample.latency_p99_us / 1e3;
    let charts = [
        ("hit-p50", HIT, "median latency of hits, ms", p50),
        ("hit-p99", HIT, "99th percentile of hits, ms", p99),
        ("miss-p50", MISS, "median latency of misses, ms", p50),
        ("adapted", ADAPTED, "adapted per second", GroupSample::marked_per_s),
    ];
    let names = record.group_names();
    let charts = charts.into_iter().filter(|(_, group, ..)| names.iter().any(|one| one == group));
    charts
        .map(|(name, group, label, metric)| {
            let chart = of_group(record, group, label, metric);
            (format!("{}-{name}.svg", record.id), chart.render())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{group_sample, record};
    use crate::result::Peak;

    #[test]
    fn peaks_have_a_row_for_each_case() {
        let mut record = record("images");
        for (case, round, bytes) in
            [("weir, jpeg", 0, 20_000_000), ("vips, jpeg", 0, 30_000_000), ("weir, jpeg", 1, 0)]
        {
            let (contender, case) = ("weir".to_owned(), case.to_owned());
            record.peaks.push(Peak { contender, case, round, bytes });
        }
        let mut text = String::new();
        peaks(&record, &mut text);
        assert!(text.contains("| weir, jpeg | 10.0 | 20.0 |\n| vips, jpeg | 30.0 |"), "{text}");
    }

    #[test]
    fn what_was_adapted_is_shown_beside_what_could_be() {
        let mut record = record("a4");
        for (case, group, x, marked) in [
            ("idle", HIT, 0.0, 1_000),
            ("idle", HIT, ENDLESS, 1_000),
            ("idle", ADAPTED, ENDLESS, 4_000),
            ("idle, alone", ADAPTED, ENDLESS, 5_000),
        ] {
            record.groups.push(GroupSample {
                marked,
                server_cpu_ns: if x > 0.0 { 1_000_000_000 } else { 100_000_000 },
                ..group_sample(("weir", case, group), x, 0, marked)
            });
        }
        let mut text = String::new();
        tables(&record, &mut text);
        assert!(text.contains("| idle | 0.889 | 0.889 to 0.889 |"), "{text}");
        assert!(text.contains("| 0 | 100.00 | – |"), "{text}");
        let names: Vec<String> = figures(&record).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a4-hit-p50.svg", "a4-hit-p99.svg", "a4-adapted.svg"]);
    }
}
