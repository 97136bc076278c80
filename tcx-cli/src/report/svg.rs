//! Draws charts as inline SVG, without scripts, fonts or other resources.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use super::colors::Colors;
use super::figures::Growth;
use super::histogram::Histogram;
use super::projection::{Point, Projection};
use super::sessions::Session;
use crate::text::human;

/// The size of a chart, and within it the drawing; the rest is for labels.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 470.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 166.0;
/// The maximum width of a bar, so that a few bars do not fill the drawing.
const WIDEST_BAR: f64 = 26.0;

/// Text escaped for HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The name of a chart in the page, and the text above it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caption<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

/// A drawing with its axes: `marks` label the vertical axis, each at a share of its height, `ends` the horizontal axis.
fn chart(caption: Caption<'_>, drawing: &str, marks: &[(f64, String)], ends: [&str; 2]) -> String {
    let (name, text) = (escaped(caption.name), escaped(caption.text));
    let mut axes = String::new();
    for (part, mark) in marks {
        let y = BOTTOM - part * (BOTTOM - TOP);
        let _ = write!(
            axes,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 7.0,
            y + 4.0,
            escaped(mark)
        );
    }
    let [left, right] = ends.map(escaped);
    let below = BOTTOM + 18.0;
    format!(
        "<figure><figcaption>{text}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{text}\" data-chart=\"{name}\">\
         {axes}{drawing}<line class=\"axis\" x1=\"{LEFT}\" y1=\"{BOTTOM}\" x2=\"{RIGHT}\" y2=\"{BOTTOM}\"/>\
         <text x=\"{LEFT}\" y=\"{below}\">{left}</text><text class=\"right\" x=\"{RIGHT}\" y=\"{below}\">{right}</text></svg></figure>\n"
    )
}

/// A bar between two heights, both as shares of the full height.
fn bar(class: &str, x: f64, width: f64, from: f64, to: f64, title: &str) -> String {
    let height = (to - from).max(0.0) * (BOTTOM - TOP);
    let y = BOTTOM - to * (BOTTOM - TOP);
    let title = escaped(title);
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{title}</title></rect>"
    )
}

/// Marks at zero, half and all.
fn halves(whole: u64, show: fn(u64) -> String) -> Vec<(f64, String)> {
    let half = (whole > 1 && whole.is_multiple_of(2)).then(|| (0.5, show(whole / 2)));
    [Some((0.0, show(0))), half, Some((1.0, show(whole)))].into_iter().flatten().collect()
}

/// One bar for each bin; for a constant, a single bar over its value.
pub(super) fn histogram(caption: Caption<'_>, of: &Histogram) -> String {
    if of.is_constant() {
        return constant(caption, of);
    }
    let most = of.counts.iter().copied().max().unwrap_or(1).max(1);
    let width = (RIGHT - LEFT) / of.counts.len() as f64;
    let step = (of.max - of.min) / of.counts.len() as f64;
    let mut bars = String::new();
    for (at, count) in of.counts.iter().enumerate() {
        let (from, to) = (of.min + step * at as f64, of.min + step * (at + 1) as f64);
        let rows = human::counted(*count, "row");
        let title = format!("{} to {}: {rows}", short(from), short(to));
        let part = *count as f64 / most as f64;
        bars.push_str(&bar("hit", LEFT + at as f64 * width + 0.5, width - 1.0, 0.0, part, &title));
    }
    chart(caption, &bars, &halves(most, human::count), [&short(of.min), &short(of.max)])
}

fn constant(caption: Caption<'_>, of: &Histogram) -> String {
    let (rows, value) = (of.counts.iter().sum(), short(f64::midpoint(of.min, of.max)));
    let text = format!("{}: {value} in every row", caption.text);
    let (middle, below) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 18.0);
    let title = format!("{value}: {}", human::counted(rows, "row"));
    let mut drawing = bar("hit", middle - WIDEST_BAR / 2.0, WIDEST_BAR, 0.0, 1.0, &title);
    let _ =
        write!(drawing, "<text class=\"middle\" x=\"{middle:.1}\" y=\"{below}\">{}</text>", escaped(&value));
    chart(Caption { text: &text, ..caption }, &drawing, &halves(rows, human::count), ["", ""])
}

/// Bytes over time; empty if all were computed at the same time.
pub(super) fn growth(caption: Caption<'_>, steps: &[Growth]) -> String {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return String::new() };
    if first.ms == last.ms {
        return String::new();
    }
    let span = (last.ms - first.ms) as f64;
    let x = |step: &Growth| LEFT + (step.ms - first.ms) as f64 / span * (RIGHT - LEFT);
    let y = |step: &Growth| BOTTOM - step.bytes as f64 / last.bytes.max(1) as f64 * (BOTTOM - TOP);
    let mut line = format!("M{:.1} {BOTTOM}", x(first));
    for step in steps {
        let _ = write!(line, "H{:.1}V{:.1}", x(step), y(step));
    }
    let drawing = format!(
        "<path class=\"area\" d=\"{line}H{RIGHT}V{BOTTOM}Z\"/><path class=\"line\" d=\"{line}H{RIGHT}\"/>"
    );
    let marks = [(0.0, human::size(0)), (0.5, human::size(last.bytes / 2)), (1.0, human::size(last.bytes))];
    chart(caption, &drawing, &marks, [&day(first.ms), &day(last.ms)])
}

