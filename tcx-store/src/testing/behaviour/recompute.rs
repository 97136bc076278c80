//! Computing again: each row once, by each handle, and no value changes by being flushed.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::LookupOptions;
use crate::changes::Doomed;
use crate::testing::{Fault, Faulty};
use crate::testing::{
    column, compute, keys, names, process, replace, replace_view, seal_all, values, values_in_view,
    with_operations,
};
use crate::write::seal_queue::SealQueue;
use crate::{Destination, Keys, RecomputeSession, Store};

fn view(view: u32) -> Keys {
    Keys::text(["x", "y"], view).unwrap()
}

/// The rows of three views, by their view.
fn three_views(store: &Store) {
    for number in 0..3 {
        let mut rows = store.lookup(view(number)).unwrap();
        store.insert(&mut rows, &[0, 1], column(&[i64::from(number); 2])).unwrap();
    }
    store.flush().unwrap();
}

#[test]
fn rows_of_several_views_are_recomputed_once_each_and_all_of_them_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    three_views(&store);
    let recompute = RecomputeSession::new();
    let epoch = |value| {
        let views = (0..3).map(|number| {
            let computed = replace_view(&store, &recompute, view(number), value + i64::from(number));
            store.flush().unwrap();
            computed
        });
        views.sum::<usize>()
    };
    assert_eq!(epoch(10), 6, "the first epoch");
    assert_eq!(epoch(20), 0, "the second epoch");
    for own in [&store, &process(dir.path())] {
        let found = (0..3).map(|number| values_in_view(own, view(number)));
        assert_eq!(found.collect::<Vec<_>>(), [[10; 2], [11; 2], [12; 2]]);
    }
    store.compact().unwrap();
    // The rows of the first segment are all dead; it is joined only if the writer was faster.
    store.collect(Duration::ZERO).unwrap();
    assert_eq!((store.stats().rows, epoch(30)), (6, 0));
}

#[test]
fn views_that_are_not_recomputed_keep_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    three_views(&store);
    assert_eq!(replace_view(&store, &RecomputeSession::new(), view(1), 10), 2);
    store.flush().unwrap();
    for own in [&store, &process(dir.path())] {
        let found = (0..3).map(|number| values_in_view(own, view(number)));
        assert_eq!(found.collect::<Vec<_>>(), [[0; 2], [10; 2], [2; 2]]);
    }
    store.invalidate(&keys(&["x"])).unwrap();
    let found = (0..3).map(|number| values_in_view(&store, view(number)));
    assert_eq!(found.collect::<Vec<_>>(), [[-1, 0], [-1, 10], [-1, 2]], "an invalidation is of all views");
}

#[test]
fn a_merged_file_says_the_same_of_views_as_its_changes() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    three_views(&store);
    for round in 0..20 {
        assert_eq!(
            replace_view(&store, &RecomputeSession::new(), view(round % 2), 100 + i64::from(round)),
            2
        );
        store.flush().unwrap();
    }
    while names(dir.path(), "merged-").is_empty() {
        std::thread::sleep(Duration::from_millis(2));
    }
    for own in [&store, &process(dir.path())] {
        let found = (0..3).map(|number| values_in_view(own, view(number)));
        assert_eq!(found.collect::<Vec<_>>(), [[118; 2], [119; 2], [2; 2]]);
    }
}

#[test]
fn the_newest_of_two_recomputed_rows_is_served_before_and_after_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    assert_eq!(replace(&store, &a, &["x"], 2), 1);
    assert_eq!(replace(&store, &b, &["x"], 3), 1);
    assert_eq!(values(&store, &["x"]), [3]);
    store.flush().unwrap();
    for own in [&store, &process(dir.path())] {
        assert_eq!(values(own, &["x"]), [3], "after the flush");
    }
    assert_eq!(
        (store.stats().rows_sealed, store.stats().rows_dropped),
        (2, 1),
        "the older one is not written"
    );
    store.compact().unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [3], "after compaction");
}

#[test]
fn a_replacer_takes_no_row_of_another_for_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    assert_eq!(replace(&store, &a, &["x"], 2), 1);
    assert_eq!(replace(&store, &b, &["y"], 3), 1);
    store.flush().unwrap();
    assert_eq!(replace(&store, &a, &["x"], 4), 0);
    assert_eq!(replace(&store, &b, &["y"], 4), 0);
    assert_eq!(replace(&store, &a, &["y"], 5), 1, "that is the other's");
}

#[test]
fn a_session_does_not_find_its_sealed_row_behind_a_newer_one_that_waits_to_be_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    replace(&store, &a, &["x", "y"], 2);
    store.flush().unwrap();
    assert_eq!(replace(&store, &b, &["x"], 3), 1);
    for is_sealed in [false, true] {
        let options = || LookupOptions { recompute: Some(&a), uncounted: true, ..LookupOptions::default() };
        let mut bytes = Vec::with_capacity(16);
        let bytes = &mut bytes.spare_capacity_mut()[..16];
        let destinations = &mut [Destination { leaf: 0, bytes }];
        let copied =
            store.lookup_with(keys(&["x", "y"]), LookupOptions { destinations, ..options() }).unwrap();
        for rows in [store.lookup_with(keys(&["x", "y"]), options()).unwrap(), copied] {
            assert_eq!(rows.distinct_missing_positions(), [0], "sealed: {is_sealed}");
        }
        assert_eq!(values(&store, &["x", "y"]), [3, 2], "sealed: {is_sealed}");
        store.flush().unwrap();
    }
}

