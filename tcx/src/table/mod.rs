//! A typed store of samples without a module: for any function of a sample.

mod asynchronous;
mod builder;
mod compute;
mod partial;
mod turn;
mod validate;

pub use builder::TableBuilder;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tcx_store::{Column, Keys, Lookup, RecomputeSession, RowFacts, Stats, Store};

use turn::Turn;
use validate::{Validate, select};

use crate::cache::Shared;
use crate::cache::alone::{Alone, Held, Refused};
use crate::cache::claims::computes;
use crate::cache::coverage::Coverage;
use crate::cache::gather::{Found, Gather};
use crate::cache::mode::{Call, Rows};
use crate::ids::name::name;
use crate::ids::stamp::Stamped;
use crate::ids::{Id, KeyKind, PrefixKind, StringIds};
use crate::output::{CacheableOutput, ColumnWriter, REMEDY};
use crate::tensor::{Device, no_gradients};
use crate::{Error, ErrorKind, Result};

/// A typed store as modules have it, for values of any function: decoded images, tokens, statistics. Made by
/// [`Cache::table`](crate::Cache::table) or [`Table::builder`].
///
/// tcx cannot see when the function changes that computes the values. Give the table a new id then, or keep a version in its
/// [metadata](TableBuilder::metadata).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let cache = tcx::Cache::open(dir.path())?;
/// let lengths = cache.table::<Vec<i64>>("text_lengths_v1")?;
/// let texts = ["a", "bb", "ccc"];
/// let compute = |missing: tcx::Missing<'_, &str>| Ok(missing.ids().map(|id| id.len() as i64).collect());
/// assert_eq!(lengths.get_or_compute(&texts, compute)?, [1, 2, 3]);
/// assert_eq!(lengths.get(&["bb"])?, Some(vec![2]));
/// assert_eq!(lengths.get(&["bb", "dddd"])?, None); // one is missing
/// assert_eq!(lengths.put(&["bb", "dddd"], &vec![0, 4])?, 1); // one was stored before, and stays
/// lengths.replace(&["bb"], &vec![-2])?;
/// assert_eq!(lengths.get(&["bb", "dddd"])?, Some(vec![-2, 4]));
/// assert!(lengths.coverage(&texts)?.is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table<T, K = StringIds> {
    shared: Arc<Shared>,
    id: Box<str>,
    rows: Rows,
    validate: Option<Validate<T>>,
    max_bytes: Option<u64>,
    gather: Gather,
    output_device: Device,
    /// Only one thread at a time computes or stores values with this handle.
    computing: Alone<()>,
    /// Tasks wait for it, before one of them waits for `computing` in a thread.
    turn: Arc<Turn>,
    keys: PhantomData<fn() -> K>,
}

/// A [`Table`] whose ids have stamps, which are `S`: `u64`, or `[u8]` for bytes. Made by
/// [`TableBuilder::stamped`](crate::TableBuilder::stamped).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let cache = tcx::Cache::open(dir.path())?;
/// let sizes: tcx::StampedTable<Vec<i64>> = tcx::Table::builder("sizes_v1").stamped().open(&cache)?;
/// sizes.put(&[("a.jpg", 1)], &vec![10])?;
/// assert_eq!(sizes.get(&[("a.jpg", 1)])?, Some(vec![10]));
/// assert_eq!(sizes.get(&[("a.jpg", 2)])?, None); // it has been edited since
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type StampedTable<T, S = u64> = Table<T, Stamped<StringIds, S>>;

impl<T: CacheableOutput> Table<T> {
    /// The settings of the table `id`, to change some of them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let positive = tcx::Table::<Vec<f32>>::builder("norms_v1")
    ///     .metadata("tokenizer", "bert-base, 2019")
    ///     .validate(|norms| match norms.iter().find(|norm| **norm < 0.) {
    ///         None => Ok(()),
    ///         Some(norm) => Err(tcx::Error::loader(format!("a norm of {norm}"))),
    ///     })
    ///     .open(&cache)?;
    /// positive.put(&["a"], &vec![1.])?;
    /// positive.put(&["b"], &vec![-1.]).unwrap_err();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(id: impl Into<Box<str>>) -> TableBuilder<T> {
        TableBuilder::new(id.into())
    }
}

impl<T: CacheableOutput, K: KeyKind> Table<T, K> {
    /// The values of these ids, if all of them are stored, and `None` if one is missing: [`coverage`](Self::coverage) reports which.
    /// A value that [`validate`](TableBuilder::validate) rejects counts as a miss, with the cause
    /// [`rejected`](crate::MissCauses::rejected).
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, or if the cache is closed.
    pub fn get<I: Id<K>>(&self, ids: &[I]) -> Result<Option<T>> {
        let rows = self.gather.look_up(&self.rows, self.pack(ids)?)?;
        if rows.missing() > 0 {
            return Ok(None);
        }
        let values = self.read(rows)?;
        if self.check(&values).is_ok() {
            return Ok(Some(values));
        }
        let mut rows = self.rows.peek(self.pack(ids)?)?.into();
        self.reject_invalid(&mut rows)?;
        if rows.missing() > 0 {
            return Ok(None);
        }
        // Another thread or process has replaced what was rejected.
        let values = self.read(rows)?;
        Ok(self.check(&values).is_ok().then_some(values))
    }

