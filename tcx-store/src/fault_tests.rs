//! Every step of the file system fails once, in every way: nothing acknowledged is lost, nothing wrong is
//! served, and writing goes on once it works again.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::storage::{Fault, Faulty, LocalStorage};
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Lookup, Options, Spec, Store};

const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };

fn spec() -> Spec {
    Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap()
}

fn options() -> Options {
    Options { seal_after: Duration::from_hours(1), refresh_every: Duration::ZERO, ..Options::default() }
}

/// The row of a key is its square.
fn compute(store: &Store, keys: Range<i64>) -> usize {
    let mut rows = store.lookup(Keys::ints(keys.clone(), 0)).unwrap();
    let missing = rows.missing_positions();
    let squares =
        missing.iter().map(|&position| keys.start + position as i64).flat_map(|k| (k * k).to_le_bytes());
    store.insert(&mut rows, &missing, vec![Column::dense(&squares.collect::<Vec<_>>())]).unwrap();
    check(&rows, keys);
    missing.len()
}

fn check(rows: &Lookup, keys: Range<i64>) {
    for (position, key) in keys.enumerate() {
        assert_eq!(rows.bytes(0, position), (key * key).to_le_bytes());
    }
}

/// Two rounds of rows with faults, then a third without; `true` as long as a fault happened.
fn survives(fault: Fault, fail: Range<usize>) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let steps = Faulty::new(fault, fail);
    let storage = LocalStorage::new(dir.path().join("cache/m_v1"), steps.clone());
    let Ok(store) = Store::with_storage(Arc::new(storage), spec(), &options()) else {
        return steps.has_failed();
    };
    let mut acknowledged = Vec::new();
    for keys in [0..10, 5..20] {
        let dropped = store.stats().rows_dropped;
        compute(&store, keys.clone());
        if store.flush().is_ok() && store.stats().rows_dropped == dropped {
            acknowledged.push(keys);
        }
    }
    for keys in acknowledged {
        assert_eq!(missing(dir.path(), keys), 0, "acknowledged is durable");
    }
    while store.flush().is_err() {}
    compute(&store, 0..30);
    while store.flush().is_err() {}
    drop(store);
    assert_eq!(missing(dir.path(), 0..30), 0, "once writing works, everything is written");
    steps.has_failed()
}

/// How many rows another process would have to compute.
fn missing(dir: &Path, keys: Range<i64>) -> usize {
    let storage = LocalStorage::new(dir.join("cache/m_v1"), crate::storage::System);
    let store = Store::with_storage(Arc::new(storage), spec(), &options()).unwrap();
    assert_eq!(store.stats().damaged_segments, 0);
    compute(&store, keys)
}

fn survives_everywhere(fault: Fault, length: usize) {
    let mut at = 0;
    while survives(fault, at..at + length) {
        at += 1;
    }
    assert!(at > 30, "{fault:?}: the faults reached {at} steps only");
}

#[test]
fn a_refused_step_loses_nothing() {
    survives_everywhere(Fault::Refused(ErrorKind::StorageFull), 1);
    survives_everywhere(Fault::Refused(ErrorKind::PermissionDenied), 1);
}

#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing() {
    survives_everywhere(Fault::Refused(ErrorKind::StorageFull), 25);
}

#[test]
fn a_lost_reply_loses_nothing() {
    survives_everywhere(Fault::LostReply, 1);
}

#[test]
fn a_vanished_file_loses_nothing() {
    survives_everywhere(Fault::Refused(ErrorKind::NotFound), 1);
}

#[test]
fn a_short_write_is_completed() {
    survives_everywhere(Fault::ShortWrite, 3);
}

#[test]
fn while_writing_is_off_rows_are_served_but_not_queued() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path().join("cache/m_v1"), crate::storage::System);
    let store = Store::with_storage(Arc::new(storage), spec(), &options()).unwrap();
    std::fs::write(dir.path().join("cache"), "a file where the directory should be").unwrap();
    assert_eq!(compute(&store, 0..10), 10);
    assert!(store.flush().is_err());
    assert!(store.trouble().is_some());
    assert_eq!(compute(&store, 0..10), 0, "rows of before stay readable");
    assert_eq!(compute(&store, 10..15), 5);
    assert_eq!(compute(&store, 10..15), 5, "not queued, but not an error either");
    assert_eq!(store.stats().rows_dropped, 10);
    std::fs::remove_file(dir.path().join("cache")).unwrap();
    store.flush().unwrap();
    assert!(store.trouble().is_none(), "writing is on again");
    assert_eq!(missing(dir.path(), 0..10), 0);
}
