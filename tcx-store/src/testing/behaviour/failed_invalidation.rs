//! An invalidation that could not be written kills what was looked up before it, and nothing that was looked up after it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

use crate::changes::Doomed;
use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, names, process, replace, seal_all, values, with_operations};
use crate::upkeep::tasks::merge_changes;
use crate::{RecomputeSession, Result, Store};

/// A store on a disk that is full while the switch is on.
fn on_a_full_disk(dir: &Path) -> (Store, Arc<AtomicBool>) {
    let full = Arc::new(AtomicBool::new(false));
    let is_full = full.clone();
    let rule = move |_, step: &str, _: &Path| {
        (step == "create_file" && is_full.load(SeqCst)).then_some(Fault::Refused(ErrorKind::StorageFull))
    };
    (with_operations(dir, Faulty::with(rule)), full)
}

#[test]
fn a_row_for_a_rejected_one_outlives_an_invalidation_that_failed_before_the_rejection() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full) = on_a_full_disk(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    let mut rows = store.lookup(keys(&["x"])).unwrap();
    full.store(true, SeqCst);
    store.invalidate(&keys(&["x"])).unwrap_err();
    full.store(false, SeqCst);
    assert!(!store.reject(&mut rows, &[0]).unwrap(), "the row that was found is dead");
    assert!(rows.is_missing(0));
    store.insert(&mut rows, &[0], column(&[7])).unwrap();
    store.flush().unwrap();
    assert_eq!(values(&store, &["x"]), [7]);
    assert_eq!(values(&process(dir.path()), &["x"]), [7]);
    assert_eq!(store.stats().rows_dropped, 0);
}

#[test]
fn a_row_that_is_computed_after_a_failed_invalidation_outlives_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full) = on_a_full_disk(dir.path());
    compute(&store, &["sealed", "stays"], 1);
    store.flush().unwrap();
    compute(&store, &["buffered"], 1);
    full.store(true, SeqCst);
    store.invalidate(&keys(&["sealed", "buffered"])).unwrap_err();
    assert_eq!(values(&store, &["sealed", "buffered", "stays"]), [-1, -1, 1]);
    compute(&store, &["sealed", "buffered"], 2);
    assert_eq!(values(&store, &["sealed", "buffered", "stays"]), [2, 2, 1], "in the write buffer");
    full.store(false, SeqCst);
    store.flush().unwrap();
    assert_eq!(values(&store, &["sealed", "buffered", "stays"]), [2, 2, 1], "sealed");
    assert_eq!(store.stats().rows_dropped, 1, "the row that was buffered before");
    drop(store);
    let other = process(dir.path());
    assert_eq!(values(&other, &["sealed", "buffered", "stays"]), [2, 2, 1]);
    other.compact().unwrap();
    assert_eq!(values(&other, &["sealed", "buffered", "stays"]), [2, 2, 1], "compacted");
}

#[test]
fn invalidations_of_what_is_stored_succeed_when_one_is_written_that_has_failed_and_left_nothing_to_invalidate()
 {
    let how: [fn(&Store) -> Result<()>; 2] = [
        |store| store.invalidate_where(|_| true),
        |store| store.invalidate_older_than(SystemTime::now() + Duration::from_hours(1)),
    ];
    for invalidate in how {
        let dir = tempfile::tempdir().unwrap();
        let (store, full) = on_a_full_disk(dir.path());
        compute(&store, &["x"], 1);
        store.flush().unwrap();
        full.store(true, SeqCst);
        store.invalidate_all().unwrap_err();
        invalidate(&store).unwrap_err();
        assert_eq!(values(&process(dir.path()), &["x"]), [1]);
        full.store(false, SeqCst);
        invalidate(&store).unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [-1]);
    }
}

#[test]
fn a_lookup_counts_by_when_it_was_made_whenever_its_rows_come() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full) = on_a_full_disk(dir.path());
    compute(&store, &["x"], 1);
    let mut before = store.lookup(keys(&["before", "y"])).unwrap();
    full.store(true, SeqCst);
    store.invalidate_all().unwrap_err();
    let mut between = store.lookup(keys(&["x", "y"])).unwrap();
    assert_eq!(between.missing(), 2);
    store.invalidate(&keys(&["y"])).unwrap_err();
    let mut after = store.lookup(keys(&["y"])).unwrap();
    full.store(false, SeqCst);
    store.flush().unwrap();
    assert_eq!(names(dir.path(), "change-").len(), 3, "both are written");

    store.insert(&mut after, &[0], column(&[4])).unwrap();
    store.insert(&mut between, &[0, 1], column(&[3, 3])).unwrap();
    store.insert(&mut before, &[0, 1], column(&[2, 2])).unwrap();
    assert_eq!(values(&store, &["x", "y", "before"]), [3, 4, -1]);
    store.flush().unwrap();
    assert_eq!(values(&store, &["x", "y", "before"]), [3, 4, -1]);
    assert_eq!(values(&process(dir.path()), &["x", "y", "before"]), [3, 4, -1]);
}

#[test]
fn an_invalidation_of_another_process_kills_rows_that_outlive_a_failed_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full) = on_a_full_disk(dir.path());
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let other = process(dir.path());
    full.store(true, SeqCst);
    store.invalidate_all().unwrap_err();
    compute(&store, &["x", "y"], 2);
    let mut late = store.lookup(keys(&["z"])).unwrap();
    other.invalidate(&keys(&["x", "z"])).unwrap();
    full.store(false, SeqCst);
    store.flush().unwrap();
    store.insert(&mut late, &[0], column(&[2])).unwrap();
    assert_eq!(values(&store, &["x", "y", "z"]), [-1, 2, -1]);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [-1, 2, -1]);
}

