//! A machine that loses power: what its processes were promised, and whether it was kept.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tempfile::TempDir;

use super::{Left, PowerLossDisk, dice};
use crate::storage::LocalStorage;
use crate::storage::name::FileName;
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

/// All keys that the tests use.
const ALL: Range<i64> = 0..60;

/// A key that has no row.
const OTHER: Range<i64> = 1000..1001;

/// Where the rows are. Nothing of it is there at first.
const FOLDER: &str = "data/cache/m_v1";

/// A row is the square of its key and the age in which it was computed.
const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[2] };

/// A disk, and what the processes that use it were told.
pub(super) struct Machine {
    disk: PowerLossDisk,
    dir: TempDir,
    told: Mutex<Told>,
    /// How it came about, for those who look for the reason of a failure.
    past: String,
}

/// Times are counted in events on the disk.
#[derive(Default)]
struct Told {
    rows: Vec<Row>,
    /// Each begins an age.
    invalidations: Vec<Invalidation>,
    first_age: usize,
}

/// A row that was looked up, computed and flushed.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: i64,
    looked_up: usize,
    flushed: usize,
}

#[derive(Clone, Debug)]
struct Invalidation {
    keys: Range<i64>,
    begun: usize,
    done: Option<usize>,
}

/// A process of a machine: a store of its own.
pub(super) struct Process {
    store: Store,
    machine: Arc<Machine>,
    /// Keys, and when they were looked up.
    unflushed: Mutex<Vec<(i64, usize)>>,
}

impl Told {
    /// When something was promised.
    fn promised(&self) -> BTreeSet<usize> {
        let done = self.invalidations.iter().filter_map(|invalidation| invalidation.done);
        self.rows.iter().map(|row| row.flushed).chain(done).collect()
    }

    /// Whether an invalidation that came after the row's lookup, or during it, may have killed the row at `now`.
    fn may_be_dead(&self, row: &Row, now: usize) -> bool {
        self.invalidations.iter().any(|invalidation| {
            let may_be_newer = invalidation.done.is_none_or(|done| done >= row.looked_up);
            invalidation.keys.contains(&row.key) && invalidation.begun <= now && may_be_newer
        })
    }

    /// The age in which a row of this key must have been computed at least to be served at `now`.
    fn oldest(&self, key: i64, now: usize) -> usize {
        let done = |invalidation: &Invalidation| {
            invalidation.keys.contains(&key) && invalidation.done.is_some_and(|done| done <= now)
        };
        self.invalidations.iter().rposition(done).map_or(0, |number| self.first_age + number + 1)
    }

    /// The age of a row that is computed now.
    fn age(&self) -> usize {
        self.first_age + self.invalidations.len()
    }
}

impl Machine {
    pub(super) fn new(case: String) -> Arc<Self> {
        Self::start(disk_in_memory(), 0, case)
    }

    fn start(dir: TempDir, first_age: usize, past: String) -> Arc<Self> {
        let told = Mutex::new(Told { first_age, ..Told::default() });
        Arc::new(Self { disk: PowerLossDisk::new(dir.path()), dir, told, past })
    }

    /// A process that calls `before` before each step.
    pub(super) fn process(self: &Arc<Self>, before: impl Fn() + Send + Sync + 'static) -> Process {
        self.open(before, &Options::default())
    }

    /// A process that seals every batch.
    pub(super) fn busy_process(self: &Arc<Self>) -> Process {
        self.open(|| {}, &Options { flush_bytes: 1, ..Options::default() })
    }

    fn open(self: &Arc<Self>, before: impl Fn() + Send + Sync + 'static, options: &Options) -> Process {
        let storage = LocalStorage::new(self.dir.path().join(FOLDER), self.disk.process(before));
        let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
        let options = Options { flush_interval, refresh_every, ..options.clone() };
        let store = Store::with_storage(Arc::new(storage), spec, &options).unwrap();
        Process { store, machine: self.clone(), unflushed: Mutex::default() }
    }

