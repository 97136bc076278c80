//! Rows are found whatever an index run says, and none that is not asked for.

use std::path::Path;
use std::sync::Arc;

use crate::LookupOptions;
use crate::index::build_run;
use crate::live::run_set::publish_run;
use crate::schema::key::{KeyHash, KeySeed};
use crate::storage::name::{FileName, SegmentName};
use crate::storage::{LocalStorage, Storage, System};
use crate::sys::bytes::Random;
use crate::{Column, ColumnType, DType, Field, Identity, KeyType, Keys, Options, Spec, Store};

const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };

fn open(dir: &Path) -> Store {
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    Store::with_storage(Arc::new(storage), spec, &Options::default()).unwrap()
}

/// A store with a row for each of these keys, its number; its only run is the one that `run` makes of the segment.
fn with_run(dir: &Path, keys: &[&str], run: impl Fn(SegmentName) -> Vec<u8>) -> Store {
    let store = open(dir);
    let mut rows = store.lookup(Keys::text(keys, 0).unwrap()).unwrap();
    let (positions, values) =
        ((0..keys.len()).collect::<Vec<_>>(), (0..keys.len() as u8).collect::<Vec<_>>());
    store.insert(&mut rows, &positions, vec![Column::dense(&values)]).unwrap();
    drop(store);
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    let mut segment = None;
    for name in storage.list().unwrap() {
        match FileName::parse(&name) {
            Some(FileName::Segment(name)) => segment = Some(name),
            Some(FileName::Run(_)) => std::fs::remove_file(dir.join("m_v1").join(name)).unwrap(),
            _ => {}
        }
    }
    publish_run(&storage, Random::new(), &run(segment.unwrap())).unwrap();
    open(dir)
}

fn hashes(keys: &[&str]) -> Vec<KeyHash> {
    keys.iter().map(|key| KeySeed::NONE.hash(key.as_bytes(), 0)).collect()
}

/// What is found of these keys.
fn found(store: &Store, keys: &[&str]) -> Vec<Option<u8>> {
    let rows = store.lookup(Keys::text(keys, 0).unwrap()).unwrap();
    let missing: Vec<usize> = rows.all_missing_positions().collect();
    (0..keys.len()).map(|i| (!missing.contains(&i)).then(|| rows.bytes(0, i)[0])).collect()
}

#[test]
fn a_run_that_lies_costs_misses_and_no_wrong_row() {
    let dir = tempfile::tempdir().unwrap();
    // The run maps each hash to the row of the next key.
    let keys = ["a", "b", "c"];
    let store = with_run(dir.path(), &keys, |segment| {
        build_run(KeySeed::NONE, &[(segment, hashes(&["b", "c", "a"]))])
    });
    assert_eq!(found(&store, &keys), [None; 3]);
}

#[test]
fn a_run_that_leads_out_of_the_segment_costs_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["a", "b", "c"];
    // Row 3 of three rows.
    let lying = |segment| build_run(KeySeed::NONE, &[(segment, hashes(&["x", "y", "z", "a"]))]);
    let store = with_run(dir.path(), &keys, lying);
    assert_eq!(found(&store, &keys), [None; 3]);
    assert_eq!(store.stats().damaged_segments, 0);
}

#[test]
fn of_many_rows_with_one_hash_the_one_with_the_key_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..40).map(|i| format!("key {i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let one = KeySeed::NONE.hash(b"key 39", 0);
    let crowded = |segment| build_run(KeySeed::NONE, &[(segment, vec![one; 40])]);
    let store = with_run(dir.path(), &keys, crowded);
    assert_eq!(found(&store, &["key 39", "key 38", "key 39"]), [Some(39), None, Some(39)]);
}

#[test]
fn a_row_is_found_behind_one_of_a_segment_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["a", "b", "c"];
    let gone = || SegmentName { random: Random::new(), tail: 1 };
    let behind = |segment| {
        build_run(
            KeySeed::NONE,
            &[(gone(), hashes(&keys)), (gone(), hashes(&keys)), (segment, hashes(&keys))],
        )
    };
    assert_eq!(found(&with_run(dir.path(), &keys, behind), &keys), [Some(0), Some(1), Some(2)]);
}