    /// Reports which of these ids are stored. It reads no values, so values that [`validate`](TableBuilder::validate) is going to
    /// reject count as stored.
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, or if the cache is closed.
    pub fn coverage<I: Id<K>>(&self, ids: &[I]) -> Result<Coverage> {
        Coverage::of(&self.rows, 0, std::iter::once(self.pack(ids)))
    }

    /// Stores the values of those ids that have none yet, and returns how many it has stored: stored values stay as they are, unless
    /// [`validate`](TableBuilder::validate) rejects them. To replace values, use [`replace`](Self::replace).
    ///
    /// If two handles or processes put values of one id at once, each may find none: both calls return `Ok`, and either value
    /// may be served, until one is left when the files of both are joined.
    ///
    /// # Errors
    ///
    /// Returns an error if the numbers of ids and values differ, if `validate` rejects a value (the error names the ids), if a value is
    /// larger than `max_bytes`, if the mode of the handle changes nothing, if the folder cannot be listed or a change in it cannot be
    /// read (another process may have stored or invalidated these values), if values are missing and rows of it cannot be read, or if
    /// the folder is full or cannot be written; nothing is stored then. Otherwise as [`get_or_compute`](Self::get_or_compute).
    pub fn put<I: Id<K>>(&self, ids: &[I], values: &T) -> Result<usize> {
        let columns = self.columns(values, ids.len())?;
        let keys = self.pack(ids)?;
        self.check_passed(&keys, &columns)?;
        self.with_room()?;
        self.check_size(&keys, &columns)?;
        let _alone = self.compute_alone()?;
        let rows = self.rows.for_call();
        let mut found = rows.lookup_to_put(keys)?;
        self.reject_found(&mut found)?;
        self.keep(&rows, found, &columns)
    }

    /// The store, to change what is in it.
    fn writable(&self) -> Result<&Arc<Store>> {
        self.shared.check_usable()?;
        self.rows.writable(&self.id)
    }

    /// The store, if it accepts values.
    fn with_room(&self) -> Result<&Arc<Store>> {
        let store = self.writable()?;
        if store.is_full() { Err(self.full()) } else { Ok(store) }
    }

    fn full(&self) -> Error {
        let error = Error::new(ErrorKind::Full, "its folder is full, so the values were not stored");
        error.in_module(&self.id).with_remedy("raise `max_bytes`, or remove rows")
    }

    /// A value that is larger than the folder may be would evict all others, and itself.
    fn check_size(&self, keys: &Keys, columns: &[Column]) -> Result<()> {
        let Some(max) = self.max_bytes else { return Ok(()) };
        let leaves = T::COLUMN.leaves();
        let bytes = |place| {
            let leaves =
                columns.iter().zip(&leaves).map(|(column, leaf)| column.row(place, &leaf.kind).len());
            leaves.sum::<usize>() as u64
        };
        let Some(place) = (0..keys.len()).find(|&place| bytes(place) > max) else { return Ok(()) };
        let (id, found) = (name(keys, place), bytes(place));
        let message = format!(
            "cannot store the value for id {id}: `max_bytes` allows {max} bytes for all values, this one has {found}"
        );
        let error = Error::new(ErrorKind::Full, message).in_module(&self.id);
        let error = error.with_expected(format!("at most {max} bytes"), format!("{found} bytes"));
        Err(error.with_remedy("raise `max_bytes`, or store the value in parts"))
    }

    /// The folder may have become full since there was room, and writing may be off.
    fn check_kept(&self, rows: &Call<'_>, kept: bool) -> Result<()> {
        if kept {
            return Ok(());
        }
        // Rows that are lost while writing is off are an error of the next flush, which says why.
        let flushed = if self.writable()?.is_full() { Ok(()) } else { rows.flush() };
        rows.forget_losses();
        flushed.and_then(|()| Err(self.full()))
    }

    /// Replaces the stored values with these, durably.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). Also returns an error if the rows cannot be written and synced.
    pub fn replace<I: Id<K>>(&self, ids: &[I], values: &T) -> Result<()> {
        let columns = self.columns(values, ids.len())?;
        let keys = self.pack(ids)?;
        self.check_passed(&keys, &columns)?;
        let store = self.with_room()?;
        self.check_size(&keys, &columns)?;
        let _alone = self.compute_alone()?;
        let (rows, positions) = (self.rows.for_call(), (0..ids.len()).collect::<Vec<_>>());
        let mut replaced = store.lookup_to_put(keys, Some(&RecomputeSession::new()))?;
        self.check_distinct(&replaced)?;
        let kept = rows.complete(&mut replaced, &positions, columns, None)?;
        self.check_kept(&rows, kept)?;
        rows.flush()
    }

    /// Invalidates the values of these ids in every process, whatever their stamps are. Ids are passed without stamps.
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, if the mode of the handle changes nothing, if the cache is closed, or if the
    /// invalidation cannot be written. In the last case it takes effect in this process.
    pub fn invalidate<I: Id<K::Plain>>(&self, ids: &[I]) -> Result<()> {
        let keys = self.pack_as::<K::Plain, I>(ids)?;
        Ok(self.writable()?.invalidate(&keys)?)
    }

