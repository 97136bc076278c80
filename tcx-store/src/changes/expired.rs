//! Rows that were to take the place of others and have died by their age before they were written. No tombstone names them, and what has
//! made way for them is dead all the same, whenever it is inserted.

use std::collections::HashMap;

/// The place in their order of rows that take the place of others: how many batches of this process had been accepted, and recomputed, with
/// the last of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replacing {
    pub(crate) accepted: u64,
    pub(crate) recomputed: u64,
}

impl Replacing {
    pub(crate) fn last(self, other: Self) -> Self {
        let (accepted, recomputed) =
            (self.accepted.max(other.accepted), self.recomputed.max(other.recomputed));
        Self { accepted, recomputed }
    }
}

/// The keys and views of such rows.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    views: HashMap<u32, HashMap<Box<[u8]>, Replacing>>,
}

impl Expired {
    pub(crate) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    pub(crate) fn add(&mut self, key: &[u8], view: u32, row: Replacing) {
        let last = self.views.entry(view).or_default().entry(key.into()).or_default();
        *last = last.last(row);
    }

    /// The last such row of this key and view.
    pub(crate) fn find(&self, key: &[u8], view: u32) -> Option<Replacing> {
        self.views.get(&view)?.get(key).copied()
    }
}
