//! A damaged change is repaired while processes run that have read it when it was sound: for them, too, everything before it is dead.
//!
//! Changes are merged where a test says so and nowhere else: the writer, which would merge them in its own time, seals nothing here.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::changes::Doomed;
use crate::testing::{
    change, column, compute, damage, forget_announcement, keys, kill_z, module, names, process, replace,
    rewrite, seal_all, values,
};
use crate::upkeep::tasks::merge_changes;
use crate::{DamagedFile, LookupOptions, RecomputeSession, Store};

/// Returns how many files were repaired.
fn repair(dir: &Path) -> usize {
    let found = crate::verify(&module(dir), &mut |_, _| {}).unwrap().damage;
    let repaired = crate::repair(&module(dir), &found, &mut |_, _| {}).unwrap();
    assert_eq!(crate::verify(&module(dir), &mut |_, _| {}).unwrap().damage, []);
    repaired.len()
}

fn put(store: &Store, wanted: &[&str], value: i64) {
    let mut rows = store.lookup_to_put(keys(wanted), None).unwrap();
    let missing = rows.distinct_missing_positions();
    assert_eq!(missing.len(), wanted.len(), "nothing is in the place of these");
    store.insert(&mut rows, &missing, column(&vec![value; missing.len()])).unwrap();
    seal_all(store);
}

/// A process that has written rows, one a segment, and then knows `changes` changes that name none of them.
fn with_changes(dir: &Path, changes: usize) -> Store {
    let store = process(dir);
    for key in ["x", "y"] {
        compute(&store, &[key], 1);
        seal_all(&store);
    }
    (0..changes).for_each(|_| kill_z(&store));
    assert_eq!(values(&store, &["x", "y"]), [1, 1]);
    store
}

#[test]
fn a_value_that_is_put_after_a_repair_is_served_by_a_process_that_knew_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_changes(dir.path(), 3);
    damage(dir.path(), &change(2));
    assert_eq!(repair(dir.path()), 1);
    let after = process(dir.path());
    put(&after, &["x"], 2);
    for store in [&before, &after, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [2, -1]);
    }
}

#[test]
fn rows_that_a_repair_has_killed_stay_dead_when_segments_are_joined_and_changes_merged() {
    for merges in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let before = with_changes(dir.path(), 12);
        damage(dir.path(), &change(1));
        assert_eq!(repair(dir.path()), 1);
        put(&process(dir.path()), &["x"], 2);
        if merges {
            (0..12).for_each(|_| kill_z(&before));
            merge_changes(&before.core);
            assert_eq!(names(dir.path(), "merged-").len(), 1);
        } else {
            before.compact().unwrap();
        }
        for store in [&before, &process(dir.path())] {
            assert_eq!(values(store, &["x", "y"]), [2, -1]);
        }
    }
}

#[test]
fn a_new_change_comes_before_the_repairs_and_one_after_them_even_of_the_newest_change() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_changes(dir.path(), 6);
    for number in [2, 3, 5] {
        damage(dir.path(), &change(number));
    }
    assert_eq!((repair(dir.path()), names(dir.path(), "change-").len()), (3, 10));
    assert_eq!(values(&store, &["x", "y"]), [-1, -1]);
    compute(&store, &["x"], 3);
    seal_all(&store);
    damage(dir.path(), &change(8));
    // Another process may make the next change in this moment.
    assert_eq!((repair(dir.path()), names(dir.path(), "change-").len()), (1, 13));
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [3, -1]);
    }
}

#[test]
fn a_repaired_change_that_merged_changes_contain_kills_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_changes(dir.path(), 16);
    merge_changes(&before.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    before.invalidate(&keys(&["y"])).unwrap();
    damage(dir.path(), &change(4));
    assert_eq!((repair(dir.path()), names(dir.path(), "change-").len()), (1, 20));
    for store in [&before, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [1, -1]);
    }
}

/// A process that has written rows, of which change 1 has replaced x, and that then knows `changes` more.
fn with_a_replacement(dir: &Path, changes: usize) -> Store {
    let store = process(dir);
    for key in ["x", "y"] {
        compute(&store, &[key], 1);
        seal_all(&store);
    }
    replace(&store, &RecomputeSession::new(), &["x"], 2);
    seal_all(&store);
    (0..changes).for_each(|_| kill_z(&store));
    assert_eq!(values(&store, &["x", "y"]), [2, 1]);
    store
}

