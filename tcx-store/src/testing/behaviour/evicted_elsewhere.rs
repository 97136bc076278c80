//! A process evicts rows, and then invalidates old ones or puts values, while another process joins the segments of these rows: they do
//! not come back.

use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crate::changes::{Dated, Lineage};
use crate::options::WhenFull;
use crate::storage::name::FileName;
use crate::storage::{LocalStorage, System};
use crate::store::stored_keys::{Reach, StoredRow};
use crate::sys::bytes::Random;
use crate::testing::{
    Fault, Faulty, compute, go_ahead, kill_z, names, process, put, reader, seal_all, spec, values,
    with_a_replacement, with_operations,
};
use crate::upkeep::compaction::{Effort, Excess, compact, evict};
use crate::upkeep::eviction::EvictionOrder;
use crate::{Options, Store};

const KEYS: [&str; 3] = ["x", "y", "z"];

/// Runs `meanwhile` when a process that joins all segments of the folder is about to take this step; returns what is found afterwards. Of two
/// rows of a key either may be found: there must be one at most.
fn found_after(dir: &Path, at: &'static str, meanwhile: impl Fn() + Send + Sync + 'static) -> Vec<i64> {
    let waits = Arc::new(AtomicBool::new(false));
    let waiting = waits.clone();
    let steps = Faulty::with(move |_, step, file: &Path| {
        // The index run of the new segment gets its name before the last look at the old ones.
        let is_run = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"));
        if step == at && !is_run && waiting.swap(false, SeqCst) {
            meanwhile();
        }
        None
    });
    let joining = with_operations(dir, steps);
    joining.refresh().unwrap();
    waits.store(true, SeqCst);
    joining.core.compact(Effort::Thorough).unwrap();
    assert!(!waits.load(SeqCst), "nothing was joined");
    let other = process(dir);
    let found = values(&other, &KEYS);
    assert_eq!(values(&joining, &KEYS), found);
    let (mut rows, mut seen) = (0, HashSet::new());
    let see = |row: StoredRow<'_>| {
        rows += 1;
        seen.insert(row.key.to_vec());
    };
    other.core.each_key(Reach::Served, see).unwrap();
    assert_eq!(rows, seen.len(), "rows of {found:?} are there twice");
    found
}

