//! Invalidations that could not be written. Each holds in this process alone until it can be.
//!
//! One that is written late has a greater number than rows which were looked up after it had failed. It must not kill
//! those: each lookup keeps which failed invalidations it knew, and its rows are compared with the tombstones before
//! them only.

use std::sync::{Arc, OnceLock};

use super::table::{ChangeBytes, TombstoneTable};
use super::tombstone::Doomed;
use super::tombstones::Tombstones;
use super::{KnownChanges, encode};
use crate::bytes::Random;
use crate::key::Keys;

/// An invalidation that could not be written.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) doomed: Doomed,
    /// The same with every attempt: by it a change is recognised whose creation succeeded and was answered by an error.
    pub(super) nonce: Random,
    /// Ascends in the order in which they have failed, which is the order in which they are written.
    order: u64,
    /// With the number [`u64::MAX`].
    pub(super) table: TombstoneTable,
    written: OnceLock<Written>,
}

/// What has become of a failed invalidation.
#[derive(Debug)]
pub(super) struct Written {
    /// The number of its change.
    number: u64,
    /// The tombstones but for it and those that still could not be written.
    before: Tombstones,
}

impl KnownChanges {
    /// Makes something dead in this process until it can be written, by a change with this nonce.
    pub(crate) fn kill_here(&mut self, doomed: Doomed, nonce: Random) {
        let bytes = encode(u64::MAX, doomed.kind(), nonce, &doomed.payload(u64::MAX));
        let table = TombstoneTable::open(u64::MAX, ChangeBytes::Heap(bytes));
        let table = table.expect("what was just encoded can be read");
        self.failed += 1;
        let pending = Pending { doomed, nonce, order: self.failed, table, written: OnceLock::new() };
        self.change_tombstones(|tombstones| tombstones.pending.push(Arc::new(pending)));
    }

    /// The failed invalidation that was written by the change with this nonce, if it is one.
    pub(super) fn find_pending(&self, nonce: Random) -> Option<usize> {
        self.tombstones.pending.iter().position(|pending| pending.nonce == nonce)
    }

    /// Change `number` is the pending one at `at`. Lookups learn of it by [`announce`](Self::announce): this may be a copy
    /// that is let go of.
    pub(super) fn settle_pending(&mut self, at: usize, number: u64) {
        let before = self.tombstones.without_pending();
        let written = (self.tombstones.pending[at].clone(), number, before);
        self.late.push(written);
        self.change_tombstones(|tombstones| drop(tombstones.pending.remove(at)));
    }

    /// Gives the rows that were looked up after an invalidation had failed the number of its change. Due before anything is
    /// compared with that change.
    pub(crate) fn announce(&mut self) {
        for (pending, number, before) in self.late.drain(..) {
            // The first time says it: a change has one number.
            let _ = pending.written.set(Written { number, before });
        }
    }
}

/// What a lookup knew of the changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The newest change known.
    pub(crate) number: u64,
    /// The failed invalidations that were not written yet, in their order: they kill none of its rows.
    pending: Vec<Arc<Pending>>,
}

impl Seen {
    pub(crate) fn new(number: u64, tombstones: &Tombstones) -> Self {
        Self { number, pending: tombstones.pending.clone() }
    }

    /// Whether the row of the key at `position`, which has been compared with every change up to `number`, is dead.
    #[inline]
    pub(crate) fn kill_row(
        &self,
        tombstones: &Tombstones,
        mut number: u64,
        keys: &Keys,
        position: usize,
    ) -> bool {
        for written in self.pending.iter().filter_map(|pending| pending.written.get()) {
            if written.number > number {
                if written.before.kill_row(number, keys, position) {
                    return true;
                }
                number = written.number;
            }
        }
        tombstones.kill_row_but(number, keys, position, |pending| self.knew(pending))
    }

    /// Whether a row with this number can be dead at all.
    #[inline]
    pub(crate) fn may_kill(&self, tombstones: &Tombstones, number: u64) -> bool {
        !self.pending.is_empty() || tombstones.may_kill(number)
    }

    fn knew(&self, pending: &Pending) -> bool {
        self.pending.last().is_some_and(|last| pending.order <= last.order)
    }
}
