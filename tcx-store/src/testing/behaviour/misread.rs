//! Bytes that are misread once, and files that are not complete yet.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crate::changes::Doomed;
use crate::testing::{
    Faulty, column, compute, go_ahead, keys, names, process, put, replace, seal_all, values, with_operations,
};
use crate::upkeep::tasks::merge_changes;
use crate::{Losses, RecomputeSession, Store};

fn rewrite(path: &Path, bytes: &[u8]) {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).unwrap();
}

fn kill_z(store: &Store) {
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
}

/// x = 1000 has replaced 1 (change 1), and all changes are merged.
fn with_a_merged_replacement(dir: &Path) {
    let store = process(dir);
    compute(&store, &["x"], 1);
    seal_all(&store);
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&store);
    for _ in 0..20 {
        kill_z(&store);
    }
    merge_changes(&store.core);
    assert_eq!(names(dir, "merged-").len(), 1);
}

/// One bit of the nonce in the header of the merged change that committed the replacement is misread once: the header is not verified.
#[test]
fn what_is_computed_while_the_nonce_of_a_merged_commit_is_misread_does_not_displace_the_replacement() {
    let dir = tempfile::tempdir().unwrap();
    with_a_merged_replacement(dir.path());
    let path = dir.path().join("m_v1").join("change-00000000000000000001");
    let bytes = std::fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    rewrite(&path, &flipped);
    let other = process(dir.path());
    let own = values(&other, &["x"]);
    rewrite(&path, &bytes);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    let later = values(&other, &["x"]);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        flushed.is_err() || compacted == [1000],
        "own {own:?}, later {later:?}, flush {flushed:?}, fresh {fresh:?}, compacted {compacted:?}"
    );
}

/// The same, of a value that is put.
#[test]
fn no_value_is_put_beside_a_replacement_whose_commit_was_misread() {
    let dir = tempfile::tempdir().unwrap();
    with_a_merged_replacement(dir.path());
    let path = dir.path().join("m_v1").join("change-00000000000000000001");
    let bytes = std::fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    rewrite(&path, &flipped);
    let other = process(dir.path());
    rewrite(&path, &bytes);
    let done = put(&other, "x", 5);
    let flushed = other.flush();
    let own = values(&other, &["x"]);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        done.is_err() || fresh == own && compacted == own,
        "put {done:?}, flush {flushed:?}, own {own:?}, fresh {fresh:?}, compacted {compacted:?}"
    );
}

/// The same, of the newest change: the process takes it for that by which the folder is known.
#[test]
fn a_process_that_has_misread_the_nonce_of_the_newest_merged_change_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    with_a_merged_replacement(dir.path());
    let path = dir.path().join("m_v1").join("change-00000000000000000021");
    let bytes = std::fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    rewrite(&path, &flipped);
    let other = process(dir.path());
    rewrite(&path, &bytes);
    let refreshed = other.refresh();
    std::thread::sleep(Duration::from_millis(1200));
    let again = other.refresh();
    assert!(again.is_ok(), "{refreshed:?}, {again:?}");
}

