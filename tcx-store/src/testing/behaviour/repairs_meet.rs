//! Folders that are repaired beside evictions, trims and joins: what goes stays gone, and what stays is not lost with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::invalidated_elsewhere::wait_for_certain_damage;
use super::removals_meet::{XYZ, evict_youngest, join_while, joining_while, seal};
use crate::inspect::Inspection;
use crate::inspect::verify::Repair;
use crate::storage::{LocalStorage, System};
use crate::testing::{
    Fault, Faulty, damage, damage_and_repair, make_older, module, names, process, put, reader, seal_all,
    values, with_operations,
};
use crate::upkeep::compaction::{Effort, Excess, compact, evict};
use crate::upkeep::eviction::EvictionOrder;

/// A joined segment got its name after an unrelated eviction, and stays. Then one of its inputs, which it has replaced, is found damaged and
/// moved away.
#[test]
fn a_sound_joined_segment_outlives_the_repair_of_what_it_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let inputs: Vec<String> = XYZ.iter().map(|key| seal(&store, dir.path(), &[key])).collect();
    join_while(dir.path(), |dir| {
        // Rows that have nothing to do with those.
        let other = process(dir);
        seal(&other, dir, &["w"]);
        std::mem::forget(other);
        evict_youngest(dir);
        assert_eq!(values(&reader(dir), &["x", "y", "z", "w"]), [1, 1, 1, -1]);
    });
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
    assert_eq!(names(dir.path(), "seg-").len(), 4);
    damage_and_repair(dir.path(), &inputs[0]);
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
}

/// The same, when the others were collected: a process died while it collected.
#[test]
fn a_sound_joined_segment_outlives_the_repair_of_an_input_that_was_not_collected() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let inputs: Vec<String> = XYZ.iter().map(|key| seal(&store, dir.path(), &[key])).collect();
    join_while(dir.path(), |dir| {
        let other = process(dir);
        seal(&other, dir, &["w"]);
        std::mem::forget(other);
        evict_youngest(dir);
    });
    let kept = inputs[0].clone();
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_kept = file.file_name().is_some_and(|name| *name == *kept);
        (step == "remove" && is_kept).then_some(Fault::Refused(std::io::ErrorKind::Other))
    });
    let collecting = with_operations(dir.path(), steps);
    collecting.core.collect(Duration::ZERO).unwrap();
    std::mem::forget(collecting);
    assert_eq!(names(dir.path(), "seg-").len(), 2);
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
    damage_and_repair(dir.path(), &inputs[0]);
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
}

/// No eviction at all: two repairs.
#[test]
fn two_repairs_beside_a_join_lose_no_sound_row() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let inputs: Vec<String> = XYZ.iter().map(|key| seal(&store, dir.path(), &[key])).collect();
    join_while(dir.path(), |dir| {
        let other = process(dir);
        let of_w = seal(&other, dir, &["w"]);
        std::mem::forget(other);
        damage_and_repair(dir, &of_w);
    });
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
    damage_and_repair(dir.path(), &inputs[0]);
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
}

/// An eviction has begun, and named what leaves. A repair names what it loses, and not what leaves.
#[test]
fn rows_that_were_evicted_while_the_folder_was_repaired_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let mut segments = Vec::new();
    for key in ["x", "y", "z", "w"] {
        segments.push(seal(&store, dir.path(), &[key]));
    }
    let (at_rename, reached): (Sender<()>, Receiver<()>) = channel();
    let (go, waits_for): (Sender<()>, Receiver<()>) = channel();
    let waits_for = Arc::new(Mutex::new(waits_for));
    let thread = Arc::new(Mutex::new(None));
    let (path, of_w, is_first, own) =
        (dir.path().to_owned(), segments[3].clone(), AtomicBool::new(true), thread.clone());
    let reached = Mutex::new(reached);
    let steps = Faulty::with(move |_, step, file: &Path| {
        let is_second = file.file_name().is_some_and(|name| *name == *"change-00000000000000000002");
        if (step == "link" || step == "rename_no_replace") && is_second && is_first.swap(false, SeqCst) {
            damage_and_repair(&path, &of_w);
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
    assert_eq!(values(&reader(dir.path()), &XYZ), [2, 1, 1]);
    let _ = go.send(());
    let _ = thread.lock().unwrap().take().unwrap().join();
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == b"x")).unwrap();
    assert_eq!((values(&reader(dir.path()), &XYZ), count), (vec![2, 1, 1], 1));
}

