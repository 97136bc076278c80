//! Counting what is done, and telling it.

use std::time::Instant;

use crate::causes::{MissCauses, note_causes};
use crate::core::Core;
use crate::lookup::Lookup;
use crate::schema::Leaf;
use crate::stats::{Stats, Work};
use crate::store::Store;

impl Core {
    /// Counts the hits and misses of a lookup.
    pub(crate) fn counted(&self, mut lookup: Lookup) -> Lookup {
        note_causes(&mut lookup, &self.snapshot());
        self.count_hits(lookup.len() - lookup.missing());
        for (counter, missing) in self.counters.misses.iter().zip(lookup.causes()) {
            counter.add(missing);
        }
        #[cfg(feature = "metrics")]
        self.published.if_due(|| self.publish());
        lookup
    }

    /// Some of the misses `before` turned out to be hits.
    pub(crate) fn count_found(&self, before: &[usize; MissCauses::COUNT], lookup: &Lookup) {
        let after = lookup.causes();
        for (counter, (before, after)) in self.counters.misses.iter().zip(before.iter().zip(&after)) {
            counter.take_back(before - after);
        }
        self.count_hits(before.iter().sum::<usize>() - lookup.missing());
    }

    fn count_hits(&self, hits: usize) {
        self.counters.hits.add(hits);
        let row: usize = self.leaves.iter().filter_map(|leaf: &Leaf| leaf.kind.width()).sum();
        self.counters.bytes_served.add(hits * row);
    }

    /// Something was done since `start`.
    pub(crate) fn took(&self, work: Work, start: Instant) {
        let took = self.counters.clock(work).stop(start);
        let module = &*self.spec.module_id;
        tracing::debug!(module, ?work, ms = took.as_secs_f64() * 1e3, "done");
        if matches!(work, Work::Flush) {
            let Stats { hits, misses, rows_accepted, rows_dropped, rows_sealed, .. } = self.stats();
            tracing::debug!(module, hits, misses, rows_accepted, rows_dropped, rows_sealed, "statistics");
        }
        #[cfg(feature = "metrics")]
        {
            crate::metrics::record(module, work, took);
            self.publish();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (counters, snapshot) = (&self.counters, self.snapshot());
        let miss_causes = counters.miss_causes();
        let waiting = self.buffer.waiting();
        let times = |work| counters.clock(work).times();
        Stats {
            hits: counters.hits.get(),
            misses: miss_causes.all(),
            miss_causes,
            bytes_served: counters.bytes_served.get(),
            rows_computed: counters.rows_computed.get(),
            rows_accepted: counters.rows_accepted.get(),
            bytes_accepted: counters.bytes_accepted.get(),
            rows_dropped: counters.rows_dropped.get(),
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
            hot_bytes: self.hot.bytes() as u64,
            rebuilt_runs: counters.rebuilt_runs.get(),
            troubles: counters.troubles.get(),
            is_writing_off: self.buffer.trouble().is_some(),
            compute_times: times(Work::Compute),
            flush_times: times(Work::Flush),
            seal_times: times(Work::Seal),
            merge_times: times(Work::Merge),
            compaction_times: times(Work::Compaction),
            collection_times: times(Work::Collection),
            non_finite_rows: 0,
            rows_rechecked: 0,
        }
    }

    #[cfg(feature = "metrics")]
    fn publish(&self) {
        crate::metrics::publish(&self.spec.module_id, &self.stats());
    }
}

impl Store {
    /// Counts rows that were missing and that the caller has computed since `start`, whether they are kept or not: the store knows
    /// what it is given, and not what that took.
    ///
    /// ```
    /// # use std::time::Instant;
    /// # use tcx_store::{ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let start = Instant::now();
    /// store.computed(2, start);
    /// let stats = store.stats();
    /// assert_eq!((stats.rows_computed, stats.compute_times.count), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn computed(&self, rows: usize, start: Instant) {
        self.core.counters.rows_computed.add(rows);
        self.core.took(Work::Compute, start);
    }
}
