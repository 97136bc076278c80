//! Rows that are copied into a tensor while they are looked up are those that are copied afterwards.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use tch::Tensor;
use tcx_store::{
    Column, ColumnType, Compression, Field, Identity, KeyType, Keys, LookupOptions, Options, Spec, Store,
};

use super::*;

const SMALL: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[3] };
const WIDE: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[700] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "small", column: SMALL },
    Field { name: "text", column: ColumnType::Text },
    Field { name: "wide", column: WIDE },
    Field { name: "perhaps", column: ColumnType::Optional(&SMALL) },
]);
/// The number of each dense leaf, and the bytes of its rows.
const WIDTHS: [(usize, usize); 3] = [(0, 3), (2, 700), (3, 3)];
/// A byte that no row has.
const UNWRITTEN: u8 = 0xfe;

fn open(dir: &Path, compression: Compression) -> Arc<Store> {
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    Store::open(dir, spec, &Options { compression, ..Options::default() }).unwrap()
}

/// Every seventh row has no value in the last leaf, which is zeros.
fn has_value(id: i64) -> bool {
    id % 7 != 0
}

fn byte(id: i64, leaf: usize) -> u8 {
    if leaf == 3 && !has_value(id) { 0 } else { ((id * 5 + leaf as i64) % 200) as u8 }
}

/// The rows of a leaf, one after the other.
fn rows_of(leaf: usize, width: usize, ids: &[i64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| vec![byte(id, leaf); width]).collect()
}

fn columns(ids: &[i64]) -> Vec<Column> {
    let dense = |number: usize| Column::dense(&rows_of(WIDTHS[number].0, WIDTHS[number].1, ids));
    let texts = ids.iter().map(|id| format!("text {id}"));
    vec![dense(0), Column::text(texts), dense(1), dense(2).optional(ids.iter().map(|&id| has_value(id)))]
}

fn add(store: &Store, ids: &[i64]) {
    let mut rows = store.lookup(Keys::ints(ids.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let ids: Vec<i64> = missing.iter().map(|&position| ids[position]).collect();
    store.insert(&mut rows, &missing, columns(&ids)).unwrap();
}

fn memory(leaves: &[(usize, usize)], rows: usize) -> Vec<NewRows> {
    let new = |&(leaf, width): &(usize, usize)| {
        let mut memory = Tensor::allocate(DType::U8, &[rows, width]).unwrap();
        memory.bytes_mut().fill(MaybeUninit::new(UNWRITTEN));
        NewRows { leaf, memory, was_lent: false }
    };
    leaves.iter().map(new).collect()
}

/// The bytes, all of which [`memory`] has written.
fn bytes(rows: &mut NewRows) -> Vec<u8> {
    // SAFETY: see above.
    rows.memory.bytes_mut().iter().map(|byte| unsafe { byte.assume_init() }).collect()
}

fn tensor(memory: TensorMemory, rows: usize, width: usize) -> Vec<u8> {
    Tensor::from_memory(memory, &[rows, width]).unwrap().with_bytes(<[u8]>::to_vec).unwrap()
}

fn look_up(store: &Store, ids: &[i64], view: u32, tensors: &mut [NewRows]) -> Lookup {
    let wanted: Arc<[usize]> = tensors.iter().map(|tensor| tensor.leaf).collect();
    let keys = Keys::ints(ids.iter().copied(), view);
    NewRows::lend(tensors, |memory| {
        store.lookup_with(
            keys,
            LookupOptions { leaves: Some(&wanted), destinations: memory, ..LookupOptions::default() },
        )
    })
    .unwrap()
}

/// The rows of these ids come into every tensor, whether while they are looked up or, after those that are missing were
/// completed, afterwards; returns how many were there by then.
fn check(store: &Store, ids: &[i64], leaves: &[(usize, usize)]) -> usize {
    let mut lent = memory(leaves, ids.len());
    let mut rows = look_up(store, ids, 0, &mut lent);
    store.lookup_again(&mut rows).unwrap();
    let missing = rows.distinct_missing_positions();
    let computed: Vec<i64> = missing.iter().map(|&position| ids[position]).collect();
    rows.complete(&missing, columns(&computed)).unwrap();
    let mut others = memory(leaves, ids.len());
    NewRows::lend(&mut others, |_| ());
    let mut copied = None;
    for ((mut lent, other), &(leaf, width)) in lent.into_iter().zip(others).zip(leaves) {
        let (found, expected) = (bytes(&mut lent), rows_of(leaf, width, ids));
        let there = found.chunks(width).zip(expected.chunks(width)).filter(|(a, b)| a == b).count();
        assert_eq!(*copied.get_or_insert(there), there, "all leaves of a row are copied, or none");
        assert!(tensor(lent.with_rows(&rows), ids.len(), width) == expected, "leaf {leaf}");
        // What was lent for something else has none of the rows.
        assert!(tensor(other.with_rows(&rows), ids.len(), width) == expected, "leaf {leaf}");
    }
    copied.unwrap_or_default()
}

#[test]
fn rows_come_into_their_tensors_whatever_way_they_are_found() {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), compression);
        let ids: Vec<i64> = (0..400).collect();
        add(&store, &ids[..150]);
        store.flush().unwrap();
        add(&store, &ids[150..300]);
        store.flush().unwrap();
        // These stay in the write buffer, and the rest is missing.
        add(&store, &ids[300..350]);
        let mixed: Vec<i64> = (0..500).map(|i| i * 37 % 400).collect();
        for leaves in [&WIDTHS[..1], &WIDTHS[1..2], &WIDTHS[..2]] {
            // Twice: at first no block is verified.
            check(&store, &mixed, leaves);
            let copied = check(&store, &mixed, leaves);
            let expected = mixed.iter().filter(|id| **id < 300).count();
            assert_eq!(copied, expected, "{compression:?}");
            assert_eq!(check(&store, &[], leaves), 0);
            // Rows that stand in the order of the batch are copied together.
            for first in [0, 100, 290] {
                check(&store, &ids[first..first + 100], leaves);
                check(&store, &[&ids[first..first + 9], &ids[first + 3..first + 60]].concat(), leaves);
            }
        }
        // Rows that may be without a value are not copied before that is looked at, as it is when a row is decompressed.
        let expected = mixed.iter().filter(|id| **id < 300 && compression != Compression::None).count();
        assert_eq!(check(&store, &mixed, &WIDTHS), expected, "{compression:?}");
        let mut none = memory(&WIDTHS[..1], 400);
        assert_eq!(look_up(&store, &ids, 1, &mut none).missing(), 400, "they are of another view");
        assert!(bytes(&mut none[0]).iter().all(|&byte| byte == UNWRITTEN));
    }
}

