//! Writes the HTML page of a report.

use std::fmt::Write;
use std::time::Duration;

use super::colors::Colors;
use super::figures::{Figures, Module};
use super::outputs::{Count, Leaf};
use super::sessions::{BatchTimes, Session, Totals, rate};
use super::svg::{Caption, day, escaped, growth, histogram, hit_rates, part, place, scatter};
use crate::text::human;

/// Browsers then load nothing from outside the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = include_str!("page.css");

/// The number of newest sessions in the chart, and in the table.
const DRAWN: usize = 60;
const LISTED: usize = 10;
/// The number of variants in a table.
const VARIANTS: usize = 40;

/// One self-contained HTML page.
pub(crate) fn page(cache: &str, figures: &Figures) -> String {
    let title = format!("The cache {}", escaped(cache));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    let mut modules: Vec<&Module> = figures.modules.iter().collect();
    modules.sort_by_key(|module| (std::cmp::Reverse(module.bytes), &module.module));
    page.push_str(&overview(&modules, figures.bytes));
    page.extend(modules.into_iter().map(section));
    page.push_str("</html>\n");
    page
}

/// One line for each module, the largest first.
fn overview(modules: &[&Module], bytes: u64) -> String {
    let rows = modules.iter().map(|module| module.rows).sum();
    let mut text = format!(
        "<p class=\"lead\">{}, {}, {}</p>\n<section>\n<table class=\"modules\">\n<thead><tr><th>Module</th><th class=\"number\">Rows</th>\
         <th colspan=\"2\">Bytes</th><th class=\"number\">Sessions</th><th colspan=\"2\">Hits in them</th></tr></thead>\n",
        human::counted(modules.len() as u64, "module"),
        human::counted(rows, "row"),
        human::size(bytes)
    );
    let most = modules.first().map_or(1, |module| module.bytes.max(1)) as f64;
    for module in modules {
        let (name, size) = (escaped(&module.module), human::size(module.bytes));
        let Totals { sessions, hits, misses, .. } = module.totals;
        let (bar, found) = if sessions == 0 {
            (String::new(), "no session".to_owned())
        } else {
            let (share, rate) = (hits as f64 / hits.saturating_add(misses).max(1) as f64, rate(hits, misses));
            (part("hit", share, &format!("{rate} found")), rate)
        };
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\"><a href=\"#{name}\">{name}</a></th><td class=\"number\">{}</td>\
             <td class=\"wide\">{}</td><td class=\"number\">{size}</td><td class=\"number\">{}</td>\
             <td class=\"wide\">{bar}</td><td class=\"number\">{found}</td></tr>",
            human::count(module.rows),
            part("hit", module.bytes as f64 / most, &size),
            human::count(sessions),
        );
    }
    text.push_str("</table>\n</section>\n");
    text
}

fn section(module: &Module) -> String {
    let name = escaped(&module.module);
    let first = module.growth.first();
    let since = first.map_or(String::new(), |first| format!(", since {}", escaped(&day(first.ms))));
    let mut text = format!(
        "<section id=\"{name}\">\n<h2>{name}</h2>\n<p class=\"lead\">{}, {}, {}{since}</p>\n",
        human::counted(module.rows, "row"),
        human::size(module.bytes),
        human::counted(module.segments as u64, "segment")
    );
    if module.damaged_segments + module.damaged > 0 {
        let segments = human::counted(module.damaged_segments as u64, "damaged segment");
        let rows = human::counted(module.damaged as u64, "row");
        let _ = writeln!(
            text,
            "<p class=\"trouble\">{segments}; {rows} of the sample with damage: run `tcx verify`.</p>"
        );
    }
    let bytes = Caption { name: "growth", text: "Bytes over time; each segment counts from its oldest row" };
    let newest = &module.sessions[module.sessions.len().saturating_sub(DRAWN)..];
    let hits = Caption {
        name: "hit-rates",
        text: "Hits by session, the newest at the right, with the misses above",
    };
    let charts = growth(bytes, &module.growth) + &hit_rates(hits, newest);
    let _ = writeln!(text, "<div class=\"charts\">\n{charts}</div>\n{}", sessions(&module.sessions));
    if !module.outputs.is_empty() {
        let sampled = human::counted(module.sampled as u64, "row");
        let _ = writeln!(text, "<h3>Outputs</h3>\n<p class=\"note\">From a sample of {sampled}.</p>");
    }
    text.extend(module.outputs.iter().map(charts_of));
    text.push_str("</section>\n");
    text
}

