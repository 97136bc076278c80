//! What a machine does until it is killed or its standard input ends: it computes, looks up, flushes, invalidates, compacts.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

use crate::events::{Event, Log, Time, now};
use crate::random::Random;

/// Ids are below this. The odd ones are invalidated, the even ones never.
pub(crate) const KEYS: i64 = 3000;

/// Elements of a row, which are all the same.
const WIDTH: usize = 16;

/// Of a call: longer than a server that is there takes, shorter than one is away.
const DEADLINE: Duration = Duration::from_secs(3);

/// The longest that a machine waits in the end for the store to take what waits.
const ENDS_WITHIN: Duration = Duration::from_mins(2);

/// Replaced files stay so long: shorter than is wise, so that collection is met.
const GC_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Machine {
    store: Arc<Store>,
    log: Log,
    random: Random,
}

/// Where the near tier of a machine is.
pub(crate) fn near(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("near-{number}"))
}

fn open(url: &str, near: &Path, near_bytes: Option<u64>) -> Arc<Store> {
    let Location::Store(url) = Location::parse(url).unwrap() else { panic!("{url} is a directory") };
    let set = |client: ClientOptions, (name, value)| client.set(name, value);
    let settings = [
        ("aws_access_key_id", tcx_test_s3::ACCESS_KEY),
        ("aws_secret_access_key", tcx_test_s3::SECRET_KEY),
        ("aws_region", "us-east-1"),
    ];
    let client = settings.into_iter().fold(ClientOptions::default().deadline(DEADLINE), set);
    let cache = RemoteCache::new(url, near, client).unwrap().near_bytes(near_bytes);
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[WIDTH] };
    let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    let options =
        Options { flush_interval: Duration::from_millis(500), gc_grace: GC_GRACE, ..Options::default() };
    let start = Instant::now();
    loop {
        match cache.open(spec.clone(), &options) {
            Ok(store) => return store,
            // Opening needs the store.
            Err(_) if start.elapsed() < ENDS_WITHIN => std::thread::sleep(Duration::from_millis(100)),
            Err(error) => panic!("{error:#}"),
        }
    }
}

impl Machine {
    pub(crate) fn start(number: u64, life: u64, url: &str, dir: &Path) -> Self {
        // Some keep no copy, and some a few.
        let near_bytes = [None, Some(0), Some(200_000)][number as usize % 3];
        let store = open(url, &near(dir, number), near_bytes);
        Self { store, log: Log::open(dir, number, life), random: Random::new(1000 * number + life) }
    }

    pub(crate) fn run(&mut self) {
        let ends = Arc::new(AtomicBool::new(false));
        let asked = ends.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            asked.store(true, Ordering::SeqCst);
        });
        while !ends.load(Ordering::SeqCst) {
            self.step();
            std::thread::sleep(Duration::from_millis(self.random.below(20)));
        }
        let start = Instant::now();
        while !self.flush(true) {
            assert!(start.elapsed() < ENDS_WITHIN, "{:#}", self.store.flush().unwrap_err());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..40 => self.compute(),
            40..70 => self.find(None),
            70..82 => drop(self.flush(true)),
            82..86 => drop(self.flush(false)),
            86..93 => {
                let since = now();
                if self.store.refresh().is_ok() {
                    self.find(Some(since));
                }
            }
            93..98 => self.invalidate(),
            _ => drop(self.store.compact()),
        }
    }

    /// Distinct ids.
    fn keys(&mut self, count: usize) -> Vec<i64> {
        let mut keys: Vec<i64> = (0..count).map(|_| self.random.below(KEYS as u64) as i64).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn compute(&mut self) {
        let (keys, value) = (self.keys(8), now());
        let Ok(mut rows) = self.store.lookup(Keys::ints(keys.iter().copied(), 0)) else {
            return self.log.note(Event::Failed);
        };
        let missing = rows.distinct_missing_positions();
        for at in &missing {
            self.log.note(Event::Computing { key: keys[*at], value });
        }
        let values = value.to_le_bytes().repeat(WIDTH * missing.len());
        if self.store.insert(&mut rows, &missing, vec![Column::dense(&values)]).is_err() {
            return self.log.note(Event::Failed);
        }
        for at in &missing {
            self.log.note(Event::Computed { key: keys[*at], value });
        }
    }

    fn find(&mut self, since: Option<Time>) {
        let keys = self.keys(40);
        let found = self.look_up(&keys);
        for (key, value) in keys.into_iter().zip(found) {
            if let Some(value) = value {
                self.log.note(Event::Found { key, value, since });
            }
        }
    }

    fn look_up(&mut self, keys: &[i64]) -> Vec<Option<Time>> {
        let Ok(rows) = self.store.lookup(Keys::ints(keys.iter().copied(), 0)) else {
            self.log.note(Event::Failed);
            return vec![None; keys.len()];
        };
        let missing = rows.distinct_missing_positions();
        let mut values = Vec::with_capacity(keys.len());
        for (position, key) in keys.iter().enumerate() {
            if missing.contains(&position) {
                values.push(None);
                continue;
            }
            let bytes = rows.bytes(0, position);
            if bytes.chunks(8).any(|element| element != &bytes[..8]) {
                self.log.note(Event::Torn { key: *key });
            }
            values.push(Some(Time::from_le_bytes(bytes[..8].try_into().unwrap())));
        }
        values
    }

    /// Every id and its value, as a machine sees it that has just listed the store.
    pub(crate) fn find_all(mut self, keys: i64) -> Vec<Option<Time>> {
        self.store.refresh().unwrap();
        self.look_up(&(0..keys).collect::<Vec<_>>())
    }

    fn flush(&mut self, is_in_store: bool) -> bool {
        let since = now();
        let flushed = if is_in_store { self.store.flush() } else { self.store.flush_local() };
        let is_flushed = Event::Flushed { since, is_in_store };
        self.log.note(if flushed.is_ok() { is_flushed } else { Event::NotFlushed });
        flushed.is_ok()
    }

    fn invalidate(&mut self) {
        let key = 2 * self.random.below(KEYS as u64 / 2) as i64 + 1;
        self.log.note(Event::Invalidating { key });
        let is_done = self.store.invalidate(&Keys::ints([key], 0)).is_ok();
        self.log.note(Event::Invalidated { key, is_done });
    }
}
