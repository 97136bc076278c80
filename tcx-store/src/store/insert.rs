//! Adding computed rows to a store.

use std::io;
use std::sync::Arc;

use crate::buffer::Accepted;
use crate::computed::attestation::Attestation;
use crate::computed::losses::Losses;
use crate::computed::recompute::RecomputeSession;
use crate::error::{Error, Result};
use crate::read::causes::note_elsewhere;
use crate::read::lookup::{Keeping, Lookup};
use crate::read::lookup_options::LookupOptions;
use crate::schema::column::Column;
use crate::schema::key::Keys;
use crate::stats::causes::Cause;
use crate::storage::name::FileName;
use crate::store::Store;
use crate::write::Writer;

impl Store {
    /// Looks rows up before values are put for the missing ones. With `recompute`, all rows that it has not put itself are
    /// missing. It lists the folder first. So the values outlive every change that exists by then, and rows that another
    /// process has made durable are not missing.
    ///
    /// A value that a later change of another process kills before it is durable is one of the [losses](Losses) of the
    /// caller that inserts it. Hits and misses are not counted.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, RecomputeSession, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup_to_put(Keys::ints([1], 0), None)?;
    /// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    /// assert_eq!(store.lookup_to_put(Keys::ints([1], 0), None)?.missing(), 0);
    /// let mut rows = store.lookup_to_put(Keys::ints([1], 0), Some(&RecomputeSession::new()))?;
    /// store.insert(&mut rows, &[0], vec![Column::dense(&[20])])?;
    /// store.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup). Also returns an error if the folder cannot be listed or is gone, or if a change cannot be read that may
    /// have replaced rows. Without `recompute`, it also returns one if rows are missing and some of the folder cannot be read.
    pub fn lookup_to_put(&self, keys: Keys, recompute: Option<&Arc<RecomputeSession>>) -> Result<Lookup> {
        self.refresh_and_look_again()?;
        self.check_commits()?;
        let options = LookupOptions { recompute, uncounted: true, ..LookupOptions::default() };
        let mut lookup = self.lookup_with(keys, options)?.for_puts();
        let is_unread = recompute.is_none() && lookup.seen().is_unread;
        if lookup.missing() > 0 && (is_unread || lookup.seen().is_in_doubt) {
            let what = if is_unread { "a change" } else { "rows" };
            let why = io::Error::other(format!("{what} of it cannot be read now, and may have these values"));
            return Err(Error::io("cannot put values in", self.path(), why));
        }
        if recompute.is_none() {
            // A value that is put for a row which others may serve needs a tombstone. A session writes one for all.
            self.note_hidden(&mut lookup)?;
        }
        Ok(lookup)
    }

    /// Notes why rows are missing that others may serve, or that are in the write buffer all the same.
    fn note_hidden(&self, lookup: &mut Lookup) -> Result<()> {
        let core = self.reader()?;
        if !lookup.is_to_be_noted() {
            return Ok(());
        }
        // The buffer first, as every lookup does: a row leaves it only after the snapshot has its segment.
        let is_held = |&position: &usize| core.buffer.holds(lookup.keys(), position);
        let held: Vec<usize> = lookup.all_missing_positions().filter(is_held).collect();
        note_elsewhere(lookup, &core.snapshot());
        for position in held {
            if lookup.cause(position) == Some(Cause::Absent) {
                lookup.missed(position, Cause::Expired);
            }
        }
        Ok(())
    }

    /// Notes which of the missing rows others may serve, where that matters, and returns whether any of these is hidden by a change that
    /// cannot be read: what was computed instead is as good, and would live on beside it. Not where a session recomputes rows: its tombstone
    /// kills them.
    pub(crate) fn are_hidden(&self, lookup: &mut Lookup, positions: &[usize]) -> Result<bool> {
        let is_unread = lookup.seen().is_unread;
        // A row with another stamp that is too old here, or damaged, needs a tombstone.
        let matters = is_unread || lookup.keys().stamps().is_some();
        if lookup.recompute().is_some() || !matters {
            return Ok(false);
        }
        self.note_hidden(lookup)?;
        let is_hidden = |&position: &usize| lookup.cause(position).is_some_and(Lookup::is_elsewhere);
        Ok(is_unread && positions.iter().any(is_hidden))
    }

