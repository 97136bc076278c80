//! What is found out about all rows of a segment: whether their keys are sound, and how many are dead.

use std::sync::PoisonError;

use super::{Reader, Segment};
use crate::changes::Tombstones;

impl Segment {
    /// Whether every key is as it was written; `None` if the file could not be read.
    pub(crate) fn has_sound_keys(&self) -> Option<bool> {
        if let Some(known) = self.sound_keys.get() {
            return Some(*known);
        }
        let sound = self.judge(|| (0..self.rows).all(|row| self.key(row).is_some()))?;
        Some(*self.sound_keys.get_or_init(|| sound))
    }

    /// How often the file could not be read. If a part is not available and this has not grown, it is damaged.
    pub(crate) fn failures(&self) -> usize {
        self.reader.as_ref().map_or(0, Reader::failures)
    }

    /// What is found; `None` if it is nothing good and the file could not be read.
    pub(super) fn judge(&self, is_good: impl FnOnce() -> bool) -> Option<bool> {
        let before = self.failures();
        let good = is_good();
        (good || self.failures() == before).then_some(good)
    }

    /// How many rows are dead. Counted once for each state of the tombstones.
    pub(crate) fn dead_rows(&self, tombstones: &Tombstones) -> usize {
        if tombstones.kill_segment(self.dated()) {
            return self.rows;
        }
        if !tombstones.may_kill(self.base) {
            return 0;
        }
        let counted = || self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, dead) = *counted();
        // Not by the newest number: tombstones with the same one may kill other rows.
        if state == tombstones.state() {
            return dead;
        }
        // Without the lock: to read the keys may take long.
        let keys = (0..self.rows).filter_map(|row| self.key(row));
        let dead = keys.filter(|(key, view)| tombstones.kill(self.base, key, *view)).count();
        *counted() = (tombstones.state(), dead);
        dead
    }

    /// Whether every row is known to be dead, without a request for what is not in memory: the file may be gone.
    pub(crate) fn is_known_dead(&self, tombstones: &Tombstones) -> bool {
        tombstones.kill_segment(self.dated())
            || self.reader.is_none() && self.dead_rows(tombstones) == self.rows
    }
}
