//! Merged changes of another folder that is in the place of the own one for a moment.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use crate::Store;
use crate::changes::Doomed;
use crate::testing::Faulty;
use crate::testing::{compute, names, process, seal_all, values, with_operations};
use crate::upkeep::tasks::merge_changes;

/// Invalidates keys of which there are no rows, without the writer, which would merge.
fn invalidate(store: &Store, key: &str) {
    store.core.kill(Doomed::Keys(vec![key.as_bytes().into()])).unwrap();
}

fn put(dir: &Path, from: &str, aside: &str) {
    fs::rename(dir.join("m_v1"), dir.join(aside)).unwrap();
    fs::rename(dir.join(from), dir.join("m_v1")).unwrap();
}

#[test]
fn merged_changes_of_an_older_copy_are_not_taken_for_those_that_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    compute(&first, &["x", "y"], 1);
    seal_all(&first);
    // A copy, in which other keys are invalidated, and the changes merged.
    let (own, copy) = (dir.path().join("m_v1"), dir.path().join("copy"));
    fs::create_dir(&copy).unwrap();
    for name in names(dir.path(), "") {
        fs::copy(own.join(&name), copy.join(&name)).unwrap();
    }
    put(dir.path(), "copy", "own");
    let other = process(dir.path());
    (0..16).for_each(|_| invalidate(&other, "z"));
    merge_changes(&other.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    put(dir.path(), "own", "copy");

    let is_due = Arc::new(AtomicBool::new(false));
    let (due, path) = (is_due.clone(), dir.path().to_owned());
    let steps = Faulty::with(move |_, step, _| {
        if step == "list" && due.swap(false, SeqCst) {
            put(&path, "copy", "own");
        }
        None
    });
    let store = with_operations(dir.path(), steps);
    (0..17).for_each(|_| invalidate(&store, "x"));
    assert_eq!(values(&store, &["x", "y"]), [-1, 1]);
    is_due.store(true, SeqCst);
    store.refresh().unwrap_err();
    assert!(!is_due.load(SeqCst), "the copy was not there");
    put(dir.path(), "own", "copy");
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, 1]);
    // The store has read nothing of the copy, or it serves nothing any more.
    if store.core.check().is_ok() {
        assert_eq!(values(&store, &["x", "y"]), [-1, 1]);
    }
}

#[test]
fn merged_changes_are_not_known_in_an_older_copy_that_comes_in_place_while_they_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    compute(&first, &["x", "y"], 1);
    seal_all(&first);
    invalidate(&first, "z");
    let (own, copy) = (dir.path().join("m_v1"), dir.path().join("copy"));
    fs::create_dir(&copy).unwrap();
    for name in names(dir.path(), "") {
        fs::copy(own.join(&name), copy.join(&name)).unwrap();
    }
    let is_due = Arc::new(AtomicBool::new(false));
    let (due, path) = (is_due.clone(), dir.path().to_owned());
    // Swaps the folders after the merged file was opened, and before the last change in it is.
    let steps = Faulty::with(move |_, step, file| {
        if step == "open" && file.ends_with("change-00000000000000000017") && due.swap(false, SeqCst) {
            put(&path, "copy", "own");
        }
        None
    });
    let store = with_operations(dir.path(), steps);
    assert_eq!(values(&store, &["x", "y"]), [1, 1]);
    compute(&store, &["w"], 2);
    (0..16).for_each(|_| invalidate(&first, "z"));
    merge_changes(&first.core);
    assert_eq!(names(dir.path(), "merged-"), ["merged-00000000000000000017"]);
    is_due.store(true, SeqCst);
    // From here on the folder is the copy, which contains one change.
    store.refresh().unwrap_err();
    assert!(!is_due.load(SeqCst), "the copy was not there");
    store.flush().unwrap_err();
    let other = process(dir.path());
    (0..16).for_each(|_| invalidate(&other, "w"));
    assert_eq!(values(&process(dir.path()), &["w", "x", "y"]), [-1, 1, 1]);
}
