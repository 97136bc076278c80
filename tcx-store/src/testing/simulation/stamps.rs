//! The stamps of samples: what their sources have now, and what a process asks for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::operation::KEYS;
use super::process::Process;

/// The stamp of each key.
#[derive(Debug, Default)]
pub(super) struct Stamps([AtomicU64; KEYS.len()]);

impl Stamps {
    /// The source of a sample changes. It may become as it was.
    pub(super) fn change(&self, key: &str) {
        if let Some(stamp) = self.of(key) {
            stamp.store((stamp.load(Ordering::Relaxed) + 1) % STAMPS, Ordering::Relaxed);
        }
    }

    fn of(&self, key: &str) -> Option<&AtomicU64> {
        KEYS.iter().position(|own| *own == key).map(|at| &self.0[at])
    }
}

/// How many stamps a source can have.
const STAMPS: u64 = 3;

impl Process {
    /// The stamps of these keys, if rows have stamps: as they are, or as they were before the last change.
    pub(super) fn stamps(&self, keys: &[&'static str], are_old: bool) -> Option<BTreeMap<&'static str, u64>> {
        let stamp = |key: &str| self.world.stamps.of(key).map_or(0, |stamp| stamp.load(Ordering::Relaxed));
        let back = if are_old { STAMPS - 1 } else { 0 };
        let stamps = keys.iter().map(|&key| (key, (stamp(key) + back) % STAMPS));
        self.has_stamps().then(|| stamps.collect())
    }
}
