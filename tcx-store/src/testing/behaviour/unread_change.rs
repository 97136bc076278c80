//! A change that cannot be read, or is not there, for a moment: it hides what it may kill, and is followed once it can be read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::store::stored_keys::Reach;
use crate::testing::{Fault, Faulty, compute, keys, names, process, values, with_operations};

/// The file operations of a process that cannot open change 1 as long as this is set.
fn without_change_1() -> (Faulty, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let steps = Faulty::with(move |_, step, path| {
        let is_change_1 = path.ends_with("change-00000000000000000001");
        (step == "open" && is_change_1 && failing.load(SeqCst))
            .then_some(Fault::Refused(std::io::ErrorKind::Other))
    });
    (steps, fails)
}

#[test]
fn a_change_that_cannot_be_read_for_a_moment_hides_what_is_before_it_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, fails) = without_change_1();
    let (a, b) = (process(dir.path()), with_operations(dir.path(), steps));
    compute(&a, &["x", "y"], 1);
    a.flush().unwrap();
    a.invalidate(&keys(&["x"])).unwrap();
    compute(&a, &["z"], 3);
    a.flush().unwrap();
    fails.store(true, SeqCst);
    assert_eq!(values(&b, &["x", "y", "z"]), [-1, -1, 3], "y may be dead for all it knows");
    // The next number is known nevertheless.
    b.invalidate(&keys(&["no such key"])).unwrap();
    assert_eq!(names(dir.path(), "change-").len(), 3);
    b.compact().unwrap();
    assert_eq!(b.disk_usage().unwrap().dead_bytes, 0, "y may live");
    fails.store(false, SeqCst);
    assert_eq!(values(&b, &["x", "y", "z"]), [-1, 1, 3]);
    b.compact().unwrap();
    b.collect(Duration::ZERO).unwrap();
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "z"]), [-1, 1, 3]);
    }
}

#[test]
fn a_change_of_another_folder_does_not_take_the_place_of_one_that_could_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, fails) = without_change_1();
    let (a, b) = (process(dir.path()), with_operations(dir.path(), steps));
    compute(&a, &["z"], 1);
    a.flush().unwrap();
    compute(&b, &["x"], 1);
    a.invalidate(&keys(&["x"])).unwrap();
    fails.store(true, SeqCst);
    assert_eq!(values(&b, &["x"]), [-1]);
    std::fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
    let c = process(dir.path());
    compute(&c, &["z"], 1);
    c.invalidate(&keys(&["z"])).unwrap();
    fails.store(false, SeqCst);
    let refused = [b.refresh(), b.lookup(keys(&["x"])).map(drop), b.flush()];
    for error in refused.map(|refused| format!("{:#}", refused.unwrap_err())) {
        assert!(error.contains("created again by another process"), "{error}");
    }
    assert_eq!(b.core.live().changes.newest(), Some(1), "its changes are not learned");
}

#[test]
fn rows_that_wait_to_be_written_are_kept_until_a_change_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, fails) = without_change_1();
    let (a, b) = (process(dir.path()), with_operations(dir.path(), steps));
    compute(&a, &["z"], 1);
    a.flush().unwrap();
    compute(&b, &["x", "y"], 1);
    a.invalidate(&keys(&["x"])).unwrap();
    fails.store(true, SeqCst);
    let error = format!("{:#}", b.flush().unwrap_err());
    assert!(error.contains("change-00000000000000000001") && error.contains("cannot be read"), "{error}");
    fails.store(false, SeqCst);
    b.flush().unwrap();
    for store in [&a, &b, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [-1, 1]);
    }
    assert_eq!(b.stats().rows_dropped, 1);
}

#[test]
fn a_predicate_reaches_rows_that_a_change_hides_for_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, fails) = without_change_1();
    let (a, b) = (process(dir.path()), with_operations(dir.path(), steps));
    compute(&a, &["x", "y"], 1);
    a.flush().unwrap();
    a.invalidate(&keys(&["z"])).unwrap();
    fails.store(true, SeqCst);
    b.invalidate_where(|key| key == b"x").unwrap();
    fails.store(false, SeqCst);
    for store in [&a, &b] {
        assert_eq!(values(store, &["x", "y"]), [-1, 1]);
    }
}

#[test]
fn a_predicate_reaches_rows_that_count_on_a_change_which_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    compute(&a, &["w"], 1);
    a.flush().unwrap();
    assert_eq!(values(&b, &["w"]), [1]);
    a.invalidate(&keys(&["w"])).unwrap();
    compute(&a, &["x"], 1);
    a.flush().unwrap();
    let change = dir.path().join("m_v1/change-00000000000000000001");
    std::fs::rename(&change, dir.path().join("hidden")).unwrap();
    assert_eq!(values(&b, &["x"]), [-1]);
    let mut seen = Vec::new();
    b.core.each_key(Reach::There, |row| seen.push(row.key.to_vec())).unwrap();
    seen.sort();
    assert_eq!(seen, [b"w", b"x"]);
    seen.clear();
    b.each_key(|key, _| seen.push(key.to_vec())).unwrap();
    assert_eq!(seen, [b"w"], "what is served");

    // The number of a missing change is never given again, so the invalidation cannot be written; it takes effect in this
    // process only.
    let error = format!("{:#}", b.invalidate_where(|key| key == b"x").unwrap_err());
    assert!(error.contains("change 1 is missing"), "{error}");
    std::fs::rename(dir.path().join("hidden"), &change).unwrap();
    assert_eq!(values(&b, &["x"]), [-1]);
    compute(&b, &["y"], 1);
    b.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["w", "x", "y"]), [-1, -1, 1]);
}
