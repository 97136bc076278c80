//! Evictions, expiries, repairs and joins that meet: what goes stays gone, and what stays is not lost with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::options::WhenFull;
use crate::storage::LocalStorage;
use crate::testing::{
    Fault, Faulty, compute, damage, go_ahead, module, names, process, put, reader, seal_all, spec, values,
    with_operations, with_time_to_live,
};
use crate::upkeep::compaction::{Effort, Excess, compact, evict};
use crate::upkeep::eviction::EvictionOrder;
use crate::{Options, Store};

pub(super) const XYZ: [&str; 3] = ["x", "y", "z"];

pub(super) fn seal(store: &Store, dir: &Path, keys: &[&'static str]) -> String {
    let before = names(dir, "seg-");
    compute(store, keys, 1);
    seal_all(store);
    let name = names(dir, "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    std::thread::sleep(Duration::from_millis(3));
    name
}

/// Joins all that can be joined; `meanwhile` is done after the last look at the inputs, before the joined segment gets its name.
pub(super) fn join_while(dir: &Path, meanwhile: impl Fn(&Path) + Send + Sync + 'static) {
    // The process dies.
    std::mem::forget(joining_while(dir, meanwhile));
}

/// The same, by a process that goes on: its store.
pub(super) fn joining_while(dir: &Path, meanwhile: impl Fn(&Path) + Send + Sync + 'static) -> Store {
    let waits = Arc::new(AtomicBool::new(false));
    let (waiting, path) = (waits.clone(), dir.to_owned());
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_segment = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
        if step == "rename" && is_segment && waiting.swap(false, SeqCst) {
            meanwhile(&path);
        }
        None
    });
    let joining = with_operations(dir, steps);
    joining.refresh().unwrap();
    waits.store(true, SeqCst);
    // Whether that succeeds is not the question.
    let _ = compact(&joining.core, Effort::Thorough, &mut BTreeSet::new());
    assert!(!waits.load(SeqCst), "nothing was joined");
    joining
}

pub(super) fn evict_youngest(dir: &Path) {
    let store = process(dir);
    store.refresh().unwrap();
    evict(&store.core, Excess::Segments(1), EvictionOrder::of(WhenFull::EvictLeastUsed, 0, 0)).unwrap();
    std::mem::forget(store);
}
/// A dead joined segment is evicted: what it was joined from, and lives again, is named dead with it.
#[test]
fn evicting_after_a_joined_segment_has_died_keeps_what_lives_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    for key in XYZ {
        seal(&store, dir.path(), &[key]);
    }
    join_while(dir.path(), |dir| {
        let other = process(dir);
        other.make_room(1).unwrap();
        assert_eq!(values(&other, &XYZ), [-1, 1, 1]);
        std::mem::forget(other);
    });
    assert_eq!(values(&reader(dir.path()), &XYZ), [-1, 1, 1]);
    // Room for one byte: a file that no process serves would be enough.
    let other = process(dir.path());
    other.make_room(1).unwrap();
    let found = values(&reader(dir.path()), &XYZ);
    assert!(found == [-1, 1, 1] || found == [-1, -1, 1], "{found:?}: more was lost than made room");
}

/// The same by a time to live: y and z are younger.
#[test]
fn rows_that_have_not_expired_outlive_a_dead_joined_segment_that_has() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    seal(&store, dir.path(), &["x"]);
    go_ahead(Duration::from_secs(20));
    seal(&store, dir.path(), &["y"]);
    seal(&store, dir.path(), &["z"]);
    join_while(dir.path(), |dir| {
        let other = process(dir);
        other.make_room(1).unwrap();
        assert_eq!(values(&other, &XYZ), [-1, 1, 1]);
        std::mem::forget(other);
    });
    go_ahead(Duration::from_secs(3605));
    let living = with_time_to_live(dir.path(), Some(Duration::from_hours(1)));
    assert_eq!(values(&living, &XYZ), [-1, 1, 1]);
    // The joined segment is not older than the grace.
    living.core.collect(Duration::from_hours(2)).unwrap();
    let found = values(&living, &XYZ);
    go_ahead(Duration::ZERO);
    assert_eq!(found, [-1, 1, 1]);
}

/// No race at all: x, old, and y, young, were joined a moment ago. What is older than a time is invalidated.
#[test]
fn young_rows_outlive_an_invalidation_by_age_and_an_expiry_of_what_they_were_joined_to() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    seal(&store, dir.path(), &["x"]);
    go_ahead(Duration::from_secs(20));
    seal(&store, dir.path(), &["y"]);
    let between = crate::sys::runtime::wall() - Duration::from_secs(10);
    store.core.compact(Effort::Thorough).unwrap();
    store.invalidate_older_than(between).unwrap();
    assert_eq!(values(&reader(dir.path()), &["x", "y"]), [-1, 1]);
    go_ahead(Duration::from_secs(3605));
    let living = with_time_to_live(dir.path(), Some(Duration::from_hours(1)));
    living.core.collect(Duration::from_hours(2)).unwrap();
    let found = values(&living, &["x", "y"]);
    go_ahead(Duration::ZERO);
    assert_eq!(found, [-1, 1]);
}

