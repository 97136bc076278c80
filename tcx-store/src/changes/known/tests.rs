//! What a process knows of the changes of its folder.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::Keys;
use crate::changes::merge::MergePlan;
use crate::changes::new_tombstone::Doomed;
use crate::changes::read::Doubt;
use crate::changes::same::{Compared, Origin};
use crate::changes::{
    Dated, KIND_IDENTITY, KIND_MERGED, KnownChanges, Lineage, ListedChanges, Needs, encode, news_of_repairs,
    tombstone_for_everything,
};
use crate::storage::name::FileName;
use crate::storage::{FileInfo, LocalStorage, Storage, System};
use crate::sys::bytes::Random;

fn dated(base: u64) -> Dated<'static> {
    Dated { base, born: 0, name: Random([0; 16]), lineage: Lineage::default() }
}

/// The needs of a segment that replaces nothing.
fn plain(base: u64) -> Needs {
    Needs { base, commit: None }
}

fn keys(range: std::ops::Range<usize>) -> Doomed {
    Doomed::Keys(range.map(|i| format!("key {i}").into_bytes().into()).collect())
}

fn listed(storage: &dyn Storage) -> ListedChanges {
    let mut listed = ListedChanges::default();
    for name in storage.list().unwrap() {
        match FileName::parse(&name) {
            Some(FileName::Change(number)) => drop(listed.changes.insert(number)),
            Some(FileName::Merged(number)) => drop(listed.merged.insert(number)),
            _ => {}
        }
    }
    listed
}

const INSTANCE: Random = Random([7; 16]);
const NONCE: Random = Random([9; 16]);

/// A folder with change 0.
fn folder(dir: &Path) -> LocalStorage<System> {
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    storage.make().unwrap();
    let zero = encode(0, KIND_IDENTITY, NONCE, &[]);
    storage.create_if_absent(&FileName::Change(0).to_string(), &zero).unwrap();
    storage
}

fn new(instance: Random) -> KnownChanges {
    let mut known = KnownChanges::default();
    known.learn_identity(Origin { instance, nonce: NONCE }, true);
    known
}

fn known(storage: &dyn Storage) -> KnownChanges {
    let mut known = new(INSTANCE);
    assert!(!known.learn(storage, &listed(storage)));
    known
}

/// Files of another program: merged changes, and the news of a repair.
#[test]
fn a_huge_number_costs_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let number = 1 << 60;
    let merged = encode(number, KIND_MERGED, INSTANCE, &Doomed::Keys(Vec::new()).payload(number));
    storage.create_if_absent(&FileName::Merged(number).to_string(), &merged).unwrap();
    let news = news_of_repairs(INSTANCE, number + 1);
    storage.create_if_absent(&FileName::Change(number + 1).to_string(), &news).unwrap();
    assert_eq!(known(&storage).newest(), Some(number + 1));
}

#[test]
fn a_tombstone_kills_what_is_older_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let mut writer = known(&storage);
    writer.kill(&storage, keys(0..1000)).unwrap();
    writer.kill(&storage, Doomed::Prefix((*b"key 10").into())).unwrap();
    let reader = known(&storage);
    assert_eq!(reader.newest(), Some(2));
    for known in [&writer, &reader] {
        let tombstones = known.tombstones();
        for i in 0..2000 {
            let (key, begins) = (format!("key {i}"), i.to_string().starts_with("10"));
            assert_eq!(tombstones.kill(0, key.as_bytes(), 0), i < 1000 || begins, "{key}");
            assert_eq!(tombstones.kill(1, key.as_bytes(), 0), begins, "{key}");
            assert!(!tombstones.kill(2, key.as_bytes(), 0));
        }
        assert!(!tombstones.kill(0, b"key 1"[..4].as_ref(), 0), "shorter than the prefix");
    }
    writer.kill(&storage, Doomed::All).unwrap();
    assert!(writer.tombstones().kill(2, b"anything", 0));
    assert!(!writer.serves(plain(2), dated(2)) && writer.serves(plain(3), dated(3)));
}

#[test]
fn merged_changes_say_the_same_as_the_changes() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let mut writer = known(&storage);
    for round in 0..40 {
        writer.kill(&storage, keys(round * 10..round * 10 + 30)).unwrap();
        if round % 7 == 0 {
            let prefix = format!("key {round}").into_bytes().into();
            writer.kill(&storage, Doomed::Prefix(prefix)).unwrap();
        }
        if let Some(plan) = writer.mergeable() {
            let number = plan.publish(plan.write(&storage, INSTANCE).unwrap()).unwrap();
            let before = writer.newest();
            writer.adopt_merged(&storage, number);
            assert_eq!(writer.newest(), before);
            assert!(writer.tombstones().tables.len() < 16);
        }
    }
    let merged = known(&storage);
    assert!(merged.tombstones().tables[0].merged_in.is_some());
    let mut single = new(INSTANCE);
    single.learn(&storage, &ListedChanges { merged: BTreeSet::new(), ..listed(&storage) });
    let mut foreign = new(Random([8; 16]));
    foreign.learn(&storage, &listed(&storage));
    for known in [&merged, &single, &foreign] {
        assert_eq!(known.newest(), writer.newest());
        for key in (0..500).map(|i| format!("key {i}")) {
            let newest =
                |known: &KnownChanges| known.tombstones().newest_for_row(&Keys::text([&key], 0).unwrap(), 0);
            assert_eq!(newest(known), newest(&writer), "{key}");
        }
    }
    assert!(foreign.tombstones().tables[0].merged_in.is_none(), "merged for another instance");
}

