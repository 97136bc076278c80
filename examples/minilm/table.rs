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

/// The epochs beside each other.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) lines: Vec<Line>,
    /// Rows that the model computes in a second; unknown where nothing was ever computed.
    pub(crate) speed: Option<f64>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["epoch", "rows", "hits", "misses", "seconds", "rows/s", "times faster", "on disk"];
        let mut cells = vec![heads.map(str::to_owned)];
        cells.extend(self.lines.iter().map(|line| self.cells(line)));
        let widths: [usize; 8] =
            std::array::from_fn(|i| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
        let rule = widths.map(|width| "-".repeat(width)).join("  ");
        for (i, row) in cells.iter().enumerate() {
            let cell = |(i, cell): (usize, &String)| match i {
                0 => format!("{cell:width$}", width = widths[0]),
                _ => format!("{cell:>width$}", width = widths[i]),
            };
            writeln!(f, "{}", row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  "))?;
            if i == 0 {
                writeln!(f, "{rule}")?;
            }
        }
        Ok(())
    }
}

impl Table {
    fn cells(&self, line: &Line) -> [String; 8] {
        let Epoch { rows, hits, misses, seconds, .. } = line.epoch;
        let rows_per_second = rows as f64 / seconds;
        let faster = self.speed.map_or_else(|| "?".to_owned(), |speed| rounded(rows_per_second / speed));
        [
            line.name.to_owned(),
            grouped(rows),
            grouped(hits),
            grouped(misses),
            if seconds < 0.1 { format!("{seconds:.4}") } else { format!("{seconds:.1}") },
            grouped(rows_per_second as u64),
            faster,
            megabytes(line.bytes),
        ]
    }
}

pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_compared_with_the_model_s_speed() {
        let epoch = |hits, misses, seconds| Epoch { rows: 5000, hits, misses, seconds, digest: "a".into() };
        let lines = vec![
            Line { name: "cold", epoch: epoch(0, 5000, 50.), bytes: 8_000_000 },
            Line { name: "warm", epoch: epoch(5000, 0, 0.025), bytes: 8_000_000 },
        ];
        let table = Table { lines, speed: Some(100.) }.to_string();
        let expected = "\
epoch   rows   hits  misses  seconds   rows/s  times faster  on disk
-----  -----  -----  ------  -------  -------  ------------  -------
cold   5,000      0   5,000     50.0      100           1.0   8.0 MB
warm   5,000  5,000       0   0.0250  200,000         2,000   8.0 MB
";
        assert_eq!(table, expected);
    }
}
