//! Modules whose files are in a store: two machines with a near tier each, whatever fails between them and the store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use support::options;
use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, ErrorKind, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};

/// Of calls while the store is away: long enough for a busy machine as long as it is not.
const GIVES_UP: Duration = Duration::from_secs(2);

fn cache_at(url: &str, near: &Path, client: ClientOptions) -> RemoteCache {
    match Location::parse(url).unwrap() {
        Location::Store(url) => RemoteCache::new(url, near, client).unwrap(),
        Location::Directory(path) => panic!("{} is a directory", path.display()),
    }
}

fn spec() -> Spec {
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[16] };
    Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap()
}

/// A machine: a near tier, and a process that has the module open.
struct Machine {
    near: tempfile::TempDir,
    cache: RemoteCache,
    store: Option<Arc<Store>>,
}

impl Machine {
    fn new(server: &Server) -> Self {
        Self::with(&server.url("p"), options(server))
    }

    /// One that waits for the store for a moment only.
    fn impatient(server: &Server) -> Self {
        Self::with(&server.url("p"), options(server).deadline(GIVES_UP))
    }

    fn with(url: &str, client: ClientOptions) -> Self {
        let near = tempfile::tempdir().unwrap();
        let mut machine = Self { cache: cache_at(url, near.path(), client), near, store: None };
        machine.open();
        machine
    }

    fn open(&mut self) {
        self.store = None;
        self.store = Some(self.cache.open(spec(), &Options::default()).unwrap());
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Computes those of these rows that are missing.
    fn compute(&self, keys: &[i64], value: i64) {
        compute(self.store(), keys, value);
    }

    fn values(&self, keys: &[i64]) -> Vec<Option<i64>> {
        values(self.store(), keys)
    }

    /// As the process sees it that has just listed the store.
    fn refreshed(&self, keys: &[i64]) -> Vec<Option<i64>> {
        self.store().refresh().unwrap();
        self.values(keys)
    }

    /// The copies of segments in the near tier, and those that wait.
    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        find(self.near.path(), &mut found);
        found.retain(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("seg-") && path.components().any(|part| part.as_os_str() == folder)
        });
        found
    }
}

fn find(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { find(&path, found) } else { found.push(path) }
    }
}

fn compute(store: &Store, keys: &[i64], value: i64) {
    let mut rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let values: Vec<u8> = (0..16 * missing.len()).flat_map(|_| value.to_le_bytes()).collect();
    store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
}

fn values(store: &Store, keys: &[i64]) -> Vec<Option<i64>> {
    let rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let value = |position| i64::from_le_bytes(rows.bytes(0, position)[..8].try_into().unwrap());
    (0..keys.len()).map(|position| (!missing.contains(&position)).then(|| value(position))).collect()
}

fn segments(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.contains("/seg-")).count()
}

/// No segment is written from now on.
fn deny_segments(server: &Server) {
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
}

#[test]
fn two_machines_fill_a_module_and_read_each_others_rows() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1, 2, 3], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1, 2, 3, 4]), [Some(10), Some(10), Some(10), None]);
    other.compute(&[1, 4], 20);
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3, 4]), [Some(10), Some(10), Some(10), Some(20)]);
    assert_eq!(segments(&server), 2);
    assert!(server.keys().iter().all(|key| !key.contains("/run-") && !key.contains("sessions")));
}

#[test]
fn rows_that_one_machine_invalidates_are_misses_on_the_other_and_are_computed_again() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1, 2]), [Some(10), Some(10)]);
    one.store().invalidate(&Keys::ints([1], 0)).unwrap();
    assert_eq!(other.refreshed(&[1, 2]), [None, Some(10)]);
    one.store().invalidate(&Keys::ints([3], 0)).unwrap();
    // The row is looked up after that has returned, and without a listing.
    other.compute(&[1, 3], 30);
    other.store().flush().unwrap();
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[1, 2, 3]), [Some(30), Some(10), Some(30)]);
    }
}

#[test]
fn a_row_that_is_replaced_is_served_by_every_machine_at_once() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1]), [Some(10)]);
    let mut rows = other.store().lookup(Keys::ints([1], 0)).unwrap();
    assert!(other.store().reject(&mut rows, &[0]).unwrap());
    let values: Vec<u8> = (0..16).flat_map(|_| 11_i64.to_le_bytes()).collect();
    other.store().insert(&mut rows, &[0], vec![Column::dense(&values)]).unwrap();
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2]), [Some(11), Some(10)]);
}

#[test]
fn another_module_is_refused_and_the_message_names_the_url() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    let near = tempfile::tempdir().unwrap();
    let cache = cache_at(&server.url("p"), near.path(), options(&server));
    let identity = [("size".to_owned(), "2".to_owned())].into_iter().collect();
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[16] };
    let foreign = Spec::new("m_v1", KeyType::Int, &output, identity, Vec::new()).unwrap();
    let refused = cache.open(foreign, &Options::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.to_string().contains(&server.url("p/m_v1")), "{refused}");
}

