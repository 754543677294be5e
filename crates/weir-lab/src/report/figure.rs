//! Which figures an experiment has.

use super::svg::{BarChart, Line, LineChart};
use super::{adapted, groups, label, plugins, size_label};
use crate::goal::{Measure, goals, keeps_up};
use crate::result::{MemorySample, Record, Sample};
use crate::stats::{median, paired_ratio};

/// A contender has the same colour in all figures (Okabe and Ito's palette, told apart by
/// colour-blind readers too).
const COLOURS: [(&str, &str); 10] = [
    ("weir", "#0072B2"),
    ("nginx", "#009E73"),
    ("apache", "#D55E00"),
    ("h2o", "#CC79A7"),
    ("lighttpd", "#E69F00"),
    ("haproxy", "#56B4E9"),
    ("envoy", "#882255"),
    ("caddy", "#44AA99"),
    ("floor", "#777777"),
    ("floor-file", "#BBBBBB"),
];
/// Where a contender has several lines they differ by the kind of document.
const DASHES: [(&str, &str); 5] = [
    ("cached", "9 3"),
    ("uncached", "2 3"),
    ("own", "9 3"),
    ("proxy-wasm", "2 3"),
    ("spoe", "9 3"),
];
/// Colours and dashes of [`plugins::COMPARED`].
const COMPARED_STYLES: [(&str, &str); 4] =
    [("#777777", ""), ("#0072B2", ""), ("#0072B2", "9 3"), ("#D55E00", "2 3")];
/// Experiments that show what they time by itself as bars.
const TIMED: [&str; 1] = ["g9"];
/// For anything else.
const COLOUR_OTHER: &str = "#000000";

/// File names and SVG texts of a record's figures.
#[must_use]
pub fn figures(record: &Record) -> Vec<(String, String)> {
    let id = &record.id;
    let mut figures = Vec::new();
    let sizes = record.sizes();
    if !record.rates().is_empty() {
        let (latency, replies) = (latency(record).render(), replies(record).render());
        figures.push((format!("{id}-latency.svg"), latency));
        figures.push((format!("{id}-replies.svg"), replies));
    } else if !record.samples.is_empty() && sizes.len() > 1 {
        figures.push((format!("{id}-bandwidth.svg"), bandwidth(record).render()));
        figures.push((format!("{id}-cpu.svg"), cpu(record).render()));
    } else if !record.samples.is_empty() {
        figures.push((format!("{id}-cpu.svg"), cpu_bars(record).render()));
    }
    if record.timings.iter().any(|timing| timing.size > 0) {
        figures.push((format!("{id}-time.svg"), relative_times(record).render()));
    }
    if TIMED.contains(&id.as_str()) && !record.timings.is_empty() {
        figures.push((format!("{id}-time.svg"), times(record).render()));
    }
    if adapted::is_one(record) {
        figures.extend(adapted::figures(record));
    } else if !record.groups.is_empty() {
        figures.extend(groups::figures(record));
    }
    if !record.memory.is_empty() {
        figures.push((format!("{id}-memory.svg"), memory(record).render()));
    }
    figures
}

/// The original's figure: bandwidth over the size of the document.
fn bandwidth(record: &Record) -> LineChart {
    let lines = record.series().into_iter().map(|(contender, case)| {
        let points = record.sizes().into_iter().filter_map(|size| {
            let rounds = record.rounds(&contender, &case, size, Sample::megabits_per_s);
            Some((size as f64, median(&rounds)?))
        });
        line(record, &contender, &case, points.collect())
    });
    chart(record, "body bandwidth, Mbit/s", lines.collect())
}

/// CPU per request: relative to nginx if it took part, with the goals; otherwise in microseconds.
fn cpu(record: &Record) -> LineChart {
    let series = record.series();
    let relative = series.iter().any(|(contender, _)| contender == "nginx");
    let mut lines = Vec::new();
    for (contender, case) in &series {
        let points = record.sizes().into_iter().filter_map(|size| {
            let rounds = record.rounds(contender, case, size, Sample::cpu_us);
            let value = if relative {
                paired_ratio(&rounds, &record.rounds("nginx", case, size, Sample::cpu_us))
            } else {
                median(&rounds)
            };
            Some((size as f64, value?))
        });
        lines.push(line(record, contender, case, points.collect()));
    }
    if relative {
        lines.extend(goal_lines(record));
    }
    let unit = if relative { "relative to nginx" } else { "µs" };
    chart(record, &format!("server CPU per request, {unit}"), lines)
}