#[test]
fn rows_that_a_repaired_change_had_committed_are_missing_to_all_though_merged_changes_contain_it() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_a_replacement(dir.path(), 16);
    merge_changes(&before.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    damage(dir.path(), &change(1));
    assert_eq!(repair(dir.path()), 1);
    let after = process(dir.path());
    for store in [&before, &after] {
        assert_eq!(values(store, &["x", "y"]), [-1, 1]);
    }
    put(&after, &["x"], 3);
    for store in [&before, &after, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [3, 1]);
    }
}

/// The repair was killed before it had announced itself.
#[test]
fn an_interrupted_repair_is_found_and_announced_to_processes_that_had_read_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_a_replacement(dir.path(), 2);
    damage(dir.path(), &change(1));
    assert_eq!(repair(dir.path()), 1);
    forget_announcement(dir.path());
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, -1]);
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    assert_eq!(found.iter().map(|damage| damage.kind).collect::<Vec<_>>(), [DamagedFile::UnfinishedRepair]);
    assert_eq!((repair(dir.path()), repair(dir.path())), (1, 0));
    for store in [&before, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [-1, -1]);
    }
}

/// There was a repair before, which was announced.
#[test]
fn a_second_repair_that_is_interrupted_is_found_whatever_it_puts_in_the_place_of_a_change() {
    for merges in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let before = with_a_replacement(dir.path(), 17);
        if merges {
            merge_changes(&before.core);
            assert_eq!(names(dir.path(), "merged-").len(), 1);
        }
        damage(dir.path(), &change(5));
        assert_eq!(repair(dir.path()), 1);
        damage(dir.path(), &change(1));
        assert_eq!(repair(dir.path()), 1);
        forget_announcement(dir.path());
        let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
        let kinds: Vec<_> = found.iter().map(|damage| damage.kind).collect();
        assert_eq!(kinds, [DamagedFile::UnfinishedRepair], "merges: {merges}");
        assert_eq!((repair(dir.path()), repair(dir.path())), (1, 0));
        let fresh = values(&process(dir.path()), &["x", "y"]);
        assert_eq!((values(&before, &["x", "y"]), fresh[0]), (fresh.clone(), -1), "merges: {merges}");
    }
}

#[test]
fn a_process_that_knows_of_a_repair_by_merged_changes_alone_serves_no_row_that_the_change_had_committed() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_a_replacement(dir.path(), 1);
    let other = process(dir.path());
    assert_eq!(values(&other, &["x", "y"]), [2, 1]);
    damage(dir.path(), &change(1));
    assert_eq!(repair(dir.path()), 1);
    assert_eq!(values(&other, &["x", "y"]), [-1, -1], "it reads each change");
    let after = process(dir.path());
    (0..16).for_each(|_| kill_z(&after));
    merge_changes(&after.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    for store in [&before, &after] {
        assert_eq!(values(store, &["x", "y"]), [-1, -1]);
    }
    put(&after, &["x"], 3);
    for store in [&before, &after, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [3, -1]);
    }
}

#[test]
fn an_older_copy_that_was_repaired_as_well_is_another_folder() {
    let dir = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let before = with_changes(dir.path(), 3);
    copy_files(&module(dir.path()), &module(copy.path()));
    for folder in [&dir, &copy] {
        process(folder.path()).invalidate(&keys(&["y"])).unwrap();
        damage(folder.path(), &change(2));
        assert_eq!(repair(folder.path()), 1);
    }
    before.refresh().unwrap();
    fs::remove_dir_all(module(dir.path())).unwrap();
    copy_files(&module(copy.path()), &module(dir.path()));
    assert_eq!(before.refresh().unwrap_err().kind(), crate::ErrorKind::Replaced);
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in
        fs::read_dir(from).unwrap().map(Result::unwrap).filter(|file| file.file_type().unwrap().is_file())
    {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn a_repaired_change_says_what_merged_changes_said_after_these_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let before = process(dir.path());
    for key in ["a", "pre/b", "x", "y"] {
        compute(&before, &[key], 1);
        seal_all(&before);
    }
    before.core.kill(Doomed::Keys(vec![b"a".as_slice().into()])).unwrap();
    before.core.kill(Doomed::Prefix(b"pre/".as_slice().into())).unwrap();
    (0..16).for_each(|_| kill_z(&before));
    merge_changes(&before.core);
    let merged = names(dir.path(), "merged-");
    assert_eq!(merged.len(), 1);
    (1..=3).for_each(|number| damage(dir.path(), &change(number)));
    assert_eq!(repair(dir.path()), 3);
    fs::remove_file(module(dir.path()).join(&merged[0])).unwrap();
    for store in [&process(dir.path()), &before, &process(dir.path())] {
        assert_eq!(values(store, &["a", "pre/b", "x", "y"]), [-1, -1, 1, 1]);
    }
}

#[test]
fn what_a_repair_has_killed_stays_dead_beside_changes_that_were_merged_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_changes(dir.path(), 16);
    assert_eq!(names(dir.path(), "merged-").len(), 0);
    damage(dir.path(), &change(2));
    assert_eq!(repair(dir.path()), 1);
    // This process does not know of the repair yet.
    merge_changes(&before.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    let after = process(dir.path());
    put(&after, &["x"], 2);
    for store in [&before, &after, &before, &after, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [2, -1]);
    }
}

