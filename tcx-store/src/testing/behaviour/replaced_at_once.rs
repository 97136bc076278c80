//! Replacing a row is one step to every process: what others compute meanwhile does not displace the replacement.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::segment::MOST_ROWS;
use crate::storage::{LocalStorage, System};
use crate::testing::{Fault, Faulty};
use crate::testing::{
    column, compute, go_ahead, keys, names, process, replace, seal_all, spec, values, with_operations,
};
use crate::write::generation::{publish, write};
use crate::{Inspection, Losses, Options, RecomputeSession, SegmentState, Store};

/// A folder with a durable row, whose value is 1.
pub(super) fn with_a_row() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    dir
}

/// What another process does at each step of a replacement, once.
type Meanwhile = fn(&Store);

/// As [`at_step_of`], with another process of the same settings.
fn at_step(number: usize, meanwhile: Meanwhile) -> Option<(tempfile::TempDir, Store, Arc<Store>)> {
    at_step_of(number, process, meanwhile)
}

/// Replaces the row by 1000. At the step `number` another process, which `open` opens, does something; `None` if there was no such step.
fn at_step_of(
    number: usize,
    open: fn(&Path) -> Store,
    meanwhile: Meanwhile,
) -> Option<(tempfile::TempDir, Store, Arc<Store>)> {
    let dir = with_a_row();
    let other = Arc::new(open(dir.path()));
    let (hook, is_open, taken) = (other.clone(), Arc::<AtomicBool>::default(), Mutex::new(0));
    let (opened, done) = (is_open.clone(), Arc::<AtomicBool>::default());
    let was_done = done.clone();
    let steps = Faulty::with(move |_, _, _: &Path| {
        if opened.load(SeqCst) {
            let mut taken = taken.lock().unwrap();
            if *taken == number && !done.swap(true, SeqCst) {
                meanwhile(&hook);
            }
            *taken += 1;
        }
        None
    });
    let own = with_operations(dir.path(), steps);
    let mut rows = own.lookup_to_put(keys(&["x"]), Some(&RecomputeSession::new())).unwrap();
    is_open.store(true, SeqCst);
    own.insert(&mut rows, &[0], column(&[1000])).unwrap();
    own.flush().unwrap();
    is_open.store(false, SeqCst);
    was_done.load(SeqCst).then_some((dir, own, other))
}

/// What a process serves that has just opened the cache.
pub(super) fn fresh(dir: &Path) -> Vec<i64> {
    values(&process(dir), &["x"])
}

#[test]
fn a_replacement_survives_what_another_process_computes_at_any_step_of_it() {
    let mut steps = 0;
    while let Some((dir, own, other)) = at_step(steps, |other| {
        other.refresh().unwrap();
        assert!(
            [1, 1000].contains(&values(other, &["x"])[0]),
            "neither the old row nor the new one is there"
        );
        compute(other, &["x"], 7);
    }) {
        other.flush().unwrap();
        assert_eq!(
            (values(&own, &["x"]), values(&other, &["x"]), fresh(dir.path())),
            (vec![1000], vec![1000], vec![1000])
        );
        other.compact().unwrap();
        assert_eq!(fresh(dir.path()), [1000], "compacted, step {steps}");
        steps += 1;
    }
    assert!(steps > 10, "{steps} steps");
}

#[test]
fn a_replacement_survives_what_another_process_puts_at_any_step_of_it() {
    let mut steps = 0;
    while let Some((dir, own, other)) = at_step(steps, |other| {
        let mut rows = other.lookup_to_put(keys(&["x"]), None).unwrap();
        assert_eq!(rows.missing(), 0);
        let missing = rows.distinct_missing_positions();
        let losses = Arc::new(Losses::new());
        other.insert_for(&losses, &mut rows, &missing, column(&[]), None).unwrap();
        other.flush_for(&losses).unwrap();
    }) {
        assert_eq!(
            (values(&own, &["x"]), values(&other, &["x"]), fresh(dir.path())),
            (vec![1000], vec![1000], vec![1000])
        );
        other.compact().unwrap();
        assert_eq!(fresh(dir.path()), [1000], "compacted, step {steps}");
        steps += 1;
    }
    assert!(steps > 10, "{steps} steps");
}

/// A process that keeps rows for four hours.
fn forgetful(dir: &Path) -> Store {
    let time_to_live = Some(Duration::from_hours(4));
    let options = Options { time_to_live, flush_interval: Duration::from_hours(1), ..Options::default() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), System)), spec(), &options).unwrap()
}

