//! Values that the caller has, put or in the place of stored ones: as the tables of the crate `tcx` store them.

use std::sync::Arc;

use tcx_store::{Column, Keys, Leaf, Losses, RecomputeSession, Result, Store};

use crate::store::mode::Opened;

/// What became of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// This number of them is stored.
    Stored(usize),
    /// None is: the folder is full.
    Full,
    /// None is: the value at this position has more bytes than the folder may have.
    TooLarge { position: usize, bytes: u64, most: u64 },
}

/// Values for keys, each of which is there once.
pub(crate) struct Values<'a> {
    pub(crate) keys: &'a Keys,
    /// A row for each key.
    pub(crate) columns: &'a [Column],
    pub(crate) leaves: &'a [Leaf],
}

impl Values<'_> {
    fn select(&self, positions: &[usize]) -> Vec<Column> {
        let columns = self.columns.iter().zip(self.leaves);
        columns.map(|(column, leaf)| column.select(positions, &leaf.kind)).collect()
    }

    /// A value that is larger than the folder may be would evict all others, and itself.
    fn too_large(&self, most: Option<u64>) -> Option<Put> {
        let most = most?;
        let bytes = |position| -> u64 {
            let columns = self.columns.iter().zip(self.leaves);
            columns.map(|(column, leaf)| column.row(position, &leaf.kind).len() as u64).sum()
        };
        let sizes = (0..self.keys.len()).map(|position| (position, bytes(position)));
        sizes
            .filter(|(_, bytes)| *bytes > most)
            .map(|(position, bytes)| Put::TooLarge { position, bytes, most })
            .next()
    }
}

impl Opened {
    /// Stores values for keys that have none; with `replaces`, for all keys, durably.
    pub(crate) fn put(&self, values: &Values<'_>, replaces: bool) -> Result<Put> {
        let Some(store) = self.store() else { return Ok(Put::Stored(0)) };
        if store.is_full() {
            return Ok(Put::Full);
        }
        if let Some(too_large) = values.too_large(self.max_bytes()) {
            return Ok(too_large);
        }
        // What is lost of these values is an error of this call, not of a flush of the handle.
        let losses = self.losses().for_call();
        let put = self.insert_values(store, values, replaces, &losses);
        losses.hand_over(self.losses());
        put
    }

    fn insert_values(
        &self,
        store: &Store,
        values: &Values<'_>,
        replaces: bool,
        losses: &Arc<Losses>,
    ) -> Result<Put> {
        // A session of its own replaces every row: those of other processes, and those that are being written.
        let session = replaces.then(RecomputeSession::new);
        let session = session.as_ref().or(self.recompute());
        let mut rows = store.lookup_to_put(values.keys.clone(), session)?;
        let positions = rows.distinct_missing_positions();
        if positions.is_empty() {
            return Ok(Put::Stored(0));
        }
        let kept = store.insert_for(losses, &mut rows, &positions, values.select(&positions), None)?;
        if !kept {
            // The folder may have become full since there was room. Otherwise a flush says why nothing is stored.
            let flushed = if store.is_full() { Ok(()) } else { store.flush_for(losses) };
            let _ = losses.take();
            return flushed.map(|()| Put::Full);
        }
        if replaces {
            store.flush_for(losses)?;
        }
        Ok(Put::Stored(positions.len()))
    }
}
