//! Wide rows that are on the disk are read by several threads, and are what they would be in the map, whatever the disk does.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::storage::LocalStorage;
use crate::testing::{Fault, Faulty, names};
use crate::{
    Column, ColumnType, DType, DYNAMIC_DIM, Destination, Field, Identity, KeyType, Keys, Lookup,
    LookupOptions, Options, Spec, Store,
};

const PATCHES: usize = 5_001;
const TOKEN: usize = 200;
const ROWS: i64 = 60;

/// Rows whose leaves begin and end within checksum blocks; every one has a wide leaf.
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "patches", column: ColumnType::Dense { dtype: DType::F32, shape: &[PATCHES] } },
    Field { name: "label", column: ColumnType::Dense { dtype: DType::U8, shape: &[3] } },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 100] } },
]);

fn bytes(id: i64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as i64 / 7 + 31 * id) as u8).collect()
}

/// The leaves of a row.
fn row(id: i64) -> [Vec<u8>; 3] {
    [PATCHES * 4, 3, id as usize * 37 % 400 * TOKEN].map(|len| bytes(id, len))
}

fn open(dir: &Path, steps: Faulty) -> Store {
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let hour = Duration::from_hours(1);
    let options = Options { flush_interval: hour, refresh_every: hour, ..Options::default() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), steps)), spec, &options).unwrap()
}

fn without_faults() -> Faulty {
    Faulty::with(|_, _, _| None)
}

/// A folder with all rows in two segments.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), without_faults());
    for ids in [0..ROWS / 3, ROWS / 3..ROWS] {
        let mut found = store.lookup(Keys::ints(ids.clone(), 0)).unwrap();
        let leaf = |leaf: usize| ids.clone().flat_map(move |id| row(id)[leaf].clone()).collect::<Vec<_>>();
        let ends = ids.clone().scan(0, |end, id| {
            *end += row(id)[2].len();
            Some(*end)
        });
        let columns = vec![Column::dense(&leaf(0)), Column::dense(&leaf(1)), Column::varying(leaf(2), ends)];
        let positions: Vec<usize> = (0..found.len()).collect();
        store.insert(&mut found, &positions, columns).unwrap();
        store.flush().unwrap();
    }
    dir
}

/// A store of which the wide rows are taken for missing in memory; the number of reads so far; and of those that fail in some way, if
/// `fault` says so for their number.
fn on_disk(
    dir: &Path,
    fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static,
) -> (Store, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let steps = Faulty::with(move |_, step, _| {
        (step == "read_at").then(|| fault(count.fetch_add(1, SeqCst))).flatten()
    });
    let store = open(dir, steps);
    store.core.read_ahead.expect_nothing_in_memory();
    (store, reads)
}

/// In an order of their own, some of them twice.
fn ids() -> Vec<i64> {
    (0..ROWS + 10).map(|id| id * 17 % ROWS).collect()
}

/// Looks rows up with destinations for the dense leaves, and fails if one that is found is wrong. Returns how many are missing.
fn check(store: &Store, ids: &[i64]) -> usize {
    let mut memory = [PATCHES * 4, 3].map(|width| vec![MaybeUninit::new(0xAA); width * ids.len()]);
    let [patches, labels] = &mut memory;
    let mut destinations = [Destination { leaf: 0, bytes: patches }, Destination { leaf: 1, bytes: labels }];
    let options = LookupOptions { destinations: &mut destinations, ..LookupOptions::default() };
    let found = store.lookup_with(Keys::ints(ids.iter().copied(), 0), options).unwrap();
    for (position, &id) in ids.iter().enumerate().filter(|(position, _)| !found.is_missing(*position)) {
        for (leaf, expected) in row(id).iter().enumerate() {
            assert!(found.bytes(leaf, position) == *expected, "leaf {leaf} of row {id}");
        }
    }
    if found.missing() == 0 {
        check_copies(&found, ids, &mut memory);
    }
    found.missing()
}

fn check_copies(found: &Lookup, ids: &[i64], memory: &mut [Vec<MaybeUninit<u8>>; 2]) {
    for (leaf, memory) in memory.iter_mut().enumerate() {
        found.copy_rest(leaf, memory);
        let expected: Vec<u8> = ids.iter().flat_map(|&id| row(id)[leaf].clone()).collect();
        assert!(is(memory, &expected), "the copies of leaf {leaf}");
    }
    let expected: Vec<u8> = ids.iter().flat_map(|&id| row(id)[2].clone()).collect();
    let mut memory = vec![MaybeUninit::new(0xAA); expected.len()];
    found.copy_rows(2, 0..ids.len(), &mut memory);
    assert!(is(&memory, &expected), "the copies of the ragged leaf");
}

fn is(memory: &[MaybeUninit<u8>], expected: &[u8]) -> bool {
    #[expect(unsafe_code, reason = "the store writes memory that was not written before")]
    // SAFETY: the tests write all of the memory before they lend it.
    let written = unsafe { memory.assume_init_ref() };
    written == expected
}

