//! A change that commits rows and cannot be read for a while: whatever is computed meanwhile displaces none of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use crate::changes::Doomed;
use crate::testing::{column, compute, keys, names, process, replace, seal_all, values, without_change};
use crate::upkeep::tasks::merge_changes;
use crate::{LookupOptions, RecomputeSession};

#[test]
fn what_is_computed_meanwhile_does_not_displace_a_replacement_whether_changes_are_merged_or_not() {
    for is_merged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        seal_all(&store);
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
        for _ in 0..20 {
            store.core.kill(Doomed::Keys(vec![b"other".as_slice().into()])).unwrap();
        }
        if is_merged {
            merge_changes(&store.core);
        }
        assert_eq!(names(dir.path(), "merged-").len(), usize::from(is_merged));
        let fails = Arc::new(AtomicBool::new(true));
        let other = without_change(1, dir.path(), &fails);
        for session in [None, Some(&RecomputeSession::new())] {
            let refused = other.lookup_to_put(keys(&["y"]), session).unwrap_err().to_string();
            assert!(refused.contains("change-00000000000000000001"), "{refused}");
        }
        compute(&other, &["x"], 7);
        let refused = other.flush().unwrap_err().to_string();
        assert!(refused.contains("1 computed row was not kept"), "{refused}");
        assert_eq!(other.stats().rows_not_kept(), 1);
        fails.store(false, SeqCst);
        other.flush().unwrap();
        other.refresh().unwrap();
        assert_eq!(other.lookup_to_put(keys(&["y"]), None).unwrap().missing(), 1);
        other.compact().unwrap();
        assert_eq!(
            (values(&other, &["x"]), values(&process(dir.path()), &["x"])),
            (vec![1000], vec![1000]),
            "merged: {is_merged}"
        );
    }
}

#[test]
fn what_is_computed_while_a_later_change_hides_a_replacement_does_not_displace_it() {
    for session in [None, Some(RecomputeSession::new())] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x", "y", "z"], 1);
        seal_all(&store);
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
        let fails = Arc::new(AtomicBool::new(false));
        let other = without_change(2, dir.path(), &fails);
        assert_eq!(values(&other, &["x", "y"]), [1000, 1]);
        fails.store(true, SeqCst);
        store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
        other.refresh().unwrap();
        // Change 2 names neither, and hides both.
        let recompute = LookupOptions { recompute: session.as_ref(), ..LookupOptions::default() };
        let mut rows = other.lookup_with(keys(&["x"]), recompute).unwrap();
        assert_eq!(rows.missing(), 1);
        other.insert(&mut rows, &[0], column(&[7])).unwrap();
        compute(&other, &["y"], 1);
        // A row that no change names is not kept, either: the one that is hidden may be a value that was put.
        assert_eq!(other.stats().rows_not_kept(), if session.is_none() { 2 } else { 1 });
        fails.store(false, SeqCst);
        let flushed = other.flush();
        flushed.unwrap_err();
        other.refresh().unwrap();
        other.compact().unwrap();
        let expected = [if session.is_none() { 1000 } else { 7 }, 1];
        assert_eq!(values(&other, &["x", "y"]), expected);
        assert_eq!(values(&process(dir.path()), &["x", "y"]), expected);
    }
}

/// A change is not complete yet when it is read first (a copy under way), and names another key.
#[test]
fn what_is_computed_while_a_change_looks_damaged_does_not_displace_a_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    store.flush().unwrap();
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
    drop(store);
    let path = dir.path().join("m_v1").join("change-00000000000000000002");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
    let other = process(dir.path());
    assert_eq!(values(&other, &["x"]), [-1]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    drop(other);
    let other = process(dir.path());
    other.compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || compacted == [1000]);
}

/// The change that has committed the replacement is not complete yet when it is read first.
#[test]
fn what_is_computed_while_the_commit_looks_damaged_does_not_displace_the_replacement() {
    for len in [0, 10, 60] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        store.flush().unwrap();
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        store.flush().unwrap();
        drop(store);
        let path = dir.path().join("m_v1").join("change-00000000000000000001");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &bytes[..len]).unwrap();
        let other = process(dir.path());
        compute(&other, &["x"], 7);
        let flushed = other.flush();
        drop(other);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let other = process(dir.path());
        other.compact().unwrap();
        let compacted = values(&process(dir.path()), &["x"]);
        assert!(flushed.is_err() || compacted == [1000]);
    }
}
