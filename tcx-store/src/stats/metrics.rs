//! Passes the counters of a store to the recorder that the program has installed for the crate `metrics`.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use metrics::{counter, gauge, histogram};

use crate::stats::{Stats, Work};

/// How often readers publish their counters.
const EVERY: Duration = Duration::from_secs(1);

/// When everything was published last.
#[derive(Debug)]
pub(crate) struct Published(Mutex<Instant>);

impl Default for Published {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Published {
    /// Publishes if it is time to; another thread may be doing so.
    pub(crate) fn if_due(&self, publish: impl FnOnce()) {
        let Ok(mut last) = self.0.try_lock() else { return };
        if last.elapsed() >= EVERY {
            publish();
            *last = Instant::now();
        }
    }
}

/// How long something took.
pub(crate) fn record(module: &str, work: Work, took: Duration) {
    let name = match work {
        Work::Compute => "tcx_compute_seconds",
        Work::Flush => "tcx_flush_seconds",
        Work::Seal => "tcx_seal_seconds",
        Work::Merge => "tcx_merge_seconds",
        Work::Compaction => "tcx_compaction_seconds",
        Work::Collection => "tcx_collection_seconds",
    };
    histogram!(name, "module" => module.to_owned()).record(took.as_secs_f64());
}

/// Everything that is counted, and what is so at this moment.
pub(crate) fn publish(module: &str, stats: &Stats) {
    let counts = [
        ("tcx_hits_total", stats.hits),
        ("tcx_served_bytes_total", stats.bytes_served),
        ("tcx_computed_rows_total", stats.rows_computed),
        ("tcx_accepted_rows_total", stats.rows_accepted),
        ("tcx_accepted_bytes_total", stats.bytes_accepted),
        ("tcx_dropped_rows_total", stats.rows_dropped),
        ("tcx_superseded_rows_total", stats.rows_superseded),
        ("tcx_sealed_rows_total", stats.rows_sealed),
        ("tcx_sealed_bytes_total", stats.bytes_sealed),
        ("tcx_damaged_segments_total", stats.damaged_segments),
        ("tcx_failed_listings_total", stats.failed_listings),
        ("tcx_rebuilt_runs_total", stats.rebuilt_runs),
        ("tcx_write_failures_total", stats.write_failures),
    ];
    for (name, count) in counts {
        counter!(name, "module" => module.to_owned()).absolute(count);
    }
    for (cause, count) in stats.miss_causes.named() {
        counter!("tcx_misses_total", "module" => module.to_owned(), "cause" => cause).absolute(count);
    }
    let tiers = [
        ("buffer", stats.tiers.buffer),
        ("segments", stats.tiers.segments),
        ("memory_cache", stats.tiers.memory_cache),
    ];
    for (tier, counts) in tiers {
        let counts = [("tcx_tier_hits_total", counts.hits), ("tcx_tier_misses_total", counts.misses)];
        for (name, count) in counts {
            counter!(name, "module" => module.to_owned(), "tier" => tier).absolute(count);
        }
    }
    for (found, times) in [("all", &stats.hit_times), ("some", &stats.miss_times)] {
        for (quantile, time) in [("0.5", times.p50()), ("0.99", times.p99()), ("0.999", times.p999())] {
            gauge!("tcx_lookup_seconds", "module" => module.to_owned(), "found" => found, "quantile" => quantile)
                .set(time.as_secs_f64());
        }
    }
    let levels = [
        ("tcx_buffered_rows", stats.buffered_rows),
        ("tcx_buffered_bytes", stats.buffered_bytes),
        ("tcx_segments", stats.segments),
        ("tcx_rows", stats.rows),
        ("tcx_bytes", stats.bytes),
        ("tcx_writing_off", u64::from(stats.is_writing_off)),
    ];
    for (name, level) in levels {
        gauge!(name, "module" => module.to_owned()).set(level as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    use super::*;

    /// Keeps counters and gauges by their names and labels.
    #[derive(Default)]
    struct Kept(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

    impl Kept {
        fn number(&self, key: &Key) -> Arc<AtomicU64> {
            let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
            let name = [key.name().to_owned()].into_iter().chain(labels).collect::<Vec<_>>().join(" ");
            self.0.lock().unwrap().entry(name).or_default().clone()
        }

        fn get(&self, name: &str) -> u64 {
            self.0.lock().unwrap()[name].load(SeqCst)
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.number(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.number(key))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn a_recorder_is_told_what_was_counted() {
        let (kept, dir) = (Kept::default(), tempfile::tempdir().unwrap());
        metrics::with_local_recorder(&kept, || {
            let store = crate::testing::process(dir.path());
            crate::testing::compute(&store, &["a", "b"], 7);
            store.lookup(crate::testing::keys(&["a"])).unwrap();
            store.flush().unwrap();
        });
        assert_eq!(kept.get("tcx_hits_total module=m_v1"), 1);
        assert_eq!(kept.get("tcx_misses_total module=m_v1 cause=absent"), 2);
        assert_eq!(kept.get("tcx_misses_total module=m_v1 cause=damaged"), 0);
        assert_eq!(kept.get("tcx_sealed_rows_total module=m_v1"), 2);
        assert_eq!(kept.get("tcx_rows module=m_v1"), 2.0_f64.to_bits());
        assert_eq!(kept.get("tcx_writing_off module=m_v1"), 0.0_f64.to_bits());
    }
}
