use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::index::build_run;
use crate::schema::key::KeySeed;
use crate::segment::Verdict;
use crate::storage::{LocalStorage, ReadOnlyStorage};
use crate::sys::bytes::Random;
use crate::testing::{Fault, Faulty};
use crate::testing::{compute, kill_z, names, process, rewrite, seal_all, values};
use crate::{Options, ReadMode, Store};

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for key in ["a", "b", "c"] {
        let store = process(dir.path());
        compute(&store, &[key], 7);
        store.flush().unwrap();
        store.invalidate(&crate::testing::keys(&["x"])).unwrap();
    }
    dir
}

fn file(dir: &Path, prefix: &str) -> PathBuf {
    let mut names = names(dir, prefix);
    names.sort();
    dir.join("m_v1").join(&names[0])
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn verified(dir: &Path) -> VerifyReport {
    verify(&dir.join("m_v1"), &mut |read, total| assert!(read <= total)).unwrap()
}

fn repaired(dir: &Path) -> Vec<Repaired> {
    let found = verified(dir).damage;
    let repaired = repair(&dir.join("m_v1"), &found, &mut |_, _| {}).unwrap();
    assert_eq!(verified(dir).damage, []);
    repaired
}

#[test]
fn a_sound_folder_is_read_in_full_and_left_as_it_is() {
    let dir = filled();
    let before = names(dir.path(), "");
    let verified = verified(dir.path());
    assert_eq!(verified.damage, []);
    assert_eq!((verified.segments, verified.rows, verified.changes), (3, 3, 4));
    let sizes = before.iter().map(|name| fs::metadata(dir.path().join("m_v1").join(name)).unwrap().len());
    assert_eq!(verified.bytes, sizes.sum::<u64>());
    assert_eq!(names(dir.path(), ""), before);
}

#[test]
fn a_damaged_segment_is_moved_aside_and_the_others_are_served() {
    let dir = filled();
    damage(&file(dir.path(), "seg-"));
    let [done] = &repaired(dir.path())[..] else { panic!("one repair") };
    assert_eq!(done.damage.kind, DamagedFile::Segment);
    assert!(dir.path().join("m_v1/damaged").join(&done.damage.file).exists());
    assert_eq!(names(dir.path(), "seg-").len(), 2);
    let found = values(&process(dir.path()), &["a", "b", "c"]);
    assert_eq!(found.iter().filter(|value| **value == 7).count(), 2);
}

#[test]
fn a_run_that_disagrees_with_the_keys_is_removed_and_made_again() {
    let dir = filled();
    let name = file(dir.path(), "seg-").file_name().unwrap().to_str().unwrap().to_owned();
    let Some(FileName::Segment(segment)) = FileName::parse(&name) else { panic!("a segment") };
    let run = FileName::Run(Random::new()).to_string();
    fs::write(dir.path().join("m_v1").join(&run), build_run(KeySeed::NONE, &[(segment, vec![17])])).unwrap();
    let [found] = &verified(dir.path()).damage[..] else { panic!("one damage") };
    assert_eq!((&found.file, found.kind), (&run, DamagedFile::Run));
    repaired(dir.path());
    assert_eq!(values(&process(dir.path()), &["a", "b", "c"]), [7, 7, 7]);
}

#[test]
fn a_damaged_change_becomes_a_tombstone_for_everything_before_it() {
    let dir = filled();
    damage(&dir.path().join("m_v1/change-00000000000000000002"));
    // A is older than change 2, b was sealed before it, c after it.
    assert_eq!(values(&process(dir.path()), &["a", "b", "c"]), [-1, -1, 7]);
    let done = repaired(dir.path());
    assert_eq!(done[0].damage.kind, DamagedFile::Change);
    let store = process(dir.path());
    assert_eq!(values(&store, &["a", "b", "c"]), [-1, -1, 7]);
    store.compact().unwrap();
    // Three say so to processes that have read the change and later ones, or join the rows at this time.
    assert_eq!(names(dir.path(), "change-").len(), 7);
}

#[test]
fn a_lost_change_is_told_and_repaired_too() {
    let dir = filled();
    fs::remove_file(dir.path().join("m_v1/change-00000000000000000001")).unwrap();
    let done = repaired(dir.path());
    assert!(done[0].damage.what.contains("missing"), "{}", done[0].damage.what);
    assert_eq!(values(&process(dir.path()), &["a", "b", "c"]), [-1, 7, 7]);
}

#[test]
fn a_lost_change_that_only_rows_count_on_is_told_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a"], 7);
    store.flush().unwrap();
    store.invalidate(&crate::testing::keys(&["a"])).unwrap();
    compute(&store, &["b"], 7);
    store.flush().unwrap();
    drop(store);
    fs::remove_file(dir.path().join("m_v1/change-00000000000000000001")).unwrap();
    let done = repaired(dir.path());
    assert!(done[0].damage.what.contains("missing"), "{}", done[0].damage.what);
    assert_eq!(values(&process(dir.path()), &["a", "b"]), [-1, 7]);
}

