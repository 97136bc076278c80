//! A simulated process: a store that comes and goes, and the lookups that wait to be completed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::folder::Folder;
use super::memory::{MemoryStorage, Weather};
use super::oracle::{Glance, Oracle};
use super::schedule::{Task, Tasks};
use crate::sealer::Sealer;
use crate::{ColumnType, DType, Identity, KeyType, Lookup, Options, Replacer, Spec, Store};

const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };

/// What all processes share.
pub(super) struct World {
    pub(super) folder: Arc<Folder>,
    oracle: Mutex<Oracle>,
}

impl World {
    pub(super) fn new(folder: Arc<Folder>) -> Self {
        Self { folder, oracle: Mutex::default() }
    }

    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        self.folder.trace.note(what);
    }
}

/// One opening of the store.
pub(super) struct Session {
    pub(super) store: Store,
    sealer: Mutex<Sealer>,
    /// Its number for the oracle, and that of its replacer.
    pub(super) number: usize,
    pub(super) replacer: Arc<Replacer>,
}

impl Session {
    /// What the process's writer has; only one thread of it asks.
    pub(super) fn sealer(&self) -> MutexGuard<'_, Sealer> {
        self.sealer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup that missed rows.
pub(super) struct Pending {
    pub(super) lookup: Lookup,
    pub(super) glance: Glance,
    pub(super) keys: Vec<&'static str>,
    pub(super) session: Arc<Session>,
}

/// What the threads of one process share.
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) world: Arc<World>,
    storage: Arc<MemoryStorage>,
    /// What its threads have started threads for.
    pub(super) tasks: Tasks,
    pub(super) options: Options,
    memory: Mutex<Memory>,
}

/// What is gone when the process dies.
#[derive(Default)]
struct Memory {
    identity: u8,
    session: Option<Arc<Session>>,
    pending: Vec<Pending>,
    /// What the last lookup has found.
    found: Vec<Option<i64>>,
}

/// The most lookups that wait to be completed.
const PENDING: usize = 4;

impl Process {
    pub(super) fn new(number: usize, world: Arc<World>, weather: Weather, refresh_every: Duration) -> Self {
        let storage = Arc::new(MemoryStorage::new(world.folder.clone(), number, weather));
        let options = Options { refresh_every, ..Options::default() };
        Self { number, world, storage, tasks: Tasks::default(), options, memory: Mutex::default() }
    }

    fn tasks(&self) -> MutexGuard<'_, VecDeque<Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread that was started has to do.
    pub(super) fn next_task(&self) -> Option<Task> {
        self.tasks().pop_front()
    }

    pub(super) fn has_tasks(&self) -> bool {
        !self.tasks().is_empty()
    }

    /// Tells the oracle if segments have gone while a fault hid what took their place.
    pub(super) fn see_misled(&self, session: &Session) {
        if self.storage.was_misled() {
            self.world.oracle().misled(session.number);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_identity(&self, identity: u8) {
        self.memory().identity = identity;
    }

    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.memory().session.clone()
    }

    pub(super) fn pending(&self) -> usize {
        self.memory().pending.len()
    }

    pub(super) fn found(&self) -> Vec<Option<i64>> {
        self.memory().found.clone()
    }

    pub(super) fn set_found(&self, found: Vec<Option<i64>>) {
        self.memory().found = found;
    }

    pub(super) fn push(&self, pending: Pending) {
        let mut memory = self.memory();
        memory.pending.push(pending);
        if memory.pending.len() > PENDING {
            memory.pending.remove(0);
        }
    }

    pub(super) fn take(&self, pending: usize) -> Option<Pending> {
        let mut memory = self.memory();
        (pending < memory.pending.len()).then(|| memory.pending.remove(pending))
    }

    /// Opens the store; `true` if it was.
    pub(super) fn open(&self, fresh: bool) -> bool {
        let identity = self.memory().identity;
        let since = self.world.oracle().now();
        let open = || Store::without_writer(self.storage.clone(), spec(identity), &self.options);
        let opened = if fresh { super::schedule::fresh(open) } else { open() };
        match opened {
            Ok(store) => {
                let number = self.world.oracle().opened(identity, fresh.then_some(since));
                let (sealer, replacer) = (Mutex::new(Sealer::new(store.core.clone())), Replacer::new());
                self.memory().session = Some(Arc::new(Session { store, sealer, number, replacer }));
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    /// The store has failed: one that is refused is let go of.
    pub(super) fn failed(&self, error: &crate::Error) {
        self.world.note(|| format!("process {}: {error}", self.number));
        match error.kind() {
            crate::ErrorKind::Io => {}
            crate::ErrorKind::Invalid => self.world.oracle().violated(error.to_string()),
            _ => {
                let session = self.session().map(|session| session.number);
                self.world.oracle().refused(session, error);
                self.close();
            }
        }
    }

    /// Lets go of the store and of all lookups.
    pub(super) fn close(&self) {
        let mut memory = self.memory();
        let gone = (memory.session.take(), std::mem::take(&mut memory.pending));
        drop(memory);
        // Outside of the lock: dropping a store is the engine's business.
        drop(gone);
    }

    /// The process is dead, and so are its threads.
    pub(super) fn crashed(&self) {
        if let Some(session) = self.session() {
            self.world.oracle().died(session.number);
        }
        self.close();
    }
}

fn spec(identity: u8) -> Spec {
    let identity = [("weights".to_owned(), identity.to_string())].into_iter().collect::<Identity>();
    Spec::new("m_v1", KeyType::Text, &OUTPUT, identity, Vec::new()).unwrap()
}
