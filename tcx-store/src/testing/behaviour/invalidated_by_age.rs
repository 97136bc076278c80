//! Invalidations by age while other processes replace rows.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use super::uncommitted::killed_before_the_commit;
use crate::testing::{
    Fault, Faulty, column, compute, go_ahead, keys, kill_z, names, process, replace, seal_all, values,
    with_operations, without_change,
};
use crate::upkeep::tasks::merge_changes;
use crate::{Lookup, Losses, RecomputeSession, Store};

/// Runs `other` when the first change of its process is about to get its name.
fn before_the_change(dir: &Path, other: impl Fn() + Send + Sync + 'static) -> Store {
    let happened = AtomicBool::new(false);
    let steps = Faulty::with(move |_, step, path: &Path| -> Option<Fault> {
        let is_change = path.ends_with("change-00000000000000000001");
        if step == "link" && is_change && !happened.swap(true, SeqCst) {
            other();
        }
        None
    });
    with_operations(dir, steps)
}

/// A folder in which `x` and `y` were computed an hour before now.
fn with_old_rows() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    go_ahead(Duration::from_secs(1));
    compute(&store, &["x", "y"], 5);
    seal_all(&store);
    go_ahead(Duration::from_hours(2));
    dir
}

fn an_hour_ago(store: &Store) -> crate::Result<()> {
    store.invalidate_older_than(SystemTime::now() + Duration::from_hours(1))
}

#[test]
fn what_replaces_an_old_row_during_an_invalidation_by_age_stays() {
    let dir = with_old_rows();
    let other = process(dir.path());
    let store = before_the_change(dir.path(), move || {
        replace(&other, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&other);
    });
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, -1]);
    assert_eq!(values(&store, &["x", "y"]), [1000, -1]);
}

#[test]
fn a_failed_invalidation_by_age_is_not_made_up_for_once_rows_are_replaced() {
    let dir = with_old_rows();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let steps = Faulty::with(move |_, step, _: &Path| {
        let is_full = step == "create_file" && failing.load(SeqCst);
        is_full.then_some(Fault::Refused(std::io::ErrorKind::StorageFull))
    });
    let store = with_operations(dir.path(), steps);
    an_hour_ago(&store).unwrap_err();
    let other = process(dir.path());
    replace(&other, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&other);
    compute(&store, &["x", "z"], 7);
    fails.store(false, SeqCst);
    store.flush().unwrap();
    process(dir.path()).compact().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [1000, 5, 7]);
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [1000, -1, 7]);
}

#[test]
fn a_value_that_another_thread_puts_during_an_invalidation_by_age_stays_or_is_reported() {
    let dir = with_old_rows();
    let losses = Arc::new(Losses::default());
    let thread: Arc<OnceLock<Thread>> = Arc::default();
    let store = before_the_change(dir.path(), {
        let (thread, losses) = (thread.clone(), losses.clone());
        move || {
            let Thread { store, rows } = thread.get().unwrap();
            let mut rows = rows.lock().unwrap().take().unwrap();
            assert!(store.insert_for(&losses, &mut rows, &[0], column(&[1000]), None).unwrap());
        }
    });
    let store = Arc::new(store);
    let session = RecomputeSession::new();
    let rows = store.lookup_to_put(keys(&["x"]), Some(&session)).unwrap();
    let _ = thread.set(Thread { store: store.clone(), rows: Mutex::new(Some(rows)) });
    an_hour_ago(&store).unwrap();
    let flushed = store.flush_for(&losses);
    let found = values(&process(dir.path()), &["x", "y"]);
    assert!(found == [1000, -1] || flushed.is_err() && found == [-1, -1], "{flushed:?}, {found:?}");
}

#[test]
fn what_a_killed_process_has_not_committed_does_not_make_a_young_value_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    go_ahead(Duration::from_secs(1));
    compute(&store, &["y"], 5);
    seal_all(&store);
    drop(store);
    killed_before_the_commit(dir.path());
    go_ahead(Duration::from_hours(2));
    let store = process(dir.path());
    let mut rows = store.lookup_to_put(keys(&["x"]), None).unwrap();
    store.insert(&mut rows, &[0], column(&[50])).unwrap();
    store.flush().unwrap();
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [50, -1]);
}

/// Another thread of the process that invalidates, which is about to put a row.
struct Thread {
    store: Arc<Store>,
    rows: Mutex<Option<Lookup>>,
}

#[test]
fn what_a_change_has_replaced_that_cannot_be_read_stays() {
    let dir = with_old_rows();
    let other = process(dir.path());
    replace(&other, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&other);
    let fails = Arc::new(AtomicBool::new(true));
    let store = without_change(1, dir.path(), &fails);
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, -1]);
    fails.store(false, SeqCst);
    store.refresh().unwrap();
    assert_eq!(values(&store, &["x", "y"]), [1000, -1]);
}

#[test]
fn old_rows_that_another_process_has_not_written_yet_are_invalidated_and_young_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (process(dir.path()), process(dir.path()));
    go_ahead(Duration::from_secs(1));
    compute(&store, &["w"], 1);
    seal_all(&store);
    compute(&other, &["x"], 5);
    let losses = Arc::new(Losses::new());
    let mut rows = other.lookup_to_put(keys(&["y"]), None).unwrap();
    assert!(other.insert_for(&losses, &mut rows, &[0], column(&[6]), None).unwrap());
    go_ahead(Duration::from_hours(2));
    compute(&other, &["z"], 7);
    an_hour_ago(&store).unwrap();
    let lost = other.flush_for(&losses).unwrap_err().to_string();
    assert!(lost.contains("1 computed row was not kept"), "{lost}");
    for store in [&store, &other, &process(dir.path())] {
        assert_eq!(values(store, &["w", "x", "y", "z"]), [-1, -1, -1, 7]);
    }
}

