//! Calls while the folder is gone, for a moment as a mount that is lost, or for good: what is in it is not seen.

use std::fs::{remove_dir_all, remove_file, rename};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::SystemTime;

use super::folder::{in_memory, opened};
use crate::testing::{
    Faulty, column, compute, keys, module, names, process, seal_all, spec, values, with_operations,
};
use crate::{Options, Result, Store};

/// A process that knows this number of changes, in a folder with a row whose value is 1000.
fn knowing(dir: &Path, changes: usize) -> Store {
    let store = process(dir);
    compute(&store, &["x"], 1000);
    seal_all(&store);
    for _ in 0..changes {
        store.invalidate(&keys(&["y"])).unwrap();
    }
    let own = process(dir);
    assert_eq!(values(&own, &["x"]), [1000]);
    own
}

/// Calls `call` while the folder is gone.
fn while_gone<T>(dir: &Path, call: impl FnOnce() -> T) -> T {
    let (folder, away) = (dir.join("m_v1"), dir.join("away"));
    rename(&folder, &away).unwrap();
    let called = call();
    rename(&away, &folder).unwrap();
    called
}

fn put(store: &Store, key: &str, value: i64) -> Result<()> {
    let mut rows = store.lookup_to_put(keys(&[key]), None)?;
    let missing = rows.distinct_missing_positions();
    store.insert(&mut rows, &missing, column(&vec![value; missing.len()]))
}

#[test]
fn rows_that_are_not_seen_are_not_invalidated_without_an_error() {
    for changes in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let own = knowing(dir.path(), changes);
        while_gone(dir.path(), || own.invalidate_where(|_| true).unwrap_err());
        while_gone(dir.path(), || own.invalidate_older_than(SystemTime::now()).unwrap_err());
        assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
        own.invalidate_where(|_| true).unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [-1]);
    }
}

#[test]
fn a_folder_that_is_gone_is_not_made_again_for_an_invalidation_that_would_not_reach_its_rows() {
    type Invalidate = fn(&Store) -> Result<()>;
    let ways: [Invalidate; 3] = [
        |store| store.invalidate(&keys(&["x"])),
        |store| store.invalidate_prefix(b"x"),
        Store::invalidate_all,
    ];
    for (changes, invalidate) in (0..2).flat_map(|changes| ways.map(|way| (changes, way))) {
        let dir = tempfile::tempdir().unwrap();
        let own = knowing(dir.path(), changes);
        let refused = while_gone(dir.path(), || invalidate(&own).unwrap_err());
        assert!(format!("{refused:#}").contains("its rows may come back"), "{refused:#}");
        assert_eq!(values(&own, &["x"]), [-1], "it has its effect here");
        // And is written as soon as it can be.
        invalidate(&own).unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [-1]);
    }
}

#[test]
fn no_value_is_put_over_one_that_is_not_seen() {
    for changes in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let own = knowing(dir.path(), changes);
        let refused = while_gone(dir.path(), || put(&own, "x", 5).unwrap_err());
        assert!(refused.to_string().contains("cannot put values"), "{refused}");
        put(&own, "x", 5).unwrap();
        own.flush().unwrap();
        own.compact().unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
    }
}

#[test]
fn values_are_put_in_a_folder_that_was_removed_once_it_is_opened_again() {
    for changes in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        drop(knowing(dir.path(), changes));
        let open = || Store::open(dir.path(), spec(), &Options::default()).unwrap();
        let own = open();
        remove_dir_all(dir.path().join("m_v1")).unwrap();
        let refused = format!("{:#}", put(&own, "x", 5).unwrap_err());
        assert!(refused.contains("open the module again"), "{refused}");
        let again = open();
        put(&again, "x", 5).unwrap();
        again.flush().unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [5]);
    }
}

#[test]
fn values_are_put_where_there_was_no_folder_yet() {
    let dir = tempfile::tempdir().unwrap();
    let own = process(dir.path());
    put(&own, "x", 5).unwrap();
    own.invalidate_where(|key| key == b"y").unwrap();
    own.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [5]);
}

/// A user removes the folder: all of it at once, or its files one by one, while one is being written.
#[derive(Clone, Copy, Debug)]
enum Removed {
    AtOnce,
    ButForWhatIsWritten,
}

fn remove(dir: &Path, how: Removed) {
    if matches!(how, Removed::AtOnce) {
        return drop(remove_dir_all(module(dir)));
    }
    for name in names(dir, "").iter().filter(|name| !name.starts_with("tmp-")) {
        remove_file(module(dir).join(name)).unwrap();
    }
}

#[test]
fn a_folder_that_is_removed_while_a_file_is_created_is_not_left_with_a_change_alone() {
    for how in [Removed::AtOnce, Removed::ButForWhatIsWritten] {
        for at in 0.. {
            let dir = in_memory();
            drop(opened(dir.path()));
            let (steps, from) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
            let (counted, begun, path) = (steps.clone(), from.clone(), dir.path().to_owned());
            let faulty = Faulty::with(move |_, _, _| {
                let step = counted.fetch_add(1, SeqCst).checked_sub(begun.load(SeqCst));
                if step == Some(at) {
                    remove(&path, how);
                }
                None
            });
            let store = with_operations(dir.path(), faulty);
            from.store(steps.load(SeqCst), SeqCst);
            let invalidated = store.invalidate(&keys(&["x"]));
            let happened = steps.load(SeqCst) - from.swap(usize::MAX, SeqCst);
            drop(store);
            let left = names(dir.path(), "change-");
            let zero = "change-00000000000000000000".to_owned();
            assert!(left.is_empty() || left.contains(&zero), "{how:?} at step {at}: {left:?}");
            assert!(invalidated.is_err() || !left.is_empty() || happened <= at + 1, "{how:?} at step {at}");
            let again = process(dir.path());
            compute(&again, &["x"], 2);
            again.flush().unwrap();
            again.invalidate(&keys(&["x"])).unwrap();
            if happened <= at {
                assert!(at > 8, "{at} steps");
                break;
            }
        }
    }
}
