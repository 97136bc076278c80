//! Memory in which modules have their rows as they have them in a cache directory, and no longer than the program runs.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::error::Result;
use crate::options::Options;
use crate::schema::spec::Spec;
use crate::storage::memory::IN_MEMORY;
use crate::storage::{MemoryStorage, Storage};
use crate::store::Store;
use crate::store::open_stores::OpenStores;
use crate::store::place::Place;
use crate::sys::fork::PerProcess;
use crate::sys::memory::memory;

/// Memory that holds modules as a cache directory does: [`Store::open_in_memory`] opens one there. Clones are the same memory, and
/// what it holds is gone with the last clone and the last store. Nothing is written to disk, and no other process sees it.
///
/// ```
/// use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Memory, Options, Spec, Store};
///
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let memory = Memory::new();
/// let store = Store::open_in_memory(&memory, spec.clone(), &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// drop(store);
/// let store = Store::open_in_memory(&memory, spec, &Options::default())?;
/// assert_eq!(store.lookup(Keys::ints([2], 0))?.bytes(0, 0), [20]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Memory(Arc<Held>);

struct Held {
    root: MemoryStorage,
    open: PerProcess<Mutex<OpenStores>>,
}

impl Memory {
    /// Memory that holds no modules yet.
    pub fn new() -> Self {
        Self(Arc::new(Held { root: MemoryStorage::root(), open: PerProcess::new() }))
    }

    /// How much a module should take in memory at most if its user does not say: an eighth of the memory that the process may use. A
    /// limit is in effect only as [`Options::max_bytes`].
    pub fn default_max_bytes() -> u64 {
        memory() as u64 / 8
    }

    /// What messages call it, `memory://`, which is no path of a file.
    pub fn path(&self) -> &Path {
        Path::new(IN_MEMORY)
    }

    pub(super) fn open_stores(&self) -> &PerProcess<Mutex<OpenStores>> {
        &self.0.open
    }

    pub(super) fn storage(&self, folder: &str) -> Arc<dyn Storage> {
        Arc::new(self.0.root.child(folder))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.0.root).finish()
    }
}

impl Store {
    /// As [`open`](Self::open), in memory instead of a directory. [`Options::max_bytes`] limits what the module takes there.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in_memory(memory: &Memory, spec: Spec, options: &Options) -> Result<Arc<Self>> {
        Self::open_at(&Place::Memory(memory), spec, options)
    }

    /// Whether the rows are in memory only, so that nothing of the store outlives the process.
    pub fn is_in_memory(&self) -> bool {
        self.core.storage.is_in_memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{compute, spec, values};
    use crate::{ErrorKind, Keys, WhenFull};

    fn open(memory: &Memory) -> Arc<Store> {
        Store::open_in_memory(memory, spec(), &Options::default()).unwrap()
    }

    #[test]
    fn stores_of_one_memory_are_shared_and_its_rows_outlive_them() {
        let memory = Memory::new();
        let store = open(&memory);
        assert!(Arc::ptr_eq(&store, &open(&memory)) && store.is_in_memory());
        compute(&store, &["a", "b"], 7);
        store.flush().unwrap();
        assert_eq!((store.stats().rows, store.stats().buffered_rows), (2, 0));
        assert!(store.disk_usage().unwrap().bytes > 0);
        drop(store);
        assert_eq!(values(&open(&memory), &["a", "b", "c"]), [7, 7, -1]);
        assert_eq!(values(&open(&Memory::new()), &["a"]), [-1]);
    }

    #[test]
    fn another_module_is_refused_in_memory_too_and_the_message_names_no_path_of_a_file() {
        let memory = Memory::new();
        compute(&open(&memory), &["a"], 7);
        let identity = [("size".to_owned(), "2".to_owned())].into_iter().collect();
        let own = spec();
        let output = crate::ColumnType::Dense { dtype: crate::DType::I64, shape: &[] };
        let other = Spec::new(own.module_id(), own.key_type(), &output, identity, Vec::new()).unwrap();
        let refused = Store::open_in_memory(&memory, other, &Options::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
        assert!(refused.to_string().contains("the cache of `m_v1` at memory://m_v1 belongs"), "{refused}");
    }

    #[test]
    fn rows_are_replaced_and_compacted_and_reclaimed_in_memory() {
        let memory = Memory::new();
        let store = open(&memory);
        for value in 0..20 {
            compute(&store, &["a", &value.to_string()], value);
            store.invalidate(&Keys::text(["a"], 0).unwrap()).unwrap();
            store.flush().unwrap();
        }
        store.compact().unwrap();
        // First the replaced segments, then their index, also what the thread of the store has just merged.
        let is_small = || store.disk_usage().unwrap().dead_bytes == 0;
        let collect = |_| store.collect(std::time::Duration::ZERO).is_ok() && is_small();
        assert!((0..1000).any(collect), "{:?}", store.disk_usage());
        assert_eq!((store.stats().rows, store.stats().segments), (20, 1));
        assert_eq!(values(&store, &["a", "7", "19"]), [-1, 7, 19]);
    }

    #[test]
    fn a_full_memory_keeps_no_more_rows_or_lets_go_of_the_oldest() {
        for (when_full, kept) in [(WhenFull::StopWriting, 0), (WhenFull::EvictOldest, 1)] {
            let options = Options { max_bytes: Some(200_000), when_full, ..Options::default() };
            let store = Store::open_in_memory(&Memory::new(), spec(), &options).unwrap();
            for round in 0..20 {
                let keys: Vec<String> = (0..500).map(|key| format!("{round} {key}")).collect();
                compute(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>(), round);
                store.flush().ok();
                store.core.keep_within_limits().unwrap();
            }
            // The thread of the store may have just merged runs that both are there now.
            let is_small = || store.disk_usage().unwrap().bytes < 300_000;
            let tidy = |_| store.core.keep_within_limits().is_ok() && is_small();
            assert!((0..1000).any(tidy), "{:?}", store.disk_usage());
            let newest = values(&store, &["19 499"])[0] >= 0;
            assert_eq!(i32::from(newest), kept, "{when_full:?}");
        }
    }

    #[test]
    fn what_has_passed_is_known_to_the_next_store_of_the_same_memory() {
        let memory = Memory::new();
        let store = open(&memory);
        store.record_passed("a");
        compute(&store, &["a"], 7);
        drop(store);
        assert!(open(&memory).has_passed("a"));
        open(&memory).forget_passed("a");
        assert!(!open(&memory).has_passed("a"));
    }
}
