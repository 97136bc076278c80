//! Rows that make way for newer ones: what becomes of them if the newer ones are not written.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::testing::{Fault, Faulty, column, compute, keys, process, replace, spec, values, with_operations};
use crate::write::seal_queue::SealQueue;
use crate::{Attestation, LookupOptions, Losses, Options, RecomputeSession, Store};

fn attestation(changed: &Arc<AtomicBool>) -> Arc<Attestation> {
    let asked = changed.clone();
    Attestation::new(move || if asked.load(SeqCst) { Err("changed".into()) } else { Ok(()) })
}

fn recompute_attested(
    store: &Store,
    session: &Arc<RecomputeSession>,
    value: i64,
    attestation: &Arc<Attestation>,
) {
    let recompute = LookupOptions { recompute: Some(session), ..LookupOptions::default() };
    let mut rows = store.lookup_with(keys(&["x"]), recompute).unwrap();
    store.insert_attested(&mut rows, &[0], column(&[value]), attestation).unwrap();
}

#[test]
fn a_row_that_made_way_is_served_as_soon_as_the_newer_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let off = Arc::new(AtomicBool::new(false));
    let broken = off.clone();
    let rule = move |_, step: &str, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name == "change-00000000000000000001");
        (is_change && step != "open" && broken.load(SeqCst)).then_some(Fault::Refused(ErrorKind::StorageFull))
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    let changed = Arc::new(AtomicBool::new(false));
    let weights = attestation(&changed);
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x"], 2), 1);
    recompute_attested(&store, &RecomputeSession::new(), 3, &weights);
    off.store(true, SeqCst);
    SealQueue::new(store.core.clone()).seal_all().unwrap_err();
    assert_eq!(values(&store, &["x"]), [3]);
    // Another module of the same weights asks.
    changed.store(true, SeqCst);
    let after = tempfile::tempdir().unwrap();
    let next = Store::open(after.path(), spec(), &Options::default()).unwrap();
    let mut rows = next.lookup(keys(&["x"])).unwrap();
    next.insert_attested(&mut rows, &[0], column(&[9]), &weights).unwrap();
    next.flush().unwrap_err();
    assert!(weights.refused().is_some());
    assert_eq!(values(&store, &["x"]), [2]);
}

#[test]
fn a_row_is_kept_whose_batch_is_committed_before_the_newer_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let changed = Arc::new(AtomicBool::new(false));
    let (hook, path) = (changed.clone(), dir.path().to_path_buf());
    let rule = move |_, step: &str, file: &Path| {
        let is_second = file.file_name().is_some_and(|name| name == "change-00000000000000000002");
        if step == "link" && is_second && !hook.swap(true, SeqCst) {
            // Another process is faster, and meanwhile the weights have changed.
            process(&path).invalidate(&keys(&["z"])).unwrap();
        }
        None
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["x", "y", "z"], 1);
    store.flush().unwrap();
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    let losses = Arc::new(Losses::new());
    let mut rows = store.lookup_to_put(keys(&["x", "y"]), Some(&a)).unwrap();
    assert!(store.insert_for(&losses, &mut rows, &[0, 1], column(&[2, 2]), None).unwrap());
    recompute_attested(&store, &b, 3, &attestation(&changed));
    assert_eq!(values(&store, &["x", "y"]), [3, 2]);
    store.flush_for(&losses).unwrap();
    assert!(changed.load(SeqCst));
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("changed"), "{error}");
    assert_eq!(values(&store, &["x", "y"]), [2, 2], "here");
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 2], "another process");
}

#[test]
fn a_row_for_a_rejected_one_is_kept_whose_batch_is_committed_before_the_newer_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let changed = Arc::new(AtomicBool::new(false));
    let (hook, path) = (changed.clone(), dir.path().to_path_buf());
    let rule = move |_, step: &str, file: &Path| {
        let is_second = file.file_name().is_some_and(|name| name == "change-00000000000000000002");
        if step == "link" && is_second && !hook.swap(true, SeqCst) {
            process(&path).invalidate(&keys(&["other"])).unwrap();
        }
        None
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["x", "y", "z"], -7);
    store.flush().unwrap();
    let reject = |wanted: &[&str]| {
        let mut rejected = store.lookup(keys(wanted)).unwrap();
        assert!(store.reject(&mut rejected, &(0..wanted.len()).collect::<Vec<_>>()).unwrap());
        rejected
    };
    let (mut first, mut second) = (reject(&["z"]), reject(&["x", "y"]));
    store.insert(&mut first, &[0], column(&[7])).unwrap();
    recompute_attested(&store, &RecomputeSession::new(), 42, &attestation(&changed));
    store.insert(&mut second, &[0, 1], column(&[7, 7])).unwrap();
    assert_eq!(values(&store, &["x", "y", "z"]), [42, 7, 7]);
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("changed"), "{error}");
    assert_eq!(values(&store, &["x", "y", "z"]), [7, 7, 7], "here");
    assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [7, 7, 7], "another process");
}