#[test]
fn rows_behind_full_lines_are_found_and_strangers_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let keys: Vec<String> = (0..3000).map(|i| format!("key {i}")).collect();
    let mut rows = store.lookup(Keys::text(&keys, 0).unwrap()).unwrap();
    let positions: Vec<usize> = (0..keys.len()).collect();
    store.insert(&mut rows, &positions, vec![Column::dense(&vec![7; keys.len()])]).unwrap();
    store.flush().unwrap();
    assert_eq!(store.lookup(Keys::text(&keys, 0).unwrap()).unwrap().missing(), 0);
    let unrecognised = keys.iter().map(|key| format!("{key}, no"));
    assert_eq!(store.lookup(Keys::text(unrecognised, 0).unwrap()).unwrap().missing(), keys.len());
    let some = (0..3000).map(|i| if i % 3 == 0 { format!("no {i}") } else { format!("key {i}") });
    let rows = store.lookup(Keys::text(some, 0).unwrap()).unwrap();
    assert!(rows.all_missing_positions().eq((0..3000).step_by(3)));
}

/// A row of each kind that the short way has to leave to the long one, and of those that it takes: in segments of one view and
/// of two, of rows that some tombstone might kill and of others, with all leaves wanted and with some.
#[test]
fn rows_are_the_same_whichever_way_leads_to_them() {
    const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    const WIDE: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[300] };
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "number", column: NUMBER },
        Field { name: "perhaps", column: ColumnType::Optional(&NUMBER) },
        Field { name: "text", column: ColumnType::Text },
        Field { name: "wide", column: WIDE },
    ]);
    let dir = tempfile::tempdir().unwrap();
    let spec = || Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let open = || {
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        Store::with_storage(Arc::new(storage), spec(), &Options::default()).unwrap()
    };
    // Keys that end in the first eight bytes, in the next eight, and far behind them.
    let key = |number: usize| format!("{number}{}", &"abcdefghijklmnopqrstuvwxyz"[..number % 27]);
    let add = |store: &Store, numbers: std::ops::Range<usize>, view| {
        let mut rows = store.lookup(Keys::text(numbers.clone().map(key), view).unwrap()).unwrap();
        let bytes: Vec<u8> = numbers.clone().map(|number| (number + view as usize) as u8).collect();
        let columns = vec![
            Column::dense(&bytes),
            Column::dense(&bytes).optional(bytes.iter().map(|byte| !byte.is_multiple_of(3))),
            Column::text(bytes.iter().map(u8::to_string)),
            Column::dense(&bytes.iter().flat_map(|&byte| [byte; 300]).collect::<Vec<_>>()),
        ];
        store.insert(&mut rows, &(0..numbers.len()).collect::<Vec<_>>(), columns).unwrap();
    };
    let store = open();
    add(&store, 0..70, 0);
    store.flush().unwrap();
    add(&store, 70..150, 0);
    add(&store, 70..150, 1);
    store.flush().unwrap();
    store.invalidate(&Keys::text([key(5), key(100)], 0).unwrap()).unwrap();
    add(&store, 150..200, 0);
    store.flush().unwrap();
    let check = |store: &Store, wanted: &[usize], view: u32, missing: &[usize]| {
        let asked: Vec<usize> = (0..250).map(|i| i * 77 % 250).collect();
        let keys = Keys::text(asked.iter().map(|&number| key(number)), view).unwrap();
        let rows = store
            .lookup_with(keys, LookupOptions { leaves: Some(&wanted.into()), ..LookupOptions::default() })
            .unwrap();
        let mut lacking: Vec<usize> = rows.all_missing_positions().map(|position| asked[position]).collect();
        lacking.sort_unstable();
        assert_eq!(lacking, missing, "{wanted:?} of view {view}");
        for position in (0..asked.len()).filter(|&position| !rows.is_missing(position)) {
            let byte = (asked[position] + view as usize) as u8;
            for &leaf in wanted {
                let expected = match leaf {
                    2 => byte.to_string().into_bytes(),
                    3 => vec![byte; 300],
                    _ => vec![byte],
                };
                assert_eq!(rows.bytes(leaf, position), expected);
                assert_eq!(rows.is_present(leaf, position), leaf != 1 || !byte.is_multiple_of(3));
            }
        }
    };
    let lacking: Vec<usize> = [5, 100].into_iter().chain(200..250).collect();
    let lacking_of_1: Vec<usize> = (0..70).chain([100]).chain(150..250).collect();
    for store in [store, open()] {
        // At first no block is verified, then some, then all that are read.
        for _ in 0..3 {
            for wanted in [&[][..], &[0], &[3], &[0, 3], &[1], &[2], &[3, 2, 1, 0]] {
                check(&store, wanted, 0, &lacking);
                check(&store, wanted, 1, &lacking_of_1);
            }
        }
    }
}

