//! Counts the work of a store, and passes the counters to the recorder of metrics.

use std::time::Instant;

use crate::engine::Core;
use crate::read::causes::note_causes;
use crate::read::lookup::{Counts, Lookup};
use crate::schema::leaf::Leaf;
use crate::stats::causes::MissCauses;
use crate::stats::{Stats, TierCounts, Tiers, Work};

impl Core {
    /// Counts the hits and misses of a lookup that began at `start`.
    pub(crate) fn counted(&self, mut lookup: Lookup, start: Instant) -> Lookup {
        // First, so that counting is not counted.
        let times = if lookup.missing() == 0 { &self.counters.hit_times } else { &self.counters.miss_times };
        times.add(start.elapsed());
        note_causes(&mut lookup, &self.snapshot());
        lookup.count_uses();
        let hits = lookup.len() - lookup.missing();
        self.counters.hits.add(hits);
        self.counters.bytes_served.add(hits * self.row_bytes());
        let nothing = Counts { missing: [0; MissCauses::COUNT], buffered: 0 };
        self.count_changes(&nothing, &lookup.counts());
        #[cfg(feature = "metrics")]
        self.published.if_due(|| self.publish());
        lookup
    }

    /// Rows of a lookup that was counted as `before` were found since, or rejected.
    pub(crate) fn recounted(&self, before: &Counts, lookup: &Lookup) {
        let after = lookup.counts();
        self.count_changes(before, &after);
        let [before, after] = [before, &after].map(|counts| counts.missing.iter().sum::<usize>());
        let row = self.row_bytes();
        self.counters.hits.move_from(after, before);
        self.counters.bytes_served.move_from(after * row, before * row);
    }

    fn count_changes(&self, before: &Counts, after: &Counts) {
        for (counter, (before, after)) in
            self.counters.misses.iter().zip(before.missing.iter().zip(&after.missing))
        {
            counter.move_from(*before, *after);
        }
        self.counters.buffer_hits.move_from(before.buffered, after.buffered);
    }

    fn row_bytes(&self) -> usize {
        self.leaves.iter().filter_map(|leaf: &Leaf| leaf.kind.width()).sum()
    }

    /// Something was done since `start`.
    pub(crate) fn took(&self, work: Work, start: Instant) {
        let took = self.counters.clock(work).stop(start);
        let module = self.name();
        tracing::debug!(module, ?work, ms = took.as_secs_f64() * 1e3, "done");
        if matches!(work, Work::Flush) {
            let Stats { hits, misses, rows_accepted, rows_dropped, rows_sealed, .. } = self.stats();
            tracing::debug!(module, hits, misses, rows_accepted, rows_dropped, rows_sealed, "statistics");
        }
        #[cfg(feature = "metrics")]
        {
            crate::stats::metrics::record(module, work, took);
            self.publish();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (counters, snapshot) = (&self.counters, self.snapshot());
        let miss_causes = counters.miss_causes();
        let (hits, misses) = (counters.hits.get(), miss_causes.all());
        let waiting = self.buffer.waiting();
        let times = |work| counters.clock(work).times();
        Stats {
            hits,
            misses,
            miss_causes,
            tiers: self.tiers(hits, misses),
            bytes_served: counters.bytes_served.get(),
            rows_computed: counters.rows_computed.get(),
            rows_accepted: counters.rows_accepted.get(),
            bytes_accepted: counters.bytes_accepted.get(),
            rows_dropped: counters.rows_dropped.get(),
            rows_superseded: counters.rows_superseded.get(),
            buffered_rows: waiting.0 as u64,
            buffered_bytes: waiting.1 as u64,
            rows_sealed: counters.rows_sealed.get(),
            bytes_sealed: counters.bytes_sealed.get(),
            segments: snapshot.segments.len() as u64,
            rows: snapshot.segments.iter().map(|segment| segment.rows() as u64).sum(),
            bytes: snapshot.segments.iter().map(|segment| segment.bytes() as u64).sum(),
            damaged_segments: counters.damaged_segments.get(),
            unknown_segments: counters.unknown_segments.get(),
            failed_reads: counters.failed_reads.get(),
            failed_listings: counters.failed_listings.get(),
            memory_cache_bytes: self.memory_cache.bytes() as u64,
            memory_cache_limit: self.memory_cache.limit() as u64,
            memory_cache_shrinks: self.memory_cache.shrinks(),
            rebuilt_runs: counters.rebuilt_runs.get(),
            write_failures: counters.write_failures.get(),
            is_writing_off: self.buffer.write_failure().is_some(),
            traffic: self.storage.traffic(),
            hit_times: counters.hit_times.times(),
            miss_times: counters.miss_times.times(),
            compute_times: times(Work::Compute),
            flush_times: times(Work::Flush),
            seal_times: times(Work::Seal),
            merge_times: times(Work::Merge),
            compaction_times: times(Work::Compaction),
            collection_times: times(Work::Collection),
            non_finite_rows: 0,
            rows_rechecked: 0,
            repeated_ids: 0,
        }
    }

    /// Every row is looked for in the buffer, and what is not found there in the segments.
    fn tiers(&self, hits: u64, misses: u64) -> Tiers {
        let buffered = self.counters.buffer_hits.get();
        // Counted one after the other, by several threads.
        let stored = hits.saturating_sub(buffered);
        Tiers {
            buffer: TierCounts { hits: buffered, misses: stored + misses },
            segments: TierCounts { hits: stored, misses },
            memory_cache: self.memory_cache.counts(),
        }
    }

    #[cfg(feature = "metrics")]
    fn publish(&self) {
        crate::stats::metrics::publish(self.name(), &self.stats());
    }
}