/// A listing that begins before a segment has its name and ends after what it replaces is gone shows neither of them, as POSIX allows.
#[test]
fn no_value_is_put_over_one_that_a_listing_lacks_because_it_was_joined_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    kill_z(&first);
    // 0: as it is. 1: at the next listing. 2: over.
    let (at, folder) = (Arc::new(AtomicUsize::new(0)), dir.path().to_owned());
    let hidden = dir.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let steps = {
        let (at, hidden) = (at.clone(), hidden.clone());
        Faulty::with(move |_, step, _: &Path| {
            let module = folder.join("m_v1");
            if step == "list" && at.compare_exchange(1, 2, SeqCst, SeqCst).is_ok() {
                // The segment that was joined from the others gets its name behind the reader's back, and those are removed before it.
                for name in names(&folder, "seg-") {
                    std::fs::rename(module.join(&name), hidden.join(&name)).unwrap();
                }
            } else if at.compare_exchange(2, 3, SeqCst, SeqCst).is_ok() {
                for file in std::fs::read_dir(&hidden).unwrap() {
                    let file = file.unwrap();
                    std::fs::rename(file.path(), module.join(file.file_name())).unwrap();
                }
            }
            None
        })
    };
    let other = with_operations(dir.path(), steps);
    assert_eq!(values(&other, &["w"]), [-1]);
    // Acknowledged.
    assert_eq!(put(&first, "x", 1000).unwrap(), 1);
    first.flush().unwrap();
    assert_eq!(put(&first, "y", 1000).unwrap(), 1);
    first.flush().unwrap();
    first.compact().unwrap();
    first.collect(Duration::ZERO).unwrap();
    drop(first);
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    at.store(1, SeqCst);
    let done = put(&other, "x", 5);
    assert!(at.load(SeqCst) >= 3);
    let flushed = other.flush();
    let own = values(&other, &["x"]);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        !matches!(done, Ok(1)) && fresh == [1000] && compacted == [1000],
        "put {done:?}, flush {flushed:?}, own {own:?}, fresh {fresh:?}, compacted {compacted:?}"
    );
}

/// A folder that is copied into place: change 0 is not complete.
#[test]
fn an_invalidation_that_fails_because_change_0_is_not_complete_takes_effect_here() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    let killed = store.core.kill(Doomed::Keys(vec![b"x".as_slice().into()]));
    assert!(killed.is_err());
    rewrite(&dir.path().join(change), &bytes);
    for name in names(from.path(), "seg-") {
        std::fs::copy(from.path().join("m_v1").join(&name), dir.path().join("m_v1").join(&name)).unwrap();
    }
    store.refresh().unwrap();
    assert_eq!(values(&store, &["x"]), [-1], "{killed:?}");
}

/// The same, while rows wait to be written.
#[test]
fn rows_are_not_dropped_for_a_change_0_that_is_not_complete_yet() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    compute(&store, &["y"], 7);
    assert_eq!(put(&store, "v", 8).unwrap(), 1);
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    let first = store.flush();
    rewrite(&dir.path().join(change), &bytes);
    store.refresh().unwrap();
    let second = store.flush();
    let fresh = values(&process(dir.path()), &["y", "v"]);
    assert!(fresh == [7, 8], "first {first:?}, second {second:?}, fresh {fresh:?}");
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

fn ago(hours: u64) -> SystemTime {
    crate::sys::runtime::wall() - Duration::from_hours(hours)
}

/// A value that is put for a rejected one waits to be written: the old one is stored still.
#[test]
fn a_value_that_was_just_put_for_a_rejected_one_is_not_invalidated_as_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 5);
    seal_all(&store);
    go_ahead(Duration::from_hours(2));
    let losses = Arc::new(Losses::new());
    let mut rows = store.lookup_to_put(keys(&["x"]), None).unwrap();
    assert!(store.reject(&mut rows, &[0]).unwrap());
    assert!(store.insert_for(&losses, &mut rows, &[0], column(&[7]), None).unwrap());
    assert_eq!(values(&store, &["x"]), [7]);
    store.invalidate_older_than(ago(1)).unwrap();
    let own = values(&store, &["x"]);
    let flushed = store.flush_for(&losses);
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || fresh == [7], "own {own:?}, flush {flushed:?}, fresh {fresh:?}");
}