/// An eviction meets a joined segment that came after an older eviction of younger rows.
#[test]
fn an_eviction_of_one_input_loses_no_row_of_another_one() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        let inputs: Vec<String> = XYZ.iter().map(|key| seal(&store, dir.path(), &[key])).collect();
        join_while(dir.path(), |dir| {
            let other = process(dir);
            seal(&other, dir, &["w"]);
            std::mem::forget(other);
            evict_youngest(dir);
        });
        let joined = names(dir.path(), "seg-").into_iter().find(|name| !inputs.contains(name)).unwrap();
        if inputs[0] > joined {
            continue;
        }
        let kept = inputs[0].clone();
        let steps = Faulty::with(move |_, step, file: &Path| {
            let is_kept = file.file_name().is_some_and(|name| *name == *kept);
            (step == "remove" && is_kept).then_some(Fault::Refused(std::io::ErrorKind::Other))
        });
        let collecting = with_operations(dir.path(), steps);
        collecting.core.collect(Duration::ZERO).unwrap();
        std::mem::forget(collecting);
        assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
        let other = process(dir.path());
        other.make_room(1).unwrap();
        std::mem::forget(other);
        let found = values(&reader(dir.path()), &XYZ);
        assert!(names(dir.path(), "seg-").contains(&joined), "the input alone was evicted");
        assert_eq!(found[1..], [1, 1], "{found:?}");
        return;
    }
}

/// Files that cannot be removed do not make changes without end.
#[test]
fn an_expired_segment_that_cannot_be_removed_makes_two_changes_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    seal(&store, dir.path(), &["x"]);
    go_ahead(Duration::from_hours(2));
    let options = Options { time_to_live: Some(Duration::from_hours(1)), ..Options::default() };
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_segment = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
        (step == "remove" && is_segment).then_some(Fault::Refused(std::io::ErrorKind::PermissionDenied))
    });
    let storage = LocalStorage::new(dir.path().join("m_v1"), steps);
    let living = Store::with_storage(Arc::new(storage), spec(), &options).unwrap();
    for _ in 0..5 {
        living.core.collect(Duration::ZERO).unwrap();
    }
    go_ahead(Duration::ZERO);
    let changes = names(dir.path(), "change-").len();
    std::mem::forget(living);
    assert!(changes <= 3, "{changes} changes");
}

/// As above (`evicted_copies`), but the second process cannot open the joined segment either.
#[test]
fn evicted_rows_do_not_come_back_by_an_eviction_of_a_process_that_can_read_neither_the_first_one_nor_the_segment()
 {
    let dir = tempfile::tempdir().unwrap();
    let first = process(dir.path());
    for key in XYZ {
        seal(&first, dir.path(), &[key]);
    }
    let before = names(dir.path(), "seg-");
    let joining = process(dir.path());
    compact(&joining.core, Effort::Thorough, &mut BTreeSet::new()).unwrap();
    std::mem::forget(joining);
    let joined = names(dir.path(), "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    let (path, aside) = (module(dir.path()).join(&joined), dir.path().join(&joined));
    fs::rename(&path, &aside).unwrap();
    let first = process(dir.path());
    first.make_room(1).unwrap();
    assert_eq!(values(&first, &XYZ), [-1, 1, 1]);
    assert_eq!(put(&first, "x", 2).unwrap(), 1);
    seal_all(&first);
    fs::rename(&aside, &path).unwrap();
    assert_eq!(values(&first, &XYZ), [2, 1, 1]);
    std::thread::sleep(Duration::from_millis(3));
    seal(&first, dir.path(), &["w"]);
    let second_change = module(dir.path()).join("change-00000000000000000002");
    let sound = fs::read(&second_change).unwrap();
    let mut bytes = sound.clone();
    *bytes.last_mut().unwrap() ^= 1;
    crate::testing::rewrite(&second_change, &bytes);
    crate::testing::make_older(dir.path(), "change-");
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_joined = file.file_name().is_some_and(|name| *name == *joined);
        (step == "open" && is_joined).then_some(Fault::Refused(std::io::ErrorKind::Other))
    });
    let second = with_operations(dir.path(), steps);
    values(&second, &["x"]);
    std::thread::sleep(crate::storage::LOOK_AGAIN_AFTER);
    values(&second, &["x"]);
    evict(&second.core, Excess::Segments(1), EvictionOrder::of(WhenFull::EvictLeastUsed, 0, 0)).unwrap();
    std::mem::forget(second);
    crate::testing::rewrite(&second_change, &sound);
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == b"x")).unwrap();
    assert_eq!((values(&reader(dir.path()), &XYZ), count), (vec![2, 1, 1], 1));
    assert_eq!(values(&first, &["x", "y", "z", "w"]), [2, 1, 1, -1]);
}

