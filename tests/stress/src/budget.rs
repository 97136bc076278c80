//! How long a trial may take, and how much of it is to be done.

use std::time::{Duration, Instant};

/// The share of one trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    time: Duration,
    end: Instant,
    /// Of what is done in an hour.
    part: f64,
}

impl Budget {
    pub(crate) fn new(time: Duration, part: f64) -> Self {
        Self { time, end: Instant::now() + time, part: part.min(1.0) }
    }

    /// Of so many in an hour.
    pub(crate) fn count(&self, in_an_hour: usize) -> usize {
        ((in_an_hour as f64 * self.part) as usize).max(1)
    }

    /// All of it.
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
