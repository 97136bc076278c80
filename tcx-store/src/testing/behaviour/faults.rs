//! Every step of the file system fails once, in every way: nothing acknowledged is lost, nothing wrong is
//! served, and writing goes on once it works again.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::storage::{FileOperations, LocalStorage};
use crate::testing::{Fault, Faulty};
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Lookup, Options, Spec, Store};

const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };

fn spec() -> Spec {
    Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap()
}

fn options() -> Options {
    Options { flush_interval: Duration::from_hours(1), refresh_every: Duration::ZERO, ..Options::default() }
}

/// The row of a key is its square.
fn compute(store: &Store, keys: Range<i64>) -> usize {
    let mut rows = store.lookup(Keys::ints(keys.clone(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let squares =
        missing.iter().map(|&position| keys.start + position as i64).flat_map(|k| (k * k).to_le_bytes());
    store.insert(&mut rows, &missing, vec![Column::dense(&squares.collect::<Vec<_>>())]).unwrap();
    check(&rows, keys);
    missing.len()
}

fn check(rows: &Lookup, keys: Range<i64>) {
    for (position, key) in keys.enumerate() {
        assert_eq!(rows.bytes(0, position), (key * key).to_le_bytes());
    }
}

/// Two rounds of rows with faults, then a third without; `true` as long as a fault happened.
fn survives(fault: Fault, fail: Range<usize>) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let steps = Faulty::new(fault, fail);
    let storage = LocalStorage::new(dir.path().join("cache/m_v1"), steps.clone());
    let Ok(store) = Store::with_storage(Arc::new(storage), spec(), &options()) else {
        return steps.has_failed();
    };
    let mut acknowledged = Vec::new();
    for keys in [0..10, 5..20] {
        compute(&store, keys.clone());
        if store.flush().is_ok() {
            acknowledged.push(keys);
        }
    }
    for keys in acknowledged {
        assert_eq!(missing(dir.path(), keys), 0, "what a flush has acknowledged is there");
    }
    while store.flush().is_err() {}
    compute(&store, 0..30);
    while store.flush().is_err() {}
    drop(store);
    assert_eq!(missing(dir.path(), 0..30), 0, "once writing works, everything is written");
    steps.has_failed()
}

/// How many rows another process would have to compute.
fn missing(dir: &Path, keys: Range<i64>) -> usize {
    let store = other_process(dir);
    assert_eq!(store.stats().damaged_segments, 0);
    let rows = store.lookup(Keys::ints(keys.clone(), 0)).unwrap();
    if rows.missing() == 0 {
        check(&rows, keys);
    }
    rows.missing()
}

/// A store of its own on the same folder, as another process has it.
fn other_process(dir: &Path) -> Store {
    with_operations(dir, crate::storage::System, &options())
}

fn with_operations(dir: &Path, steps: impl FileOperations + Clone, options: &Options) -> Store {
    let storage = LocalStorage::new(dir.join("cache/m_v1"), steps);
    Store::with_storage(Arc::new(storage), spec(), options).unwrap()
}

fn survives_everywhere(fault: Fault, length: usize) {
    let mut at = 0;
    while survives(fault, at..at + length) {
        at += 1;
    }
    assert!(at > 30, "{fault:?}: the faults reached {at} steps only");
}

#[test]
fn a_refused_step_loses_nothing() {
    survives_everywhere(Fault::Refused(ErrorKind::StorageFull), 1);
    survives_everywhere(Fault::Refused(ErrorKind::PermissionDenied), 1);
}

#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing() {
    survives_everywhere(Fault::Refused(ErrorKind::StorageFull), 25);
}

#[test]
fn a_lost_reply_loses_nothing() {
    survives_everywhere(Fault::LostReply, 1);
}

#[test]
fn a_vanished_file_loses_nothing() {
    survives_everywhere(Fault::Refused(ErrorKind::NotFound), 1);
}

#[test]
fn a_short_write_is_completed() {
    survives_everywhere(Fault::ShortWrite, 3);
}

#[test]
fn while_writing_is_off_rows_are_served_but_not_queued() {
    let dir = tempfile::tempdir().unwrap();
    let store = other_process(dir.path());
    std::fs::write(dir.path().join("cache"), "a file where the directory should be").unwrap();
    assert_eq!(compute(&store, 0..10), 10);
    assert!(store.flush().is_err());
    assert!(store.write_failure().is_some());
    assert_eq!(compute(&store, 0..10), 0, "rows of before stay readable");
    assert_eq!(compute(&store, 10..15), 5);
    assert_eq!(compute(&store, 10..15), 5, "not queued, but not an error either");
    assert_eq!(store.stats().rows_dropped, 10);
    std::fs::remove_file(dir.path().join("cache")).unwrap();
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("10 computed rows were not kept"), "{error}");
    store.flush().unwrap();
    assert!(store.write_failure().is_none(), "writing is on again");
    assert_eq!(missing(dir.path(), 0..10), 0);
}

