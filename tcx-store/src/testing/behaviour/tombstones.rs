//! Invalidated rows are dead: here, in other processes, on disk, and whenever they were computed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

use crate::LookupOptions;
use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, names, process, reader, replace, values, with_operations};
use crate::{Keys, RecomputeSession};

#[test]
fn an_invalidated_row_is_dead_in_every_process_and_can_be_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    compute(&a, &["x", "y"], 1);
    a.flush().unwrap();
    assert_eq!(values(&b, &["x", "y"]), [1, 1]);
    b.invalidate(&keys(&["x"])).unwrap();
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [-1, 1]);
    }
    compute(&a, &["x", "y"], 2);
    a.flush().unwrap();
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [2, 1]);
    }
}

#[test]
fn rows_that_are_not_sealed_yet_die_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 1);
    store.invalidate(&keys(&["x"])).unwrap();
    assert_eq!(values(&store, &["x", "y"]), [-1, 1]);
    compute(&store, &["x"], 2);
    assert_eq!(values(&store, &["x", "y"]), [2, 1], "computed after the invalidation");
    store.flush().unwrap();
    let stats = store.stats();
    assert_eq!((stats.rows_dropped, stats.rows_superseded, stats.rows_not_kept()), (1, 1, 0));
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 1]);
}

#[test]
fn a_row_that_was_looked_up_before_an_invalidation_and_sealed_after_it_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    compute(&a, &["z"], 0);
    a.flush().unwrap();
    let mut rows = a.lookup(keys(&["x", "y"])).unwrap();
    b.invalidate(&keys(&["x"])).unwrap();
    a.insert(&mut rows, &[0, 1], column(&[1, 1])).unwrap();
    a.flush().unwrap();
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "z"]), [-1, 1, 0]);
    }
    assert_eq!(a.stats().rows_dropped, 1);
}

#[test]
fn what_is_invalidated_can_be_a_prefix_a_predicate_an_age_or_everything() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let all = ["train/a", "train/b", "test/a", "test/b"];
    compute(&store, &all[..2], 1);
    store.flush().unwrap();
    compute(&store, &all[2..], 1);
    store.invalidate_prefix(b"train/a").unwrap();
    assert_eq!(values(&store, &all), [-1, 1, 1, 1]);
    store.invalidate_where(|key| key.ends_with(b"/b")).unwrap();
    assert_eq!(values(&process(dir.path()), &all), [-1, -1, -1, -1], "nothing of the rest is sealed");
    assert_eq!(values(&store, &all), [-1, -1, 1, -1]);
    store.invalidate_older_than(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    assert_eq!(values(&store, &all), [-1, -1, 1, -1], "nothing is so old");
    store.invalidate_older_than(SystemTime::now() + Duration::from_secs(1)).unwrap();
    assert_eq!(values(&store, &all), [-1; 4]);
    compute(&store, &all, 2);
    store.flush().unwrap();
    store.invalidate_all().unwrap();
    assert_eq!(values(&store, &all), [-1; 4]);
    assert_eq!(values(&process(dir.path()), &all), [-1; 4]);
    store.invalidate_prefix(b"").unwrap_err();
}

#[test]
fn an_invalidation_is_of_all_views_of_a_sample() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let view = || Keys::text(["x", "y"], 3).unwrap();
    let mut rows = store.lookup(view()).unwrap();
    store.insert(&mut rows, &[0, 1], column(&[3, 3])).unwrap();
    store.flush().unwrap();
    store.invalidate(&keys(&["x"])).unwrap();
    assert_eq!(store.lookup(view()).unwrap().distinct_missing_positions(), [0]);
}

#[test]
fn an_invalidation_that_cannot_be_written_holds_here_and_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let off = Arc::new(AtomicBool::new(false));
    let broken = off.clone();
    let rule = move |_, step: &str, _: &Path| {
        (step == "create_file" && broken.load(SeqCst))
            .then_some(Fault::Refused(std::io::ErrorKind::StorageFull))
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    off.store(true, SeqCst);
    let error = format!("{:#}", store.invalidate(&keys(&["x"])).unwrap_err());
    assert!(error.contains("cannot write a change"), "{error}");
    assert_eq!(values(&store, &["x", "y"]), [-1, 1]);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1, 1]);
    compute(&store, &["w"], 5);
    off.store(false, SeqCst);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y", "w"]), [-1, 1, 5]);
    compute(&store, &["x"], 2);
    assert_eq!(values(&store, &["x", "y"]), [2, 1]);
}

#[test]
fn a_replacer_computes_each_row_once_and_takes_the_place_of_the_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    compute(&a, &["x", "y", "z"], 1);
    a.flush().unwrap();
    let recompute = RecomputeSession::new();
    assert_eq!(replace(&b, &recompute, &["x", "y"], 2), 2);
    assert_eq!(replace(&b, &recompute, &["x", "y"], 3), 0, "before the flush");
    b.flush().unwrap();
    assert_eq!(replace(&b, &recompute, &["x", "y"], 3), 0, "after the flush");
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "z"]), [2, 2, 1]);
    }
    assert_eq!(replace(&a, &RecomputeSession::new(), &["x"], 4), 1, "another recompute has computed nothing");
    a.flush().unwrap();
    assert_eq!(values(&b, &["x", "y", "z"]), [4, 2, 1]);
    assert_eq!(replace(&b, &recompute, &["x", "y"], 5), 1, "another has taken its place");
}

