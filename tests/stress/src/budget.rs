//! The time and the amount of work of a trial.

use std::time::{Duration, Instant};

/// The budget of one trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    time: Duration,
    end: Instant,
    /// The share of the work of an hour.
    part: f64,
}

impl Budget {
    pub(crate) fn new(time: Duration, part: f64) -> Self {
        Self { time, end: Instant::now() + time, part: part.min(1.0) }
    }

    /// The part of `in_an_hour` for this run; at least 1.
    pub(crate) fn count(&self, in_an_hour: usize) -> usize {
        ((in_an_hour as f64 * self.part) as usize).max(1)
    }

    /// The time of the trial.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }
}
