//! Charts as SVG inside HTML: no script, no font, nothing from elsewhere.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use super::figures::{Growth, Histogram};
use super::projection::{Point, Projection};
use crate::human;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 160.0;
const EDGE: f64 = 8.0;

/// Text as it stands in HTML.
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

/// A frame around a drawing, with what stands below its left and right end.
fn chart(label: &str, drawing: &str, left: &str, right: &str) -> String {
    format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\
         <line class=\"axis\" x1=\"0\" y1=\"{HEIGHT}\" x2=\"{WIDTH}\" y2=\"{HEIGHT}\"/>{drawing}</svg>\
         <p class=\"ends\"><span>{}</span><span>{}</span></p></figure>\n",
        escaped(label),
        escaped(label),
        escaped(left),
        escaped(right)
    )
}

/// A bar a bin.
pub(super) fn histogram(label: &str, of: &Histogram) -> String {
    let most = of.counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let width = WIDTH / of.counts.len() as f64;
    let step = (of.max - of.min) / of.counts.len() as f64;
    let mut bars = String::new();
    for (at, count) in of.counts.iter().enumerate() {
        let height = *count as f64 / most * (HEIGHT - EDGE);
        let (from, to) = (of.min + step * at as f64, of.min + step * (at + 1) as f64);
        let _ = write!(
            bars,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{} to {}: {}</title></rect>",
            at as f64 * width + 1.0,
            HEIGHT - height,
            width - 2.0,
            short(from),
            short(to),
            human::counted(*count, "row")
        );
    }
    chart(label, &bars, &short(of.min), &short(of.max))
}

/// Bytes by the time they were computed.
pub(super) fn growth(label: &str, steps: &[Growth]) -> String {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return String::new() };
    let date = |step: &Growth| human::date(UNIX_EPOCH + Duration::from_millis(step.ms));
    if first.ms == last.ms {
        return format!("<p>All of {}.</p>\n", date(first));
    }
    let span = (last.ms - first.ms) as f64;
    let x = |step: &Growth| (step.ms - first.ms) as f64 / span * WIDTH;
    let y = |step: &Growth| HEIGHT - step.bytes as f64 / last.bytes.max(1) as f64 * (HEIGHT - EDGE);
    let mut path = format!("M{:.1} {HEIGHT}", x(first));
    for step in steps {
        let _ = write!(path, "H{:.1}V{:.1}", x(step), y(step));
    }
    let _ = write!(path, "H{WIDTH}V{HEIGHT}Z");
    chart(label, &format!("<path class=\"area\" d=\"{path}\"/>"), &date(first), &date(last))
}

/// A point a row.
pub(super) fn scatter(label: &str, of: &Projection) -> String {
    let most = |of_point: fn(&Point) -> f64| of.points.iter().map(of_point).fold(f64::MIN_POSITIVE, f64::max);
    let (widest, highest) = (most(|point| point.x.abs()), most(|point| point.y.abs()));
    // One scale for both axes: what is far apart looks far apart.
    let scale = ((WIDTH - EDGE) / 2.0 / widest).min((HEIGHT - EDGE) / 2.0 / highest);
    let mut points = String::new();
    for point in &of.points {
        let _ = write!(
            points,
            "<circle class=\"point\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\"><title>{}</title></circle>",
            WIDTH / 2.0 + point.x * scale,
            HEIGHT / 2.0 - point.y * scale,
            escaped(&point.id)
        );
    }
    let [along, across] = of.explained.map(|part| format!("{:.0} %", part * 100.0));
    chart(label, &points, &format!("across: {along} of the variance"), &format!("upwards: {across}"))
}

/// A line a module: how many bytes it takes of the most.
pub(super) fn bars(of: &[(&str, u64)]) -> String {
    let most = of.iter().map(|(_, bytes)| *bytes).max().unwrap_or(1).max(1) as f64;
    let line = |(name, bytes): &(&str, u64)| {
        let width = *bytes as f64 / most * 100.0;
        let (name, size) = (escaped(name), human::size(*bytes));
        format!(
            "<tr><th scope=\"row\">{name}</th><td class=\"wide\"><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{size}\"><rect class=\"bar\" width=\"{width:.2}\" height=\"8\"/></svg></td>\
             <td>{size}</td></tr>\n"
        )
    };
    format!("<table class=\"bars\">\n{}</table>\n", of.iter().map(line).collect::<String>())
}

/// Four digits are enough under an axis.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e5).contains(&size) {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.2e}")
    }
}
