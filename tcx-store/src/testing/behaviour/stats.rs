//! What is counted is what happened.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::replaced_at_once::with_a_row;
use super::uncommitted::killed_before_the_commit;
use crate::LookupOptions;
use crate::storage::{LocalStorage, System};
use crate::sys::memory::memory;
use crate::testing::{
    Fault, Faulty, column, compute, keys, names, process, seal_all, spec, values, with_operations,
};
use crate::{MissCauses, Options, RecomputeSession, Store};

/// Counts the misses of these keys.
fn causes(store: &Store, wanted: &[&str]) -> MissCauses {
    let before = store.stats();
    store.refresh().unwrap();
    let missing = store.lookup(keys(wanted)).unwrap().missing() as u64;
    let after = store.stats();
    assert_eq!(after.misses - before.misses, missing);
    assert_eq!(after.hits - before.hits, wanted.len() as u64 - missing);
    let (
        MissCauses { absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated },
        old,
    ) = (after.miss_causes, before.miss_causes);
    MissCauses {
        absent: absent - old.absent,
        invalidated: invalidated - old.invalidated,
        expired: expired - old.expired,
        damaged: damaged - old.damaged,
        unreadable: unreadable - old.unreadable,
        recomputed: recomputed - old.recomputed,
        rejected: rejected - old.rejected,
        outdated: outdated - old.outdated,
    }
}

fn filled(dir: &Path) -> Store {
    let store = process(dir);
    compute(&store, &["a", "b", "c"], 7);
    seal_all(&store);
    store
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("m_v1").join(&names(dir, "seg-")[0])
}

#[test]
fn the_limit_of_the_memory_cache_is_a_sixteenth_of_the_memory_unless_it_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let limit = |options: &Options| {
        let storage = Arc::new(LocalStorage::new(dir.path().join("m_v1"), System));
        let stats = Store::with_storage(storage, spec(), options).unwrap().stats();
        (stats.memory_cache_limit, stats.memory_cache_bytes, stats.memory_cache_shrinks)
    };
    assert_eq!(limit(&Options::default()), (memory() as u64 / 16, 0, 0));
    assert_eq!(limit(&Options { memory_cache_bytes: 7, ..Options::default() }), (7, 0, 0));
}

#[test]
fn lookups_are_timed_apart_by_whether_they_missed_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let before = store.stats();
    for wanted in [&["a", "b"][..], &["c"], &["a", "x"]] {
        store.lookup(keys(wanted)).unwrap();
    }
    store.lookup_with(keys(&["a"]), LookupOptions::uncounted()).unwrap();
    let after = store.stats();
    assert_eq!((before.hit_times.count(), after.hit_times.count()), (0, 2));
    assert_eq!(after.miss_times.count() - before.miss_times.count(), 1);
    assert!(after.hit_times.p50() > Duration::ZERO && after.hit_times.p50() <= after.hit_times.p999());
}

#[test]
fn what_was_never_there_is_absent_and_what_was_invalidated_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    assert_eq!(causes(&store, &["a", "x"]), MissCauses { absent: 1, ..Default::default() });
    store.invalidate(&keys(&["a", "x"])).unwrap();
    let found = causes(&store, &["a", "b", "x", "y"]);
    assert_eq!(found, MissCauses { absent: 2, invalidated: 1, ..Default::default() });
}

#[test]
fn rows_older_than_their_time_are_expired() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let options = Options { time_to_live: Some(Duration::ZERO), read_only: true, ..Options::default() };
    let storage = Arc::new(LocalStorage::new(dir.path().join("m_v1"), System));
    std::thread::sleep(Duration::from_millis(2));
    let store = Store::with_storage(storage, spec(), &options).unwrap();
    let found = causes(&store, &["a", "b", "x"]);
    assert_eq!(found, MissCauses { expired: 2, absent: 1, ..Default::default() });
}

#[test]
fn damaged_rows_are_told_when_they_are_met_and_as_long_as_they_are_there() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let path = segment(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(8).rposition(|window| window == 7_i64.to_le_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let store = process(dir.path());
    for _ in 0..2 {
        let found = causes(&store, &["a", "x"]);
        assert_eq!(found, MissCauses { damaged: 1, absent: 1, ..Default::default() });
    }
}

#[test]
fn rows_whose_file_was_removed_are_absent() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    std::fs::remove_file(segment(dir.path())).unwrap();
    for store in [&store, &process(dir.path())] {
        let found = causes(store, &["a", "x"]);
        assert_eq!(found, MissCauses { absent: 2, ..Default::default() });
    }
}

#[test]
fn joined_rows_are_hits_and_those_left_out_are_absent() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    store.invalidate(&keys(&["a"])).unwrap();
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    for store in [&store, &process(dir.path())] {
        let found = causes(store, &["a", "b", "c", "x"]);
        assert_eq!(found, MissCauses { absent: 2, ..Default::default() });
    }
}

