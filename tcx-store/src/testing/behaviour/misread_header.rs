//! Headers of changes that are misread once: they are read without the rest of the file, and not verified.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::testing::{
    Faulty, compute, kill_z, names, process, put, rewrite, seal_all, values, with_a_replacement,
    with_operations,
};
use crate::upkeep::tasks::merge_changes;

/// x = 1000 has replaced 1 (change 1), and all changes are merged.
fn with_a_merged_replacement(dir: &Path) {
    let _ = with_a_replacement(dir);
    let store = process(dir);
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

/// The header of change 0 is misread once.
#[test]
fn a_process_that_has_misread_change_0_once_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1000);
    seal_all(&store);
    let path = dir.path().join("m_v1").join("change-00000000000000000000");
    let bytes = std::fs::read(&path).unwrap();
    rewrite(&path, &vec![0; bytes.len()]);
    let first = store.refresh();
    rewrite(&path, &bytes);
    let again = store.refresh();
    assert!(again.is_ok(), "first {first:?}, again {again:?}");
}

/// The change that has committed a replacement is merged; its header is misread once (or the file is not complete yet).
#[test]
fn what_is_computed_while_the_header_of_a_merged_commit_is_misread_does_not_displace_the_replacement() {
    let dir = tempfile::tempdir().unwrap();
    with_a_merged_replacement(dir.path());
    let path = dir.path().join("m_v1").join("change-00000000000000000001");
    let bytes = std::fs::read(&path).unwrap();
    rewrite(&path, &[]);
    let other = process(dir.path());
    assert_eq!(values(&other, &["x"]), [-1]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    rewrite(&path, &bytes);
    let own = values(&other, &["x"]);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        flushed.is_err() || compacted == [1000],
        "own {own:?}, flush {flushed:?}, fresh {fresh:?}, compacted {compacted:?}"
    );
}
