//! The stores that a process has open: a folder has one, which its users share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::engine::threads::is_worker;
use crate::store::Store;

/// By folder, the stores in the order in which they were opened: the last is shared, those before it were given up and may have rows that
/// wait.
#[derive(Debug, Default)]
pub(crate) struct OpenStores(HashMap<PathBuf, Vec<OpenStore>>);

#[derive(Debug)]
struct OpenStore {
    store: Weak<Store>,
    closed: Closed,
}

/// Whether a store has sealed what was buffered, and ended: its last handle may have gone before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed(Arc<OnceLock<()>>);

/// Kept by a store and by its writer: the store is closed when both are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<Close>);

#[derive(Debug, Default)]
struct Close(Closed);

impl Drop for Close {
    fn drop(&mut self) {
        // It is dropped once.
        let _ = self.0.0.set(());
    }
}

impl Closed {
    /// Waits until the store is closed.
    pub(super) fn wait(&self) {
        self.0.wait();
    }
}

impl OpenStores {
    /// The last store of a folder, if it has a handle.
    fn last(&self, folder: &Path) -> Option<Arc<Store>> {
        self.0.get(folder)?.last()?.store.upgrade()
    }

    /// A store of one of these folders that has no handle any more and is not closed yet: its rows may not be in the folder. None for a
    /// thread that works for a store: the one that is closed may wait for it.
    fn closing(&self, folders: &[&Path]) -> Option<Closed> {
        let stores = folders.iter().filter_map(|folder| self.0.get(*folder)).flatten();
        let mut closing = stores.filter(|own| own.is_closing() && !is_worker());
        closing.next().map(|own| own.closed.clone())
    }

    /// All that have no handle any more and are not closed yet.
    #[cfg(unix)]
    pub(super) fn all_closing(&self) -> Vec<Closed> {
        let closing = self.0.values().flatten().filter(|own| own.is_closing());
        closing.map(|own| own.closed.clone()).collect()
    }

    fn add(&mut self, folder: PathBuf, store: &Arc<Store>) {
        for stores in self.0.values_mut() {
            stores.retain(|own| own.store.strong_count() > 0 || own.is_closing());
        }
        self.0.retain(|_, stores| !stores.is_empty());
        let own = OpenStore { store: Arc::downgrade(store), closed: store.closing.0.0.clone() };
        self.0.entry(folder).or_default().push(own);
    }

    /// All that have a handle.
    #[cfg(unix)]
    pub(super) fn all(&self) -> Vec<Arc<Store>> {
        self.0.values().flatten().filter_map(|own| own.store.upgrade()).collect()
    }
}

/// The stores that are open, to open one. No other thread opens one as long as this is there.
pub(super) struct Opening<'a> {
    open: MutexGuard<'a, OpenStores>,
    /// Dropped after the lock is released: a handle that was taken here may be the last by then. Dropping that waits for the writer of the
    /// store, whose eviction policy may open another.
    handles: Vec<Arc<Store>>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(open: &'a Mutex<OpenStores>) -> Self {
        Self { open: open.lock().unwrap_or_else(PoisonError::into_inner), handles: Vec::new() }
    }

    /// [A store that is being closed](OpenStores::closing).
    pub(super) fn closing(&self, folders: &[&Path]) -> Option<Closed> {
        self.open.closing(folders)
    }

    /// The last store of a folder, if it has a handle.
    pub(super) fn last(&mut self, folder: &Path) -> Option<Arc<Store>> {
        let store = self.open.last(folder)?;
        self.handles.push(store.clone());
        Some(store)
    }

    pub(super) fn add(&mut self, folder: PathBuf, store: &Arc<Store>) {
        self.open.add(folder, store);
        self.handles.push(store.clone());
    }
}

impl OpenStore {
    fn is_closing(&self) -> bool {
        self.store.strong_count() == 0 && self.closed.0.get().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;
    use crate::{ColumnType, DType, Identity, KeyType, Options, Spec};

    fn open(memory: &Memory) -> Arc<Store> {
        let output = ColumnType::Dense { dtype: DType::I64, shape: &[] };
        let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new()).unwrap();
        Store::open_in_memory(memory, spec, &Options::default()).unwrap()
    }

    /// What a store has, and what is dropped with it: opens a store by then, as an eviction policy may.
    #[derive(Default)]
    struct OpensAtItsEnd(OnceLock<(Memory, Arc<OnceLock<bool>>)>);

    impl Drop for OpensAtItsEnd {
        fn drop(&mut self) {
            if let Some((memory, could_open)) = self.0.get() {
                could_open.set(memory.open_stores().get().try_lock().is_ok()).unwrap();
            }
        }
    }

    #[test]
    fn a_store_whose_last_handle_goes_while_another_is_opened_may_open_stores_at_its_end() {
        let (memory, could_open) = (Memory::new(), Arc::new(OnceLock::new()));
        let store = open(&memory);
        let companion = store.companion::<OpensAtItsEnd>().unwrap();
        assert!(companion.0.set((memory.clone(), could_open.clone())).is_ok());
        drop(companion);
        let open_stores = memory.open_stores().get();
        let mut opening = Opening::new(&open_stores);
        let last = opening.last(&memory.path().join("m_v1")).unwrap();
        drop(store);
        // The one that is being opened has other settings, or the store was given up.
        drop(last);
        drop(opening);
        assert_eq!(could_open.get(), Some(&true));
    }
}
