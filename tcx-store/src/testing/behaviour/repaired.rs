//! A damaged change is repaired while processes run that have read it when it was sound: for them, too, everything before it is dead.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Store;
use crate::testing::{column, compute, keys, names, process, values};
use crate::upkeep::tasks::merge_changes;

fn module(dir: &Path) -> PathBuf {
    dir.join("m_v1")
}

fn change(number: u64) -> String {
    format!("change-{number:020}")
}

fn damage(dir: &Path, number: u64) {
    let path = module(dir).join(change(number));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Returns how many files were repaired.
fn repair(dir: &Path) -> usize {
    let found = crate::verify(&module(dir), &mut |_, _| {}).unwrap().damage;
    let repaired = crate::repair(&module(dir), &found, &mut |_, _| {}).unwrap();
    assert_eq!(crate::verify(&module(dir), &mut |_, _| {}).unwrap().damage, []);
    repaired.len()
}

fn put(store: &Store, wanted: &[&str], value: i64) {
    let mut rows = store.lookup_to_put(keys(wanted), None).unwrap();
    let missing = rows.distinct_missing_positions();
    assert_eq!(missing.len(), wanted.len(), "nothing is in the place of these");
    store.insert(&mut rows, &missing, column(&vec![value; missing.len()])).unwrap();
    store.flush().unwrap();
}

/// A process that has written rows, one a segment, and then knows `changes` changes that name none of them.
fn with_changes(dir: &Path, changes: usize) -> Store {
    let store = process(dir);
    for key in ["x", "y"] {
        compute(&store, &[key], 1);
        store.flush().unwrap();
    }
    (0..changes).for_each(|_| store.invalidate(&keys(&["other"])).unwrap());
    assert_eq!(values(&store, &["x", "y"]), [1, 1]);
    store
}

#[test]
fn a_value_that_is_put_after_a_repair_is_served_by_a_process_that_knew_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_changes(dir.path(), 3);
    damage(dir.path(), 2);
    assert_eq!(repair(dir.path()), 1);
    let after = process(dir.path());
    put(&after, &["x"], 2);
    for store in [&before, &after, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [2, -1]);
    }
}

#[test]
fn rows_that_a_repair_has_killed_stay_dead_when_segments_are_joined_and_changes_merged() {
    for merges in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let before = with_changes(dir.path(), 12);
        damage(dir.path(), 1);
        assert_eq!(repair(dir.path()), 1);
        put(&process(dir.path()), &["x"], 2);
        if merges {
            (0..12).for_each(|_| before.invalidate(&keys(&["other"])).unwrap());
            merge_changes(&before.core);
            assert_eq!(names(dir.path(), "merged-").len(), 1);
        } else {
            before.compact().unwrap();
        }
        for store in [&before, &process(dir.path())] {
            assert_eq!(values(store, &["x", "y"]), [2, -1]);
        }
    }
}

#[test]
fn one_new_change_follows_several_repairs_and_the_newest_change_needs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_changes(dir.path(), 6);
    for number in [2, 3, 5] {
        damage(dir.path(), number);
    }
    assert_eq!((repair(dir.path()), names(dir.path(), "change-").len()), (3, 8));
    assert_eq!(values(&store, &["x", "y"]), [-1, -1]);
    compute(&store, &["x"], 3);
    store.flush().unwrap();
    damage(dir.path(), 7);
    assert_eq!((repair(dir.path()), names(dir.path(), "change-").len()), (1, 8));
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [3, -1]);
    }
}

#[test]
fn a_repaired_change_that_merged_changes_contain_kills_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_changes(dir.path(), 16);
    merge_changes(&before.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    before.invalidate(&keys(&["y"])).unwrap();
    damage(dir.path(), 4);
    assert_eq!((repair(dir.path()), names(dir.path(), "change-").len()), (1, 18));
    for store in [&before, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [1, -1]);
    }
}