#[test]
fn a_replacement_that_waits_for_its_commit_is_not_removed_because_it_is_old() {
    let mut steps = 0;
    while let Some((dir, own, _)) = at_step_of(steps, forgetful, |other| {
        // Once it is committed, it may go.
        if names(other.path().parent().unwrap(), "change-").len() == 1 {
            go_ahead(Duration::from_hours(5));
            other.collect(Duration::ZERO).unwrap();
            go_ahead(Duration::ZERO);
        }
    }) {
        assert_eq!((values(&own, &["x"]), fresh(dir.path())), (vec![1000], vec![1000]), "step {steps}");
        steps += 1;
    }
    assert!(steps > 10, "{steps} steps");
}

/// A process whose segments cannot be named as long as the flag is set.
fn nameless(dir: &Path, fails: &Arc<AtomicBool>) -> Store {
    let failing = fails.clone();
    with_operations(
        dir,
        Faulty::with(move |_, step, path: &Path| {
            let is_segment = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
            (failing.load(SeqCst) && step == "rename" && is_segment)
                .then_some(Fault::Refused(ErrorKind::Other))
        }),
    )
}

#[test]
fn a_replacement_that_is_named_late_survives() {
    let dir = with_a_row();
    let fails = Arc::new(AtomicBool::new(true));
    let (own, other) = (nameless(dir.path(), &fails), process(dir.path()));
    replace(&own, &RecomputeSession::new(), &["x"], 1000);
    own.flush().unwrap_err();
    assert_eq!(
        (values(&own, &["x"]), values(&other, &["x"])),
        (vec![1000], vec![1]),
        "old or new, never neither"
    );
    compute(&other, &["x"], 7);
    other.flush().unwrap();
    fails.store(false, SeqCst);
    own.flush().unwrap();
    assert_eq!(
        (values(&own, &["x"]), values(&other, &["x"]), fresh(dir.path())),
        (vec![1000], vec![1000], vec![1000])
    );
    process(dir.path()).compact().unwrap();
    assert_eq!(fresh(dir.path()), [1000]);
}

#[test]
fn every_replacement_of_many_is_there_though_another_process_computes_missing_rows() {
    let dir = with_a_row();
    let (own, other) = (process(dir.path()), process(dir.path()));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let computing = scope.spawn(|| {
            let mut computed = 0;
            while !ends.load(SeqCst) {
                other.refresh().unwrap();
                let mut rows = other.lookup(keys(&["x"])).unwrap();
                let missing = rows.distinct_missing_positions();
                computed += missing.len();
                other.insert(&mut rows, &missing, column(&vec![7; missing.len()])).unwrap();
                other.flush().unwrap();
            }
            computed
        });
        for value in 1000..1100 {
            replace(&own, &RecomputeSession::new(), &["x"], value);
            own.flush().unwrap();
            assert_eq!(fresh(dir.path()), [value]);
        }
        ends.store(true, SeqCst);
        assert_eq!(computing.join().unwrap(), 0, "the row was there all the time");
    });
}

#[test]
fn each_session_of_a_generation_is_committed_by_itself() {
    let dir = with_a_row();
    let first = process(dir.path());
    compute(&first, &["y", "z"], 1);
    first.flush().unwrap();
    let (hook, is_open, made) = (Arc::new(first), Arc::<AtomicBool>::default(), Mutex::new(0));
    let (other, opened) = (hook.clone(), is_open.clone());
    let folder = dir.path().to_owned();
    // Another process takes the number of the second session when the first is committed.
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_segment = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
        if opened.load(SeqCst) && step == "rename" && is_segment {
            let mut made = made.lock().unwrap();
            *made += 1;
            if *made == 2 {
                assert_eq!(names(&folder, "change-").len(), 2);
                other.invalidate(&keys(&["z"])).unwrap();
                assert_eq!(values(&other, &["x", "y", "z"]), [2, 1, -1]);
            }
        }
        None
    });
    let own = with_operations(dir.path(), steps);
    let (a, b) = (RecomputeSession::new(), RecomputeSession::new());
    assert_eq!((replace(&own, &a, &["x"], 2), replace(&own, &b, &["y", "z"], 3)), (1, 2));
    compute(&own, &["new"], 4);
    is_open.store(true, SeqCst);
    own.flush().unwrap();
    is_open.store(false, SeqCst);
    for store in [&own, &*hook, &process(dir.path())] {
        // That of z was looked up before the invalidation.
        assert_eq!(values(store, &["x", "y", "z", "new"]), [2, 3, -1, 4]);
    }
    let stats = own.stats();
    assert_eq!((stats.rows_sealed, stats.rows_dropped, stats.write_failures), (3, 1, 0));
    assert_eq!(
        (replace(&own, &a, &["x"], 9), replace(&own, &b, &["y"], 9)),
        (0, 0),
        "each knows its own rows"
    );
    let inspection = Inspection::open(&dir.path().join("m_v1")).unwrap();
    let is_void = |own: &&crate::SegmentFacts| own.state == SegmentState::Void;
    assert_eq!(inspection.segments().filter(is_void).count(), 0, "what cannot be committed is taken back");
}

