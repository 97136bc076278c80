//! What was invalidated or replaced by another process before a row was looked up does not kill the row.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;

use super::replaced_at_once::with_a_row;
use super::uncommitted::killed_before_the_commit;
use crate::storage::{LOOK_AGAIN_AFTER, LocalStorage, System};
use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, make_older, process, replace, spec, values, with_operations};
use crate::{Column, Keys, Losses, Options, RecomputeSession, StampType, Store};

/// The pauses between the last listing and the lookup: the folder is listed at most every 100 ms.
const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(110)];

/// A store that looks for new files only if rows are missing.
fn seldom_listing(dir: &std::path::Path) -> Store {
    let hour = Duration::from_hours(1);
    let options = Options { flush_interval: hour, refresh_every: hour, ..Options::default() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), System)), spec(), &options).unwrap()
}

/// Two processes on one folder, of which the first has just listed it.
fn just_listed(dir: &std::path::Path) -> (Store, Store) {
    let own = seldom_listing(dir);
    compute(&own, &["other"], 0);
    own.flush().unwrap();
    own.refresh().unwrap();
    (own, process(dir))
}

#[test]
fn a_row_that_is_computed_after_another_process_has_invalidated_it_stays() {
    for pause in PAUSES {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = just_listed(dir.path());
        for value in 1..4 {
            other.invalidate(&keys(&["x"])).unwrap();
            sleep(pause);
            compute(&own, &["x"], value);
            own.flush().unwrap();
            assert_eq!(values(&own, &["x"]), [value], "after a pause of {pause:?}");
            assert_eq!(own.stats().rows_dropped, 0);
            own.invalidate(&keys(&["x"])).unwrap();
            other.refresh().unwrap();
        }
    }
}

#[test]
fn a_row_stays_that_is_computed_once_a_change_which_might_commit_others_is_known_to_be_damaged() {
    let dir = with_a_row();
    killed_before_the_commit(dir.path());
    std::fs::write(dir.path().join("m_v1/change-00000000000000000001"), "damaged").unwrap();
    make_older(dir.path(), "change-");
    let fails = Arc::new(AtomicBool::new(true));
    let is_unreadable = fails.clone();
    let steps = Faulty::with(move |_, step, path| {
        let fails =
            step == "open" && path.ends_with("change-00000000000000000001") && is_unreadable.load(SeqCst);
        fails.then_some(Fault::Refused(ErrorKind::Other))
    });
    let own = with_operations(dir.path(), steps);
    fails.store(false, SeqCst);
    own.refresh().unwrap();
    sleep(LOOK_AGAIN_AFTER);
    own.refresh().unwrap();
    compute(&own, &["y"], 7);
    own.flush().unwrap();
    assert_eq!((values(&own, &["y"]), own.stats().rows_dropped), (vec![7], 0));
}

#[test]
fn of_two_replacements_by_two_processes_the_later_one_stays() {
    for pause in PAUSES {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = just_listed(dir.path());
        for value in 1..4 {
            replace(&other, &RecomputeSession::new(), &["x"], value);
            other.flush().unwrap();
            sleep(pause);
            replace(&own, &RecomputeSession::new(), &["x"], 10 * value);
            own.flush().unwrap();
            assert_eq!(values(&own, &["x"]), [10 * value], "after a pause of {pause:?}");
            assert_eq!(values(&process(dir.path()), &["x"]), [10 * value]);
        }
    }
}

#[test]
fn a_row_for_a_rejected_one_outlives_what_another_process_had_done_before_its_lookup() {
    for (pause, is_replaced) in [(0, false), (0, true), (1, false), (1, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = just_listed(dir.path());
        if is_replaced {
            replace(&other, &RecomputeSession::new(), &["other"], 42);
            other.flush().unwrap();
        } else {
            other.invalidate(&keys(&["other"])).unwrap();
        }
        sleep(PAUSES[pause]);
        let mut rows = own.lookup(keys(&["other"])).unwrap();
        // Every value is rejected, the new one too.
        while !rows.is_missing(0) {
            own.reject(&mut rows, &[0]).unwrap();
        }
        own.insert(&mut rows, &[0], column(&[7])).unwrap();
        own.flush().unwrap();
        assert_eq!(own.stats().rows_dropped, 0);
        assert_eq!(values(&process(dir.path()), &["other"]), [7], "replaced: {is_replaced}");
        assert_eq!(values(&own, &["other"]), [7], "replaced: {is_replaced}");
    }
}

#[test]
fn a_row_for_a_rejected_one_does_not_undo_a_replacement_by_another_process() {
    for is_one_missing in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = just_listed(dir.path());
        replace(&other, &RecomputeSession::new(), &["other"], 42);
        other.flush().unwrap();
        let wanted: &[&str] = if is_one_missing { &["other", "x"] } else { &["other"] };
        let mut rows = own.lookup(keys(wanted)).unwrap();
        // Only the value before the replacement is rejected.
        if !rows.is_missing(0) && rows.bytes(0, 0) == 0_i64.to_le_bytes() {
            own.reject(&mut rows, &[0]).unwrap();
        }
        let missing = rows.distinct_missing_positions();
        own.insert(&mut rows, &missing, column(&vec![7; missing.len()])).unwrap();
        own.flush().unwrap();
        let left = values(&process(dir.path()), wanted);
        assert_eq!(left, if is_one_missing { vec![42, 7] } else { vec![42] });
    }
}

#[test]
fn values_are_put_only_where_no_process_has_put_any() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = just_listed(dir.path());
    compute(&other, &["x"], 1);
    other.flush().unwrap();
    let rows = own.lookup_to_put(keys(&["x", "y"]), None).unwrap();
    assert_eq!(rows.distinct_missing_positions(), [1]);
}

