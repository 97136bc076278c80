//! Calls while the folder is gone: a mount may be lost for a moment, and what is in the folder is not seen then.

use std::fs::{remove_dir_all, rename};
use std::path::Path;
use std::time::SystemTime;

use crate::testing::{column, compute, keys, process, seal_all, spec, values};
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
