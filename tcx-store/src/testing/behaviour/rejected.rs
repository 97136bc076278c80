//! Rows that take the place of rejected ones, and rows that are replaced meanwhile.

use crate::RecomputeSession;
use crate::testing::{column, compute, keys, process, replace, values};

#[test]
fn a_row_for_a_rejected_one_does_not_undo_a_replacement_that_came_after_its_lookup() {
    for (before, after) in [(true, true), (true, false), (false, true), (false, false)] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], -1);
        store.flush().unwrap();
        let mut rows = store.lookup(keys(&["x"])).unwrap();
        store.reject(&mut rows, &[0]);
        replace(&store, &RecomputeSession::new(), &["x"], 42);
        if before {
            store.flush().unwrap();
        }
        store.insert(&mut rows, &[0], column(&[7])).unwrap();
        assert_eq!(values(&store, &["x"]), [42], "flushed before: {before}");
        if after {
            store.flush().unwrap();
            assert_eq!(values(&process(dir.path()), &["x"]), [42]);
            assert_eq!(store.stats().rows_dropped, 1);
        }
        assert_eq!(values(&store, &["x"]), [42]);
    }
}

#[test]
fn a_row_for_a_rejected_one_that_was_replaced_before_takes_its_place() {
    for seals in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        store.flush().unwrap();
        replace(&store, &RecomputeSession::new(), &["x"], -1);
        if seals == 1 {
            store.flush().unwrap();
        }
        let mut rows = store.lookup(keys(&["x"])).unwrap();
        store.reject(&mut rows, &[0]);
        if seals == 2 {
            store.flush().unwrap();
        }
        store.insert(&mut rows, &[0], column(&[7])).unwrap();
        assert_eq!(values(&store, &["x"]), [7]);
        store.flush().unwrap();
        assert_eq!(values(&store, &["x"]), [7], "sealed at {seals}");
        assert_eq!(values(&process(dir.path()), &["x"]), [7]);
    }
}
