//! Which of several rows of one key and view is the newest.

use crate::buffer::fate::Fate;
use crate::changes::Replacing;
use crate::computed::RowBatch;

/// What decides which of several rows of a key and view is the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    replaces: bool,
    /// How many batches had been recomputed with it; 0 if it was not.
    recomputed: u64,
    /// It takes the place of a rejected row: how many batches had been recomputed when it was looked up.
    yields_after: Option<u64>,
    /// How many batches had been accepted with it, and when it was looked up.
    accepted: u64,
    looked_up: u64,
}

impl Age {
    pub(super) fn of(batch: &RowBatch, fate: &Fate) -> Self {
        let rejects = batch.recompute.as_ref().is_some_and(|recompute| recompute.rejects());
        let yields_after = rejects.then_some(batch.seen.recomputed);
        let (accepted, looked_up) = (fate.accepted, batch.seen.accepted);
        Self {
            replaces: batch.recompute.is_some(),
            recomputed: fate.recomputed,
            yields_after,
            accepted,
            looked_up,
        }
    }

    /// Whether it was looked up before that row was recomputed, which is newer then.
    fn yields_to(&self, recomputed: u64) -> bool {
        self.yields_after.is_some_and(|seen| seen < recomputed)
    }

    /// Whether it makes way for a row that takes the place of others and was accepted before it.
    pub(super) fn makes_way_for(&self, earlier: Replacing) -> bool {
        if self.replaces { self.yields_to(earlier.recomputed) } else { self.looked_up < earlier.accepted }
    }
}

/// Of these rows of one key and view, of which the one that was accepted last is the first, the newest, if its time is not over. If it
/// is, those that have made way for it do not come back, though they may be younger. What was looked up after it had been accepted has
/// not made way for it: its time was over by then.
pub(super) fn newest_in_time<T: Copy>(
    rows: &[T],
    age: impl Fn(T) -> Age,
    is_over: impl Fn(T) -> bool,
) -> Option<T> {
    let newest = newest(rows, &age)?;
    if !is_over(newest) {
        return Some(newest);
    }
    let Age { accepted, .. } = age(newest);
    let is_later = |own: Age| !own.replaces && own.looked_up >= accepted;
    rows.iter().copied().find(|row| is_later(age(*row))).filter(|row| !is_over(*row))
}

/// The newest of these rows, whether its time is over or not.
fn newest<T: Copy>(rows: &[T], age: impl Fn(T) -> Age) -> Option<T> {
    let recomputed = rows.iter().map(|row| age(*row).recomputed).max()?;
    let is_newest = |own: Age| own.replaces && !own.yields_to(recomputed);
    let newest = rows.iter().find(|row| is_newest(age(**row)));
    newest.or(rows.first()).copied()
}
