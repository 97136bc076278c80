//! The table of epochs.

use std::fmt;

use tcx_examples::{grouped, rounded};

use crate::epoch::Epoch;

/// One line: an epoch and what the cache took on disk after it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) epoch: Epoch,
    pub(crate) bytes: u64,
}

/// What to call the first epoch.
pub(crate) fn first_name(epoch: &Epoch) -> &'static str {
    match (epoch.hits, epoch.misses) {
        (0, _) => "cold",
        (_, 0) => "first",
        _ => "cold, resumed",
    }
}

/// The epochs beside each other.
#[derive(Debug)]
pub(crate) struct Table {
    lines: Vec<Line>,
    /// How many images are decoded and computed in a second; unknown where all were found.
    speed: Option<f64>,
}

impl Table {
    pub(crate) fn new(lines: Vec<Line>) -> Self {
        let first = lines.first().map(|line| &line.epoch).filter(|epoch| epoch.misses > 0);
        let speed = first.map(|epoch| epoch.misses as f64 / epoch.seconds);
        Self { lines, speed }
    }

    fn cells(&self, line: &Line) -> [String; 7] {
        let Epoch { images, hits, misses, seconds, .. } = line.epoch;
        let faster = self.speed.map(|speed| images as f64 / seconds / speed);
        [
            line.name.to_owned(),
            grouped(images),
            grouped(hits),
            grouped(misses),
            if seconds < 0.1 { format!("{seconds:.4}") } else { format!("{seconds:.1}") },
            faster.map_or_else(|| "?".to_owned(), rounded),
            grouped(line.bytes),
        ]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["epoch", "images", "hits", "misses", "seconds", "times faster", "bytes on disk"];
        let mut cells = vec![heads.map(str::to_owned)];
        cells.extend(self.lines.iter().map(|line| self.cells(line)));
        let widths: [usize; 7] =
            std::array::from_fn(|i| cells.iter().map(|row| row[i].len()).max().unwrap_or(0));
        cells.insert(1, widths.map(|width| "-".repeat(width)));
        for row in cells {
            write!(f, "{:width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, hits: u64, misses: u64, seconds: f64) -> Line {
        let epoch = Epoch { images: hits + misses, hits, misses, seconds, digest: "a".into() };
        Line { name, epoch, bytes: 8_000_000 }
    }

    #[test]
    fn columns_are_aligned_and_compared_with_computing() {
        let table = Table::new(vec![line("cold", 0, 5000, 50.), line("warm", 5000, 0, 0.025)]);
        let expected = "\
epoch  images   hits  misses  seconds  times faster  bytes on disk
-----  ------  -----  ------  -------  ------------  -------------
cold    5,000      0   5,000     50.0           1.0      8,000,000
warm    5,000  5,000       0   0.0250         2,000      8,000,000
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_resumed_epoch_is_measured_by_what_it_computed() {
        let lines = vec![line("", 90, 10, 1.), line("", 100, 0, 0.1)];
        let table = Table::new(lines);
        assert_eq!((&*table.cells(&table.lines[0])[5], &*table.cells(&table.lines[1])[5]), ("10", "100"));
        assert_eq!(first_name(&table.lines[0].epoch), "cold, resumed");
        let found = Table::new(vec![line("", 100, 0, 0.1)]);
        assert_eq!(found.cells(&found.lines[0])[5], "?");
        assert_eq!(first_name(&found.lines[0].epoch), "first");
    }
}
