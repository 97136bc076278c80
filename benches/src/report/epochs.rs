//! Draws the time of an epoch without a cache, of one that fills a cache, and of one from the cache.

use std::fmt::Write as _;

use crate::report::Figures;

/// The left end of the bars, and the length of the bar of the epoch without a cache.
const LEFT: f64 = 230.;
const ONE: f64 = 380.;

/// The picture, if the epochs were measured.
pub(crate) fn picture(figures: &Figures) -> Option<String> {
    let first = figures.value("e2e.first_epoch_overhead")?;
    let speedup = figures.value("e2e.second_epoch_speedup")?;
    Some(drawn(first, speedup))
}

/// Has no background, and greys that are readable on light and dark pages.
fn drawn(first: f64, speedup: f64) -> String {
    let mut svg =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"150\" viewBox=\"0 0 760 150\" \
         font-family=\"sans-serif\" font-size=\"14\" fill=\"#7d8590\">\n\
         <title>An epoch of a frozen network without a cache, filling one, and from it</title>\n"
            .to_owned();
    let bars = [
        ("without a cache", 1., "#94a3b8", "1".to_owned()),
        ("first epoch, which fills it", first, "#2563eb", format!("{first:.2}")),
        (
            "second epoch, from the cache",
            1. / speedup,
            "#2563eb",
            format!("{:.3}: {speedup:.0} times faster", 1. / speedup),
        ),
    ];
    for (number, (label, time, color, said)) in bars.into_iter().enumerate() {
        let (top, width) = (12 + number * 42, (time * ONE).max(2.));
        let (middle, left, right) = (top + 19, LEFT - 10., LEFT + width + 8.);
        // Writing into a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{left}\" y=\"{middle}\" text-anchor=\"end\">{label}</text>\n\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"28\" fill=\"{color}\"/>\n\
             <text x=\"{right:.1}\" y=\"{middle}\">{said}</text>"
        );
    }
    svg + "<text x=\"230\" y=\"145\" font-size=\"12\">time of an epoch</text>\n</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure of this name in the table of `docs/performance.md`.
    fn figure(document: &str, name: &str) -> f64 {
        let line = document.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        line.split('|').nth(2).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn the_picture_of_the_readme_shows_the_figures_of_the_documents() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let document = std::fs::read_to_string(root.join("docs/performance.md")).unwrap();
        let [first, speedup] =
            ["e2e.first_epoch_overhead", "e2e.second_epoch_speedup"].map(|name| figure(&document, name));
        let (path, drawn) = (root.join("docs/bench/epochs.svg"), drawn(first, speedup));
        if std::env::var_os("TCX_BLESS").is_some() {
            std::fs::write(&path, &drawn).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            drawn,
            "`cargo xtask bench` writes both; after the figures of docs/performance.md were edited: TCX_BLESS=1 cargo test -p tcx-benches"
        );
    }

    #[test]
    fn there_is_no_picture_of_epochs_that_were_not_measured() {
        let mut figures = Figures::default();
        assert_eq!(picture(&figures), None);
        figures.add("e2e.first_epoch_overhead", 1.05);
        figures.add("e2e.second_epoch_speedup", 50.);
        let drawn = picture(&figures).unwrap();
        assert!(drawn.contains(">1.05<") && drawn.contains("0.020: 50 times faster"), "{drawn}");
    }
}
