//! Counters for people: a few lines, whatever they count.

use std::fmt;

use crate::stats::Stats;
use crate::stats::traffic::Traffic;

/// A number whose digits are grouped, such as `48,112`.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// Four lines, one more if rows were looked up, one more of an object store, and one more if something went wrong:
///
/// ```text
/// rows served: 48,112 (96%), missing: 1,888 (1,880 absent, 8 damaged)
/// rows computed: 1,888 in 12.3 s, kept: 1,880, not kept: 8
/// stored: 1,880 rows in 3 segments of 15,466,496 bytes
/// in this process: 1,880 rows written, 0 rows waiting to be written
/// batches found: p50 12.4µs, p99 20.1µs, p99.9 33.0µs; with misses: p50 31.0µs, p99 1.2ms, p99.9 3.4ms
/// object store: 12 writes, 9 listings, 160 reads; 20,512 bytes sent, 0 received; 1 file waits to be sent
/// trouble: 1 damaged segment, 2 failed reads
/// ```
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = (self.hits + self.misses).max(1);
        let percent = (100. * self.hits as f64 / asked as f64) as u64;
        write!(f, "rows served: {} ({percent}%), missing: {}", Grouped(self.hits), Grouped(self.misses))?;
        if self.misses > 0 {
            write!(f, " ({})", self.miss_causes)?;
        }
        let (computed, seconds) = (Grouped(self.rows_computed), self.compute_times.total.as_secs_f64());
        let (kept, dropped) = (Grouped(self.rows_accepted), Grouped(self.rows_not_kept()));
        write!(f, "\nrows computed: {computed} in {seconds:.1} s, kept: {kept}, not kept: {dropped}")?;
        let (rows, segments, bytes) = (Grouped(self.rows), Grouped(self.segments), Grouped(self.bytes));
        write!(f, "\nstored: {rows} rows in {segments} segments of {bytes} bytes")?;
        let (sealed, buffered) = (Grouped(self.rows_sealed), Grouped(self.buffered_rows));
        write!(f, "\nin this process: {sealed} rows written, {buffered} rows waiting to be written")?;
        let mut before = "\nbatches ";
        for (what, times) in [("found", &self.hit_times), ("with misses", &self.miss_times)] {
            if times.count() > 0 {
                write!(f, "{before}{what}: {times}")?;
                before = "; ";
            }
        }
        if self.traffic != Traffic::default() {
            write!(f, "\nobject store: {}", self.traffic)?;
        }
        let mut before = "\ntrouble: ";
        for (count, what) in self.trouble().into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{before}{} {what}", Grouped(count))?;
            before = ", ";
        }
        if self.is_writing_off {
            write!(f, "{before}writing is off")?;
            if self.buffered_rows > 0 {
                write!(f, ": {buffered} rows are not written")?;
            }
        }
        Ok(())
    }
}

/// One line, for people.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (writes, lists) = (Grouped(self.puts + self.deletes), Grouped(self.lists));
        let reads = Grouped(self.reads());
        write!(f, "{writes} writes, {lists} listings, {reads} reads; ")?;
        write!(f, "{} bytes sent, {} received", Grouped(self.bytes_sent), Grouped(self.bytes_received))?;
        match self.waiting_files {
            0 => Ok(()),
            1 => f.write_str("; 1 file waits to be sent"),
            files => write!(f, "; {} files wait to be sent", Grouped(files)),
        }
    }
}

impl Stats {
    /// Rows that were computed and will be computed again: [`rows_dropped`](Self::rows_dropped) without
    /// [`rows_superseded`](Self::rows_superseded).
    pub fn rows_not_kept(&self) -> u64 {
        self.rows_dropped.saturating_sub(self.rows_superseded)
    }

    /// What should be zero.
    fn trouble(&self) -> [(u64, &'static str); 6] {
        [
            (self.damaged_segments, "damaged segments"),
            (self.unknown_segments, "segments of another version of tcx"),
            (self.failed_reads, "failed reads"),
            (self.write_failures, "failures of writing"),
            (self.non_finite_rows, "rows with NaN or an infinity"),
            (self.repeated_ids, "ids given twice with different inputs"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stats::batch_times::BatchClock;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let shown = [0, 999, 1000, 1_234_567, u64::MAX].map(|number| Grouped(number).to_string());
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn stats_fit_a_screen_whatever_they_count() {
        let mut stats = Stats::default();
        assert_eq!(stats.to_string().lines().count(), 4, "{stats}");
        (stats.hits, stats.misses, stats.rows_computed, stats.rows_dropped) = (48_112, 1888, 1888, 8);
        (stats.miss_causes.absent, stats.miss_causes.damaged) = (1880, 8);
        let said = stats.to_string();
        assert!(
            said.starts_with("rows served: 48,112 (96%), missing: 1,888 (1,880 absent, 8 damaged)\n"),
            "{said}"
        );
        assert!(said.contains("\nrows computed: 1,888 in 0.0 s, kept: 0, not kept: 8\n"), "{said}");
        (stats.damaged_segments, stats.is_writing_off) = (u64::MAX, true);
        let said = stats.to_string();
        assert!(
            said.ends_with("\ntrouble: 18,446,744,073,709,551,615 damaged segments, writing is off"),
            "{said}"
        );
        stats.buffered_rows = 1488;
        assert!(stats.to_string().ends_with(", writing is off: 1,488 rows are not written"), "{stats}");
        assert!(said.lines().count() == 5 && said.lines().all(|line| line.len() < 100), "{said}");
        let mut lookups = BatchClock::default();
        (0..100).for_each(|_| lookups.add(Duration::from_micros(100)));
        stats.miss_times = std::mem::take(&mut lookups).times();
        let said = stats.to_string();
        assert!(
            said.contains("\nbatches with misses: p50 106.5µs, p99 114.5µs, p99.9 114.7µs\ntrouble"),
            "{said}"
        );
        stats.hit_times = stats.miss_times;
        let said = stats.to_string();
        assert!(said.contains("\nbatches found: p50 106.5µs, p99"), "{said}");
        assert!(said.lines().count() == 6 && said.lines().all(|line| line.len() < 115), "{said}");
        (stats.traffic.puts, stats.traffic.heads, stats.traffic.bytes_sent) = (12, 160, 20_512);
        let said = stats.to_string();
        let store = "\nobject store: 12 writes, 0 listings, 160 reads; 20,512 bytes sent, 0 received\n";
        assert!(said.contains(store) && said.lines().count() == 7, "{said}");
        stats.traffic.waiting_files = 2;
        assert!(stats.to_string().contains("0 received; 2 files wait to be sent\n"), "{stats}");
    }
}