#[test]
fn a_change_that_cannot_be_verified_kills_all_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let mut writer = known(&storage);
    for _ in 0..3 {
        writer.kill(&storage, keys(0..2)).unwrap();
    }
    let path = dir.path().join("m_v1/change-00000000000000000002");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"damaged").unwrap();
    let reader = known(&storage);
    assert_eq!(reader.newest(), Some(3));
    assert!(!reader.are_settled());
    assert!(!reader.serves(plain(1), dated(1)) && reader.serves(plain(2), dated(2)));
    assert!(reader.tombstones().kill(2, b"key 1", 0) && !reader.tombstones().kill(2, b"key 2", 0));
}

#[test]
fn numbers_that_come_to_an_end_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    for number in [u64::MAX - 1, u64::MAX] {
        let plan = MergePlan { number, tables: Vec::new() };
        plan.publish(plan.write(&storage, INSTANCE).unwrap()).unwrap();
    }
    let mut known = known(&storage);
    assert_eq!(known.newest(), Some(u64::MAX - 1), "the last one names no file");
    assert!(known.kill(&storage, keys(0..1)).unwrap_err().to_string().contains("no number is left"));
    assert!(known.tombstones().kill(u64::MAX - 1, b"key 0", 0), "it holds here all the same");
}

#[test]
fn what_lies_behind_a_gap_is_not_known() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let mut writer = known(&storage);
    assert!(!KnownChanges::default().serves(plain(0), dated(0)), "nothing is known before the identity");
    for _ in 0..3 {
        writer.kill(&storage, keys(0..2)).unwrap();
    }
    let mut reader = new(INSTANCE);
    let mut incomplete = listed(&storage);
    incomplete.changes.remove(&2);
    assert!(reader.learn(&storage, &incomplete));
    assert_eq!(reader.newest(), Some(1));
    assert!(!reader.learn(&storage, &ListedChanges::default()));
    assert_eq!(reader.newest(), Some(1), "what is known is not forgotten");
    assert!(!reader.learn(&storage, &listed(&storage)));
    assert_eq!(reader.newest(), Some(3));
}

#[test]
fn who_finds_the_number_taken_learns_it_and_takes_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let (mut first, mut second) = (known(&storage), known(&storage));
    first.kill(&storage, keys(0..1)).unwrap();
    second.kill(&storage, keys(1..2)).unwrap();
    assert_eq!(second.newest(), Some(2));
    assert!(second.tombstones().kill(0, b"key 0", 0));
}

#[test]
fn the_number_of_a_change_that_is_missing_is_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let storage = folder(dir.path());
    let path = |number| dir.path().join("m_v1").join(FileName::Change(number).to_string());
    let mut original = known(&storage);
    (0..4).for_each(|key| original.kill(&storage, keys(key..key + 1)).unwrap());
    let bytes = |number| std::fs::read(path(number)).unwrap();
    let changes = [2, 3, 4].map(|number| (number, bytes(number)));

    // In the middle, two of them, and at the end, where only a segment tells.
    for missing in [&[2][..], &[2, 3], &[3, 4]] {
        for &number in missing {
            std::fs::remove_file(path(number)).unwrap();
        }
        let mut copy = new(INSTANCE);
        copy.learn(&storage, &listed(&storage));
        copy.count_on(4);
        let error = copy.kill(&storage, keys(7..8)).unwrap_err().to_string();
        let what = format!("change {} is missing", missing[0]);
        assert!(error.contains(&what) && error.contains("tcx verify --repair"), "{error}");
        assert!(copy.tombstones().kill(1, b"key 7", 0), "in this process it is dead");
        assert!(!path(missing[0]).exists());

        // The copy is completed.
        for (number, bytes) in &changes {
            std::fs::write(path(*number), bytes).unwrap();
        }
        copy.learn(&storage, &listed(&storage));
        copy.write_pending(&storage).unwrap();
        assert_eq!(copy.newest(), Some(5));
        std::fs::remove_file(path(5)).unwrap();
    }
}

#[test]
fn a_folder_is_known_by_the_length_and_time_of_a_change_that_could_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, name) = (folder(dir.path()), FileName::Change(1).to_string());
    let put = |bytes: &[u8], written: SystemTime| {
        let mut draft = storage.draft().unwrap();
        draft.write_all(bytes).unwrap();
        draft.publish(&name, false).unwrap();
        File::open(dir.path().join("m_v1").join(&name)).unwrap().set_modified(written).unwrap();
    };
    let change = |keys: Doomed| encode(1, keys.kind(), Random::new(), &keys.payload(1));
    let (first, written) = (change(keys(0..1)), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    put(&first, written);
    let FileInfo { bytes, stamp, .. } = storage.info(&name).unwrap();
    let mut own = new(INSTANCE);
    own.doubt(1, Doubt::Failed(Some((bytes, stamp))));
    assert!(matches!(own.compare(&storage), Compared::Same));
    put(&first, written);
    assert!(matches!(own.compare(&storage), Compared::Same), "it was copied with its time");
    put(&tombstone_for_everything(INSTANCE, 1), written + Duration::from_secs(1));
    assert!(matches!(own.compare(&storage), Compared::Same), "it was repaired");
    put(&change(keys(1..2)), written + Duration::from_secs(1));
    assert!(matches!(own.compare(&storage), Compared::OtherChange(1)), "it was written at another time");
    put(&change(keys(1..9)), written);
    assert!(matches!(own.compare(&storage), Compared::OtherChange(1)), "it has another length");
    storage.remove(&name).unwrap();
    assert!(matches!(own.compare(&storage), Compared::OtherChange(1)), "it is not there");
}