/// Seals these rows, each group in a segment of its own.
fn seal_each(dir: &Path, groups: &[&[&'static str]]) {
    let writer = process(dir);
    for group in groups {
        compute(&writer, group, 1);
        seal_all(&writer);
    }
}

/// Each row in a segment of its own. While one process joins them and is about to take this step, all are evicted, and another does `then`.
fn evicted_while_joined(at: &'static str, then: fn(&Path)) -> Vec<i64> {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path(), &[&["x"], &["y"], &["z"]]);
    let path = dir.path().to_owned();
    found_after(dir.path(), at, move || {
        evict_all(&process(&path));
        then(&path);
    })
}

fn evict_all(store: &Store) {
    while values(store, &KEYS) != [-1; 3] {
        store.make_room(1).unwrap();
    }
}

fn invalidate_old(dir: &Path) {
    let minute = Duration::from_mins(1);
    process(dir).invalidate_older_than(SystemTime::now() + minute).unwrap();
}

fn invalidate_found(dir: &Path) {
    process(dir).invalidate_where(|_| true).unwrap();
}

fn put_2(dir: &Path, keys: &[&'static str]) {
    let store = process(dir);
    for key in keys {
        put(&store, key, 2).unwrap();
    }
    store.flush().unwrap();
}

fn put_all(dir: &Path) {
    put_2(dir, &KEYS);
}

#[test]
fn rows_that_were_evicted_before_others_were_invalidated_do_not_come_back() {
    // Before the last look at the old segments, and after it.
    for at in ["sync", "rename"] {
        assert_eq!(evicted_while_joined(at, invalidate_old), [-1; 3], "{at}");
        assert_eq!(evicted_while_joined(at, invalidate_found), [-1; 3], "{at}");
    }
}

#[test]
fn values_that_are_put_in_the_place_of_evicted_rows_are_not_displaced_by_these() {
    for at in ["sync", "rename"] {
        assert_eq!(evicted_while_joined(at, put_all), [2; 3], "{at}");
    }
}

/// Removes all rows as a process does whose rows live for an hour.
fn let_expire(dir: &Path) {
    go_ahead(Duration::from_hours(2));
    let options = Options { time_to_live: Some(Duration::from_hours(1)), ..Options::default() };
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    let store = Store::with_storage(Arc::new(storage), spec(), &options).unwrap();
    store.collect(Duration::ZERO).unwrap();
    drop(store);
    go_ahead(Duration::ZERO);
    assert_eq!(values(&process(dir), &KEYS), [-1; 3]);
}

#[test]
fn rows_that_had_expired_before_others_were_invalidated_do_not_come_back() {
    for (then, expected) in [(invalidate_found as fn(&Path), -1), (invalidate_old, -1), (put_all, 2)] {
        for at in ["sync", "rename"] {
            let dir = tempfile::tempdir().unwrap();
            seal_each(dir.path(), &[&["x"], &["y"], &["z"]]);
            let path = dir.path().to_owned();
            let found = found_after(dir.path(), at, move || {
                let_expire(&path);
                then(&path);
            });
            assert_eq!(found, [expected; 3], "{at}");
        }
    }
}

#[test]
fn rows_do_not_come_back_that_were_evicted_after_all_their_segments_were_joined_twice() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path(), &[&["x"], &["y"], &["z"]]);
    let path = dir.path().to_owned();
    let found = found_after(dir.path(), "rename", move || {
        let other = process(&path);
        for _ in 0..2 {
            // The segments that the first process joins are gone, and so is what was joined from them first.
            other.core.compact(Effort::Thorough).unwrap();
            other.core.collect(Duration::ZERO).unwrap();
            compute(&other, &["w"], 1);
            seal_all(&other);
        }
        evict_all(&other);
        put_all(&path);
    });
    assert_eq!(found, [2; 3]);
}

#[test]
fn values_that_are_put_in_the_place_of_rows_which_were_cut_away_are_not_displaced_by_these() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path(), &[&["x", "y"], &["z"]]);
    let path = dir.path().to_owned();
    let found = found_after(dir.path(), "rename", move || {
        let other = process(&path);
        let segments = other.core.snapshot().segments.clone();
        let longest = segments.iter().max_by_key(|segment| segment.rows()).unwrap();
        assert!(other.trim_segment(&longest.name().to_string(), 1).unwrap());
        other.core.collect(Duration::ZERO).unwrap();
        assert_eq!(values(&other, &KEYS), [1, -1, 1]);
        put_2(&path, &["y"]);
    });
    assert_eq!(found, [1, 2, 1]);
}

#[test]
fn what_was_joined_before_others_are_evicted_stays() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path(), &[&["x"], &["y"]]);
    let store = process(dir.path());
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
    seal_each(dir.path(), &[&["z"]]);
    store.refresh().unwrap();
    // The policy chooses the youngest: it is as old as the joined one, or younger.
    let youngest = EvictionOrder::of(WhenFull::EvictLeastUsed, 0, 0);
    crate::upkeep::compaction::evict(&store.core, Excess::Segments(1), youngest).unwrap();
    assert_eq!(values(&store, &KEYS), [1, 1, -1]);
    assert_eq!(values(&process(dir.path()), &KEYS), [1, 1, -1]);
}