/// Another process has replaced x, of which there was no row, by the change that this one was about to create; it looks damaged once
/// (a misread, or a network file system that shows a part of it). This process has listed the folder a moment ago.
#[test]
fn what_is_computed_after_a_change_was_met_without_a_listing_and_misread_does_not_displace_the_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("m_v1");
    let first = process(dir.path());
    kill_z(&first);
    replace(&first, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&first);
    drop(first);
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
    // It happens a moment later.
    let change = module.join("change-00000000000000000002");
    let bytes = std::fs::read(&change).unwrap();
    let segment = names(dir.path(), "seg-").remove(0);
    let hidden = dir.path().join("hidden");
    std::fs::rename(module.join(&segment), &hidden).unwrap();
    for name in names(dir.path(), "run-") {
        std::fs::remove_file(module.join(name)).unwrap();
    }
    std::fs::remove_file(&change).unwrap();
    let happened = Arc::new(AtomicBool::new(false));
    let steps = {
        let (happened, change, segment, hidden) =
            (happened.clone(), change.clone(), module.join(&segment), hidden.clone());
        let bytes = bytes.clone();
        Faulty::with(move |_, step, path: &Path| {
            if step == "link" && path == change && !happened.swap(true, SeqCst) {
                std::fs::rename(&hidden, &segment).unwrap();
                let mut misread = bytes.clone();
                let at = misread.len() - 12;
                misread[at..].fill(0);
                rewrite(&change, &misread);
            } else if step == "link" && path != change {
                rewrite(&change, &bytes);
            }
            None
        })
    };
    let other = with_operations(dir.path(), steps);
    other.refresh().unwrap();
    other.core.kill(Doomed::Keys(vec![b"q".as_slice().into()])).unwrap();
    assert!(happened.load(SeqCst));
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    let own = values(&other, &["x"]);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        flushed.is_err() || compacted == [1000],
        "flush {flushed:?}, own {own:?}, fresh {fresh:?}, compacted {compacted:?}"
    );
}

/// The same as with rows that wait: what comes after them.
#[test]
fn writing_goes_on_after_a_change_0_that_was_not_complete_yet() {
    let (dir, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(from.path());
    compute(&other, &["x"], 1000);
    seal_all(&other);
    let store = process(dir.path());
    compute(&store, &["y"], 7);
    let change = "m_v1/change-00000000000000000000";
    let bytes = std::fs::read(from.path().join(change)).unwrap();
    std::fs::create_dir_all(dir.path().join("m_v1")).unwrap();
    rewrite(&dir.path().join(change), &bytes[..bytes.len() - 4]);
    let first = store.flush();
    rewrite(&dir.path().join(change), &bytes);
    store.refresh().unwrap();
    let _ = store.flush();
    compute(&store, &["w"], 3);
    let later = store.flush();
    compute(&store, &["v"], 4);
    let again = store.flush();
    let fresh = values(&process(dir.path()), &["w", "v"]);
    assert!(
        later.is_ok() && fresh == [3, 4],
        "first {first:?}, later {later:?}, again {again:?}, fresh {fresh:?}"
    );
}

/// One read of the header of change 0, or of the newest change, shows a bit of its nonce flipped; the next read of it is right.
#[test]
fn a_process_goes_on_that_has_misread_a_nonce_once() {
    for number in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1000);
        seal_all(&store);
        kill_z(&store);
        drop(store);
        let path = dir.path().join("m_v1").join(format!("change-{number:020}"));
        let bytes = std::fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped[30] ^= 1;
        let reads = Arc::new(AtomicUsize::new(usize::MAX / 2));
        let steps = {
            let (reads, path) = (reads.clone(), path.clone());
            Faulty::with(move |_, step, file: &Path| {
                if step == "open" && file == path {
                    match reads.fetch_add(1, SeqCst) {
                        0 => rewrite(&path, &flipped),
                        1 => rewrite(&path, &bytes),
                        _ => {}
                    }
                }
                None
            })
        };
        let other = with_operations(dir.path(), steps);
        assert_eq!(values(&other, &["x"]), [1000]);
        reads.store(0, SeqCst);
        let first = other.refresh();
        std::thread::sleep(Duration::from_millis(1200));
        let again = other.refresh();
        assert!(again.is_ok(), "change {number}: {first:?}, {again:?}");
    }
}

