//! Rows become durable only as long as their source is what it was.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::testing::spec;
use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, names, process, values, with_operations};
use crate::{Attestation, Losses, RecomputeSession, Result, Store};
use crate::{LookupOptions, Options};

/// A source, and what changes it.
fn source() -> (Arc<Attestation>, Arc<AtomicBool>) {
    let changed = Arc::new(AtomicBool::new(false));
    let watched = changed.clone();
    let ask = move || if watched.load(SeqCst) { Err("weight `w` changed".to_owned()) } else { Ok(()) };
    (Attestation::new(ask), changed)
}

fn insert(store: &Store, key: &str, value: i64, attestation: &Arc<Attestation>) -> Result<()> {
    let mut rows = store.lookup(keys(&[key])).unwrap();
    store.insert_attested(&mut rows, &[0], column(&[value]), attestation)
}

fn durable(dir: &Path, wanted: &[&str]) -> Vec<i64> {
    values(&process(dir), wanted)
}

#[test]
fn rows_of_an_unchanged_source_become_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let (attestation, _) = source();
    insert(&store, "a", 1, &attestation).unwrap();
    store.flush().unwrap();
    assert_eq!(durable(dir.path(), &["a"]), [1]);
}

#[test]
fn rows_of_a_changed_source_are_dropped_and_the_flush_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let (attestation, changed) = source();
    insert(&store, "a", 1, &attestation).unwrap();
    compute(&store, &["b"], 2);
    changed.store(true, SeqCst);
    let error = format!("{:#}", store.flush().unwrap_err());
    assert_eq!(error, "1 computed row was not kept: weight `w` changed");
    assert_eq!(values(&store, &["a", "b"]), [-1, 2], "rows of other sources stay");
    assert_eq!(durable(dir.path(), &["a", "b"]), [-1, 2]);
    assert_eq!(store.stats().rows_dropped, 1);
    store.flush().unwrap();
}

#[test]
fn a_store_whose_last_handle_an_attestation_holds_writes_its_rows_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { flush_interval: Duration::from_millis(20), ..Options::default() };
    let store = Store::open(dir.path(), spec(), &options).unwrap();
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let (held, goes_on) = (store.clone(), Mutex::new(goes_on));
    let attestation = Attestation::new(move || {
        let _ = held.path();
        asked.send(()).unwrap();
        goes_on.lock().unwrap().recv().map_err(|error| error.to_string())
    });
    insert(&store, "a", 1, &attestation).unwrap();
    drop(attestation);
    is_asked.recv().unwrap();
    compute(&store, &["b"], 2);
    let is_open = Arc::downgrade(&store);
    drop(store);
    go_on.send(()).unwrap();
    let start = Instant::now();
    while is_open.strong_count() > 0 || durable(dir.path(), &["a", "b"]) != [1, 2] {
        assert!(start.elapsed() < Duration::from_mins(1), "its threads wait for each other");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_attestation_that_flushes_its_own_store_gets_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), spec(), &Options::default()).unwrap();
    let flushes = Arc::downgrade(&store);
    let attestation = Attestation::new(move || {
        let error = flushes.upgrade().map(|store| store.flush().unwrap_err().to_string());
        Err(error.unwrap_or_default())
    });
    insert(&store, "a", 1, &attestation).unwrap();
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("an attestation asks to flush the store whose rows it attests"), "{error}");
}

#[test]
fn an_attestation_that_adds_rows_to_its_own_store_gets_an_error_whether_or_not_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), spec(), &Options::default()).unwrap();
    let adds = Arc::downgrade(&store);
    let attestation = Attestation::new(move || {
        let added = adds.upgrade().map(|store| {
            let mut lookup = store.lookup(keys(&["b"])).unwrap();
            store.insert(&mut lookup, &[0], column(&[2])).unwrap_err().to_string()
        });
        Err(added.unwrap_or_default())
    });
    insert(&store, "a", 1, &attestation).unwrap();
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("an attestation adds rows to the store whose rows it attests"), "{error}");
}

#[test]
fn once_refused_later_rows_of_the_source_are_neither_taken_nor_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let (attestation, changed) = source();
    changed.store(true, SeqCst);
    insert(&store, "a", 1, &attestation).unwrap();
    store.flush().unwrap_err();
    // A changed source may have computed other rows before it changed back.
    changed.store(false, SeqCst);
    assert_eq!(insert(&store, "b", 1, &attestation).unwrap_err().to_string(), "weight `w` changed");
    assert_eq!(values(&store, &["a", "b"]), [-1, -1]);
    store.flush().unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 0);
}

#[test]
fn rows_computed_again_by_a_changed_source_replace_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a"], 1);
    store.flush().unwrap();
    let (attestation, changed) = source();
    let mut rows = store
        .lookup_with(
            keys(&["a"]),
            LookupOptions { recompute: Some(&RecomputeSession::new()), ..LookupOptions::default() },
        )
        .unwrap();
    store.insert_attested(&mut rows, &[0], column(&[2]), &attestation).unwrap();
    changed.store(true, SeqCst);
    store.flush().unwrap_err();
    assert_eq!(durable(dir.path(), &["a"]), [1]);
}

#[test]
fn a_source_that_panics_when_it_is_asked_keeps_no_other_rows_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let attestation = Attestation::new(|| panic!("the device is lost"));
    insert(&store, "a", 1, &attestation).unwrap();
    compute(&store, &["b"], 2);
    let error = format!("{:#}", store.flush().unwrap_err());
    let said = "1 computed row was not kept: the check that the source of the rows is unchanged panicked: the device is lost";
    assert_eq!(error, said);
    assert_eq!(durable(dir.path(), &["a", "b"]), [-1, 2]);
    compute(&store, &["c"], 3);
    store.flush().unwrap();
    assert_eq!(durable(dir.path(), &["b", "c"]), [2, 3]);
}

#[test]
fn a_row_that_made_way_for_one_of_a_changed_source_is_written_after_all() {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let first = fails.clone();
    let steps = Faulty::with(move |_, step, path| {
        let is_segment = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
        (step == "rename" && is_segment && first.load(SeqCst))
            .then_some(Fault::Refused(ErrorKind::StorageFull))
    });
    let store = with_operations(dir.path(), steps);
    let (attestation, changed) = source();
    let (mine, others) = (Arc::new(Losses::new()), Arc::new(Losses::new()));
    // Two users have looked the key up at the same time.
    let [mut own, mut other] = [(); 2].map(|()| store.lookup(keys(&["a"])).unwrap());
    store.insert_for(&mine, &mut own, &[0], column(&[1]), None).unwrap();
    store.insert_for(&others, &mut other, &[0], column(&[2]), Some(&attestation)).unwrap();
    store.flush_for(&mine).unwrap_err();
    changed.store(true, SeqCst);
    fails.store(false, SeqCst);
    store.flush_for(&mine).unwrap();
    store.flush_for(&others).unwrap_err();
    assert_eq!(values(&store, &["a"]), [1]);
    assert_eq!(durable(dir.path(), &["a"]), [1]);
}
