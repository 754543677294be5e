//! Charts as SVG text: lines over a logarithmic axis of sizes, and horizontal bars. Written by hand
//! because that is all the lab draws; readable in a light and a dark page by its white ground.

use std::fmt::Write;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 176.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 56.0;
/// Steps that an axis may have.
const TICKS_MAX: f64 = 8.0;
const BAR_HEIGHT: f64 = 26.0;
/// Least room for names of bars, and what a letter of them takes.
const BAR_LEFT: f64 = 170.0;
const LETTER: f64 = 6.4;

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: &'static str,
    /// A bound rather than a measurement: no points are marked.
    pub(super) bound: bool,
    /// Lengths of dashes and gaps; empty for a solid line.
    pub(super) dashes: &'static str,
    /// x (positive) and y, ascending in x.
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart of lines over sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LineChart {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    /// Where the x axis is marked, and with what.
    pub(super) x_ticks: Vec<(f64, String)>,
    pub(super) lines: Vec<Line>,
}

/// A chart of bars, one below the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BarChart {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) unit: String,
    /// Name, colour, value.
    pub(super) bars: Vec<(String, &'static str, f64)>,
    /// A goal, drawn as a vertical line.
    pub(super) bound: Option<(String, f64)>,
}

/// Makes text safe inside an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to write most control characters.
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

impl LineChart {
    pub(super) fn render(&self) -> String {
        let mut svg = open(HEIGHT, &self.title, &self.subtitle);
        let xs = self.x_ticks.iter().map(|(x, _)| *x);
        let xs = xs.chain(self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.0)));
        let (x_min, x_max) = xs.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        let y_top = self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.1));
        let y_step = nice_step(y_top.fold(0.0, f64::max));
        let y_max = self.y_max(y_step);
        let span = (x_max / x_min).ln().max(f64::MIN_POSITIVE);
        let x_at = |x: f64| LEFT + (x / x_min).ln() / span * (WIDTH - LEFT - RIGHT);
        let y_at = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);

        let mut y = 0.0;
        while y <= y_max + y_step / 2.0 {
            rule(&mut svg, (LEFT, y_at(y)), (WIDTH - RIGHT, y_at(y)), "#e3e3e3");
            label(&mut svg, (LEFT - 8.0, y_at(y) + 4.0), "end", &tick_label(y, y_step));
            y += y_step;
        }
        let mut free_from = f64::NEG_INFINITY;
        for (x, name) in &self.x_ticks {
            let (at, bottom) = (x_at(*x), HEIGHT - BOTTOM);
            rule(&mut svg, (at, bottom), (at, bottom + 5.0), "#444");
            // A label that would run into the one before is left out; its mark stays.
            let half = name.len() as f64 * 3.2 + 2.0;
            if at - half >= free_from {
                label(&mut svg, (at, bottom + 19.0), "middle", name);
                free_from = at + half;
            }
        }
        rule(&mut svg, (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "#444");
        rule(&mut svg, (LEFT, TOP), (LEFT, HEIGHT - BOTTOM), "#444");
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        label(&mut svg, (middle, HEIGHT - 14.0), "middle", &self.x_label);
        side_label(&mut svg, &self.y_label);
        for line in &self.lines {
            let points: Vec<_> = line.points.iter().map(|(x, y)| (x_at(*x), y_at(*y))).collect();
            draw(&mut svg, line, &points);
        }
        self.legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn y_max(&self, step: f64) -> f64 {
        let top = self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.1));
        ((top.fold(0.0, f64::max) / step).ceil() * step).max(step)
    }

    fn legend(&self, svg: &mut String) {
        let left = WIDTH - RIGHT + 16.0;
        // A bound may consist of several pieces under one name.
        let mut named: Vec<&str> = Vec::new();
        for line in &self.lines {
            if named.contains(&line.name.as_str()) {
                continue;
            }
            let y = TOP + 8.0 + named.len() as f64 * 20.0;
            named.push(&line.name);
            draw(svg, &Line { points: Vec::new(), ..line.clone() }, &[(left, y), (left + 24.0, y)]);
            label(svg, (left + 30.0, y + 4.0), "start", &line.name);
        }
    }
}

