//! Adding rows to a module: those that are missing.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tcx_store::{Column, Keys, Leaf, Lookup, Options, Spec, Store};

use crate::cache;
use crate::failure::{Code, Failure, Result};
use crate::text::ids;

/// Rows that are added together.
pub(crate) const BATCH: usize = 1024;

/// What became of rows.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Added {
    /// Added, or what would be.
    pub(crate) added: u64,
    /// Already there.
    pub(crate) present: u64,
    /// Left out: their ids were invalidated here.
    pub(crate) invalidated: u64,
}

/// How rows are added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Also those whose ids were invalidated.
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
    pub(crate) fn new(cache: &Path, spec: Spec, how: How) -> Result<Self> {
        // Rows are sealed when a segment's worth has come together, and at the end.
        let options =
            Options { seal_after: std::time::Duration::from_hours(1), ..cache::options(how.dry_run) };
        let store = Store::open(cache, spec.clone(), &options)?;
        Ok(Self { store, spec, how, added: Added::default() })
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Adds those of these rows that are missing; `bytes` tells the bytes of a leaf of a row, if it has a value.
    pub(crate) fn add<'a>(
        &mut self,
        view: u32,
        keys: &[&[u8]],
        bytes: impl Fn(usize, usize) -> Option<&'a [u8]>,
    ) -> Result<()> {
        let keys = ids::keys(self.spec.key_type(), keys, view)?;
        let mut lookup = self.store.peek(keys.clone())?;
        let missing = lookup.missing_positions();
        self.added.present += (keys.len() - missing.len()) as u64;
        let positions = self.wanted(&keys, missing);
        self.added.added += positions.len() as u64;
        if self.how.dry_run || positions.is_empty() {
            return Ok(());
        }
        self.insert(&mut lookup, &positions, bytes)
    }

    /// The missing rows that may come.
    fn wanted(&mut self, keys: &Keys, missing: Vec<usize>) -> Vec<usize> {
        if self.how.revive {
            return missing;
        }
        let dead = self.store.invalidated_positions(keys);
        let (out, wanted): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|position| dead.binary_search(position).is_ok());
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

    /// Everything added is durable.
    ///
    /// # Errors
    ///
    /// What kept it from being so.
    pub(crate) fn finish(self) -> Result<Added> {
        self.store.flush()?;
        match self.store.stats().rows_dropped {
            0 => Ok(self.added),
            dropped => {
                let message = format!(
                    "{dropped} rows were invalidated while they were added, or not kept: run it again"
                );
                Err(Failure::new(Code::Io, message))
            }
        }
    }
}

/// The rows of a leaf. Zeros stand in those without a value, or nothing.
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
