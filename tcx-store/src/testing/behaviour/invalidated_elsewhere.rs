//! Invalidations of rows that the process which invalidates them does not serve, and another does.

use std::fs::{read, remove_file, write};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use crate::storage::{LocalStorage, System};
use crate::testing::{compute, keys, names, process, seal_all, spec, values};
use crate::{Options, Result, Store};

/// The invalidations that have to see the rows.
const HOW: [fn(&Store) -> Result<()>; 2] =
    [|store| store.invalidate_where(|_| true), |store| store.invalidate_older_than(SystemTime::now())];

/// Changes bytes of the only segment, so far before its end.
fn damage(dir: &Path, before_the_end: usize) {
    let segment = names(dir, "seg-").pop().unwrap();
    let path = dir.join("m_v1").join(segment);
    let mut bytes = read(&path).unwrap();
    let at = bytes.len() - before_the_end;
    bytes[at..at + 8].fill(0xab);
    remove_file(&path).unwrap();
    write(&path, bytes).unwrap();
}

#[test]
fn rows_that_are_too_old_for_this_process_are_invalidated_for_others() {
    for invalidate in HOW {
        let dir = tempfile::tempdir().unwrap();
        let other = process(dir.path());
        compute(&other, &["x"], 1);
        seal_all(&other);
        let hour = Duration::from_hours(1);
        let time_to_live = Some(Duration::from_millis(1));
        let options = Options { flush_interval: hour, time_to_live, ..Options::default() };
        let storage = Arc::new(LocalStorage::new(dir.path().join("m_v1"), System));
        let own = Store::with_storage(storage, spec(), &options).unwrap();
        sleep(Duration::from_millis(5));
        assert_eq!((values(&own, &["x"]), values(&other, &["x"])), (vec![-1], vec![1]));
        invalidate(&own).unwrap();
        assert_eq!(values(&other, &["x"]), [-1]);
    }
}

#[test]
fn rows_of_a_segment_that_this_process_has_found_damaged_are_invalidated_for_others() {
    for invalidate in HOW {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..20_000).map(|id| format!("id {id}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let store = process(dir.path());
        compute(&store, &ids, 1);
        seal_all(&store);
        drop(store);
        // The last values.
        damage(dir.path(), 60_000);
        let own = process(dir.path());
        assert!(own.lookup(keys(&ids)).unwrap().missing() > 0);
        let other = process(dir.path());
        assert_eq!((values(&own, &["id 0"]), values(&other, &["id 0"])), (vec![-1], vec![1]));
        invalidate(&own).unwrap();
        assert_eq!(values(&other, &["id 0"]), [-1]);
    }
}

#[test]
fn a_segment_that_no_process_can_open_keeps_nothing_from_being_invalidated() {
    for invalidate in HOW {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        seal_all(&store);
        damage(dir.path(), 20);
        let own = process(dir.path());
        compute(&own, &["y"], 1);
        sleep(Duration::from_millis(5));
        invalidate(&own).unwrap();
        assert_eq!(values(&own, &["x", "y"]), [-1, -1]);
    }
}
