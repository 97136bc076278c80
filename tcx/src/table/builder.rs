//! The settings of a table.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Table;
use super::validate::Validate;
use crate::Result;
use crate::cache::Cache;
use crate::cache::alone::Alone;
use crate::cache::gather::Gather;
use crate::identity::Identity;
use crate::ids::stamp::{StampKind, Stamped};
use crate::ids::{KeyKind, StringIds};
use crate::module::registry::check_no_module;
use crate::output::CacheableOutput;
use crate::tensor::Device;

/// The settings of a [`Table`] that decide its values and how they are checked. Limits, a time to live or a compression of its own:
/// [`Cache::with_settings`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let cache = tcx::Cache::open(dir.path())?;
/// let settings = tcx::Table::<Vec<i64>>::builder("token_counts_v1").metadata("tokenizer", "bert-base");
/// let counts = settings.open(&cache)?;
/// counts.put(&["a.txt"], &vec![7])?;
/// assert_eq!(counts.get(&["a.txt"])?, Some(vec![7]));
/// counts.flush()?;
/// // Another tokenizer needs another id.
/// let other = tcx::Table::<Vec<i64>>::builder("token_counts_v1").metadata("tokenizer", "gpt-2");
/// assert!(other.open(&cache).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "`open` opens the table"]
pub struct TableBuilder<T, K = StringIds> {
    id: Box<str>,
    metadata: Vec<(String, String)>,
    validate: Option<Validate<T>>,
    output_device: Device,
    keys: PhantomData<fn() -> K>,
}

impl Cache {
    /// Opens a typed store without a module: for any function of a sample, by string ids.
    ///
    /// # Errors
    ///
    /// As [`TableBuilder::open`](crate::TableBuilder::open).
    pub fn table<T: CacheableOutput>(&self, id: &str) -> Result<Table<T>> {
        Table::builder(id).open(self)
    }
}

impl<T: CacheableOutput> TableBuilder<T> {
    pub(super) fn new(id: Box<str>) -> Self {
        let (metadata, validate, keys) = (Vec::new(), None, PhantomData);
        Self { id, metadata, validate, output_device: Device::CPU, keys }
    }

    /// The type of the ids, instead of strings: [`I64Ids`](crate::I64Ids) or [`BytesIds`](crate::BytesIds). It is part of the table's
    /// identity.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// use tcx::{I64Ids, Table};
    ///
    /// let squares: Table<Vec<i64>, I64Ids> = Table::builder("squares_by_number_v1").keys().open(&cache)?;
    /// let squared = |missing: tcx::Missing<'_, i64>| Ok(missing.ids().map(|id| id * id).collect());
    /// assert_eq!(squares.get_or_compute(&[3, 4], squared)?, [9, 16]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys<K: KeyKind>(self) -> TableBuilder<T, K> {
        let Self { id, metadata, validate, output_device, .. } = self;
        TableBuilder { id, metadata, validate, output_device, keys: PhantomData }
    }

    /// Each id comes with a stamp of its source, `(id, stamp)`: the modification time of a file, or, with `stamped::<[u8]>()`,
    /// bytes such as a hash of it. A value with another stamp is a miss, and the computed value replaces it. The type of stamps
    /// is part of the table's identity.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let lengths = tcx::Table::<Vec<i64>>::builder("stamped_v1").stamped::<u64>().open(&cache)?;
    /// for (changed, text, asked) in [(1, "one", 1), (1, "one", 0), (2, "three", 1)] {
    ///     let mut count = 0;
    ///     let found = lengths.get_or_compute(&[("a.txt", changed)], |missing| {
    ///         count += missing.len();
    ///         Ok(vec![text.len() as i64])
    ///     })?;
    ///     assert_eq!((found, count), (vec![text.len() as i64], asked));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stamped<S: StampKind + ?Sized>(self) -> TableBuilder<T, Stamped<StringIds, S>> {
        let Self { id, metadata, validate, output_device, .. } = self;
        TableBuilder { id, metadata, validate, output_device, keys: PhantomData }
    }
}

impl<T: CacheableOutput, K: KeyKind> TableBuilder<T, K> {
    /// A version or a setting that decides the values. A stored table with other metadata is refused; the message names both
    /// sides.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((name.into(), value.into()));
        self
    }

    /// Checks values before they are stored, and each time they are found, whichever process has stored them: values for which it
    /// returns an error are neither stored nor returned.
    ///
    /// | value | what happens |
    /// |---|---|
    /// | given to [`put`](Table::put) or [`replace`](Table::replace) | an error that names the ids; nothing is stored |
    /// | computed by a closure | an error that names the ids; the other values are stored |
    /// | found by [`get`](Table::get) | a miss |
    /// | found by [`get_or_compute`](Table::get_or_compute) and its other forms | a miss: it is computed again, and replaced |
    /// | found by [`put`](Table::put) | it is replaced |
    ///
    /// It gets the values of a batch together, as they are stored, and one by one if they are rejected.
    ///
    /// A module has no such function, because its `forward` would compute a rejected output again. It returns an error instead: then
    /// nothing of its batch is stored.
    pub fn validate(mut self, validate: impl Fn(&T) -> Result<()> + Send + Sync + 'static) -> Self {
        self.validate = Some(Box::new(validate));
        self
    }

    /// Where tensors are put (the CPU).
    pub fn output_device(mut self, device: impl Into<Device>) -> Self {
        self.output_device = device.into();
        self
    }

    /// Opens the table.
    ///
    /// # Errors
    ///
    /// Returns an error if the id cannot name a folder or belongs to a module of the program, if the stored table has other
    /// columns or other metadata, if libtorch does not have the output device, or if the cache is closed.
    pub fn open(self, cache: &Cache) -> Result<Table<T, K>> {
        let Self { id, metadata, validate, output_device, keys } = self;
        let mut identity = Identity::default();
        identity.type_name("table");
        for (name, value) in &metadata {
            identity.field(name, value);
        }
        check_no_module(&id)?;
        output_device.check()?;
        let rows = cache.open_rows::<T, K>(&id, &identity, &Device::CPU)?;
        let shared = cache.shared().clone();
        let (gather, computing, turn) = (Gather::default(), Alone::default(), Arc::default());
        let max_bytes = cache.settings().limit();
        Ok(Table { shared, id, rows, validate, max_bytes, gather, output_device, computing, turn, keys })
    }
}

impl<T, K> fmt::Debug for TableBuilder<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableBuilder").field("id", &self.id).finish_non_exhaustive()
    }
}