#[test]
fn a_row_that_is_recomputed_after_a_failed_invalidation_outlives_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full) = on_a_full_disk(dir.path());
    let recompute = RecomputeSession::new();
    compute(&store, &["x", "y"], 1);
    assert_eq!(replace(&store, &recompute, &["x", "y"], 2), 2);
    full.store(true, SeqCst);
    store.invalidate(&keys(&["x"])).unwrap_err();
    assert_eq!(replace(&store, &recompute, &["x", "y"], 3), 1);
    assert_eq!(values(&store, &["x", "y"]), [3, 2]);
    full.store(false, SeqCst);
    store.flush().unwrap();
    assert_eq!(values(&store, &["x", "y"]), [3, 2]);
    assert_eq!(replace(&store, &recompute, &["x", "y"], 4), 0);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [3, 2]);
}

/// A store whose first change is written, is answered by an error, and cannot be read while the switch is on.
fn without_replies(dir: &Path) -> (Store, Arc<AtomicBool>) {
    let off = Arc::new(AtomicBool::new(false));
    let broken = off.clone();
    let rule = move |_, step: &str, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name == "change-00000000000000000001");
        let fault = match step {
            "open" => Fault::Refused(ErrorKind::Other),
            "metadata" => return None,
            _ => Fault::LostReply,
        };
        (is_change && broken.load(SeqCst)).then_some(fault)
    };
    (with_operations(dir, Faulty::with(rule)), off)
}

fn lost(dir: &Path, refreshes: bool) {
    let (store, off) = without_replies(dir);
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    off.store(true, SeqCst);
    store.invalidate(&keys(&["x"])).unwrap_err();
    assert_eq!(names(dir, "change-").len(), 2, "it is written all the same");
    let rows = store.lookup(keys(&["x"])).unwrap();
    assert_eq!(rows.missing(), 1);
    compute(&store, &["x"], 2);
    off.store(false, SeqCst);
    if refreshes {
        assert_eq!(values(&store, &["x", "y"]), [2, 1]);
    }
    store.flush().unwrap();
    assert_eq!(names(dir, "change-").len(), 2, "it is not written twice");
    assert_eq!(values(&store, &["x", "y"]), [2, 1]);
    assert_eq!(values(&process(dir), &["x", "y"]), [2, 1]);
}

#[test]
fn an_invalidation_whose_reply_was_lost_is_recognised() {
    for refreshes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        lost(dir.path(), refreshes);
    }
}

#[test]
fn recomputed_rows_outlive_their_tombstone_whose_reply_was_lost() {
    for refreshes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, off) = without_replies(dir.path());
        compute(&store, &["x", "y"], 1);
        store.flush().unwrap();
        let recompute = RecomputeSession::new();
        assert_eq!(replace(&store, &recompute, &["x"], 2), 1);
        off.store(true, SeqCst);
        store.flush().unwrap_err();
        assert_eq!(names(dir.path(), "change-").len(), 2, "it is written all the same");
        off.store(false, SeqCst);
        if refreshes {
            assert_eq!(values(&store, &["x", "y"]), [2, 1]);
        }
        store.flush().unwrap();
        assert_eq!(store.stats().rows_dropped, 0);
        assert_eq!(values(&store, &["x", "y"]), [2, 1]);
        assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 1]);
        assert_eq!(replace(&store, &recompute, &["x"], 3), 0);
    }
}

#[test]
fn recomputed_rows_outlive_their_unread_tombstone_that_another_process_has_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, off) = without_replies(dir.path());
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let recompute = RecomputeSession::new();
    assert_eq!(replace(&store, &recompute, &["x"], 2), 1);
    off.store(true, SeqCst);
    store.flush().unwrap_err();
    let other = process(dir.path());
    (0..20).for_each(|_| other.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap());
    // It reads all changes except its own, which is unreadable.
    store.refresh().unwrap();
    merge_changes(&other.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    off.store(false, SeqCst);
    store.refresh().unwrap();
    store.flush().unwrap();
    assert_eq!(store.stats().rows_dropped, 0);
    assert_eq!(values(&store, &["x", "y"]), [2, 1]);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 1]);
}

#[test]
fn a_change_that_was_created_is_not_removed_because_change_0_is_not_found_once() {
    let dir = tempfile::tempdir().unwrap();
    let is_created = AtomicBool::new(false);
    let steps = Faulty::with(move |_, step, path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if step == "link" && name.ends_with('1') {
            is_created.store(true, SeqCst);
        }
        let is_zero = step == "open" && name == "change-00000000000000000000";
        (is_zero && is_created.swap(false, SeqCst)).then_some(Fault::Refused(ErrorKind::NotFound))
    });
    let store = with_operations(dir.path(), steps.clone());
    compute(&store, &["x", "y"], 1);
    seal_all(&store);
    let other = process(dir.path());
    store.invalidate(&keys(&["x"])).unwrap();
    assert!(steps.has_failed());
    assert_eq!(names(dir.path(), "change-").len(), 2, "another process may have learned of it");
    assert_eq!(values(&other, &["x", "y"]), [-1, 1]);
    assert_eq!(values(&store, &["x", "y"]), [-1, 1]);
}

#[test]
fn dead_rows_are_counted_again_after_every_invalidation_that_could_not_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full) = on_a_full_disk(dir.path());
    compute(&store, &["x", "y", "z", "stays"], 1);
    seal_all(&store);
    let bytes = store.stats().bytes;
    full.store(true, SeqCst);
    for (number, key) in (1..).zip(["x", "y", "z"]) {
        store.invalidate(&keys(&[key])).unwrap_err();
        // All of them have the same number until they are written.
        assert_eq!(store.disk_usage().unwrap().dead_bytes, bytes * number / 4);
    }
}
