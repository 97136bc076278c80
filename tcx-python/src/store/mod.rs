//! A table of a cache: lookups, inserts, upkeep.

pub(crate) mod attestation;
pub(crate) mod dropped;
pub(crate) mod folders;
pub(crate) mod memory;
mod mode;
pub(crate) mod object_store;
mod options;
mod put;
pub(crate) mod sharing;
mod stats;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tcx_store::{Leaf, LookupOptions};

use crate::interop::error::{OrRaise, invalid, of_kind};
use crate::interop::notices;
use crate::rows::column::Column;
use crate::rows::found::{Rows, Targets};
use crate::schema::keys::{Keys, id_of};
use crate::schema::spec::Spec;
use attestation::Attestation;
use mode::Opened;
use put::{Put, Values};

/// When the segment of a row was computed, in seconds since 1970, the name of its file, and the bytes of the row.
type Described = (f64, Option<String>, u64);

/// A table that this process has open.
///
/// Its handle is swapped without a lock: a lock that another thread holds at a `fork` stays locked in the child.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Store {
    opened: ArcSwapOption<Opened>,
    module: String,
    path: PathBuf,
    leaves: Vec<Leaf>,
}

impl Store {
    fn opened(&self) -> PyResult<Arc<Opened>> {
        self.opened.load_full().ok_or_else(|| {
            of_kind("Closed", &format!("the cache of `{}` is closed: open it again", self.module))
        })
    }

    /// Runs without the GIL.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Opened) -> tcx_store::Result<T> + Send,
    ) -> PyResult<T> {
        let opened = self.opened()?;
        // The handle is dropped without the GIL too: the last one waits for the writer, which may need the GIL to ask for weights.
        let ran = py.detach(move || {
            let ran = run(&opened);
            drop(opened);
            ran
        });
        notices::report(py);
        ran.or_raise()
    }

    /// Runs on the store, which a handle in the mode `off` does not have.
    fn run_on_store<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Arc<tcx_store::Store>) -> tcx_store::Result<T> + Send,
    ) -> PyResult<T> {
        let opened = self.opened()?;
        if opened.store().is_none() {
            let module = &self.module;
            return Err(of_kind(
                "WrongMode",
                &format!(
                    "module `{module}`: cannot read rows: this handle has mode `off`; open the module in another mode"
                ),
            ));
        }
        self.run(py, |opened| opened.store().map(run).transpose())?
            .ok_or_else(|| of_kind("WrongMode", "this handle has mode `off`"))
    }

    /// As [`run_on_store`](Self::run_on_store), on one whose rows may change.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Arc<tcx_store::Store>) -> tcx_store::Result<T> + Send,
    ) -> PyResult<T> {
        if !self.opened()?.writes() {
            let (module, mode) = (&self.module, self.opened()?.mode());
            return Err(of_kind(
                "WrongMode",
                &format!(
                    "module `{module}`: cannot change rows: this handle has mode `{mode}`; open the module in mode `read_write`"
                ),
            ));
        }
        self.run_on_store(py, run)
    }

    fn rows(&self, lookup: tcx_store::Lookup) -> Rows {
        Rows::new(lookup, self.leaves.clone())
    }
}

#[pymethods]
impl Store {
    /// Opens a table in a directory, in memory, or in an object store.
    #[new]
    fn new(
        py: Python<'_>,
        place: &Bound<'_, PyAny>,
        spec: &Spec,
        options: &Bound<'_, PyDict>,
        mode: &str,
    ) -> PyResult<Self> {
        notices::listen();
        let spec = spec.get().clone();
        let (module, leaves) = (spec.module_id().to_owned(), spec.leaves().to_vec());
        let place = memory::Place::of(place)?;
        let options = options::options(options)?;
        let mode = mode::Mode::of(mode)?;
        let opened = py.detach(|| Opened::new(&place, spec, &options, mode));
        notices::report(py);
        let opened = opened.or_raise()?;
        let path =
            opened.store().map_or_else(|| place.path().join(&module), |store| store.path().to_path_buf());
        Ok(Self { opened: ArcSwapOption::from_pointee(opened), module, path, leaves })
    }

    /// The folder of the table.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Whether this process was forked from the one that opened the table: then it reads, and opens it again to write.
    #[getter]
    fn is_inherited(&self) -> bool {
        self.opened
            .load()
            .as_ref()
            .is_some_and(|opened| opened.store().is_some_and(|store| store.is_inherited()))
    }

