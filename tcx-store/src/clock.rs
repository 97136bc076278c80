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
    SystemTime::now()
}