/// Its process has misread the segment of the replacement once before, long ago.
#[test]
fn what_is_computed_after_a_segment_was_misread_a_second_time_does_not_displace_the_replacement() {
    for misread_before in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        seal_all(&store);
        let before = names(dir.path(), "seg-");
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
        drop(store);
        crate::testing::make_older(dir.path(), "seg-");
        crate::testing::make_older(dir.path(), "change-");
        let name = names(dir.path(), "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
        let other = process(dir.path());
        let misread = || {
            let segments = other.core.snapshot().segments.clone();
            let segments = segments.into_iter().filter(|own| own.name().to_string() == name).collect();
            let damaged = crate::live::damage::DamagedFiles { segments, ..Default::default() };
            other.core.drop_damaged(&damaged);
        };
        if misread_before {
            misread();
            other.refresh().unwrap();
            assert_eq!(values(&other, &["x"]), [1000]);
            go_ahead(Duration::from_hours(1));
            assert_eq!(values(&other, &["x"]), [1000]);
        }
        misread();
        // As a lookup that meets the block: nothing is listed in between.
        let mut rows = other.lookup(keys(&["x"])).unwrap();
        if rows.missing() == 0 {
            continue;
        }
        other.insert(&mut rows, &[0], column(&[7])).unwrap();
        let flushed = other.flush();
        drop(other);
        let fresh = values(&process(dir.path()), &["x"]);
        process(dir.path()).compact().unwrap();
        let compacted = values(&process(dir.path()), &["x"]);
        assert!(
            flushed.is_err() || compacted == [1000],
            "misread before: {misread_before}, flush {flushed:?}, fresh {fresh:?}, compacted {compacted:?}"
        );
    }
}

/// The keys of a segment that is read piece by piece are misread while a predicate is resolved to them.
#[test]
fn an_invalidation_by_a_predicate_holds_though_a_key_was_misread() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 1000);
    seal_all(&store);
    drop(store);
    crate::testing::make_older(dir.path(), "seg-");
    let storage = crate::storage::LocalStorage::new(dir.path().join("m_v1"), crate::storage::System);
    let storage = storage.reading(crate::options::ReadMode::Pread);
    let options = crate::Options {
        flush_interval: Duration::from_hours(1),
        refresh_every: Duration::ZERO,
        memory_cache_bytes: 0,
        ..crate::Options::default()
    };
    let other = Store::with_storage(Arc::new(storage), crate::testing::spec(), &options).unwrap();
    assert_eq!(values(&other, &["x", "y"]), [1000, 1000]);
    let path = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(2).position(|bytes| bytes == b"xy").unwrap() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"xz", at).unwrap();
    let invalidated = other.invalidate_where(|key| key == b"x");
    file.write_all_at(b"xy", at).unwrap();
    let own = values(&other, &["x"]);
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(
        invalidated.is_err() || (&own, &fresh) == (&vec![-1], &vec![-1]),
        "invalidated {invalidated:?}, own {own:?}, fresh {fresh:?}"
    );
}

/// As with a value that is put: the listing lacks the segment that has just been joined, and those that it stands for.
#[test]
fn an_invalidation_by_a_predicate_holds_though_rows_were_joined_while_the_folder_was_listed() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    kill_z(&first);
    let (at, folder) = (Arc::new(AtomicUsize::new(0)), dir.path().to_owned());
    let hidden = dir.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let steps = {
        let (at, hidden) = (at.clone(), hidden.clone());
        Faulty::with(move |_, step, _: &Path| {
            let module = folder.join("m_v1");
            if step == "list" && at.compare_exchange(1, 2, SeqCst, SeqCst).is_ok() {
                for name in names(&folder, "seg-") {
                    std::fs::rename(module.join(&name), hidden.join(&name)).unwrap();
                }
            } else if at.compare_exchange(2, 3, SeqCst, SeqCst).is_ok() {
                for file in std::fs::read_dir(&hidden).unwrap() {
                    let file = file.unwrap();
                    std::fs::rename(file.path(), module.join(file.file_name())).unwrap();
                }
            }
            None
        })
    };
    let other = with_operations(dir.path(), steps);
    for key in ["x", "y"] {
        compute(&first, &[key], 1000);
        first.flush().unwrap();
    }
    first.compact().unwrap();
    first.collect(Duration::ZERO).unwrap();
    drop(first);
    at.store(1, SeqCst);
    let invalidated = other.invalidate_where(|key| key == b"x");
    assert!(at.load(SeqCst) >= 3);
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(invalidated.is_err() || fresh == [-1], "invalidated {invalidated:?}, fresh {fresh:?}");
}
