//! A row that is too old for one process, or damaged for it, may have another stamp than what that process computes for the key: it makes way
//! in every process.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::live::damage::DamagedFiles;
use crate::storage::{LocalStorage, Storage, System};
use crate::testing::{Fault, Faulty, column, go_ahead, keys, seal_all, spec, values};
use crate::{Column, Keys, Options, ReadMode, StampType, Store};

fn open(dir: &Path, time_to_live: Option<Duration>) -> Store {
    with_stamps(LocalStorage::new(dir.join("m_v1"), System), time_to_live)
}

fn with_stamps(storage: impl Storage + 'static, time_to_live: Option<Duration>) -> Store {
    let (refresh_every, flush_interval) = (Duration::ZERO, Duration::from_hours(1));
    // What is read is read from the file each time.
    let memory_cache_bytes = 0;
    let options =
        Options { flush_interval, refresh_every, time_to_live, memory_cache_bytes, ..Options::default() };
    Store::with_storage(Arc::new(storage), spec().with_stamps(StampType::Number), &options).unwrap()
}

fn stamped(wanted: &[&str], stamp: u64) -> Keys {
    let stamps = stamp.to_le_bytes().repeat(wanted.len());
    keys(wanted).with_stamps(Column::dense(&stamps)).unwrap()
}

/// Computes these rows, which are missing under this stamp: their value is the stamp.
fn compute(store: &Store, wanted: &[&str], stamp: u64) {
    let mut rows = store.lookup(stamped(wanted, stamp)).unwrap();
    let positions = rows.distinct_missing_positions();
    assert_eq!(positions.len(), wanted.len());
    store.insert(&mut rows, &positions, column(&vec![stamp as i64; wanted.len()])).unwrap();
}

/// More rows than those that are computed later: a larger index run is searched first.
const OLD: [&str; 3] = ["x", "y", "z"];

fn compute_old(store: &Store) {
    compute(store, &OLD, 1);
    seal_all(store);
}

fn compute_new(store: &Store) {
    compute(store, &["x"], 2);
    seal_all(store);
}

fn has_made_way(dir: &Path) {
    for store in [open(dir, None), open(dir, Some(Duration::from_hours(1)))] {
        assert_eq!(values(&store, &["x"]), [2]);
        let missing = [1, 2].map(|stamp| store.lookup(stamped(&["x"], stamp)).unwrap().missing());
        assert_eq!(missing, [1, 0]);
    }
}

#[test]
fn a_row_of_another_stamp_that_is_too_old_for_one_process_makes_way_for_what_that_computes() {
    let dir = tempfile::tempdir().unwrap();
    go_ahead(Duration::ZERO);
    compute_old(&open(dir.path(), None));
    go_ahead(Duration::from_mins(70));
    compute_new(&open(dir.path(), Some(Duration::from_hours(1))));
    has_made_way(dir.path());
}

#[test]
fn a_row_of_another_stamp_that_one_process_takes_for_damaged_makes_way_for_what_that_computes() {
    let dir = tempfile::tempdir().unwrap();
    compute_old(&open(dir.path(), None));
    let store = open(dir.path(), None);
    let segments = store.core.snapshot().segments.clone();
    assert_eq!(segments.len(), 1);
    store.core.drop_damaged(&DamagedFiles { segments, ..DamagedFiles::default() });
    compute_new(&store);
    has_made_way(dir.path());
}

#[test]
fn a_row_of_another_stamp_that_waits_to_be_written_and_is_too_old_makes_way() {
    let dir = tempfile::tempdir().unwrap();
    go_ahead(Duration::ZERO);
    let store = open(dir.path(), Some(Duration::from_hours(1)));
    compute(&store, &OLD, 1);
    go_ahead(Duration::from_mins(70));
    compute_new(&store);
    has_made_way(dir.path());
}

/// Whatever reading fails for a moment when `x` is looked up, the old row is not left beside the new one.
#[test]
fn a_row_of_another_stamp_that_cannot_be_read_for_a_moment_makes_way() {
    for failing in 0..8 {
        let dir = tempfile::tempdir().unwrap();
        compute_old(&open(dir.path(), None));
        let (fails, reads) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
        let flag = fails.clone();
        let steps = Faulty::with(move |_, step, _| {
            let is_it = flag.load(SeqCst) && step == "read_at" && reads.fetch_add(1, SeqCst) == failing;
            is_it.then_some(Fault::Refused(ErrorKind::Other))
        });
        let storage = LocalStorage::new(dir.path().join("m_v1"), steps).reading(ReadMode::Pread);
        let store = with_stamps(storage, None);
        fails.store(true, SeqCst);
        compute(&store, &["x"], 2);
        fails.store(false, SeqCst);
        seal_all(&store);
        has_made_way(dir.path());
    }
}
