//! Tables and figures of the experiments with groups of clients: what each group got, over what was
//! varied.

use super::figure::{colour, subtitle};
use super::svg::{Line, LineChart};
use super::table::{cell, line, table};
use crate::result::{GroupSample, Record};
use crate::stats::median;

/// Dashes of a contender's second, third … line.
const DASHES: [&str; 5] = ["", "9 3", "2 3", "12 3 2 3", "5 5"];
/// Experiments whose figures show all groups of one set-up beside each other, as the original's
/// did; the others show one group of all set-ups.
const BY_SERIES: [&str; 3] = ["g3", "g4", "g6"];
/// Colours of groups in those.
const GROUP_COLOURS: [&str; 3] = ["#0072B2", "#E69F00", "#D55E00"];

type Metric = fn(&GroupSample) -> f64;

/// What tables show of each group.
struct Column {
    title: &'static str,
    metric: Metric,
    /// Shown where it is nowhere more than nothing.
    always: bool,
}

const COLUMNS: [Column; 5] = [
    Column {
        title: "correct responses per second",
        metric: GroupSample::goodput_per_s,
        always: true,
    },
    Column {
        title: "of these, out of the cache, or adapted",
        metric: GroupSample::marked_per_s,
        always: false,
    },
    Column {
        title: "median latency, ms",
        metric: |sample| latency(sample, sample.latency_p50_us),
        always: true,
    },
    Column {
        title: "99th percentile of latency, ms",
        metric: |sample| latency(sample, sample.latency_p99_us),
        always: true,
    },
    Column {
        title: "turned away per second (answered so, reset, or given up)",
        metric: GroupSample::turned_away_per_s,
        always: false,
    },
];

/// What tables show of each contender.
const SHARES: [(&str, Metric); 2] = [
    ("CPU time of the contender's processes, as a share of a core", |sample| sample.cpu_share()),
    (
        "Share of time that the contender's core was busy with anything, the kernel's work for \
         packets and other programs included",
        |sample| sample.server_core_busy,
    ),
];

