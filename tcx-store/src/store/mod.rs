//! A store: the rows of one module in one folder, shared by all handles of the process.

#[cfg(unix)]
pub(crate) mod at_exit;
pub(crate) mod browse;
pub(crate) mod computed;
pub(crate) mod describe;
pub(crate) mod disk_usage;
mod flush;
pub(crate) mod inherited;
pub(crate) mod insert;
pub(crate) mod invalidate;
pub(crate) mod leases;
pub(crate) mod lookup;
pub(crate) mod memory;
mod open_stores;
pub(crate) mod passed;
pub(crate) mod place;
mod separate;
pub(crate) mod sessions;
pub(crate) mod stored_keys;
mod trim;
mod unreadable;
pub(crate) mod upkeep;

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread;

use crate::changes::IdentityChange;
use crate::computed::losses::Losses;
use crate::computed::recompute::RecomputeSession;
use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::schema::spec::Spec;
use crate::stats::Stats;
#[cfg(any(test, feature = "testing"))]
use crate::storage::Storage;
use crate::storage::name::FileName;
use crate::store::inherited::Reopened;
use crate::store::open_stores::{Closing, Opening};
use crate::store::place::Place;
use crate::sys::fork::Process;
use crate::write::{Writer, WriterIntervals};

/// So often a call lists the folder again because it changes, or because of files that look damaged.
const LOOKS_AT_MOST: usize = 3;

