//! How often a store lists its folder, and asks for changes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use crate::storage::LocalStorage;
use crate::testing::{Faulty, compute, keys, process, spec};
use crate::{Options, Store};

/// The first change after the identity.
const FIRST: &str = "change-00000000000000000001";

/// A store that looks for new files only if rows are missing.
fn seldom_listing(dir: &Path, steps: Faulty, read_only: bool) -> Store {
    let hour = Duration::from_hours(1);
    let options = Options { flush_interval: hour, refresh_every: hour, read_only, ..Options::default() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), steps)), spec(), &options).unwrap()
}

#[test]
fn of_threads_that_miss_rows_after_a_change_of_another_process_one_lists_the_folder() {
    const THREADS: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let other = process(dir.path());
    compute(&other, &["x"], 1);
    other.flush().unwrap();
    let (lists, asks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (listed, asked) = (lists.clone(), asks.clone());
    let steps = Faulty::with(move |_, step, path| {
        if step == "metadata" && path.ends_with(FIRST) {
            asked.fetch_add(1, SeqCst);
        }
        if step == "list" && listed.fetch_add(1, SeqCst) > 0 {
            // The other threads have found the change before this listing shows it.
            while asked.load(SeqCst) < THREADS - 1 {
                thread::yield_now();
            }
        }
        None
    });
    let store = seldom_listing(dir.path(), steps, false);
    other.invalidate(&keys(&["x"])).unwrap();
    assert_eq!((lists.load(SeqCst), asks.load(SeqCst)), (1, 0), "it was opened");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| assert_eq!(store.lookup(keys(&["y"])).unwrap().missing(), 1));
        }
    });
    assert_eq!((lists.load(SeqCst), store.core.snapshot().known), (2, 1));
}

#[test]
fn a_store_that_keeps_no_rows_does_not_ask_for_changes_before_they_are_computed() {
    for read_only in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let other = process(dir.path());
        compute(&other, &["x"], 1);
        other.flush().unwrap();
        let asks = Arc::new(AtomicUsize::new(0));
        let asked = asks.clone();
        let steps = Faulty::with(move |_, step, path| {
            asked.fetch_add(usize::from(step == "metadata" && path.ends_with(FIRST)), SeqCst);
            None
        });
        let store = seldom_listing(dir.path(), steps, read_only);
        for _ in 0..3 {
            assert_eq!(store.lookup(keys(&["x", "y"])).unwrap().missing(), 1);
        }
        assert_eq!(asks.load(SeqCst), if read_only { 0 } else { 3 });
    }
}