impl BarChart {
    pub(super) fn render(&self) -> String {
        let bottom = TOP + self.bars.len() as f64 * (BAR_HEIGHT + 10.0) + 6.0;
        let height = bottom + BOTTOM;
        let mut svg = open(height, &self.title, &self.subtitle);
        let left = self.left();
        let bound = self.bound.iter().map(|(_, value)| *value);
        let top = self.bars.iter().map(|(_, _, value)| *value).chain(bound).fold(0.0, f64::max);
        let step = nice_step(top);
        let max = ((top / step).ceil() * step).max(step);
        let x_at = |x: f64| left + x.max(0.0) / max * (WIDTH - left - 70.0);
        let mut x = 0.0;
        while x <= max + step / 2.0 {
            rule(&mut svg, (x_at(x), TOP - 6.0), (x_at(x), bottom), "#e3e3e3");
            label(&mut svg, (x_at(x), bottom + 18.0), "middle", &tick_label(x, step));
            x += step;
        }
        for (index, (name, colour, value)) in self.bars.iter().enumerate() {
            let y = TOP + index as f64 * (BAR_HEIGHT + 10.0);
            let width = x_at(*value) - left;
            let _ = writeln!(
                svg,
                r#"<rect x="{left:.1}" y="{y:.1}" width="{width:.1}" height="{BAR_HEIGHT}" fill="{colour}"/>"#
            );
            label(&mut svg, (left - 8.0, y + 18.0), "end", name);
            label(&mut svg, (x_at(*value) + 6.0, y + 18.0), "start", &format!("{value:.1}"));
        }
        if let Some((name, value)) = &self.bound {
            rule(&mut svg, (x_at(*value), TOP - 10.0), (x_at(*value), bottom), "#000");
            label(&mut svg, (x_at(*value) + 4.0, TOP - 2.0), "start", name);
        }
        label(&mut svg, (f64::midpoint(BAR_LEFT, WIDTH), height - 14.0), "middle", &self.unit);
        svg.push_str("</svg>\n");
        svg
    }

    /// Where bars begin.
    fn left(&self) -> f64 {
        let longest = self.bars.iter().map(|(name, _, _)| name.chars().count()).max();
        (longest.unwrap_or(0) as f64 * LETTER + 16.0).max(BAR_LEFT)
    }
}

fn open(height: f64, title: &str, subtitle: &str) -> String {
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#222">
<title>{title}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="16" y="26" font-size="16" font-weight="600">{title}</text>
<text x="16" y="44" fill="#666">{subtitle}</text>"##,
        title = escape(title),
        subtitle = escape(subtitle),
    );
    svg
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{colour}"/>"#,
        from.0, from.1, to.0, to.1
    );
}

fn label(svg: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="{anchor}">{text}</text>"#,
        at.0, at.1
    );
}

fn side_label(svg: &mut String, text: &str) {
    let (x, y) = (20.0, f64::midpoint(TOP, HEIGHT - BOTTOM));
    let text = escape(text);
    let _ = writeln!(
        svg,
        r#"<text transform="translate({x} {y}) rotate(-90)" text-anchor="middle">{text}</text>"#
    );
}

fn draw(svg: &mut String, line: &Line, points: &[(f64, f64)]) {
    let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashes = match line.dashes {
        "" => String::new(),
        dashes => format!(r#" stroke-dasharray="{dashes}""#),
    };
    let _ = writeln!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="2"{dashes}/>"#,
        list.join(" "),
        line.colour
    );
    if !line.bound {
        for (x, y) in points {
            let _ =
                writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{}"/>"#, line.colour);
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides 0 to `top` into few enough parts.
fn nice_step(top: f64) -> f64 {
    if !top.is_finite() || top <= 0.0 {
        return 1.0;
    }
    let rough = top / TICKS_MAX;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| rough <= factor * power);
    factor.unwrap_or(10.0) * power
}

fn tick_label(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        let check = |text, expect| assert_eq!(escape(text), expect);
        check("a < b & \"c\" > 'd'", "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
        check("≤ µs", "≤ µs");
        check("a\u{1}b\nc", "a b c");
    }

    #[test]
    fn steps_are_round() {
        for (top, expect) in [(0.0, 1.0), (1.0, 0.2), (7.9, 1.0), (100.0, 20.0), (33.0, 5.0)] {
            let got = nice_step(top);
            assert!((got - expect).abs() < 1e-9, "{top}: {got}");
        }
        assert_eq!(tick_label(0.4, 0.2), "0.4");
        assert_eq!(tick_label(40.0, 20.0), "40");
    }

    fn chart(points: Vec<(f64, f64)>) -> LineChart {
        let line = Line { name: "<weir>".into(), colour: "#000", bound: false, dashes: "", points };
        LineChart {
            title: "a & b".into(),
            subtitle: String::new(),
            x_label: "size".into(),
            y_label: "µs".into(),
            x_ticks: vec![(1_000.0, "1 KB".into()), (100_000.0, "100 KB".into())],
            lines: vec![line],
        }
    }

    #[test]
    fn the_size_axis_is_logarithmic() {
        let svg = chart(vec![(1_000.0, 1.0), (10_000.0, 1.0), (100_000.0, 1.0)]).render();
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        assert!(svg.contains(&format!(r#"cx="{middle:.1}""#)), "{svg}");
        assert!(svg.contains("&lt;weir&gt;") && svg.contains("a &amp; b"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_chart_is_still_svg() {
        let svg = chart(Vec::new()).render();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
