//! Computing what is missing of one work range after the other.

use crate::Result;
use crate::cache::claims::Request;
use crate::cache::stop::Stop;
use crate::cached::Cached;
use crate::cached::warm::ahead;
use crate::cached::warm::batches::{Batches, Progress};
use crate::ids::Id;
use crate::module::extractor::CachedModule;
use crate::module::missing::Missing;

/// What computes work ranges.
pub(super) struct Filler<'a, M, L> {
    pub(super) cached: &'a Cached<M>,
    pub(super) view: u32,
    pub(super) workers: usize,
    pub(super) stop: &'a Stop,
    pub(super) load: L,
}

/// What came of a work range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// Every sample was found or computed. What was computed is not durable yet.
    Whole,
    Stopped,
    /// Another worker has taken it over.
    Lost,
}

impl<M: CachedModule, L> Filler<'_, M, L> {
    /// Computes what is missing for these ids, the first of which is at position `first` of the sequence. Calls `at_batch` for each
    /// batch, which returns whether to give up.
    pub(super) fn fill<I: Id<M::Key> + Sync>(
        &self,
        ids: &[I],
        first: usize,
        progress: &mut Progress<'_>,
        at_batch: impl Fn() -> bool + Sync,
    ) -> Result<Filled>
    where
        M::Input: Send,
        L: Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
    {
        let entered = Request::current();
        let _entered = entered.enter();
        let mut batches = Batches::new(self.cached, ids, self.view, self.stop);
        // The loader alone crosses threads.
        let own = &self.load;
        let load = |places: &[usize]| {
            let positions: Vec<usize> = places.iter().map(|place| first + place).collect();
            own(Missing::within(ids, first, &positions))
        };
        if self.workers > 1 {
            // Batches that are loaded ahead are computed, whatever becomes of the lease.
            let load = |places: &[usize]| {
                at_batch();
                load(places)
            };
            ahead(self.cached, self.workers, &mut batches, progress, load)?;
        } else {
            while let Some(batch) = batches.next(progress, true)? {
                let loaded = load(&batch.places);
                progress.compute(self.cached, batch, loaded)?;
                if at_batch() {
                    return Ok(Filled::Lost);
                }
            }
        }
        Ok(if batches.stopped { Filled::Stopped } else { Filled::Whole })
    }
}