    /// Whether the folder is full, so that new rows are not stored.
    fn is_full(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |opened| Ok(opened.store().is_some_and(|store| store.is_full())))
    }

    /// Looks up rows. Those that are found are copied into `into`: the number of a dense column, an address and a number of bytes each.
    #[pyo3(signature = (keys, into, leaves=None, uncounted=false))]
    fn lookup(
        &self,
        py: Python<'_>,
        keys: &Keys,
        into: Vec<(usize, usize, usize)>,
        leaves: Option<Vec<usize>>,
        uncounted: bool,
    ) -> PyResult<Rows> {
        let keys = keys.get();
        let leaves: Option<Arc<[usize]>> = leaves.map(Into::into);
        let found = self.run(py, |opened| {
            let mut into = Targets::new(into);
            let destinations = &mut into.destinations()[..];
            let options = LookupOptions { leaves: leaves.as_ref(), destinations, uncounted, recompute: None };
            opened.lookup(keys.clone(), options)
        })?;
        Ok(self.rows(found))
    }

    /// Looks up the missing rows again.
    fn lookup_again(&self, py: Python<'_>, rows: &Rows) -> PyResult<()> {
        self.run(py, |opened| opened.lookup_again(&mut rows.lock()))
    }

    /// Stores values, one row of each column for each key: for the keys that have none, or with `replaces` for all of them, durably. Returns
    /// their number.
    fn put(
        &self,
        py: Python<'_>,
        keys: &Keys,
        columns: Vec<PyRef<'_, Column>>,
        replaces: bool,
    ) -> PyResult<usize> {
        let columns = columns.iter().map(|column| column.take()).collect::<PyResult<Vec<_>>>()?;
        let (keys, module) = (keys.get(), &self.module);
        if columns.len() != self.leaves.len() {
            return Err(invalid(format!("expected {} columns, found {}", self.leaves.len(), columns.len())));
        }
        let values = Values { keys, columns: &columns, leaves: &self.leaves };
        match self.run(py, |opened| opened.put(&values, replaces))? {
            Put::Stored(rows) => Ok(rows),
            Put::Full => Err(of_kind(
                "Full",
                &format!(
                    "module `{module}`: its folder is full, so the values were not stored; raise `max_bytes`, or remove rows"
                ),
            )),
            Put::TooLarge { position, bytes, most } => Err(of_kind(
                "Full",
                &format!(
                    "module `{module}`: cannot store the value for id {position} of the batch: `max_bytes` allows {most} bytes for all values, this one has {bytes}; raise \
                     `max_bytes`, or store the value in parts"
                ),
            )),
        }
    }

    /// Adds the rows at `positions`, and completes the lookup with them. Returns whether they are kept.
    #[pyo3(signature = (rows, positions, columns, attestation=None))]
    fn insert(
        &self,
        py: Python<'_>,
        rows: &Rows,
        positions: Vec<usize>,
        columns: Vec<PyRef<'_, Column>>,
        attestation: Option<&Attestation>,
    ) -> PyResult<bool> {
        let columns = columns.iter().map(|column| column.take()).collect::<PyResult<Vec<_>>>()?;
        let attestation = attestation.map(Attestation::get);
        let len = py.detach(|| rows.lock().len());
        if positions.iter().any(|&position| position >= len) {
            return Err(invalid("a position is not one of the batch"));
        }
        self.run(py, |opened| opened.complete(&mut rows.lock(), &positions, columns, attestation))
    }

    /// Counts rows that were computed in this number of seconds.
    fn computed(&self, py: Python<'_>, rows: usize, seconds: f64) -> PyResult<()> {
        let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let start = Instant::now().checked_sub(took).unwrap_or_else(Instant::now);
        self.run(py, |opened| {
            opened.store().inspect(|store| store.computed(rows, start));
            Ok(())
        })
    }

    /// Waits until all rows accepted so far are durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Opened::flush)
    }

    /// As `flush`; rows that wait on this machine for a store that cannot be reached are sent by the next process.
    fn flush_at_exit(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Opened::flush_at_exit)
    }

    /// Waits until all rows accepted so far are durable on this machine.
    fn flush_local(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Opened::flush_local)
    }

    /// Lists the folder now, to find rows of other processes.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.run_on_store(py, |store| store.refresh())
    }

    /// Brings rows into memory. Returns how many are stored.
    fn prefetch(&self, py: Python<'_>, keys: &Keys) -> PyResult<usize> {
        let keys = keys.get();
        self.run_on_store(py, |store| store.prefetch(keys.clone()))
    }

    /// Invalidates the rows of these ids, in all views.
    fn invalidate(&self, py: Python<'_>, keys: &Keys) -> PyResult<()> {
        let keys = keys.get();
        self.change(py, |store| store.invalidate(keys))
    }

    /// Invalidates the rows of all ids that begin with these bytes.
    fn invalidate_prefix(&self, py: Python<'_>, prefix: &[u8]) -> PyResult<()> {
        self.change(py, |store| store.invalidate_prefix(prefix))
    }

    /// Invalidates every row.
    fn invalidate_all(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |store| store.invalidate_all())
    }

    /// Invalidates the rows that were computed before this time, in seconds since 1970.
    fn invalidate_older_than(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let since = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.change(py, |store| store.invalidate_older_than(UNIX_EPOCH + since))
    }

    /// Joins segments, without dead rows.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |store| store.compact())
    }

    /// Removes files that are not needed and are older than this number of seconds. Returns their number.
    fn collect(&self, py: Python<'_>, seconds: f64) -> PyResult<usize> {
        let age = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.change(py, |store| store.collect(age))
    }

    /// The stored ids of a view.
    fn ids<'py>(&self, py: Python<'py>, view: u32) -> PyResult<Bound<'py, PyList>> {
        let key_type = self.opened()?.key_type();
        let mut keys = self.run_on_store(py, |store| {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            store.each_key(|key, own| {
                if own == view {
                    keys.push(key.to_vec());
                }
            })?;
            Ok(keys)
        })?;
        keys.sort_unstable();
        keys.dedup();
        let ids = keys.iter().map(|key| id_of(py, key_type, key)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, ids)
    }

    /// What is known of the rows of these ids; `None` where there is no row.
    fn describe(&self, py: Python<'_>, keys: &Keys) -> PyResult<Vec<Option<Described>>> {
        let keys = keys.get();
        let facts = self.run_on_store(py, |store| store.describe(keys))?;
        let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let described = facts.into_iter().map(|row| {
            row.map(|row| (since_1970(row.computed), row.segment.map(|name| name.to_string()), row.bytes))
        });
        Ok(described.collect())
    }

    /// Whether a process has recorded that the module passed these checks.
    fn has_passed(&self, py: Python<'_>, checks: &str) -> PyResult<bool> {
        self.run(py, |opened| Ok(opened.store().is_some_and(|store| store.has_passed(checks))))
    }

    /// Records that the module passed these checks.
    fn record_passed(&self, py: Python<'_>, checks: &str) -> PyResult<()> {
        self.run(py, |opened| {
            opened.store().filter(|_| opened.writes()).inspect(|store| store.record_passed(checks));
            Ok(())
        })
    }

    /// Removes such a record.
    fn forget_passed(&self, py: Python<'_>, checks: &str) -> PyResult<()> {
        self.run(py, |opened| {
            opened.store().filter(|_| opened.writes()).inspect(|store| store.forget_passed(checks));
            Ok(())
        })
    }

    /// The counters of this process.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found =
            self.run(py, |opened| Ok(opened.store().map(|store| store.stats()).unwrap_or_default()))?;
        stats::dict(py, &found)
    }

    /// The counters of a table that this process has not opened yet: the same names, and zeros.
    #[staticmethod]
    fn no_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        stats::dict(py, &tcx_store::Stats::default())
    }

    /// The files, the bytes and the reclaimable bytes of the folder.
    fn disk_usage(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let usage = self.run_on_store(py, |store| store.disk_usage())?;
        Ok((usage.files, usage.bytes, usage.dead_bytes))
    }

    /// Closes the table for this handle: what it has accepted is written.
    fn close(&self, py: Python<'_>) {
        let opened = self.opened.swap(None);
        py.detach(move || drop(opened));
        notices::report(py);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Notices wait for the next call: an exception may be on its way, with which no code of Python runs.
        if let Some(opened) = self.opened.swap(None) {
            dropped::let_go(opened);
        }
    }
}