/// CPU per request where there is one size only.
fn cpu_bars(record: &Record) -> BarChart {
    let size = record.sizes().first().copied().unwrap_or_default();
    let bars = record.series().into_iter().filter_map(|(contender, case)| {
        let cpu = median(&record.rounds(&contender, &case, size, Sample::cpu_us))?;
        Some((label(record, &contender, &case), colour(&contender), cpu))
    });
    let unit = "µs of server CPU per request".to_owned();
    let title = format!("{}: {}", record.id.to_uppercase(), record.title);
    BarChart { title, subtitle: subtitle(record), unit, bars: bars.collect(), bound: None }
}

/// The original's figures: latency over the rate of requests, as long as a server keeps up …
fn latency(record: &Record) -> LineChart {
    let lines = over_rates(record, |sample| sample.latency_p50_us, true);
    LineChart { y_label: "median latency, µs".to_owned(), ..rate_chart(record, lines) }
}

/// … and the rate of replies.
fn replies(record: &Record) -> LineChart {
    let lines = over_rates(record, Sample::requests_per_s, false);
    LineChart { y_label: "replies per second".to_owned(), ..rate_chart(record, lines) }
}

fn over_rates(record: &Record, metric: fn(&Sample) -> f64, only_kept: bool) -> Vec<Line> {
    let lines = record.series().into_iter().map(|(contender, case)| {
        let points = record.rates().into_iter().filter_map(|rate| {
            let is_shown = !only_kept || keeps_up(record, (&contender, &case), rate);
            let rounds = record.rounds_at(&contender, &case, rate, metric);
            Some((rate, median(&rounds).filter(|_| is_shown)?))
        });
        line(record, &contender, &case, points.collect())
    });
    lines.collect()
}

fn rate_chart(record: &Record, lines: Vec<Line>) -> LineChart {
    let ticks = record.rates().into_iter().map(|rate| (rate, format!("{rate:.0}")));
    LineChart {
        x_label: "requests due per second".to_owned(),
        x_ticks: ticks.collect(),
        ..chart(record, "", lines)
    }
}

/// What was timed by size, relative to what it is compared with.
fn relative_times(record: &Record) -> LineChart {
    let mut lines = Vec::new();
    for ((subject, to), (colour, dashes)) in plugins::COMPARED.into_iter().zip(COMPARED_STYLES) {
        let points = record.sizes().into_iter().filter_map(|size| {
            let times = |case| record.times("weir", case, size);
            Some((size as f64, paired_ratio(&times(subject), &times(to))?))
        });
        let (name, points) = (format!("{subject} / {to}"), points.collect());
        lines.push(Line { name, colour, bound: false, dashes, points });
    }
    lines.retain(|line| !line.points.is_empty());
    LineChart {
        x_label: "size of the picture".to_owned(),
        ..chart(record, "time, relative", lines)
    }
}

/// What was timed by itself.
fn times(record: &Record) -> BarChart {
    let bars = record.timed_series().into_iter().filter_map(|(contender, case)| {
        let ns = median(&record.times(&contender, &case, 0))?;
        Some((case, colour(&contender), ns))
    });
    BarChart {
        title: format!("{}: {}", record.id.to_uppercase(), record.title),
        subtitle: subtitle(record),
        unit: "ns".to_owned(),
        bars: bars.collect(),
        bound: None,
    }
}

/// The goals against nginx, each over the sizes it holds for.
fn goal_lines(record: &Record) -> Vec<Line> {
    let sizes = record.sizes();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return Vec::new() };
    goals(&record.id)
        .into_iter()
        .filter_map(|goal| match goal.measure {
            Measure::CpuAtMost(("nginx", _), bound) => {
                let from = goal.size_min.max(*first) as f64;
                let to = goal.size_max.min(*last) as f64;
                (from < to).then(|| Line {
                    name: "goal for weir".to_owned(),
                    colour: COLOUR_OTHER,
                    bound: true,
                    dashes: "6 4",
                    points: vec![(from, bound), (to, bound)],
                })
            }
            _ => None,
        })
        .collect()
}

fn chart(record: &Record, y_label: &str, lines: Vec<Line>) -> LineChart {
    LineChart {
        title: format!("{}: {}", record.id.to_uppercase(), record.title),
        subtitle: subtitle(record),
        x_label: "size of the document".to_owned(),
        y_label: y_label.to_owned(),
        x_ticks: record.sizes().into_iter().map(|size| (size as f64, size_label(size))).collect(),
        lines,
    }
}

