//! A machine that loses power: what its processes were promised, and whether it was kept.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::storage::{Forgetful, LocalStorage};
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

/// All keys that the tests use.
pub(super) const ALL: Range<i64> = 0..60;

/// Where the rows are. Nothing of it is there at first.
const FOLDER: &str = "data/cache/m_v1";

/// The row of a key is its square.
const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };

/// A disk, and what the processes that use it were told.
pub(super) struct Machine {
    pub(super) disk: Forgetful,
    dir: TempDir,
    promises: Mutex<Vec<Promise>>,
}

/// A row is durable, since so many events on the disk.
#[derive(Clone, Copy, Debug)]
struct Promise {
    key: i64,
    since: usize,
}

/// A process of a machine: a store of its own.
pub(super) struct Process {
    store: Store,
    machine: Arc<Machine>,
    unflushed: Mutex<Vec<i64>>,
}

impl Machine {
    pub(super) fn new() -> Arc<Self> {
        Self::start(disk_in_memory())
    }

    fn start(dir: TempDir) -> Arc<Self> {
        Arc::new(Self { disk: Forgetful::new(dir.path()), dir, promises: Mutex::default() })
    }

    /// A process that calls `before` before each step.
    pub(super) fn process(self: &Arc<Self>, before: impl Fn() + Send + Sync + 'static) -> Process {
        let storage = LocalStorage::new(self.dir.path().join(FOLDER), self.disk.process(before));
        let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let (seal_after, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
        let options = Options { seal_after, refresh_every, ..Options::default() };
        let store = Store::with_storage(Arc::new(storage), spec, &options).unwrap();
        Process { store, machine: self.clone(), unflushed: Mutex::default() }
    }

    /// Power is lost after each event. Each time the disk keeps nothing of what was not synced, then all of it, then
    /// `samples` times a part.
    pub(super) fn loses_power_anywhere(&self, samples: u64, case: &str) {
        for events in 0..=self.disk.events() {
            self.loses_power(events, nothing, &format!("{case}, nothing is left"));
            self.loses_power(events, everything, &format!("{case}, everything is left"));
            for seed in 0..samples {
                let seed = seed << 32 | events as u64;
                self.loses_power(events, dice(seed), &format!("{case}, dice {seed} tell what is left"));
            }
        }
    }

    /// Power is lost as soon as something was promised, and nothing is left of what was not synced; then `samples` times
    /// after any event from number `first` on, and a part is left.
    pub(super) fn loses_power_somewhere(&self, first: usize, samples: u64, case: &str) {
        let mut told: Vec<_> = self.promises.lock().unwrap().iter().map(|promise| promise.since).collect();
        told.dedup();
        for events in told {
            self.loses_power(events, nothing, &format!("{case}, nothing is left"));
        }
        for seed in 0..samples {
            let mut dice = dice(seed);
            let events = first + dice(self.disk.events() - first + 1);
            self.loses_power(events, dice, &format!("{case}, dice {seed} tell what is left"));
        }
    }

    /// Power is lost after so many events: what was promised is there, nothing is wrong, and work goes on.
    fn loses_power(&self, events: usize, pick: impl FnMut(usize) -> usize, case: &str) {
        let context = || format!("{case}, after {events} events:{}", self.disk.story(events));
        let machine = self.after_loss(events, pick);
        let process = machine.process(|| {});
        let found = process.found(&context);
        for promise in self.promises.lock().unwrap().iter().filter(|promise| promise.since <= events) {
            assert!(found.contains(&promise.key), "{promise:?} is broken: {}", context());
        }
        process.compute(ALL);
        process.flush();
        let all: Vec<_> = ALL.collect();
        assert_eq!(machine.process(|| {}).found(&context), all, "{}", context());
        let again = machine.after_loss(machine.disk.events(), nothing);
        assert_eq!(again.process(|| {}).found(&context), all, "{}", context());
    }

    /// The machine that starts with what is left of the disk.
    fn after_loss(&self, events: usize, pick: impl FnMut(usize) -> usize) -> Arc<Self> {
        let dir = disk_in_memory();
        self.disk.after(events).leave(dir.path(), pick);
        Self::start(dir)
    }
}

impl Process {
    pub(super) fn compute(&self, keys: Range<i64>) {
        let mut rows = self.store.lookup(Keys::ints(keys.clone(), 0)).unwrap();
        let missing = rows.missing_positions();
        let computed: Vec<i64> = missing.iter().map(|&position| keys.start + position as i64).collect();
        let squares: Vec<u8> = computed.iter().flat_map(|key| (key * key).to_le_bytes()).collect();
        self.store.insert(&mut rows, &missing, vec![Column::dense(&squares)]).unwrap();
        self.unflushed.lock().unwrap().extend(computed);
    }

    pub(super) fn flush(&self) {
        let keys = std::mem::take(&mut *self.unflushed.lock().unwrap());
        self.store.flush().unwrap();
        let since = self.machine.disk.events();
        self.machine.promises.lock().unwrap().extend(keys.into_iter().map(|key| Promise { key, since }));
    }

    /// The keys whose rows are served, all of them rightly.
    fn found(&self, context: &impl Fn() -> String) -> Vec<i64> {
        let rows = self.store.lookup(Keys::ints(ALL, 0)).unwrap();
        let found = ALL.enumerate().filter(|(position, _)| !rows.is_open(*position));
        let checked = found.map(|(position, key)| {
            assert_eq!(rows.bytes(0, position), (key * key).to_le_bytes(), "{}", context());
            key
        });
        let found = checked.collect();
        assert_eq!(self.store.stats().damaged_segments, 0, "{}", context());
        found
    }
}

/// Nothing is synced in these tests: where there is a directory in memory, they need no other.
pub(super) fn disk_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}

pub(super) fn nothing(_: usize) -> usize {
    0
}

fn everything(states: usize) -> usize {
    states - 1
}

/// Throws that are the same for the same seed: numbers below the one given.
pub(super) fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut throws = 0_u64;
    move |sides| {
        throws += 1;
        (xxh3_64_with_seed(&throws.to_le_bytes(), seed) % sides as u64) as usize
    }
}