/// Latencies of hits are parts of a millisecond.
fn tenths(value: f64) -> String {
    if value > 0.0 && value < 1.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

/// Nothing was served, and there is no latency.
fn latency(sample: &GroupSample, us: f64) -> f64 {
    if sample.requests == 0 { f64::NAN } else { us / 1e3 }
}

/// All tables.
pub(super) fn tables(record: &Record, text: &mut String) {
    if let Some(capacity) = record.capacity_per_s {
        line(text, &format!("Capacity of the application: {capacity:.0} pages per second.\n"));
    }
    for group in record.group_names() {
        for Column { title, metric, always } in COLUMNS {
            let is_there = record.groups.iter().any(|s| s.group == group && metric(s) > 0.0);
            if always || is_there {
                line(text, &format!("{group}: {title}:\n"));
                let rounds =
                    |series: (&str, &str), x| record.group_rounds(series, Some(&group), x, metric);
                over_axis(record, Some(&group), rounds, tenths, text);
            }
        }
    }
    for (title, metric) in SHARES {
        line(text, &format!("{title}:\n"));
        let rounds = |(contender, case): (&str, &str), x| {
            let groups = record.group_names().into_iter();
            // They are the same for all groups of a set-up.
            let mut rounds =
                groups.map(|group| record.group_rounds((contender, case), Some(&group), x, metric));
            rounds.find(|rounds| !rounds.is_empty()).unwrap_or_default()
        };
        over_axis(record, None, rounds, |value| format!("{value:.3}"), text);
    }
    line(text, &noise(record));
}

/// A row for each value of what was varied, a column for each set-up that has the group.
pub(super) fn over_axis(
    record: &Record,
    group: Option<&str>,
    rounds: impl Fn((&str, &str), f64) -> Vec<f64>,
    show: fn(f64) -> String,
    text: &mut String,
) {
    let series = series_with(record, group);
    let header: Vec<String> = series.iter().map(|(a, b)| format!("{a} {b}")).collect();
    let rows = record.group_xs().into_iter().map(|x| {
        let mut row = vec![tick(record, x)];
        row.extend(
            series
                .iter()
                .map(|(contender, case)| cell(median(&rounds((contender, case), x)), show)),
        );
        row
    });
    let corner = record.axis.as_ref().map_or("", |axis| axis.label.as_str());
    table(text, corner, &header, rows.collect());
}

fn series_with(record: &Record, group: Option<&str>) -> Vec<(String, String)> {
    let mut series = record.group_series();
    series.retain(|(contender, case)| {
        record.groups.iter().any(|sample| {
            sample.contender == *contender
                && sample.case == *case
                && group.is_none_or(|group| sample.group == group)
        })
    });
    series
}

fn tick(record: &Record, x: f64) -> String {
    let ticks = record.axis.iter().flat_map(|axis| &axis.ticks);
    let named = ticks.clone().find(|(at, _)| *at == x).map(|(_, name)| name.clone());
    named.unwrap_or_else(|| format!("{x}"))
}

/// What may have disturbed the measurement.
fn noise(record: &Record) -> String {
    let greatest = |metric: Metric| record.groups.iter().map(metric).fold(0.0, f64::max);
    let errors: u64 = record.groups.iter().map(|sample| sample.errors).sum();
    let unsent: u64 = record.groups.iter().map(|sample| sample.unsent).sum();
    format!(
        "The core of generator and application was busy for at most {:.0} % of the time; steal at \
         most {:.1} %; {errors} failures; {unsent} requests were not sent because too many were \
         under way.\n",
        greatest(|sample| sample.load_core_busy) * 100.0,
        greatest(|sample| sample.steal) * 100.0,
    )
}

/// All figures: file names and SVG texts.
pub(super) fn figures(record: &Record) -> Vec<(String, String)> {
    let id = &record.id;
    if BY_SERIES.contains(&id.as_str()) {
        let of = |(contender, case): (String, String)| {
            let name = format!("{id}-{contender}-{case}.svg").replace(' ', "-");
            (name, of_series(record, &contender, &case).render())
        };
        return record
            .group_series()
            .into_iter()
            .filter(|(_, case)| case != "alone")
            .map(of)
            .collect();
    }
    let of = |group: String| {
        let name = format!("{id}-{group}.svg");
        (name, of_group(record, &group, "correct responses per second", GroupSample::goodput_per_s))
    };
    let groups = record.group_names().into_iter();
    let mut figures: Vec<_> = groups.map(of).map(|(name, chart)| (name, chart.render())).collect();
    if let Some(first) = record.group_names().first() {
        let p99 = of_group(record, first, "99th percentile of latency, ms", |sample| {
            latency(sample, sample.latency_p99_us)
        });
        figures.push((format!("{id}-{first}-p99.svg"), p99.render()));
        for (name, (label, metric)) in ["cpu", "core"].into_iter().zip(SHARES) {
            let label = label.split(',').next().unwrap_or(label);
            let chart = of_group(record, first, label, metric);
            figures.push((format!("{id}-{name}.svg"), chart.render()));
        }
    }
    figures
}

/// All groups of one set-up.
fn of_series(record: &Record, contender: &str, case: &str) -> LineChart {
    let lines = record.group_names().into_iter().zip(GROUP_COLOURS).map(|(group, colour)| {
        let metric = GroupSample::goodput_per_s;
        let points = points(record, (contender, case), &group, metric);
        Line { name: group, colour, bound: false, dashes: "", points }
    });
    let lines = lines.collect();
    let chart = chart(record, "correct responses per second", lines);
    LineChart { title: format!("{}; {contender}, {case}", chart.title), ..chart }
}

/// One group of all set-ups.
pub(super) fn of_group(record: &Record, group: &str, y_label: &str, metric: Metric) -> LineChart {
    let series = series_with(record, Some(group));
    let lines = series.iter().enumerate().map(|(index, (contender, case))| {
        let before = series[..index].iter().filter(|(other, _)| other == contender).count();
        Line {
            name: format!("{contender} {case}"),
            colour: colour(contender),
            bound: false,
            dashes: DASHES[before % DASHES.len()],
            points: points(record, (contender, case), group, metric),
        }
    });
    let lines = lines.collect();
    let chart = chart(record, y_label, lines);
    LineChart { title: format!("{}; {group}", chart.title), ..chart }
}

fn points(record: &Record, series: (&str, &str), group: &str, metric: Metric) -> Vec<(f64, f64)> {
    let xs = record.group_xs().into_iter();
    // The axis is logarithmic: nothing at all stands half as far out as the least there is.
    let least = record.group_xs().into_iter().find(|x| *x > 0.0).unwrap_or(1.0);
    xs.filter_map(|x| {
        let value = median(&record.group_rounds(series, Some(group), x, metric))?;
        Some((if x > 0.0 { x } else { least / 2.0 }, value))
    })
    .collect()
}

fn chart(record: &Record, y_label: &str, lines: Vec<Line>) -> LineChart {
    let xs = record.group_xs();
    let least = xs.iter().copied().find(|x| *x > 0.0).unwrap_or(1.0);
    let at = |x: f64| if x > 0.0 { x } else { least / 2.0 };
    LineChart {
        title: format!("{}: {}", record.id.to_uppercase(), record.title),
        subtitle: subtitle(record),
        x_label: record.axis.as_ref().map_or_else(String::new, |axis| axis.label.clone()),
        y_label: y_label.to_owned(),
        x_ticks: xs.iter().map(|x| (at(*x), tick(record, *x))).collect(),
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{group_sample, record};
    use crate::result::Axis;

    fn measured(id: &str) -> Record {
        let mut record = record(id);
        for (x, requests) in [(0.0, 100), (10.0, 90)] {
            for (contender, case) in [("weir", "kernel"), ("nginx", "limit_req")] {
                for group in ["preferred", "others"] {
                    record.groups.push(group_sample((contender, case, group), x, 0, requests));
                }
            }
        }
        let ticks = vec![(0.0, "none".to_owned()), (10.0, "ten".to_owned())];
        record.axis = Some(Axis { label: "flood".to_owned(), ticks });
        record
    }

    #[test]
    fn each_group_has_its_tables() {
        let mut text = String::new();
        tables(&measured("g10"), &mut text);
        assert!(text.contains("preferred: correct responses per second:"), "{text}");
        assert!(text.contains("| flood | weir kernel | nginx limit_req |"), "{text}");
        assert!(text.contains("| none | 100.0 | 100.0 |\n| ten | 90.0 | 90.0 |"), "{text}");
        assert!(!text.contains("turned away"), "nobody was: {text}");
    }

    #[test]
    fn figures_are_by_group_or_by_series() {
        let names = |id| -> Vec<String> {
            figures(&measured(id)).into_iter().map(|(name, _)| name).collect()
        };
        let by_group = ["preferred", "others", "preferred-p99", "cpu", "core"]
            .map(|name| format!("g10-{name}.svg"));
        assert_eq!(names("g10"), by_group);
        assert_eq!(names("g3"), ["g3-weir-kernel.svg", "g3-nginx-limit_req.svg"]);
        for (_, svg) in figures(&measured("g10")) {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
