//! A segment that another process collects between its name and the moment when its own process opens it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::trimming::three_segments;
use crate::Store;
use crate::index::write_merged;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;
use crate::testing::{Faulty, compute, names, process, seal_all, values, with_operations};

/// A store that calls another process before it opens the next segment, once it is armed.
struct Interrupted {
    store: Store,
    armed: Arc<AtomicBool>,
}

impl Interrupted {
    fn by(dir: &Path, other: impl Fn() + Send + Sync + 'static) -> Self {
        let armed = Arc::<AtomicBool>::default();
        let is_armed = armed.clone();
        // The other process opens files, too.
        let once = Mutex::new(());
        let store = with_operations(
            dir,
            Faulty::with(move |_, step, path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if step == "open"
                    && name.starts_with("seg-")
                    && let Ok(_alone) = once.try_lock()
                    && is_armed.swap(false, SeqCst)
                {
                    other();
                }
                None
            }),
        );
        Self { store, armed }
    }

    fn arm(&self) {
        self.armed.store(true, SeqCst);
    }

    fn was_interrupted(&self) -> bool {
        !self.armed.load(SeqCst)
    }
}

fn add(store: &Store, key: &str, value: i64) {
    compute(store, &[key], value);
    store.flush().unwrap();
}

#[test]
fn a_flush_succeeds_whose_segment_was_joined_twice_and_collected() {
    let dir = tempfile::tempdir().unwrap();
    let other = Arc::new(process(dir.path()));
    add(&other, "first", 1);
    let joining = other.clone();
    let own = Interrupted::by(dir.path(), move || {
        for key in ["second", "third"] {
            add(&joining, key, 2);
            joining.compact().unwrap();
            joining.collect(Duration::ZERO).unwrap();
        }
    });
    compute(&own.store, &["x", "y"], 7);
    own.arm();
    own.store.flush().unwrap();
    assert!(own.was_interrupted());
    compute(&own.store, &["z"], 8);
    own.store.flush().unwrap();
    let stats = own.store.stats();
    assert_eq!((stats.write_failures, stats.rows_dropped), (0, 0));
    own.store.refresh().unwrap();
    for store in [&own.store, &process(dir.path())] {
        assert_eq!(values(store, &["first", "second", "third", "x", "y", "z"]), [1, 2, 2, 7, 7, 8]);
    }
}

#[test]
fn a_flush_succeeds_whose_rows_were_invalidated_and_collected() {
    let dir = tempfile::tempdir().unwrap();
    let other = Arc::new(process(dir.path()));
    add(&other, "first", 1);
    let (invalidating, path) = (other.clone(), dir.path().to_owned());
    let own = Interrupted::by(dir.path(), move || {
        invalidating.refresh().unwrap();
        invalidating.invalidate_all().unwrap();
        invalidating.collect(Duration::ZERO).unwrap();
        assert!(names(&path, "seg-").is_empty());
    });
    compute(&own.store, &["x"], 7);
    own.arm();
    own.store.flush().unwrap();
    assert!(own.was_interrupted());
    own.store.refresh().unwrap();
    assert_eq!(values(&own.store, &["x"]), [-1]);
    add(&own.store, "x", 8);
    assert_eq!(values(&process(dir.path()), &["x"]), [8]);
}

#[test]
fn a_join_succeeds_whose_rows_were_invalidated_and_collected() {
    let dir = tempfile::tempdir().unwrap();
    let other = Arc::new(process(dir.path()));
    let invalidating = other.clone();
    let own = Interrupted::by(dir.path(), move || {
        invalidating.refresh().unwrap();
        invalidating.invalidate_all().unwrap();
        invalidating.collect(Duration::ZERO).unwrap();
    });
    for key in ["a", "b", "c"] {
        compute(&own.store, &[key], 7);
        seal_all(&own.store);
    }
    own.arm();
    own.store.compact().unwrap();
    assert!(own.was_interrupted());
    add(&own.store, "d", 8);
    assert_eq!(values(&process(dir.path()), &["a", "b", "c", "d"]), [-1, -1, -1, 8]);
}

#[test]
fn a_trimmed_index_takes_the_place_of_the_stale_one_although_a_listing_found_it_first() {
    let (dir, ids) = three_segments(|_| 7);
    let store = process(dir.path());
    store.make_room(1).unwrap();
    let core = &store.core;
    let segments = names(dir.path(), "seg-");
    let is_gone = |name| !segments.iter().any(|own| *own == FileName::Segment(name).to_string());
    let stale = core.live().stale_runs(&is_gone).unwrap();
    let trimmed = Random::new();
    let mut draft = core.storage.draft().unwrap();
    write_merged(&mut draft, &stale.runs, &|name| stale.left_out.contains(&name)).unwrap();
    draft.publish(&FileName::Run(trimmed).to_string(), false).unwrap();
    store.refresh().unwrap();
    let mut live = core.live();
    assert!(live.swap_runs(&stale.runs, trimmed));
    core.install(&mut live);
    assert!(!live.take_pruned_runs().contains(&trimmed), "its file stays");
    drop(live);
    assert_eq!((values(&store, &ids[200..]), store.stats().rebuilt_runs), (vec![7; 400], 0));
}
