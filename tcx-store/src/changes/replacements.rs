//! The tombstones that this process has written for recomputed rows, in their order, and the recomputed rows that have died by their age.
//!
//! A row that is recomputed while an earlier one of its key and view is sealed is the newer of the two: it was accepted later. The
//! tombstone of the earlier one must not kill it, however long ago it was looked up; an invalidation in between must.

use std::sync::{Arc, OnceLock};

use super::expired::Expired;
use super::known_tombstones::Tombstones;

/// A tombstone of this process for the rows that it has recomputed.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    pub(crate) number: u64,
    /// The tombstones before it.
    pub(crate) before: Tombstones,
    /// How many batches had been recomputed when the last of its rows was accepted; 0 if these took the place of rejected rows.
    /// One number for all rows that it names: a row for a rejected one that was looked up between two of their batches makes way for the
    /// earlier batch too. So the row of that batch that was rejected is found again, and has to be judged again. The other way round, the row
    /// for it would undo a replacement.
    pub(crate) recomputed: u64,
}

/// What comes after a place.
#[derive(Debug)]
enum Next {
    Replaced(Replacement),
    Expired(Expired),
}

/// A place among the replacements of a folder, as a lookup keeps it: those that come after the place are reached from it, and
/// freed once no lookup and no row is left before them.
#[derive(Debug, Default)]
pub(crate) struct ReplacementPlace {
    next: OnceLock<(Next, Arc<ReplacementPlace>)>,
}

impl ReplacementPlace {
    /// Adds a replacement behind this place, which is the last; returns the place behind it.
    pub(crate) fn add(&self, replacement: Replacement) -> Arc<Self> {
        self.push(Next::Replaced(replacement))
    }

    /// As [`add`](Self::add), of rows that have died by their age before they were written.
    pub(crate) fn add_expired(&self, expired: Expired) -> Arc<Self> {
        self.push(Next::Expired(expired))
    }

    fn push(&self, next: Next) -> Arc<Self> {
        let last = Arc::<Self>::default();
        // Replacements are added under the lock of the live set, which knows the last place.
        let added = self.next.set((next, last.clone()));
        debug_assert!(added.is_ok(), "a replacement was added behind a place that is not the last");
        last
    }

    /// The replacements after this place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Replacement> {
        self.after().filter_map(|next| match next {
            Next::Replaced(replacement) => Some(replacement),
            Next::Expired(_) => None,
        })
    }

    /// The rows that have died by their age after this place.
    pub(crate) fn expired(&self) -> impl Iterator<Item = &Expired> {
        self.after().filter_map(|next| match next {
            Next::Replaced(_) => None,
            Next::Expired(expired) => Some(expired),
        })
    }

    fn after(&self) -> impl Iterator<Item = &Next> {
        std::iter::successors(self.next.get(), |(_, place)| place.next.get()).map(|(next, _)| next)
    }
}

impl Drop for ReplacementPlace {
    /// One after the other: a lookup may be older than any number of seals, and each place frees the next.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some((_, place)) = next {
            next = Arc::into_inner(place).and_then(|mut place| place.next.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reaches_what_comes_after_it_and_frees_a_long_sequence() {
        let first = Arc::<ReplacementPlace>::default();
        let mut last = first.clone();
        for number in 1..=200_000 {
            last = last.add(Replacement { number, before: Tombstones::default(), recomputed: 0 });
        }
        assert!(first.iter().map(|replacement| replacement.number).eq(1..=200_000));
        assert_eq!(last.iter().count(), 0);
        drop(first);
        assert!(Arc::into_inner(last).is_some(), "what was before it is freed");
    }
}