#[test]
fn wide_rows_that_are_not_in_memory_are_read() {
    let dir = folder();
    let (store, reads) = on_disk(dir.path(), |_| None);
    assert_eq!(check(&store, &ids()), 0);
    let read = reads.load(SeqCst);
    assert!(read > ids().len(), "{read} reads of {} rows", ids().len());
    // Keys that no row has, and rows of one leaf.
    assert_eq!(check(&store, &(ROWS - 20..ROWS + 20).collect::<Vec<_>>()), 20);
    let before = reads.load(SeqCst);
    let options = LookupOptions { leaves: Some(&[1].into()), ..LookupOptions::default() };
    assert_eq!(store.lookup_with(Keys::ints(ids(), 0), options).unwrap().missing(), 0);
    assert_eq!(reads.load(SeqCst), before, "the leaf is narrow");
}

#[test]
fn rows_that_are_in_memory_are_not_read() {
    let dir = folder();
    let (store, reads) = on_disk(dir.path(), |_| None);
    assert_eq!(check(&store, &ids()), 0);
    store.core.read_ahead.forget();
    let before = reads.load(SeqCst);
    assert_eq!(check(&store, &ids()), 0);
    assert_eq!(reads.load(SeqCst), before);
}

#[test]
fn reads_that_are_interrupted_or_return_less_go_on() {
    let dir = folder();
    for fault in [Fault::Refused(ErrorKind::Interrupted), Fault::ShortRead] {
        let (store, reads) = on_disk(dir.path(), move |number| (number % 3 > 0).then_some(fault));
        assert_eq!(check(&store, &ids()), 0, "{fault:?}");
        assert!(reads.load(SeqCst) > 2 * ids().len());
        assert_eq!((store.stats().failed_reads, store.stats().damaged_segments), (0, 0));
    }
}

#[test]
fn rows_that_the_disk_cannot_read_are_missing_until_it_can() {
    let dir = folder();
    for fault in [Fault::Refused(ErrorKind::Other), Fault::EndOfFile] {
        let fails = Arc::new(AtomicUsize::new(1));
        let rule = fails.clone();
        let (store, _) = on_disk(dir.path(), move |_| (rule.load(SeqCst) > 0).then_some(fault));
        assert_eq!(check(&store, &ids()), ids().len(), "{fault:?}");
        let stats = store.stats();
        assert!(stats.failed_reads >= ids().len() as u64 && stats.damaged_segments == 0, "{stats:?}");
        fails.store(0, SeqCst);
        assert_eq!(check(&store, &ids()), 0, "{fault:?}");
    }
}

#[test]
fn rows_that_cannot_be_read_are_missing_though_they_were_verified_before() {
    let dir = folder();
    let fails = Arc::new(AtomicUsize::new(0));
    let rule = fails.clone();
    let (store, _) =
        on_disk(dir.path(), move |_| (rule.load(SeqCst) > 0).then_some(Fault::Refused(ErrorKind::Other)));
    assert_eq!(check(&store, &ids()), 0);
    fails.store(1, SeqCst);
    assert_eq!(check(&store, &ids()), ids().len());
}

#[test]
fn rows_that_were_misread_are_found_in_the_map() {
    let dir = folder();
    let (store, _) = on_disk(dir.path(), |_| Some(Fault::Misread));
    assert_eq!((check(&store, &ids()), store.stats().damaged_segments), (0, 0));
}

#[test]
fn damaged_rows_are_missing_and_their_segment_is_counted() {
    let dir = folder();
    let largest = |name: &String| std::fs::metadata(dir.path().join("m_v1").join(name)).unwrap().len();
    let name = names(dir.path(), "seg-").into_iter().max_by_key(largest).unwrap();
    let path = dir.path().join("m_v1").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let (store, _) = on_disk(dir.path(), |_| None);
    let missing = check(&store, &ids());
    assert!(missing > 0 && missing < ids().len(), "{missing} are missing");
    assert_eq!((store.stats().damaged_segments, store.stats().failed_reads), (1, 0));
}

#[test]
fn another_file_under_the_name_of_a_mapped_one_is_not_read() {
    let dir = folder();
    let (store, reads) = on_disk(dir.path(), |_| None);
    for name in names(dir.path(), "seg-") {
        let path = dir.path().join("m_v1").join(name);
        let zeros = vec![0; std::fs::metadata(&path).unwrap().len() as usize];
        let other = path.with_extension("other");
        std::fs::write(&other, zeros).unwrap();
        std::fs::rename(other, path).unwrap();
    }
    assert_eq!((check(&store, &ids()), reads.load(SeqCst)), (0, 0));
}

#[test]
fn files_that_were_removed_are_served_from_the_map() {
    let dir = folder();
    let (store, reads) = on_disk(dir.path(), |_| None);
    for name in names(dir.path(), "seg-") {
        std::fs::remove_file(dir.path().join("m_v1").join(name)).unwrap();
    }
    assert_eq!((check(&store, &ids()), reads.load(SeqCst)), (0, 0));
}

#[test]
fn rows_are_right_however_many_threads_look_them_up() {
    let dir = folder();
    let (store, reads) = on_disk(dir.path(), |number| (number % 5 == 0).then_some(Fault::ShortRead));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..3).for_each(|_| assert_eq!(check(&store, &ids()), 0)));
        }
    });
    assert!(reads.load(SeqCst) > ids().len());
}
