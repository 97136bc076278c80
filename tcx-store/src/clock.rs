//! The time, as the engine reads it to decide something. A simulated process has a time of its own.

use std::time::{Instant, SystemTime};

pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = crate::model::now() {
        return now;
    }
    Instant::now()
}

pub(crate) fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(wall) = crate::model::wall() {
        return wall;
    }
    #[cfg(test)]
    return SystemTime::now() + shift::get();
    #[cfg(not(test))]
    SystemTime::now()
}

/// A test goes into the future, its thread only.
#[cfg(test)]
pub(crate) mod shift {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static SHIFT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(super) fn get() -> Duration {
        SHIFT.get()
    }

    pub(crate) fn to(ahead: Duration) {
        SHIFT.set(ahead);
    }
}
