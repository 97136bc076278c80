//! The page of a report.

use std::fmt::Write;

use super::figures::{Figures, Leaf, Module};
use super::svg::{bars, escaped, growth, histogram, scatter};
use crate::human;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2430; --faint: #667085; --line: #d0d5dd; --mark: #2563a8; --page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --faint: #98a2b3; --line: #3b4453; --mark: #6aa9ee; --page: #14181f } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { line-height: 1.2; margin: 2rem 0 .5rem } h3 { font-size: 1rem }
table { border-collapse: collapse } th, td { text-align: left; padding: .2rem 1.2rem .2rem 0; font-weight: normal }
td { font-variant-numeric: tabular-nums } thead th { color: var(--faint) } .wide { width: 24rem } .wide svg { width: 100%; height: .7rem }
.charts { display: flex; flex-wrap: wrap; gap: 1rem 2rem } figure { margin: 0; width: 30rem; max-width: 100% } figure svg { width: 100%; display: block }
figcaption, .ends, .note { color: var(--faint) } .ends { display: flex; justify-content: space-between; margin: .2rem 0 0; font-size: .85rem }
.bar, .area { fill: var(--mark) } .point { fill: var(--mark); fill-opacity: .6 } .axis { stroke: var(--line) }
";

/// One file of HTML with everything in it.
pub(crate) fn page(cache: &str, figures: &Figures) -> String {
    let title = format!("The cache {}", escaped(cache));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    page.push_str(&overview(figures));
    page.extend(figures.modules.iter().map(section));
    page.push_str("</html>\n");
    page
}

fn overview(figures: &Figures) -> String {
    let modules = human::counted(figures.modules.len() as u64, "module");
    let mut text = format!("<p>{modules}, {}</p>\n<h2>Bytes by module</h2>\n", human::size(figures.bytes));
    let mut sizes: Vec<(&str, u64)> =
        figures.modules.iter().map(|module| (module.module.as_str(), module.bytes)).collect();
    sizes.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), *name));
    text.push_str(&bars(&sizes));
    // Nothing records them yet: a reader who looks for them finds out why.
    text.push_str("<h2>Hit rates by run</h2>\n<p class=\"note\">No runs are recorded in this cache.</p>\n");
    text
}

fn section(module: &Module) -> String {
    let Module {
        module: name,
        rows,
        bytes,
        segments,
        damaged_segments,
        growth: steps,
        sampled,
        damaged,
        outputs,
    } = module;
    let mut text = format!(
        "<h2>{}</h2>\n<p>{}, {}, {}</p>\n",
        escaped(name),
        human::counted(*rows, "row"),
        human::size(*bytes),
        human::counted(*segments as u64, "segment")
    );
    if *damaged_segments + *damaged > 0 {
        let (segments, rows) = (
            human::counted(*damaged_segments as u64, "damaged segment"),
            human::counted(*damaged as u64, "row"),
        );
        let _ = writeln!(text, "<p>{segments}; {rows} of the sample do not verify: run tcx verify.</p>");
    }
    text.push_str("<div class=\"charts\">\n");
    text.push_str(&growth(
        "Bytes over time (segments that were joined are as old as their oldest row)",
        steps,
    ));
    text.push_str("</div>\n");
    let sampled = human::counted(*sampled as u64, "row");
    let _ = writeln!(text, "<p class=\"note\">What follows is of a sample of {sampled}.</p>");
    text.extend(outputs.iter().map(charts));
    text
}

fn charts(leaf: &Leaf) -> String {
    let mut text =
        format!("<h3>{}: {}</h3>\n<div class=\"charts\">\n", escaped(&leaf.name), escaped(&leaf.r#type));
    if let Some(norms) = &leaf.norms {
        text.push_str(&histogram("Norms of the rows", norms));
    }
    if let Some(nan) = &leaf.nan {
        text.push_str(&histogram("Elements of a row that are not a number", nan));
    }
    if let Some(projection) = &leaf.projection {
        text.push_str(&scatter("The rows along the two directions in which they differ most", projection));
    }
    text.push_str("</div>\n");
    let nan = if leaf.nan.is_none() { "Every element is a number" } else { "Some elements are not a number" };
    let infinite = human::counted(leaf.infinite_rows as u64, "row");
    let _ = writeln!(text, "<p class=\"note\">{nan}; {infinite} with infinities.</p>");
    text
}
