//! Rows that make way for one which is sealed or has died by its age: they die with it, wherever they are in the write buffer.

use std::sync::Arc;

use crate::buffer::fate::Fate;
use crate::buffer::generation::Generation;
use crate::buffer::order::Age;
use crate::changes::Replacing;
use crate::computed::RowBatch;
use crate::schema::key::Keys;

/// A generation, and what has become of its rows so far.
pub(super) struct Settled<'a> {
    pub(super) generation: &'a Generation,
    pub(super) fates: &'a [Fate],
    /// The last of the rows that others make way for.
    pub(super) last: Replacing,
}

impl Settled<'_> {
    /// Rows of later batches die that make way for a row which is sealed, or has died by its age. The tombstone of a sealed one need not be
    /// newer, if others of their batches outlive it. Returns how many have died.
    pub(super) fn supersede(&self, fates: &mut [Fate], batches: &[Arc<RowBatch>]) -> usize {
        let mut died = 0;
        for (fate, batch) in fates.iter_mut().zip(batches) {
            let age = Age::of(batch, fate);
            if !age.makes_way_for(self.last) {
                continue;
            }
            for row in (0..batch.rows()).filter(|&row| self.displaces(age, &batch.keys, row)) {
                died += usize::from(!fate.is_dead(row));
                fate.kill(row, batch.rows());
            }
        }
        died
    }

    fn displaces(&self, later: Age, keys: &Keys, position: usize) -> bool {
        self.generation.find(keys, position).any(|(number, row)| {
            let (batch, fate) = (&self.generation.batches[number as usize], &self.fates[number as usize]);
            fate.is_followed(row as usize)
                && fate.replacing(batch).is_some_and(|own| later.makes_way_for(own))
        })
    }
}

/// The last row of the generation that takes the place of others and that others make way for whatever comes.
pub(super) fn last_of(generation: &Generation, fates: &[Fate]) -> Replacing {
    let batches = generation.batches.iter().zip(fates);
    let replacing = batches.filter_map(|(batch, fate)| Some((batch, fate, fate.replacing(batch)?)));
    let followed = replacing.filter(|(batch, fate, _)| (0..batch.rows()).any(|row| fate.is_followed(row)));
    followed.map(|(.., own)| own).fold(Replacing::default(), Replacing::last)
}

/// Rows of a batch that is accepted now die that make way for one which has died by its age since they were looked up. Returns how many have
/// died.
pub(super) fn make_way_for_expired(fate: &mut Fate, batch: &RowBatch) -> usize {
    let age = Age::of(batch, fate);
    let mut died = 0;
    for expired in batch.seen.expired() {
        for row in 0..batch.rows() {
            let last = expired.find(batch.keys.key(row), batch.keys.view());
            if last.is_some_and(|last| age.makes_way_for(last)) {
                died += usize::from(!fate.is_dead(row));
                fate.kill(row, batch.rows());
            }
        }
    }
    died
}