#[test]
fn a_value_is_a_loss_that_would_have_been_written_instead_of_a_refused_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (process(dir.path()), process(dir.path()));
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    let changed = Arc::new(AtomicBool::new(false));
    let losses = Arc::new(Losses::new());
    let mut rows = store.lookup_to_put(keys(&["x"]), Some(&RecomputeSession::new())).unwrap();
    assert!(store.insert_for(&losses, &mut rows, &[0], column(&[2]), None).unwrap());
    recompute_attested(&store, &RecomputeSession::new(), 3, &attestation(&changed));
    changed.store(true, SeqCst);
    other.refresh().unwrap();
    other.invalidate(&keys(&["x"])).unwrap();
    let flushed = store.flush_for(&losses);
    assert_eq!(values(&store, &["x"]), [-1]);
    flushed.unwrap_err();
}

/// A store whose first change is written, is answered by an error, and cannot be read while the switch is on.
fn without_replies(dir: &Path) -> (Store, Arc<AtomicBool>) {
    let off = Arc::new(AtomicBool::new(false));
    let broken = off.clone();
    let rule = move |_, step: &str, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name == "change-00000000000000000001");
        let fault = match step {
            "open" => Fault::Refused(ErrorKind::Other),
            "metadata" => return None,
            _ => Fault::LostReply,
        };
        (is_change && broken.load(SeqCst)).then_some(fault)
    };
    (with_operations(dir, Faulty::with(rule)), off)
}

#[test]
fn a_row_of_a_later_generation_outlives_the_tombstone_whose_reply_was_lost() {
    for refreshes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, off) = without_replies(dir.path());
        compute(&store, &["x", "y"], 1);
        store.flush().unwrap();
        let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
        assert_eq!(replace(&store, &a, &["x"], 2), 1);
        store.core.buffer.freeze();
        assert_eq!(replace(&store, &b, &["x", "y"], 3), 2);
        assert_eq!(values(&store, &["x", "y"]), [3, 3]);
        off.store(true, SeqCst);
        store.flush().unwrap_err();
        off.store(false, SeqCst);
        if refreshes {
            assert_eq!(values(&store, &["x", "y"]), [3, 3], "after the refresh");
        }
        store.flush().unwrap();
        assert_eq!(values(&store, &["x", "y"]), [3, 3], "after the flush");
        assert_eq!(values(&process(dir.path()), &["x", "y"]), [3, 3], "another process");
    }
}

#[test]
fn a_row_for_a_rejected_one_makes_way_for_one_whose_tombstone_is_found_later() {
    for is_changed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, off) = without_replies(dir.path());
        compute(&store, &["x", "y"], -7);
        store.flush().unwrap();
        let mut rejected = store.lookup(keys(&["x", "y"])).unwrap();
        assert!(store.reject(&mut rejected, &[0, 1]).unwrap());
        let changed = Arc::new(AtomicBool::new(false));
        recompute_attested(&store, &RecomputeSession::new(), 42, &attestation(&changed));
        store.core.buffer.freeze();
        store.insert(&mut rejected, &[0, 1], column(&[7, 7])).unwrap();
        off.store(true, SeqCst);
        store.flush().unwrap_err();
        off.store(false, SeqCst);
        changed.store(is_changed, SeqCst);
        assert_eq!(values(&store, &["x", "y"]), [42, 7], "changed: {is_changed}");
        assert_eq!(store.flush().is_err(), is_changed);
        assert_eq!(values(&store, &["x", "y"]), [42, 7], "changed: {is_changed}");
        assert_eq!(values(&process(dir.path()), &["x", "y"]), [42, 7], "changed: {is_changed}");
    }
}
