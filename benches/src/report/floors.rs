//! The floors of the figures: a figure that is worse has a defect. They are far below what is measured, because other programs of
//! a shared machine slow the measurement down, and hold for fewer rows, too. They are ratios or bytes, and no times.

use std::fmt::Write as _;

use super::Figures;
use super::reach::Reach::{self, AtLeast, AtMost};

/// Figures, the worst that is accepted, and what they show.
const FLOORS: [(&str, Reach, &str); 36] = [
    ("w1.fill.vs_raw_write_fsync", AtLeast(0.15), "filling, of a file that is written in order"),
    ("w1.random_read.vs_raw_gather", AtLeast(0.5), "wide rows, of a loop that copies them"),
    ("w1.random_read.two_threads.vs_raw_gather", AtLeast(0.6), "the same by two threads"),
    ("w1.random_read.vs_lmdb", AtLeast(1.1), "the same, of LMDB"),
    ("w1.cold_read.fetch.vs_64_preads", AtLeast(0.5), "cold wide rows, of 64 threads with `pread`"),
    ("w1.warm_batch.beside_fill.p999_vs_p50", AtMost(30.), "even times while another thread fills"),
    ("w1.warm_batch.beside_idle_fill.p999_vs_p50", AtMost(10.), "the same where background threads are idle"),
    ("w2.random_read.vs_raw_gather", AtLeast(0.25), "narrow rows, of a loop that copies them"),
    ("w2.random_read.vs_memmap_hash_map", AtLeast(1.5), "the same, of a hash map and that loop"),
    ("w2.random_read.vs_lmdb", AtLeast(4.), "the same, of LMDB"),
    ("w1.random_read.ndarray.vs_tch", AtLeast(0.8), "wide rows as arrays, of tensors of tch"),
    ("w1.random_read.candle.vs_tch", AtLeast(0.8), "the same as tensors of candle"),
    ("w2.random_read.ndarray.vs_tch", AtLeast(0.8), "narrow rows as arrays, of tensors of tch"),
    ("w2.random_read.candle.vs_tch", AtLeast(0.8), "the same as tensors of candle"),
    ("concurrency.two_vs_one", AtLeast(1.3), "two batches at once, of one (two cores)"),
    ("w2.cold_read.fetch.vs_64_preads", AtLeast(0.5), "cold narrow rows, of the same"),
    (
        "w3.cold_read.fetch.bytes_vs_pages",
        AtMost(1.25),
        "little is read beside cold rows that differ in size",
    ),
    ("w4.cold_read.fetch.bytes_vs_pages", AtMost(1.15), "or beside cold rows of 300 KiB"),
    ("w4.cold_read.fetch.vs_64_preads", AtLeast(0.4), "cold rows of 300 KiB, of 64 threads with `pread`"),
    ("w3.random_read.vs_raw_gather", AtLeast(0.5), "rows that differ in size, of a loop"),
    ("w2.allocations_per_batch.1024_rows", AtMost(40.), "known shapes are allocated once"),
    ("w2.allocations_per_batch.1024_vs_64_rows", AtMost(1.2), "allocations do not grow with rows"),
    ("w2.open.rss_mib", AtMost(4.), "memory of an open cache"),
    ("w1.lz4.random_read.vs_uncompressed", AtLeast(0.2), "rows that are decompressed, of plain ones"),
    ("w1.lz4.random_read.hot.vs_uncompressed", AtLeast(0.3), "decompressed rows in memory, of plain ones"),
    ("w1.zstd.random_read.vs_uncompressed", AtLeast(0.05), "the same as the first, with Zstandard"),
    ("e2e.first_epoch_overhead", AtMost(1.4), "the epoch that fills, of one without a cache"),
    ("e2e.second_epoch_speedup", AtLeast(10.), "a cached epoch: 3 to 10 times faster is promised"),
    ("e2e.512_outputs.second_epoch_speedup", AtLeast(10.), "the same with narrow outputs"),
    ("cli.verify.vs_cat", AtLeast(0.4), "`tcx verify`, of `cat`"),
    ("engine.index.bytes_per_key", AtMost(20.), "the index on disk"),
    ("engine.heap.bytes_per_key", AtMost(1.), "memory stays constant as rows are added"),
    ("engine.flush.ratio", AtMost(2.), "a flush into a large cache, of one into a small cache"),
    ("engine.flush.with_merges.ratio", AtMost(4.), "the same with the merges that it causes"),
    ("engine.readers.copies", AtMost(1.5), "64 processes have one copy of the rows"),
    ("engine.readers.anonymous_mib", AtMost(8.), "private memory of each of them"),
];

/// The table of all floors, and the figures that are worse or missing.
pub(crate) struct Check {
    pub(crate) table: String,
    pub(crate) failed: Vec<&'static str>,
}

/// Compares figures with their floors.
pub(crate) fn check(figures: &Figures) -> Check {
    compared(figures, &FLOORS)
}

fn compared(figures: &Figures, floors: &[(&'static str, Reach, &str)]) -> Check {
    let mut table = "| figure | floor | found | | |\n|---|---:|---:|---|---|\n".to_owned();
    let mut failed = Vec::new();
    for (figure, floor, shows) in floors {
        let (found, verdict) = match figures.value(figure) {
            Some(value) if floor.is_met(value) => (value.to_string(), ""),
            Some(value) => (value.to_string(), "worse"),
            None => (String::new(), "missing"),
        };
        if !verdict.is_empty() {
            failed.push(*figure);
        }
        // Writing into a string cannot fail.
        let _ = writeln!(table, "| `{figure}` | {floor} | {found} | {verdict} | {shows} |");
    }
    Check { table, failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: [(&str, Reach, &str); 2] = [("speed", AtLeast(2.), "quick"), ("memory", AtMost(8.), "small")];

    fn failed(values: &[(&str, f64)]) -> Vec<&'static str> {
        let mut figures = Figures::default();
        for (name, value) in values {
            figures.add(*name, *value);
        }
        compared(&figures, &SOME).failed
    }

    #[test]
    fn a_figure_that_is_worse_than_its_floor_fails() {
        assert_eq!(failed(&[("speed", 2.), ("memory", 8.)]), [""; 0]);
        assert_eq!(failed(&[("speed", 1.99), ("memory", 7.)]), ["speed"]);
        assert_eq!(failed(&[("speed", 3.), ("memory", 8.01)]), ["memory"]);
        assert_eq!(failed(&[("speed", 0.), ("memory", 9.)]), ["speed", "memory"]);
    }

    #[test]
    fn a_figure_that_is_missing_or_no_number_fails() {
        assert_eq!(failed(&[("speed", 3.)]), ["memory"]);
        assert_eq!(failed(&[("speed", f64::NAN), ("memory", f64::NAN)]), ["speed", "memory"]);
        assert_eq!(check(&Figures::default()).failed.len(), FLOORS.len());
    }

    #[test]
    fn the_table_has_each_figure_with_its_floor_and_what_was_found() {
        let mut figures = Figures::default();
        figures.add("speed", 1.5);
        let table = compared(&figures, &SOME).table;
        assert!(table.contains("| `speed` | ≥ 2 | 1.5 | worse | quick |"), "{table}");
        assert!(table.contains("| `memory` | ≤ 8 |  | missing | small |"), "{table}");
    }
}