#[test]
fn rows_that_are_computed_anew_are_counted_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let rows = store
        .lookup_with(
            keys(&["a", "x"]),
            LookupOptions {
                recompute: Some(&Arc::new(RecomputeSession::default())),
                ..LookupOptions::default()
            },
        )
        .unwrap();
    assert_eq!(rows.missing(), 2);
    let expected = MissCauses { recomputed: 1, absent: 1 + 3, ..Default::default() };
    assert_eq!(store.stats().miss_causes, expected);
}

#[test]
fn a_miss_that_another_thread_has_computed_meanwhile_is_a_hit_whatever_its_cause_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    store.invalidate(&keys(&["a"])).unwrap();
    let before = store.stats();
    let mut rows = store.lookup(keys(&["a", "x", "y"])).unwrap();
    let mut others = store.lookup_with(keys(&["a", "x"]), LookupOptions::uncounted()).unwrap();
    store.insert(&mut others, &[0, 1], column(&[8, 9])).unwrap();
    store.lookup_again(&mut rows).unwrap();
    let after = store.stats();
    assert_eq!((after.hits - before.hits, after.misses - before.misses), (2, 1));
    assert_eq!(after.miss_causes.invalidated, 0);
    assert_eq!(after.bytes_served - before.bytes_served, 16);
}

#[test]
fn rows_and_bytes_are_counted_on_their_way_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a", "b", "c"], 7);
    let stats = store.stats();
    assert_eq!((stats.rows_accepted, stats.buffered_rows, stats.rows_sealed), (3, 3, 0));
    assert!(stats.bytes_accepted >= 3 * 8 && stats.buffered_bytes == stats.bytes_accepted, "{stats:?}");
    store.flush().unwrap();
    let stats = store.stats();
    assert_eq!((stats.buffered_rows, stats.buffered_bytes, stats.rows_sealed), (0, 0, 3));
    assert_eq!((stats.flush_times.count, stats.seal_times.count), (1, 1));
    assert!(stats.flush_times.total >= stats.flush_times.longest && !stats.flush_times.longest.is_zero());
    assert_eq!((stats.compaction_times.count, stats.write_failures, stats.is_writing_off), (0, 0, false));
    compute(&store, &["d"], 7);
    seal_all(&store);
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    assert_eq!((store.stats().compaction_times.count, store.stats().collection_times.count), (1, 1));
}

#[test]
fn dead_bytes_are_those_that_compaction_and_collection_free() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    compute(&store, &["d", "e"], 7);
    seal_all(&store);
    assert_eq!(store.disk_usage().unwrap().dead_bytes, 0);
    store.invalidate(&keys(&["a", "d", "e"])).unwrap();
    let usage = store.disk_usage().unwrap();
    let size: u64 = names(dir.path(), "")
        .iter()
        .map(|name| std::fs::metadata(dir.path().join("m_v1").join(name)).unwrap().len())
        .sum();
    assert_eq!((usage.files, usage.bytes), (names(dir.path(), "").len() as u64, size));
    assert!(usage.dead_bytes > store.stats().bytes / 2, "{usage:?}");
    std::fs::write(dir.path().join("m_v1/notes.txt"), "mine").unwrap();
    store.compact().unwrap();
    let replaced = store.disk_usage().unwrap();
    assert!(replaced.dead_bytes > usage.dead_bytes, "the inputs are there still: {replaced:?}");
    store.collect(Duration::ZERO).unwrap();
    store.core.tidy();
    let left = store.disk_usage().unwrap();
    assert_eq!(left.dead_bytes, 0);
    assert_eq!(left.files, names(dir.path(), "").len() as u64 - 1);
    assert_eq!(values(&store, &["a", "b"]), [-1, 7]);
}

#[test]
fn a_segment_that_waits_for_its_commit_is_not_dead_before_its_number_is_given_to_another_change() {
    let dir = with_a_row();
    let segment = killed_before_the_commit(dir.path());
    let store = process(dir.path());
    assert_eq!(store.disk_usage().unwrap().dead_bytes, 0);
    store.invalidate(&keys(&["other"])).unwrap();
    let bytes = std::fs::metadata(dir.path().join("m_v1").join(segment)).unwrap().len();
    assert!(store.disk_usage().unwrap().dead_bytes >= bytes, "it is void");
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(store.disk_usage().unwrap().dead_bytes, 0);
}

#[test]
fn a_segment_whose_changes_cannot_be_found_or_read_is_not_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    store.invalidate(&keys(&["a"])).unwrap();
    compute(&store, &["d"], 7);
    seal_all(&store);
    let change = dir.path().join("m_v1/change-00000000000000000001");
    let is_unreadable =
        |step: &str, path: &Path| step == "open" && path.ends_with("change-00000000000000000001");
    let steps = Faulty::with(move |_, step, path| {
        is_unreadable(step, path).then_some(Fault::Refused(ErrorKind::Other))
    });
    assert_eq!(with_operations(dir.path(), steps).disk_usage().unwrap().dead_bytes, 0, "it cannot be read");
    std::fs::remove_file(change).unwrap();
    assert_eq!(process(dir.path()).disk_usage().unwrap().dead_bytes, 0, "it is not there (yet)");
}
