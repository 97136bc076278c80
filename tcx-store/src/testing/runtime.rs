//! The simulator's side of [`sys::runtime`](crate::sys::runtime), and a clock that a test sets ahead.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use super::simulation::schedule::{
    forks, is_simulated, random, sleep, spawn, spawn_lasting, wait_once, wait_while,
};

thread_local! {
    static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The calling thread lives so much later from now on.
#[cfg(test)]
pub(crate) fn go_ahead(ahead: Duration) {
    AHEAD.set(ahead);
}

/// The time of a simulation, or that of a test which has gone ahead.
pub(crate) fn wall() -> Option<SystemTime> {
    let is_ahead = !AHEAD.get().is_zero();
    super::simulation::schedule::wall().or_else(|| is_ahead.then(|| SystemTime::now() + AHEAD.get()))
}

/// As [`wall`], of the monotonic time.
pub(crate) fn now() -> Option<Instant> {
    let is_ahead = !AHEAD.get().is_zero();
    super::simulation::schedule::now().or_else(|| is_ahead.then(|| Instant::now() + AHEAD.get()))
}