/// A folder is pruned, and then repaired: the repair says all that the change of the pruned segment says, but for the name of that.
#[test]
fn rows_that_were_trimmed_before_a_repair_do_not_come_back_with_a_copy_of_the_longer_segment() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    seal(&store, dir.path(), &["x"]);
    seal(&store, dir.path(), &["y"]);
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
    let [longer] = &names(dir.path(), "seg-")[..] else { panic!() };
    let copy = fs::read(module(dir.path()).join(longer)).unwrap();
    let of_q = seal(&store, dir.path(), &["q"]);
    assert!(store.trim_segment(longer, 1).unwrap());
    damage_and_repair(dir.path(), &of_q);
    let store = process(dir.path());
    store.core.collect(Duration::ZERO).unwrap();
    assert!(!names(dir.path(), "seg-").contains(longer), "it is collected");
    let found = values(&store, &["x", "y"]);
    let cut = if found[0] == -1 { "x" } else { "y" };
    assert_eq!(put(&store, cut, 2).unwrap(), 1);
    seal_all(&store);
    store.core.compact(Effort::Thorough).unwrap();
    store.core.collect(Duration::ZERO).unwrap();
    fs::write(module(dir.path()).join(longer), &copy).unwrap();
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == cut.as_bytes())).unwrap();
    assert_eq!((values(&reader(dir.path()), &[cut]), count), (vec![2], 1));
}

/// As `rows_that_a_repaired_change_kills_do_not_come_back`; the segments cannot be read at the moment of the repair.
#[test]
fn rows_that_a_repaired_change_kills_do_not_come_back_if_their_segments_could_not_be_read_then() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let segments: Vec<String> = ["x", "y"].iter().map(|key| seal(&store, dir.path(), &[key])).collect();
    (0..3).for_each(|_| crate::testing::kill_z(&store));
    join_while(dir.path(), move |dir| {
        for name in &segments {
            fs::rename(module(dir).join(name), dir.join(name)).unwrap();
            fs::create_dir(module(dir).join(name)).unwrap();
        }
        damage_and_repair(dir, "change-00000000000000000002");
        for name in &segments {
            fs::remove_dir(module(dir).join(name)).unwrap();
            fs::rename(dir.join(name), module(dir).join(name)).unwrap();
        }
        let other = process(dir);
        assert_eq!(values(&other, &["x", "y"]), [-1, -1]);
        assert_eq!(put(&other, "x", 2).unwrap(), 1);
        seal_all(&other);
        std::mem::forget(other);
    });
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == b"x")).unwrap();
    assert_eq!((values(&reader(dir.path()), &["x", "y"]), count), (vec![2, -1], 1));
}

/// Change 2 is to be repaired at a moment at which change 5 looks damaged, too, so that nothing can be announced.
#[test]
fn a_change_is_not_replaced_by_a_repair_that_cannot_be_announced() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    seal(&store, dir.path(), &["x"]);
    seal(&store, dir.path(), &["y"]);
    (0..5).for_each(|_| crate::testing::kill_z(&store));
    let running = process(dir.path());
    assert_eq!(values(&running, &["x", "y"]), [1, 1]);
    damage(dir.path(), "change-00000000000000000002");
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    let last = module(dir.path()).join("change-00000000000000000005");
    let sound = fs::read(&last).unwrap();
    damage(dir.path(), "change-00000000000000000005");
    let repaired = crate::repair(&module(dir.path()), &found, &mut |_, _| {});
    assert_eq!(repaired.unwrap(), []);
    crate::testing::rewrite(&last, &sound);
    let other = process(dir.path());
    // The change is still damaged, and is repaired now.
    assert_eq!(values(&other, &["x", "y"]), [-1, -1]);
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    assert_eq!(crate::repair(&module(dir.path()), &found, &mut |_, _| {}).unwrap().len(), 1);
    other.refresh().unwrap();
    assert_eq!(put(&other, "x", 2).unwrap(), 1);
    seal_all(&other);
    std::mem::forget(other);
    let _ = compact(&running.core, Effort::Thorough, &mut BTreeSet::new());
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == b"x")).unwrap();
    assert_eq!((values(&reader(dir.path()), &["x"]), count), (vec![2], 1));
}

