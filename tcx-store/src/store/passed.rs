//! Checks of its outputs that a module has passed.

use super::Store;

impl Store {
    /// Whether a process has [recorded](Self::record_passed) that this module passed `checks`: everything that matters for them but
    /// the identity of the module, such as their version and that of the libraries.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec.clone(), &Options::default())?;
    /// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
    /// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
    /// store.record_passed("deterministic 1, cpu");
    /// drop(store); // written with the rows, or after them
    /// let store = Store::open(dir.path(), spec, &Options::default())?;
    /// assert!(store.has_passed("deterministic 1, cpu"));
    /// assert!(!store.has_passed("deterministic 1, cuda"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_passed(&self, checks: &str) -> bool {
        self.core.has_passed(checks)
    }

    /// Records that this module has passed `checks`, as soon as its folder is there; never, if the store is open to read only, or
    /// [inherited](Self::is_inherited) by a forked process. What keeps the record from the disk is ignored.
    pub fn record_passed(&self, checks: &str) {
        if !self.is_inherited() {
            self.core.record_passed(checks);
        }
    }

    /// Removes what was recorded of `checks`, by whatever process. What keeps it from the disk is ignored.
    pub fn forget_passed(&self, checks: &str) {
        self.core.forget_passed(checks, self.is_inherited());
    }
}
