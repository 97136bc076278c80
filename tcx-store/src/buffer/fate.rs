//! What becomes of buffered rows between their lookup and their seal: newer tombstones kill some of them.

use std::sync::Arc;

use crate::changes::{Attempt, Doomed, Replacement, Replacing, Seen, Tombstones};
use crate::computed::RowBatch;
use crate::computed::recompute::RecomputeSession;
use crate::error::Error;
use crate::schema::key::Keys;

/// What has become of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    /// The newest change that the rows which are left have been compared with.
    pub(crate) number: u64,
    /// What kills none of them.
    seen: Seen,
    /// For each row whether it is sealed already: the tombstone by which a recompute session's rows replace others has committed it, in a
    /// segment; empty if none is.
    sealed: Vec<bool>,
    /// How many batches had been accepted with this one.
    pub(crate) accepted: u64,
    /// How many batches had been recomputed with this one; 0 if it was not, or only takes the place of rejected rows.
    pub(crate) recomputed: u64,
    /// For each row whether it is dead, for another reason than its age; empty if none is.
    dead: Vec<bool>,
    /// Whether all rows are dead by their age. What has made way for them may be younger, and is older all the same.
    is_over: bool,
    /// Whether rows that are accepted later find out that these are dead by their age.
    is_known: bool,
    /// The rows of values that were put which changes of other processes have killed, not reported yet.
    lost: Vec<usize>,
    /// Tombstones of this process for recomputed rows that may be older or newer than these: a value that was put is lost if one
    /// of them kills it.
    uncertain: Vec<u64>,
    /// For each row whether it makes way for a newer one, as long as that is to be written; empty if none does.
    superseded: Vec<bool>,
}

impl Fate {
    fn new(batch: &RowBatch) -> Self {
        Self {
            number: batch.seen.number,
            seen: batch.seen.clone(),
            sealed: Vec::new(),
            accepted: 0,
            recomputed: 0,
            dead: Vec::new(),
            is_over: false,
            is_known: false,
            lost: Vec::new(),
            uncertain: Vec::new(),
            superseded: Vec::new(),
        }
    }

    /// That of a batch which is accepted now, and how many of its rows have died. Recomputed rows are newer than those that
    /// were accepted before them: they outlive the tombstones that were written for those since the lookup. What is written
    /// from now on is for [`outlive`] to judge, since it may be for rows that are newer than these.
    pub(crate) fn accepted(batch: &RowBatch) -> (Self, usize) {
        let (mut fate, mut died) = (Self::new(batch), 0);
        let Some(recompute) = &batch.recompute else { return (fate, died) };
        for Replacement { number, before, recomputed } in batch.seen.replacements() {
            // Rows that were recomputed since are newer than one that takes the place of a rejected row.
            let is_newer = recompute.rejects() && *recomputed > batch.seen.recomputed;
            // Or one of them is: the number is that of the last row which the tombstone names.
            fate.uncertain.extend(is_newer.then_some(*number));
            if *number > fate.number && !is_newer {
                died += fate.advance(batch, before, *number);
            }
        }
        (fate, died)
    }

    /// The place in the order of its rows, if they replace others.
    pub(crate) fn replacing(&self, batch: &RowBatch) -> Option<Replacing> {
        let Self { accepted, recomputed, .. } = *self;
        batch.recompute.as_ref().map(|_| Replacing { accepted, recomputed })
    }

    /// Whether the row is dead, or makes way for a newer one.
    pub(crate) fn is_dead(&self, row: usize) -> bool {
        self.is_killed(row) || is_set(&self.superseded, row)
    }

    /// Whether the row is dead for good.
    pub(crate) fn is_killed(&self, row: usize) -> bool {
        self.is_over || self.is_withdrawn(row)
    }

    /// Whether the row is dead for another reason than its age: it was invalidated, or its source is refused. Nothing makes way for it any
    /// more.
    pub(crate) fn is_withdrawn(&self, row: usize) -> bool {
        is_set(&self.dead, row)
    }

    /// Whether the row is dead by its age: it was computed before `oldest_kept`, or a change says so.
    pub(crate) fn is_over(&self, tombstones: &Tombstones, batch: &RowBatch, oldest_kept: u64) -> bool {
        self.is_over || batch.born < oldest_kept || tombstones.kill_by_age(self.number, batch.born)
    }

    /// Whether the rows have died by their age since the last call.
    pub(crate) fn is_news(&mut self) -> bool {
        let was_known = std::mem::replace(&mut self.is_known, self.is_over);
        self.is_over && !was_known
    }

    fn is_sealed(&self, row: usize) -> bool {
        is_set(&self.sealed, row)
    }

    /// Whether a segment has the row, and nothing but its age has killed it since.
    pub(crate) fn has_sealed(&self, row: usize) -> bool {
        self.is_sealed(row) && !self.is_withdrawn(row)
    }

    /// Whether the row is sealed or has died by its age: what makes way for it does so whatever comes.
    pub(crate) fn is_followed(&self, row: usize) -> bool {
        self.has_sealed(row) || self.has_expired(row)
    }

