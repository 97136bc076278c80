//! What a module's cache has done, in one line, when the cache is closed.

use std::fmt;
use std::io::IsTerminal;

use indicatif::HumanCount;
use tcx_store::{Stats, Store, url_scheme};

use crate::cache::progress::Shown;

/// Reports what a store has done in this process, if it was used.
pub(crate) fn report(store: &Store, shown: Shown) {
    let stats = store.stats();
    if stats.hits + stats.misses == 0 {
        return;
    }
    let module = store.path().file_name().unwrap_or_default().to_string_lossy();
    let place = match url_scheme(store.path()) {
        _ if store.is_in_memory() => "in memory",
        Some(_) => "in the store",
        None => "on disk",
    };
    let summary = Summary { module: &module, stats, place };
    tracing::info!(module = %module, "{summary}");
    if shown.has_lines() && std::io::stderr().is_terminal() {
        eprintln!("{summary}");
    }
}

struct Summary<'a> {
    module: &'a str,
    stats: Stats,
    /// Where the rows are.
    place: &'static str,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { hits, misses, miss_causes, rows_computed, rows, bytes, .. } = self.stats;
        let percent = 100. * hits as f64 / (hits + misses).max(1) as f64;
        write!(f, "{}: {}, {} computed, ", self.module, counted(hits, "hit"), HumanCount(rows_computed))?;
        // Never 100% as long as something was missing.
        write!(f, "{}% hits; {}, {} ", percent as u64, counted(rows, "row"), counted(bytes, "byte"))?;
        f.write_str(self.place)?;
        if misses > 0 {
            write!(f, "; missing were {miss_causes}")?;
        }
        match self.stats.rows_not_kept() {
            0 => {}
            not_kept => write!(f, "; {} not kept", counted(not_kept, "row"))?,
        }
        match self.stats.buffered_rows {
            0 => Ok(()),
            waiting => write!(f, "; {} not written", counted(waiting, "row")),
        }
    }
}

/// `1 row`, `2 rows`.
fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", HumanCount(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_one_line_with_misses_by_cause_and_rows_not_kept() {
        let mut stats = Stats::default();
        (stats.hits, stats.misses, stats.rows_computed) = (48_112, 1888, 1888);
        (stats.rows, stats.bytes) = (1888, 15_466_496);
        (stats.miss_causes.absent, stats.miss_causes.damaged) = (1880, 8);
        let said = Summary { module: "resnet50_v1", stats, place: "on disk" }.to_string();
        let numbers = "48,112 hits, 1,888 computed, 96% hits; 1,888 rows, 15,466,496 bytes on disk";
        assert_eq!(said, format!("resnet50_v1: {numbers}; missing were 1,880 absent, 8 damaged"));
        (stats.hits, stats.misses, stats.rows_computed, stats.rows_dropped) = (999_999, 3, 1, 14);
        stats.rows_superseded = 2;
        let said = Summary { module: "m", stats, place: "on disk" }.to_string();
        assert!(
            said.contains("999,999 hits, 1 computed, 99% hits") && said.ends_with("; 12 rows not kept"),
            "{said}"
        );
        (stats.hits, stats.misses, stats.rows, stats.bytes, stats.rows_dropped) = (1, 1, 1, 1, 3);
        (stats.miss_causes.absent, stats.miss_causes.damaged) = (1, 0);
        let said = Summary { module: "m", stats, place: "on disk" }.to_string();
        assert_eq!(
            said,
            "m: 1 hit, 1 computed, 50% hits; 1 row, 1 byte on disk; missing were 1 absent; 1 row not kept"
        );
        let said = Summary { module: "m", stats, place: "in memory" }.to_string();
        assert!(said.contains("1 row, 1 byte in memory;"), "{said}");
        (stats.rows_computed, stats.rows, stats.buffered_rows, stats.rows_dropped) = (2000, 512, 1488, 0);
        stats.is_writing_off = true;
        let said = Summary { module: "m", stats, place: "on disk" }.to_string();
        assert!(said.contains("; 512 rows, ") && said.ends_with("; 1,488 rows not written"), "{said}");
    }
}
