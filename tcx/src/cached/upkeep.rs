//! Looking after a cached module: what it has done and takes, and when what it holds is written, looked for and let go of.

use tcx_store::{DiskUsage, Stats};

use crate::Result;
use crate::cached::Cached;
use crate::module::extractor::CachedModule;

impl<M: CachedModule> Cached<M> {
    /// Waits until every row computed so far is durable.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be written, or if rows of this handle were lost since the last call. Other handles of
    /// the module report their own rows.
    pub fn flush(&self) -> Result<()> {
        self.shared().check_usable()?;
        self.rows().flush()
    }

    /// As [`flush`](Self::flush); for a cache in an object store, it is enough if the rows are durable on this machine.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flush_local(&self) -> Result<()> {
        self.shared().check_usable()?;
        self.rows().flush_local()
    }

    /// Looks for rows of other processes now; it happens by itself on a miss and every second (of a cache in an object store: every 30
    /// seconds).
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or if it now belongs to another module.
    pub fn refresh(&self) -> Result<()> {
        self.shared().check_open()?;
        Ok(self.rows().store().map_or(Ok(()), |store| store.refresh())?)
    }

    /// What the module's folder takes on disk, or in memory for a cache [there](crate::Cache::in_memory), and how much of it could
    /// go.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or if it now belongs to another module.
    pub fn disk_usage(&self) -> Result<DiskUsage> {
        self.shared().check_open()?;
        Ok(self.rows().store().map_or(Ok(DiskUsage::default()), |store| store.disk_usage())?)
    }

    /// What this module's cache has done in this process: hits, misses and their causes, what was written, and how long that
    /// took. With the feature `metrics`, the recorder of the crate `metrics` gets the same.
    pub fn stats(&self) -> Stats {
        let mut stats = self.rows().stats();
        stats.non_finite_rows = self.finite.rows();
        stats.rows_rechecked = self.recheck.rows();
        stats.repeated_ids = self.repeated.rows();
        stats
    }

    /// Drops the network of a [lazy module](crate::Cache::lazy_module), and frees its memory; it is built again when a
    /// sample is missing. Waits for batches that other threads compute. Returns whether there was one to drop: a module that was handed
    /// over stays.
    ///
    /// ```
    /// # use tch::{Device, Tensor};
    /// # use tcx::{Cache, Extractor, Identity, cached_module};
    /// # #[cached_module(id = "release_v1")]
    /// # struct Words {}
    /// # impl Extractor for Words {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = Cache::open(dir.path())?;
    /// let words = cache.lazy_module(Identity::of(&Words {}), Device::Cpu, || Ok(Words {}))?;
    /// assert!(!words.release()); // nothing is built yet
    /// words.forward(&["a"], &vec!["a cat".to_owned()])?;
    /// assert!(words.release());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self) -> bool {
        self.release_module()
    }
}
