//! A simulated process: a store that comes and goes, and the lookups that wait to be completed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::doubt::Doubt;
use super::folder::Folder;
use super::kept::Kept;
use super::objects::Outages;
use super::operation::HANDLES;
use super::oracle::{Glance, Oracle};
use super::run::Setup;
use super::schedule::{Started, in_process};
use super::site::Site;
use super::stamps::Stamps;
use super::strays::Strays;
use crate::storage::Storage;
use crate::write::seal_queue::SealQueue;
use crate::{ColumnType, DType, Identity, KeyType, Lookup, Losses, Options, RecomputeSession};
use crate::{Spec, StampType, Store};

const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };

/// What all processes share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) folder: Arc<Folder>,
    oracle: Mutex<Oracle>,
    /// The stamps that the sources of the samples have now.
    pub(super) stamps: Stamps,
    /// Which machines cannot reach the object store.
    pub(super) outages: Outages,
    /// What was reported durable on a machine, and may not be in the store.
    kept: Mutex<Vec<Kept>>,
    /// What has strayed in the object store.
    pub(super) strays: Strays,
}

impl World {
    pub(super) fn new(folder: Arc<Folder>) -> Self {
        let (oracle, stamps, outages) = (Mutex::default(), Stamps::default(), Outages::default());
        Self { folder, oracle, stamps, outages, kept: Mutex::default(), strays: Strays::default() }
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
    seal_queue: Mutex<SealQueue>,
    /// How often the process had forked when it opened the store.
    forks: u64,
    number: AtomicUsize,
    /// By which its handles recompute.
    pub(super) recomputes: [Arc<RecomputeSession>; HANDLES],
    /// What they have lost.
    pub(super) losses: [Arc<Losses>; HANDLES],
}

impl Session {
    /// Its number for the oracle.
    pub(super) fn number(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }

    /// What the process's writer has; only one thread of it asks.
    pub(super) fn seal_queue(&self) -> MutexGuard<'_, SealQueue> {
        self.seal_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup that missed rows.
pub(super) struct Pending {
    pub(super) lookup: Lookup,
    pub(super) glance: Glance,
    pub(super) keys: Vec<&'static str>,
    pub(super) session: Arc<Session>,
    /// The keys that are missing because of rows that were found: what is computed for them takes the place of these.
    pub(super) replaced: BTreeSet<&'static str>,
}

/// What the threads of one process share.
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) world: Arc<World>,
    site: Site,
    doubt: Arc<Doubt>,
    /// What its threads have started threads for.
    pub(super) started: Started,
    pub(super) options: Options,
    habits: Habits,
    observes: bool,
    has_stamps: bool,
    /// How often it has forked: the child is the one that goes on.
    forks: AtomicU64,
    memory: Mutex<Memory>,
}

/// What a process does more or less often, of a thousand times.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a process has any of these habits, or none")]
pub(super) struct Habits {
    /// A lookup is that of a recomputing handle.
    pub(super) recomputes: usize,
    /// Whether it cuts segments down, and makes room: rows are missing that were not invalidated.
    pub(super) removes: bool,
    /// Whether it invalidates by age.
    pub(super) ages: bool,
    /// Whether it rejects rows that it has found, and puts values.
    pub(super) renews: bool,
    /// Whether it repairs what is damaged.
    pub(super) repairs: bool,
}

impl Habits {
    /// Of a process that looks up and computes, as all do.
    pub(super) fn plain(recomputes: usize) -> Self {
        Self { recomputes, removes: false, ages: false, renews: false, repairs: false }
    }
}

/// What is gone when the process dies.
#[derive(Default)]
struct Memory {
    identity: u8,
    session: Option<Arc<Session>>,
    pending: Vec<Pending>,
    /// What the last lookup has found.
    found: Vec<Option<i64>>,
    /// Whether the last seal has succeeded.
    has_sealed: bool,
}

/// The most lookups that wait to be completed.
const PENDING: usize = 4;

impl Process {
    pub(super) fn new(number: usize, world: Arc<World>, setup: &Setup, site: Site) -> Self {
        let Setup { refresh_every, time_to_live, .. } = *setup;
        let mut options = Options { refresh_every, time_to_live, ..Options::default() };
        if setup.weather.unreadable_segment > 0 {
            // Every row that is found is read. Nor does a thread wait for one that loads the same and is paused.
            options.memory_cache_bytes = 0;
        }
        let (started, habits, memory) = (Started::default(), setup.habits, Mutex::default());
        let observes = number == setup.processes;
        let doubt = site.doubt();
        let forks = AtomicU64::new(0);
        let has_stamps = setup.stamps;
        Self { number, world, site, doubt, started, options, habits, observes, has_stamps, forks, memory }
    }

    /// The time of the folder.
    pub(super) fn millis(&self) -> u64 {
        self.world.folder.clock.millis()
    }

    pub(super) fn habits(&self) -> Habits {
        self.habits
    }

    /// Whether rows have stamps.
    pub(super) fn has_stamps(&self) -> bool {
        self.has_stamps
    }

    /// Whether it sees everything as it is, and asks for rows of any stamp.
    pub(super) fn observes(&self) -> bool {
        self.observes
    }

    /// For how long a look for changes is enough for others that miss rows, in milliseconds.
    pub(super) fn look_lasts(&self) -> u64 {
        const LONGEST: u64 = 1000;
        let is_remote = self.site.machine().is_some();
        if is_remote { LONGEST.min(self.options.refresh_every.as_millis() as u64) } else { 0 }
    }