#[test]
fn a_row_that_was_recomputed_later_outlives_the_seal_of_the_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    replace(&store, &a, &["x"], 2);
    store.core.buffer.freeze();
    replace(&store, &b, &["x"], 3);
    assert_eq!(values(&store, &["x"]), [3]);
    // Writes only the generation of the first session.
    let first = store.core.buffer.oldest_after(None).unwrap();
    let written = crate::write::generation::write(&store.core, &first).unwrap();
    crate::write::generation::publish(&store.core, &first, written).unwrap();
    assert_eq!(values(&store, &["x"]), [3], "it waits in the buffer");
    store.flush().unwrap();
    for own in [&store, &process(dir.path())] {
        assert_eq!(values(own, &["x"]), [3]);
    }
    assert_eq!(replace(&store, &b, &["x"], 4), 0);
}

#[test]
fn a_row_that_was_looked_up_before_another_was_recomputed_takes_its_place_nowhere() {
    for freeze in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        let mut rows = store.lookup(keys(&["x"])).unwrap();
        let recompute = RecomputeSession::new();
        replace(&store, &recompute, &["x"], 2);
        if freeze {
            store.core.buffer.freeze();
        }
        store.insert(&mut rows, &[0], column(&[1])).unwrap();
        assert_eq!(values(&store, &["x"]), [2], "before the flush");
        assert_eq!(replace(&store, &recompute, &["x"], 3), 0);
        store.flush().unwrap();
        for own in [&store, &process(dir.path())] {
            assert_eq!(values(own, &["x"]), [2], "after the flush");
        }
        assert_eq!(replace(&store, &recompute, &["x"], 3), 0);
    }
}

#[test]
fn of_two_rows_in_a_generation_that_were_computed_at_once_one_is_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let (mut first, mut second) =
        (store.lookup(keys(&["x", "y"])).unwrap(), store.lookup(keys(&["x"])).unwrap());
    store.insert(&mut first, &[0, 1], column(&[1, 1])).unwrap();
    store.insert(&mut second, &[0], column(&[2])).unwrap();
    assert_eq!(values(&store, &["x", "y"]), [2, 1]);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 1]);
    assert_eq!(store.stats().rows_sealed, 2);
}

#[test]
fn an_invalidation_by_another_process_kills_recomputed_rows_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    three_views(&a);
    assert_eq!(values_in_view(&b, view(0)), [0, 0]);
    let (first, second) = (RecomputeSession::new(), RecomputeSession::new());
    replace_view(&b, &first, view(0), 10);
    replace_view(&b, &second, view(1), 11);
    b.core.buffer.freeze();
    replace_view(&b, &second, view(2), 12);
    a.core.kill(Doomed::Keys(vec![b"x".as_slice().into()])).unwrap();
    b.flush().unwrap();
    for own in [&a, &b, &process(dir.path())] {
        let found = (0..3).map(|number| values_in_view(own, view(number)));
        assert_eq!(found.collect::<Vec<_>>(), [[-1, 10], [-1, 11], [-1, 12]]);
    }
    assert_eq!(b.stats().rows_dropped, 3);
    assert_eq!(replace_view(&b, &second, view(2), 13), 1);
}

#[test]
fn of_two_replacers_one_of_whose_tombstones_fails_no_row_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let off = Arc::new(AtomicBool::new(true));
    let broken = off.clone();
    let rule = move |_, step: &str, path: &Path| {
        let is_second = path.ends_with("change-00000000000000000002");
        (step != "open" && is_second && broken.load(SeqCst)).then_some(Fault::Refused(ErrorKind::StorageFull))
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["x", "y"], 1);
    seal_all(&store);
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    replace(&store, &a, &["x"], 2);
    replace(&store, &b, &["y"], 3);
    SealQueue::new(store.core.clone()).seal_all().unwrap_err();
    assert_eq!(values(&store, &["x", "y"]), [2, 3]);
    off.store(false, SeqCst);
    seal_all(&store);
    for own in [&store, &process(dir.path())] {
        assert_eq!(values(own, &["x", "y"]), [2, 3]);
    }
    assert_eq!(store.stats().rows_dropped, 0);
    assert_eq!((replace(&store, &a, &["x"], 4), replace(&store, &b, &["y"], 4)), (0, 0));
}

#[test]
fn a_row_that_is_recomputed_while_an_earlier_one_is_sealed_outlives_its_tombstone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (process(dir.path()), process(dir.path()));
    compute(&store, &["x", "y"], 0);
    store.flush().unwrap();
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x", "y"], 10), 2);
    let second = RecomputeSession::new();
    let mut late = store
        .lookup_with(
            keys(&["x", "y"]),
            LookupOptions { recompute: Some(&second), ..LookupOptions::default() },
        )
        .unwrap();
    // The tombstone for the rows with value 10 is newer than the lookup, and so is an invalidation.
    store.flush().unwrap();
    other.invalidate(&keys(&["y"])).unwrap();
    store.refresh().unwrap();
    assert_eq!(replace(&store, &RecomputeSession::new(), &["z"], 11), 1);
    store.flush().unwrap();
    store.insert(&mut late, &[0, 1], column(&[20, 20])).unwrap();
    assert_eq!(values(&store, &["x", "y", "z"]), [20, -1, 11]);
    store.flush().unwrap();
    for own in [&store, &other, &process(dir.path())] {
        assert_eq!(values(own, &["x", "y", "z"]), [20, -1, 11]);
    }
    assert_eq!(store.stats().rows_dropped, 1, "the row that was invalidated");
    assert_eq!(replace(&store, &second, &["x"], 30), 0);
}