#[test]
fn a_file_with_the_name_of_a_change_that_was_never_made_is_told_and_moved_away() {
    let dir = filled();
    let folder = dir.path().join("m_v1");
    for name in ["change-18446744073709551614", "change-00000000000000500000", "merged-18446744073709551613"]
    {
        fs::write(folder.join(name), "x").unwrap();
    }
    process(dir.path()).invalidate_all().unwrap_err();
    let mut done: Vec<_> = repaired(dir.path()).into_iter().map(|own| (own.damage.kind, own.done)).collect();
    done.sort_by_key(|(kind, _)| *kind != DamagedFile::Stray);
    let kinds: Vec<_> = done.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [DamagedFile::Stray, DamagedFile::Stray, DamagedFile::Merged]);
    assert_eq!(done[0].1, "moved into `damaged`");
    let store = process(dir.path());
    assert_eq!(values(&store, &["a", "b", "c"]), [7, 7, 7]);
    store.invalidate_all().unwrap();
    assert_eq!(values(&process(dir.path()), &["a"]), [-1]);
}

#[test]
fn sound_files_behind_a_wide_gap_are_left_as_they_are() {
    let dir = filled();
    let folder = dir.path().join("m_v1");
    let zero = fs::read(folder.join("change-00000000000000000000")).unwrap();
    let instance = crate::changes::IdentityChange::decode(&zero).unwrap().instance;
    let change = folder.join("change-00000000000000500000");
    fs::write(&change, crate::changes::tombstone_for_everything(instance, 500_000)).unwrap();
    let before = names(dir.path(), "");
    assert_eq!(repaired(dir.path()).len(), 0);
    assert_eq!(names(dir.path(), ""), before);
    let [(name, why)] = &verified(dir.path()).unreadable[..] else { panic!("one is unreadable") };
    assert!(name == "change-00000000000000500000" && why.contains("copy the rest"), "{name}: {why}");
}

#[test]
fn a_damaged_identity_cannot_be_repaired() {
    let dir = filled();
    damage(&dir.path().join("m_v1/change-00000000000000000000"));
    let error = verify(&dir.path().join("m_v1"), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("restore this file from a backup"), "{error}");
}

#[test]
fn what_was_repaired_meanwhile_is_left_alone() {
    let dir = filled();
    let other = Damage {
        file: names(dir.path(), "seg-")[0].clone(),
        kind: DamagedFile::Segment,
        what: String::new(),
    };
    assert_eq!(repair(&dir.path().join("m_v1"), &[other], &mut |_, _| {}).unwrap(), []);
    assert_eq!(names(dir.path(), "seg-").len(), 3);
}

#[test]
fn what_cannot_be_read_is_told_and_left_where_it_is() {
    let dir = filled();
    let unreadable =
        ["change-00000000000000000001", &names(dir.path(), "seg-")[0], &names(dir.path(), "run-")[0]];
    for name in unreadable {
        // No plain file: opening it fails, also for root.
        let path = dir.path().join("m_v1").join(name);
        fs::rename(&path, dir.path().join(name)).unwrap();
        fs::create_dir(path).unwrap();
    }
    let found = verified(dir.path());
    let mut told: Vec<&str> = found.unreadable.iter().map(|(file, _)| file.as_str()).collect();
    let mut expected = unreadable.to_vec();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!((told, &found.damage[..]), (expected, &[][..]));
    let claimed = unreadable.map(|name| Damage {
        file: name.to_owned(),
        kind: DamagedFile::Segment,
        what: String::new(),
    });
    assert_eq!(repair(&dir.path().join("m_v1"), &claimed, &mut |_, _| {}).unwrap(), []);
    for name in unreadable {
        let path = dir.path().join("m_v1").join(name);
        fs::remove_dir(&path).unwrap();
        fs::rename(dir.path().join(name), path).unwrap();
    }
    assert_eq!(verified(dir.path()).unreadable, []);
}

