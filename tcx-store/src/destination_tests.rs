//! Rows that are copied while they are looked up are those that are copied afterwards.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use crate::storage::{LocalStorage, System};
use crate::{
    Column, ColumnType, Compression, DType, Destination, Field, Identity, KeyType, Keys, Lookup, Options,
    Spec, Store,
};

const SMALL: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[3] };
const WIDE: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[700] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "small", column: SMALL },
    Field { name: "text", column: ColumnType::Text },
    Field { name: "wide", column: WIDE },
    Field { name: "perhaps", column: ColumnType::Optional(&SMALL) },
]);
/// Bytes of a row of each dense leaf.
const WIDTHS: [(usize, usize); 3] = [(0, 3), (2, 700), (3, 3)];

fn open(dir: &Path, compression: Compression) -> Store {
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    Store::with_storage(Arc::new(storage), spec, &Options { compression, ..Options::default() }).unwrap()
}

/// Every seventh row has no value in the last leaf, and zeros stand there.
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
    let missing = rows.missing_positions();
    let ids: Vec<i64> = missing.iter().map(|&position| ids[position]).collect();
    store.insert(&mut rows, &missing, columns(&ids)).unwrap();
}

fn leaves_of(destinations: &[Destination<'_>]) -> Arc<[usize]> {
    destinations.iter().map(|destination| destination.leaf).collect()
}

/// Looks up with a destination for each of these leaves; what is missing is completed.
fn look_up(store: &Store, ids: &[i64], memory: &mut [(usize, Vec<MaybeUninit<u8>>)]) -> Lookup {
    let mut destinations: Vec<Destination<'_>> =
        memory.iter_mut().map(|(leaf, bytes)| Destination { leaf: *leaf, bytes }).collect();
    let (keys, wanted) = (Keys::ints(ids.iter().copied(), 0), leaves_of(&destinations));
    let mut rows = store.lookup_into(keys, Some(&wanted), &mut destinations).unwrap();
    let missing = rows.missing_positions();
    let computed: Vec<i64> = missing.iter().map(|&position| ids[position]).collect();
    rows.complete(&missing, columns(&computed)).unwrap();
    rows
}

/// Bytes that no row has.
fn unwritten(len: usize) -> Vec<MaybeUninit<u8>> {
    vec![MaybeUninit::new(0xfe); len]
}

#[expect(unsafe_code, reason = "nothing else reads what may be uninitialised")]
fn written(bytes: &[MaybeUninit<u8>]) -> Vec<u8> {
    // SAFETY: `unwritten` has written them all.
    bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect()
}

/// The rows of these ids are copied to every destination, whether while they are looked up or afterwards; tells how many were
/// copied by then.
fn check(store: &Store, ids: &[i64], leaves: &[(usize, usize)]) -> usize {
    let mut memory: Vec<_> =
        leaves.iter().map(|&(leaf, width)| (leaf, unwritten(ids.len() * width))).collect();
    let rows = look_up(store, ids, &mut memory);
    let mut copied = None;
    for ((leaf, bytes), &(_, width)) in memory.iter_mut().zip(leaves) {
        let expected = rows_of(*leaf, width, ids);
        let rows_there =
            written(bytes).chunks(width).zip(expected.chunks(width)).filter(|(a, b)| a == b).count();
        assert_eq!(*copied.get_or_insert(rows_there), rows_there, "all leaves of a row are copied, or none");
        rows.copy_rest(*leaf, bytes);
        assert!(written(bytes) == expected, "leaf {leaf}");
        // Memory that was no destination is written completely.
        let mut other = unwritten(bytes.len());
        rows.copy_rest(*leaf, &mut other);
        assert!(written(&other) == expected, "leaf {leaf}");
    }
    copied.unwrap_or_default()
}

#[test]
fn rows_are_copied_to_their_destinations_whatever_way_they_are_found() {
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
            assert_eq!(copied, if compression == Compression::None { expected } else { 0 });
            assert_eq!(check(&store, &[], leaves), 0);
            // Rows that stand in the order of the batch are copied together.
            for first in [0, 100, 290] {
                check(&store, &ids[first..first + 100], leaves);
                check(&store, &[&ids[first..first + 9], &ids[first + 3..first + 60]].concat(), leaves);
            }
        }
        // Rows that may be without a value are not copied before that is looked at.
        assert_eq!(check(&store, &mixed, &WIDTHS), 0);
    }
}

#[test]
fn rows_that_a_tombstone_has_killed_are_not_served_from_where_they_were_copied() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Compression::None);
    add(&store, &[1, 2, 3]);
    store.flush().unwrap();
    store.invalidate(&Keys::ints([2], 0)).unwrap();
    let mut bytes = unwritten(9);
    let mut destinations = [Destination { leaf: 0, bytes: &mut bytes }];
    let rows = store.lookup_into(Keys::ints([1, 2, 3], 0), None, &mut destinations).unwrap();
    assert_eq!(rows.missing_positions(), [1]);
    assert!(written(&bytes[3..6]) == [0xfe; 3]);
    assert_eq!(check(&store, &[3, 1], &WIDTHS[..1]), 0, "what may be killed goes the long way");
}

#[test]
fn a_destination_that_does_not_fit_is_an_error_that_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Compression::None);
    let refused = |leaf: usize, len: usize, wanted: Option<&Arc<[usize]>>| {
        let mut bytes = unwritten(len);
        let mut destinations = [Destination { leaf, bytes: &mut bytes }];
        store.lookup_into(Keys::ints([1, 2], 0), wanted, &mut destinations).unwrap_err().to_string()
    };
    assert_eq!(refused(4, 6, None), "there is no leaf 4: the store has 4");
    assert_eq!(refused(0, 5, None), "the destination of leaf 0 has 5 bytes, and 2 rows have 6");
    assert_eq!(refused(1, 6, None), "rows of leaf 1 differ in length: they have no destination");
    let wanted = Some(&[2].into());
    assert_eq!(refused(0, 6, wanted), "leaf 0 has a destination and is not looked up");
}
