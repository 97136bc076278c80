//! Changes that other processes make all the time keep no row from being written for ever, and are no failure.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crate::testing::{Faulty, compute, keys, names, process, replace, values, with_operations};
use crate::write::seal_queue::SealQueue;
use crate::{ErrorKind, Keys, RecomputeSession, Store};

/// A process whose rows are written and not yet named when another process invalidates this key, as often as `times` says.
fn contended(dir: &Path, key: &'static str, times: &Arc<AtomicUsize>) -> Store {
    // The index run of a segment gets its name just before the segment is committed.
    contended_at(dir, ("rename", "run-"), key, times)
}

/// A process before whose step with a file of this kind another process invalidates this key.
fn contended_at(
    dir: &Path,
    (step, kind): (&'static str, &'static str),
    key: &'static str,
    times: &Arc<AtomicUsize>,
) -> Store {
    let (other, times) = (process(dir), times.clone());
    with_operations(
        dir,
        Faulty::with(move |_, found, path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_due = found.starts_with(step) && name.starts_with(kind);
            if is_due && times.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                other.invalidate(&keys(&[key])).unwrap();
            }
            None
        }),
    )
}

#[test]
fn rows_are_replaced_though_another_process_makes_a_change_whenever_they_are_written() {
    for times in [1, 7, 8, 9, 40] {
        let dir = tempfile::tempdir().unwrap();
        let (first, a, b) = (process(dir.path()), RecomputeSession::new(), RecomputeSession::new());
        compute(&first, &["x", "y", "z"], 1);
        first.flush().unwrap();
        let store = contended(dir.path(), "busy", &Arc::new(AtomicUsize::new(times)));
        assert_eq!(replace(&store, &a, &["x"], 2), 1);
        assert_eq!(replace(&store, &b, &["y"], 3), 1);
        store.flush().unwrap();
        let stats = store.stats();
        assert_eq!((stats.write_failures, stats.rows_dropped, stats.rows_sealed), (0, 0, 2), "{times} times");
        assert_eq!(names(dir.path(), "change-").len(), 1 + times + 2);
        for own in [&store, &process(dir.path())] {
            assert_eq!(values(own, &["x", "y", "z"]), [2, 3, 1], "{times} times");
        }
        // Each session knows its own row.
        assert_eq!((replace(&store, &a, &["x"], 4), replace(&store, &b, &["y"], 4)), (0, 0), "{times} times");
        assert_eq!(replace(&store, &a, &["y"], 5), 1, "{times} times");
    }
}

#[test]
fn rows_that_replace_none_are_written_once_however_often_other_processes_make_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (first, other) = (process(dir.path()), process(dir.path()));
    compute(&first, &["x"], 1);
    first.flush().unwrap();
    let (drafts, left) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(5));
    let counted = drafts.clone();
    let steps = Faulty::with(move |_, step, path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        counted.fetch_add(usize::from(step == "create_file"), SeqCst);
        let is_due = step.starts_with("rename") && name.starts_with("run-");
        if is_due && left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            // The third names a row that replaces none.
            let key = if left.load(SeqCst) == 2 { "z" } else { "busy" };
            other.invalidate(&keys(&[key])).unwrap();
        }
        None
    });
    let store = with_operations(dir.path(), steps);
    compute(&store, &["y", "z"], 3);
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], 2), 1);
    // Not by the writer, whose upkeep makes files, too.
    SealQueue::new(store.core.clone()).seal_all().unwrap();
    // Of six attempts each has a segment and an index run for the row that replaces another. The other rows have a segment at first, one
    // without `z`, and an index run in the end. And there is the tombstone.
    assert_eq!(drafts.load(SeqCst), 6 * 2 + 2 + 1 + 1);
    for own in [&store, &process(dir.path())] {
        assert_eq!(values(own, &["x", "y", "z"]), [2, 3, -1]);
    }
}

