//! What the tests of several processes share: a module whose rows are single numbers, in a folder `m_v1`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::changes::Doomed;
use crate::storage::name::FileName;
use crate::storage::{FileOperations, LOOK_AGAIN_AFTER, LocalStorage, System};
use crate::testing::{Fault, Faulty};
use crate::write::seal_queue::SealQueue;
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, RecomputeSession, Spec, Store};
use crate::{LookupOptions, Losses};

const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };

pub(crate) fn spec() -> Spec {
    Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap()
}

/// A store of its own on the folder, as another process has it. Rows are sealed only by `flush`.
pub(crate) fn process(dir: &Path) -> Store {
    with_operations(dir, System)
}

/// One that only reads.
pub(crate) fn reader(dir: &Path) -> Store {
    with_options(dir, System, true)
}

pub(crate) fn with_operations(dir: &Path, steps: impl FileOperations + Clone) -> Store {
    with_options(dir, steps, false)
}

fn with_options(dir: &Path, steps: impl FileOperations + Clone, read_only: bool) -> Store {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options = Options { flush_interval, refresh_every, read_only, ..Options::default() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), steps)), spec(), &options).unwrap()
}

pub(crate) fn keys(keys: &[&str]) -> Keys {
    Keys::text(keys, 0).unwrap()
}

/// The store finds one of these rows damaged, and so it does when it looks again.
pub(crate) fn is_damaged_for_good(store: &Store, rows: &[&str]) {
    assert!(values(store, rows).contains(&-1));
    std::thread::sleep(LOOK_AGAIN_AFTER);
    assert!(values(store, rows).contains(&-1));
}

/// The values of the keys; -1 where there is none.
pub(crate) fn values(store: &Store, wanted: &[&str]) -> Vec<i64> {
    values_in_view(store, keys(wanted))
}

pub(crate) fn values_in_view(store: &Store, wanted: Keys) -> Vec<i64> {
    store.refresh().unwrap();
    let rows = store.lookup(wanted).unwrap();
    let value = |position| i64::from_le_bytes(rows.bytes(0, position).try_into().unwrap());
    (0..rows.len()).map(|position| if rows.is_missing(position) { -1 } else { value(position) }).collect()
}

pub(crate) fn column(values: &[i64]) -> Vec<Column> {
    vec![Column::dense(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())]
}

/// Computes the missing rows: each is `value`.
pub(crate) fn compute(store: &Store, wanted: &[&str], value: i64) {
    let mut rows = store.lookup(keys(wanted)).unwrap();
    let missing = rows.distinct_missing_positions();
    store.insert(&mut rows, &missing, column(&vec![value; missing.len()])).unwrap();
}

pub(crate) fn replace(
    store: &Store,
    recompute: &Arc<RecomputeSession>,
    wanted: &[&str],
    value: i64,
) -> usize {
    replace_view(store, recompute, keys(wanted), value)
}

/// Recomputes the rows that the recompute session has not, in the view of the keys; returns how many.
pub(crate) fn replace_view(
    store: &Store,
    recompute: &Arc<RecomputeSession>,
    wanted: Keys,
    value: i64,
) -> usize {
    let mut rows = store
        .lookup_with(wanted, LookupOptions { recompute: Some(recompute), ..LookupOptions::default() })
        .unwrap();
    let missing = rows.distinct_missing_positions();
    store.insert(&mut rows, &missing, column(&vec![value; missing.len()])).unwrap();
    missing.len()
}

/// A folder with x = 1000, which has replaced another; the file of its segment, and its bytes.
pub(crate) fn with_a_replacement(dir: &Path) -> (PathBuf, Vec<u8>) {
    let store = process(dir);
    compute(&store, &["x"], 1);
    seal_all(&store);
    let before = names(dir, "seg-");
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&store);
    let name = names(dir, "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    let path = dir.join("m_v1").join(name);
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

/// Invalidates z, which has no row: another change.
pub(crate) fn kill_z(store: &Store) {
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
}

/// Seals what has been computed, without the writer, which would tidy up afterwards.
pub(crate) fn seal_all(store: &Store) {
    SealQueue::new(store.core.clone()).seal_all().unwrap();
}

/// The files of the module whose names begin so were written two minutes ago: what is damaged of them is no copy that is not complete yet.
pub(crate) fn make_older(dir: &Path, prefix: &str) {
    for name in names(dir, prefix) {
        let file = std::fs::OpenOptions::new().write(true).open(dir.join("m_v1").join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_mins(2)).unwrap();
    }
}

/// Another file takes the place of this one, which may be read-only.
pub(crate) fn rewrite(path: &Path, bytes: &[u8]) {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).unwrap();
}

/// The folder of the module.
pub(crate) fn module(dir: &Path) -> PathBuf {
    dir.join("m_v1")
}

/// The name of the change of this number.
pub(crate) fn change(number: u64) -> String {
    FileName::Change(number).to_string()
}

/// The last byte of this file of the module is wrong: that of a row, if it is a segment, whose footer can be read.
pub(crate) fn damage(dir: &Path, name: &str) {
    let path = module(dir).join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    rewrite(&path, &bytes);
}

/// Damages this file of the module, and repairs the folder.
pub(crate) fn damage_and_repair(dir: &Path, name: &str) {
    damage(dir, name);
    let found = crate::verify(&module(dir), &mut |_, _| {}).unwrap().damage;
    assert_eq!(crate::repair(&module(dir), &found, &mut |_, _| {}).unwrap().len(), 1);
}

/// As if a repair had been killed before it had announced itself: by the last change that it makes.
pub(crate) fn forget_announcement(dir: &Path) {
    let news = names(dir, "change-").into_iter().max().unwrap();
    std::fs::remove_file(module(dir).join(news)).unwrap();
}

/// The files of the folder whose names begin so.
pub(crate) fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(dir.join("m_v1")) else { return Vec::new() };
    let files = files.map(Result::unwrap).filter(|file| file.file_type().unwrap().is_file());
    let names = files.map(|file| file.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Puts a value for a key that has none, and returns the number of stored values.
pub(crate) fn put(store: &Store, key: &str, value: i64) -> crate::Result<usize> {
    let losses = Arc::new(Losses::new());
    let mut rows = store.lookup_to_put(keys(&[key]), None)?;
    if rows.missing() == 0 {
        return Ok(0);
    }
    let kept = store.insert_for(&losses, &mut rows, &[0], column(&[value]), None)?;
    if kept { Ok(1) } else { losses.take().map(|()| 0) }
}

/// A process that cannot read the file of this change as long as the flag is set.
pub(crate) fn without_change(number: u64, dir: &Path, fails: &Arc<AtomicBool>) -> Store {
    let (fails, file) = (fails.clone(), format!("change-{number:020}"));
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| *name == *file);
        (step == "open" && is_change && fails.load(SeqCst)).then_some(Fault::Refused(ErrorKind::Other))
    });
    with_operations(dir, steps)
}

/// As [`process`], with a time to live or none.
pub(crate) fn with_time_to_live(dir: &Path, time_to_live: Option<Duration>) -> Store {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options = Options { flush_interval, refresh_every, time_to_live, ..Options::default() };
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    Store::with_storage(Arc::new(storage), spec(), &options).unwrap()
}