    /// Tells the oracle if segments have gone while a fault hid what took their place.
    pub(super) fn see_misled(&self, session: &Session) {
        if self.doubt.was_misled() {
            self.world.oracle().misled(session.number());
        }
    }

    /// Whether a change could not be read lately, and how often that was so.
    pub(super) fn unread_changes(&self) -> (bool, usize) {
        self.doubt.unread_changes()
    }

    /// Whether the last listing was late or incomplete, and how often one was.
    pub(super) fn faulty_listings(&self) -> (bool, usize) {
        self.doubt.faulty_listings()
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

    /// Whether it is on a machine, and the folder is elsewhere.
    pub(super) fn is_on_machine(&self) -> bool {
        self.site.machine().is_some()
    }

    pub(super) fn has_sealed(&self) -> bool {
        self.memory().has_sealed
    }

    /// The rows are durable where the process is: on its machine, if the folder is elsewhere.
    pub(super) fn keeps(&self, session: &Session, rows: &[usize]) {
        if let Some(machine) = self.site.machine() {
            let instance = self.world.folder.instance();
            let changes = session.store.core.live().changes.clone();
            let (session, rows) = (session.number(), rows.to_vec());
            self.world.kept().push(Kept { machine, session, rows, instance, changes });
        }
    }

    pub(super) fn set_sealed(&self, has_sealed: bool) {
        self.memory().has_sealed = has_sealed;
    }

    pub(super) fn push(&self, pending: Pending) {
        let mut memory = self.memory();
        let is_open = memory.session.as_ref().is_some_and(|open| Arc::ptr_eq(open, &pending.session));
        let gone = if is_open {
            memory.pending.push(pending);
            (memory.pending.len() > PENDING).then(|| memory.pending.remove(0))
        } else {
            // Another thread has closed the session, and this would keep it open.
            Some(pending)
        };
        drop(memory);
        // It may be the last one that holds a closed session, whose threads are waited for: not under the lock.
        drop(gone);
    }

    pub(super) fn take(&self, pending: usize) -> Option<Pending> {
        let mut memory = self.memory();
        (pending < memory.pending.len()).then(|| memory.pending.remove(pending))
    }

    /// The files of the module, for another program that is started where the process is.
    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        self.site.open()
    }

    /// Opens the store; `true` if it was.
    pub(super) fn open(&self, fresh: bool) -> bool {
        let (identity, before) = {
            let memory = self.memory();
            (memory.identity, memory.session.clone())
        };
        // What was not seen so far is of that one.
        if let Some(session) = before {
            self.see_misled(&session);
        }
        let since = self.world.oracle().now();
        let open = || Store::without_writer(self.site.open(), spec(identity, self.has_stamps), &self.options);
        let opened = if fresh { super::schedule::fresh(open) } else { open() };
        match opened {
            Ok(store) => {
                let number = self.world.oracle().opened(self.number, identity, fresh.then_some(since));
                let seal_queue = Mutex::new(SealQueue::new(store.core.clone()));
                let recomputes = std::array::from_fn(|_| RecomputeSession::new());
                let session = Arc::new(Session {
                    store,
                    seal_queue,
                    forks: self.forks(),
                    number: number.into(),
                    recomputes,
                    losses: std::array::from_fn(|_| Arc::default()),
                });
                self.see_misled(&session);
                self.memory().session = Some(session);
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
        self.world.note(|| format!("process {}: {error:#}", self.number));
        match error.kind() {
            // To the observer nothing goes wrong.
            crate::ErrorKind::Io if self.observes => {
                self.world.oracle().violated(format!("stuck: {error:#}"));
            }
            // Nothing has failed: the rows wait.
            crate::ErrorKind::Io | crate::ErrorKind::Contended => {}
            crate::ErrorKind::Incompatible | crate::ErrorKind::Replaced | crate::ErrorKind::Corrupt => {
                let session = self.session().map(|session| session.number());
                self.world.oracle().refused(session, error);
                self.close();
            }
            _ => self.world.oracle().violated(format!("{error:#}")),
        }
    }

    /// Lets go of the store and of all lookups.
    pub(super) fn close(&self) {
        let mut memory = self.memory();
        let gone = (memory.session.take(), std::mem::take(&mut memory.pending));
        drop(memory);
        // Outside of the lock: dropping a store is the engine's business. As the process that opened it: an inherited store
        // would stay for ever.
        let forks = gone.0.as_ref().map_or(0, |session| session.forks);
        in_process(forks, || drop(gone));
    }

    /// How often it has forked.
    pub(super) fn forks(&self) -> u64 {
        self.forks.load(Ordering::Relaxed)
    }

    /// It forks, and only the child goes on: with the store that it has inherited, and nothing of what other threads had.
    pub(super) fn forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        let mut memory = self.memory();
        let pending = std::mem::take(&mut memory.pending);
        let (identity, session) = (memory.identity, memory.session.clone());
        drop(memory);
        in_process(self.forks() - 1, || drop(pending));
        if let Some(session) = session {
            let mut oracle = self.world.oracle();
            oracle.died(session.number());
            session.number.store(oracle.opened(self.number, identity, None), Ordering::Relaxed);
        }
    }

    /// The process is dead, and so are its threads.
    pub(super) fn crashed(&self) {
        if let Some(session) = self.session() {
            self.world.oracle().died(session.number());
        }
        self.close();
    }
}

fn spec(identity: u8, has_stamps: bool) -> Spec {
    let identity = [("weights".to_owned(), identity.to_string())].into_iter().collect::<Identity>();
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, identity, Vec::new()).unwrap();
    if has_stamps { spec.with_stamps(StampType::Number) } else { spec }
}
