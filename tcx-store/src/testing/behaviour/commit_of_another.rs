//! A replacement whose commit is known to a process only in part: by a name that may not last, or by a reply that was lost.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::testing::{Fault, Faulty};
use crate::testing::{compute, keys, process, replace, seal_all, values, with_operations};
use crate::{RecomputeSession, Store};

const CHANGE: &str = "change-00000000000000000001";

/// A folder with a durable row, whose value is 1.
fn with_a_row() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    dir
}

#[test]
fn a_flush_covers_a_replacement_of_another_process_whose_segment_it_had_found_before_the_commit() {
    let dir = with_a_row();
    let syncs = Arc::<AtomicUsize>::default();
    let counted = syncs.clone();
    let other = with_operations(
        dir.path(),
        Faulty::with(move |_, step, _| {
            counted.fetch_add(usize::from(step == "sync_dir"), SeqCst);
            None
        }),
    );
    let (is_linked, is_done) = (AtomicBool::new(false), Arc::<AtomicBool>::default());
    let done = is_done.clone();
    let steps = Faulty::with(move |_, step, path: &Path| {
        if step == "link" && path.ends_with(CHANGE) {
            // The segment waits for its commit.
            assert_eq!(values(&other, &["x"]), [1]);
            other.flush().unwrap();
            is_linked.store(true, SeqCst);
        } else if step == "sync_dir" && is_linked.swap(false, SeqCst) {
            // The name of the tombstone is not durable yet.
            let before = syncs.load(SeqCst);
            assert_eq!(values(&other, &["x"]), [1000]);
            other.flush().unwrap();
            assert_eq!(syncs.load(SeqCst), before + 1, "a power loss would bring the old row back");
            other.flush().unwrap();
            assert_eq!(syncs.load(SeqCst), before + 1, "nothing is new");
            done.store(true, SeqCst);
        }
        None
    });
    let own = with_operations(dir.path(), steps);
    replace(&own, &RecomputeSession::new(), &["x"], 1000);
    own.flush().unwrap();
    assert!(is_done.load(SeqCst));
}

/// Replaces the row in a process that gets no answer when it creates the tombstone, and, if `is_unread`, cannot read it at first.
/// Returns what a new process serves.
fn replace_unanswered(is_unread: bool) -> Vec<i64> {
    let dir = with_a_row();
    let (is_created, is_due) = (AtomicBool::new(false), AtomicBool::new(is_unread));
    let steps = Faulty::with(move |_, step, path: &Path| {
        if !path.ends_with(CHANGE) {
            return None;
        }
        if step == "link" && !is_created.swap(true, SeqCst) {
            return Some(Fault::LostReply);
        }
        let is_met = step == "open" && is_created.load(SeqCst) && is_due.swap(false, SeqCst);
        is_met.then_some(Fault::Refused(ErrorKind::Other))
    });
    let own = with_operations(dir.path(), steps);
    replace(&own, &RecomputeSession::new(), &["x"], 1000);
    assert_eq!(own.flush().is_err(), is_unread);
    own.flush().unwrap();
    let stats = own.stats();
    assert_eq!((stats.rows_sealed, stats.rows_dropped), (1, 0));
    values(&process(dir.path()), &["x"])
}

#[test]
fn a_tombstone_whose_creation_was_not_answered_takes_no_row_with_it_though_it_cannot_be_read_at_first() {
    assert_eq!(replace_unanswered(false), [1000]);
    assert_eq!(replace_unanswered(true), [1000]);
}

/// A process that has met the tombstone of a replacement without listing the folder, and for which the folder is gone for one look when the
/// flag is set.
fn with_a_glimpse(dir: &Path, is_gone: &Arc<AtomicBool>) -> Store {
    let (own, met, gone) = (process(dir), AtomicBool::new(false), is_gone.clone());
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("change-"));
        if step == "link" && is_change && !met.swap(true, SeqCst) {
            replace(&own, &RecomputeSession::new(), &["x"], 1000);
            seal_all(&own);
        }
        let is_away = match step {
            "open" if is_change => gone.load(SeqCst),
            "list" => gone.swap(false, SeqCst),
            _ => false,
        };
        is_away.then_some(Fault::Refused(ErrorKind::NotFound))
    });
    let other = with_operations(dir, steps);
    other.invalidate(&keys(&["busy"])).unwrap();
    other
}

#[test]
fn a_folder_that_is_gone_for_one_look_was_not_listed() {
    for is_away in [false, true] {
        let (dir, is_gone) = (with_a_row(), Arc::<AtomicBool>::default());
        let other = with_a_glimpse(dir.path(), &is_gone);
        is_gone.store(is_away, SeqCst);
        compute(&other, &["x"], 7);
        other.flush().unwrap();
        other.compact().unwrap();
        assert_eq!(
            (values(&other, &["x"]), values(&process(dir.path()), &["x"])),
            (vec![1000], vec![1000]),
            "gone for a look: {is_away}"
        );
    }
}

/// What a process does while the folder is away, in which it has replaced the row by 1000; and what is left of it then.
fn while_away(work: impl FnOnce(&Store)) -> (crate::Result<()>, [Vec<i64>; 3]) {
    let dir = with_a_row();
    let store = process(dir.path());
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    store.flush().unwrap();
    assert_eq!(values(&store, &["x"]), [1000]);
    let (here, away) = (dir.path().join("m_v1"), dir.path().join("away"));
    std::fs::rename(&here, &away).unwrap();
    store.refresh().unwrap();
    work(&store);
    std::fs::rename(&away, &here).unwrap();
    let flushed = store.flush();
    store.flush().unwrap();
    let left = [values(&store, &["x"]), values(&process(dir.path()), &["x"])];
    store.compact().unwrap();
    let [own, fresh] = left;
    (flushed, [own, fresh, values(&process(dir.path()), &["x"])])
}

#[test]
fn what_is_computed_while_the_folder_is_away_does_not_displace_a_replacement() {
    let (flushed, left) = while_away(|store| compute(store, &["x"], 7));
    let lost = flushed.unwrap_err().to_string();
    assert!(lost.contains("1 computed row was not kept"), "{lost}");
    assert_eq!(left, [[1000]; 3]);
}

#[test]
fn no_value_is_put_while_the_folder_is_away() {
    let (flushed, left) = while_away(|store| {
        for session in [None, Some(&RecomputeSession::new())] {
            let refused = store.lookup_to_put(keys(&["x"]), session).unwrap_err().to_string();
            assert!(refused.contains("cannot put values"), "{refused}");
        }
    });
    flushed.unwrap();
    assert_eq!(left, [[1000]; 3]);
}

#[test]
fn what_no_change_names_is_kept_while_the_folder_is_away() {
    let (flushed, _) = while_away(|store| {
        compute(store, &["y"], 7);
        assert_eq!(values(store, &["y"]), [7]);
    });
    flushed.unwrap();
}
