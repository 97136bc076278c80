//! Rows that take the place of rejected ones, and rows that are replaced meanwhile.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::testing::{
    Fault, Faulty, column, compute, keys, names, process, replace, values, with_operations,
};
use crate::{Attestation, Lookup, LookupOptions, RecomputeSession, Store};

#[test]
fn a_row_for_a_rejected_one_does_not_undo_a_replacement_that_came_after_its_lookup() {
    for (before, after) in [(true, true), (true, false), (false, true), (false, false)] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], -1);
        store.flush().unwrap();
        let mut rows = store.lookup(keys(&["x"])).unwrap();
        assert!(store.reject(&mut rows, &[0]).unwrap());
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
        assert!(store.reject(&mut rows, &[0]).unwrap());
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

/// A value `-7`, which is rejected; then a recomputed 42, whose source has changed once the bit is set.
fn recomputed_after_a_rejection(dir: &Path) -> (Store, Lookup, Arc<AtomicBool>) {
    let store = process(dir);
    compute(&store, &["x"], -7);
    store.flush().unwrap();
    let mut rejected = store.lookup(keys(&["x"])).unwrap();
    assert!(store.reject(&mut rejected, &[0]).unwrap());
    let changed = Arc::new(AtomicBool::new(false));
    let asked = changed.clone();
    let is_changed = move || if asked.load(Ordering::SeqCst) { Err("changed".into()) } else { Ok(()) };
    let session = RecomputeSession::new();
    let recompute = LookupOptions { recompute: Some(&session), ..LookupOptions::default() };
    let mut again = store.lookup_with(keys(&["x"]), recompute).unwrap();
    store.insert_attested(&mut again, &[0], column(&[42]), &Attestation::new(is_changed)).unwrap();
    (store, rejected, changed)
}

#[test]
fn a_row_for_a_rejected_one_is_kept_if_the_row_it_made_way_for_is_not_written() {
    for is_sealed_later in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, mut rejected, changed) = recomputed_after_a_rejection(dir.path());
        if is_sealed_later {
            store.core.buffer.freeze();
        }
        store.insert(&mut rejected, &[0], column(&[7])).unwrap();
        assert_eq!(
            values(&store, &["x"]),
            [42],
            "the newer one is served as long as its source has not changed"
        );
        changed.store(true, Ordering::SeqCst);
        let error = format!("{:#}", store.flush().unwrap_err());
        assert!(error.contains("changed"), "{error}");
        assert_eq!(values(&store, &["x"]), [7], "of two generations: {is_sealed_later}");
        store.flush().unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [7], "of two generations: {is_sealed_later}");
    }
}

#[test]
fn a_row_for_a_rejected_one_makes_way_for_a_recomputed_one_of_an_earlier_generation() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut rejected, _) = recomputed_after_a_rejection(dir.path());
    store.core.buffer.freeze();
    store.insert(&mut rejected, &[0], column(&[7])).unwrap();
    assert_eq!(values(&store, &["x"]), [42]);
    store.flush().unwrap();
    assert_eq!(values(&store, &["x"]), [42]);
    assert_eq!(values(&process(dir.path()), &["x"]), [42]);
    assert_eq!(store.stats().rows_superseded, 1);
}

#[test]
fn a_lookup_from_before_an_invalidation_is_not_taken_for_a_new_one_while_the_folder_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let mut rows = store.lookup(keys(&["x", "y"])).unwrap();
    store.invalidate(&keys(&["x"])).unwrap();
    std::fs::rename(dir.path().join("m_v1"), dir.path().join("away")).unwrap();
    store.refresh().unwrap();
    assert!(!store.reject(&mut rows, &[1]).unwrap(), "a row of it is dead");
    assert!(rows.is_missing(0));
}

#[test]
fn a_row_is_rejected_although_others_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let others = process(dir.path());
    compute(&others, &["x"], -7);
    others.flush().unwrap();
    others.invalidate(&keys(&["other"])).unwrap();
    let known = names(dir.path(), "seg-");
    let store = with_operations(
        dir.path(),
        Faulty::with(move |_, step, path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_new = name.starts_with("seg-") && !known.iter().any(|known| *known == name);
            (step == "open" && is_new).then_some(Fault::Refused(ErrorKind::PermissionDenied))
        }),
    );
    compute(&others, &["z"], 1);
    others.flush().unwrap();
    store.refresh().unwrap();
    let mut rows = store.lookup(keys(&["x", "z"])).unwrap();
    assert_eq!(rows.distinct_missing_positions(), [1]);
    assert!(store.reject(&mut rows, &[0]).unwrap(), "nothing was invalidated or replaced");
    assert_eq!(rows.distinct_missing_positions(), [0, 1]);
    store.insert(&mut rows, &[0, 1], column(&[7, 1])).unwrap();
    assert_eq!(values(&store, &["x"]), [7]);
}

#[test]
fn a_row_for_one_that_was_found_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let mut rows = store.lookup(keys(&["x"])).unwrap();
    for value in [2, 3] {
        store.insert(&mut rows, &[0], column(&[value])).unwrap();
    }
    let found = || (values(&store, &["x", "y"]), values(&process(dir.path()), &["x", "y"]));
    assert_eq!(found().0, [3, 1], "in the buffer");
    store.flush().unwrap();
    assert_eq!(found(), (vec![3, 1], vec![3, 1]), "in a segment");
    store.core.compact(crate::upkeep::compaction::Effort::Thorough).unwrap();
    assert_eq!(found(), (vec![3, 1], vec![3, 1]), "joined");
    store.invalidate(&keys(&["x"])).unwrap();
    assert_eq!(found(), (vec![-1, 1], vec![-1, 1]), "invalidated");
}