    /// Whether the row has died by its age and no segment has it.
    pub(crate) fn has_expired(&self, row: usize) -> bool {
        self.is_over && !self.is_sealed(row) && !self.is_withdrawn(row)
    }

    /// Whether the row is to be sealed.
    fn waits(&self, row: usize) -> bool {
        !self.is_sealed(row) && !self.is_dead(row)
    }

    fn any_waits(&self, batch: &RowBatch) -> bool {
        (0..batch.rows()).any(|row| self.waits(row))
    }

    /// A tombstone of this number has committed the rows that waited, in a segment. Those that make way for others are not in it, and are
    /// kept: the others may be of another session, whose tombstone comes later and may not come at all.
    fn seal(&mut self, number: u64, rows: usize) {
        self.number = number;
        self.sealed = (0..rows).map(|row| self.is_sealed(row) || self.waits(row)).collect();
    }

    /// How many rows are dead and will not be sealed.
    pub(crate) fn gone(&self, batch: &RowBatch) -> usize {
        (0..batch.rows()).filter(|&row| self.is_dead(row) && !self.is_sealed(row)).count()
    }

    /// How many rows are to be sealed.
    fn waiting(&self, batch: &RowBatch) -> usize {
        (0..batch.rows()).filter(|&row| self.waits(row)).count()
    }

    /// No row is to be written but for those that are; returns how many have died.
    fn kill_unsealed(&mut self, batch: &RowBatch) -> usize {
        let died = self.waiting(batch);
        self.dead = (0..batch.rows()).map(|row| self.is_withdrawn(row) || !self.is_sealed(row)).collect();
        died
    }

    /// One of `rows` rows is dead.
    pub(crate) fn kill(&mut self, row: usize, rows: usize) {
        self.dead.resize(rows, false);
        self.dead[row] = true;
    }

    /// One of `rows` rows makes way for a newer one. It is compared with tombstones all the same.
    pub(crate) fn supersede(&mut self, row: usize, rows: usize) {
        self.superseded.resize(rows, false);
        self.superseded[row] = true;
    }

    /// Which rows make way for others is to be found out again: a newer one may not be written any more.
    pub(crate) fn restore(&mut self) {
        self.superseded.clear();
    }

    /// Whether tombstones kill the row whose key is at `position`, whatever its age.
    pub(crate) fn kill_row(&self, tombstones: &Tombstones, keys: &Keys, position: usize) -> bool {
        self.seen.kill_row(tombstones, self.number, keys, position)
    }

    /// Compares the rows with all tombstones up to `newest`; returns how many have died.
    fn advance(&mut self, batch: &RowBatch, tombstones: &Tombstones, newest: u64) -> usize {
        let mut died = 0;
        let is_over = self.is_over(tombstones, batch, 0);
        if is_over || self.seen.may_kill(tombstones, self.number) {
            for row in 0..batch.rows() {
                if self.is_withdrawn(row) {
                    continue;
                }
                let (was_killed, was_dead) = (self.is_killed(row), self.is_dead(row));
                // Also if it is dead by its age: others make way for it until it is withdrawn.
                if self.kill_row(tombstones, &batch.keys, row) {
                    self.kill(row, batch.rows());
                }
                if was_killed || !is_over && !self.is_withdrawn(row) {
                    continue;
                }
                died += usize::from(!was_dead);
                let own = (&batch.keys, &*self.uncertain);
                let dies_here = || self.seen.own_kill_row(tombstones, self.number, own, row);
                if batch.is_put && !self.is_sealed(row) && !dies_here() {
                    self.lost.push(row);
                }
            }
        }
        self.is_over = is_over;
        self.number = self.number.max(newest);
        died
    }

    /// The rows of values that were put which changes of other processes have killed since the last call.
    pub(crate) fn take_lost(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.lost)
    }

    /// The rows that are to be sealed, as ranges of neighbours.
    pub(crate) fn unsealed(&self, rows: usize) -> Vec<std::ops::Range<usize>> {
        let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
        for row in (0..rows).filter(|&row| self.waits(row)) {
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            }
        }
        ranges
    }
}

fn is_set(rows: &[bool], row: usize) -> bool {
    rows.get(row).is_some_and(|is_set| *is_set)
}

/// How many rows are dead.
pub(crate) fn gone(fates: &[Fate], batches: &[Arc<RowBatch>]) -> usize {
    fates.iter().zip(batches).map(|(fate, batch)| fate.gone(batch)).sum()
}

/// Compares every batch with all tombstones up to `newest`; returns how many rows have died.
pub(crate) fn advance(
    fates: &mut [Fate],
    batches: &[Arc<RowBatch>],
    tombstones: &Tombstones,
    newest: u64,
) -> usize {
    fates.iter_mut().zip(batches).map(|(fate, batch)| fate.advance(batch, tombstones, newest)).sum()
}

/// Drops the rows whose source has changed since they were computed; returns how many have died and why, batch by batch.
pub(crate) fn refuse<'a>(
    fates: &mut [Fate],
    batches: &'a [Arc<RowBatch>],
) -> Vec<(usize, &'a RowBatch, &'a Error)> {
    let refused =
        fates.iter_mut().zip(batches).filter_map(|(fate, batch)| Some((fate, batch, batch.refused()?)));
    refused.map(|(fate, batch, why)| (fate.kill_unsealed(batch), &**batch, why)).collect()
}

