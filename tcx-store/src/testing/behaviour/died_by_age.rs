//! Rows of the write buffer that die by their age: what had made way for them does not come back, though it may be younger.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crate::testing::{
    column, compute, go_ahead, keys, process, replace, seal_all, values, values_in_view, with_time_to_live,
};
use crate::write::generation::{publish, write};
use crate::{Attestation, Keys, Lookup, LookupOptions, RecomputeSession, Store};

/// By what rows die: the time to live of the store, an hour, or an invalidation of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    TimeToLive,
    Invalidation,
}

const DEATHS: [Death; 2] = [Death::TimeToLive, Death::Invalidation];

/// Minutes after the beginning of a test.
fn minutes(minutes: u64) {
    go_ahead(Duration::from_mins(minutes));
}

impl Death {
    /// A store whose rows are sealed only by `flush`, in a folder that others use too.
    fn store(self, dir: &Path) -> Store {
        minutes(0);
        let other = process(dir);
        compute(&other, &["w"], 1);
        seal_all(&other);
        with_time_to_live(dir, (self == Self::TimeToLive).then_some(Duration::from_hours(1)))
    }

    /// What was computed at the beginning dies, and what was computed half an hour later does not.
    fn comes(self, dir: &Path) {
        minutes(70);
        if self == Self::Invalidation {
            let limit = SystemTime::now() + Duration::from_mins(20);
            process(dir).invalidate_older_than(limit).unwrap();
        }
    }
}

fn look_up(store: &Store) -> Lookup {
    store.lookup(keys(&["x"])).unwrap()
}

fn insert(store: &Store, rows: &mut Lookup, value: i64) {
    store.insert(rows, &[0], column(&[value])).unwrap();
}

fn recompute(store: &Store, value: i64) {
    assert_eq!(replace(store, &RecomputeSession::new(), &["x"], value), 1);
}

/// `x` has this value, or none if it is -1, here and for another process, before it is sealed and after.
fn is_left(dir: &Path, store: &Store, value: i64, what: &str) {
    assert_eq!(values(store, &["x"]), [value], "{what}, before it is sealed");
    seal_all(store);
    assert_eq!(values(store, &["x"]), [value], "{what}, after it is sealed");
    assert_eq!(values(&process(dir), &["x"]), [value], "{what}, for another process");
}

#[test]
fn a_row_that_made_way_does_not_come_back_when_the_recomputed_one_dies_by_its_age() {
    for (death, freezes) in DEATHS.into_iter().flat_map(|death| [(death, 0), (death, 1), (death, 2)]) {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let mut old = look_up(&store);
        recompute(&store, 2);
        minutes(30);
        // Not at all, between the two rows, or after both.
        (0..i32::from(freezes == 1)).for_each(|_| store.core.buffer.freeze());
        insert(&store, &mut old, 1);
        (0..i32::from(freezes == 2)).for_each(|_| store.core.buffer.freeze());
        assert_eq!(values(&store, &["x"]), [2]);
        death.comes(dir.path());
        is_left(dir.path(), &store, -1, &format!("{death:?}, {freezes}"));
    }
}

