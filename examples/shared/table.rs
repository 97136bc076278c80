//! The table of epochs.

use std::fmt;

use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;
use indicatif::HumanCount;

use crate::epoch::Epoch;

/// One line: an epoch and the bytes of the cache on disk after it.
#[derive(Debug)]
pub struct Line {
    /// The name of the epoch.
    pub name: &'static str,
    /// Its figures.
    pub epoch: Epoch,
    /// Bytes of the cache on disk.
    pub bytes: u64,
}

/// The name of the first epoch.
pub fn first_name(epoch: &Epoch) -> &'static str {
    match (epoch.hits, epoch.misses) {
        (0, _) => "cold",
        (_, 0) => "first",
        _ => "cold, resumed",
    }
}

/// The epochs beside each other.
#[derive(Debug)]
pub struct Table {
    /// The name of the samples.
    pub what: &'static str,
    /// One line for each epoch.
    pub lines: Vec<Line>,
    /// Rows that the loader and the network compute in a second; `None` if nothing was ever computed.
    pub speed: Option<f64>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, .. } = self;
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        let per_second = format!("{what}/s");
        let heads = ["epoch", what, "hits", "misses", "seconds", &per_second, "times faster", "on disk"];
        table.set_header(heads);
        for line in &self.lines {
            table.add_row(self.cells(line));
        }
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            column.set_cell_alignment(if number == 0 { CellAlignment::Left } else { CellAlignment::Right });
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}

impl Table {
    fn cells(&self, line: &Line) -> [String; 8] {
        let Epoch { rows, hits, misses, seconds, .. } = line.epoch;
        let per_second = rows as f64 / seconds;
        let faster = self.speed.map_or_else(|| "?".to_owned(), |speed| rounded(per_second / speed));
        let count = |number: u64| HumanCount(number).to_string();
        [
            line.name.to_owned(),
            count(rows),
            count(hits),
            count(misses),
            if seconds < 0.1 { format!("{seconds:.4}") } else { format!("{seconds:.1}") },
            rounded(per_second),
            faster,
            format!("{:.1} MB", line.bytes as f64 / 1e6),
        ]
    }
}

/// A small number has one decimal.
fn rounded(times: f64) -> String {
    if times < 9.95 { format!("{times:.1}") } else { HumanCount(times.round() as u64).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, hits: u64, misses: u64, seconds: f64) -> Line {
        let epoch = Epoch { rows: hits + misses, hits, misses, seconds, digest: "a".into() };
        Line { name, epoch, bytes: 8_000_000 }
    }

    #[test]
    fn columns_are_aligned_and_compared_with_computing() {
        let lines = vec![line("cold", 0, 5000, 50.), line("warm", 5000, 0, 0.025)];
        let table = Table { what: "texts", lines, speed: Some(100.) }.to_string();
        let expected = "\
epoch  texts   hits  misses  seconds  texts/s  times faster  on disk
cold   5,000      0   5,000     50.0      100           1.0   8.0 MB
warm   5,000  5,000       0   0.0250  200,000         2,000   8.0 MB
";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_first_epoch_is_named_after_what_it_did() {
        let name = |hits, misses| first_name(&line("", hits, misses, 1.).epoch);
        assert_eq!([name(0, 5), name(5, 0), name(4, 1)], ["cold", "first", "cold, resumed"]);
    }

    #[test]
    fn small_numbers_have_a_decimal() {
        assert_eq!([1., 9.94, 9.96, 1234.5].map(rounded), ["1.0", "9.9", "10", "1,235"]);
    }
}