#[test]
fn a_row_that_another_process_invalidates_whenever_it_is_written_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (first, session) = (process(dir.path()), RecomputeSession::new());
    compute(&first, &["x", "y"], 1);
    first.flush().unwrap();
    let store = contended(dir.path(), "x", &Arc::new(AtomicUsize::new(20)));
    assert_eq!(replace(&store, &session, &["x", "y"], 2), 2);
    store.flush().unwrap();
    let stats = store.stats();
    assert_eq!((stats.write_failures, stats.rows_dropped, stats.rows_sealed), (0, 1, 1));
    for own in [&store, &process(dir.path())] {
        assert_eq!(values(own, &["x", "y"]), [-1, 2]);
    }
}

#[test]
fn rows_that_contention_keeps_from_being_written_wait_in_the_buffer_and_writing_stays_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    compute(&first, &["x"], 1);
    first.flush().unwrap();
    let times = Arc::new(AtomicUsize::new(usize::MAX));
    let store = contended(dir.path(), "busy", &times);
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], 2), 1);
    let mut seal_queue = SealQueue::new(store.core.clone());
    for _ in 0..3 {
        let error = seal_queue.seal_all().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended);
        assert!(error.to_string().contains("stay in the write buffer"), "{error}");
    }
    assert_eq!(usize::MAX - times.load(SeqCst), 3 * 8, "each time in eight attempts");
    let left = (names(dir.path(), "seg-").len(), names(dir.path(), "run-").len());
    assert_eq!(left, (1, 1), "nothing is left of the attempts");
    let stats = store.stats();
    assert_eq!((stats.write_failures, stats.rows_dropped, stats.is_writing_off), (0, 0, false));
    assert_eq!((values(&store, &["x"]), values(&process(dir.path()), &["x"])), (vec![2], vec![1]));
    compute(&store, &["y"], 3);
    times.store(0, SeqCst);
    seal_queue.seal_all().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 3]);
}

#[test]
fn rows_that_contention_keeps_from_being_evicted_stay_until_the_next_eviction() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    compute(&first, &["x"], 1);
    first.flush().unwrap();
    let times = Arc::new(AtomicUsize::new(usize::MAX));
    let store = contended_at(dir.path(), ("link", "change-"), "busy", &times);
    let error = store.make_room(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    assert_eq!(values(&process(dir.path()), &["x"]), [1]);
    times.store(0, SeqCst);
    let before = names(dir.path(), "change-").len();
    store.make_room(1).unwrap();
    assert_eq!(names(dir.path(), "change-").len(), before + 2);
    assert_eq!(values(&process(dir.path()), &["x"]), [-1]);
}

#[test]
fn an_invalidation_that_contention_keeps_from_being_written_holds_here_and_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    compute(&first, &["x", "y"], 1);
    first.flush().unwrap();
    let times = Arc::new(AtomicUsize::new(usize::MAX));
    let store = contended_at(dir.path(), ("link", "change-"), "busy", &times);
    let error = format!("{:#}", store.invalidate(&keys(&["x"])).unwrap_err());
    assert!(error.contains("again and again"), "{error}");
    assert_eq!((values(&store, &["x"]), values(&process(dir.path()), &["x"])), (vec![-1], vec![1]));
    let error = store.invalidate_older_than(SystemTime::now() + Duration::from_mins(1)).unwrap_err();
    assert!(format!("{error:#}").contains("again and again"), "{error:#}");
    assert_eq!(values(&process(dir.path()), &["y"]), [1]);
    times.store(0, SeqCst);
    // With the next change.
    store.invalidate(&keys(&["busy"])).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, 1]);
}

#[test]
fn very_many_keys_are_invalidated_by_several_changes() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let others = (0..100_000).map(|number| format!("other {number}"));
    let wanted: Vec<String> = ["x".to_owned()].into_iter().chain(others).chain(["y".to_owned()]).collect();
    store.invalidate(&Keys::text(wanted, 0).unwrap()).unwrap();
    assert_eq!(names(dir.path(), "change-").len(), 1 + 2);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, -1]);
}
