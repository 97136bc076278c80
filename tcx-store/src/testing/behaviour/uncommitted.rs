//! A replacement whose change is not there counts for nothing: it was not created, has not arrived, or was repaired.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::replaced_at_once::{fresh, with_a_row};
use crate::testing::{
    Fault, Faulty, keys, kill_z, names, process, reader, replace, seal_all, values, with_operations,
};
use crate::{Inspection, RecomputeSession, SegmentState};

/// A row that is written as a replacement whose tombstone is not created: its process dies before. The store is one whose process is dead.
pub(super) fn killed_before_the_commit(dir: &Path) -> String {
    let before = names(dir, "seg-");
    let dead = Arc::<AtomicBool>::default();
    let dies = dead.clone();
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("change-"));
        if matches!(step, "link" | "rename_no_replace") && is_change {
            dies.store(true, SeqCst);
        }
        dies.load(SeqCst).then_some(Fault::Refused(ErrorKind::Other))
    });
    let store = with_operations(dir, steps);
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    store.flush().unwrap_err();
    drop(store);
    let named: Vec<_> = names(dir, "seg-").into_iter().filter(|name| !before.contains(name)).collect();
    let [segment] = named.as_slice() else { panic!("{named:?}") };
    segment.clone()
}

fn state(dir: &Path, segment: &str) -> Option<SegmentState> {
    let inspection = Inspection::open(&dir.join("m_v1")).unwrap();
    inspection.segments().find(|own| own.name == segment).map(|own| own.state.clone())
}

#[test]
fn a_replacement_that_was_not_committed_is_never_served_and_is_collected_once_nothing_can_commit_it() {
    let dir = with_a_row();
    let segment = killed_before_the_commit(dir.path());
    let other = process(dir.path());
    assert_eq!((values(&other, &["x"]), fresh(dir.path())), (vec![1], vec![1]));
    assert_eq!(state(dir.path(), &segment), Some(SegmentState::Uncommitted));
    let verified = crate::verify(&dir.path().join("m_v1"), &mut |_, _| {}).unwrap();
    assert_eq!((verified.damage.len(), verified.unreadable.len()), (0, 0), "{verified:?}");
    other.collect(Duration::ZERO).unwrap();
    other.compact().unwrap();
    assert_eq!(state(dir.path(), &segment), Some(SegmentState::Uncommitted), "its process may be at work");
    // The number is given to another change.
    other.invalidate(&keys(&["other"])).unwrap();
    assert_eq!(state(dir.path(), &segment), Some(SegmentState::Void));
    assert_eq!(
        (values(&other, &["x"]), fresh(dir.path()), values(&reader(dir.path()), &["x"])),
        (vec![1], vec![1], vec![1])
    );
    other.compact().unwrap();
    assert_eq!(fresh(dir.path()), [1]);
    other.collect(Duration::ZERO).unwrap();
    assert_eq!(state(dir.path(), &segment), None, "it is collected");
    assert_eq!(fresh(dir.path()), [1]);
}

#[test]
fn a_number_that_only_a_replacement_counts_on_is_given_to_another_change() {
    let dir = with_a_row();
    killed_before_the_commit(dir.path());
    let other = process(dir.path());
    other.refresh().unwrap();
    other.invalidate(&keys(&["x"])).unwrap();
    assert_eq!(fresh(dir.path()), [-1], "the replacement was looked up before the invalidation");
    replace(&other, &RecomputeSession::new(), &["x"], 5);
    other.flush().unwrap();
    assert_eq!((values(&other, &["x"]), fresh(dir.path())), (vec![5], vec![5]));
}

#[test]
fn a_replacement_is_served_when_its_change_arrives() {
    let dir = with_a_row();
    let store = process(dir.path());
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&store);
    let change = dir.path().join("m_v1/change-00000000000000000001");
    let (bytes, elsewhere) = (std::fs::read(&change).unwrap(), dir.path().join("away"));
    std::fs::rename(&change, &elsewhere).unwrap();
    // A part of a copy.
    let copy = reader(dir.path());
    assert_eq!(values(&copy, &["x"]), [1]);
    let writer = process(dir.path());
    std::fs::write(&change, bytes).unwrap();
    assert_eq!((values(&copy, &["x"]), values(&writer, &["x"])), (vec![1000], vec![1000]));
}

#[test]
fn a_replacement_is_found_by_the_header_of_its_change_where_changes_are_merged() {
    let dir = with_a_row();
    let store = process(dir.path());
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&store);
    for _ in 0..20 {
        kill_z(&store);
    }
    crate::upkeep::tasks::merge_changes(&store.core);
    assert_eq!(names(dir.path(), "merged-").len(), 1);
    assert_eq!((values(&store, &["x"]), fresh(dir.path())), (vec![1000], vec![1000]));
}

#[test]
fn a_replacement_whose_damaged_change_was_repaired_is_not_served() {
    let dir = with_a_row();
    let store = process(dir.path());
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&store);
    drop(store);
    let folder = dir.path().join("m_v1");
    let change = folder.join("change-00000000000000000001");
    let mut bytes = std::fs::read(&change).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(&change).unwrap();
    std::fs::write(&change, bytes).unwrap();
    assert_eq!(fresh(dir.path()), [1000], "its nonce says enough");
    let damage = crate::verify(&folder, &mut |_, _| {}).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    crate::repair(&folder, &damage, &mut |_, _| {}).unwrap();
    assert_eq!(fresh(dir.path()), [-1]);
}