#[test]
fn several_segments_of_one_session_count_at_once() {
    let dir = with_a_row();
    let store = process(dir.path());
    compute(&store, &["y", "z"], 1);
    store.flush().unwrap();
    assert_eq!(replace(&store, &RecomputeSession::new(), &["x", "y", "z"], 2), 3);
    store.core.buffer.freeze();
    let generation = store.core.buffer.oldest_after(None).unwrap();
    MOST_ROWS.set(Some(1));
    let written = write(&store.core, &generation).unwrap();
    MOST_ROWS.set(None);
    assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [1; 3]);
    publish(&store.core, &generation, written).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [2; 3]);
    assert_eq!(values(&store, &["x", "y", "z"]), [2; 3]);
}

/// The segment that was written last.
fn last_segment(dir: &Path) -> std::path::PathBuf {
    let folder = dir.join("m_v1");
    let segments = names(dir, "seg-").into_iter().map(|name| folder.join(name));
    segments.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

#[test]
fn a_listing_that_shows_a_commit_is_followed_by_one_that_shows_its_segments() {
    let dir = with_a_row();
    let (folder, away) = (dir.path().to_owned(), dir.path().join("away"));
    let (own, hidden, is_due) = (process(dir.path()), Mutex::new(None), Arc::new(AtomicBool::new(false)));
    let due = is_due.clone();
    // A row is replaced while this process lists the folder: the listing shows the change, and lacks the segment.
    let steps = Faulty::with(move |_, step, _| {
        if step == "list" && due.swap(false, SeqCst) {
            replace(&own, &RecomputeSession::new(), &["x"], 1000);
            seal_all(&own);
            let segment = last_segment(&folder);
            std::fs::rename(&segment, &away).unwrap();
            *hidden.lock().unwrap() = Some(segment);
        } else if let Some(segment) = hidden.lock().unwrap().take() {
            std::fs::rename(&away, segment).unwrap();
        }
        None
    });
    let torn = with_operations(dir.path(), steps);
    is_due.store(true, SeqCst);
    assert_eq!(values(&torn, &["x"]), [1000]);
}

/// A process that creates a change while another replaces the row by 1000, so that it finds the tombstone there without a listing. It cannot
/// list as long as the flag is set.
fn met_while_creating(dir: &Path, lists_fail: &Arc<AtomicBool>) -> Store {
    let (own, met, fail) = (process(dir), AtomicBool::new(false), lists_fail.clone());
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("change-"));
        if step == "link" && is_change && !met.swap(true, SeqCst) {
            replace(&own, &RecomputeSession::new(), &["x"], 1000);
            seal_all(&own);
        }
        (step == "list" && fail.load(SeqCst)).then_some(Fault::Refused(ErrorKind::Other))
    });
    let other = with_operations(dir, steps);
    other.invalidate(&keys(&["busy"])).unwrap();
    other
}

#[test]
fn a_commit_that_is_met_without_a_listing_is_followed_by_one() {
    let dir = with_a_row();
    let other = met_while_creating(dir.path(), &Arc::default());
    assert_eq!(other.lookup(keys(&["x"])).unwrap().missing(), 0);
    assert_eq!(values(&other, &["x"]), [1000]);
}

#[test]
fn what_is_computed_while_a_replacement_cannot_be_listed_does_not_displace_it() {
    let dir = with_a_row();
    let fail = Arc::<AtomicBool>::default();
    let other = met_while_creating(dir.path(), &fail);
    fail.store(true, SeqCst);
    compute(&other, &["x"], 7);
    fail.store(false, SeqCst);
    let lost = format!("{:#}", other.flush().unwrap_err());
    assert!(lost.contains("another process may have replaced them"), "{lost}");
    other.flush().unwrap();
    assert_eq!((values(&other, &["x"]), fresh(dir.path())), (vec![1000], vec![1000]));
    assert_eq!(other.stats().rows_not_kept(), 1);
    other.compact().unwrap();
    assert_eq!(fresh(dir.path()), [1000]);
}
