//! Invalidations of rows that the process which invalidates them does not serve, and another does.

use std::fs::{read, remove_file, write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::removals_meet::joining_while;
use crate::changes::Doomed;
use crate::storage::{LocalStorage, System};
use crate::store::stored_keys::Reach;
use crate::testing::{
    compute, go_ahead, is_damaged_for_good, make_older, names, process, replace, seal_all, spec, values,
    without_change,
};
use crate::{Options, RecomputeSession, Result, Store};

/// The invalidations that have to see the rows.
const HOW: [fn(&Store) -> Result<()>; 2] =
    [|store| store.invalidate_where(|_| true), |store| store.invalidate_older_than(SystemTime::now())];

/// Changes bytes of the only segment, so far before its end.
fn damage(dir: &Path, before_the_end: usize) {
    damage_file(&dir.join("m_v1").join(names(dir, "seg-").pop().unwrap()), before_the_end);
}

/// A process that knows what is damaged for good.
fn with_certain_damage(dir: &Path) -> Store {
    let own = process(dir);
    wait_for_certain_damage(&own);
    own
}

pub(super) fn wait_for_certain_damage(store: &Store) {
    while store.core.each_key(Reach::There, |_| {}).is_err() {
        store.refresh().unwrap();
    }
}

fn damage_file(path: &Path, before_the_end: usize) {
    let mut bytes = read(path).unwrap();
    let at = bytes.len() - before_the_end;
    bytes[at..at + 8].fill(0xab);
    remove_file(path).unwrap();
    write(path, bytes).unwrap();
}

#[test]
fn rows_that_are_too_old_for_this_process_are_invalidated_for_others() {
    for invalidate in HOW {
        let dir = tempfile::tempdir().unwrap();
        let other = process(dir.path());
        compute(&other, &["x"], 1);
        seal_all(&other);
        let hour = Duration::from_hours(1);
        let time_to_live = Some(Duration::from_millis(1));
        let options = Options { flush_interval: hour, time_to_live, ..Options::default() };
        let storage = Arc::new(LocalStorage::new(dir.path().join("m_v1"), System));
        let own = Store::with_storage(storage, spec(), &options).unwrap();
        sleep(Duration::from_millis(5));
        assert_eq!((values(&own, &["x"]), values(&other, &["x"])), (vec![-1], vec![1]));
        invalidate(&own).unwrap();
        assert_eq!(values(&other, &["x"]), [-1]);
    }
}

#[test]
fn rows_of_a_segment_that_this_process_has_found_damaged_are_invalidated_for_others() {
    for invalidate in HOW {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..20_000).map(|id| format!("id {id}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let store = process(dir.path());
        compute(&store, &ids, 1);
        seal_all(&store);
        drop(store);
        // The last values.
        damage(dir.path(), 60_000);
        make_older(dir.path(), "seg-");
        let own = process(dir.path());
        is_damaged_for_good(&own, &ids);
        let other = process(dir.path());
        assert_eq!((values(&own, &["id 0"]), values(&other, &["id 0"])), (vec![-1], vec![1]));
        invalidate(&own).unwrap();
        assert_eq!(values(&other, &["id 0"]), [-1]);
    }
}

#[test]
fn a_segment_that_no_process_can_open_keeps_nothing_from_being_invalidated() {
    for invalidate in HOW {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        seal_all(&store);
        damage(dir.path(), 20);
        make_older(dir.path(), "seg-");
        let own = process(dir.path());
        compute(&own, &["y"], 1);
        sleep(Duration::from_millis(5));
        invalidate(&own).unwrap();
        assert_eq!(values(&own, &["x", "y"]), [-1, -1]);
    }
}

/// The first keys, or what is needed to open the segment.
#[test]
fn rows_that_another_process_has_opened_before_their_keys_were_damaged_are_invalidated() {
    for is_end in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..20_000).map(|id| format!("id {id}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let other = process(dir.path());
        compute(&other, &ids, 1);
        seal_all(&other);
        assert_eq!(values(&other, &["id 0"]), [1]);
        if is_end {
            damage(dir.path(), 20);
        } else {
            let path = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
            let mut bytes = read(&path).unwrap();
            let at = bytes.windows(8).position(|own| own == b"id 0id 1").unwrap();
            bytes[at] ^= 1;
            remove_file(&path).unwrap();
            write(&path, bytes).unwrap();
        }
        make_older(dir.path(), "seg-");
        let own = process(dir.path());
        // Finds the damage, and asks for another call at first.
        while own.invalidate_where(|key| key == b"id 0").is_err() {}
        other.refresh().unwrap();
        assert_eq!(values(&other, &["id 0"]), [-1], "is_end {is_end}");
        let changes = names(dir.path(), "change-").len();
        own.invalidate_where(|key| key == b"id 0").unwrap();
        assert_eq!(names(dir.path(), "change-").len(), changes, "it is dead already");
    }
}

#[test]
fn what_another_process_joins_from_an_unreadable_segment_in_the_meantime_is_invalidated() {
    let dir = tempfile::tempdir().unwrap();
    let other = process(dir.path());
    compute(&other, &["a"], 1);
    seal_all(&other);
    let unreadable = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
    compute(&other, &["b"], 2);
    seal_all(&other);
    assert_eq!(values(&other, &["a", "b"]), [1, 2]);
    damage_file(&unreadable, 20);
    make_older(dir.path(), "seg-");
    let own = with_certain_damage(dir.path());
    let join = |key: &[u8]| {
        if key == b"b" {
            other.compact().unwrap();
        }
        key == b"a"
    };
    own.invalidate_where(join).unwrap();
    assert_eq!(values(&process(dir.path()), &["a", "b"]), [-1, 2]);
    other.refresh().unwrap();
    assert_eq!(values(&other, &["a", "b"]), [-1, 2]);
}

/// `a`, in a segment that becomes unreadable, is invalidated. Until the keys were visited twice, the segment is joined to another one, another
/// process invalidates rows of it as well, and the joined segment is joined again.
#[test]
fn rows_are_invalidated_though_another_invalidation_ends_before_and_they_are_joined_again() {
    let dir = tempfile::tempdir().unwrap();
    let other = process(dir.path());
    compute(&other, &["a"], 1);
    seal_all(&other);
    let unreadable = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
    compute(&other, &["b"], 2);
    seal_all(&other);
    let invalidating = Arc::new(Mutex::new(None));
    let (going_on, wait) = channel::<()>();
    let (wait, thread) = (Mutex::new(Some(wait)), invalidating.clone());
    let joining = joining_while(dir.path(), move |dir| {
        damage_file(&unreadable, 20);
        make_older(dir, "seg-");
        let own = with_certain_damage(dir);
        let (visits, twice) = channel::<()>();
        let wait = wait.lock().unwrap().take().unwrap();
        let mut seen = 0;
        let invalidate = move || {
            own.invalidate_where(|key| {
                if key == b"b" {
                    seen += 1;
                }
                if key == b"b" && seen == 2 {
                    visits.send(()).unwrap();
                    wait.recv().unwrap();
                }
                key == b"a"
            })
        };
        *thread.lock().unwrap() = Some(std::thread::spawn(invalidate));
        twice.recv().unwrap();
    });
    process(dir.path()).invalidate_where(|key| key == b"c").unwrap();
    compute(&joining, &["d"], 4);
    seal_all(&joining);
    joining.compact().unwrap();
    going_on.send(()).unwrap();
    invalidating.lock().unwrap().take().unwrap().join().unwrap().unwrap();
    assert_eq!(values(&process(dir.path()), &["a", "b", "d"]), [-1, 2, 4]);
}

/// A block of an old segment is damaged, and a row of it was replaced an hour ago.
#[test]
fn what_is_younger_is_not_invalidated_because_of_a_dead_row_in_a_segment_that_is_out_of_service() {
    for damaged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        go_ahead(Duration::from_secs(1));
        let ids: Vec<String> = (0..30_000).map(|i| format!("key {i}")).chain(["x".into()]).collect();
        let ids: Vec<&str> = ids.iter().rev().map(String::as_str).collect();
        compute(&store, &ids, 5);
        compute(&store, &["y"], 0x1122_3344_5566_7788);
        seal_all(&store);
        let path = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
        go_ahead(Duration::from_hours(2));
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
        let mut bytes = std::fs::read(&path).unwrap();
        let wanted = 0x1122_3344_5566_7788_i64.to_le_bytes();
        let at = bytes.windows(8).position(|own| own == wanted).unwrap();
        bytes[at] ^= u8::from(damaged);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let other = process(dir.path());
        // Finds the damage.
        values(&other, &["x", "y"]);
        other.invalidate_older_than(SystemTime::now() + Duration::from_hours(1)).unwrap();
        assert_eq!(values(&process(dir.path()), &["x"]), [1000], "damaged {damaged}");
    }
}

/// The same where a change cannot be read for a moment.
#[test]
fn what_is_younger_is_not_invalidated_because_of_a_dead_row_that_an_unread_change_hides() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    go_ahead(Duration::from_secs(1));
    compute(&store, &["x", "y"], 5);
    seal_all(&store);
    go_ahead(Duration::from_hours(2));
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&store);
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let other = without_change(2, dir.path(), &fails);
    other.invalidate_older_than(SystemTime::now() + Duration::from_hours(1)).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, -1]);
    fails.store(false, SeqCst);
    other.refresh().unwrap();
    assert_eq!(values(&other, &["x", "y"]), [1000, -1]);
}
