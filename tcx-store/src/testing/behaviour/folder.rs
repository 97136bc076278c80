//! Another folder comes in the place of the one that was opened, for a while or for good: a mount is lost, a backup is put
//! back. What is in it is not learned, and nothing is written to it.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::testing::{
    Fault, Faulty, compute, keys, module, names, process, reader, spec, values, with_operations,
};
use crate::upkeep::tasks::merge_changes;
use crate::{Options, Result, Store};

pub(super) const CHANGE_1: &str = "change-00000000000000000001";
pub(super) const CHANGE_2: &str = "change-00000000000000000002";

/// Many folders are made: their syncs take no time here.
pub(super) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// As `cp -a` does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// Puts the folder aside, and another in its place.
fn swap(dir: &Path, other: &Path, aside: &Path) {
    fs::rename(module(dir), aside).unwrap();
    if other.exists() {
        fs::rename(other, module(dir)).unwrap();
    }
}

/// The files of the folder with their bytes.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = names(dir, "");
    names.sort();
    names.into_iter().map(|name| (name.clone(), fs::read(module(dir).join(name)).unwrap())).collect()
}

/// A process that knows one invalidation, and has computed another row.
pub(super) fn opened(dir: &Path) -> Store {
    let store = process(dir);
    compute(&store, &["x", "y"], 1);
    store.flush().unwrap();
    store.invalidate(&keys(&["z"])).unwrap();
    assert_eq!(values(&store, &["x", "y"]), [1, 1]);
    store
}

fn is_refused<T: std::fmt::Debug>(done: Result<T>, why: &str) {
    let error = done.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
    assert!(
        error.to_string().contains(why) && error.to_string().contains("open the module again"),
        "{error}"
    );
}

#[test]
fn changes_of_another_folder_in_its_place_are_not_learned_and_nothing_is_written_there() {
    let dir = tempfile::tempdir().unwrap();
    let (own, foreign) = (dir.path().join("own"), dir.path().join("foreign"));
    let store = opened(dir.path());
    let reader = reader(dir.path());
    // The mount goes away, and another program fills the empty directory.
    swap(dir.path(), &foreign, &own);
    let other = process(dir.path());
    compute(&other, &["w"], 7);
    other.flush().unwrap();
    (0..20).for_each(|_| other.invalidate(&keys(&["x"])).unwrap());
    drop(other);
    let before = contents(dir.path());
    is_refused(store.refresh(), "created again by another process");
    is_refused(reader.refresh(), "created again by another process");
    merge_changes(&store.core);
    is_refused(store.flush(), "created again by another process");
    is_refused(store.invalidate(&keys(&["y"])), "created again by another process");
    store.compact().unwrap_err();
    store.collect(Duration::ZERO).unwrap_err();
    assert!(contents(dir.path()) == before, "files of the other folder have changed");
    assert_eq!(store.core.snapshot().known, 1);
    // The mount comes back.
    swap(dir.path(), &own, &foreign);
    assert_eq!(names(dir.path(), "merged-").len(), 0);
    let again = process(dir.path());
    assert_eq!(values(&again, &["x", "y"]), [1, 1]);
    again.invalidate(&keys(&["x"])).unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [-1, 1]);
}

#[test]
fn a_process_that_has_not_looked_while_another_folder_was_in_its_place_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (own, foreign) = (dir.path().join("own"), dir.path().join("foreign"));
    let store = opened(dir.path());
    swap(dir.path(), &foreign, &own);
    opened(dir.path()).invalidate(&keys(&["x"])).unwrap();
    swap(dir.path(), &own, &foreign);
    compute(&store, &["z"], 3);
    store.flush().unwrap();
    for store in [&store, &process(dir.path())] {
        assert_eq!(values(store, &["x", "y", "z"]), [1, 1, 3]);
    }
}

#[test]
fn an_older_copy_that_is_put_back_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (own, backup) = (dir.path().join("own"), dir.path().join("backup"));
    // The copy lacks the newest change, or contains another one that was written since.
    for goes_on in [false, true] {
        let store = opened(dir.path());
        copy(&module(dir.path()), &backup);
        store.invalidate(&keys(&["x"])).unwrap();
        let reader = reader(dir.path());
        compute(&store, &["w"], 5);
        swap(dir.path(), &backup, &own);
        if goes_on {
            process(dir.path()).invalidate(&keys(&["y"])).unwrap();
        }
        let before = contents(dir.path());
        is_refused(reader.refresh(), CHANGE_2);
        is_refused(store.flush(), CHANGE_2);
        is_refused(store.lookup(keys(&["y"])), CHANGE_2);
        store.compact().unwrap_err();
        store.collect(Duration::ZERO).unwrap_err();
        assert!(contents(dir.path()) == before, "files of the copy have changed");
        let expected = if goes_on { [1, -1] } else { [1, 1] };
        assert_eq!(values(&process(dir.path()), &["x", "y"]), expected);
        fs::remove_dir_all(module(dir.path())).unwrap();
        fs::remove_dir_all(&own).unwrap();
    }
}

#[test]
fn a_newer_copy_of_the_same_folder_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (own, copied) = (dir.path().join("own"), dir.path().join("copied"));
    let store = opened(dir.path());
    process(dir.path()).invalidate(&keys(&["x"])).unwrap();
    copy(&module(dir.path()), &copied);
    swap(dir.path(), &copied, &own);
    assert_eq!(values(&store, &["x", "y"]), [-1, 1]);
    compute(&store, &["x"], 2);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x", "y"]), [2, 1]);
}