/// A folder is listed while others work: the listing of the process that collects shows a segment that was joined, and neither change of the
/// eviction by which its inputs live again, though these came first.
#[test]
fn inputs_live_on_if_a_listing_shows_what_they_were_joined_to_and_not_the_eviction_that_killed_it() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path(), &[&["x"], &["y"], &["z"]]);
    let hidden = dir.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let at = Arc::new(AtomicUsize::new(0));
    let (folder, step_at) = (dir.path().to_owned(), at.clone());
    let steps = Faulty::with(move |_, step, _: &Path| {
        let module = folder.join("m_v1");
        if step == "list" && step_at.compare_exchange(1, 2, SeqCst, SeqCst).is_ok() {
            let changes = names(&folder, "change-");
            for name in changes.iter().filter(|name| !name.ends_with("-00000000000000000000")) {
                std::fs::rename(module.join(name), hidden.join(name)).unwrap();
            }
        } else if step_at.compare_exchange(2, 3, SeqCst, SeqCst).is_ok() {
            for file in std::fs::read_dir(&hidden).unwrap() {
                let file = file.unwrap();
                std::fs::rename(file.path(), module.join(file.file_name())).unwrap();
            }
        }
        None
    });
    let collecting = with_operations(dir.path(), steps);
    assert_eq!(values(&collecting, &KEYS), [1; 3]);
    let path = dir.path().to_owned();
    let waits = AtomicBool::new(true);
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_segment = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
        if step == "rename" && is_segment && waits.swap(false, SeqCst) {
            let evicting = process(&path);
            evict(&evicting.core, Excess::Segments(1), EvictionOrder::of(WhenFull::EvictOldest, 0, 0))
                .unwrap();
            // One that closes would remove what it has killed.
            std::mem::forget(evicting);
        }
        None
    });
    let joining = with_operations(dir.path(), steps);
    compact(&joining.core, Effort::Thorough, &mut BTreeSet::new()).unwrap();
    let found = values(&reader(dir.path()), &KEYS);
    assert_eq!(found.iter().filter(|value| **value == 1).count(), 2, "{found:?}");
    at.store(1, SeqCst);
    collecting.core.collect(Duration::ZERO).unwrap();
    assert_eq!(at.load(SeqCst), 3);
    assert_eq!(values(&reader(dir.path()), &KEYS), found);
    assert_eq!(values(&collecting, &KEYS), found);
}

/// On a full disk there is no room for the changes of an eviction. Index runs make room; no row goes before the changes say so.
#[test]
fn index_runs_make_room_for_the_changes_of_an_eviction_and_rows_do_not() {
    for runs_free in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        seal_each(dir.path(), &[&["x"], &["y"], &["z"]]);
        let (segments, runs) = (names(dir.path(), "seg-"), names(dir.path(), "run-").len());
        assert!(runs > 0);
        let path = dir.path().to_owned();
        let steps = Faulty::with(move |_, step, file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let is_change = name.starts_with("change-") || name.starts_with("tmp-");
            let is_full = names(&path, "run-").len() == runs || !runs_free;
            (step == "create_file" && is_change && is_full).then_some(Fault::Refused(ErrorKind::StorageFull))
        });
        let evicting = with_operations(dir.path(), steps);
        assert_eq!(values(&evicting, &KEYS), [1; 3]);
        let evicted = evict(&evicting.core, Excess::Segments(1), EvictionOrder::OLDEST);
        assert_eq!(evicted.is_ok(), runs_free, "{evicted:?}");
        assert_eq!(names(dir.path(), "seg-").len(), segments.len() - usize::from(runs_free));
        let found = values(&process(dir.path()), &KEYS);
        assert_eq!(found.iter().filter(|value| **value == -1).count(), usize::from(runs_free));
        assert_eq!(values(&evicting, &KEYS), found);
    }
}

/// A segment in which x and y are joined, beside that of z; other rows were evicted before. Returns the name of the first.
fn joined_after_an_eviction(dir: &Path) -> String {
    let store = process(dir);
    compute(&store, &["old"], 1);
    seal_all(&store);
    evict(&store.core, Excess::Segments(1), EvictionOrder::OLDEST).unwrap();
    for key in ["x", "y"] {
        compute(&store, &[key], 1);
        seal_all(&store);
    }
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
    let [joined] = &names(dir, "seg-")[..] else { panic!("{:?}", names(dir, "seg-")) };
    compute(&store, &["z"], 1);
    seal_all(&store);
    joined.clone()
}