#[test]
fn a_damaged_block_is_noticed_however_much_around_it_was_verified() {
    const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[1000] };
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        Store::with_storage(Arc::new(storage), spec, &Options::default()).unwrap()
    };
    let ids = |range: std::ops::Range<i64>| Keys::ints(range, 0);
    let store = open();
    let mut rows = store.lookup(ids(0..500)).unwrap();
    let values: Vec<u8> = (0..500_000).map(|i| (i / 1000) as u8).collect();
    store.insert(&mut rows, &(0..500).collect::<Vec<_>>(), vec![Column::dense(&values)]).unwrap();
    store.flush().unwrap();
    drop(store);
    let segment = std::fs::read_dir(dir.path().join("m_v1")).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.into_iter().find(|path| path.extension().is_some_and(|e| e == "arrow")).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    // The last row ends before the footer.
    let at = bytes.windows(1000).rposition(|row| row == [(499 % 256) as u8; 1000]).unwrap();
    bytes[at + 999] ^= 1;
    std::fs::remove_file(&segment).unwrap();
    std::fs::write(&segment, bytes).unwrap();
    let store = open();
    for _ in 0..2 {
        assert_eq!(store.lookup(ids(0..300)).unwrap().missing(), 0);
        assert_eq!(store.lookup(ids(0..300).select(&[7; 40])).unwrap().missing(), 0);
    }
    assert_eq!(store.stats().damaged_segments, 0);
    assert_eq!(store.lookup(ids(499..500)).unwrap().missing(), 1);
    assert_eq!((store.lookup(ids(0..300)).unwrap().missing(), store.stats().damaged_segments), (300, 1));
}

#[test]
fn a_run_with_a_wrong_number_of_entries_does_not_keep_others_from_being_merged() {
    let dir = tempfile::tempdir().unwrap();
    // This store is dropped last: closing it merges the runs.
    let first = crate::testing::process(dir.path());
    for key in ["a", "b", "c", "d"] {
        crate::testing::compute(&first, &[key], 1);
        crate::testing::seal_all(&first);
    }
    let runs = crate::testing::names(dir.path(), "run-");
    let path = dir.path().join("m_v1").join(&runs[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    bytes[24] += 1;
    let sum = crate::sys::checksum::checksum(&bytes[..header - 8]);
    bytes[header - 8..header].copy_from_slice(&sum.to_le_bytes());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let store = crate::testing::process(dir.path());
    crate::upkeep::tasks::merge_runs(&store.core, true);
    assert!(!path.exists(), "it is made again");
    crate::upkeep::tasks::merge_runs(&store.core, true);
    assert_eq!(crate::testing::names(dir.path(), "run-").len(), 1);
    assert_eq!(crate::testing::values(&store, &["a", "b", "c", "d"]), [1, 1, 1, 1]);
}