#[test]
fn rows_that_a_tombstone_has_killed_are_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Compression::None);
    add(&store, &[1, 2, 3]);
    store.flush().unwrap();
    // The first lookup verifies.
    check(&store, &[1, 2, 3], &WIDTHS[..1]);
    assert_eq!(check(&store, &[1, 2, 3], &WIDTHS[..1]), 3);
    store.invalidate(&Keys::ints([2], 0)).unwrap();
    let mut lent = memory(&WIDTHS[..1], 3);
    assert_eq!(look_up(&store, &[1, 2, 3], 0, &mut lent).distinct_missing_positions(), [1]);
    assert_eq!(bytes(&mut lent[0])[3..6], [UNWRITTEN; 3]);
    check(&store, &[3, 2, 1], &WIDTHS[..1]);
}

#[test]
fn what_was_copied_before_damage_was_met_stays_and_nothing_of_the_damage_does() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<i64> = (0..600).collect();
    for half in ids.chunks(300) {
        let store = open(dir.path(), Compression::None);
        add(&store, half);
        store.flush().unwrap();
    }
    // A byte of one row in the wide leaf is no longer what it was.
    let row = [byte(10, 2); 700];
    let files = std::fs::read_dir(dir.path().join("m_v1")).unwrap().map(|file| file.unwrap().path());
    let mut segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "arrow"));
    let segment = segments.next().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(row.len()).position(|window| window == row).unwrap();
    bytes[at + 350] ^= 1;
    std::fs::remove_file(&segment).unwrap();
    std::fs::write(&segment, bytes).unwrap();
    let store = open(dir.path(), Compression::None);
    let shuffled: Vec<i64> = (0..600).map(|i| i * 7 % 600).collect();
    let missing = look_up(&store, &shuffled, 0, &mut memory(&WIDTHS[1..2], 600)).missing();
    assert!((1..600).contains(&missing), "{missing}");
    assert_eq!(store.stats().damaged_segments, 1);
    for _ in 0..2 {
        check(&store, &shuffled, &WIDTHS[..2]);
    }
}