#[test]
fn a_joined_segment_stays_that_cannot_be_opened_while_others_are_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let joined = joined_after_an_eviction(dir.path());
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_joined = path.file_name().is_some_and(|name| *name == *joined);
        let fails = step == "open" && is_joined && failing.load(SeqCst);
        fails.then_some(Fault::Refused(ErrorKind::Other))
    });
    let evicting = with_operations(dir.path(), steps);
    evict(&evicting.core, Excess::Segments(1), EvictionOrder::OLDEST).unwrap();
    fails.store(false, SeqCst);
    assert_eq!(values(&process(dir.path()), &KEYS), [1, 1, -1]);
}

/// A network file system may show a part of it.
#[test]
fn a_joined_segment_stays_of_which_a_part_is_seen_while_others_are_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let joined = dir.path().join("m_v1").join(joined_after_an_eviction(dir.path()));
    let bytes = std::fs::read(&joined).unwrap();
    std::fs::remove_file(&joined).unwrap();
    std::fs::write(&joined, &bytes[..bytes.len() / 2]).unwrap();
    evict(&process(dir.path()).core, Excess::Segments(1), EvictionOrder::OLDEST).unwrap();
    std::fs::remove_file(&joined).unwrap();
    std::fs::write(&joined, &bytes).unwrap();
    assert_eq!(values(&process(dir.path()), &KEYS), [1, 1, -1]);
}

/// A process learns by their names of the two changes of an eviction, which keeps what was joined. No listing has shown it that.
#[test]
fn a_replacement_is_found_if_an_eviction_is_known_before_what_its_segment_was_joined_to() {
    let dir = tempfile::tempdir().unwrap();
    with_a_replacement(dir.path());
    let evicting = process(dir.path());
    evicting.core.collect(Duration::ZERO).unwrap();
    go_ahead(Duration::from_secs(10));
    seal_each(dir.path(), &[&["y"]]);
    evicting.refresh().unwrap();
    let (waits, path) = (Arc::new(AtomicBool::new(false)), dir.path().to_owned());
    let waiting = waits.clone();
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_change = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("change-"));
        if step == "link" && is_change && waiting.swap(false, SeqCst) {
            process(&path).core.compact(Effort::Thorough).unwrap();
            evict(&evicting.core, Excess::Segments(1), EvictionOrder::OLDEST).unwrap();
        }
        None
    });
    let other = with_operations(dir.path(), steps);
    // A listing was made a moment ago, and none is due.
    go_ahead(Duration::from_hours(1));
    other.refresh().unwrap();
    go_ahead(Duration::ZERO);
    waits.store(true, SeqCst);
    kill_z(&other);
    assert!(!waits.load(SeqCst));
    compute(&other, &["x"], 3);
    seal_all(&other);
    process(dir.path()).core.compact(Effort::Thorough).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, 1]);
}

/// What a removed segment was joined from may have been joined to another one as well, by a process that was not faster.
#[test]
fn the_first_change_of_an_eviction_names_all_that_its_segments_were_joined_from() {
    let dir = tempfile::tempdir().unwrap();
    seal_each(dir.path(), &[&["x"], &["y"]]);
    let input = names(dir.path(), "seg-")[0].clone();
    let joining = process(dir.path());
    joining.compact().unwrap();
    joining.core.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    let created = AtomicUsize::new(0);
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_change = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("change-"));
        let is_new = is_change && ["link", "rename_no_replace"].contains(&step);
        // One that cannot be linked is renamed.
        (is_new && created.fetch_add(1, SeqCst) > 0).then_some(Fault::Refused(ErrorKind::Other))
    });
    with_operations(dir.path(), steps).make_room(1).unwrap_err();
    let Some(FileName::Segment(input)) = FileName::parse(&input) else { panic!("{input} is a segment") };
    let other = process(dir.path());
    let lineage = Lineage { inputs: &[input], ..Lineage::default() };
    let joined = Dated { base: 0, born: 0, name: Random([7; 16]), lineage };
    assert!(other.core.snapshot().tombstones.doubt_segment(joined), "no process removes what it stands for");
}