/// Drops the rows that were computed before `oldest_kept`: they are not served any more, and the segment that holds them
/// would be as old as they are. Returns how many have died.
pub(crate) fn expire(fates: &mut [Fate], batches: &[Arc<RowBatch>], oldest_kept: u64) -> usize {
    let expired = fates.iter_mut().zip(batches).filter(|(_, batch)| batch.born < oldest_kept);
    let died = expired.map(|(fate, batch)| {
        let died = fate.waiting(batch);
        fate.is_over = true;
        died
    });
    died.sum()
}

/// Rows that were recomputed after those that the tombstone `number` makes way for were accepted: they are newer, and it
/// does not kill them. Those before it do: `before` are all of them. Returns how many rows have died.
pub(crate) fn outlive(
    fates: &mut [Fate],
    batches: &[Arc<RowBatch>],
    before: &Tombstones,
    number: u64,
) -> usize {
    let recomputed = fates.iter_mut().zip(batches).filter(|(_, batch)| batch.recompute.is_some());
    recomputed.map(|(fate, batch)| fate.advance(batch, before, number)).sum()
}

/// Whether rows of this recompute session wait to be sealed.
fn replaces(fate: &Fate, batch: &RowBatch, recompute: &Arc<RecomputeSession>) -> bool {
    batch.recompute.as_ref().is_some_and(|own| Arc::ptr_eq(own, recompute)) && fate.any_waits(batch)
}

/// The recompute sessions that have rows which are not sealed yet, each once.
pub(crate) fn recomputes(fates: &[Fate], batches: &[Arc<RowBatch>]) -> Vec<Arc<RecomputeSession>> {
    let mut recomputes: Vec<Arc<RecomputeSession>> = Vec::new();
    for (_, batch) in fates.iter().zip(batches).filter(|(fate, batch)| fate.any_waits(batch)) {
        let own = batch.recompute.iter();
        let new = own.filter(|own| !recomputes.iter().any(|recompute| Arc::ptr_eq(recompute, own)));
        let new: Vec<_> = new.cloned().collect();
        recomputes.extend(new);
    }
    recomputes
}

/// The tombstone that commits the rows of this recompute session: it names those that are left, each in its view only. The rows of
/// other views were not recomputed.
pub(crate) fn doomed(
    fates: &[Fate],
    batches: &[Arc<RowBatch>],
    recompute: &Arc<RecomputeSession>,
) -> Option<Doomed> {
    let mut rows: Vec<(Box<[u8]>, u32)> = Vec::new();
    let own = fates.iter().zip(batches).filter(|(fate, batch)| replaces(fate, batch, recompute));
    for (fate, batch) in own {
        let (keys, view) = (&batch.keys, batch.keys.view());
        let waiting = (0..batch.rows()).filter(|&row| fate.waits(row));
        rows.extend(waiting.map(|row| (keys.key(row).into(), view)));
    }
    (!rows.is_empty()).then_some(Doomed::Views(rows))
}

/// As [`outlive`], of a tombstone that was found to be written after an error. Rows that take the place of rejected ones, and that make
/// way for one of those which it makes way for, do not outlive it.
pub(crate) fn outlive_found(fates: &mut [Fate], batches: &[Arc<RowBatch>], found: &Replacement) -> usize {
    let Replacement { number, before, recomputed } = found;
    let mut died = 0;
    for (fate, batch) in fates.iter_mut().zip(batches) {
        let Some(recompute) = &batch.recompute else { continue };
        if recompute.rejects() && *recomputed > batch.seen.recomputed {
            fate.uncertain.push(*number);
        } else {
            died += fate.advance(batch, before, *number);
        }
    }
    died
}

/// Whether that tombstone is written is not known: if it is found, the rows outlive it. Returns how many batches had been recomputed with
/// the last of these.
pub(crate) fn tried(
    fates: &mut [Fate],
    batches: &[Arc<RowBatch>],
    recompute: &Arc<RecomputeSession>,
    attempt: &Arc<Attempt>,
) -> u64 {
    let mut recomputed = 0;
    for (fate, _) in fates.iter_mut().zip(batches).filter(|(fate, batch)| replaces(fate, batch, recompute)) {
        fate.seen.add(attempt);
        recomputed = recomputed.max(fate.recomputed);
    }
    recomputed
}

/// That tombstone is written, and has sealed the rows: they take its number. Returns how many batches had been recomputed with the last of these.
pub(crate) fn replaced(
    fates: &mut [Fate],
    batches: &[Arc<RowBatch>],
    recompute: &Arc<RecomputeSession>,
    number: u64,
) -> u64 {
    let mut recomputed = 0;
    let own = fates.iter_mut().zip(batches).filter(|(fate, batch)| replaces(fate, batch, recompute));
    for (fate, batch) in own {
        fate.seal(number, batch.rows());
        recomputed = recomputed.max(fate.recomputed);
    }
    recompute.add(number);
    recomputed
}
