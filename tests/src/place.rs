//! Where the cache of a test is: the same test runs on disk and in memory.

use tcx::Cache;
use tempfile::TempDir;

/// A place for one cache.
pub enum Place {
    Disk(TempDir),
    /// The cache exists as long as its place.
    Memory(Cache),
}

impl Place {
    /// A new place of each kind.
    pub fn each() -> [Self; 2] {
        [Self::disk(), Self::memory()]
    }

    pub fn disk() -> Self {
        Self::Disk(tempfile::tempdir().unwrap())
    }

    pub fn memory() -> Self {
        Self::Memory(Cache::in_memory())
    }

    pub fn open(&self) -> Cache {
        match self {
            Self::Disk(dir) => Cache::open(dir.path()).unwrap(),
            Self::Memory(cache) => cache.clone(),
        }
    }

    /// What the next user of the cache gets: on disk, another process.
    pub fn reopen(&self, cache: Cache) -> Cache {
        match self {
            Self::Disk(_) => cache.close().unwrap(),
            Self::Memory(_) => cache.flush().unwrap(),
        }
        self.open()
    }
}
