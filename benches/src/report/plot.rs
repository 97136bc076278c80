//! Draws the pictures: rows per second of each store, and how the figures change as a cache grows.

use std::path::Path;

use plotters::prelude::*;

use crate::Result;
use crate::report::Figures;

const SIZE: (u32, u32) = (760, 360);
const OURS: RGBColor = RGBColor(37, 99, 235);
const OTHERS: RGBColor = RGBColor(148, 163, 184);

pub(crate) fn write(figures: &Figures, target: &Path) -> Result<()> {
    for workload in ["w1", "w2"] {
        let start = format!("{workload}.rows_per_second.");
        let bars: Vec<(&str, f64)> = figures.under(&start).collect();
        if !bars.is_empty() {
            readers(workload, &bars, &target.join(format!("{workload}.svg")))?;
        }
    }
    let growth = [
        ("fill, ns a row", "fill_ns_per_row"),
        ("read, ns a row", "read_ns_per_row"),
        ("open, µs", "open_ms"),
    ];
    let lines = growth.map(|(label, name)| {
        let scale = if name == "open_ms" { 1e3 } else { 1. };
        let start = format!("growth.{name}.");
        let points =
            figures.under(&start).filter_map(|(size, value)| Some((size.parse().ok()?, value * scale)));
        (label, points.collect::<Vec<(f64, f64)>>())
    });
    if lines[0].1.len() > 1 {
        lines_of(&lines, &target.join("growth.svg"))?;
    }
    Ok(())
}

/// One bar for each store.
fn readers(workload: &str, bars: &[(&str, f64)], path: &Path) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let most = bars.iter().map(|(_, value)| *value).fold(1., f64::max);
    let title = format!("{workload}: rows read in a second, shuffled batches of 256");
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(140)
        .build_cartesian_2d(0.0..most * 1.05, (0..bars.len()).into_segmented())?;
    let label = |segment: &SegmentValue<usize>| match segment {
        SegmentValue::CenterOf(number) => bars.get(*number).map_or("", |bar| bar.0).replace('_', " "),
        _ => String::new(),
    };
    let millions = |value: &f64| format!("{:.1} M", value / 1e6);
    chart.configure_mesh().disable_y_mesh().y_label_formatter(&label).x_label_formatter(&millions).draw()?;
    chart.draw_series(bars.iter().enumerate().map(|(number, (name, value))| {
        let color = if *name == "tcx" { OURS } else { OTHERS };
        let corners = [(0., SegmentValue::Exact(number)), (*value, SegmentValue::Exact(number + 1))];
        let mut bar = Rectangle::new(corners, color.filled());
        bar.set_margin(6, 6, 0, 0);
        bar
    }))?;
    area.present()?;
    Ok(())
}

/// One line for each quantity, on logarithmic axes.
fn lines_of(lines: &[(&str, Vec<(f64, f64)>)], path: &Path) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|(_, points)| points);
    let (first, last) = points().fold((f64::MAX, 0_f64), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
    let most = points().map(|(_, y)| *y).fold(1., f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption("From ten thousand rows on: the cost of each, and of opening all", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d((first..last).log_scale(), (10.0..most * 2.).log_scale())?;
    chart.configure_mesh().x_desc("rows").draw()?;
    for (number, (label, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let series = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        chart
            .draw_series(series)?
            .label(*label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().border_style(OTHERS).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}
