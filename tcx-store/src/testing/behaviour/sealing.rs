//! One generation is written while another is being synced, and whatever fails, they are published in order.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use crate::storage::LocalStorage;
use crate::testing::{Fault, Faulty};
use crate::testing::{compute, names, process, spec, values};
use crate::{Options, Store};

const REFUSED: Fault = Fault::Refused(ErrorKind::Other);

/// Every batch fills a segment, and the queue holds two of them.
fn try_store(dir: &Path, steps: Faulty) -> crate::Result<Store> {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options = Options {
        flush_bytes: 1,
        write_buffer_bytes: 60,
        flush_interval,
        refresh_every,
        ..Options::default()
    };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), steps)), spec(), &options)
}

fn store(dir: &Path, steps: Faulty) -> Store {
    try_store(dir, steps).unwrap()
}

/// Files that were begun so far, and those that were while the first segment was being synced.
#[derive(Default)]
struct Begun {
    all: AtomicUsize,
    meanwhile: AtomicUsize,
    /// Whether syncs fail: that of the first segment, and all that follow.
    is_broken: AtomicBool,
}

impl Begun {
    fn wait_for(&self, files: usize) {
        let start = Instant::now();
        while self.all.load(SeqCst) < files && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A store with `a` and `b` in two generations; the sync of the first waits until the second is begun.
fn two_generations(dir: &Path, is_broken: bool) -> (Store, Arc<Begun>) {
    let begun = Begun { is_broken: is_broken.into(), ..Begun::default() };
    let (begun, syncs) = (Arc::new(begun), AtomicUsize::new(0));
    let seen = begun.clone();
    let rule = move |_, step: &str, _: &Path| {
        if step == "create_file" {
            seen.all.fetch_add(1, SeqCst);
        }
        let sync = if step == "sync" { syncs.fetch_add(1, SeqCst) } else { 0 };
        // The sync before is that of change 0. Three files are there: change 0, the segment and its run; the next is that
        // of `b`, which may have begun before this sync.
        if sync == 1 {
            seen.wait_for(4);
            seen.meanwhile.store(seen.all.load(SeqCst) - 3, SeqCst);
        }
        (sync > 0 && seen.is_broken.load(SeqCst)).then_some(REFUSED)
    };
    let store = store(dir, Faulty::with(rule));
    compute(&store, &["a"], 1);
    // Change 0 and a segment have begun: later rows belong to the next segment.
    begun.wait_for(2);
    compute(&store, &["b"], 2);
    (store, begun)
}

#[test]
fn a_segment_is_written_while_the_one_before_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (store, begun) = two_generations(dir.path(), false);
    store.flush().unwrap();
    // Its index run may have been begun as well.
    assert_eq!(begun.meanwhile.load(SeqCst), 1);
    assert_eq!(values(&process(dir.path()), &["a", "b"]), [1, 2]);
}

#[test]
fn after_a_failed_sync_nothing_that_came_later_is_published_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, begun) = two_generations(dir.path(), true);
    store.flush().unwrap_err();
    // Its index run may have been begun as well.
    assert_eq!(begun.meanwhile.load(SeqCst), 1);
    assert_eq!(names(dir.path(), "seg-").len() + names(dir.path(), "tmp-").len(), 0);
    assert_eq!(values(&store, &["a", "b"]), [1, 2], "they are in the buffer");
    begun.is_broken.store(false, SeqCst);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["a", "b"]), [1, 2]);
}

/// Rows that come faster than they are written, with faults; `true` as long as a fault happened.
fn survives(fault: Fault, fail: Range<usize>) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let steps = Faulty::new(fault, fail);
    let Ok(store) = try_store(dir.path(), steps.clone()) else { return true };
    let keys: Vec<String> = (0..4).map(|key| key.to_string()).collect();
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    let rounds = || all.iter().for_each(|key| compute(&store, &[key], 7));
    rounds();
    if store.flush().is_ok() {
        assert_eq!(values(&process(dir.path()), &all), [7; 4], "what a flush has acknowledged is there");
    }
    while store.flush().is_err() {}
    rounds();
    while store.flush().is_err() {}
    drop(store);
    assert_eq!(values(&process(dir.path()), &all), [7; 4]);
    steps.has_failed()
}

#[test]
fn whatever_step_fails_while_generations_overlap_nothing_is_lost() {
    let not_found = Fault::Refused(ErrorKind::NotFound);
    for (fault, length) in [(REFUSED, 1), (REFUSED, 12), (not_found, 1), (Fault::LostReply, 1)] {
        let mut at = 0;
        while survives(fault, at..at + length) {
            at += 1;
        }
        assert!(at > 30, "{fault:?}: the faults reached {at} steps only");
    }
}
