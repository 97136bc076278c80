//! Invalidation: making rows dead, here and for every other process.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use crate::changes::{Attempt, Doomed, Tombstones, contended};
use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::live::folder::Live;
use crate::schema::key::{KeyType, Keys, MAX_KEY_BYTES};
use crate::store::Store;
use crate::store::stored_keys::Reach;
use crate::store::unreadable::Unreadable;
use crate::sys::clock;

/// Rows are dead once the call returns. This includes rows that are not yet written, and rows that another process looked up
/// before and writes later. Other processes learn of it when they next check the folder.
///
/// An error means that the invalidation is not on disk. It takes effect in this process, which writes it as soon as it can, unless the
/// method says otherwise.
impl Store {
    /// Invalidates the rows of these keys, in all their views.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::text(["train/a", "train/b", "test/c"], 0)?)?;
    /// store.insert(&mut rows, &[0, 1, 2], vec![Column::dense(&[1, 2, 3])])?;
    /// store.invalidate(&Keys::text(["train/a"], 0)?)?;
    /// assert_eq!(store.lookup(rows.keys().clone())?.distinct_missing_positions(), [0]);
    /// store.invalidate_prefix(b"train/")?;
    /// assert_eq!(store.lookup(rows.keys().clone())?.distinct_missing_positions(), [0, 1]);
    /// store.invalidate_where(|key| key.ends_with(b"c"))?;
    /// assert_eq!(store.lookup(rows.keys().clone())?.missing(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the keys have another type, if one change cannot contain them all (16 GiB), if the store is
    /// read-only, if the folder is gone, or if the change cannot be written.
    pub fn invalidate(&self, keys: &Keys) -> Result<()> {
        self.writer()?;
        self.core.check_key_type(keys.key_type())?;
        self.kill_keys((0..keys.len()).map(|position| keys.key(position).into()).collect())
    }

    /// Invalidates the rows of every key that begins with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`invalidate`](Self::invalidate). Also returns an error if the keys are integers, which have no prefix, or if the
    /// prefix is empty or longer than any key.
    pub fn invalidate_prefix(&self, prefix: &[u8]) -> Result<()> {
        let module = &self.core.spec.module_id;
        if self.core.spec.key_type == KeyType::Int {
            let message =
                format!("ids of `{module}` are i64, which have no prefix: invalidate by a predicate");
            return Err(Error::invalid(message));
        }
        if prefix.is_empty() || prefix.len() > MAX_KEY_BYTES {
            return Err(Error::invalid(format!(
                "a prefix of {} bytes: expected 1 to {MAX_KEY_BYTES}; to invalidate everything of `{module}`, use `invalidate_all`",
                prefix.len()
            )));
        }
        self.kill(Doomed::Prefix(prefix.into()))
    }

    /// Invalidates every row.
    ///
    /// # Errors
    ///
    /// As [`invalidate`](Self::invalidate).
    pub fn invalidate_all(&self) -> Result<()> {
        self.kill(Doomed::All)
    }

    /// Invalidates the rows of those stored keys for which `is_doomed` returns `true`. It may be asked for a key several times.
    ///
    /// # Errors
    ///
    /// As [`invalidate`](Self::invalidate). Also returns an error if the folder cannot be listed, or if a file cannot be read, may have been
    /// misread, or has a newer version; the rows of all other files are invalidated even then. Where keys are damaged for good, all rows of
    /// the file are invalidated: any of them may be meant, and another process may have read them before they were damaged.
    pub fn invalidate_where(&self, mut is_doomed: impl FnMut(&[u8]) -> bool) -> Result<()> {
        self.writer()?;
        let mut unreadable = Unreadable::default();
        for _ in 0..KILLED_AT_MOST {
            self.list_all()?;
            let mut keys = Vec::new();
            let visit = self.core.visit_keys(Reach::There, |row| {
                if is_doomed(row.key) {
                    keys.push(row.key.into());
                }
            });
            // What was seen is dead all the same.
            if keys.is_empty() {
                self.keep_gone()?;
            }
            self.kill_keys(keys)?;
            if unreadable.is_all(&visit.unreadable) {
                if self.core.kill_unreadable(&unreadable, visit.known)? {
                    return visit.seen;
                }
                unreadable = Unreadable::default();
                continue;
            }
            // Others may have joined them before they know this: their keys are visited as well.
            self.core.announce_unreadable(&mut unreadable, visit.unreadable)?;
        }
        Err(self.core.not_written(contended()))
    }

    /// Invalidates the rows that were computed before `time`, also those that this process cannot see: rows that another one has not
    /// written yet, and segments that wait on another machine or are joined at the moment. The age of a row is that of the oldest row in
    /// its segment, and times are kept in whole milliseconds: a row of the one that `time` is in dies. Rows that wait to be written here are
    /// written first.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
    /// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
    /// store.invalidate_older_than(SystemTime::now() - Duration::from_hours(1))?;
    /// assert_eq!(store.lookup(rows.keys().clone())?.missing(), 0);
    /// store.invalidate_older_than(SystemTime::now() + Duration::from_secs(1))?;
    /// assert_eq!(store.lookup(rows.keys().clone())?.missing(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed or is gone, if the store is read-only, or if the rows or the change cannot be
    /// written. If the invalidation cannot be written, it has no effect in this process either: call this again.
    pub fn invalidate_older_than(&self, time: SystemTime) -> Result<()> {
        let writer = self.writer()?;
        writer.flush(false)?;
        let invalidated = self.invalidate_stored_before(clock::millis_up(time));
        writer.tidy();
        invalidated
    }

