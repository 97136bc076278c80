//! Bytes that are misread once: what is computed then displaces nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::changes::Doomed;
use crate::testing::{
    Faulty, column, compute, go_ahead, keys, kill_z, names, process, put, replace, rewrite, seal_all, values,
    with_a_replacement, with_operations,
};
use crate::{RecomputeSession, Store};

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

/// Other bytes of the same length and time: what a wrong read of an old file shows.
fn misread(path: &Path, bytes: &[u8]) {
    rewrite(path, bytes);
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

/// The change names another key.
#[test]
fn what_is_computed_while_an_old_change_is_misread_does_not_displace_a_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let _ = with_a_replacement(dir.path());
    kill_z(&process(dir.path()));
    let path = dir.path().join("m_v1/change-00000000000000000002");
    let bytes = std::fs::read(&path).unwrap();
    let mut zeros = bytes.clone();
    zeros[60..].fill(0);
    misread(&path, &zeros);
    let other = process(dir.path());
    misread(&path, &bytes);
    assert_eq!(values(&other, &["x"]), [-1]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    drop(other);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || compacted == [1000], "flush {flushed:?}, compacted {compacted:?}");
}

/// Its tail, when it is opened.
#[test]
fn what_is_computed_after_an_old_segment_was_misread_does_not_displace_the_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = with_a_replacement(dir.path());
    let mut zeros = bytes.clone();
    let at = bytes.len() - 20;
    zeros[at..].fill(0);
    misread(&path, &zeros);
    let other = process(dir.path());
    misread(&path, &bytes);
    let own = values(&other, &["x"]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    drop(other);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        flushed.is_err() || compacted == [1000],
        "own {own:?}, flush {flushed:?}, compacted {compacted:?}"
    );
}

/// The values wait for another look at it: what still looks damaged then stands for nothing.
#[test]
fn values_are_put_beside_an_old_change_and_an_old_segment_that_are_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (segment, bytes) = with_a_replacement(dir.path());
    misread(&segment, &bytes[..bytes.len() - 20]);
    kill_z(&process(dir.path()));
    let change = dir.path().join("m_v1/change-00000000000000000002");
    let bytes = std::fs::read(&change).unwrap();
    misread(&change, &bytes[..bytes.len() - 4]);
    let store = process(dir.path());
    assert_eq!(put(&store, "y", 5).unwrap(), 1);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["y"]), [5]);
}