#[test]
fn rows_that_were_dropped_unnoticed_are_told_by_the_next_flush() {
    let dir = tempfile::tempdir().unwrap();
    let off = Arc::new(AtomicBool::new(true));
    let broken = off.clone();
    let rule = move |_, step: &str, _: &Path| (step == "sync" && broken.load(SeqCst)).then_some(REFUSED);
    let options = Options { flush_interval: Duration::from_millis(1), ..options() };
    let store = with_operations(dir.path(), Faulty::with(rule), &options);
    compute(&store, 0..3);
    while store.write_failure().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    compute(&store, 3..10);
    off.store(false, SeqCst);
    while store.write_failure().is_some() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("7 computed rows were not kept"), "{error}");
    store.flush().unwrap();
}

const REFUSED: Fault = Fault::Refused(ErrorKind::Other);

#[test]
fn the_name_of_the_folder_is_synced_before_anything_in_it_is_acknowledged() {
    for made_by_another in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        if made_by_another {
            std::fs::create_dir_all(cache.join("m_v1")).unwrap();
        }
        // The first sync of the directory that holds the folder's name fails.
        let (name, first) = (cache.clone(), AtomicBool::new(true));
        let rule = move |_, step: &str, path: &Path| {
            (step == "sync_dir" && path == name && first.swap(false, SeqCst)).then_some(REFUSED)
        };
        let steps = Faulty::with(rule);
        let store = with_operations(dir.path(), steps.clone(), &options());
        compute(&store, 0..3);
        while store.flush().is_err() {}
        assert!(steps.has_failed());
        assert!(steps.has_happened("sync_dir", &cache), "made by another: {made_by_another}");
        assert!(steps.has_happened("sync_dir", dir.path()), "made by another: {made_by_another}");
    }
}

#[test]
fn failed_seals_leave_no_runs_behind() {
    let dir = tempfile::tempdir().unwrap();
    let off = Arc::new(AtomicBool::new(true));
    let broken = off.clone();
    let rule = move |_, step: &str, _: &Path| (step == "sync" && broken.load(SeqCst)).then_some(REFUSED);
    let store = with_operations(dir.path(), Faulty::with(rule), &options());
    compute(&store, 0..30);
    for _ in 0..10 {
        store.flush().unwrap_err();
    }
    off.store(false, SeqCst);
    store.flush().unwrap();
    let names = std::fs::read_dir(dir.path().join("cache/m_v1")).unwrap();
    let mut kinds: Vec<_> =
        names.map(|name| name.unwrap().file_name().to_string_lossy()[..4].to_owned()).collect();
    kinds.sort();
    assert_eq!(kinds, ["chan", "run-", "seg-"]);
}

#[test]
fn what_a_failed_seal_has_learned_of_other_processes_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let fails = broken.clone();
    let rule =
        move |_, step: &str, _: &Path| (step == "create_file" && fails.load(SeqCst)).then_some(REFUSED);
    let store = with_operations(dir.path(), Faulty::with(rule), &options());
    compute(&store, 0..3);
    store.flush().unwrap();
    let other = other_process(dir.path());
    compute(&store, 3..4);
    compute(&other, 10..20);
    other.flush().unwrap();
    broken.store(true, SeqCst);
    store.flush().unwrap_err();
    assert_eq!(store.lookup(Keys::ints(10..20, 0)).unwrap().missing(), 0);
    broken.store(false, SeqCst);
    store.flush().unwrap();
}