/// A joined segment gets its name when a repair has listed the folder for its second change. Another process knows that segment, and its
/// invalidation ends what the first change of the repair says: what the joined segment stands for is collected.
#[test]
fn rows_that_are_joined_between_the_two_changes_of_a_repair_are_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let [of_x, ..] = XYZ.map(|key| seal(&store, dir.path(), &[key]));
    std::mem::forget(store);
    let (go, waits): (Sender<()>, Receiver<()>) = channel();
    let (waits, thread) = (Mutex::new(Some(waits)), Arc::new(Mutex::new(None)));
    let repairing = thread.clone();
    let joining = joining_while(dir.path(), move |dir| {
        damage(dir, &of_x);
        let (listed, is_listed): (Sender<()>, Receiver<()>) = channel();
        let (dir, waits) = (dir.to_owned(), waits.lock().unwrap().take().unwrap());
        *repairing.lock().unwrap() = Some(std::thread::spawn(move || {
            let found = crate::verify(&module(&dir), &mut |_, _| {}).unwrap().damage;
            let looks = AtomicUsize::new(0);
            let look = || {
                let seen = Inspection::open(&module(&dir));
                // Verified again, and listed for the first change.
                if looks.fetch_add(1, SeqCst) == 2 {
                    listed.send(()).unwrap();
                    waits.recv().unwrap();
                }
                seen
            };
            let storage = LocalStorage::new(module(&dir), System);
            Repair { storage: &storage, look: &look }.run(&found, &mut |_, _| {}).unwrap()
        }));
        is_listed.recv().unwrap();
    });
    // It has read what is damaged now, and needs no file.
    let other = process(dir.path());
    let of_w = seal(&other, dir.path(), &["w"]);
    std::mem::forget(other);
    damage(dir.path(), &of_w);
    make_older(dir.path(), "seg-");
    wait_for_certain_damage(&joining);
    joining.invalidate_where(|_| false).unwrap();
    joining.core.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 2, "the joined segment and the damaged one");
    go.send(()).unwrap();
    let repaired = thread.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(repaired[0].done, "removed by another process");
    assert_eq!(values(&reader(dir.path()), &XYZ), [1; 3]);
}

/// Change 2 is repaired, so that x and y are lost. They are collected between the two changes of the repair, and x is put again. Only then a
/// joined segment gets its name that has both.
#[test]
fn rows_that_are_collected_between_the_two_changes_of_a_repair_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    for key in ["x", "y"] {
        seal(&store, dir.path(), &[key]);
    }
    (0..3).for_each(|_| crate::testing::kill_z(&store));
    let running = process(dir.path());
    assert_eq!(values(&running, &["x", "y"]), [1, 1]);
    let (names_it, is_named): (Sender<()>, Receiver<()>) = channel();
    let (joined, has_joined): (Sender<()>, Receiver<()>) = channel();
    let (at_rename, reached): (Sender<()>, Receiver<()>) = channel();
    let (path, is_named) = (dir.path().to_owned(), Mutex::new(is_named));
    std::thread::spawn(move || {
        join_while(&path, move |_| {
            at_rename.send(()).unwrap();
            is_named.lock().unwrap().recv().unwrap();
        });
        joined.send(()).unwrap();
    });
    reached.recv().unwrap();
    damage(dir.path(), "change-00000000000000000002");
    let found = crate::verify(&module(dir.path()), &mut |_, _| {}).unwrap().damage;
    let looks = AtomicUsize::new(0);
    let look = || {
        // The first that comes after the first change.
        if looks.fetch_add(1, SeqCst) == 2 {
            running.refresh()?;
            running.core.collect(Duration::ZERO)?;
            assert_eq!(names(dir.path(), "seg-"), [""; 0]);
            assert_eq!(put(&running, "x", 2)?, 1);
            running.flush()?;
            names_it.send(()).unwrap();
            has_joined.recv().unwrap();
        }
        Inspection::open(&module(dir.path()))
    };
    let storage = LocalStorage::new(module(dir.path()), System);
    assert_eq!(Repair { storage: &storage, look: &look }.run(&found, &mut |_, _| {}).unwrap().len(), 1);
    let mut count = 0;
    reader(dir.path()).each_key(|key, _| count += usize::from(key == b"x")).unwrap();
    assert_eq!((values(&reader(dir.path()), &["x", "y"]), count), (vec![2, -1], 1));
}