#[test]
fn a_replaced_row_that_is_invalidated_before_it_is_sealed_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    compute(&a, &["x", "y"], 1);
    a.flush().unwrap();
    let recompute = RecomputeSession::new();
    assert_eq!(replace(&b, &recompute, &["x", "y"], 2), 2);
    a.invalidate(&keys(&["x"])).unwrap();
    b.flush().unwrap();
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [-1, 2]);
    }
    assert_eq!(replace(&b, &recompute, &["x", "y"], 3), 1);
}

#[test]
fn a_replaced_row_whose_file_is_taken_away_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let taken = AtomicBool::new(false);
    let rule = move |_, step: &str, path: &Path| {
        let names = step == "rename" && path.extension().is_some_and(|extension| extension == "arrow");
        let now = names && path.parent().unwrap().join("change-00000000000000000001").exists();
        (now && !taken.swap(true, SeqCst)).then_some(Fault::Refused(std::io::ErrorKind::NotFound))
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let recompute = RecomputeSession::new();
    assert_eq!(replace(&store, &recompute, &["x", "y"], 2), 2);
    store.flush().unwrap();
    assert_eq!(store.stats().rows_dropped, 0);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 2]);
    assert_eq!(replace(&store, &recompute, &["x", "y"], 3), 0);
}

#[test]
fn a_store_that_is_open_to_read_only_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let reader = reader(dir.path());
    let mut rows = reader.lookup(keys(&["x"])).unwrap();
    let error = format!("{:#}", reader.insert(&mut rows, &[0], column(&[1])).unwrap_err());
    assert!(error.contains("open for reading only"), "{error}");
    reader.invalidate_all().unwrap_err();
    reader.flush().unwrap();
    rows.complete(&[0], column(&[1])).unwrap();
    assert_eq!(rows.missing(), 0);
    assert!(!dir.path().join("m_v1").exists());
    let writer = process(dir.path());
    compute(&writer, &["x"], 1);
    drop(writer);
    for run in std::fs::read_dir(dir.path().join("m_v1")).unwrap().map(Result::unwrap) {
        if run.file_name().to_string_lossy().starts_with("run-") {
            std::fs::remove_file(run.path()).unwrap();
        }
    }
    let before = names(dir.path(), "").len();
    assert_eq!(values(&reader, &["x"]), [1]);
    assert_eq!(values(&crate::testing::reader(dir.path()), &["x"]), [1]);
    assert_eq!(names(dir.path(), "").len(), before, "no index run either");
}

#[test]
fn many_changes_become_one_file_and_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let all: Vec<String> = (0..100).map(|i| format!("key {i}")).collect();
    let wanted: Vec<&str> = all.iter().map(String::as_str).collect();
    compute(&store, &wanted, 1);
    store.flush().unwrap();
    for chunk in wanted[..90].chunks(2) {
        store.invalidate(&keys(chunk)).unwrap();
    }
    store.flush().unwrap();
    let merged = || {
        let files = std::fs::read_dir(dir.path().join("m_v1")).unwrap();
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("merged-"))
            .count()
    };
    while merged() != 1 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let expected: Vec<i64> = (0..100).map(|i| if i < 90 { -1 } else { 1 }).collect();
    assert_eq!(values(&store, &wanted), expected);
    assert_eq!(values(&process(dir.path()), &wanted), expected);
}

#[test]
fn a_folder_with_changes_that_is_removed_is_not_made_again_by_who_had_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    store.invalidate(&keys(&["x"])).unwrap();
    let mut rows = store.lookup(keys(&["x"])).unwrap();
    std::fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
    store.insert(&mut rows, &[0], column(&[2])).unwrap();
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("the folder is empty or gone"), "{error}");
}

#[test]
fn a_predicate_may_use_the_store_while_rows_wait_to_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a", "b"], 1);
    let invalidated = store.invalidate_where(|key| {
        compute(&store, &["c"], 2);
        key == b"a"
    });
    invalidated.unwrap();
    assert_eq!(values(&store, &["a", "b", "c"]), [-1, 1, 2]);
}

#[test]
fn a_leaf_that_is_not_there_is_an_error_and_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a"], 1);
    store.flush().unwrap();
    let error = store
        .lookup_with(keys(&["a"]), LookupOptions { leaves: Some(&[7].into()), ..LookupOptions::default() })
        .unwrap_err();
    assert!(error.to_string().contains("no leaf 7"), "{error}");
    assert_eq!((values(&store, &["a"]), store.stats().damaged_segments), (vec![1], 0));
}