    /// A value that is put for a row which cannot be found now would die by the change that has replaced the row, or by one of this
    /// process after it.
    fn check_commits(&self) -> Result<()> {
        let core = self.reader()?;
        let (unread, is_listed) = {
            let live = core.live();
            (live.changes.unread_commit(), !live.changes.needs_listing() && live.check_listed().is_ok())
        };
        if !is_listed {
            let why = io::Error::other(
                "its files could not be listed: the folder may be gone for a while; restore it, or open the module again",
            );
            return Err(Error::io("cannot put values in", core.storage.path(), why));
        }
        let Some(unread) = unread else { return Ok(()) };
        let path = core.storage.path().join(FileName::Change(unread).to_string());
        Err(Error::io(
            "cannot put values: rows wait for the change",
            path,
            io::Error::other("it cannot be read"),
        ))
    }

    /// Why rows are not kept that would die by a change that was known before they were computed.
    fn maybe_replaced(&self) -> Error {
        let what = "when they were looked up, the folder could not be listed, or a change or rows in it could not be read: another process may have replaced them";
        Error::io("cannot keep rows in", self.path(), io::Error::other(what))
    }

    /// Rejects found rows: those at `positions` become missing, and the rows that are inserted for them replace them in every
    /// process. They count as misses, except in a lookup [to put](Self::lookup_to_put) rows, which is not counted.
    ///
    /// Returns `false`, and rejects nothing, if rows were invalidated or replaced since the lookup, or if that was not known to it: the
    /// lookup is then as if it were made now, so its found rows have to be judged again. Rows that were computed for the others would
    /// die by what another process has done before.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
    /// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 255])])?;
    /// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
    /// assert!(store.reject(&mut rows, &[1])?);
    /// assert_eq!(rows.distinct_missing_positions(), [1]);
    /// store.insert(&mut rows, &[1], vec![Column::dense(&[20])])?;
    /// store.flush()?;
    /// assert_eq!(store.lookup(Keys::ints([2], 0))?.bytes(0, 0), [20]);
    /// assert_eq!(store.stats().miss_causes.rejected, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is not the one that was opened.
    ///
    /// # Panics
    ///
    /// If a position is not below `lookup.len()`.
    pub fn reject(&self, lookup: &mut Lookup, positions: &[usize]) -> Result<bool> {
        let (core, counted) = (self.reader()?, lookup.counts());
        // A lookup to put rows has looked for changes itself.
        if lookup.is_for_puts() {
            reopen(lookup, positions);
            return Ok(true);
        }
        let is_current = core.is_current(lookup)?;
        if is_current {
            reopen(lookup, positions);
        } else {
            core.look_up_again(lookup);
        }
        core.recounted(&counted, lookup);
        Ok(is_current)
    }

    /// Adds the rows of the keys at `positions` of `lookup`, one column per leaf, and completes the lookup with them. At a position that
    /// was found, the new row takes the place of that one. The rows are readable at once, and durable after the next
    /// [`flush`](Self::flush). Waits while the write buffer is full. While writing is off, the rows complete the lookup but are not stored.
    ///
    /// # Errors
    ///
    /// Returns an error if the columns do not match the schema, if the lookup belongs to another store, if the store is
    /// read-only, or if the folder is not the one that was opened.
    ///
    /// # Panics
    ///
    /// If a position is not below `lookup.len()`.
    pub fn insert(&self, lookup: &mut Lookup, positions: &[usize], columns: Vec<Column>) -> Result<()> {
        self.insert_for(&self.losses, lookup, positions, columns, None).map(drop)
    }