#[test]
fn a_segment_that_is_collected_meanwhile_is_not_told() {
    let dir = filled();
    let (module, gone) = (dir.path().join("m_v1"), file(dir.path(), "seg-"));
    for storage in [ReadOnlyStorage::new(module.clone()), ReadOnlyStorage::reading(module)] {
        let inspection = Inspection::of(storage).unwrap();
        let kept = fs::read(&gone).unwrap();
        fs::remove_file(&gone).unwrap();
        let found = verify_all(&inspection, &mut |_, _| {}).unwrap();
        assert_eq!((found.damage, found.unreadable), (Vec::new(), Vec::new()));
        fs::write(&gone, kept).unwrap();
    }
}

#[test]
fn files_that_are_read_and_not_mapped_are_verified_and_gone_through_as_others_are() {
    let dir = filled();
    damage(&file(dir.path(), "seg-"));
    let look = |storage| {
        let inspection = Inspection::of(storage).unwrap();
        let rows: Vec<_> = inspection.rows().map(|row| row.map(|row| row.key.to_vec()).ok()).collect();
        (verify_all(&inspection, &mut |_, _| {}).unwrap(), inspection.count(), rows)
    };
    let module = dir.path().join("m_v1");
    let read = look(ReadOnlyStorage::reading(module.clone()));
    assert_eq!(read, look(ReadOnlyStorage::new(module)));
    assert_eq!((read.0.damage.len(), read.0.unreadable.len(), read.2.len()), (1, 0, 2));
}

#[test]
fn a_segment_that_cannot_be_read_to_its_end_is_not_taken_for_a_damaged_one() {
    let dir = filled();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let steps = Faulty::with(move |_, step, _| {
        (step == "read_at" && failing.load(SeqCst)).then_some(Fault::Refused(std::io::ErrorKind::Other))
    });
    let options = Options { read_mode: ReadMode::Pread, memory_cache_bytes: 0, ..Options::default() };
    let storage = LocalStorage::new(dir.path().join("m_v1"), steps).reading(ReadMode::Pread);
    let store = Store::with_storage(Arc::new(storage), crate::testing::spec(), &options).unwrap();
    let segments = store.core.live().segments.usable();
    assert!(segments.iter().all(|segment| segment.judge_all() == Verdict::Sound));
    fails.store(true, SeqCst);
    assert!(segments.iter().all(|segment| segment.judge_all() == Verdict::Unread));
}

#[test]
fn a_byte_anywhere_in_large_segments_is_read_and_told_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    for part in 0..3 {
        let ids: Vec<String> = (0..20_000).map(|row| format!("{part} {row}")).collect();
        compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>(), 7);
        seal_all(&store);
    }
    drop(store);
    let sound = verified(dir.path());
    assert_eq!((sound.damage.len(), sound.rows), (0, 60_000));
    let mut segments = names(dir.path(), "seg-");
    segments.sort();
    let path = dir.path().join("m_v1").join(&segments[1]);
    let bytes = fs::read(&path).unwrap();
    // A value behind the first block of them, in neither the first row nor the last.
    let value = bytes.windows(8).rposition(|window| window == 7_i64.to_le_bytes()).unwrap() - 70_000;
    for at in [0, value, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, damaged).unwrap();
        let found = verified(dir.path());
        assert!(
            found.damage.iter().any(|damage| damage.file == segments[1]),
            "byte {at}: {:?}",
            found.damage
        );
        assert!(
            found
                .damage
                .iter()
                .all(|damage| damage.kind != DamagedFile::Segment || damage.file == segments[1])
        );
        assert_eq!(found.bytes, sound.bytes);
    }
}

/// A change of a coming version of the format is no damage.
#[test]
fn a_repair_leaves_a_change_of_a_newer_version_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1000);
    seal_all(&store);
    kill_z(&store);
    drop(store);
    let path = dir.path().join("m_v1").join("change-00000000000000000001");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 2;
    let at = bytes.len() - 8;
    let sum = crate::sys::checksum::checksum(&bytes[..at]);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
    rewrite(&path, &bytes);
    let module = dir.path().join("m_v1");
    let found = crate::verify(&module, &mut |_, _| {}).unwrap();
    let repaired = crate::repair(&module, &found.damage, &mut |_, _| {}).unwrap();
    let now = std::fs::read(&path).unwrap();
    assert!(now == bytes, "damage {:?}, repaired {repaired:?}", found.damage);
}
