//! Invalidations by age while other processes replace rows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crate::testing::{
    Fault, Faulty, compute, go_ahead, process, replace, seal_all, values, with_operations, without_change,
};
use crate::{RecomputeSession, Store};

/// Runs `other` when the first change of its process is about to get its name.
fn before_the_change(dir: &Path, other: impl Fn() + Send + Sync + 'static) -> Store {
    let happened = AtomicBool::new(false);
    let steps = Faulty::with(move |_, step, path: &Path| -> Option<Fault> {
        let is_change = path.ends_with("change-00000000000000000001");
        if step == "link" && is_change && !happened.swap(true, SeqCst) {
            other();
        }
        None
    });
    with_operations(dir, steps)
}

/// A folder in which `x` and `y` were computed an hour before now.
fn with_old_rows() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    go_ahead(Duration::from_secs(1));
    compute(&store, &["x", "y"], 5);
    seal_all(&store);
    go_ahead(Duration::from_hours(2));
    dir
}

fn an_hour_ago(store: &Store) -> crate::Result<()> {
    store.invalidate_older_than(SystemTime::now() + Duration::from_hours(1))
}

#[test]
fn what_replaces_an_old_row_during_an_invalidation_by_age_stays() {
    let dir = with_old_rows();
    let other = process(dir.path());
    let store = before_the_change(dir.path(), move || {
        replace(&other, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&other);
    });
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, -1]);
    assert_eq!(values(&store, &["x", "y"]), [1000, -1]);
}

#[test]
fn what_replaces_an_old_row_after_a_failed_invalidation_by_age_stays() {
    let dir = with_old_rows();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let steps = Faulty::with(move |_, step, _: &Path| {
        let is_full = step == "create_file" && failing.load(SeqCst);
        is_full.then_some(Fault::Refused(std::io::ErrorKind::StorageFull))
    });
    let store = with_operations(dir.path(), steps);
    an_hour_ago(&store).unwrap_err();
    assert_eq!(values(&store, &["x", "y"]), [-1, -1]);
    let other = process(dir.path());
    replace(&other, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&other);
    fails.store(false, SeqCst);
    compute(&store, &["z"], 1);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, -1]);
}

#[test]
fn what_a_change_has_replaced_that_cannot_be_read_stays() {
    let dir = with_old_rows();
    let other = process(dir.path());
    replace(&other, &RecomputeSession::new(), &["x"], 1000);
    seal_all(&other);
    let fails = Arc::new(AtomicBool::new(true));
    let store = without_change(1, dir.path(), &fails);
    let error = an_hour_ago(&store).unwrap_err();
    assert!(format!("{error:#}").contains("change 1 exists but cannot be read"), "{error:#}");
    fails.store(false, SeqCst);
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, 5]);
    an_hour_ago(&store).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [1000, -1]);
}
