//! Segments that another process joins and removes while a folder is listed: the listing shows neither them nor the one that stands for
//! them, as POSIX allows.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::storage::LocalStorage;
use crate::testing::{Faulty, compute, kill_z, names, process, put, values, with_operations};
use crate::{Inspection, Store};

/// A process whose next listing shows no segment, once it is armed: it begins before a segment has its name, and ends after those that it
/// was joined from are gone.
struct Unseeing {
    store: Store,
    /// 0: as it is. 1: at the next listing. 2: during it. 3: over.
    at: Arc<AtomicUsize>,
}

impl Unseeing {
    fn of(dir: &Path) -> Self {
        Self::with_stamps(dir, false)
    }

    /// `are_coarse`: what happens during the listing leaves the folder's stamp as it was.
    fn with_stamps(dir: &Path, are_coarse: bool) -> Self {
        let stamp = Mutex::new(None);
        let (at, folder, hidden) = (Arc::new(AtomicUsize::new(0)), dir.to_owned(), dir.join("hidden"));
        std::fs::create_dir(&hidden).unwrap();
        let step_at = at.clone();
        let steps = Faulty::with(move |_, step, _: &Path| {
            let module = folder.join("m_v1");
            if step == "list" && step_at.compare_exchange(1, 2, SeqCst, SeqCst).is_ok() {
                *stamp.lock().unwrap() = std::fs::metadata(&module).unwrap().modified().ok();
                // The segment that was joined from the others gets its name behind the reader's back, and those are removed before it.
                for name in names(&folder, "seg-") {
                    std::fs::rename(module.join(&name), hidden.join(&name)).unwrap();
                }
            } else if step_at.compare_exchange(2, 3, SeqCst, SeqCst).is_ok() {
                for file in std::fs::read_dir(&hidden).unwrap() {
                    let file = file.unwrap();
                    std::fs::rename(file.path(), module.join(file.file_name())).unwrap();
                }
                if let Some(stamp) = stamp.lock().unwrap().filter(|_| are_coarse) {
                    std::fs::File::open(&module).unwrap().set_modified(stamp).unwrap();
                }
            }
            None
        });
        Self { store: with_operations(dir, steps), at }
    }

    fn arm(&self) {
        self.at.store(1, SeqCst);
    }

    fn has_listed(&self) -> bool {
        self.at.load(SeqCst) >= 3
    }
}

/// A listing that begins before a segment has its name and ends after what it replaces is gone shows neither of them, as POSIX allows.
#[test]
fn no_value_is_put_over_one_that_a_listing_lacks_because_it_was_joined_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    kill_z(&first);
    let other = Unseeing::of(dir.path());
    assert_eq!(values(&other.store, &["w"]), [-1]);
    // Acknowledged.
    assert_eq!(put(&first, "x", 1000).unwrap(), 1);
    first.flush().unwrap();
    assert_eq!(put(&first, "y", 1000).unwrap(), 1);
    first.flush().unwrap();
    first.compact().unwrap();
    first.collect(Duration::ZERO).unwrap();
    drop(first);
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    other.arm();
    let done = put(&other.store, "x", 5);
    assert!(other.has_listed());
    let flushed = other.store.flush();
    let own = values(&other.store, &["x"]);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        !matches!(done, Ok(1)) && fresh == [1000] && compacted == [1000],
        "put {done:?}, flush {flushed:?}, own {own:?}, fresh {fresh:?}, compacted {compacted:?}"
    );
}

/// As with a value that is put: the listing lacks the segment that has just been joined, and those that it stands for.
#[test]
fn an_invalidation_by_a_predicate_holds_though_rows_were_joined_while_the_folder_was_listed() {
    for are_coarse in [false, true] {
        invalidate_while_joined(are_coarse);
    }
}

fn invalidate_while_joined(are_coarse: bool) {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    kill_z(&first);
    let other = Unseeing::with_stamps(dir.path(), are_coarse);
    for key in ["x", "y"] {
        compute(&first, &[key], 1000);
        first.flush().unwrap();
    }
    first.compact().unwrap();
    first.collect(Duration::ZERO).unwrap();
    drop(first);
    other.arm();
    let invalidated = other.store.invalidate_where(|key| key == b"x");
    assert!(other.has_listed());
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(invalidated.is_err() || fresh == [-1], "invalidated {invalidated:?}, fresh {fresh:?}");
}

/// The rows are in one segment before it is looked at and in another one afterwards.
#[test]
fn rows_that_are_joined_while_a_folder_is_inspected_are_in_what_it_shows() {
    for at in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let first = process(dir.path());
        for key in ["x", "y"] {
            compute(&first, &[key], 1000);
            first.flush().unwrap();
        }
        let (first, lists) = (Mutex::new(Some(first)), AtomicUsize::new(0));
        let steps = Faulty::with(move |_, step, _: &Path| {
            if step == "list"
                && lists.fetch_add(1, SeqCst) == at
                && let Some(first) = first.lock().unwrap().take()
            {
                first.compact().unwrap();
                first.collect(Duration::ZERO).unwrap();
            }
            None
        });
        let storage = Arc::new(LocalStorage::new(dir.path().join("m_v1"), steps));
        let inspection = Inspection::in_storage(storage).unwrap();
        assert_eq!(inspection.rows().count(), 2, "at the listing {at}");
    }
}
