//! Joined segments serve the same rows, in every process and whatever happens meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use crate::segment::forged;
use crate::storage::LocalStorage;
use crate::storage::name::SegmentName;
use crate::testing::Faulty;
use crate::testing::{compute, keys, names, process, reader, seal_all, values, with_operations};
use crate::upkeep::compaction::Effort;
use crate::{Column, ColumnType, Identity, KeyType, Keys, Options, Spec, Store};

/// Rows in segments of their own: the value of each is its place.
fn fill(store: &Store, wanted: &[&str]) {
    for (value, key) in wanted.iter().enumerate() {
        compute(store, &[key], value as i64);
        // Not through the writer thread, which would join the segments.
        seal_all(store);
    }
}

const ABC: [&str; 3] = ["a", "b", "c"];

fn segments(dir: &Path) -> usize {
    names(dir, "seg-").len()
}

#[test]
fn joined_segments_serve_the_same_rows_and_their_inputs_can_go() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, other) = (process(dir.path()), process(dir.path()));
    fill(&writer, &ABC);
    assert_eq!(values(&other, &ABC), [0, 1, 2]);
    writer.compact().unwrap();
    assert_eq!((segments(dir.path()), writer.stats().segments), (4, 1));
    assert_eq!(values(&other, &ABC), [0, 1, 2]);
    assert_eq!(other.stats().segments, 1);
    writer.collect(Duration::from_hours(1)).unwrap();
    assert_eq!(segments(dir.path()), 4, "the new segment is too young");
    writer.collect(Duration::ZERO).unwrap();
    assert_eq!(segments(dir.path()), 1);
    for store in [&writer, &other, &process(dir.path()), &reader(dir.path())] {
        assert_eq!(values(store, &ABC), [0, 1, 2]);
        assert_eq!((store.stats().segments, store.stats().rows, store.stats().damaged_segments), (1, 3, 0));
    }
}

#[test]
#[cfg(unix)]
fn a_collection_removes_no_file_of_a_copy_that_comes_in_the_place_of_the_folder() {
    for at in ["hold", "metadata", "remove"] {
        let dir = tempfile::tempdir().unwrap();
        let (module, copy, aside) =
            (dir.path().join("m_v1"), dir.path().join("copy"), dir.path().join("aside"));
        fill(&process(dir.path()), &ABC);
        fs::create_dir(&copy).unwrap();
        for name in names(dir.path(), "") {
            fs::copy(module.join(&name), copy.join(&name)).unwrap();
        }
        let comes = Arc::new(AtomicBool::new(false));
        let (due, set_aside) = (comes.clone(), aside.clone());
        let store = with_operations(
            dir.path(),
            Faulty::with(move |_, step, _| {
                if step == at && due.swap(false, SeqCst) {
                    fs::rename(&module, &set_aside).unwrap();
                    fs::rename(&copy, &module).unwrap();
                }
                None
            }),
        );
        store.compact().unwrap();
        comes.store(true, SeqCst);
        // The rest of the collection may be refused.
        let _: crate::Result<usize> = store.collect(Duration::ZERO);
        assert!(aside.exists(), "it comes to {at}");
        assert_eq!(segments(dir.path()), 3, "the copy came at {at}");
        assert_eq!(values(&process(dir.path()), &ABC), [0, 1, 2], "the copy came at {at}");
    }
}

#[test]
fn what_is_dead_is_left_out_and_stays_dead() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    compute(&writer, &["a", "b"], 0);
    fill(&writer, &["c"]);
    writer.invalidate(&keys(&["b"])).unwrap();
    writer.compact().unwrap();
    assert_eq!(writer.stats().rows, 2);
    writer.collect(Duration::ZERO).unwrap();
    compute(&writer, &["b"], 7);
    assert_eq!(values(&writer, &ABC), [0, 7, 0]);
    writer.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &ABC), [0, 7, 0]);
}

#[test]
fn a_segment_whose_rows_are_all_dead_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    fill(&writer, &ABC);
    writer.invalidate(&keys(&["a", "c"])).unwrap();
    assert!(writer.collect(Duration::ZERO).unwrap() >= 2);
    assert_eq!(segments(dir.path()), 1);
    writer.invalidate_all().unwrap();
    writer.collect(Duration::ZERO).unwrap();
    assert_eq!((segments(dir.path()), names(dir.path(), "run-").len()), (0, 0));
    assert_eq!(values(&process(dir.path()), &ABC), [-1; 3]);
}

