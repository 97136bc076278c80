//! Rows that make way for recomputed ones are there until the recomputed ones can take their place.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

use crate::RecomputeSession;
use crate::segment::MOST_ROWS;
use crate::testing::{Fault, Faulty};
use crate::testing::{
    change, column, compute, keys, module, names, process, replace, rewrite, seal_all, values,
    with_operations,
};
use crate::write::generation::{publish, write};
use crate::write::seal_queue::SealQueue;

/// A folder with a durable row, whose value is 1.
fn with_a_row() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    dir
}

/// Steps that need room on the disk.
fn needs_room(step: &str) -> bool {
    matches!(step, "create_file" | "write")
}

#[test]
fn a_row_is_replaced_though_the_disk_is_full_once_its_tombstone_is_written() {
    let dir = with_a_row();
    let folder = dir.path().to_owned();
    let steps = Faulty::with(move |_, step, _| {
        let is_full = needs_room(step) && names(&folder, "change-").len() > 1;
        is_full.then_some(Fault::Refused(ErrorKind::StorageFull))
    });
    let store = with_operations(dir.path(), steps);
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], 2), 1);
    store.flush().unwrap();
    drop(store);
    assert_eq!(values(&process(dir.path()), &["x"]), [2]);
}

#[test]
fn a_disk_that_is_full_loses_no_row_that_was_to_be_replaced() {
    let dir = with_a_row();
    let steps = Faulty::with(|_, step, _| needs_room(step).then_some(Fault::Refused(ErrorKind::StorageFull)));
    let store = with_operations(dir.path(), steps);
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], 2), 1);
    store.flush().unwrap_err();
    assert_eq!(values(&store, &["x"]), [2], "it waits in the buffer");
    drop(store);
    assert_eq!(values(&process(dir.path()), &["x"]), [1]);
}

/// Replaces the row in a process that is dead from this step of the replacement on; returns that step, and what is left.
fn replace_until(dead: usize) -> (Option<String>, i64) {
    let dir = with_a_row();
    let (is_open, taken, died_at) =
        (Arc::<AtomicBool>::default(), AtomicUsize::new(0), Arc::new(Mutex::new(None)));
    let (counts, first) = (is_open.clone(), died_at.clone());
    let steps = Faulty::with(move |_, step, path: &Path| {
        if !counts.load(SeqCst) || taken.fetch_add(1, SeqCst) < dead {
            return None;
        }
        first.lock().unwrap().get_or_insert_with(|| format!("{step} {}", path.display()));
        Some(Fault::Refused(ErrorKind::Other))
    });
    let store = with_operations(dir.path(), steps);
    let mut rows = store.lookup_to_put(keys(&["x"]), Some(&RecomputeSession::new())).unwrap();
    is_open.store(true, SeqCst);
    store.insert(&mut rows, &[0], column(&[2])).unwrap();
    let _ = store.flush();
    drop(store);
    let step = died_at.lock().unwrap().take();
    (step, values(&process(dir.path()), &["x"])[0])
}

#[test]
fn a_process_that_dies_at_any_step_leaves_the_old_row_or_the_new_one() {
    let mut left = Vec::new();
    for dead in 0.. {
        let (step, value) = replace_until(dead);
        left.push(value);
        let Some(step) = step else { break };
        assert_ne!(value, -1, "{step}");
    }
    assert!(left.is_sorted() && left.len() > 10, "{left:?}");
    assert_eq!((left[0], left.last()), (1, Some(&2)));
}

#[test]
fn generations_that_wait_to_replace_rows_are_written_once_each() {
    const GENERATIONS: usize = 6;
    let dir = with_a_row();
    let made = Arc::<AtomicUsize>::default();
    let counted = made.clone();
    let steps = Faulty::with(move |_, step, _| {
        counted.fetch_add(usize::from(step == "create_file"), SeqCst);
        None
    });
    let store = with_operations(dir.path(), steps);
    for value in 0..GENERATIONS {
        assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], value as i64), 1);
        store.core.buffer.freeze();
    }
    made.store(0, SeqCst);
    seal_all(&store);
    // A segment, its index run and a tombstone.
    assert_eq!(made.load(SeqCst), 3 * GENERATIONS);
    assert_eq!(values(&store, &["x"]), [GENERATIONS as i64 - 1]);
}

#[test]
fn no_index_run_is_left_of_segments_that_were_not_named() {
    for fails_at in 0..3 {
        let dir = with_a_row();
        let renamed = AtomicUsize::new(0);
        let steps = Faulty::with(move |_, step, path: &Path| {
            let is_segment = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
            let fails = step == "rename" && is_segment && renamed.fetch_add(1, SeqCst) == fails_at;
            fails.then_some(Fault::Refused(ErrorKind::Other))
        });
        let store = with_operations(dir.path(), steps);
        assert_eq!(replace(&store, &RecomputeSession::new(), &["x", "y", "z"], 2), 3);
        store.core.buffer.freeze();
        let generation = store.core.buffer.oldest_after(None).unwrap();
        MOST_ROWS.set(Some(1));
        let written = write(&store.core, &generation).unwrap();
        publish(&store.core, &generation, written).unwrap_err();
        MOST_ROWS.set(None);
        assert_eq!(names(dir.path(), "seg-").len(), 1, "what nothing will commit is taken back");
        assert_eq!(names(dir.path(), "run-").len(), 1);
        seal_all(&store);
        assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [2; 3]);
    }
}

/// A file system has created the change, says that there is one, and shows its bytes wrongly at first.
#[test]
fn a_replacement_whose_change_cannot_be_recognised_for_a_moment_is_not_taken_back() {
    let dir = with_a_row();
    let written = Arc::<Mutex<Option<(PathBuf, Vec<u8>)>>>::default();
    let (seen, folder) = (written.clone(), module(dir.path()));
    let steps = Faulty::with(move |_, step, path| {
        let mut seen = seen.lock().unwrap();
        if step == "link" && path.ends_with(change(1)) && seen.is_none() {
            let drafts = names(folder.parent().unwrap(), "tmp-").into_iter().map(|name| folder.join(name));
            let drafts = drafts.map(|path| std::fs::read(path).unwrap());
            let bytes = drafts.into_iter().find(|bytes| bytes.starts_with(b"TCXCHG01")).unwrap();
            let mut misread = bytes.clone();
            let last = misread.len() - 1;
            misread[last] ^= 1;
            std::fs::write(path, misread).unwrap();
            *seen = Some((path.to_owned(), bytes));
        }
        None
    });
    let store = with_operations(dir.path(), steps);
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], 2), 1);
    let _ = SealQueue::new(store.core.clone()).seal_all();
    let (path, bytes) = written.lock().unwrap().take().unwrap();
    rewrite(&path, &bytes);
    store.flush().unwrap();
    for own in [&store, &process(dir.path())] {
        assert_eq!(values(own, &["x"]), [2]);
    }
}