    /// Invalidates the values of every id that begins with `prefix`, as [`invalidate`](Self::invalidate). Ids are strings or bytes.
    ///
    /// # Errors
    ///
    /// As [`invalidate`](Self::invalidate). Also returns an error if the prefix is empty.
    pub fn invalidate_prefix(&self, prefix: &K::Prefix) -> Result<()>
    where
        K: PrefixKind,
    {
        Ok(self.writable()?.invalidate_prefix(prefix.as_ref())?)
    }

    /// As [`Cached::describe`](crate::Cached::describe): what is known of the values of these ids, without reading them.
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, if the handle has mode [`Off`](crate::Mode::Off), if the cache is closed, or if the folder
    /// cannot be listed or now belongs to another table.
    pub fn describe<I: Id<K::Plain>>(&self, ids: &[I]) -> Result<Vec<Option<RowFacts>>> {
        let keys = self.pack_as::<K::Plain, I>(ids)?;
        Ok(self.rows.readable(&self.id)?.describe(&keys)?)
    }

    /// Waits until every value stored so far is durable.
    ///
    /// # Errors
    ///
    /// Returns an error if values cannot be written.
    pub fn flush(&self) -> Result<()> {
        self.shared.check_usable()?;
        self.rows.flush()
    }

    /// As [`flush`](Self::flush); for a cache in an object store, it is enough if the values are durable on this machine.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flush_local(&self) -> Result<()> {
        self.shared.check_usable()?;
        self.rows.flush_local()
    }

    /// The counters of this table in this process.
    pub fn stats(&self) -> Stats {
        self.rows.stats()
    }

    /// Waits until no other thread computes or stores values. `None` for a closure or module that uses this table, if another thread does: two
    /// closures that use the table of each other would wait for each other. They may compute a value twice, as two processes may.
    ///
    /// # Errors
    ///
    /// Returns an error if this thread holds the lock, because it would wait for itself, and in a forked process, whose parent
    /// may have held it at the fork.
    fn compute_alone(&self) -> Result<Option<Held<'_, ()>>> {
        let held = if computes() { self.computing.try_lock() } else { self.computing.lock().map(Some) };
        held.map_err(|refused| match refused {
            Refused::Forked => self.shared.forked(),
            Refused::Held => Error::module(
                &self.id,
                "the closure of `get_or_compute` used its own handle to compute or store values: it would wait for itself forever",
                "inside that closure, compute without the handle or use another table",
            ),
        })
    }

    fn pack<I: Id<K>>(&self, ids: &[I]) -> Result<Keys> {
        self.pack_as::<K, I>(ids)
    }

    fn pack_as<A: KeyKind, I: Id<A>>(&self, ids: &[I]) -> Result<Keys> {
        self.shared.check_open()?;
        A::pack(ids, 0).map_err(|error| error.in_module(&self.id))
    }

    fn columns(&self, values: &T, rows: usize) -> Result<Vec<Column>> {
        let _no_grad = no_gradients();
        let mut writer = ColumnWriter::new(rows);
        values.write(&mut writer).map_err(|error| not_as_declared(error).in_module(&self.id))?;
        Ok(writer.finish())
    }

    /// Keeps the rows of the columns that are missing in `found`, and returns their number.
    fn keep(&self, rows: &Call<'_>, mut found: Lookup, columns: &[Column]) -> Result<usize> {
        self.check_distinct(&found)?;
        let missing = found.distinct_missing_positions();
        if missing.is_empty() {
            return Ok(0);
        }
        let kept = rows.complete(&mut found, &missing, select::<T>(columns, &missing), None)?;
        self.check_kept(rows, kept)?;
        Ok(missing.len())
    }

    /// Of an id that comes twice, only one value could be kept.
    fn check_distinct(&self, rows: &Lookup) -> Result<()> {
        let mut seen = std::collections::HashSet::new();
        let repeated = (0..rows.len()).find(|&position| !seen.insert(rows.keys().key(position)));
        repeated.map_or(Ok(()), |position| {
            let id = name(rows.keys(), position);
            let error = Error::batch(format!("id {id} occurs more than once, with a value each"));
            Err(error.in_module(&self.id).with_remedy("pass each id once"))
        })
    }

    fn values(&self, rows: Found) -> Result<T> {
        let values = self.read(rows)?;
        self.check(&values)?;
        Ok(values)
    }

    fn read(&self, rows: Found) -> Result<T> {
        let values = self.gather.read::<T, T>(rows, &self.output_device);
        values.map_err(|error| error.in_module(&self.id))
    }
}

/// A table has no `forward`.
fn not_as_declared(error: Error) -> Error {
    if error.remedy() == Some(REMEDY) {
        error.with_remedy("give a table one value of its type for each id")
    } else {
        error
    }
}

impl<T, K> fmt::Debug for Table<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("id", &self.id).field("rows", &self.rows).finish_non_exhaustive()
    }
}
