//! A process evicts rows, and then invalidates old ones or puts values, while another process joins the segments of these rows: they do
//! not come back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crate::testing::{Faulty, compute, process, put, seal_all, values, with_operations};
use crate::upkeep::compaction::Effort;

const KEYS: [&str; 3] = ["x", "y", "z"];

/// Each row in a segment of its own. While one process joins them and is about to take this step, all are evicted, and another does `then`.
/// Returns what is found afterwards.
fn evicted_while_joined(at: &'static str, then: fn(&Path)) -> Vec<i64> {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    for key in KEYS {
        compute(&writer, &[key], 1);
        seal_all(&writer);
    }
    let (waits, path) = (Arc::new(AtomicBool::new(false)), dir.path().to_owned());
    let waiting = waits.clone();
    let steps = Faulty::with(move |_, step, file: &Path| {
        // The index run of the new segment gets its name before the last look at the old ones.
        let is_run = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"));
        if step == at && !is_run && waiting.swap(false, SeqCst) {
            let other = process(&path);
            while values(&other, &KEYS) != [-1; 3] {
                other.make_room(1).unwrap();
            }
            then(&path);
        }
        None
    });
    let joining = with_operations(dir.path(), steps);
    joining.refresh().unwrap();
    waits.store(true, SeqCst);
    joining.core.compact(Effort::Thorough).unwrap();
    assert!(!waits.load(SeqCst), "nothing was joined");
    let found = values(&process(dir.path()), &KEYS);
    assert_eq!(values(&joining, &KEYS), found);
    found
}

#[test]
fn rows_that_were_evicted_before_old_ones_were_invalidated_do_not_come_back() {
    let by_age = |dir: &Path| {
        let minute = Duration::from_mins(1);
        process(dir).invalidate_older_than(SystemTime::now() + minute).unwrap();
    };
    assert_eq!(evicted_while_joined("sync", by_age), [-1; 3]);
    let by_key = |dir: &Path| process(dir).invalidate_where(|_| true).unwrap();
    assert_eq!(evicted_while_joined("sync", by_key), [-1; 3]);
    // After the last look.
    assert_eq!(evicted_while_joined("rename", by_age), [-1; 3]);
}

#[test]
fn values_that_are_put_in_the_place_of_evicted_rows_are_not_displaced_by_these() {
    let put_all = |dir: &Path| {
        let store = process(dir);
        for key in KEYS {
            put(&store, key, 2).unwrap();
        }
        store.flush().unwrap();
    };
    assert_eq!(evicted_while_joined("sync", put_all), [2; 3]);
}