#[test]
fn a_store_that_ignores_conditions_is_refused_at_the_first_write() {
    let server = Server::start();
    server.fail(|faults| faults.ignores_conditions = true);
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    let refused = format!("{:#}", one.store().flush().unwrap_err());
    assert!(refused.contains("`If-None-Match: *`"), "{refused}");
    assert_eq!(segments(&server), 0);
}

#[test]
fn while_the_store_is_away_rows_are_found_and_kept_and_they_are_sent_when_it_is_back() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    one.compute(&[2, 3], 20);
    one.store().flush_local().unwrap();
    let failed = one.store().flush().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    one.compute(&[4], 30);
    one.store().flush_local().unwrap();
    assert_eq!(one.values(&[1, 2, 3, 4]), [Some(10), Some(20), Some(20), Some(30)]);
    let stats = one.store().stats();
    assert_eq!((stats.rows_dropped, stats.is_writing_off, stats.buffered_rows), (0, false, 0));
    assert_eq!(stats.traffic.waiting_files, 2);
    one.store().refresh().unwrap_err();
    assert_eq!(segments(&server), 1);
    server.fail(|faults| faults.is_away = false);
    one.store().flush().unwrap();
    assert_eq!(one.store().stats().traffic.waiting_files, 0);
    assert_eq!(segments(&server), 3);
    let other = Machine::new(&server);
    assert_eq!(other.values(&[1, 2, 3, 4]), [Some(10), Some(20), Some(20), Some(30)]);
}

#[test]
fn rows_that_vanish_before_they_are_sent_are_an_error_of_one_flush() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    for entry in fs::read_dir(one.near.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    server.fail(|faults| faults.is_away = false);
    let lost = format!("{:#}", one.store().flush().unwrap_err());
    assert!(lost.contains("1 of the segments that waited"), "{lost}");
    one.compute(&[3], 30);
    one.store().flush().unwrap();
    assert_eq!(Machine::new(&server).values(&[1, 2, 3]), [Some(10), None, Some(30)]);
}

#[test]
fn rows_are_not_kept_when_too_much_waits_and_flush_says_so() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.store = None;
    one.cache = one.cache.clone().spool_bytes(0);
    one.open();
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    one.compute(&[3], 30);
    let full = format!("{:#}", one.store().flush_local().unwrap_err());
    assert!(full.contains("bytes wait in"), "{full}");
    assert_eq!(one.values(&[1, 2, 3]), [Some(10), Some(20), Some(30)]);
    server.forget_planned();
    one.store().flush().unwrap();
    assert_eq!(Machine::new(&server).values(&[1, 2, 3]), [Some(10), Some(20), Some(30)]);
}

#[test]
fn rows_that_wait_die_by_an_invalidation_that_came_before_they_were_sent() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2, 3], 20);
    one.store().flush_local().unwrap();
    other.store().refresh().unwrap();
    other.store().invalidate(&Keys::ints([2], 0)).unwrap();
    assert_eq!(segments(&server), 1);
    server.forget_planned();
    one.store().flush().unwrap();
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[1, 2, 3]), [Some(10), None, Some(20)]);
    }
}

#[test]
fn what_waits_is_not_sent_to_a_module_that_has_taken_the_place_of_its_own() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    assert_eq!((one.files("spool").len(), segments(&server)), (1, 1));
    server.keys().iter().for_each(|key| server.remove(key));
    server.forget_planned();
    let other = Machine::new(&server);
    other.compute(&[3], 30);
    other.store().flush().unwrap();
    one.store().flush().unwrap_err();
    // Nor by the next process, which finds another module and what waits for the one before.
    drop(one.store.take());
    one.open();
    one.store().flush().unwrap();
    assert_eq!((one.files("spool").len(), segments(&server)), (1, 1));
    assert_eq!(other.refreshed(&[2, 3]), [None, Some(30)]);
}

#[test]
fn what_waits_is_not_served_beside_changes_of_another_history() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    let copy: Vec<_> = server.keys().into_iter().map(|key| (server.object(&key).unwrap(), key)).collect();
    one.store().invalidate(&Keys::ints([9], 0)).unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    one.store = None;
    // The older copy has no change 1, and gets another one.
    for key in server.keys() {
        server.remove(&key);
    }
    for (bytes, key) in &copy {
        server.put(key, bytes);
    }
    let other = Machine::new(&server);
    other.store().invalidate(&Keys::ints([2], 0)).unwrap();
    one.open();
    assert_eq!(one.values(&[1, 2]), [Some(10), None]);
    one.store().invalidate(&Keys::ints([3], 0)).unwrap();
    assert_eq!(other.refreshed(&[1, 2]), [Some(10), None]);
}

#[test]
fn a_module_cannot_be_opened_while_the_store_is_away_and_the_error_names_it() {
    let server = Server::start();
    server.fail(|faults| faults.is_away = true);
    let near = tempfile::tempdir().unwrap();
    let client = options(&server).deadline(GIVES_UP);
    let failed = cache_at(&server.url("p"), near.path(), client).open(spec(), &Options::default());
    let failed = format!("{:#}", failed.unwrap_err());
    assert!(failed.contains(&server.url("p/m_v1")), "{failed}");
}

