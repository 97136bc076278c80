//! What a lookup finds in the write buffer.

use std::sync::Arc;

use crate::buffer::fate::Fate;
use crate::buffer::generation::Generation;
use crate::changes::Tombstones;
use crate::computed::RowBatch;
use crate::computed::recompute::RecomputeSession;
use crate::schema::key::Keys;

/// A row of the write buffer that a lookup may find.
#[derive(Clone, Copy)]
pub(super) struct WaitingRow<'a> {
    pub(super) batch: &'a Arc<RowBatch>,
    pub(super) fate: &'a Fate,
    pub(super) row: u32,
    /// It is dead by its age.
    pub(super) is_over: bool,
}

/// What a lookup asks the buffer for.
pub(crate) struct Wanted<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) tombstones: &'a Tombstones,
    pub(crate) recompute: Option<&'a Arc<RecomputeSession>>,
    /// Rows that were computed before this moment, in milliseconds since 1970, are not served any more.
    pub(crate) oldest_kept: u64,
}

impl Wanted<'_> {
    /// The rows of the key at `position` that are dead by their age or alive, and whose source has not changed.
    pub(super) fn rows<'g>(
        &self,
        generation: &'g Generation,
        fates: &'g [Fate],
        position: usize,
    ) -> impl Iterator<Item = WaitingRow<'g>> {
        let places = generation.find(self.keys, position).filter(move |&(number, row)| {
            let fate = &fates[number as usize];
            let batch = &generation.batches[number as usize];
            // What is sealed is served from its segment as well. A row that makes way is served as soon as the newer one is refused.
            (batch.refused().is_none() || fate.has_sealed(row as usize))
                && !fate.is_withdrawn(row as usize)
                && !fate.kill_row(self.tombstones, self.keys, position)
        });
        places.map(|(number, row)| {
            let (batch, fate) = (&generation.batches[number as usize], &fates[number as usize]);
            let is_over = fate.is_over(self.tombstones, batch, self.oldest_kept);
            WaitingRow { batch, fate, row, is_over }
        })
    }

    pub(super) fn is_own(&self, batch: &RowBatch, position: usize) -> bool {
        self.recompute.is_none_or(|recompute| match &batch.recompute {
            Some(own) => Arc::ptr_eq(own, recompute),
            None => recompute.has_computed(self.tombstones, self.keys, position),
        })
    }
}