#[test]
fn an_invalidation_by_age_names_no_key_and_outlives_that_its_change_is_merged_and_damaged() {
    let dir = with_old_rows();
    let store = process(dir.path());
    compute(&store, &["z"], 7);
    seal_all(&store);
    an_hour_ago(&store).unwrap();
    let change = dir.path().join("m_v1/change-00000000000000000001");
    let bytes = std::fs::read(&change).unwrap();
    assert!(bytes.len() < 150, "{} bytes", bytes.len());
    (0..16).for_each(|_| kill_z(&store));
    merge_changes(&store.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, -1]);
    std::fs::remove_file(&change).unwrap();
    std::fs::write(&change, &bytes[..bytes.len() - 1]).unwrap();
    let folder = dir.path().join("m_v1");
    let found = crate::verify(&folder, &mut |_, _| {}).unwrap().damage;
    assert_eq!(crate::repair(&folder, &found, &mut |_, _| {}).unwrap().len(), 1);
    assert!(bytes.len() == std::fs::read(&change).unwrap().len(), "it says what it had said");
    // Nothing but the repaired change says so any more.
    std::fs::remove_file(folder.join(&names(dir.path(), "merged-")[0])).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, -1]);
}

#[test]
fn rows_that_are_invalidated_by_their_age_are_removed_and_younger_ones_of_their_keys_stay() {
    let dir = with_old_rows();
    let store = process(dir.path());
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&store, &["x", "y"]), [-1, -1]);
    compute(&store, &["x"], 8);
    seal_all(&store);
    an_hour_ago(&store).unwrap();
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [8, -1]);
    }
}

#[test]
fn a_file_that_is_removed_before_it_is_seen_is_gone_for_good_once_what_is_stored_is_invalidated() {
    for is_by_age in [true, false] {
        let (dir, is_removed) = (with_old_rows(), Arc::new(OnceLock::new()));
        let (files, is_durable) = (names(dir.path(), "seg-"), Arc::new(AtomicBool::new(false)));
        let files: Vec<_> = files.into_iter().map(|name| dir.path().join("m_v1").join(name)).collect();
        let (armed, seen) = (Arc::new(AtomicBool::new(false)), is_durable.clone());
        let now = armed.clone();
        let steps = Faulty::with(move |_, step, _: &Path| -> Option<Fault> {
            if step == "list" && now.load(SeqCst) {
                // As another process evicts it.
                is_removed.get_or_init(|| files.iter().for_each(|file| std::fs::remove_file(file).unwrap()));
            }
            seen.fetch_or(step == "sync_dir" && is_removed.get().is_some(), SeqCst);
            None
        });
        let store = with_operations(dir.path(), steps);
        armed.store(true, SeqCst);
        let invalidated = if is_by_age { an_hour_ago(&store) } else { store.invalidate_where(|_| true) };
        invalidated.unwrap();
        assert!(is_durable.load(SeqCst), "no change names its rows, which a loss of power would bring back");
    }
}

#[test]
fn a_young_row_lives_on_in_its_own_segment_when_the_one_that_it_was_joined_to_is_invalidated_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    go_ahead(Duration::from_secs(1));
    compute(&store, &["x", "y"], 5);
    seal_all(&store);
    go_ahead(Duration::from_secs(20));
    compute(&store, &["z"], 7);
    seal_all(&store);
    store.compact().unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 3);
    store.invalidate_older_than(crate::sys::runtime::wall() - Duration::from_secs(10)).unwrap();
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "z"]), [-1, -1, 7]);
    }
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "z"]), [-1, -1, 7]);
    }
}

/// A value that is put for a rejected one waits to be written: the old one is stored still.
#[test]
fn a_value_that_was_just_put_for_a_rejected_one_is_not_invalidated_as_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 5);
    seal_all(&store);
    go_ahead(Duration::from_hours(2));
    let losses = Arc::new(Losses::new());
    let mut rows = store.lookup_to_put(keys(&["x"]), None).unwrap();
    assert!(store.reject(&mut rows, &[0]).unwrap());
    assert!(store.insert_for(&losses, &mut rows, &[0], column(&[7]), None).unwrap());
    assert_eq!(values(&store, &["x"]), [7]);
    store.invalidate_older_than(crate::sys::runtime::wall() - Duration::from_hours(1)).unwrap();
    let own = values(&store, &["x"]);
    let flushed = store.flush_for(&losses);
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || fresh == [7], "own {own:?}, flush {flushed:?}, fresh {fresh:?}");
}

/// A dead row waits in the write buffer of the process that invalidates by age.
#[test]
fn what_is_younger_is_not_invalidated_because_of_a_dead_row_in_the_write_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (process(dir.path()), process(dir.path()));
    go_ahead(Duration::from_secs(1));
    compute(&store, &["w"], 1);
    seal_all(&store);
    compute(&other, &["x"], 5);
    go_ahead(Duration::from_hours(2));
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    store.flush().unwrap();
    assert_eq!(values(&other, &["x"]), [1000]);
    go_ahead(Duration::from_mins(121));
    let limit = crate::sys::runtime::wall() - Duration::from_hours(1);
    other.invalidate_older_than(limit).unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
}
