//! Adds the missing rows to a module.

use std::sync::Arc;

use serde::Serialize;
use tcx_store::{Column, Keys, Leaf, Lookup, LookupOptions, Options, Spec, Store};

use crate::cache;
use crate::cache::destination::Destination;
use crate::failure::{Code, Failure, Result};
use crate::text::ids;

/// Rows that are inserted together.
pub(crate) const BATCH: usize = 1024;

/// The counts of added rows.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Added {
    /// Rows added, or in a dry run, rows to add.
    pub(crate) added: u64,
    /// Rows already present.
    pub(crate) present: u64,
    /// Rows left out because their ids were invalidated.
    pub(crate) invalidated: u64,
}

/// How rows are added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Whether to add rows whose ids were invalidated.
    pub(crate) revive: bool,
    pub(crate) dry_run: bool,
}

/// Adds rows to a store.
pub(crate) struct Adder {
    store: Arc<Store>,
    spec: Spec,
    how: How,
    pub(crate) added: Added,
}

impl Adder {
    /// `folder` is that of a module, or of one identity of it.
    pub(crate) fn new(to: &Destination<'_>, folder: &str, spec: Spec, how: How) -> Result<Self> {
        // Rows are sealed when a segment is full, and at the end.
        let options =
            Options { flush_interval: std::time::Duration::from_hours(1), ..cache::options(how.dry_run) };
        let store = to.open(folder, spec.clone(), &options)?;
        Ok(Self { store, spec, how, added: Added::default() })
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Adds the missing rows among these; `born` has when each was computed, in milliseconds since 1970, if that is known. `bytes` returns
    /// the bytes of a leaf of a row, or `None` if it has no value.
    pub(crate) fn add<'a>(
        &mut self,
        view: u32,
        keys: &[&[u8]],
        born: Option<&[u64]>,
        bytes: impl Fn(usize, usize) -> Option<&'a [u8]>,
    ) -> Result<()> {
        let keys = ids::keys(self.spec.key_type(), keys, view)?;
        let mut lookup = if self.how.dry_run {
            self.store.lookup_with(keys.clone(), LookupOptions::uncounted())?
        } else {
            self.store.lookup_to_put(keys.clone(), None)?
        };
        let missing = lookup.distinct_missing_positions();
        self.added.present += (keys.len() - missing.len()) as u64;
        let positions = self.wanted(&keys, born, missing);
        self.added.added += positions.len() as u64;
        if self.how.dry_run || positions.is_empty() {
            return Ok(());
        }
        self.insert(&mut lookup, &positions, bytes)
    }

    /// The missing rows to add.
    fn wanted(&mut self, keys: &Keys, born: Option<&[u64]>, missing: Vec<usize>) -> Vec<usize> {
        if self.how.revive {
            return missing;
        }
        let (dead, before) = (self.store.invalidated_positions(keys), self.store.invalidated_before());
        let is_old =
            |position: usize| born.and_then(|born| born.get(position)).is_some_and(|born| *born < before);
        let (out, wanted): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .partition(|position| dead.binary_search(position).is_ok() || is_old(*position));
        self.added.invalidated += out.len() as u64;
        wanted
    }

    fn insert<'a>(
        &self,
        lookup: &mut Lookup,
        positions: &[usize],
        bytes: impl Fn(usize, usize) -> Option<&'a [u8]>,
    ) -> Result<()> {
        let column = |(number, leaf): (usize, &Leaf)| {
            let rows: Vec<_> = positions.iter().map(|&position| bytes(position, number)).collect();
            column(leaf, &rows)
        };
        let columns = self.spec.leaves().iter().enumerate().map(column).collect();
        Ok(self.store.insert(lookup, positions, columns)?)
    }

    /// Flushes, so that all added rows are durable.
    ///
    /// # Errors
    ///
    /// Returns an error if the flush fails, or if rows were not stored.
    pub(crate) fn finish(self) -> Result<Added> {
        self.store.flush()?;
        match self.store.stats().rows_dropped {
            0 => Ok(self.added),
            dropped => {
                let message = format!(
                    "rows not stored: {dropped}; other programs invalidated them, or the disk failed; run the command again"
                );
                Err(Failure::new(Code::Io, message))
            }
        }
    }
}

/// The column of a leaf. A row without a value is stored as zeros, or as no bytes where widths vary.
fn column(leaf: &Leaf, rows: &[Option<&[u8]>]) -> Column {
    let width = leaf.kind.width();
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    for row in rows {
        match (row, width) {
            (Some(bytes), _) => values.extend_from_slice(bytes),
            (None, width) => values.resize(values.len() + width.unwrap_or(0), 0),
        }
        ends.push(values.len());
    }
    let column = if width.is_some() { Column::dense(&values) } else { Column::varying(values, ends) };
    if leaf.optional { column.optional(rows.iter().map(Option::is_some)) } else { column }
}
