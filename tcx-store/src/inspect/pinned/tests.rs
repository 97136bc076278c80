//! What is read of pinned rows, in one process and in several.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Pin, PinnedRows};
use crate::inspect::Inspection;
use crate::storage::ReadOnlyStorage;
use crate::testing::{column, compute, keys, names, process, replace, seal_all, values};
use crate::upkeep::compaction::Effort;
use crate::{ErrorKind, RecomputeSession, Result, Store};

fn folder(dir: &Path) -> std::path::PathBuf {
    dir.join("m_v1")
}

fn open(dir: &Path) -> PinnedRows {
    PinnedRows::open(&folder(dir)).unwrap()
}

/// The values of all rows of a segment, by their ids.
fn rows_of(rows: &PinnedRows, segment: usize) -> Result<BTreeMap<String, i64>> {
    let mut read = BTreeMap::new();
    for keys in rows.keys_of(segment)? {
        let keys = keys?;
        let all: Vec<usize> = (0..keys.len()).collect();
        for row in keys.read(&all, &[0])?.into_iter().flatten() {
            let value = i64::from_le_bytes(row.leaf(0).unwrap().try_into().unwrap());
            assert_eq!(read.insert(String::from_utf8(row.key.to_vec()).unwrap(), value), None);
        }
    }
    Ok(read)
}

/// Every row once, each segment as a process of its own reads it that has the pin.
fn all(dir: &Path, pin: &Pin) -> Result<BTreeMap<String, i64>> {
    let mut read = BTreeMap::new();
    for segment in 0..pin.segments.len() {
        for (key, value) in rows_of(&PinnedRows::open_pinned(&folder(dir), pin)?, segment)? {
            assert_eq!(read.insert(key, value), None, "in two segments");
        }
    }
    Ok(read)
}

fn expected<const N: usize>(rows: [(&str, i64); N]) -> BTreeMap<String, i64> {
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Two segments: x and y; y and z, which another process has computed at once.
fn filled(dir: &Path) -> Store {
    let (store, other) = (process(dir), process(dir));
    let mut later = other.lookup(keys(&["y", "z"])).unwrap();
    compute(&store, &["x", "y"], 1);
    seal_all(&store);
    // Segments come in the order of their age, which is known in milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(3));
    other.insert(&mut later, &[0, 1], column(&[2, 2])).unwrap();
    seal_all(&other);
    store
}

#[test]
fn each_row_is_in_one_segment_whichever_processes_read_them() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let pin = open(dir.path()).pin().unwrap();
    assert_eq!(pin.segments.iter().map(|own| &*own.copies).collect::<Vec<_>>(), [&[][..], &[0]]);
    assert_eq!(all(dir.path(), &pin).unwrap(), expected([("x", 1), ("y", 1), ("z", 2)]));
    let here = open(dir.path());
    assert_eq!(rows_of(&here, 1).unwrap(), expected([("z", 2)]));
    assert_eq!(rows_of(&here, 0).unwrap(), expected([("x", 1), ("y", 1)]));
}

#[test]
fn rows_that_come_later_are_not_read_and_those_that_are_joined_still_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let pin = open(dir.path()).pin().unwrap();
    compute(&store, &["later"], 3);
    seal_all(&store);
    store.core.compact(Effort::Thorough).unwrap();
    assert_eq!(all(dir.path(), &pin).unwrap(), expected([("x", 1), ("y", 1), ("z", 2)]));
    assert_eq!(open(dir.path()).pin().unwrap().segments.len(), 1, "they are joined");
}

#[test]
fn a_segment_that_is_gone_is_an_error_that_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let pin = open(dir.path()).pin().unwrap();
    fs::remove_file(folder(dir.path()).join(&pin.segments[1].name)).unwrap();
    let error = all(dir.path(), &pin).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced);
    let error = error.to_string();
    assert!(error.contains(&pin.segments[1].name) && error.ends_with("run the query again"), "{error}");
}