/// One bar for each session: the share of hits, with the misses above.
pub(super) fn hit_rates(caption: Caption<'_>, sessions: &[Session]) -> String {
    let (Some(first), Some(last)) = (sessions.first(), sessions.last()) else { return String::new() };
    let step = ((RIGHT - LEFT) / sessions.len() as f64).min(WIDEST_BAR);
    let mut bars = String::new();
    for (at, session) in sessions.iter().enumerate() {
        let part = session.hits as f64 / session.asked().max(1) as f64;
        let title = format!(
            "{}, {}: {} of {} found, {} computed",
            day(session.started_ms),
            place(session),
            human::count(session.hits),
            human::counted(session.asked(), "row"),
            human::count(session.computed)
        );
        let (x, width) = (LEFT + at as f64 * step + step * 0.08, step * 0.84);
        bars.push_str(&bar("hit", x, width, 0.0, part, &title));
        bars.push_str(&bar("miss", x, width, part, 1.0, &title));
    }
    let marks = [0, 50, 100].map(|percent| (f64::from(percent) / 100.0, format!("{percent} %")));
    let (first, last) = (day(first.started_ms), day(last.started_ms));
    let when = if first == last { first } else { format!("{first} to {last}") };
    chart(caption, &bars, &marks, [&when, ""])
}

/// One point for each row, in the colour of its value.
pub(super) fn scatter(caption: Caption<'_>, of: &Projection, colors: &Colors) -> String {
    let most = |of_point: fn(&Point) -> f64| of.points.iter().map(of_point).fold(f64::MIN_POSITIVE, f64::max);
    let (widest, highest) = (most(|point| point.x.abs()), most(|point| point.y.abs()));
    // The same scale for both axes keeps the proportions of distances.
    let room = ((RIGHT - LEFT) / 2.0 - 6.0, (BOTTOM - TOP) / 2.0 - 6.0);
    let scale = (room.0 / widest).min(room.1 / highest);
    let mut points = String::new();
    for point in &of.points {
        let value = point.value.as_ref().map_or_else(String::new, |value| format!(": {value}"));
        let _ = write!(
            points,
            "<circle class=\"point\"{} cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\"><title>{}</title></circle>",
            colors.style(point.value.as_ref()),
            f64::midpoint(LEFT, RIGHT) + point.x * scale,
            f64::midpoint(TOP, BOTTOM) - point.y * scale,
            escaped(&(point.id.clone() + &value))
        );
    }
    let [along, across] = of.explained.map(|part| format!("{:.0} %", part * 100.0));
    let ends = [format!("across: {along} of the variance"), format!("upwards: {across}")];
    chart(caption, &points, &[], [&ends[0], &ends[1]])
}

/// A share as a bar in a table cell.
pub(super) fn part(class: &str, part: f64, label: &str) -> String {
    let width = (part * 100.0).clamp(0.0, 100.0);
    format!(
        "<svg class=\"part\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\
         <rect class=\"rail\" width=\"100\" height=\"8\"/><rect class=\"{class}\" width=\"{width:.2}\" height=\"8\"/></svg>",
        escaped(label)
    )
}

/// The host, program and process of a session.
pub(super) fn place(session: &Session) -> String {
    let named = [session.host.as_deref(), session.program.as_deref()].into_iter().flatten();
    let words: Vec<String> =
        named.map(str::to_owned).chain([format!("process {}", session.process)]).collect();
    words.join(", ")
}

/// The date and the minute.
pub(super) fn day(ms: u64) -> String {
    let date = human::date(UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH));
    date.get(..16).map_or(date.clone(), |minute| minute.replace('T', " "))
}

/// A number with about four digits.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{value:.2e}");
    }
    let before_point = if size < 1.0 { 1 } else { size.log10() as usize + 1 };
    let text = format!("{value:.*}", 4_usize.saturating_sub(before_point));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram_of(min: f64, max: f64, counts: Vec<u64>) -> String {
        histogram(Caption { name: "norms", text: "Norms of the rows" }, &Histogram { min, max, counts })
    }

    #[test]
    fn a_constant_is_drawn_as_one_bar_over_its_value() {
        let drawn = histogram_of(1.0, 1.000_000_1, vec![1000]);
        assert!(drawn.contains("Norms of the rows: 1 in every row"), "{drawn}");
        assert!(drawn.contains("<title>1: 1,000 rows</title>") && drawn.contains(">1</text>"), "{drawn}");
        assert_eq!(drawn.matches("class=\"hit\"").count(), 1, "{drawn}");
        let spread = histogram_of(1.0, 3.0, vec![1, 2]);
        assert!(!spread.contains("in every row") && spread.contains(">3</text>"), "{spread}");
    }

    #[test]
    fn numbers_under_an_axis_have_four_digits() {
        let shown = [0.0, 1.0, 0.25, 1.2345, 12.345, 1234.5, 99_999.4, 1e-4, 2e5].map(short);
        assert_eq!(shown, ["0", "1", "0.25", "1.234", "12.35", "1234", "99999", "1.00e-4", "2.00e5"]);
    }
}
