//! The stores that a process has open: a folder has one, which its users share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

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
    pub(super) fn last(&self, folder: &Path) -> Option<Arc<Store>> {
        self.0.get(folder)?.last()?.store.upgrade()
    }

    /// A store of one of these folders that has no handle any more and is not closed yet: its rows may not be in the folder. None for a
    /// thread that works for a store: the one that is closed may wait for it.
    pub(super) fn closing(&self, folders: &[&Path]) -> Option<Closed> {
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

    pub(super) fn add(&mut self, folder: PathBuf, store: &Arc<Store>) {
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

impl OpenStore {
    fn is_closing(&self) -> bool {
        self.store.strong_count() == 0 && self.closed.0.get().is_none()
    }
}
