//! The sessions that processes have recorded for a module, and their totals.

use std::time::Duration;

use serde::Serialize;

use crate::text::human;

/// One process, from opening a module to closing it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Session {
    pub(crate) started_ms: u64,
    pub(crate) ended_ms: u64,
    /// If `false`, the process is still running, or was killed.
    pub(crate) closed: bool,
    pub(crate) process: u32,
    pub(crate) host: Option<String>,
    pub(crate) program: Option<String>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) computed: u64,
    /// The requests to the object store.
    pub(crate) puts_and_lists: u64,
    pub(crate) gets: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// Computed, but not stored.
    pub(crate) not_kept: u64,
    pub(crate) bytes_served: u64,
    pub(crate) bytes_written: u64,
    pub(crate) compute_ms: u64,
    pub(crate) flush_ms: u64,
    /// Lookups of batches that missed no row.
    pub(crate) found_batches: BatchTimes,
    /// Lookups of batches that missed a row, without computing it.
    pub(crate) missed_batches: BatchTimes,
}

/// How long lookups took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct BatchTimes {
    pub(crate) count: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
}

impl BatchTimes {
    fn new(times: &tcx_store::BatchTimes) -> Self {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        Self {
            count: times.count(),
            p50_us: us(times.p50()),
            p99_us: us(times.p99()),
            p999_us: us(times.p999()),
        }
    }
}

/// The totals of all recorded sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) sessions: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) computed: u64,
    pub(crate) puts_and_lists: u64,
    pub(crate) gets: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
}

impl Session {
    pub(crate) fn new(own: &tcx_store::Session) -> Self {
        let told = |name| own.provenance(name).map(str::to_owned);
        let ms = |time: Duration| time.as_millis() as u64;
        let (stats, traffic) = (&own.stats, &own.stats.traffic);
        Self {
            started_ms: human::millis(own.started),
            ended_ms: human::millis(own.ended),
            closed: own.is_closed,
            process: own.process,
            host: told("host"),
            program: told("program"),
            hits: stats.hits,
            misses: stats.misses,
            computed: stats.rows_computed,
            puts_and_lists: traffic.puts.saturating_add(traffic.lists),
            gets: traffic.gets.saturating_add(traffic.heads),
            bytes_sent: traffic.bytes_sent,
            bytes_received: traffic.bytes_received,
            not_kept: stats.rows_not_kept(),
            bytes_served: stats.bytes_served,
            bytes_written: stats.bytes_sealed,
            compute_ms: ms(stats.compute_times.total),
            flush_ms: ms(stats.flush_times.total),
            found_batches: BatchTimes::new(&stats.hit_times),
            missed_batches: BatchTimes::new(&stats.miss_times),
        }
    }

    pub(crate) fn asked(&self) -> u64 {
        self.hits.saturating_add(self.misses)
    }
}

/// The hit rate in percent, rounded down: 100 % only if nothing was missing.
pub(crate) fn rate(hits: u64, misses: u64) -> String {
    let percent = 100.0 * hits as f64 / hits.saturating_add(misses).max(1) as f64;
    format!("{:.1} %", (percent * 10.0).floor() / 10.0)
}

impl Totals {
    pub(crate) fn of(sessions: &[Session]) -> Self {
        let sum = |of: fn(&Session) -> u64| sessions.iter().map(of).fold(0, u64::saturating_add);
        Self {
            sessions: sessions.len() as u64,
            hits: sum(|own| own.hits),
            misses: sum(|own| own.misses),
            computed: sum(|own| own.computed),
            puts_and_lists: sum(|own| own.puts_and_lists),
            gets: sum(|own| own.gets),
            bytes_sent: sum(|own| own.bytes_sent),
            bytes_received: sum(|own| own.bytes_received),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_forged_records_do_not_overflow() {
        let session = Session { hits: u64::MAX, misses: 7, ..Session::default() };
        let totals = Totals::of(&[session.clone(), session.clone()]);
        assert_eq!(totals, Totals { sessions: 2, hits: u64::MAX, misses: 14, ..Totals::default() });
        assert_eq!(session.asked(), u64::MAX);
    }

    #[test]
    fn a_rate_is_full_only_if_nothing_was_missing() {
        assert_eq!(rate(3, 1), "75.0 %");
        assert_eq!(rate(99_999, 1), "99.9 %");
        assert_eq!((rate(5, 0), rate(0, 0)), ("100.0 %".to_owned(), "0.0 %".to_owned()));
    }
}