/// The rows of one module: found by key, added in batches, made durable in the background.
///
/// A process has one store per folder; opening it again shares it. Dropping the last handle seals what
/// is buffered; only [`flush`](Self::flush) returns whether that worked. A process that was forked after the store was opened
/// [opens it again](Self::is_inherited) to write.
///
/// ```
/// use tcx_store::{Column, ColumnType, DType, Field, Identity, KeyType, Keys, Options, Spec, Store};
///
/// const OUTPUT: ColumnType = ColumnType::Struct(&[
///     Field { name: "embedding", column: ColumnType::Dense { dtype: DType::U8, shape: &[2] } },
///     Field { name: "caption", column: ColumnType::Text },
/// ]);
/// let dir = tempfile::tempdir()?;
/// let spec = Spec::new("clip_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
///
/// let mut rows = store.lookup(Keys::text(["cat", "dog"], 0)?)?;
/// let missing = rows.distinct_missing_positions();
/// assert_eq!(missing, [0, 1]);
/// let columns = vec![Column::dense(&[1, 2, 3, 4]), Column::text(["a cat", "a dog"])];
/// store.insert(&mut rows, &missing, columns)?;
/// assert_eq!(rows.bytes(0, 1), [3, 4]);
/// assert_eq!(rows.text(1, 1)?, "a dog");
/// store.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    pub(crate) core: Arc<Core>,
    /// Absent as long as the store is open to read only.
    writer: OnceLock<Writer>,
    /// Behind the writer, which has ended when this is dropped, or keeps one itself.
    closing: Closing,
    times: WriterIntervals,
    pub(crate) options: Options,
    /// The one that has the threads of this store.
    pub(crate) process: Process,
    pub(crate) reopened: Reopened,
    /// Of those who insert without naming others.
    pub(crate) losses: Arc<Losses>,
    /// Takes the place of rows that were found and rejected. One for all: each recompute session costs a tombstone a seal.
    pub(crate) rejections: Arc<RecomputeSession>,
    /// What its users share beside it.
    companion: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Store {
    /// Opens the folder of `spec`'s module in the cache directory `cache`, or [that of its identity](crate::OnMismatch). Nothing is
    /// created before the first rows are sealed. Where this process has the store open already, that one is shared. Where it is just dropping
    /// the last handle of it, this waits until that has ended: rows that were buffered are written then, which takes at least 10 seconds if
    /// the folder cannot be written.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder belongs to another identity, schema or key type; if change 0 is damaged; if the folder
    /// cannot be listed; or if this process has the store open with other options. (They may differ in
    /// [`read_only`](Options::read_only).) The message names both sides.
    pub fn open(cache: &Path, spec: Spec, options: &Options) -> Result<Arc<Self>> {
        Self::open_at(&Place::directory(cache)?, spec, options)
    }

    /// Opens the folder of `spec`'s module, wherever it is.
    pub(crate) fn open_at(place: &Place<'_>, spec: Spec, options: &Options) -> Result<Arc<Self>> {
        let open_stores = place.open_stores().get();
        let folders = [&*spec.module_id, &*spec.separate_folder()].map(|name| place.folder(name));
        let (store, is_new_writer) = loop {
            let mut opening = Opening::new(&open_stores);
            if let Some(closing) = opening.closing(&folders.each_ref().map(|folder| &**folder)) {
                // Without the lock: it may write a lot.
                drop(opening);
                closing.wait();
                continue;
            }
            let store = Self::open_or_share(place, &mut opening, spec, options)?;
            let is_new_writer = !options.read_only && store.allow_writing()?;
            break (store, is_new_writer);
        };
        if is_new_writer {
            // Without the lock: an eviction policy may open a store.
            store.core.keep_within_limits()?;
        }
        Ok(store)
    }

    fn open_or_share(
        place: &Place<'_>,
        opening: &mut Opening<'_>,
        spec: Spec,
        options: &Options,
    ) -> Result<Arc<Self>> {
        let folder = separate::folder(place, opening, &spec, options)?;
        let dir = place.folder(&folder);
        // A store that was refused, or that waits for a folder that was removed, stays so for its handles; who opens again
        // gets a new one.
        if let Some(store) = opening.last(&dir).filter(|store| !store.is_given_up()) {
            return store.shared_with(&spec, options);
        }
        let storage = place.storage(&folder, options.read_mode)?;
        let store = Arc::new(Self::of(Core::open(storage, spec, options)?, options));
        opening.add(dir, &store);
        Ok(store)
    }

    /// A store that is not shared.
    #[cfg(test)]
    pub(crate) fn with_storage(storage: Arc<dyn Storage>, spec: Spec, options: &Options) -> Result<Self> {
        let store = Self::of(Core::open(storage, spec, options)?, options);
        if !options.read_only && store.allow_writing()? {
            store.core.keep_within_limits()?;
        }
        Ok(store)
    }

    /// A store whose owner seals its buffer.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn without_writer(storage: Arc<dyn Storage>, spec: Spec, options: &Options) -> Result<Self> {
        let mut store = Self::of(Core::open(storage, spec, options)?, options);
        store.writer = Writer::none(store.core.clone()).into();
        Ok(store)
    }

    fn of(core: Core, options: &Options) -> Self {
        Self {
            core: Arc::new(core),
            writer: OnceLock::new(),
            closing: Closing::default(),
            times: WriterIntervals::new(options),
            options: options.clone(),
            process: Process::current(),
            reopened: Reopened::new(),
            losses: Arc::default(),
            rejections: RecomputeSession::of_rejections(),
            companion: OnceLock::new(),
        }
    }

    /// Starts the writer, unless there is one; whether it did. Who did must [keep the store within its limits](Core::keep_within_limits).
    /// A caller that shares a store holds the lock of the open ones.
    fn allow_writing(&self) -> Result<bool> {
        let is_new = self.writer.get().is_none();
        if is_new {
            let writer = Writer::start(self.core.clone(), self.times, self.closing.clone())?;
            // Elsewhere `std::process::exit` calls nothing.
            #[cfg(unix)]
            at_exit::flush_at_exit();
            self.core.allow_writing();
            // There was none.
            let _ = self.writer.set(writer);
        }
        Ok(is_new)
    }

    /// A value that all users of this store in this process share, made for the first of them: what they must agree on beside
    /// the rows. A store has one such value.
    ///
    /// ```
    /// # use tcx_store::{ColumnType, DType, Identity, KeyType, Options, Spec, Store};
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let dir = tempfile::tempdir()?;
    /// use std::sync::Mutex;
    ///
    /// let open = || Store::open(dir.path(), spec.clone(), &Options::default());
    /// let (one, other) = (open()?, open()?);
    /// *one.companion::<Mutex<i32>>().expect("it is the first").lock().unwrap() += 1;
    /// assert_eq!(*other.companion::<Mutex<i32>>().expect("it is of this type").lock().unwrap(), 1);
    /// assert!(other.companion::<String>().is_none(), "there is one of another type");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn companion<T: Default + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let companion = self.companion.get_or_init(|| Arc::new(T::default()));
        companion.clone().downcast().ok()
    }

    /// The writer, unless the store is read-only.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked process, which has no writer.
    pub(crate) fn writer_if_any(&self) -> Result<Option<&Writer>> {
        self.check_process()?;
        Ok(self.writer.get())
    }

    pub(crate) fn take_writer(&mut self) -> Option<Writer> {
        self.writer.take()
    }

    /// The writer of a store that is not read-only.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer_if_any()?.ok_or_else(|| {
            let (module, path) = (&self.core.spec.module_id, self.path().display());
            Error::of_kind(
                ErrorKind::InvalidOptions,
                format!("the cache of `{module}` at {path} is open for reading only: open it for writing"),
            )
        })
    }

    fn shared_with(self: Arc<Self>, spec: &Spec, options: &Options) -> Result<Arc<Self>> {
        let difference = IdentityChange::new(&self.core.spec).difference(spec);
        if !difference.is_empty() {
            return Err(crate::changes::instance::refused(
                &spec.module_id,
                self.core.storage.path(),
                &difference,
            ));
        }
        let difference = self.options.difference(options);
        if !difference.is_empty() {
            let settings: Vec<_> = difference.iter().map(ToString::to_string).collect();
            let (module, path, settings) = (&spec.module_id, self.path().display(), settings.join("; "));
            return Err(Error::of_kind(
                ErrorKind::InvalidOptions,
                format!(
                    "this process has the cache of `{module}` at {path} open with other settings: {settings}; \
                 open it with the same settings, or drop first what has it open: every handle of `{module}`, and every cache object that \
                 has opened one"
                ),
            ));
        }
        Ok(self)
    }

    /// Lists the folder now, to find rows of other processes.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or is not the one that was opened.
    pub fn refresh(&self) -> Result<()> {
        let core = self.reader()?;
        core.check()?;
        core.refresh_now().map(drop)
    }

    /// As [`refresh`](Self::refresh), of a folder that does not change during the listing, where that is possible: a listing may lack a file
    /// and what it was joined into, if one went behind its back and the other came. Files that look damaged and may have been misread are
    /// looked at again.
    pub(crate) fn refresh_and_look_again(&self) -> Result<()> {
        let core = self.reader()?;
        for look in 0..=LOOKS_AT_MOST {
            let before = core.storage.stamp().unwrap_or_default();
            self.refresh()?;
            // What had changed in the moment of such a coarse stamp has changed before the second listing.
            let is_sure = look > 0 || core.is_stamp_settled();
            let is_same = is_sure && core.storage.stamp().unwrap_or_default() == before;
            match core.another_look_in() {
                Some(left) if look < LOOKS_AT_MOST => thread::sleep(left),
                None if !is_same => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Whether the folder is full, so that new rows are not stored ([`WhenFull::StopWriting`](crate::WhenFull::StopWriting)).
    pub fn is_full(&self) -> bool {
        self.reader().is_ok_and(|core| core.is_full())
    }

    /// Why writing is off, if it is.
    pub(crate) fn write_failure(&self) -> Option<Error> {
        self.reader().map_or_else(Some, |core| core.buffer.write_failure())
    }

    /// How many index runs lead to the rows.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> usize {
        self.core.snapshot().runs.len()
    }

    fn is_given_up(&self) -> bool {
        // Where a put was refused, nothing waits that could fail.
        let is_idle = || self.core.buffer.waiting().0 == 0 && self.core.live().check_listed().is_err();
        let waits_for_folder = || is_idle() || self.write_failure().is_some_and(|error| error.is_not_found());
        let is_file = |name: &String| FileName::parse(name).is_some();
        let is_empty = || self.core.storage.list().is_ok_and(|names| !names.iter().any(is_file));
        self.core.check().is_err() || waits_for_folder() && is_empty()
    }

    /// The folder of the store.
    pub fn path(&self) -> &Path {
        self.core.storage.path()
    }

    /// The counters of this store since this process opened it.
    pub fn stats(&self) -> Stats {
        self.reader().map_or_else(|_| Stats::default(), |core| core.stats())
    }
}

/// Waits until the stores are closed in directories whose last handle another thread is dropping.
#[cfg(unix)]
pub(crate) fn wait_for_closing_stores() {
    let closing = place::OPEN.get().lock().unwrap_or_else(PoisonError::into_inner).all_closing();
    closing.iter().for_each(open_stores::Closed::wait);
}

/// The stores that this process has open in directories.
#[cfg(unix)]
pub(crate) fn open_stores() -> Vec<Arc<Store>> {
    let open = place::OPEN.get();
    let open = open.lock().unwrap_or_else(PoisonError::into_inner);
    open.all()
}
