//! Changes that are damaged for good: they are no other folder, cost few reads, and are repaired under processes that use them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use super::folder::{CHANGE_1, CHANGE_2, opened};
use crate::error::ErrorKind;
use crate::storage::{LocalStorage, System};
use crate::testing::{
    Faulty, column, compute, damage_and_repair, forget_announcement, keys, kill_z, module, process, spec,
    values, with_operations,
};
use crate::{Options, ReadMode, Store};

#[test]
fn a_known_change_that_is_damaged_and_repaired_later_is_no_other_folder() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(dir.path());
    let path = module(dir.path()).join(CHANGE_1);
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"damaged").unwrap();
    compute(&store, &["w"], 5);
    let error = store.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().contains(CHANGE_1) && format!("{error:#}").contains("tcx verify --repair"),
        "{error}"
    );
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    crate::repair(&module(dir.path()), &found, &mut |_, _| {}).unwrap();
    store.flush().unwrap();
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "w"]), [-1, -1, 5]);
    }
}

#[test]
fn a_value_that_was_put_and_dies_by_the_repair_of_an_own_change_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (store, losses) = (opened(dir.path()), Arc::new(crate::Losses::new()));
    let mut rows = store.lookup_to_put(keys(&["w"]), None).unwrap();
    store.insert_for(&losses, &mut rows, &[0], column(&[5]), None).unwrap();
    store.invalidate(&keys(&["x"])).unwrap();
    let path = module(dir.path()).join(CHANGE_2);
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"damaged").unwrap();
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    crate::repair(&module(dir.path()), &found, &mut |_, _| {}).unwrap();
    assert_eq!(store.flush_for(&losses).unwrap_err().kind(), ErrorKind::Superseded);
    assert_eq!(values(&store, &["w"]), [-1]);
    store.flush_for(&losses).unwrap();
}

/// The repair was killed before it had announced itself.
#[test]
fn a_value_that_was_put_and_dies_while_an_own_change_is_repaired_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (store, losses) = (opened(dir.path()), Arc::new(crate::Losses::new()));
    let mut rows = store.lookup_to_put(keys(&["w"]), None).unwrap();
    store.insert_for(&losses, &mut rows, &[0], column(&[5]), None).unwrap();
    store.invalidate(&keys(&["x"])).unwrap();
    kill_z(&store);
    damage_and_repair(dir.path(), CHANGE_2);
    forget_announcement(dir.path());
    assert_eq!(store.flush_for(&losses).unwrap_err().kind(), ErrorKind::Superseded);
    assert_eq!(values(&store, &["w"]), [-1]);
}

#[test]
fn a_large_damaged_change_is_not_read_at_every_listing_and_its_repair_is_noticed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    drop(opened(dir.path()));
    let path = module(dir.path()).join(CHANGE_1);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let steps = Faulty::with(move |_, step, path| {
        counted.fetch_add(usize::from(step == "open" && path.ends_with(CHANGE_1)), SeqCst);
        None
    });
    let store = with_operations(dir.path(), steps);
    for _ in 0..100 {
        assert_eq!(values(&store, &["x", "y"]), [-1, -1]);
    }
    // Pauses double, so there are few reads even on a machine that takes minutes for this.
    let reads = reads.load(SeqCst);
    assert!(reads < 12, "{reads} reads");
    compute(&store, &["w"], 5);
    store.flush().unwrap();
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    crate::repair(&module(dir.path()), &found, &mut |_, _| {}).unwrap();
    assert_eq!(values(&store, &["x", "y", "w"]), [-1, -1, 5]);
    assert!(store.core.live().changes.are_settled());
}

#[test]
fn a_change_of_terabytes_of_holes_is_damaged_before_it_is_read() {
    // As large as its header says, and larger.
    for says_so in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        drop(opened(dir.path()));
        let path = module(dir.path()).join(CHANGE_2);
        let mut header = fs::read(module(dir.path()).join(CHANGE_1)).unwrap();
        header[16] = 2;
        let len = 1_u64 << 42;
        if says_so {
            header[40..48].copy_from_slice(&(len - 56).to_le_bytes());
        }
        fs::write(&path, header).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        for read_mode in [ReadMode::Map, ReadMode::Pread] {
            let options = Options { read_mode, refresh_every: Duration::ZERO, ..Options::default() };
            let storage = LocalStorage::new(module(dir.path()), System).reading(read_mode);
            let store = Store::with_storage(Arc::new(storage), spec(), &options).unwrap();
            let key = if read_mode == ReadMode::Map { "v" } else { "w" };
            compute(&store, &[key], 5);
            store.flush().unwrap();
            assert_eq!(values(&store, &["x", "y", key]), [-1, -1, 5]);
        }
        let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
        assert_eq!(found.iter().map(|damage| &*damage.file).collect::<Vec<_>>(), [CHANGE_2]);
    }
}