#[test]
fn copies_of_a_key_become_one() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (process(dir.path()), process(dir.path()));
    let mut rows = b.lookup(keys(&ABC)).unwrap();
    fill(&a, &ABC);
    b.insert(&mut rows, &[0, 1, 2], crate::testing::column(&[0, 1, 2])).unwrap();
    seal_all(&b);
    let view = Keys::text(["a"], 3).unwrap();
    let mut rows = b.lookup(view.clone()).unwrap();
    b.insert(&mut rows, &[0], crate::testing::column(&[3])).unwrap();
    seal_all(&b);
    assert_eq!(process(dir.path()).stats().rows, 7);
    a.compact().unwrap();
    assert_eq!(a.stats().rows, 4, "a view is no copy");
    assert_eq!(values(&a, &ABC), [0, 1, 2]);
    assert_eq!(a.lookup(view).unwrap().missing(), 0);
}

#[test]
fn the_inputs_of_a_damaged_segment_live_again() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    fill(&writer, &ABC);
    let before = names(dir.path(), "seg-");
    writer.compact().unwrap();
    let joined = names(dir.path(), "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    let path = dir.path().join("m_v1").join(joined);
    let mut bytes = std::fs::read(&path).unwrap();
    // The last row of the only column: the values end before the end marker.
    let at = bytes.windows(8).rposition(|window| window == 2_i64.to_le_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let store = process(dir.path());
    assert_eq!(values(&store, &ABC), [0, 1, 2]);
    assert_eq!(store.stats().damaged_segments, 1);
    let collector = process(dir.path());
    collector.collect(Duration::ZERO).unwrap();
    assert_eq!(segments(dir.path()), 4, "nothing that a damaged segment stands for is removed");
    assert_eq!(values(&process(dir.path()), &ABC), [0, 1, 2]);
}

#[test]
fn a_joined_segment_that_counts_on_an_unknown_change_replaces_nothing_yet() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, other) = (process(dir.path()), process(dir.path()));
    fill(&writer, &ABC);
    assert_eq!(values(&other, &ABC), [0, 1, 2]);
    writer.invalidate(&keys(&["b"])).unwrap();
    let change = dir.path().join("m_v1/change-00000000000000000001");
    let hidden = dir.path().join("hidden");
    crate::upkeep::compaction::compact(&writer.core, Effort::Thorough, &mut BTreeSet::new()).unwrap();
    std::fs::rename(&change, &hidden).unwrap();
    assert_eq!(values(&other, &ABC), [0, 1, 2], "it knows neither the change nor what counts on it");
    std::fs::rename(&hidden, &change).unwrap();
    assert_eq!(values(&other, &ABC), [0, -1, 2]);
    assert_eq!(other.stats().segments, 2, "the joined one, and one whose rows are all dead");
}

#[test]
fn joining_and_collecting_go_on_after_joining() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    fill(&writer, &ABC);
    writer.compact().unwrap();
    fill(&writer, &["d", "e"]);
    writer.compact().unwrap();
    assert_eq!(segments(dir.path()), 3 + 1 + 2 + 1);
    let other = process(dir.path());
    other.collect(Duration::ZERO).unwrap();
    assert_eq!(segments(dir.path()), 1);
    for store in [&writer, &other, &process(dir.path())] {
        assert_eq!(values(store, &["a", "b", "c", "d", "e"]), [0, 1, 2, 0, 1]);
    }
}

#[test]
fn only_files_of_tcx_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    fill(&writer, &ABC);
    let unrecognised = ["notes.txt", "seg-1.arrow", "tmp-notes", "run-.idx"];
    for stranger in unrecognised {
        std::fs::write(dir.path().join("m_v1").join(stranger), "mine").unwrap();
    }
    let orphan = dir.path().join(format!("m_v1/tmp-{}", "0".repeat(32)));
    std::fs::write(&orphan, "of a killed process").unwrap();
    let yesterday = std::time::SystemTime::now() - Duration::from_hours(25);
    std::fs::File::options().write(true).open(&orphan).unwrap().set_modified(yesterday).unwrap();
    let young = dir.path().join(format!("m_v1/tmp-{}", "1".repeat(32)));
    std::fs::write(&young, "of a living one").unwrap();
    writer.invalidate_all().unwrap();
    writer.collect(Duration::ZERO).unwrap();
    for stranger in unrecognised {
        assert!(dir.path().join("m_v1").join(stranger).exists());
    }
    assert!(!orphan.exists() && young.exists());
}