    /// How much has happened to the disk.
    pub(super) fn events(&self) -> usize {
        self.disk.events()
    }

    fn provenance(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    fn story(&self, events: usize) -> String {
        format!("{}{}", self.past, self.disk.story(events))
    }

    /// Power is lost after each event.
    pub(super) fn loses_power_anywhere(&self) {
        for events in 0..=self.events() {
            for left in [Left::Nothing, Left::Everything, Left::Newest, Left::ByDice(events as u64)] {
                self.loses_power(events, left, events.is_multiple_of(2));
            }
        }
    }

    /// Power is lost where it can hurt: as soon as something was promised, and when a file has just got or lost its name, which
    /// may last while what it counts on does not; then in any way anywhere. But not before event number `first`.
    pub(super) fn loses_power_somewhere(&self, first: usize, seed: u64) {
        let promised = self.provenance().promised();
        for &events in promised.range(first..) {
            self.restarts(events, Left::Nothing);
        }
        for events in self.disk.namings().into_iter().filter(|events| *events >= first) {
            self.loses_power(events, Left::Newest, dice(seed ^ events as u64)(2) == 0);
        }
        for seed in [seed, !seed] {
            let events = first + dice(seed)(self.events() - first + 1);
            self.loses_power(events, Left::ByDice(seed), seed.is_multiple_of(2));
        }
    }

    /// Power is lost after so many events, and work goes on.
    fn loses_power(&self, events: usize, left: Left, rows_first: bool) {
        let machine = self.restarts(events, left);
        machine.goes_on(rows_first);
        machine.restarts(machine.events(), Left::Nothing);
    }

    /// Power is lost after so many events. What was promised is on the disk of the machine that starts again.
    fn restarts(&self, events: usize, left: Left) -> Arc<Self> {
        let dir = disk_in_memory();
        self.disk.after(events).leave(dir.path(), left);
        let past = format!("{}\nOf what was not synced, {left:?} was left.", self.story(events));
        let machine = Self::start(dir, self.provenance().age(), past);
        machine.check_changes();
        let found = machine.found();
        self.check(events, &found);
        // What is on the disk now stays.
        let rows = found.into_iter().map(|(key, _)| Row { key, looked_up: 0, flushed: 0 });
        machine.provenance().rows.extend(rows);
        machine
    }

    /// Numbers behind a gap would be given a second time, and what they kill would die one day.
    fn check_changes(&self) {
        let Ok(names) = std::fs::read_dir(self.dir.path().join(FOLDER)) else { return };
        let names = names.filter_map(|name| FileName::parse(name.unwrap().file_name().to_str()?));
        let (mut changes, mut merged) = (BTreeSet::new(), 0);
        for name in names {
            match name {
                FileName::Change(number) => drop(changes.insert(number)),
                FileName::Merged(number) => merged = merged.max(number),
                _ => {}
            }
        }
        let are_whole = changes.iter().copied().eq(0..changes.len() as u64);
        assert!(are_whole, "only changes {changes:?} are left: {}", self.story(0));
        assert!(
            merged == 0 || changes.contains(&merged),
            "merged-{merged}, changes {changes:?}: {}",
            self.story(0)
        );
    }

    /// What another process finds.
    fn found(self: &Arc<Self>) -> Vec<(i64, usize)> {
        self.open(|| {}, &Options { read_only: true, ..Options::default() }).found()
    }

    /// The rows that are found are as good as what was promised up to an event.
    fn check(&self, events: usize, found: &[(i64, usize)]) {
        let told = self.provenance();
        for &(key, age) in found {
            assert!(told.oldest(key, events) <= age, "the row of {key} was dead: {}", self.story(events));
        }
        for row in told.rows.iter().filter(|row| row.flushed <= events && !told.may_be_dead(row, events)) {
            assert!(found.iter().any(|(key, _)| *key == row.key), "{row:?} is lost: {}", self.story(events));
        }
    }

    /// After a loss of power every row can be computed and invalidated, and nothing of before comes back to interfere:
    /// neither rows with the next change, nor invalidations behind it.
    fn goes_on(self: &Arc<Self>, rows_first: bool) {
        let process = self.process(|| {});
        if rows_first {
            process.compute(ALL);
            process.flush();
            process.invalidate(OTHER);
        } else {
            process.invalidate(ALL);
            self.check(self.events(), &self.found());
            process.compute(ALL);
            process.flush();
        }
        self.check(self.events(), &self.found());
        process.compact();
        process.collect();
        self.check(self.events(), &self.found());
    }
}

impl Process {
    pub(super) fn compute(&self, keys: Range<i64>) {
        let looked_up = self.machine.events();
        self.store.refresh().unwrap();
        let mut rows = self.store.lookup(Keys::ints(keys.clone(), 0)).unwrap();
        let age = self.machine.provenance().age();
        let missing = rows.distinct_missing_positions();
        let computed: Vec<i64> = missing.iter().map(|&position| keys.start + position as i64).collect();
        let values = computed.iter().flat_map(|key| [key * key, age as i64]);
        let values: Vec<u8> = values.flat_map(i64::to_le_bytes).collect();
        self.store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
        self.unflushed.lock().unwrap().extend(computed.into_iter().map(|key| (key, looked_up)));
    }

