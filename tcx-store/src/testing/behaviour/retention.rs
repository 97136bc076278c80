//! Rows go when they are old or the folder is full, and only then.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::LookupOptions;
use crate::storage::{LocalStorage, System};
use crate::testing::{column, compute, go_ahead, keys, names, process, seal_all, spec, values};
use crate::{Compression, Options, Store, WhenFull};

fn open(dir: &Path, options: &Options) -> Store {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options = Options { flush_interval, refresh_every, ..options.clone() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), System)), spec(), &options).unwrap()
}

fn bytes(dir: &Path) -> u64 {
    let files = names(dir, "").into_iter();
    files.map(|name| std::fs::metadata(dir.join("m_v1").join(name)).unwrap().len()).sum()
}

#[test]
fn rows_older_than_their_time_are_not_served_and_their_files_go() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { time_to_live: Some(Duration::from_hours(4)), ..Options::default() };
    let store = open(dir.path(), &options);
    compute(&store, &["a", "b"], 1);
    seal_all(&store);
    assert_eq!(values(&store, &["a", "b"]), [1, 1]);
    go_ahead(Duration::from_hours(5));
    compute(&store, &["c"], 2);
    seal_all(&store);
    assert_eq!(values(&store, &["a", "b", "c"]), [-1, -1, 2]);
    assert_eq!(
        values(&open(dir.path(), &Options::default()), &["a", "b", "c"]),
        [1, 1, 2],
        "its own rule only"
    );
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    assert_eq!(values(&open(dir.path(), &Options::default()), &["a", "b", "c"]), [-1, -1, 2]);
}

#[test]
fn rows_whose_time_is_over_are_neither_served_from_the_write_buffer_nor_written() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { time_to_live: Some(Duration::from_hours(4)), ..Options::default() };
    let store = open(dir.path(), &options);
    compute(&store, &["a", "b"], 1);
    go_ahead(Duration::from_hours(3));
    assert_eq!(values(&store, &["a", "b"]), [1, 1]);
    go_ahead(Duration::from_hours(5));
    assert_eq!(values(&store, &["a", "b"]), [-1, -1]);
    assert_eq!(store.lookup_with(keys(&["a"]), LookupOptions::uncounted()).unwrap().missing(), 1);
    assert_eq!(store.prefetch(keys(&["a"])).unwrap(), 0);
    store.each_key(|key, _| panic!("{key:?} is listed")).unwrap();
    compute(&store, &["a"], 2);
    assert_eq!(values(&store, &["a", "b"]), [2, -1]);
    seal_all(&store);
    assert_eq!((store.stats().rows_sealed, store.stats().rows_dropped), (1, 2));
    assert_eq!(values(&store, &["a", "b"]), [2, -1], "the new row is not as old as those it was sealed with");
}

#[test]
fn rows_whose_time_is_over_are_not_served_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let compression = Compression::Zstd;
    let options = Options { time_to_live: Some(Duration::from_hours(4)), compression, ..Options::default() };
    let store = open(dir.path(), &options);
    let mut before = store.lookup(keys(&["a"])).unwrap();
    compute(&store, &["a"], 1);
    seal_all(&store);
    assert_eq!(values(&store, &["a"]), [1]);
    assert!(store.stats().memory_cache_bytes > 0, "it was decompressed");
    go_ahead(Duration::from_hours(5));
    store.lookup_again(&mut before).unwrap();
    assert_eq!(before.missing(), 1);
    store.each_key(|key, _| panic!("{key:?} is listed")).unwrap();
    assert_eq!(values(&store, &["a"]), [-1]);
    assert_eq!(store.lookup_with(keys(&["a"]), LookupOptions::uncounted()).unwrap().missing(), 1);
    assert_eq!(store.prefetch(keys(&["a"])).unwrap(), 0);
}

