//! Times as files keep them: whole milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, as files keep times.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, whole_millis)
}

/// As [`millis`], with a part of a millisecond for a whole one.
pub(crate) fn millis_up(time: SystemTime) -> u64 {
    let millis = millis(time);
    millis.saturating_add(u64::from(self::time(millis) < time && UNIX_EPOCH < time))
}

/// A duration in milliseconds; one that is too long for the number is the longest that is not.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time `millis` milliseconds after 1970; one that no clock has is taken for 1970.
pub(crate) fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}
