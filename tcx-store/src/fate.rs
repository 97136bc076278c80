//! What becomes of buffered rows between their lookup and their seal: newer tombstones kill some of them.

use std::sync::Arc;

use crate::buffer::RowBatch;
use crate::changes::{Doomed, Tombstones};
use crate::error::Error;

/// What has become of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    /// The newest change that the rows which are left have been compared with.
    pub(crate) number: u64,
    /// Whether the tombstone that a replacer's rows need is written.
    has_replaced: bool,
    /// For each row whether it is dead; empty if none is.
    dead: Vec<bool>,
}

impl Fate {
    pub(crate) fn new(batch: &RowBatch) -> Self {
        Self { number: batch.known, has_replaced: false, dead: Vec::new() }
    }

    pub(crate) fn is_dead(&self, row: usize) -> bool {
        self.dead.get(row).is_some_and(|dead| *dead)
    }

    /// Their source has changed since the rows were computed; returns how many have died.
    fn refuse(&mut self, batch: &RowBatch) -> usize {
        let died = (0..batch.rows()).filter(|&row| !self.is_dead(row)).count();
        self.dead = vec![true; batch.rows()];
        died
    }

    /// Compares the rows with all tombstones up to `newest`; tells how many have died.
    fn advance(&mut self, batch: &RowBatch, tombstones: &Tombstones, newest: u64) -> usize {
        let mut died = 0;
        if tombstones.may_kill(self.number) {
            for row in 0..batch.rows() {
                if !self.is_dead(row) && tombstones.kill_row(self.number, &batch.keys, row) {
                    self.dead.resize(batch.rows(), false);
                    self.dead[row] = true;
                    died += 1;
                }
            }
        }
        self.number = self.number.max(newest);
        died
    }

    /// The rows that are left, as ranges of neighbours.
    pub(crate) fn alive(&self, rows: usize) -> Vec<std::ops::Range<usize>> {
        let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
        for row in (0..rows).filter(|&row| !self.is_dead(row)) {
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            }
        }
        ranges
    }
}

/// Compares every batch with all tombstones up to `newest`; tells how many rows have died.
pub(crate) fn advance(
    fates: &mut [Fate],
    batches: &[Arc<RowBatch>],
    tombstones: &Tombstones,
    newest: u64,
) -> usize {
    fates.iter_mut().zip(batches).map(|(fate, batch)| fate.advance(batch, tombstones, newest)).sum()
}

/// Drops the rows whose source has changed since they were computed; returns how many have died and why, batch by batch.
pub(crate) fn refuse<'a>(fates: &mut [Fate], batches: &'a [Arc<RowBatch>]) -> Vec<(usize, &'a Error)> {
    let refused =
        fates.iter_mut().zip(batches).filter_map(|(fate, batch)| Some((fate, batch, batch.refused()?)));
    refused.map(|(fate, batch, why)| (fate.refuse(batch), why)).filter(|(died, _)| *died > 0).collect()
}

fn replaces(fate: &Fate, batch: &RowBatch) -> bool {
    batch.replacer.is_some() && !fate.has_replaced
}

/// The tombstone that has to be written before the rows of replacers are: it names the keys of those that are left.
pub(crate) fn doomed(fates: &[Fate], batches: &[Arc<RowBatch>]) -> Option<Doomed> {
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for (fate, batch) in fates.iter().zip(batches).filter(|(fate, batch)| replaces(fate, batch)) {
        keys.extend(
            (0..batch.rows()).filter(|&row| !fate.is_dead(row)).map(|row| batch.keys.key(row).into()),
        );
    }
    (!keys.is_empty()).then_some(Doomed::Keys(keys))
}

/// That tombstone is written: the rows take its number.
pub(crate) fn replaced(fates: &mut [Fate], batches: &[Arc<RowBatch>], number: u64) {
    for (fate, batch) in fates.iter_mut().zip(batches).filter(|(fate, batch)| replaces(fate, batch)) {
        fate.number = number;
        fate.has_replaced = true;
        batch.replacer.iter().for_each(|replacer| replacer.add(number));
    }
}