/// The listings of an eviction lack the newest segment, of which all older ones are gone: the process knows that they are stale.
#[test]
fn a_joined_segment_that_stale_listings_lack_stays_while_its_inputs_are_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    for key in XYZ {
        seal(&store, dir.path(), &[key]);
    }
    std::mem::forget(store);
    let (joined, stale) = (Arc::new(Mutex::new(None::<String>)), Arc::new(AtomicBool::new(false)));
    let hidden = AtomicBool::new(false);
    let (path, own) = (dir.path().to_owned(), joined.clone());
    let steps = Faulty::with(move |_, step, file: &Path| {
        if hidden.swap(false, SeqCst) {
            let name = own.lock().unwrap().clone().unwrap();
            fs::rename(path.join(&name), module(&path).join(&name)).unwrap();
        }
        let is_first = file.file_name().is_some_and(|name| *name == *"change-00000000000000000001");
        if (step == "link" || step == "rename_no_replace") && is_first && !stale.swap(true, SeqCst) {
            let other = process(&path);
            other.core.compact(Effort::Thorough).unwrap();
            other.core.collect(Duration::ZERO).unwrap();
            std::mem::forget(other);
            let [name] = &names(&path, "seg-")[..] else { panic!() };
            *own.lock().unwrap() = Some(name.clone());
        } else if step == "list" && stale.load(SeqCst) {
            let name = own.lock().unwrap().clone().unwrap();
            fs::rename(module(&path).join(&name), path.join(&name)).unwrap();
            hidden.store(true, SeqCst);
        }
        None
    });
    let evicting = with_operations(dir.path(), steps);
    assert_eq!(values(&evicting, &XYZ), [1; 3]);
    let refused = evict(&evicting.core, Excess::Segments(1), EvictionOrder::OLDEST).unwrap_err();
    assert!(refused.to_string().contains("cannot remove rows"), "{refused:#}");
    std::mem::forget(evicting);
    let name = joined.lock().unwrap().clone().unwrap();
    let _ = fs::rename(dir.path().join(&name), module(dir.path()).join(&name));
    let found = values(&reader(dir.path()), &XYZ);
    assert_eq!(found[1..], [1, 1], "{found:?}");
}

/// As during a repair: another process cannot read the first change of the eviction, and evicts by itself.
#[test]
fn rows_do_not_come_back_that_leave_by_a_change_which_another_evicting_process_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    for key in ["x", "y", "z", "w"] {
        seal(&store, dir.path(), &[key]);
    }
    let (at_rename, reached): (Sender<()>, Receiver<()>) = channel();
    let (go, waits_for): (Sender<()>, Receiver<()>) = channel();
    let waits_for = Arc::new(Mutex::new(waits_for));
    let thread = Arc::new(Mutex::new(None));
    let (path, is_first, own) = (dir.path().to_owned(), AtomicBool::new(true), thread.clone());
    let reached = Mutex::new(reached);
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_second = file.file_name().is_some_and(|name| *name == *"change-00000000000000000002");
        if (step == "link" || step == "rename_no_replace") && is_second && is_first.swap(false, SeqCst) {
            let first = module(&path).join("change-00000000000000000001");
            let sound = fs::read(&first).unwrap();
            damage(&path, "change-00000000000000000001");
            crate::testing::make_older(&path, "change-");
            let other = process(&path);
            values(&other, &["x"]);
            std::thread::sleep(crate::storage::LOOK_AGAIN_AFTER);
            values(&other, &["x"]);
            evict(&other.core, Excess::Segments(1), EvictionOrder::of(WhenFull::EvictLeastUsed, 0, 0))
                .unwrap();
            std::mem::forget(other);
            crate::testing::rewrite(&first, &sound);
            let (path, at_rename, waits_for) = (path.clone(), at_rename.clone(), waits_for.clone());
            *own.lock().unwrap() = Some(std::thread::spawn(move || {
                join_while(&path, move |_| {
                    at_rename.send(()).unwrap();
                    waits_for.lock().unwrap().recv().unwrap();
                });
            }));
            let _ = reached.lock().unwrap().recv();
        }
        None
    });
    let evicting = with_operations(dir.path(), steps);
    evict(&evicting.core, Excess::Segments(1), EvictionOrder::OLDEST).unwrap();
    assert_eq!(values(&reader(dir.path()), &XYZ), [-1, 1, 1]);
    let putting = process(dir.path());
    assert_eq!(put(&putting, "x", 2).unwrap(), 1);
    putting.flush().unwrap();
    let _ = go.send(());
    let _ = thread.lock().unwrap().take().unwrap().join();
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == b"x")).unwrap();
    assert_eq!((values(&reader(dir.path()), &XYZ), count), (vec![2, 1, 1], 1));
}