    /// Finds rows, which are taken to be promised with the next flush, whichever process has written them.
    pub(super) fn find(&self, keys: Range<i64>) {
        let looked_up = self.machine.events();
        self.store.refresh().unwrap();
        let rows = self.store.lookup(Keys::ints(keys.clone(), 0)).unwrap();
        let found = keys.enumerate().filter(|(position, _)| !rows.is_missing(*position));
        self.unflushed.lock().unwrap().extend(found.map(|(_, key)| (key, looked_up)));
    }

    pub(super) fn flush(&self) {
        let unflushed = std::mem::take(&mut *self.unflushed.lock().unwrap());
        self.store.flush().unwrap();
        let flushed = self.machine.events();
        let rows = unflushed.into_iter().map(|(key, looked_up)| Row { key, looked_up, flushed });
        self.machine.provenance().rows.extend(rows);
    }

    pub(super) fn invalidate(&self, keys: Range<i64>) {
        let number = {
            let (mut told, begun) = (self.machine.provenance(), self.machine.events());
            told.invalidations.push(Invalidation { keys: keys.clone(), begun, done: None });
            told.invalidations.len() - 1
        };
        self.store.invalidate(&Keys::ints(keys, 0)).unwrap();
        let done = self.machine.events();
        self.machine.provenance().invalidations[number].done = Some(done);
    }

    /// Everything that is on the disk is durable for this process.
    pub(super) fn syncs(&self) {
        self.invalidate(OTHER);
    }

    pub(super) fn compact(&self) {
        self.store.compact().unwrap();
    }

    pub(super) fn collect(&self) {
        self.store.collect(Duration::ZERO).unwrap();
    }

    /// The keys whose rows are served, all of them rightly, and the ages of the rows.
    fn found(&self) -> Vec<(i64, usize)> {
        let story = || self.machine.story(self.machine.events());
        let rows = self.store.lookup(Keys::ints(ALL, 0)).unwrap();
        let found =
            ALL.enumerate().filter(|(position, _)| !rows.is_missing(*position)).map(|(position, key)| {
                let (square, age) = rows.bytes(0, position).split_first_chunk::<8>().unwrap();
                assert_eq!(i64::from_le_bytes(*square), key * key, "{}", story());
                (key, i64::from_le_bytes(age.try_into().unwrap()) as usize)
            });
        let found = found.collect();
        assert_eq!(self.store.stats().damaged_segments, 0, "{}", story());
        found
    }
}

/// Nothing is synced in these tests: where there is a directory in memory, they need no other.
pub(super) fn disk_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}