    /// Invalidates what was computed before this time, in milliseconds since 1970.
    pub(crate) fn invalidate_stored_before(&self, limit: u64) -> Result<()> {
        self.list_all()?;
        self.core.kill_older_than(limit)
    }

    /// The positions of the keys that have been invalidated at some time, ascending; they may have been computed again since. An
    /// invalidation [by age](Self::invalidated_before) names no keys.
    pub fn invalidated_positions(&self, keys: &Keys) -> Vec<usize> {
        let tombstones = self.tombstones();
        (0..keys.len()).filter(|&position| tombstones.newest_for_row(keys, position) > 0).collect()
    }

    /// The latest time before which what was computed [has been invalidated](Self::invalidate_older_than), in milliseconds since 1970; 0
    /// if that was never done.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// assert_eq!(store.invalidated_before(), 0);
    /// store.invalidate_older_than(SystemTime::UNIX_EPOCH + Duration::from_secs(5))?;
    /// assert_eq!(store.invalidated_before(), 5000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn invalidated_before(&self) -> u64 {
        self.tombstones().latest_age()
    }

    fn tombstones(&self) -> Arc<Tombstones> {
        let own = |_| self.core.snapshot().tombstones.clone();
        self.reader().map_or_else(own, |core| core.snapshot().tombstones.clone())
    }

    /// Lists the folder, whose rows would not be seen while it is gone.
    fn list_all(&self) -> Result<()> {
        self.refresh_and_look_again()?;
        self.core.live().check_listed()
    }

    /// Makes the removal of files durable. A change that is created does so as well: where none is, a loss of power must not bring back a
    /// file that was removed before it was seen.
    fn keep_gone(&self) -> Result<()> {
        match self.core.storage.sync() {
            // A folder that is gone, or was not made yet, has no files.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("cannot sync", self.path(), error))
            }
            _ => Ok(()),
        }
    }

    fn kill_keys(&self, keys: Vec<Box<[u8]>>) -> Result<()> {
        if keys.is_empty() { self.core.write_invalidations() } else { self.kill(Doomed::Keys(keys)) }
    }

    fn kill(&self, doomed: Doomed) -> Result<()> {
        let writer = self.writer()?;
        let killed = self.core.kill(doomed);
        writer.tidy();
        killed
    }
}

/// So often another process may create a change first before an invalidation by age is an error.
const KILLED_AT_MOST: usize = 64;

impl Core {
    /// Makes rows dead.
    pub(crate) fn kill(&self, doomed: Doomed) -> Result<()> {
        self.check()?;
        let parts = doomed.parts();
        if let Some(what) = parts.iter().find_map(Doomed::too_large) {
            return Err(Error::invalid(what));
        }
        // All of them: what could not be written is dead in this process, and is written later.
        let killed: Vec<_> = parts.into_iter().map(|part| self.kill_at_once(part)).collect();
        killed.into_iter().collect()
    }

    /// Makes rows dead by one change. Between two, lookups and the writer get the lock.
    fn kill_at_once(&self, doomed: Doomed) -> Result<()> {
        let mut live = self.live();
        let killed = match self.ready_to_kill(&mut live)? {
            Err(error) => {
                live.changes.kill_here(doomed, Attempt::new());
                Err(error)
            }
            Ok(()) => live.changes.kill(&*self.storage, doomed).map_err(|e| self.not_written(e)),
        };
        self.install(&mut live);
        killed
    }

    /// Makes dead what was computed before this time, in milliseconds since 1970.
    fn kill_older_than(&self, limit: u64) -> Result<()> {
        self.check()?;
        let mut live = self.live();
        let killed = self.ready_to_kill(&mut live)?.and_then(|()| {
            // Young rows die with the old ones that they were joined with. What they were joined from may come back by a copy.
            self.kill_segments(&mut live, |live| Doomed::OlderThan { limit, dead: live.joined_before(limit) })
        });
        self.install(&mut live);
        killed
    }

    /// Makes segments dead by one change.
    fn kill_segments(&self, live: &mut Live, doomed: impl Fn(&Live) -> Doomed) -> Result<()> {
        for _ in 0..KILLED_AT_MOST {
            let doomed = doomed(live);
            if live.changes.kill_segments(&*self.storage, &doomed).map_err(|e| self.not_written(e))? {
                return Ok(());
            }
        }
        Err(self.not_written(contended()))
    }

    /// Makes durable what has killed rows here, for which there is nothing left to kill: it may have failed to be written.
    fn write_invalidations(&self) -> Result<()> {
        self.check()?;
        let mut live = self.live();
        if live.changes.are_durable() {
            return Ok(());
        }
        let written = self
            .ready_to_kill(&mut live)?
            .and_then(|()| live.changes.write_all(&*self.storage).map_err(|e| self.not_written(e)));
        self.install(&mut live);
        written
    }

    /// Learns of all changes before another is made. The inner error may be over in a moment; the outer one is final.
    pub(super) fn ready_to_kill(&self, live: &mut Live) -> Result<Result<()>> {
        match live.refresh().and_then(|_| live.ensure_to_kill()) {
            Err(error) if error.kind() != ErrorKind::Io && !self.may_be_misread(&error) => {
                self.remember(&error);
                Err(error)
            }
            ready => Ok(ready),
        }
    }

    pub(super) fn not_written(&self, error: io::Error) -> Error {
        Error::io("cannot write a change in", self.storage.path(), error)
    }
}
