//! Files of segments come back that were evicted or trimmed, from a copy of the folder: their rows do not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::options::WhenFull;
use crate::storage::LOOK_AGAIN_AFTER;
use crate::testing::{compute, kill_z, make_older, names, process, put, seal_all, values};
use crate::upkeep::compaction::{Effort, Excess, compact, evict};
use crate::upkeep::eviction::EvictionOrder;
use crate::upkeep::tasks::merge_changes;
use crate::{Inspection, Store};

/// The segments of the folder, as a copy has them.
fn copy(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let bytes = fs::read(dir.join("m_v1").join(&name)).unwrap();
        (name, bytes)
    };
    names(dir, "seg-").into_iter().map(read).collect()
}

/// Gives those segments of a copy their names that are not there.
fn bring_back(dir: &Path, copy: &BTreeMap<String, Vec<u8>>) {
    let there = names(dir, "seg-");
    for (name, bytes) in copy.iter().filter(|(name, _)| !there.contains(name)) {
        fs::write(dir.join("m_v1").join(name), bytes).unwrap();
    }
}

/// Computes each of these rows in a segment of its own.
fn seal_each(store: &Store, keys: &[&'static str]) {
    for key in keys {
        compute(store, &[key], 1);
        seal_all(store);
    }
}

fn join(store: &Store) {
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
}

fn evict_all(store: &Store, keys: &[&str]) {
    while values(store, keys).iter().any(|value| *value != -1) {
        store.make_room(1).unwrap();
    }
}

fn put_2(store: &Store, key: &'static str) {
    assert_eq!(put(store, key, 2).unwrap(), 1, "a row of {key} is there");
    seal_all(store);
}

/// How many rows of the key are there.
fn count(store: &Store, wanted: &str) -> usize {
    let mut count = 0;
    store.each_key(|key, _| count += usize::from(key == wanted.as_bytes())).unwrap();
    count
}

#[test]
fn evicted_rows_do_not_come_back_with_a_copy_of_their_segment() {
    for merges in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        seal_each(&store, &["x"]);
        let copy = copy(dir.path());
        evict_all(&store, &["x"]);
        if merges {
            // An eviction since, and many other changes.
            seal_each(&store, &["y"]);
            evict_all(&store, &["y"]);
            (0..17).for_each(|_| kill_z(&store));
            merge_changes(&store.core);
            assert_eq!(names(dir.path(), "merged-").len(), 1);
        }
        put_2(&store, "x");
        bring_back(dir.path(), &copy);
        for store in [&store, &process(dir.path())] {
            assert_eq!((values(store, &["x"]), count(store, "x")), (vec![2], 1), "merged: {merges}");
        }
        store.core.collect(Duration::ZERO).unwrap();
        let left = names(dir.path(), "seg-");
        assert!(copy.keys().all(|name| !left.contains(name)), "a dead segment is collected");
    }
}

#[test]
fn evicted_rows_do_not_come_back_with_what_their_segment_was_joined_from() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let mut copies = BTreeMap::new();
    let keys = ["u", "v", "w", "x", "y", "z"];
    for pair in keys.chunks(2) {
        seal_each(&store, pair);
        copies.append(&mut copy(dir.path()));
        join(&store);
        copies.append(&mut copy(dir.path()));
    }
    assert_eq!((copies.len(), names(dir.path(), "seg-").len()), (9, 1), "joined three times");
    evict_all(&store, &keys);
    bring_back(dir.path(), &copies);
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &keys), [-1; 6]);
    }
    let module = Inspection::open(&dir.path().join("m_v1")).unwrap();
    assert!(module.segments().all(|own| own.state.is_reclaimable()));
}

#[test]
fn rows_that_were_trimmed_do_not_come_back_with_a_copy_of_the_longer_segment() {
    for joins in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x", "y"], 1);
        seal_all(&store);
        let copy = copy(dir.path());
        let name = copy.keys().next().unwrap();
        assert!(store.trim_segment(name, 1).unwrap());
        store.core.collect(Duration::ZERO).unwrap();
        assert!(!names(dir.path(), "seg-").contains(name), "it is collected");
        assert_eq!(values(&store, &["x", "y"]), [1, -1]);
        put_2(&store, "y");
        if joins {
            join(&store);
        }
        bring_back(dir.path(), &copy);
        for store in [&store, &process(dir.path())] {
            assert_eq!((values(store, &["x", "y"]), count(store, "y")), (vec![1, 2], 1), "joined: {joins}");
        }
    }
}

#[test]
fn evicted_rows_do_not_come_back_by_a_later_eviction_of_a_process_that_cannot_read_the_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    seal_each(&first, &["x", "y", "z"]);
    let before = names(dir.path(), "seg-");
    compact(&process(dir.path()).core, Effort::Thorough, &mut BTreeSet::new()).unwrap();
    let joined = names(dir.path(), "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    let (path, aside) = (dir.path().join("m_v1").join(&joined), dir.path().join(&joined));
    // It gets its name after the eviction.
    fs::rename(&path, &aside).unwrap();
    let first = process(dir.path());
    first.make_room(1).unwrap();
    assert_eq!(values(&first, &["x", "y", "z"]), [-1, 1, 1]);
    put_2(&first, "x");
    fs::rename(&aside, &path).unwrap();
    assert_eq!(values(&first, &["x", "y", "z"]), [2, 1, 1]);
    // The next one goes by another order.
    std::thread::sleep(Duration::from_millis(3));
    seal_each(&first, &["w"]);
    let second_change = dir.path().join("m_v1/change-00000000000000000002");
    let mut bytes = fs::read(&second_change).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::remove_file(&second_change).unwrap();
    fs::write(&second_change, bytes).unwrap();
    make_older(dir.path(), "change-");
    let second = process(dir.path());
    // It is damaged for good when it has looked damaged for a while.
    values(&second, &["x"]);
    std::thread::sleep(LOOK_AGAIN_AFTER);
    values(&second, &["x"]);
    evict(&second.core, Excess::Segments(1), EvictionOrder::of(WhenFull::EvictLeastUsed, 0, 0)).unwrap();
    assert_eq!(values(&first, &["x", "y", "z", "w"]), [2, 1, 1, -1]);
}
