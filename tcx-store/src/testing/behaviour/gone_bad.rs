//! Files that go bad after a process has verified them: a page that the system reads again, from a disk that has lost a bit. What the process
//! serves until it ends may be wrong, but nothing that it writes or removes makes that last.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Store;
use crate::schema::key::KeySeed;
use crate::testing::{change, compute, keys, module, names, process, seal_all, values};
use crate::upkeep::tasks::{merge_changes, merge_runs};

/// A byte of a file, in its place and with the same file behind it. Dropped, it is as it was.
struct Rotten {
    path: PathBuf,
    at: usize,
    byte: u8,
}

impl Rotten {
    /// Changes this bit of the byte `behind` the first place of these.
    fn new(path: PathBuf, first: &[u8], behind: usize, bit: u8) -> Self {
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(first.len()).position(|own| own == first).unwrap() + behind;
        let rotten = Self { path, at, byte: bytes[at] };
        rotten.write(bytes[at] ^ bit);
        rotten
    }

    fn write(&self, byte: u8) {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o644)).unwrap();
        let file = fs::File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(&[byte], self.at as u64).unwrap();
    }
}

impl Drop for Rotten {
    fn drop(&mut self) {
        if self.path.exists() {
            self.write(self.byte);
        }
    }
}

/// Where the entry of a key in a change has what: its hash, its number and the place of its name.
const HASH: usize = 0;
const NUMBER: usize = 8;
const PLACE: usize = 16;

fn key_hash(key: &str) -> u64 {
    KeySeed::NONE.hash(key.as_bytes(), 0)
}

fn rotten_entry(dir: &Path, change: &str, key: &str, behind: usize, bit: u8) -> Rotten {
    Rotten::new(module(dir).join(change), &key_hash(key).to_le_bytes(), behind, bit)
}

fn row(store: &Store, key: &str, value: i64) {
    compute(store, &[key], value);
    seal_all(store);
}

#[test]
fn a_segment_is_not_joined() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let value = 0x1122_3344_5566_7788;
    row(&store, "a", value);
    let path = module(dir.path()).join(&names(dir.path(), "seg-")[0]);
    row(&store, "b", 2);
    assert_eq!(values(&store, &["a", "b"]), [value, 2], "it is verified");
    let _rotten = Rotten::new(path, &value.to_le_bytes(), 0, 1);
    store.compact().unwrap();
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["a", "b"]), [-1, 2]);
    }
}

#[test]
fn a_change_is_not_merged() {
    // The place of a name leads out of the file, or the number is a smaller one.
    for (behind, bit) in [(PLACE + 5, 1), (NUMBER, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        let ids: Vec<String> = (0..50).map(|id| format!("id {id}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        store.invalidate(&keys(&["before"])).unwrap();
        store.invalidate(&keys(&["before"])).unwrap();
        compute(&store, &ids, 1);
        seal_all(&store);
        store.invalidate(&keys(&ids)).unwrap();
        let newest = names(dir.path(), "change-").into_iter().max().unwrap();
        for _ in 0..20 {
            store.invalidate(&keys(&["other"])).unwrap();
        }
        assert_eq!(values(&store, &ids), [-1; 50]);
        let first = ids.iter().min_by_key(|id| key_hash(id)).unwrap();
        let rotten = rotten_entry(dir.path(), &newest, first, behind, bit);
        merge_changes(&store.core);
        drop(rotten);
        assert_eq!(values(&process(dir.path()), &ids), [-1; 50], "{behind}");
    }
}

#[test]
fn a_change_brings_no_row_into_a_joined_segment() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    row(&store, "x", 1);
    store.invalidate(&keys(&["x"])).unwrap();
    row(&store, "y", 2);
    assert_eq!(values(&store, &["x", "y"]), [-1, 2]);
    let rotten = rotten_entry(dir.path(), &change(1), "x", HASH, 1);
    let error = format!("{:#}", store.compact().unwrap_err());
    assert!(error.contains("not as it was written any more"), "{error}");
    drop(rotten);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, 2]);
    store.compact().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, 2]);
}

#[test]
fn a_change_removes_no_segment_with_rows_that_are_alive() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    row(&store, "x", 1);
    store.invalidate(&keys(&["x"])).unwrap();
    row(&store, "x", 2);
    store.invalidate(&keys(&["other"])).unwrap();
    assert_eq!(values(&store, &["x"]), [2]);
    let rotten = rotten_entry(dir.path(), &change(1), "x", NUMBER + 5, 1);
    let error = format!("{:#}", store.collect(Duration::ZERO).unwrap_err());
    assert!(error.contains("not as it was written any more"), "{error}");
    drop(rotten);
    assert_eq!(values(&process(dir.path()), &["x"]), [2]);
}

#[test]
fn an_index_run_is_not_merged_but_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        row(&store, id, 1);
    }
    assert_eq!(values(&store, &ids), [1; 4], "they are verified");
    let run = module(dir.path()).join(&names(dir.path(), "run-")[0]);
    // The mark of the only entry, with four empty slots behind it.
    let empty = [0xff; 48];
    let at = fs::read(&run).unwrap().windows(48).position(|own| own == empty).unwrap();
    let entry = fs::read(&run).unwrap()[at - 12..at].to_vec();
    let rotten = Rotten::new(run, &entry, 7, 0x80);
    merge_runs(&store.core, true);
    drop(rotten);
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &ids), [1; 4]);
    }
}

#[test]
fn rows_of_the_millisecond_of_an_invalidation_by_age_are_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let alive = (0..100).filter(|id| {
        let id = format!("id {id}");
        compute(&store, &[&id], 1);
        store.invalidate_older_than(SystemTime::now()).unwrap();
        values(&store, &[&id]) != [-1]
    });
    assert_eq!(alive.count(), 0);
}