#[test]
fn a_time_to_live_that_no_clock_reaches_keeps_everything() {
    for time in [Duration::MAX, Duration::from_millis(u64::MAX) + Duration::from_millis(2)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { time_to_live: Some(time), ..Options::default() };
        let store = open(dir.path(), &options);
        compute(&store, &["a"], 1);
        seal_all(&store);
        go_ahead(Duration::from_hours(1));
        assert_eq!(values(&store, &["a"]), [1], "{time:?}");
        store.compact().unwrap();
        store.collect(Duration::ZERO).unwrap();
        assert_eq!(values(&store, &["a"]), [1], "{time:?}");
        go_ahead(Duration::ZERO);
    }
}

#[test]
fn every_row_is_older_than_a_time_that_no_clock_reaches() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options::default());
    compute(&store, &["a"], 1);
    store.invalidate_older_than(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 62)).unwrap();
    assert_eq!(values(&store, &["a"]), [-1]);
}

#[test]
fn segments_of_different_age_are_not_joined_where_age_decides() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { time_to_live: Some(Duration::from_hours(4)), ..Options::default() };
    let store = open(dir.path(), &options);
    for (key, minutes) in [("a", 0), ("b", 36)] {
        // More than a sixteenth of the time apart.
        go_ahead(Duration::from_mins(minutes));
        compute(&store, &[key], 1);
        seal_all(&store);
    }
    store.compact().unwrap();
    assert_eq!(store.stats().segments, 2);
    drop(store);
    let store = open(dir.path(), &Options::default());
    store.compact().unwrap();
    assert_eq!(store.stats().segments, 2, "another process may have a time to live");
    // So late that everything before the year 2109 is of one group.
    go_ahead(Duration::from_hours(24 * 365 * 400));
    store.compact().unwrap();
    assert_eq!(store.stats().segments, 1, "they are of about the same age now");
}

#[test]
fn rows_that_a_process_without_a_time_to_live_joins_keep_half_of_the_time_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { time_to_live: Some(Duration::from_hours(4)), ..Options::default() };
    let (keeps, limited) = (open(dir.path(), &Options::default()), open(dir.path(), &options));
    let mut wanted: Vec<String> = Vec::new();
    // For longer than the time to live: at each moment there are rows of every age.
    for minutes in (0..8 * 60).step_by(10) {
        go_ahead(Duration::from_mins(minutes));
        let key = format!("{minutes}");
        compute(&keeps, &[&key], minutes as i64);
        seal_all(&keeps);
        wanted.push(key);
        keeps.compact().unwrap();
        limited.collect(Duration::ZERO).unwrap();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        for (own, found) in wanted.iter().zip(values(&limited, &wanted)) {
            let age = minutes - own.parse::<u64>().unwrap();
            assert!(found >= 0 || age >= 2 * 60, "{own} is gone after {age} minutes");
            assert!(found < 0 || age <= 4 * 60, "{own} is there after {age} minutes");
        }
    }
    assert!(keeps.stats().segments < 20, "{} segments", keeps.stats().segments);
}

#[test]
fn rows_that_a_process_with_a_time_to_live_joins_keep_all_but_a_sixteenth_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { time_to_live: Some(Duration::from_hours(4)), ..Options::default() };
    let store = open(dir.path(), &options);
    let mut wanted: Vec<String> = Vec::new();
    for minutes in (0..6 * 60).step_by(4) {
        go_ahead(Duration::from_mins(minutes));
        let key = format!("{minutes}");
        compute(&store, &[&key], minutes as i64);
        seal_all(&store);
        wanted.push(key);
        store.compact().unwrap();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        for (own, found) in wanted.iter().zip(values(&store, &wanted)) {
            let age = minutes - own.parse::<u64>().unwrap();
            assert!(found >= 0 || age >= 4 * 60 - 15, "{own} is gone after {age} minutes");
            assert!(found < 0 || age <= 4 * 60, "{own} is there after {age} minutes");
        }
    }
    // Of the last four hours there are 60.
    assert!(store.stats().segments < 45, "{} segments", store.stats().segments);
}