#[test]
fn a_server_that_is_killed_and_started_again_has_what_was_acknowledged_and_gets_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::with_directory("127.0.0.1:0", dir.path()).unwrap();
    let (url, address) = (server.url("p"), server.url("").split('/').nth(2).unwrap().to_owned());
    let one = Machine::with(&url, options(&server).deadline(GIVES_UP));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    drop(server);
    one.compute(&[2], 20);
    one.store().flush().unwrap_err();
    assert_eq!(one.values(&[1, 2, 3]), [Some(10), Some(20), None]);
    let server = Server::with_directory(&address, dir.path()).unwrap();
    one.store().flush().unwrap();
    assert_eq!(Machine::new(&server).values(&[1, 2, 3]), [Some(10), Some(20), None]);
}

#[test]
fn a_damaged_download_is_received_again_and_one_that_stays_damaged_is_a_miss() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    for fault in [Fault::Flipped, Fault::Cut, Fault::Before, Fault::Throttled] {
        server.fail_next(Operation::Get, "/seg-", fault);
        assert_eq!(Machine::new(&server).values(&[1]), [Some(10)], "{fault:?}");
        assert_eq!(server.planned(), 0);
    }
    for _ in 0..2 {
        server.fail_next(Operation::Get, "/seg-", Fault::Flipped);
    }
    let mut other = Machine::new(&server);
    assert_eq!(other.values(&[1]), [None]);
    assert!(other.files("files").is_empty());
    other.open();
    assert_eq!(other.values(&[1]), [Some(10)]);
}

#[test]
fn a_lost_near_tier_and_a_damaged_copy_are_received_again() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    let copy = one.files("files").pop().unwrap();
    let mut bytes = fs::read(&copy).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, &bytes).unwrap();
    one.open();
    // The first look takes the copy out of service.
    one.values(&[1, 2]);
    one.store().refresh().unwrap();
    assert_eq!(one.values(&[1, 2]), [Some(10), Some(10)]);
    one.store = None;
    for entry in fs::read_dir(one.near.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    one.open();
    assert_eq!(one.values(&[1, 2]), [Some(10), Some(10)]);
    // Also while the module is open.
    for entry in fs::read_dir(one.near.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    one.compute(&[3], 30);
    one.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3]), [Some(10), Some(10), Some(30)]);
}

#[test]
fn segments_are_joined_and_replaced_ones_are_removed_from_the_store() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    for key in 0..6 {
        one.compute(&[key], key);
        one.store().flush().unwrap();
    }
    one.store().invalidate(&Keys::ints([5], 0)).unwrap();
    one.store().compact().unwrap();
    assert!(segments(&server) > 1, "readers find the old ones for an hour");
    one.store().collect(Duration::ZERO).unwrap();
    assert_eq!(segments(&server), 1);
    let expected = [Some(0), Some(1), Some(2), Some(3), Some(4), None];
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[0, 1, 2, 3, 4, 5]), expected);
    }
}

#[test]
fn the_requests_of_a_store_are_counted_as_the_server_counts_them() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    let (traffic, counts) = (one.store().stats().traffic, server.counts());
    assert_eq!(
        (traffic.puts, traffic.gets, traffic.heads, traffic.lists, traffic.deletes),
        (counts.puts, counts.gets, counts.heads, counts.lists, counts.deletes)
    );
    assert!(traffic.bytes_sent > 0);
    let before = server.counts().all();
    for _ in 0..1000 {
        assert_eq!(one.values(&[1]), [Some(10)]);
    }
    // The store is listed now and then.
    assert!(server.counts().all() - before < 10, "rows that are found cost no request");
}

#[test]
fn with_every_fault_at_once_no_row_is_wrong_and_none_that_was_flushed_is_lost() {
    let server = Server::start();
    let machines = [Machine::new(&server), Machine::new(&server)];
    machines[0].compute(&[0], 0);
    machines[0].store().flush().unwrap();
    server.fail(|faults| {
        faults.permille = vec![
            (Fault::Before, 50),
            (Fault::After, 50),
            (Fault::Throttled, 30),
            (Fault::Conflict, 50),
            (Fault::Cut, 30),
            (Fault::Flipped, 30),
            (Fault::Late(Duration::from_millis(5)), 100),
            (Fault::Stale, 200),
        ];
    });
    let mut flushed = vec![0];
    for round in 1..30_i64 {
        let machine = &machines[round as usize % 2];
        machine.compute(&[round], round);
        if round % 7 == 0 {
            // An error says nothing of what has become of it.
            let _ = machine.store().invalidate(&Keys::ints([1000 + round], 0));
        }
        if machine.store().flush().is_ok() {
            flushed.push(round);
        }
        for machine in &machines {
            let keys: Vec<i64> = (0..=round).collect();
            for (key, value) in keys.iter().zip(machine.values(&keys)) {
                assert!(value.is_none_or(|value| value == *key), "{key}: {value:?}");
            }
        }
    }
    server.fail(|faults| faults.permille.clear());
    let other = Machine::new(&server);
    let expected: Vec<_> = flushed.iter().map(|key| Some(*key)).collect();
    assert_eq!(other.values(&flushed), expected);
    assert!(flushed.len() > 10);
}