#[test]
fn a_newest_change_that_cannot_be_read_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicUsize::new(0));
    let failing = fails.clone();
    let kinds = [std::io::ErrorKind::Other, std::io::ErrorKind::NotFound];
    let steps = Faulty::with(move |_, step, path| {
        let fails = failing.load(SeqCst);
        let is_newest = path.ends_with(CHANGE_1) || path.ends_with(CHANGE_2);
        (step == "open" && is_newest && fails > 0).then(|| Fault::Refused(kinds[fails - 1]))
    });
    opened(dir.path());
    let store = with_operations(dir.path(), steps);
    assert_eq!(values(&store, &["x"]), [1]);
    for (kind, key) in [(1, "v"), (2, "w")] {
        // First, because the writer tidies up after a flush and must not read the new change before the refresh does.
        fails.store(kind, SeqCst);
        process(dir.path()).invalidate(&keys(&["x"])).unwrap();
        compute(&store, &[key], 5);
        assert_eq!(store.refresh().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Io);
        fails.store(0, SeqCst);
        store.flush().unwrap();
        assert_eq!(values(&store, &["x", "y", key]), [-1, 1, 5]);
    }
}

/// The steps of `run` happen to one folder up to `away`, to another up to `back`, and then to the first again. `false` if there are
/// fewer.
fn swapped(dir: &Path, away: usize, back: usize, run: impl Fn(&Store)) -> bool {
    let (own, foreign) = (dir.join("own"), dir.join("foreign"));
    let (steps, from) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    // The store has threads of its own, whose steps go on after `run`.
    let swapping = Arc::new(Mutex::new(()));
    let (counted, begun, path, alone) = (steps.clone(), from.clone(), dir.to_owned(), swapping.clone());
    let faulty = Faulty::with(move |_, _, _| {
        let _alone = alone.lock().unwrap();
        let step = counted.fetch_add(1, SeqCst).checked_sub(begun.load(SeqCst));
        if step == Some(away) {
            swap(&path, &path.join("foreign"), &path.join("own"));
        } else if step == Some(back) {
            swap(&path, &path.join("own"), &path.join("foreign"));
        }
        None
    });
    let store = with_operations(dir, faulty);
    assert_eq!(values(&store, &["x", "y"]), [1, 1]);
    compute(&store, &["w"], 5);
    from.store(steps.load(SeqCst), SeqCst);
    run(&store);
    let happened = {
        let _alone = swapping.lock().unwrap();
        let happened = steps.load(SeqCst) - from.swap(usize::MAX, SeqCst);
        if own.exists() {
            swap(dir, &own, &foreign);
        }
        happened
    };
    // Everything that the store knows is from its own folder, or the folder is refused.
    if store.core.check().is_ok() {
        assert_eq!(store.core.snapshot().known, 1, "swapped from step {away} to {back}");
        store.flush().unwrap();
        assert_eq!(values(&process(dir), &["x", "y", "w"]), [1, 1, 5], "swapped from step {away} to {back}");
    }
    happened > back
}

#[test]
fn a_folder_that_is_swapped_at_any_step_is_not_learned_and_takes_no_harm() {
    let runs: [fn(&Store); 2] = [|store| drop(store.refresh()), |store| drop(store.flush())];
    for (run, is_copy) in [(runs[0], false), (runs[0], true), (runs[1], false), (runs[1], true)] {
        let (mut away, mut length) = (0, 1);
        loop {
            let dir = in_memory();
            drop(opened(dir.path()));
            let (own, foreign) = (dir.path().join("own"), dir.path().join("foreign"));
            if is_copy {
                copy(&module(dir.path()), &foreign);
                fs::remove_file(foreign.join(CHANGE_1)).unwrap();
                swap(dir.path(), &foreign, &own);
                process(dir.path()).invalidate(&keys(&["x"])).unwrap();
            } else {
                fs::rename(module(dir.path()), &own).unwrap();
                compute(&process(dir.path()), &["w"], 7);
                opened(dir.path());
            }
            process(dir.path()).invalidate(&keys(&["y"])).unwrap();
            let before = contents(dir.path());
            swap(dir.path(), &own, &foreign);
            let reached = swapped(dir.path(), away, away + length, run);
            swap(dir.path(), &foreign, &own);
            let after = contents(dir.path());
            let written: Vec<_> =
                after.iter().filter(|file| !before.contains(file)).map(|(name, _)| name).collect();
            assert!(
                written.iter().all(|name| name.starts_with("run-") || name.starts_with("tmp-")),
                "swapped from step {away} to {}: {written:?}",
                away + length
            );
            match (reached, length) {
                (true, 1) => length = 3,
                (false, 1) => break,
                _ => (away, length) = (away + 1, 1),
            }
        }
        assert!(away > 3, "{away} steps");
    }
}

#[test]
fn a_path_that_leads_back_over_a_folder_that_does_not_exist_names_the_same_store() {
    let dir = tempfile::tempdir().unwrap();
    let hour = Duration::from_hours(1);
    let options = Options { refresh_every: hour, flush_interval: hour, ..Options::default() };
    let one = Store::open(&dir.path().join("absent/../cache"), spec(), &options).unwrap();
    let two = Store::open(&dir.path().join("cache"), spec(), &options).unwrap();
    compute(&one, &["x"], 1);
    assert_eq!(values(&two, &["x"]), [1]);
    two.invalidate(&keys(&["x"])).unwrap();
    assert_eq!(values(&one, &["x"]), [-1]);
}
