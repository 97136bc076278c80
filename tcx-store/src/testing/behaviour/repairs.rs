//! A folder is repaired while a process joins segments: rows that are lost by the repair do not come back over what has been put since.

use std::path::Path;
use std::time::Duration;

use super::removals_meet::joining_while;
use crate::changes::Doomed;
use crate::testing::{
    change, compute, damage_and_repair, kill_z, names, process, put, reader, replace, seal_all, values,
};
use crate::upkeep::compaction::Effort;
use crate::upkeep::tasks::merge_changes;
use crate::{RecomputeSession, Store};

const KEYS: [&str; 2] = ["x", "y"];

/// Each of the keys in a segment of its own; their names.
fn seal_each(dir: &Path) -> Vec<String> {
    let writer = process(dir);
    let seal = |key| {
        let before = names(dir, "seg-");
        compute(&writer, &[key], 1);
        seal_all(&writer);
        names(dir, "seg-").into_iter().find(|name| !before.contains(name)).unwrap()
    };
    KEYS.into_iter().map(seal).collect()
}

/// Joins everything. `meanwhile` is done after the last look at the inputs, when the joined segment is about to get its name. Returns what
/// each process finds afterwards.
fn found_after(dir: &Path, meanwhile: impl Fn(&Path) + Send + Sync + 'static) -> [Vec<i64>; 3] {
    let joining = joining_while(dir, meanwhile);
    [joining, process(dir), reader(dir)].map(|store| values(&store, &KEYS))
}

fn put_2(store: &Store, key: &'static str) {
    assert_eq!(put(store, key, 2).unwrap(), 1, "a row of {key} is there");
    store.flush().unwrap();
}

#[test]
fn rows_that_a_repaired_change_kills_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path());
    let store = process(dir.path());
    (0..3).for_each(|_| kill_z(&store));
    let found = found_after(dir.path(), |dir| {
        damage_and_repair(dir, &change(2));
        let other = process(dir);
        assert_eq!(values(&other, &KEYS), [-1, -1]);
        put_2(&other, "x");
    });
    assert_eq!(found, [[2, -1]; 3]);
}

#[test]
fn rows_that_a_repaired_change_kills_do_not_come_back_after_all_that_is_found_was_invalidated() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path());
    let store = process(dir.path());
    (0..3).for_each(|_| kill_z(&store));
    let found = found_after(dir.path(), |dir| {
        damage_and_repair(dir, &change(2));
        process(dir).invalidate_where(|_| true).unwrap();
    });
    assert_eq!(found, [[-1, -1]; 3]);
}

#[test]
fn rows_that_a_repaired_change_had_committed_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path());
    let store = process(dir.path());
    replace(&store, &RecomputeSession::new(), &["x"], 10);
    seal_all(&store);
    (0..17).for_each(|_| kill_z(&store));
    merge_changes(&store.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    let found = found_after(dir.path(), |dir| {
        damage_and_repair(dir, &change(1));
        let other = process(dir);
        assert_eq!(values(&other, &KEYS), [-1, 1], "merged changes say that y is alive");
        put_2(&other, "x");
    });
    assert_eq!(found, [[2, 1]; 3]);
}

#[test]
fn rows_of_a_segment_that_was_moved_away_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let of_x = seal_each(dir.path()).swap_remove(0);
    let found = found_after(dir.path(), move |dir| {
        damage_and_repair(dir, &of_x);
        let other = process(dir);
        assert_eq!(values(&other, &KEYS), [-1, 1]);
        put_2(&other, "x");
    });
    assert_eq!(found, [[2, 1]; 3]);
}

#[test]
fn rows_of_a_segment_that_was_moved_away_do_not_come_back_after_all_that_is_found_was_invalidated() {
    let dir = tempfile::tempdir().unwrap();
    let of_x = seal_each(dir.path()).swap_remove(0);
    let found = found_after(dir.path(), move |dir| {
        damage_and_repair(dir, &of_x);
        let other = process(dir);
        other.invalidate_where(|key| key == b"x").unwrap();
        assert_eq!(values(&other, &KEYS), [-1, 1]);
    });
    assert_eq!(found, [[-1, 1]; 3]);
}

#[test]
fn what_was_joined_before_a_repair_stays_and_is_joined_and_collected_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path());
    let store = process(dir.path());
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
    let joined = names(dir.path(), "seg-");
    compute(&store, &["z"], 1);
    seal_all(&store);
    let of_z = names(dir.path(), "seg-").into_iter().find(|name| !joined.contains(name)).unwrap();
    damage_and_repair(dir.path(), &of_z);
    compute(&store, &["w"], 1);
    seal_all(&store);
    store.refresh().unwrap();
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    for store in [store, process(dir.path())] {
        assert_eq!(values(&store, &["x", "y", "z", "w"]), [1, 1, -1, 1]);
    }
}

#[test]
fn the_rows_of_a_damaged_segment_live_again_in_what_it_was_joined_from() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = seal_each(dir.path());
    let store = process(dir.path());
    store.core.compact(Effort::Thorough).unwrap();
    let joined = names(dir.path(), "seg-").into_iter().find(|name| !inputs.contains(name)).unwrap();
    damage_and_repair(dir.path(), &joined);
    assert_eq!(values(&process(dir.path()), &KEYS), [1, 1]);
    // They are joined again.
    let other = process(dir.path());
    other.core.compact(Effort::Thorough).unwrap();
    other.core.collect(Duration::ZERO).unwrap();
    assert_eq!((names(dir.path(), "seg-").len(), values(&process(dir.path()), &KEYS)), (1, vec![1, 1]));
}

/// A repair begins with a new change that kills what the damaged one has, with the number of that one.
#[test]
fn what_was_invalidated_between_a_damaged_change_and_its_repair_stays_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["w"], 1);
    seal_all(&store);
    kill_z(&store);
    compute(&store, &["x"], 1);
    seal_all(&store);
    compute(&store, &["buffered"], 1);
    store.core.kill(Doomed::Keys(["x", "buffered"].map(|key| key.as_bytes().into()).to_vec())).unwrap();
    damage_and_repair(dir.path(), &change(1));
    assert_eq!(values(&store, &["x", "buffered"]), [-1, -1], "the process that has invalidated it");
    assert_eq!(values(&process(dir.path()), &["x", "buffered"]), [-1, -1]);
}

#[test]
fn what_was_invalidated_between_a_damaged_change_and_its_repair_is_not_joined() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["w"], 1);
    seal_all(&store);
    kill_z(&store);
    for key in KEYS {
        compute(&store, &[key], 1);
        seal_all(&store);
    }
    store.core.kill(Doomed::Keys(vec![b"x".as_slice().into()])).unwrap();
    damage_and_repair(dir.path(), &change(1));
    process(dir.path()).core.compact(Effort::Thorough).unwrap();
    let other = process(dir.path());
    (0..20).for_each(|_| kill_z(&other));
    merge_changes(&other.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    assert_eq!(values(&process(dir.path()), &KEYS), [-1, 1]);
}

#[test]
fn what_was_replaced_between_a_damaged_change_and_its_repair_stays_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["w"], 1);
    seal_all(&store);
    kill_z(&store);
    compute(&store, &["x", "y"], 1);
    seal_all(&store);
    replace(&store, &RecomputeSession::new(), &["x"], 2);
    store.flush().unwrap();
    damage_and_repair(dir.path(), &change(1));
    for store in [store, process(dir.path())] {
        assert_eq!(values(&store, &KEYS), [2, 1]);
    }
}