#[test]
fn the_number_of_files_stays_logarithmic_as_a_cache_grows_by_small_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    let flushes = 600;
    let mut most = 0;
    for key in 0..flushes {
        compute(&writer, &[&key.to_string()], key);
        seal_all(&writer);
        writer.core.tidy();
        writer.core.collect(Duration::ZERO).unwrap();
        most = most.max(names(dir.path(), "").len());
    }
    assert!(most <= 40, "{most} files after {flushes} flushes");
    let wanted: Vec<String> = (0..flushes).map(|key| key.to_string()).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    assert_eq!(values(&process(dir.path()), &wanted), (0..flushes).collect::<Vec<_>>());
}

#[test]
fn merged_runs_forget_segments_that_are_long_gone() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    fill(&writer, &ABC);
    // A run of the three segments, kept as if no process had removed it yet.
    crate::upkeep::tasks::merge_runs(&writer.core, true);
    let [run] = &names(dir.path(), "run-")[..] else { panic!("one run") };
    let path = dir.path().join("m_v1").join(run);
    let kept = std::fs::read(&path).unwrap();
    // Twice, so that no segment names the three as its inputs any more.
    for key in ["d", "e"] {
        fill(&writer, &[key]);
        writer.compact().unwrap();
        writer.collect(Duration::ZERO).unwrap();
    }
    drop(writer);
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, kept).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(1);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    let later = process(dir.path());
    assert_eq!(values(&later, &ABC), [0, 1, 2]);
    crate::upkeep::tasks::merge_runs(&later.core, true);
    let [run] = &names(dir.path(), "run-")[..] else { panic!("one run") };
    let bytes = std::fs::read(dir.path().join("m_v1").join(run)).unwrap();
    assert_eq!(u32::from_le_bytes(bytes[12..16].try_into().unwrap()), 1, "segments in the run");
}

#[test]
fn a_segment_that_is_intact_and_holds_no_rows_does_not_keep_the_others_from_being_joined() {
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec::new("m_v1", KeyType::Text, &ColumnType::Text, Identity::default(), Vec::new()).unwrap();
    let options = Options { flush_interval: Duration::from_hours(1), ..Options::default() };
    let opened = Arc::new(AtomicUsize::new(0));
    let open = || {
        let opened = opened.clone();
        let steps = Faulty::with(move |_, step, path: &Path| {
            let is_segment = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
            opened.fetch_add(usize::from(step == "open" && is_segment), SeqCst);
            None
        });
        let storage = LocalStorage::new(dir.path().join("m_v1"), steps);
        Store::with_storage(Arc::new(storage), spec.clone(), &options).unwrap()
    };
    let writer = open();
    for key in ["a", "b", "c"] {
        let mut rows = writer.lookup(keys(&[key])).unwrap();
        writer.insert(&mut rows, &[0], vec![Column::text([format!("text of {key}")])]).unwrap();
        seal_all(&writer);
    }
    let segments = writer.core.live().segments.usable();
    let holds = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|own| own == text);
    let path = |name: SegmentName| dir.path().join("m_v1").join(name.to_string());
    let original =
        segments.iter().find(|own| holds(&fs::read(path(own.name())).unwrap(), b"text of b").is_some());
    let (name, bytes) = forged(original.unwrap(), |bytes| {
        let at = holds(bytes, b"text of b").unwrap();
        // No text has this byte.
        bytes[at] = 0xff;
    });
    fs::write(path(name), bytes).unwrap();
    fs::remove_file(path(original.unwrap().name())).unwrap();
    drop(writer);
    let store = open();
    opened.store(0, SeqCst);
    store.compact().unwrap();
    // It may be a copy that is not complete yet, so each listing opens it again.
    assert!(opened.load(SeqCst) < 20, "segments were opened {} times", opened.load(SeqCst));
    assert_eq!(store.lookup(keys(&ABC)).unwrap().distinct_missing_positions(), [1]);
    assert_eq!((store.stats().segments, store.stats().damaged_segments), (1, 1));
}