fn memory(record: &Record) -> BarChart {
    let bars = record.series().into_iter().filter_map(|(contender, case)| {
        let rounds: Vec<f64> = record
            .memory
            .iter()
            .filter(|sample| sample.contender == contender && sample.case == case)
            .map(|sample| MemorySample::bytes_per_client(sample) / 1024.0)
            .collect();
        Some((label(record, &contender, &case), colour(&contender), median(&rounds)?))
    });
    let bound = goals(&record.id).into_iter().find_map(|goal| match goal.measure {
        Measure::MemoryAtMost(bytes) => Some(("goal for weir".to_owned(), bytes / 1024.0)),
        _ => None,
    });
    BarChart {
        title: format!("{}: {}", record.id.to_uppercase(), record.title),
        subtitle: subtitle(record),
        unit: "KB of server memory per connection".to_owned(),
        bars: bars.collect(),
        bound,
    }
}

pub(super) fn subtitle(record: &Record) -> String {
    let machine = &record.machine;
    format!("{}, {} cores, Linux {}, {}", machine.cpu, machine.cores, machine.kernel, machine.date)
}

fn line(record: &Record, contender: &str, case: &str, points: Vec<(f64, f64)>) -> Line {
    let dashes = DASHES.iter().find(|(name, _)| *name == case).map_or("", |(_, dashes)| dashes);
    let (name, colour) = (label(record, contender, case), colour(contender));
    Line { name, colour, bound: false, dashes, points }
}

pub(super) fn colour(contender: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == contender).map_or(COLOUR_OTHER, |(_, colour)| colour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{record, sample};
    use crate::result::Timing;

    #[test]
    fn the_cpu_figure_shows_goals_only_beside_nginx() {
        let mut record = record("s2");
        for size in [1_024, 8_192, 65_536, 204_800] {
            record.samples.push(sample("weir", size, 0, 5));
        }
        assert!(!cpu(&record).lines.iter().any(|line| line.bound));
        for size in [1_024, 8_192, 65_536, 204_800] {
            record.samples.push(sample("nginx", size, 0, 10));
        }
        let chart = cpu(&record);
        let bounds: Vec<_> = chart.lines.iter().filter(|line| line.bound).collect();
        assert_eq!(bounds.len(), 2);
        assert_eq!(bounds[1].points, [(65_536.0, 0.83), (204_800.0, 0.83)]);
        assert_eq!(chart.lines[0].points[0], (1_024.0, 0.5));
    }

    #[test]
    fn figures_suit_what_was_measured() {
        let names = |record: &Record| -> Vec<String> {
            figures(record).into_iter().map(|(name, _)| name).collect()
        };
        let mut one_size = record("p1");
        one_size.samples.push(sample("weir", 500, 0, 5));
        assert_eq!(names(&one_size), ["p1-cpu.svg"]);
        let mut open = record("p3");
        for (rate, requests) in [(500.0, 500), (1_000.0, 1_000), (2_000.0, 1_100)] {
            let one = Sample { rate_per_s: Some(rate), requests, ..sample("weir", 500, 0, 5) };
            open.samples.push(one);
        }
        assert_eq!(names(&open), ["p3-latency.svg", "p3-replies.svg"]);
        assert_eq!(latency(&open).lines[0].points.len(), 2, "the last did not keep up");
        assert_eq!(replies(&open).lines[0].points.len(), 3);
        let mut decisions = record("g9");
        let (contender, case) = ("weir".to_owned(), "kernel: a rule".to_owned());
        decisions.timings.push(Timing { contender, case, size: 0, round: 0, ns: 40.0 });
        assert_eq!(names(&decisions), ["g9-time.svg"]);
        let mut pictures = record("p4");
        for (case, ns) in [("native", 100.0), ("isolated", 110.0)] {
            let (contender, case) = ("weir".to_owned(), case.to_owned());
            for size in [9_229, 101_391] {
                let (contender, case) = (contender.clone(), case.clone());
                pictures.timings.push(Timing { contender, case, size, round: 0, ns });
            }
        }
        assert_eq!(names(&pictures), ["p4-time.svg"]);
        assert_eq!(relative_times(&pictures).lines[0].points, [(9_229.0, 1.1), (101_391.0, 1.1)]);
    }

    #[test]
    fn every_contender_has_its_colour() {
        for contender in &crate::contender::ALL {
            assert_ne!(colour(contender.name), COLOUR_OTHER, "{}", contender.name);
        }
    }
}