#[test]
fn a_link_where_the_cache_should_be_is_an_error_and_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, elsewhere) = (dir.path().join("cache"), dir.path().join("elsewhere"));
    std::os::unix::fs::symlink(dir.path().join("not mounted"), &cache).unwrap();
    let store = Store::open(&cache, spec(), &options()).unwrap();
    compute(&store, 0..3);
    store.flush().unwrap_err();
    drop(store);
    std::fs::remove_file(&cache).unwrap();
    std::fs::create_dir(&cache).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, cache.join("m_v1")).unwrap();
    let error = format!("{:#}", Store::open(&cache, spec(), &options()).unwrap_err());
    assert!(error.contains("is a symbolic link"), "{error}");
}

#[test]
fn a_refused_store_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let first = Store::open(&cache, spec(), &options()).unwrap();
    compute(&first, 0..3);
    first.flush().unwrap();
    std::fs::remove_dir_all(cache.join("m_v1")).unwrap();
    let other = other_process(dir.path());
    compute(&other, 0..1);
    other.flush().unwrap();
    let refused = [first.refresh(), first.lookup(Keys::ints(3..6, 0)).map(drop), first.flush()];
    for error in refused.map(|refused| format!("{:#}", refused.unwrap_err())) {
        assert!(
            error.contains("removed and created again by another process: open the module again"),
            "{error}"
        );
    }
    let again = Store::open(&cache, spec(), &options()).unwrap();
    assert_eq!(compute(&again, 0..2), 1);
}

#[test]
fn odd_settings_mean_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let never = Options { flush_interval: Duration::MAX, ..options() };
    let store = with_operations(dir.path(), crate::storage::System, &never);
    compute(&store, 0..3);
    store.flush().unwrap();
    drop(store);
    let at_once = Options { flush_bytes: 0, write_buffer_bytes: 0, ..options() };
    let store = with_operations(dir.path(), crate::storage::System, &at_once);
    compute(&store, 0..6);
    while store.stats().rows_sealed < 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn readers_let_go_of_replaced_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = (other_process(dir.path()), other_process(dir.path()));
    for start in 0..100 {
        compute(&writer, start * 10..start * 10 + 10);
        writer.flush().unwrap();
        reader.refresh().unwrap();
    }
    drop(writer);
    reader.refresh().unwrap();
    assert!(reader.runs() < 20, "{} runs for 100 segments", reader.runs());
    let on_disk = std::fs::read_dir(dir.path().join("cache/m_v1")).unwrap();
    let on_disk = on_disk
        .filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("run-"))
        .count();
    assert!(on_disk < 20, "{on_disk} runs on disk");
    assert_eq!(compute(&reader, 0..1000), 0);
}

#[test]
fn runs_that_cannot_be_opened_cost_misses_of_nothing_and_end_no_flush() {
    let dir = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let fails = broken.clone();
    let rule = move |_, step: &str, path: &Path| {
        let run = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"));
        (step == "open" && run && fails.load(SeqCst)).then_some(REFUSED)
    };
    let store = with_operations(dir.path(), Faulty::with(rule), &options());
    for start in 0..3 {
        compute(&store, start * 10..start * 10 + 10);
        store.flush().unwrap();
    }
    broken.store(true, SeqCst);
    compute(&store, 30..40);
    store.flush().unwrap();
    assert_eq!(compute(&store, 0..40), 0, "they are made again, unnamed");
    drop(store);
    assert_eq!(missing(dir.path(), 0..40), 0);
}

#[test]
fn a_file_system_above_the_cache_that_knows_no_sync_of_directories_is_no_trouble() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("cache/m_v1")).unwrap();
    let above = dir.path().to_owned();
    let rule = move |_, step: &str, path: &Path| {
        (step == "sync_dir" && path == above).then_some(Fault::Refused(ErrorKind::InvalidInput))
    };
    let steps = Faulty::with(rule);
    let store = with_operations(dir.path(), steps.clone(), &options());
    compute(&store, 0..3);
    store.flush().unwrap();
    assert!(steps.has_failed());
}
