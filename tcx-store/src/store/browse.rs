//! Lists the stored keys, and loads rows into memory before they are looked up.

use crate::error::Result;
use crate::read::lookup::Lookup;
use crate::read::lookup_options::LookupOptions;
use crate::schema::key::Keys;
use crate::store::Store;
use crate::store::stored_keys::Reach;

impl Store {
    /// Calls `see` with every key that is there now and its view. A key may come several times.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::text(["a", "b"], 0)?)?;
    /// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[1, 2])])?;
    /// let mut keys = Vec::new();
    /// store.each_key(|key, _view| keys.push(key.to_vec()))?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed or is not the one that was opened, or if a file cannot be read.
    pub fn each_key(&self, mut see: impl FnMut(&[u8], u32)) -> Result<()> {
        self.refresh()?;
        self.reader()?.each_key(Reach::Served, |row| see(row.key, row.view))
    }

    /// Some of the keys of a view, at most `most`: enough to see what keys look like. Looks at few rows, however large the store
    /// is.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::text(["a", "b", "c"], 0)?)?;
    /// store.insert(&mut rows, &[0, 1, 2], vec![Column::dense(&[1, 2, 3])])?;
    /// assert_eq!(store.some_keys(0, 2)?, [b"a", b"b"]);
    /// store.flush()?;
    /// assert_eq!(store.some_keys(0, 2)?, [b"a", b"b"]);
    /// assert!(store.some_keys(1, 2)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store was refused or inherited and cannot be read.
    pub fn some_keys(&self, view: u32, most: usize) -> Result<Vec<Vec<u8>>> {
        Ok(self.reader()?.some_keys(view, most))
    }

    /// A lookup that finds nothing: its rows are computed and kept nowhere.
    pub fn empty_lookup(&self, keys: Keys) -> Lookup {
        self.core.spec.empty_lookup(keys)
    }

    /// Brings the rows of these keys into memory, so that a lookup soon after does not wait for the disk. Returns the number of
    /// stored rows; counts neither hits nor misses.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::text(["a"], 0)?)?;
    /// store.insert(&mut rows, &[0], vec![Column::dense(&[1])])?;
    /// store.flush()?;
    /// assert_eq!(store.prefetch(Keys::text(["a", "b"], 0)?)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    pub fn prefetch(&self, keys: Keys) -> Result<usize> {
        self.reader()?.read_ahead.want();
        let rows = self.lookup_with(keys, LookupOptions::uncounted())?;
        rows.bring_into_memory();
        Ok(rows.len() - rows.missing())
    }
}
