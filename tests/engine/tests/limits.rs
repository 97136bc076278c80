//! What a folder takes on disk: within its limit, and little more than its rows.

use tcx_engine_tests::{files, get_or_compute, lookup, open, options, spec};
use tcx_store::{Options, Store, WhenFull};

#[test]
fn rows_are_not_evicted_for_bytes_that_eviction_cannot_remove() {
    let limits = |max| Options { max_bytes: Some(max), when_full: WhenFull::EvictOldest, ..options() };
    let of = |round: usize| (0..20).map(|id| format!("{round}-{id}")).collect::<Vec<_>>();
    let other = tempfile::tempdir().unwrap();
    let foreign: Vec<String> = (0..500).map(|id| id.to_string()).collect();
    let foreign: Vec<&str> = foreign.iter().map(String::as_str).collect();
    let store = open(other.path());
    get_or_compute(&store, &foreign);
    store.flush().unwrap();
    let [stays] = &files(other.path(), "seg-")[..] else { panic!("one segment") };
    let size = std::fs::metadata(stays).unwrap().len();
    // The limit is below the size of the file that stays, or so little above it that no segment fits beside it.
    for max in [size / 2, size + 2000] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), spec("224"), &limits(max)).unwrap();
        for round in 0..20 {
            let ids = of(round);
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            get_or_compute(&store, &ids);
            store.flush().unwrap();
            if round == 0 {
                std::fs::copy(stays, dir.path().join("m_v1").join(stays.file_name().unwrap())).unwrap();
            }
        }
        drop(store);
        let store = Store::open(dir.path(), spec("224"), &limits(max)).unwrap();
        let ids = of(19);
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(lookup(&store, &ids).missing(), 0, "rows just acknowledged, of at most {max} bytes");
        let rows = store.stats().bytes;
        assert!(rows <= max, "{rows} bytes of rows, at most {max}");
    }
}

#[test]
fn bytes_that_eviction_cannot_remove_count_as_long_as_new_rows_have_room() {
    let other = tempfile::tempdir().unwrap();
    let store = open(other.path());
    get_or_compute(&store, &["foreign"]);
    store.flush().unwrap();
    let [stays] = &files(other.path(), "seg-")[..] else { panic!("one segment") };
    let dir = tempfile::tempdir().unwrap();
    let max = 60_000;
    let options = Options { max_bytes: Some(max), when_full: WhenFull::EvictOldest, ..options() };
    let store = Store::open(dir.path(), spec("224"), &options).unwrap();
    for round in 0..60 {
        get_or_compute(&store, &[&format!("{round}")]);
        store.flush().unwrap();
        if round == 0 {
            std::fs::copy(stays, dir.path().join("m_v1").join(stays.file_name().unwrap())).unwrap();
        }
    }
    drop(store);
    let taken: u64 = files(dir.path(), "").iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    assert!(taken <= max, "{taken} bytes, at most {max}");
    let store = Store::open(dir.path(), spec("224"), &options).unwrap();
    assert_eq!(lookup(&store, &["0", "59"]).distinct_missing_positions(), [0]);
}

#[test]
fn a_process_that_has_filled_a_cache_leaves_little_more_than_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for batch in 0..40 {
        let ids: Vec<String> = (0..400).map(|id| format!("{batch}-{id}")).collect();
        get_or_compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
        store.flush().unwrap();
    }
    drop(store);
    let live = open(dir.path()).stats().bytes;
    let taken: u64 = files(dir.path(), "").iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    assert!(taken * 10 <= live * 16, "{taken} bytes on disk, {live} of rows");
}