#[test]
fn a_row_does_not_come_back_that_is_inserted_after_the_recomputed_one_has_died_by_its_age() {
    for (death, is_sealed) in DEATHS.into_iter().flat_map(|death| [(death, false), (death, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let mut old = look_up(&store);
        recompute(&store, 2);
        death.comes(dir.path());
        if is_sealed {
            // Nothing of the recomputed row is left.
            seal_all(&store);
        }
        insert(&store, &mut old, 1);
        is_left(dir.path(), &store, -1, &format!("{death:?}, sealed: {is_sealed}"));
    }
}

#[test]
fn a_row_that_was_written_already_is_not_named_once_the_recomputed_one_has_died_by_its_age() {
    for death in DEATHS {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let (core, mut old) = (&store.core, look_up(&store));
        recompute(&store, 2);
        core.buffer.freeze();
        minutes(30);
        insert(&store, &mut old, 1);
        core.buffer.freeze();
        let first = core.buffer.oldest_after(None).unwrap();
        let written = write(core, &first).unwrap();
        let second = core.buffer.oldest_after(Some(&Arc::downgrade(&first))).unwrap();
        let written_second = write(core, &second).unwrap();
        death.comes(dir.path());
        publish(core, &first, written).unwrap();
        publish(core, &second, written_second).unwrap();
        is_left(dir.path(), &store, -1, &format!("{death:?}"));
    }
}

#[test]
fn a_row_that_was_looked_up_after_the_recomputed_one_had_died_by_its_age_stays() {
    for (death, is_sealed) in DEATHS.into_iter().flat_map(|death| [(death, false), (death, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let mut old = look_up(&store);
        recompute(&store, 2);
        death.comes(dir.path());
        if is_sealed {
            seal_all(&store);
        }
        compute(&store, &["x"], 3);
        assert_eq!(values(&store, &["x"]), [3]);
        insert(&store, &mut old, 1);
        is_left(dir.path(), &store, 3, &format!("{death:?}, sealed: {is_sealed}"));
    }
}

#[test]
fn a_row_does_not_come_back_when_the_one_for_a_rejected_row_dies_by_its_age() {
    for death in DEATHS {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let mut old = look_up(&store);
        let other = process(dir.path());
        compute(&other, &["x"], -7);
        seal_all(&other);
        store.refresh().unwrap();
        let mut rejected = look_up(&store);
        assert!(store.reject(&mut rejected, &[0]).unwrap());
        insert(&store, &mut rejected, 2);
        minutes(30);
        insert(&store, &mut old, 1);
        assert_eq!(values(&store, &["x"]), [2]);
        death.comes(dir.path());
        assert_eq!(values(&store, &["x"]), [-1], "{death:?}");
        seal_all(&store);
        assert_eq!(values(&store, &["x"]), [-1], "{death:?}");
    }
}

#[test]
fn the_row_of_an_earlier_session_does_not_come_back_when_that_of_a_later_one_dies_by_its_age() {
    for death in DEATHS {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        minutes(30);
        recompute(&store, 1);
        // The clock is put back.
        minutes(0);
        recompute(&store, 2);
        assert_eq!(values(&store, &["x"]), [2]);
        death.comes(dir.path());
        is_left(dir.path(), &store, -1, &format!("{death:?}"));
        assert_eq!(store.stats().rows_superseded, 2);
    }
}

#[test]
fn a_row_that_made_way_stays_when_the_source_of_the_recomputed_one_is_refused_before_its_time_is_over() {
    for (death, is_frozen) in DEATHS.into_iter().flat_map(|death| [(death, false), (death, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let mut old = look_up(&store);
        let changed = Arc::new(AtomicBool::new(false));
        let asked = changed.clone();
        let weights =
            Attestation::new(move || if asked.load(SeqCst) { Err("changed".into()) } else { Ok(()) });
        let session = RecomputeSession::new();
        let options = LookupOptions { recompute: Some(&session), ..LookupOptions::default() };
        let mut again = store.lookup_with(keys(&["x"]), options).unwrap();
        store.insert_attested(&mut again, &[0], column(&[2]), &weights).unwrap();
        minutes(30);
        if is_frozen {
            store.core.buffer.freeze();
        }
        insert(&store, &mut old, 1);
        assert_eq!(values(&store, &["x"]), [2]);
        changed.store(true, SeqCst);
        death.comes(dir.path());
        seal_all(&store);
        assert_eq!(values(&store, &["x"]), [1], "{death:?}, frozen: {is_frozen}");
        assert_eq!(values(&process(dir.path()), &["x"]), [1], "{death:?}, frozen: {is_frozen}");
    }
}

#[test]
fn only_the_rows_of_its_key_and_view_make_way_for_a_row_that_has_died_by_its_age() {
    for death in DEATHS {
        let dir = tempfile::tempdir().unwrap();
        let store = death.store(dir.path());
        let mut old = store.lookup(keys(&["x", "y"])).unwrap();
        let mut other_view = store.lookup(Keys::text(["x"], 1).unwrap()).unwrap();
        recompute(&store, 2);
        death.comes(dir.path());
        seal_all(&store);
        store.insert(&mut old, &[0, 1], column(&[1, 1])).unwrap();
        store.insert(&mut other_view, &[0], column(&[1])).unwrap();
        seal_all(&store);
        for store in [&store, &process(dir.path())] {
            assert_eq!(values(store, &["x", "y"]), [-1, 1], "{death:?}");
            assert_eq!(values_in_view(store, Keys::text(["x"], 1).unwrap()), [1], "{death:?}");
        }
    }
}
