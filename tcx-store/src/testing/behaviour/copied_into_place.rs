//! A folder that is copied into place while a process has it open: change 0 is not complete at first.

use crate::changes::Doomed;
use crate::testing::{compute, keys, names, process, put, rewrite, seal_all, values};

/// A folder that is copied into place: change 0 is not complete.
#[test]
fn an_invalidation_that_fails_because_change_0_is_not_complete_takes_effect_here() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    let killed = store.core.kill(Doomed::Keys(vec![b"x".as_slice().into()]));
    assert!(killed.is_err());
    rewrite(&dir.path().join(change), &bytes);
    for name in names(from.path(), "seg-") {
        std::fs::copy(from.path().join("m_v1").join(&name), dir.path().join("m_v1").join(&name)).unwrap();
    }
    store.refresh().unwrap();
    assert_eq!(values(&store, &["x"]), [-1], "{killed:?}");
}

/// The same, while rows wait to be written.
#[test]
fn rows_are_not_dropped_for_a_change_0_that_is_not_complete_yet() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    compute(&store, &["y"], 7);
    assert_eq!(put(&store, "v", 8).unwrap(), 1);
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    let first = store.flush();
    rewrite(&dir.path().join(change), &bytes);
    store.refresh().unwrap();
    let second = store.flush();
    let fresh = values(&process(dir.path()), &["y", "v"]);
    assert!(fresh == [7, 8], "first {first:?}, second {second:?}, fresh {fresh:?}");
}

/// The same as with rows that wait: what comes after them.
#[test]
fn writing_goes_on_after_a_change_0_that_was_not_complete_yet() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    compute(&store, &["y"], 7);
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    let first = store.flush();
    rewrite(&dir.path().join(change), &bytes);
    store.refresh().unwrap();
    let _ = store.flush();
    compute(&store, &["w"], 3);
    let later = store.flush();
    compute(&store, &["v"], 4);
    let again = store.flush();
    let fresh = values(&process(dir.path()), &["w", "v"]);
    assert!(
        later.is_ok() && fresh == [3, 4],
        "first {first:?}, later {later:?}, again {again:?}, fresh {fresh:?}"
    );
}

#[test]
fn a_store_whose_folder_is_copied_into_place_serves_it_once_it_is_complete() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    assert_eq!(values(&store, &["x"]), [-1]);
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    assert!(store.refresh().is_err());
    assert_eq!(store.lookup(keys(&["x"])).unwrap().missing(), 1);
    rewrite(&dir.path().join(change), &bytes);
    for name in names(from.path(), "seg-") {
        std::fs::copy(from.path().join("m_v1").join(&name), dir.path().join("m_v1").join(&name)).unwrap();
    }
    store.refresh().unwrap();
    assert_eq!(values(&store, &["x"]), [1000]);
}