#[test]
fn a_full_folder_keeps_what_it_has_and_takes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_bytes: Some(60_000), when_full: WhenFull::StopWriting, ..Options::default() };
    let store = open(dir.path(), &options);
    let ids: Vec<String> = (0..200).map(|i| format!("{i:01000}")).collect();
    for id in &ids {
        compute(&store, &[id], 7);
        store.flush().unwrap();
    }
    let stats = store.stats();
    assert!(stats.rows_dropped > 0 && stats.rows_sealed > 0, "{stats:?}");
    assert_eq!(stats.rows_dropped + stats.rows_sealed, 200);
    assert_eq!(values(&store, &[&ids[0]]), [7]);
    // A separate thread joins and removes files; it has ended when the store is dropped.
    drop(store);
    assert!(bytes(dir.path()) < 80_000, "{} bytes", bytes(dir.path()));
    // Replaced files are gone, so with this limit the folder is full.
    let again = open(dir.path(), &Options { max_bytes: Some(bytes(dir.path())), ..options });
    compute(&again, &["new"], 8);
    assert_eq!(values(&again, &["new"]), [-1], "full from the first row on");
    again.invalidate_all().unwrap();
    again.collect(Duration::ZERO).unwrap();
    again.flush().unwrap();
    compute(&again, &["new"], 9);
    assert_eq!(values(&again, &["new"]), [9], "there is room again");
}

#[test]
fn eviction_leaves_what_fits_however_many_rows_are_flushed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let max = 400_000;
    let options = Options { max_bytes: Some(max), when_full: WhenFull::EvictOldest, ..Options::default() };
    let store = open(dir.path(), &options);
    let ids: Vec<String> = (0..30_000).map(|i| format!("key {i:0>20}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    ids.chunks(100).for_each(|batch| compute(&store, batch, 7));
    store.flush().unwrap();
    drop(store);
    let used = bytes(dir.path());
    assert!(used > max / 2 && used < max * 3 / 2, "{used} bytes");
    let store = open(dir.path(), &options);
    let found = values(&store, &ids);
    let kept = found.iter().filter(|value| **value == 7).count();
    assert!(kept > 2000 && found[29_999] == 7, "{kept} rows are kept");
}

#[test]
fn the_oldest_rows_make_room_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_bytes: Some(60_000), when_full: WhenFull::EvictOldest, ..Options::default() };
    let store = open(dir.path(), &options);
    let ids: Vec<String> = (0..300).map(|i| format!("key {i}")).collect();
    for id in &ids {
        compute(&store, &[id], 7);
        store.flush().unwrap();
    }
    assert_eq!(store.stats().rows_dropped, 0);
    // A separate thread joins and removes files; it has ended when the store is dropped.
    drop(store);
    assert!(bytes(dir.path()) < 80_000, "{} bytes", bytes(dir.path()));
    let store = open(dir.path(), &options);
    let wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = values(&store, &wanted);
    let kept = found.iter().filter(|value| **value == 7).count();
    assert!(found[299] == 7 && kept > 5 && kept < 300, "{kept} rows are kept");
    assert_eq!(found[0], -1, "the oldest");
    let missed = store.stats().miss_causes;
    assert_eq!((missed.absent, missed.unreadable), ((300 - kept) as u64, 0), "evicted rows are absent");
}

#[test]
fn room_is_made_where_nothing_is_stored_yet() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    store.make_room(1).unwrap();
    compute(&store, &["x"], 7);
    store.make_room(1).unwrap();
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [7]);
}

#[test]
fn a_value_that_is_put_when_the_time_of_another_is_over_takes_its_place_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let options = |time_to_live| Options { time_to_live, ..Options::default() };
    let store = open(dir.path(), &options(Some(Duration::from_hours(4))));
    // More rows than are put: their run is the first in which others look.
    compute(&store, &["x", "y", "z"], 5);
    seal_all(&store);
    go_ahead(Duration::from_hours(5));
    let mut rows = store.lookup_to_put(keys(&["x"]), None).unwrap();
    assert_eq!(rows.missing(), 1);
    store.insert(&mut rows, &[0], column(&[7])).unwrap();
    seal_all(&store);
    assert_eq!(values(&store, &["x"]), [7]);
    let without = open(dir.path(), &options(None));
    assert_eq!(values(&without, &["x", "y"]), [7, 5]);
}