/// A process whose recompute session has replaced x by change 1, and another process.
fn with_own_change(dir: &Path) -> (Store, Arc<RecomputeSession>, Store) {
    let store = with_changes(dir, 0);
    let session = RecomputeSession::new();
    assert_eq!(replace(&store, &session, &["x"], 2), 1);
    seal_all(&store);
    (store, session, process(dir))
}

/// Merges what another process has made dead.
fn merge(other: &Store, dir: &Path) {
    (0..17).for_each(|_| kill_z(other));
    merge_changes(&other.core);
    assert_eq!(names(dir, "merged-").len(), 1);
}

/// The change by which a repair begins has the number of the damaged one for everything before it.
#[test]
fn a_recompute_session_finds_no_row_of_another_while_its_change_is_being_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session, other) = with_own_change(dir.path());
    (0..2).for_each(|_| kill_z(&other));
    compute(&other, &["w"], 1);
    seal_all(&other);
    assert_eq!(not_computed(&store, &session, &["w"]), 1);
    damage(dir.path(), &change(1));
    assert_eq!(repair(dir.path()), 1);
    forget_announcement(dir.path());
    assert_eq!(not_computed(&store, &session, &["w"]), 1);
}

/// The repair was killed after its first two changes, and a process that had read the damaged one before merges them.
#[test]
fn a_recompute_session_finds_no_row_of_another_after_the_begin_of_a_repair_was_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session, other) = with_own_change(dir.path());
    (0..2).for_each(|_| kill_z(&other));
    compute(&other, &["w"], 1);
    seal_all(&other);
    store.refresh().unwrap();
    damage(dir.path(), &change(1));
    let damaged = fs::read(module(dir.path()).join(change(1))).unwrap();
    assert_eq!(repair(dir.path()), 1);
    forget_announcement(dir.path());
    rewrite(&module(dir.path()).join(change(1)), &damaged);
    merge(&other, dir.path());
    assert_eq!(not_computed(&store, &session, &["w"]), 1);
}

#[test]
fn a_recompute_session_finds_no_row_of_another_after_a_repair_that_was_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session, other) = with_own_change(dir.path());
    (0..3).for_each(|_| kill_z(&other));
    store.refresh().unwrap();
    damage(dir.path(), &change(1));
    assert_eq!(repair(dir.path()), 1);
    compute(&other, &["w"], 1);
    seal_all(&other);
    merge(&other, dir.path());
    assert_eq!(not_computed(&store, &session, &["w"]), 1);
}

/// How many of these rows the session has not computed, as it finds them.
fn not_computed(store: &Store, session: &Arc<RecomputeSession>, wanted: &[&str]) -> usize {
    store.refresh().unwrap();
    let options = LookupOptions { recompute: Some(session), ..LookupOptions::default() };
    store.lookup_with(keys(wanted), options).unwrap().missing()
}

#[test]
fn a_recompute_session_finds_no_row_of_another_after_its_change_was_repaired() {
    for is_merged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, session, other) = with_own_change(dir.path());
        (0..17).for_each(|_| kill_z(&other));
        if is_merged {
            merge_changes(&other.core);
        }
        assert_eq!(not_computed(&store, &session, &["x"]), 0);
        assert_eq!(not_computed(&store, &session, &["y"]), 1);
        damage(dir.path(), &change(1));
        assert_eq!(repair(dir.path()), 1);
        assert_eq!(values(&other, &["x", "y"]), [-1, if is_merged { 1 } else { -1 }]);
        compute(&other, &["x", "y"], 3);
        seal_all(&other);
        assert_eq!(not_computed(&store, &session, &["x", "y"]), 2, "merged: {is_merged}");
        // It computes both, and knows them for its own.
        assert_eq!(replace(&store, &session, &["x", "y"], 4), 2);
        seal_all(&store);
        assert_eq!(not_computed(&store, &session, &["x", "y"]), 0, "merged: {is_merged}");
    }
}