/// A table of the newest sessions, the last one first.
fn sessions(of: &[Session]) -> String {
    if of.is_empty() {
        return "<p class=\"note\">No session is recorded yet. A process records its session when it closes the module.</p>\n".to_owned();
    }
    let mut text = format!(
        "<h3>Sessions</h3>\n<p class=\"note\">The newest sessions of {}.</p>\n<div class=\"scroll\"><table>\n<thead><tr><th>Began</th><th>Where</th>\
         <th class=\"number\">Took</th><th class=\"number\">Rows requested</th><th class=\"number\">Found</th><th class=\"number\">Computed</th>\
         <th class=\"number\">Computing</th><th class=\"number\">Flushing</th><th class=\"number\">Not stored</th>\
         <th class=\"number\">Batch found, p50 / p99 / p99.9</th><th class=\"number\">Batch with misses</th></tr></thead>\n",
        human::counted(of.len() as u64, "session")
    );
    for session in of.iter().rev().take(LISTED) {
        let took = duration(session.ended_ms.saturating_sub(session.started_ms));
        let took = if session.closed { took } else { format!("{took}, not closed") };
        let cells = [
            took,
            human::count(session.asked()),
            rate(session.hits, session.misses),
            human::count(session.computed),
            duration(session.compute_ms),
            duration(session.flush_ms),
            human::count(session.not_kept),
            batch_times(&session.found_batches),
            batch_times(&session.missed_batches),
        ];
        let cells = cells.map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        let (began, place) = (escaped(&day(session.started_ms)), escaped(&place(session)));
        let _ = writeln!(text, "<tr><td>{began}</td><td>{place}</td>{cells}</tr>");
    }
    text.push_str("</table></div>\n");
    text
}

/// `12.4 / 20.1 / 33.0 µs`; nothing if there was no lookup.
fn batch_times(times: &BatchTimes) -> String {
    let BatchTimes { count, p50_us, p99_us, p999_us } = *times;
    if count == 0 { String::new() } else { format!("{p50_us:.1} / {p99_us:.1} / {p999_us:.1} µs") }
}

/// `230 ms`, `3.2 s`, `1m 5s`.
fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => humantime::format_duration(Duration::from_secs(ms / 1000)).to_string(),
    }
}

fn charts_of(leaf: &Leaf) -> String {
    let heading = format!("<h4>{}: {}</h4>\n", escaped(&leaf.name), escaped(&leaf.r#type));
    if let Some(counts) = &leaf.variants {
        return heading + &variants(counts);
    }
    let mut text = heading + "<div class=\"charts\">\n";
    if let Some(norms) = &leaf.norms {
        text.push_str(&histogram(Caption { name: "norms", text: "Norms of the rows" }, norms));
    }
    if let Some(lengths) = &leaf.lengths {
        text.push_str(&histogram(Caption { name: "lengths", text: "Lengths of the rows" }, lengths));
    }
    if let Some(nan) = &leaf.nan {
        let caption = Caption { name: "nan", text: "Elements of a row that are NaN" };
        text.push_str(&histogram(caption, nan));
    }
    let mut legend = String::new();
    if let Some(projection) = &leaf.projection {
        let colors = Colors::of(projection);
        let caption = Caption { name: "plane", text: "The rows along their two principal components" };
        text.push_str(&scatter(caption, projection, &colors));
        legend = projection.colored_by.as_ref().map_or_else(String::new, |name| colors.legend(name));
    }
    text.push_str("</div>\n");
    let nan = if leaf.nan.is_none() { "No NaN values" } else { "Some NaN values" };
    let infinite = human::counted(leaf.infinite_rows as u64, "row");
    let _ = writeln!(text, "{legend}<p class=\"note\">{nan}; {infinite} with infinities.</p>");
    text
}

/// The rows of each variant, the most frequent first.
fn variants(counts: &[Count]) -> String {
    let mut counts: Vec<&Count> = counts.iter().collect();
    counts.sort_by_key(|own| std::cmp::Reverse(own.rows));
    let most = counts.first().map_or(1, |own| own.rows.max(1)) as f64;
    let mut text = "<table class=\"variants\">\n".to_owned();
    for own in counts.iter().take(VARIANTS) {
        let name = own.name.clone().unwrap_or_else(|| "no variant".to_owned());
        let (name, rows) = (escaped(&format!("{} ({name})", own.number)), human::counted(own.rows, "row"));
        let bar = part("hit", own.rows as f64 / most, &rows);
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{name}</th><td class=\"wide\">{bar}</td><td class=\"number\">{rows}</td></tr>"
        );
    }
    text.push_str("</table>\n");
    if let Some(more @ 1..) = counts.len().checked_sub(VARIANTS) {
        let rows = counts[VARIANTS..].iter().map(|own| own.rows).sum();
        let (more, rows) = (human::counted(more as u64, "variant"), human::counted(rows, "row"));
        let _ = writeln!(text, "<p class=\"note\">{more} more, with {rows}.</p>");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_a_fitting_unit() {
        let shown = [0, 230, 3270, 65_000, 90_000_000].map(duration);
        assert_eq!(shown, ["0 ms", "230 ms", "3.2 s", "1m 5s", "1day 1h"]);
    }
}
