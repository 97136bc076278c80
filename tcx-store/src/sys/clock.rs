//! The time, as the engine reads it to decide something. A simulated process has a time of its own.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = crate::testing::simulation::now() {
        return now;
    }
    Instant::now()
}

pub(crate) fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(wall) = crate::testing::simulation::wall() {
        return wall;
    }
    #[cfg(test)]
    return SystemTime::now() + shift::get();
    #[cfg(not(test))]
    SystemTime::now()
}

/// Milliseconds since 1970, as files keep times.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, whole_millis)
}

/// A duration in milliseconds; one that is too long for the number is the longest that is not.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time so many milliseconds after 1970; one that no clock has is taken for 1970.
pub(crate) fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
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