/// Puts `x` for this user of the store.
fn put(store: &Store, losses: &Arc<Losses>, session: Option<&Arc<RecomputeSession>>) {
    let mut rows = store.lookup_to_put(keys(&["x"]), session).unwrap();
    store.insert_for(losses, &mut rows, &[0], column(&[1]), None).unwrap();
}

/// The caller that put one value has lost it, and learns so once; another caller has lost nothing.
fn is_lost(store: &Store, losses: &Losses) {
    store.flush_for(&Losses::new()).unwrap();
    let error = format!("{:#}", store.flush_for(losses).unwrap_err());
    assert!(error.starts_with("1 computed row was not kept") && error.contains("another process"), "{error}");
    store.flush_for(losses).unwrap();
}

#[test]
fn a_value_that_was_put_and_dies_by_a_change_of_another_process_is_a_loss() {
    for session in [None, Some(RecomputeSession::new())] {
        // This process may list the folder between the change and the flush, for whatever reason.
        for lists in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (own, other) = just_listed(dir.path());
            let losses = Arc::new(Losses::new());
            put(&own, &losses, session.as_ref());
            other.invalidate(&keys(&["x"])).unwrap();
            if lists {
                own.refresh().unwrap();
            }
            is_lost(&own, &losses);
            assert_eq!((values(&own, &["x"]), own.stats().rows_dropped), (vec![-1], 1));
        }
    }
}

#[test]
fn a_value_that_dies_by_another_process_before_it_is_put_is_a_loss_whatever_this_process_has_replaced_since()
{
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = just_listed(dir.path());
    let losses = Arc::new(Losses::new());
    let mut rows = own.lookup_to_put(keys(&["x"]), Some(&RecomputeSession::new())).unwrap();
    other.invalidate(&keys(&["x"])).unwrap();
    own.refresh().unwrap();
    // The tombstone of this replacement comes after the invalidation.
    replace(&own, &RecomputeSession::new(), &["other"], 2);
    own.flush().unwrap();
    own.insert_for(&losses, &mut rows, &[0], column(&[1]), None).unwrap();
    is_lost(&own, &losses);
    assert_eq!(values(&own, &["x", "other"]), [-1, 2]);
}

#[test]
fn a_value_that_its_own_process_has_invalidated_before_another_does_is_no_loss() {
    for fails in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let failing = Arc::<AtomicBool>::default();
        let is_full = failing.clone();
        let steps = Faulty::with(move |_, step, _| {
            let is_on = step == "create_file" && is_full.load(SeqCst);
            is_on.then_some(Fault::Refused(ErrorKind::StorageFull))
        });
        let (own, other) = (with_operations(dir.path(), steps), process(dir.path()));
        compute(&own, &["other"], 0);
        own.flush().unwrap();
        let losses = Arc::new(Losses::new());
        put(&own, &losses, None);
        failing.store(fails, SeqCst);
        assert_eq!(own.invalidate(&keys(&["x"])).is_err(), fails);
        failing.store(false, SeqCst);
        other.invalidate(&keys(&["x"])).unwrap();
        own.flush_for(&losses).unwrap();
        assert_eq!(values(&own, &["x"]), [-1]);
    }
}

#[test]
fn a_value_that_its_own_process_has_replaced_is_no_loss_when_both_die_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = just_listed(dir.path());
    let (first, second) = (Arc::new(Losses::new()), Arc::new(Losses::new()));
    put(&own, &first, None);
    put(&own, &second, Some(&RecomputeSession::new()));
    other.invalidate(&keys(&["x"])).unwrap();
    is_lost(&own, &second);
    own.flush_for(&first).unwrap();
}

#[test]
fn a_value_that_its_own_process_invalidates_or_replaces_is_no_loss() {
    for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (own, _other) = just_listed(dir.path());
        let losses = Arc::new(Losses::new());
        put(&own, &losses, first.then(RecomputeSession::new).as_ref());
        if second {
            replace(&own, &RecomputeSession::new(), &["x"], 2);
        } else {
            own.invalidate(&keys(&["x"])).unwrap();
        }
        own.flush_for(&losses).unwrap();
        assert_eq!(values(&own, &["x"]), [if second { 2 } else { -1 }]);
    }
}

/// A store whose ids have stamps.
fn stamped(dir: &std::path::Path) -> Store {
    let options = Options { flush_interval: Duration::from_hours(1), ..Options::default() };
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    Store::with_storage(Arc::new(storage), spec().with_stamps(StampType::Number), &options).unwrap()
}

#[test]
fn a_value_that_is_put_under_another_stamp_and_dies_by_the_tombstone_of_a_row_recomputed_before_is_a_loss() {
    for is_replaced in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, session) = (stamped(dir.path()), RecomputeSession::new());
        let of = |name, stamp: u64| keys(&[name]).with_stamps(Column::dense(&stamp.to_le_bytes())).unwrap();
        let recompute = |wanted: Keys| {
            let mut rows = store.lookup_to_put(wanted, Some(&session)).unwrap();
            store.insert(&mut rows, &[0], column(&[10])).unwrap();
        };
        recompute(of("x", 1));
        let losses = Arc::new(Losses::new());
        let mut rows = store.lookup_to_put(of("x", 2), None).unwrap();
        if is_replaced {
            // One tombstone names both, and has the number of the later.
            recompute(of("y", 1));
        }
        store.flush().unwrap();
        assert!(store.insert_for(&losses, &mut rows, &[0], column(&[20]), None).unwrap());
        let flushed = store.flush_for(&losses);
        let lost = flushed.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(lost.contains("1 computed row was not kept"), is_replaced, "{lost}");
        assert_eq!(store.lookup(of("x", 2)).unwrap().missing(), usize::from(is_replaced));
    }
}