#[test]
fn rows_that_are_invalidated_or_replaced_later_are_an_error_and_not_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    store.invalidate(&keys(&["z"])).unwrap();
    let pin = open(dir.path()).pin().unwrap();
    assert_eq!(all(dir.path(), &pin).unwrap(), expected([("x", 1), ("y", 1)]));
    replace(&store, &RecomputeSession::new(), &["x"], 5);
    seal_all(&store);
    let error = all(dir.path(), &pin).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced);
    assert!(error.to_string().contains("invalidated or replaced"), "{error}");
    assert_eq!(values(&store, &["x"]), [5]);
    let pin = open(dir.path()).pin().unwrap();
    assert_eq!(all(dir.path(), &pin).unwrap(), expected([("x", 5), ("y", 1)]));
    store.invalidate_all().unwrap();
    assert!(all(dir.path(), &pin).unwrap_err().to_string().contains("was invalidated"));
}

/// What is open keeps its moment.
#[test]
fn rows_that_are_open_stay_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let here = open(dir.path());
    store.invalidate_all().unwrap();
    assert_eq!(rows_of(&here, 0).unwrap(), expected([("x", 1), ("y", 1)]));
}

#[test]
fn another_module_in_the_same_place_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(dir.path());
    filled(other.path());
    let error = all(other.path(), &open(dir.path()).pin().unwrap()).unwrap_err().to_string();
    assert!(error.contains("created again"), "{error}");
}

#[test]
fn a_pin_with_wrong_numbers_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let pin = open(dir.path()).pin().unwrap();
    let refused = |change: &dyn Fn(&mut Pin)| {
        let mut pin = pin.clone();
        change(&mut pin);
        PinnedRows::open_pinned(&folder(dir.path()), &pin).unwrap_err().kind()
    };
    assert_eq!(refused(&|pin| pin.change += 1), ErrorKind::Replaced);
    assert_eq!(refused(&|pin| pin.segments[0].rows += 1), ErrorKind::Invalid);
    for copies in [vec![2], vec![1, 0], vec![0, 0]] {
        assert_eq!(refused(&|pin| pin.segments[0].copies = copies.clone()), ErrorKind::Invalid);
    }
}

#[test]
fn files_that_are_read_and_not_mapped_have_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let read = Inspection::of(ReadOnlyStorage::reading(folder(dir.path()))).unwrap();
    let read = PinnedRows::now(read);
    assert_eq!(read.pin().unwrap(), open(dir.path()).pin().unwrap());
    assert_eq!(rows_of(&read, 0).unwrap(), expected([("x", 1), ("y", 1)]));
    assert_eq!(rows_of(&read, 1).unwrap(), expected([("z", 2)]));
}

#[test]
fn rows_that_do_not_verify_are_none_and_the_others_are_read() {
    const VALUE: i64 = 0x0102_0304_0506_0708;
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let ids: Vec<String> = (0..5000).map(|row| row.to_string()).collect();
    compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>(), VALUE);
    seal_all(&store);
    let file = folder(dir.path()).join(&names(dir.path(), "seg-")[0]);
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.windows(8).rposition(|bytes| bytes == VALUE.to_le_bytes()).unwrap();
    bytes[last] = 3;
    fs::write(&file, bytes).unwrap();
    let rows = open(dir.path());
    let (mut read, mut left_out) = (0, 0);
    for keys in rows.keys_of(0).unwrap() {
        let keys = keys.unwrap();
        assert_eq!(keys.damaged(), 0);
        for row in keys.read(&(0..keys.len()).collect::<Vec<_>>(), &[0]).unwrap() {
            match row {
                Some(row) => read += usize::from(row.leaf(0).unwrap() == VALUE.to_le_bytes()),
                None => left_out += 1,
            }
        }
    }
    assert!(left_out > 0 && read + left_out == 5000, "{left_out} rows do not verify");
}