    /// As [`insert`](Self::insert), of rows that become durable only if `attestation` still holds when they are written:
    /// otherwise they are dropped, and [`flush`](Self::flush) says why.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert). Also returns an error if this attestation was refused before.
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_attested(
        &self,
        lookup: &mut Lookup,
        positions: &[usize],
        columns: Vec<Column>,
        attestation: &Arc<Attestation>,
    ) -> Result<()> {
        self.insert_for(&self.losses, lookup, positions, columns, Some(attestation)).map(drop)
    }

    /// As [`insert`](Self::insert), or [`insert_attested`](Self::insert_attested) where there is an attestation, for one of
    /// several users of the store: what is lost of the rows is added to their `losses`, and reported by
    /// [`flush_for`](Self::flush_for). Returns whether the rows are kept: not while writing is off, in a folder that is full, in a
    /// forked process, or if they may have been replaced and the folder, or rows in it, could not be read. A full folder and a forked process add nothing to the losses.
    ///
    /// # Errors
    ///
    /// As [`insert_attested`](Self::insert_attested).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_for(
        &self,
        losses: &Arc<Losses>,
        lookup: &mut Lookup,
        positions: &[usize],
        columns: Vec<Column>,
        attestation: Option<&Arc<Attestation>>,
    ) -> Result<bool> {
        if let Some(why) = attestation.and_then(|attestation| attestation.refused()) {
            return Err(why.clone());
        }
        let core = self.reader()?;
        core.check()?;
        // A lookup may be older than the fork that a store was inherited by.
        if !lookup.has_leaves(&core.leaves) && !lookup.has_leaves(&self.core.leaves) {
            return Err(Error::invalid(format!(
                "cannot add rows to {}: the lookup belongs to another store; look the keys up in this one",
                self.path().display()
            )));
        }
        let writer = if self.is_inherited() { None } else { Some(self.writer()?) };
        if writer.is_some_and(Writer::is_own_thread) {
            let message = "an attestation adds rows to the store whose rows it attests, which may have no room for them before it has answered: add them elsewhere";
            return Err(Error::invalid(message));
        }
        let keeping = Keeping {
            attestation: attestation.cloned(),
            losses: losses.clone(),
            rejections: &self.rejections,
        };
        let are_hidden = self.are_hidden(lookup, positions)?;
        let batch = lookup.take(positions, columns, Some(keeping))?;
        if batch.rows() == 0 {
            return Ok(true);
        }
        let Some(writer) = writer else {
            // The parent's buffer is the parent's.
            core.counters.rows_dropped.add(batch.rows());
            return Ok(false);
        };
        let tombstones = &core.snapshot().tombstones;
        // What a session recomputes gets a tombstone, which kills hidden rows as well.
        let may_hide =
            are_hidden || lookup.recompute().is_none() && batch.seen.may_hide(tombstones, &batch.keys);
        if may_hide || batch.seen.may_be_replaced(tombstones, &batch.keys) {
            core.counters.rows_dropped.add(batch.rows());
            batch.lost(batch.rows(), &self.maybe_replaced());
            return Ok(false);
        }
        if self.core.is_full() {
            self.core.counters.rows_dropped.add(batch.rows());
            self.core.report_full();
            return Ok(false);
        }
        let (accepted, died) = self.core.buffer.accept(&batch, || writer.seal());
        if accepted == Accepted::No {
            self.core.counters.rows_dropped.add(batch.rows());
        } else {
            self.core.counters.rows_accepted.add(batch.rows());
            self.core.counters.bytes_accepted.add(batch.bytes());
            self.core.counters.drop_superseded(died);
        }
        match accepted {
            Accepted::First => writer.rows_came(),
            Accepted::Full => writer.seal(),
            Accepted::Yes | Accepted::No => {}
        }
        Ok(accepted != Accepted::No)
    }
}

fn reopen(lookup: &mut Lookup, positions: &[usize]) {
    for &position in positions {
        lookup.reopen(position, Cause::Rejected);
    }
}
