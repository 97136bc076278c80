//! What becomes of the rows of a generation when it is sealed, by all changes there are by then.

use std::io;
use std::sync::Arc;

use crate::buffer::fate::{Fate, expire, refuse, replaced, tried};
use crate::buffer::generation::Generation;
use crate::changes::instance::KnownIdentity;
use crate::changes::{DraftedChange, KnownChanges, Replacement, Tombstones};
use crate::computed::RowBatch;
use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::live::folder::Live;
use crate::storage::name::FileName;
use crate::write::plan::Replacing;

/// What becomes of the rows of a generation, for all that is known now. No other thread knows of it before it is [settled](Self::settle).
pub(crate) struct Decided<'a> {
    pub(crate) identity: KnownIdentity,
    generation: &'a Arc<Generation>,
    fates: Vec<Fate>,
    refused: Vec<(usize, &'a RowBatch, &'a Error)>,
    replacements: Vec<Replacement>,
    died: usize,
}

impl<'a> Decided<'a> {
    /// Reads new changes.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read or is another one, or if the rows have to wait for unreadable changes.
    pub(crate) fn new(core: &Core, live: &mut Live, generation: &'a Arc<Generation>) -> Result<Self> {
        // A segment's base is the newest change known when it is sealed, so that none is missed.
        let depend = generation.replaces() || generation.batches.iter().any(|batch| batch.is_put);
        if live.refresh_to_seal(depend)? {
            core.install(live);
        }
        let identity = live.ensure_identity()?;
        let failed = |e: io::Error| Error::io("cannot write a change in", core.storage.path(), e);
        live.changes.write_pending(&*core.storage).map_err(failed)?;
        // Under the lock, and after the refresh: a thread that seals an earlier generation may change them, and so may a tombstone that
        // is found to be written after an error.
        let mut fates = core.buffer.fates(generation).as_deref().cloned().unwrap_or_default();
        let refused = refuse(&mut fates, &generation.batches);
        let died = expire(&mut fates, &generation.batches, core.retention.oldest_kept());
        can_decide(core, &live.changes, &fates)?;
        let replacements = Vec::new();
        let mut decided = Self { identity, generation, fates, refused, replacements, died };
        decided.advance(&live.changes);
        Ok(decided)
    }

    fn advance(&mut self, changes: &KnownChanges) {
        let newest = changes.newest().unwrap_or(0);
        self.died += self.generation.advance(&mut self.fates, changes.tombstones(), newest);
    }

    pub(crate) fn fates(&self) -> &[Fate] {
        &self.fates
    }

    pub(crate) fn batches(&self) -> &'a [Arc<RowBatch>] {
        &self.generation.batches
    }

    /// Creates the tombstone of these rows, whose segments have their names: that is the moment in which they take the place of others.
    /// `false` if another process has taken its number.
    ///
    /// # Errors
    ///
    /// Returns an error if the tombstone may have been created all the same.
    pub(crate) fn commit(
        &mut self,
        core: &Core,
        changes: &mut KnownChanges,
        replacing: &Replacing,
        drafted: DraftedChange,
    ) -> Result<bool> {
        let failed = |e: io::Error| Error::io("cannot write a change in", core.storage.path(), e);
        let Replacing { recompute, attempt, .. } = replacing;
        let before = Tombstones::clone(changes.tombstones());
        let created = changes.create_drafted(&*core.storage, drafted).map_err(failed);
        match created {
            Ok(Some(number)) => {
                let recomputed = replaced(&mut self.fates, &self.generation.batches, recompute, number);
                self.replacements.push(Replacement { number, before, recomputed });
            }
            Ok(None) => {}
            Err(_) => {
                // It may be written all the same: then the rows must outlive it.
                let recomputed = tried(&mut self.fates, &self.generation.batches, recompute, attempt);
                changes.tried(attempt, recomputed);
                // A change of another process may have come in between. As long as it cannot be read, it has killed nothing.
                can_decide(core, changes, &self.fates)?;
            }
        }
        self.advance(changes);
        created.map(|created| created.is_some())
    }

    /// Informs the buffer of what has become of the rows, and shows readers the tombstones that make way for some of them.
    pub(crate) fn settle(self, core: &Core, live: &mut Live) -> Arc<Vec<Fate>> {
        let Self { generation, mut fates, refused, replacements, mut died, .. } = self;
        report_superseded(core, generation, &mut fates);
        let expired = generation.take_expired(&mut fates);
        let fates = Arc::new(fates);
        // Before the buffer settles: each row that is accepted is either in the buffer then, or finds them here.
        live.add_replacements(&replacements);
        live.add_expired(expired);
        died += core.install_with(live, |show| core.buffer.settle(generation, &fates, &replacements, show));
        core.counters.drop_superseded(died);
        for (rows, batch, why) in refused {
            core.counters.rows_dropped.add(rows);
            batch.lost(rows, why);
        }
        fates
    }
}

/// Values that were put cannot be computed again: the caller that put them learns that changes of other processes have killed some.
fn report_superseded(core: &Core, generation: &Generation, fates: &mut [Fate]) {
    // There are none of a generation that has been released.
    for (number, batch) in generation.batches.iter().enumerate().take(fates.len()) {
        let lost = fates[number].take_lost();
        let rows = generation.count_newest(number, &lost, fates);
        if rows > 0 {
            let path = core.storage.path().display();
            let what = format!(
                "another process, a handle that recomputes rows or `invalidate_older_than` has invalidated or replaced them in {path} \
                 before they were written; put them again if they are still right"
            );
            batch.lost(rows, &Error::of_kind(ErrorKind::Superseded, what));
        }
    }
}

/// Rows that wait for a change which cannot be read just now are not given up: it may name none of them.
fn can_decide(core: &Core, changes: &KnownChanges, fates: &[Fate]) -> Result<()> {
    let oldest = fates.iter().map(|fate| fate.number).min().unwrap_or(u64::MAX);
    let Some(unread) = changes.unread_after(oldest) else { return Ok(()) };
    let path = core.storage.path().join(FileName::Change(unread).to_string());
    Err(Error::io("cannot flush: rows wait for the change", path, io::Error::other("it cannot be read")))
}
